# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hold a run to a saved plan: before the first change, all hosts are compared with it, and what their modules would do."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...module_utils._plan import Refused
from ..action_options import takes
from ..descriptions import hosts_of, refusals_of_hosts, sentences
from ..fleet.saved_plan import AGAIN
from ..host_facts import ControllerAction, registered
from ..plan_file import trees_of_hosts
from ..planning import OPTIONS, Held, Planning, held_to
from ..recommend.seen import SEEN, seen_of


class ActionModule(ControllerAction):
    OPTIONS = {**takes("fleet", "tree", needs="hosts playbook"), **OPTIONS}
    UNTOUCHED = " No host is changed."

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        playbook = arguments["playbook"]
        held_back: list[tuple[str, Refused]] = []
        trees, others = trees_of_hosts(task_vars), []
        begun = False
        held = held_to(arguments, playbook, task_vars)
        for host in hosts_of(arguments["hosts"], task_vars):
            seen = seen_of(task_vars.get(SEEN), host.name)
            description = host.description if playbook == "site" else host.description.emptied()
            planning = Planning(description, host.facts, host.document, seen, host.name)
            planning.ask(partial(registered, host.variables), playbook)
            mine = held.is_begun(host.facts) or held.is_applied(host.facts)
            begun = begun or mine
            if not mine and held.plan.host(host.name).tree != trees.get(host.name):
                others.append((host.name, _OTHER_TREE))
            held_back += [(host.name, one) for one in held.objections(host.name, planning, host.facts, host.unread)]
        if arguments["tree"] is not None:
            held_back += others
            if not begun:
                _same_tree(held, arguments["tree"])
        refusals = refusals_of_hosts(held_back)
        result: dict[str, Any] = {"digest": held.digest, "begun": begun, "refusals": refusals}
        if refusals:
            end = f"No host is changed: {held.path} is not what would be done."
            result.update(failed=True, msg="\n".join([*sentences(refusals), end]))
        return result


_OTHER_TREE = Refused("the files of the clusters", "what they say of its node is not what the plan was made for", AGAIN)


def _same_tree(held: Held, digest: str) -> None:
    """Refuse other files of the clusters. What a run that was cut off has changed, they may follow already: then what they say of each other host counts."""
    meant = held.plan.tree or "none"
    if meant != (digest or "none"):
        reason = f"the plan was made for those with the digest {meant}, and rendering them gives {digest or 'none'}"
        raise Refused("the files of the clusters", reason, AGAIN)
