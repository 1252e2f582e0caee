# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import subprocess
import time
import types

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.stopwatch import Stopwatch, activity


@pytest.mark.parametrize(
    ("programs", "what"),
    [
        ((), "own"),
        (("modprobe", "/sbin/modprobe"), "programs"),
        # While apt downloads, and nothing else does what it does.
        (("apt-get", "apt-get", "http", "/usr/lib/apt/methods/http"), "download"),
        (("http", "/usr/bin/http"), "programs"),
        (("apt-get", "dpkg", "nvidia-dkms.postinst"), "packages"),
        # DKMS builds in a package's script, and while it does nothing is downloaded.
        (("apt-get", "dpkg", "dkms", "make", "cc1"), "build"),
        (("dnf-3", "/usr/bin/python3"), "packages"),
    ],
)
def test_what_runs_says_what_a_moment_is_spent_on(programs, what):
    assert activity(programs) == what


def test_programs_of_programs_count_and_the_module_itself_too(tmp_path):
    builder = tmp_path / "dkms"
    builder.write_text("#!/bin/sh\nsleep 0.6\nexit 0\n")
    builder.chmod(0o755)
    with Stopwatch() as watch:
        subprocess.run(["sh", "-c", f"{builder}; true"], check=True)
        time.sleep(0.5)
    # At least half of it also on a machine that has no time for anybody.
    assert watch.seconds["build"] >= 0.3
    assert watch.seconds["own"] >= 0.2


def test_what_the_driver_takes_is_its_own_and_not_the_modules():
    # Called as pynvml calls the library: its own function is the innermost one while it waits.
    pynvml = types.ModuleType("pynvml")
    exec("import time\ndef nvmlDeviceSetMigMode():\n    time.sleep(0.6)\n", pynvml.__dict__)
    with Stopwatch() as watch:
        pynvml.nvmlDeviceSetMigMode()
    assert watch.seconds["nvml"] >= 0.3


def test_programs_are_waited_for_before_the_driver():
    assert activity(("systemctl",), in_driver=True) == "programs"
    assert activity((), in_driver=True) == "nvml"


def test_what_came_before_is_the_modules_own():
    with Stopwatch() as watch:
        pass
    started = time.clock_gettime(time.CLOCK_BOOTTIME) - watch.seconds["own"]
    with Stopwatch() as later:
        pass
    assert abs(time.clock_gettime(time.CLOCK_BOOTTIME) - later.seconds["own"] - started) < 5
    assert watch.seconds["own"] > 0
