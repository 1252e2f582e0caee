# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hold a run to a saved plan: before the first change, all hosts are compared with it, and what their modules would do."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...module_utils._plan import Refused
from ..action_options import takes
from ..descriptions import RunHost, hosts_of, refusals_of_hosts, sentences
from ..fleet.saved_plan import AGAIN
from ..host_facts import ControllerAction, registered
from ..plan_file import trees_of_hosts
from ..planning import OPTIONS, Planning, held_to
from ..recommend.seen import SEEN, seen_of

_OTHER_TREE = Refused("the files of the clusters", "what they say of its node is not what the plan was made for", AGAIN)


class Comparison:
    """The hosts of a run of a playbook beside the saved plan that it is held to, one after the other. Raises Refused: it cannot be held to that, whatever they
    are. C(arguments): those in L(OPTIONS), of which C(tree) is the digest of the files of the clusters; None where none are rendered.
    """

    def __init__(self, arguments: dict[str, Any], playbook: str, task_vars: dict[str, Any]) -> None:
        self._held = held_to(arguments, playbook, task_vars)
        self._playbook, self._tree = playbook, arguments["tree"]
        self._trees, self._seen = trees_of_hosts(task_vars), task_vars.get(SEEN)
        self._refused: list[tuple[str, Refused]] = []
        self._begun = False

    def planned(self, host: RunHost) -> Planning:
        """Return how a host is planned, which is compared."""
        held, name = self._held, host.name
        description = host.description if self._playbook == "site" else host.description.emptied()
        planning = Planning(description, host.facts, host.document, seen_of(self._seen, name), name)
        planning.ask(partial(registered, host.variables), self._playbook)
        mine = held.is_begun(host.facts) or held.is_applied(host.facts)
        self._begun = self._begun or mine
        if not mine and self._tree is not None and held.plan.host(name).tree != self._trees.get(name):
            self._refused.append((name, _OTHER_TREE))
        self._refused += [(name, one) for one in held.objections(name, planning, host.facts, host.unread)]
        return planning

    def result(self) -> dict[str, Any]:
        """Return what it found. What a run that was cut off has changed, the files may follow already: then what they say of each other host counts.
        Raises Refused: the files are others.
        """
        meant, now = self._held.plan.tree or "none", self._tree or "none"
        if self._tree is not None and not self._begun and meant != now:
            reason = f"the plan was made for those with the digest {meant}, and rendering them gives {now}"
            raise Refused("the files of the clusters", reason, AGAIN)
        refusals = refusals_of_hosts(self._refused)
        result: dict[str, Any] = {"digest": self._held.digest, "refusals": refusals}
        if refusals:
            end = f"No host is changed: {self._held.path} is not what would be done."
            result.update(failed=True, msg="\n".join([*sentences(refusals), end]))
        return result


class ActionModule(ControllerAction):
    OPTIONS = {**takes("fleet", needs="hosts playbook"), **OPTIONS}
    UNTOUCHED = " No host is changed."

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        comparison = Comparison(arguments, arguments["playbook"], task_vars)
        for host in hosts_of(arguments["hosts"], task_vars):
            comparison.planned(host)
        return comparison.result()
