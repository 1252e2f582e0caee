# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A repair of a lab host by a saved plan: exactly that one, or none. The virtual GPU plays the driver.

The tests run in order: each begins with what the one before left.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]

HOST = "saved-heal-1"
VARIABLES = {
    "nvidia_driver_state": "unmanaged",
    "nvidia_toolkit_runtime": "none",
    "nvidia_mig_strategy": "none",
    "gpu_node_kubernetes": False,
}
STATE = 'grep -o \'"state": *"[a-z-]*"\' /var/lib/gpufleet/heal.json'


@pytest.fixture(scope="module")
def fleet(make_fleet):
    boards = [{"board": "h100-80gb-sxm", "count": 2}]
    made = make_fleet("saved-heal", {"name": HOST, "group": "pool", "boards": boards, "driver": "installed"})
    made.describe({"pool": {"hosts": [HOST], "vars": VARIABLES}})
    return made


def asks_for_reset(fleet, gpu):
    fleet.lab.sh(HOST, f"virtual-gpu recovery --gpu {gpu} --action 1 --until reset")


def asking(fleet):
    """Which GPUs ask for a repair."""
    gpus = json.loads(fleet.lab.sh(HOST, "virtual-gpu show"))["gpus"]
    return [place for place, gpu in enumerate(gpus) if gpu["recovery_action"]]


def heal(fleet):
    return fleet.play("heal", "-e", f"gpu_plan_apply={fleet.folder / 'plan.json'}")


def test_a_repair_of_another_gpu_than_the_plans_is_refused_and_nothing_is_touched(fleet):
    asks_for_reset(fleet, 1)
    path = fleet.folder / "plan.json"
    given = ("-e", "gpu_plan_for=heal", "-e", f"gpu_plan_out={path}", "-e", "gpu_plan_fail=false")
    done = fleet.play("plan", *given)
    assert done.rc == 0 and f"is in {path}" in done.text and "repair: repair the host: reset_gpu" in done.text, (
        done.text
    )
    (repair,) = [one for one in json.loads(path.read_text())["hosts"][HOST]["work"] if one["stage"] == "repair"]
    assert repair["data"]["action"] == "reset_gpu" and len(repair["data"]["gpus"]) == 1, repair
    asks_for_reset(fleet, 0)
    done = heal(fleet)
    assert done.rc != 0 and f"{HOST}: the plan: repair: repair the host: reset_gpu: gpus is " in done.text, done.text
    assert done.recap[HOST]["changed"] == 0 and fleet.lab.status(HOST, "test -e /var/lib/gpufleet/heal.json") != 0
    assert asking(fleet) == [0, 1]
    fleet.lab.sh(HOST, "nvidia-smi --gpu-reset -i 0")


def test_a_repair_that_was_cut_off_is_finished_with_the_same_plan_and_done_once(fleet):
    line, environment = fleet.command("heal", "-e", f"gpu_plan_apply={fleet.folder / 'plan.json'}")
    with open(fleet.folder / "killed.log", "w") as output:
        run = subprocess.Popen(
            line, env=environment, stdout=output, stderr=subprocess.STDOUT, cwd=fleet.folder, start_new_session=True
        )
    until = time.monotonic() + 300
    while "proving" not in fleet.lab.sh(HOST, STATE, check=False):
        assert run.poll() is None and time.monotonic() < until, (fleet.folder / "killed.log").read_text()[-3000:]
        time.sleep(0.2)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    done = heal(fleet)
    assert done.rc == 0 and asking(fleet) == [], done.text[-4000:]
    assert "done" in fleet.lab.sh(HOST, STATE)
    # What breaks next is none of it.
    assert heal(fleet).rc == 0
    asks_for_reset(fleet, 1)
    again = heal(fleet)
    assert again.rc != 0 and "it was applied to the host already" in again.text, again.text[-4000:]
    assert asking(fleet) == [1]
