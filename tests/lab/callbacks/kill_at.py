# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A power cut of the controller right after a task that changed something.

CHANGES_LOG names a file that gets a line for each such task: its name, with a number where it is not the first of that name. KILL_AT is such a line:
the run, with all its processes, is killed there. A test starts the run in a session of its own.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: kill_at
type: aggregate
short_description: End a run at once after one of its tasks
description: A test tool.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "kill_at"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self):
        super().__init__()
        self._seen = Counter()

    def v2_runner_on_ok(self, result):
        if not result._result.get("changed"):
            return
        name = result._task.get_name().rpartition(" : ")[2]
        self._seen[name] += 1
        step = f"{name} #{self._seen[name]}"
        with open(os.environ["CHANGES_LOG"], "a") as log:
            log.write(f"{step}\n")
        if step == os.environ.get("KILL_AT"):
            os.killpg(os.getpgrp(), signal.SIGKILL)
