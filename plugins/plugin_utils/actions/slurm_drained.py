# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Refuse a node that another run has drained and works on. One that has ended on this machine was cut off: this run finishes it. Of one on another machine
it is not known, so that it counts for as long as it may wait for jobs.
"""

from __future__ import annotations

import datetime
import re
from typing import Any

from ...module_utils._formats.utc_time import lately, moment_of
from ...module_utils._plan import Failure
from ..action_options import takes
from ..cluster_lease import is_at_work, is_gone, this_run
from ..host_facts import ControllerAction

#: With the time that Slurm puts behind it: C([root@2026-11-28T16:38:08]).
_REASON = re.compile(r"Reason=(gpufleet\.nvidia\.\w+) (\S+/\S+)(?: \[[^\]@]*@([^\]]+)\])?")


class ActionModule(ControllerAction):
    OPTIONS = takes("fleet", "take_over", needs="scontrol seconds")

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        found, here = _REASON.search(arguments["scontrol"]), this_run()
        if not found or found[2] == str(here) or arguments["take_over"] or is_gone(found[2], here):
            return {}
        why, remedy = f"{found[1]}, which has drained its node, is still at work ({found[2]})", ""
        if not is_at_work(found[2], here):
            if not lately(
                moment_of(f"{found[3]}Z"), datetime.datetime.now(datetime.timezone.utc), arguments["seconds"]
            ):
                return {}
            why = f"{found[1]} has drained its node at {found[3]} (UTC), and may be at work on another machine ({found[2]})"
            remedy = f" If it is dead, it no longer counts {arguments['seconds']} s after that, or at once with gpu_node_lease_take_over=true."
        raise Failure(f"{task_vars['inventory_hostname']}: {why}. Wait until it ends, and run again.{remedy}")
