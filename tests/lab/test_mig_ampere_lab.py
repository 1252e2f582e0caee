# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""MIG through the role nvidia_mig on lab hosts whose GPUs take a reset to switch it on, and on one with a GPU that has none.

The tests run in order: each begins with what the one before left.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from mig_fleet import Mig, wait

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]

AMPERE, MIXED = "mig-ampere", "mig-mixed"


@pytest.fixture(scope="module")
def mig(make_fleet):
    both = {"group": "batch", "driver": "installed"}
    a100 = {"board": "a100-40gb", "count": 1}
    return Mig(
        make_fleet(
            "mig-ampere",
            {"name": AMPERE, "boards": [{**a100, "count": 2}], **both},
            {"name": MIXED, "boards": [a100, {"board": "t4", "count": 1}], **both},
        )
    )


def test_ampere_is_reset_alone(mig):
    job = mig.occupy(AMPERE, "neighbour", index=1)
    mig.lab.sh(AMPERE, "virtual-gpu trace on")
    answer = mig.settled(AMPERE, [{"devices": [0], "layout": "all-balanced"}])
    assert mig.modes(AMPERE) == [True, False]
    assert len(answer["reset"]) == 1 and answer["reset"][0].startswith("GPU 0 ")
    assert answer["unselected"] == [1]
    trace = [line.split()[1:] for line in mig.lab.sh(AMPERE, "virtual-gpu trace log").splitlines()]
    assert trace.count(["gpuReset", "SUCCESS"]) == 1
    assert [process["pid"] for process in mig.gpus(AMPERE)[1]["processes"]] == [job]
    mig.lab.sh(AMPERE, "virtual-gpu trace off")
    mig.leave(AMPERE, "neighbour")


#: Opens a device as a monitoring agent does that NVML does not list: /proc shows it.
HOLD = "import os, time; os.open('/dev/nvidia1', os.O_PATH); time.sleep(36000)"


def test_a_held_gpu_is_refused_or_waits_for_a_reboot_that_the_role_makes(mig):
    desired = "all-balanced"
    mig.lab.sh(AMPERE, f'systemd-run --quiet --unit=holder python3 -c "{HOLD}"')
    holder = mig.lab.sh(AMPERE, "systemctl show --value --property=MainPID holder").strip()
    mig.lab.sh(AMPERE, f"virtual-gpu run --gpu 1 --pid {holder} --type N")
    wait(lambda: "/dev/nvidia1" in mig.lab.sh(AMPERE, f"ls -l /proc/{holder}/fd"))
    refused = mig.refused(AMPERE, desired)
    assert f"(PID {holder})" in refused["msg"] and "nvidia_mig_reboot" in refused["msg"]
    assert mig.modes(AMPERE) == [True, False]

    pending = mig.fleet.module(AMPERE, "mig", {"layout": desired, "strategy": "mixed", "reboot": "allow"})
    assert pending["reboot_required"] and f"(PID {holder})" in pending["reboot_reason"]
    assert mig.gpus(AMPERE)[1]["mig"]["pending"] is True and mig.modes(AMPERE) == [True, False]

    boot = mig.lab.sh(AMPERE, 'virtual-gpu show | grep -o \'"boot_id": "[0-9a-f]*"\'')
    mig.settled(AMPERE, desired, nvidia_mig_reboot=True)
    assert mig.lab.sh(AMPERE, 'virtual-gpu show | grep -o \'"boot_id": "[0-9a-f]*"\'') != boot
    assert mig.modes(AMPERE) == [True, True]
    assert mig.counts(AMPERE, 1) == {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2}


@pytest.mark.by_name
def test_gpus_without_mig_in_the_same_host_are_left_alone(mig):
    answer = mig.settled(MIXED, "all-balanced")
    by_name = {gpu["name"]: gpu for gpu in mig.gpus(MIXED)}
    turing = next(gpu for name, gpu in by_name.items() if "T4" in name)
    assert answer["unselected"] == [turing["index"]]
    assert not turing["mig"]["supported"] and turing["gpu_instances"] == []
    ampere = next(gpu for gpu in by_name.values() if gpu is not turing)
    assert len(ampere["gpu_instances"]) == 4
    mig.lab.run("reboot", MIXED)
    assert len(mig.instances(MIXED, ampere["index"])) == 4
    assert mig.run(MIXED, "all-balanced").get("skipped")
