# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Refuse a node that another run has drained and works on. One that has ended, or of which this machine knows nothing, was cut off: this run finishes it."""

from __future__ import annotations

import re
from typing import Any

from ..action_options import takes
from ..cluster_lease import is_at_work, this_run
from ..host_facts import ControllerAction

_REASON = re.compile(r"Reason=(gpufleet\.nvidia\.\w+) (\S+)")


class ActionModule(ControllerAction):
    OPTIONS = takes("fleet", needs="scontrol")

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        found = _REASON.search(arguments["scontrol"])
        if not found or not is_at_work(found[2], this_run()):
            return {}
        why = f"{found[1]}, which has drained its node, is still at work ({found[2]})"
        return {"failed": True, "msg": f"{task_vars['inventory_hostname']}: {why}. Wait until it ends, and run again."}
