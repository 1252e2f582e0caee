# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check on the controller the variables of a playbook, for all of its hosts, before anything is touched."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.utils.vars import load_extra_vars

from ...module_utils._plan import Refused
from ...module_utils._slurm.stage import DESIRED as SLURM
from .. import playbook_variables
from ..action_options import takes
from ..cluster import at_once
from ..cluster_lease import this_run
from ..descriptions import hosts_of, refusals_of_hosts, sentences
from ..fleet.text import shortened
from ..host_facts import ControllerAction
from ..plain import is_true, plain
from ..plan_file import APPLY, APPLYING, PLANNED_FOR
from ..pools import GPU_HOSTS, node_of, refuse_keywords
from ..render import writer
from ..render.recorded import HostVariables
from ..role_variables import deprecations, role_interface, value_of

#: Playbooks that do to hosts what their descriptions say: what is wrong with one ends them. The others say it, and go on with what they were asked.
_BY_DESCRIPTION = ("site", "upgrade", "rollback", "repartition", "migrate")
#: Playbooks that would ignore a saved plan.
_NOT_HELD = frozenset({*_BY_DESCRIPTION, "heal", "remove", "plan"} - APPLYING.keys())
_KERNEL = "gpu_upgrade_kernel"
#: What hands driver and toolkit over between the GPU Operator and a host: between its steps, containers of the cluster take them away.
_HANDING_OVER = ("nvidia_driver_migrate_from", "nvidia_toolkit_migrate_from")
_HANDED_OVER = (
    "what the host needs is known only when the GPU Operator's containers have left it, and no saved plan has that"
)
_WITHOUT = "Migrate these hosts without a saved plan, or leave them out with --limit."
#: Playbooks that write the tree of the clusters at their end.
_RENDERING = ("site", "repartition")
_CLUSTER = "gpu_kubernetes_cluster"
_STOP = "Correct it, leave these hosts out with --limit, or set gpu_facts_skip_refused_hosts: true to go on with the other hosts."


class ActionModule(ControllerAction):
    OPTIONS = takes("fleet", "hosts", needs="playbook")

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        playbook = arguments["playbook"]
        groups = plain(task_vars.get("groups", {}))
        if playbook not in playbook_variables.ANY_HOST and not groups.get(GPU_HOSTS):
            raise AnsibleActionFail(
                "The inventory has no hosts in the group gpu_hosts. Pass an inventory with -i, and run ansible-inventory --graph to see how "
                "Ansible reads it. Nothing was changed."
            )
        hosts = arguments["hosts"]
        if hosts is None:
            hosts = plain(task_vars.get("ansible_play_hosts_all") or [])
        try:
            refuse_keywords(groups)
        except Refused as refusal:
            raise AnsibleActionFail(f"{refusal.message} Nothing was changed.") from None
        planned_for = playbook if task_vars.get(APPLY) else task_vars.get(PLANNED_FOR)
        wrong: list[tuple[str, Refused]] = []
        described: list[tuple[str, Refused]] = []
        end = "Nothing was changed."
        unknown: dict[str, list[str]] = {}
        former: dict[str, None] = {}
        members = frozenset(groups.get(GPU_HOSTS) or ())
        # Hosts with the same description are planned once; of Slurm's files, which differ, no host is refused that was not read.
        planned: dict[str, tuple[Refused, ...]] = {}
        firsts: dict[str, tuple[str, Any]] = {}
        for one in hosts_of(hosts, task_vars):
            host, variables = one.name, one.variables
            found = playbook_variables.check(playbook, variables)
            former.update(dict.fromkeys(deprecations(variables)))
            wrong += [(host, refusal) for refusal in found.refusals]
            described += [(host, refusal) for refusal in found.others]
            for name, value in found.of_run.items():
                first = firsts.setdefault(name, (host, value))
                if value != first[1]:
                    wrong.append((host, playbook_variables.different(name, first, (host, value))))
            for name in found.unknown:
                unknown.setdefault(name, []).append(str(host))
            if host not in members:
                continue
            description = one.description
            if planned_for == "migrate":
                over = [name for name in _HANDING_OVER if description.variables.get(name)]
                wrong += [(host, Refused(name, _HANDED_OVER, _WITHOUT)) for name in over]
            key = json.dumps(
                [{**description.variables, SLURM: None}, [refusal.message for refusal in description.refusals]],
                sort_keys=True,
            )
            if key not in planned:
                _text, stages = description.without_host()
                planned[key] = tuple(refusal for stage in stages.values() for refusal in stage.refusals)
            stops = playbook in _BY_DESCRIPTION and not _may_be_skipped(variables)
            (wrong if stops else described).extend((host, refusal) for refusal in planned[key])
            end = f"Nothing was changed. {_STOP}" if stops and planned[key] else end
        if playbook in _NOT_HELD and hosts and task_vars.get(APPLY):
            reason = f"{playbook} cannot be held to a saved plan"
            wrong.append((hosts[0], Refused(APPLY, reason, f"Leave it out, or run {', '.join(APPLYING)}.")))
        if planned_for == "upgrade" and hosts and str(value_of(_KERNEL, task_vars, default="keep")) != "keep":
            reason = "saved plans have no steps of kernels"
            wrong.append((hosts[0], Refused(_KERNEL, reason, "Set it to keep, or upgrade without a saved plan.")))
        leaves = self._leaves(playbook, task_vars, [str(host) for host in groups.get(GPU_HOSTS) or ()])
        wrong += [(hosts[0], leaves)] if leaves and hosts else []
        for sentence in former:
            self._display.warning(sentence)
        for name, where in unknown.items():
            self._display.warning(f"{shortened(where)}: gpufleet.nvidia has no variable {name}.")
        said = refusals_of_hosts(described)
        for sentence in sentences(said):
            at_once(self._display)(sentence)
        stopping = refusals_of_hosts(wrong)
        result: dict[str, Any] = {"refusals": [*stopping, *said], "playbook": playbook, "run": str(this_run())}
        if wrong:
            result["failed"] = True
            result["msg"] = "\n".join([*sentences(stopping), end])
        return result

    def _leaves(self, playbook: str, task_vars: Mapping[str, Any], members: list[str]) -> Refused | None:
        """Return that too many nodes of the tree are not in the inventory: their names say it before a host is read. The guard, which renders what was
        read, says what else would keep the tree from being written.
        """
        run_tags, skipped = ({*plain(task_vars.get(f"ansible_{name}_tags") or ())} for name in ("run", "skip"))
        if playbook not in _RENDERING or not run_tags & {"all", "cluster"} or "cluster" in skipped:
            return None
        hostvars = task_vars["hostvars"]
        default = role_interface("gpu_kubernetes").defaults[_CLUSTER]
        try:
            known = HostVariables(hostvars, load_extra_vars(self._loader), (), lambda _host: {})
            of_run = known.of_run(task_vars, members, self._template)
            clusters = {str(value_of(_CLUSTER, hostvars[host], default=default) or "") for host in members} - {""}
            root = os.path.abspath(of_run["output_directory"])
            before = writer.nodes_of_tree(root, [f"clusters/{name}" for name in sorted(clusters)])
            nodes = {node_of(host, hostvars[host]) for host in members} if before else set()
            writer.leaving(root, before, {*members, *nodes}, of_run["remove_nodes"])
        except Refused as refusal:
            return refusal
        return None


def _may_be_skipped(variables: Mapping[str, Any]) -> bool:
    with suppress(Refused):
        return is_true(value_of("gpu_facts_skip_refused_hosts", variables))
    return False
