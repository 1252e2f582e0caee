# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variables of every host for the generator, where a run overrides some in the inventory.

Variables given with C(-e) stand above the inventory for every host of it, those outside of C(--limit) among them. The tree describes the
whole cluster, so to such a host they must not apply: it has what the inventory says, or the overrides of an earlier run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible.errors import AnsibleError
from ansible.utils.unsafe_proxy import wrap_var

from ...module_utils._plan import Refused
from ..host_facts import without_injected
from ..plain import plain
from ..role_variables import VariablesRefused, role_interface, validated
from .fleet import OF_HOST, REGISTERED

#: Options of the cluster, which is one, whatever hosts a run has.
_OF_CLUSTER = "gpu_kubernetes_"
#: Options of the run, which renders one tree.
OF_RUN = tuple(
    f"{_OF_CLUSTER}{name}"
    for name in ("output_directory", "facts_directory", "overwrite", "prune", "remove_nodes", "remove_clusters")
)
_ABSENT = object()

Variables = Mapping[str, Any]
Template = Callable[[Any, Variables], Any]


class HostVariables:
    """Answers which variables a host has.

    :param extra: those given with C(-e).
    :param hosts: the hosts of this run; empty for all of the inventory.
    """

    def __init__(
        self, hostvars: Any, extra: Variables, hosts: Collection[str], earlier: Callable[[str], Variables]
    ) -> None:
        self._hostvars = without_injected(hostvars)
        self._extra = extra
        self._hosts = frozenset(hosts)
        self._earlier = earlier
        self._inventory = without_injected(hostvars, {})
        self._of_run: tuple[str, dict[str, Any]] = "", {}

    def of(self, host: str) -> Variables:
        """Return the variables of C(host), raw."""
        if not self._hosts or host in self._hosts:
            found: Variables = self._hostvars.raw_get(host)
            return found
        cluster = {name: value for name, value in self._extra.items() if name.startswith(_OF_CLUSTER)}
        return {**self._inventory.raw_get(host), **cluster, **wrap_var(dict(self._earlier(host)))}

    def of_run(self, task_vars: Variables, hosts: Sequence[str], template: Template) -> dict[str, Any]:
        """Return the options of the run (L(OF_RUN)): the same in every playbook, whichever host its task runs on.

        What a play or a role sets (C(task_vars), raw) stands above the inventory. Of the inventory C(hosts), those of C(gpu_hosts), decide, all of which
        have to say what the first one says (L(refuse_other_run)), and localhost where they say nothing.
        """
        role = role_interface("gpu_kubernetes")
        here, local = (self._hostvars.raw_get(str(name)) for name in (task_vars["inventory_hostname"], "localhost"))
        of_play = {
            name: task_vars[name]
            for name in OF_RUN
            if name in task_vars and task_vars[name] not in (here.get(name, _ABSENT), role.defaults[name])
        }
        first = self._hostvars.raw_get(hosts[0]) if hosts else {}
        self._of_run = (hosts[0] if hosts else "", _run_variables(first, first, template))
        found = {
            **role.defaults,
            **_run_variables(
                {name: local[name] for name in OF_RUN if name in local and name not in first}, local, template
            ),
            **self._of_run[1],
            **_run_variables(of_play, task_vars, template),
        }
        options = {name: role.options[name] for name in OF_RUN}
        values, wrong = validated(replace(role, options=options), {name: found[name] for name in OF_RUN})
        if wrong:
            raise VariablesRefused(wrong)
        return {name[len(_OF_CLUSTER) :]: value for name, value in values.items()}

    def refuse_other_run(self, host: str, variables: Variables, template: Template) -> None:
        """Refuse a host whose raw variables say something else of the run than the first one's."""
        first, said = self._of_run
        mine = _run_variables(variables, variables, template)
        for name in OF_RUN if mine != said else ():
            if mine.get(name) != said.get(name):
                raise Refused(
                    name,
                    f"{first} has {said.get(name)!r} and {host} has {mine.get(name)!r}, and it is an option of the run",
                    "Set it for all hosts alike, best in group_vars/gpu_hosts.yml or group_vars/all.yml.",
                )

    def overrides(self, host: str, template: Template) -> dict[str, Any]:
        """Return the variables of C(host) that differ in this run from the inventory, templates resolved."""
        if not self._extra or (self._hosts and host not in self._hosts):
            return {}
        now, inventory = self.of(host), self._inventory.raw_get(host)
        found = {}
        for name in sorted(name for name in now if name.startswith(OF_HOST) and name not in REGISTERED):
            value = _value(now, name, template)
            if value is not _ABSENT and value != _value(inventory, name, template):
                found[name] = value
        return found


def _run_variables(said: Variables, variables: Variables, template: Template) -> dict[str, Any]:
    """Return the options of the run in C(said), which are resolved with C(variables)."""
    found = {name: said[name] for name in OF_RUN if name in said}
    return {name: plain(template(value, variables) if "{" in str(value) else value) for name, value in found.items()}


def _value(variables: Variables, name: str, template: Template) -> Any:
    if name not in variables:
        return _ABSENT
    try:
        return plain(template(variables[name], variables))
    except (AnsibleError, TypeError):
        # Its template uses what only -e gives.
        return _ABSENT
