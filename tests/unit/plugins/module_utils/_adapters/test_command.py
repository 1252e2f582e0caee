# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is told of a command that failed: the line that says why comes first, because some show no other."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError, cause, run
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import said

#: nvidia-ctk 1.20 where the library is of another driver than the module.
CTK = """\
time="2026-11-26T09:12:01Z" level=info msg="Auto-detected mode as \\"nvml\\""
time="2026-11-26T09:12:01Z" level=warning msg="Could not locate nvidia-imex: pattern nvidia-imex not found"
time="2026-11-26T09:12:01Z" level=warning msg="Could not locate /nvidia-fabricmanager/socket: not found"
time="2026-11-26T09:12:01Z" level=warning msg="Could not locate nvidia_drv.so: pattern nvidia_drv.so not found"
time="2026-11-26T09:12:01Z" level=warning msg="Could not locate libglxserver_nvidia.so.580.190.01: not found"
time="2026-11-26T09:12:02Z" level=error msg="failed to generate CDI spec: failed to initialize NVML: Driver/library version mismatch"
"""


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (CTK, "Driver/library version mismatch"),
        ("W: it is slow\nE: Unable to locate package x\nN: see the log\n", "E: Unable to locate package x"),
        ("modprobe: FATAL: Module x not found\n", "modprobe: FATAL: Module x not found"),
        ("warning: one\nit broke\n\n", "it broke"),
        ("warning: one\nwarning: two\n", "warning: two"),
        ("", ""),
    ],
)
def test_the_cause_is_the_line_that_is_no_warning(output, line):
    assert line in cause(output) and "\n" not in cause(output)


def test_the_first_line_of_the_message_has_it_and_the_rest_follows():
    error = CommandError(["nvidia-ctk", "cdi", "generate"], "exit status 1", CTK)
    first = said({"msg": str(error)})
    assert first.startswith("Failed to run nvidia-ctk cdi generate: exit status 1: ")
    assert "version mismatch" in first and "Could not locate" not in first
    assert "Could not locate nvidia-imex" in str(error)


def test_a_command_that_fails_tells_it():
    with pytest.raises(CommandError, match="exit status 3: error: no such GPU\nwarning: old\nerror: no such GPU"):
        run(["sh", "-c", "echo warning: old >&2; echo error: no such GPU >&2; exit 3"], allowed=(0,))
