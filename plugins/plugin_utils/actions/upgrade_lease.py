# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Let one run at a time work on a fleet: take the Lease of its cluster, or give it back."""

from __future__ import annotations

from typing import Any

from .. import cluster_lease
from ..action_options import choice_of, takes
from ..cluster_action import ClusterAction


class ActionModule(ClusterAction):
    OPTIONS = {
        "state": choice_of("present", "absent", default="present"),
        **takes("rollout", "namespace duration take_over"),
    }

    def act(self, arguments: dict[str, Any], _task_vars: dict[str, Any]) -> dict[str, Any]:
        here = cluster_lease.this_run()
        if not arguments["kubernetes"] or self._task.check_mode:
            return {"holder": str(here)}
        cluster = self.cluster(arguments)
        if arguments["state"] == "present":
            self.hold_lease(cluster, arguments, arguments["namespace"], arguments["duration"], arguments["take_over"])
        else:
            cluster_lease.release(cluster, arguments["namespace"], here)
        return {"holder": str(here)}
