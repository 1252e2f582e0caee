# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Show what the time of the hosts of a run was spent on, by stage, and on which nodes the cluster does not know of the change yet."""

from __future__ import annotations

from typing import Any

from ..action_options import takes
from ..descriptions import hosts_of
from ..fleet.stage_times import REGISTERED, shown, stage_time
from ..fleet.text import shortened
from ..host_facts import ControllerAction, registered

_STALE = (
    "{nodes}: the GPU instances changed, and the device plugin and the DRA driver read them when they start. Where they run on these nodes, restart their "
    "pods (kubectl delete pod), so that the nodes offer what there is now. gpufleet.nvidia.repartition does so itself."
)


class ActionModule(ControllerAction):
    OPTIONS = takes("fleet", needs="hosts")

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        hosts = {}
        for host in arguments["hosts"]:
            variables = task_vars["hostvars"][host]
            times = {stage: stage_time(stage, registered(variables, name)) for stage, name in REGISTERED.items()}
            hosts[host] = {stage: time for stage, time in times.items() if time is not None}
        self._display.display("\n" + shown(hosts))
        results = {host: registered(task_vars["hostvars"][host], "nvidia_mig_result") or {} for host in hosts}
        # A reboot has started them again.
        changed = [host for host, one in results.items() if one.get("changed") and not one.get("reboot_required")]
        nodes = [one.name for one in hosts_of(changed, task_vars) if one.facts and one.facts.kubelet.active]
        if nodes:
            self._display.warning(_STALE.format(nodes=shortened(nodes)))
        return {
            "seconds": {
                host: {stage: {"elapsed": one.elapsed, **one.waits, "ours": one.ours} for stage, one in times.items()}
                for host, times in hosts.items()
            }
        }
