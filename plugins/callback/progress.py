# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Print what changes on hosts, and what fails, a line each."""

from __future__ import annotations

DOCUMENTATION = """
name: progress
type: stdout
short_description: Print one line for each change and each failure on a host
version_added: 0.1.0
author:
  - The gpufleet.nvidia authors (@gpufleet)
description:
  - For long runs such as C(gpufleet.nvidia.site) and C(gpufleet.nvidia.upgrade). For each task that changes something on a host or fails there, prints
    a line with the host, the seconds that it took, and the task. Tasks that change nothing or are skipped print nothing, but for the messages of
    M(ansible.builtin.debug).
  - The output of the playbooks themselves (plans, tables, reports) is printed as usual. Warnings are, too.
  - Select it with C(ANSIBLE_STDOUT_CALLBACK=gpufleet.nvidia.progress), or C(stdout_callback) in C(ansible.cfg).
requirements:
  - Set it as the stdout callback.
"""

import time
from typing import Any

from ansible import constants as C
from ansible.plugins.callback import CallbackBase
from ansible_collections.gpufleet.nvidia.plugins.module_utils._printable import printable
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.text import table
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import said


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "gpufleet.nvidia.progress"

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._begun: dict[tuple[str, str], float] = {}
        self._title = ""

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self._title = play.get_name().strip()

    def v2_playbook_on_task_start(self, *_task: Any, **_keywords: Any) -> None:
        # A play that has no hosts this time begins no task, and is not named.
        if self._title:
            self._display.display(f"\n{self._title}")
            self._title = ""

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        self._begun[host.get_name(), task._uuid] = time.monotonic()

    def v2_runner_on_ok(self, result: Any) -> None:
        changed = bool(_answer(result).get("changed"))
        self._show(result, "changed", C.COLOR_CHANGED, changed)
        if not changed and _part(result, "task").action in ("debug", "ansible.builtin.debug"):
            message = _answer(result).get("msg", "")
            for line in message if isinstance(message, list) else str(message).splitlines():
                self._display.display(printable(f"  {_part(result, 'host').get_name()}: {line}"))

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._show(result, f"FAILED: {said(_answer(result))}", C.COLOR_ERROR, not ignore_errors)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._show(result, f"UNREACHABLE: {said(_answer(result))}", C.COLOR_UNREACHABLE, True)

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._show(result, "skipped", None, False)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        rows = []
        for host in sorted(stats.processed):
            counts = stats.summarize(host)
            state = "failed" if counts["failures"] else "unreachable" if counts["unreachable"] else "ok"
            rows.append([host, state, str(counts["changed"])])
        if rows:
            self._display.display("\n" + table(["HOST", "STATE", "CHANGES"], rows).rstrip("\n"))

    def _show(self, result: Any, outcome: str, colour: str | None, shown: bool) -> None:
        host, task = _part(result, "host"), _part(result, "task")
        begun = self._begun.pop((host.get_name(), task._uuid), None)
        if not shown:
            return
        took = f"{time.monotonic() - begun:.0f} s" if begun is not None else "-"
        line = f"  {host.get_name()}  {took:>5}  {task.get_name().strip()}: {outcome}"
        self._display.display(printable(line), color=colour)


def _answer(result: Any) -> Any:
    """Return what a task returned; ansible-core 2.19 made the attributes of results public and deprecated the private ones."""
    return _part(result, "result")


def _part(result: Any, name: str) -> Any:
    return getattr(result, name) if hasattr(result, name) else getattr(result, f"_{name}")
