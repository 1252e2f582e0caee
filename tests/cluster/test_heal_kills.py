# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A repair that is killed after each of its tasks that change something, and repeated: the end is always the same.

The tasks are not listed here: an undisturbed run tells them, so that a new one is tried, too.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from fleet import NODES, OLD, documented_role
from test_heal import MIG, PODS, allocatable, on_gpu, running

FIRST, SECOND, THIRD = NODES
CALLBACKS = Path(__file__).resolve().parents[1] / "lab" / "callbacks"
RESETS = "/run/resets"
#: Before the programs of the driver in the search path: every reset that is asked for is counted.
COUNTING = f"""#!/bin/sh
case "$*" in *--gpu-reset*) echo "$*" >> {RESETS};; esac
exec /usr/bin/nvidia-smi "$@"
"""


@pytest.fixture
def train(fleet, tmp_path, monkeypatch):
    """Pods on every 1g instance of the first node."""
    fleet.plane.allow_operator(documented_role())
    monkeypatch.setenv("ANSIBLE_CALLBACK_PLUGINS", str(CALLBACKS))
    monkeypatch.setenv("ANSIBLE_CALLBACKS_ENABLED", "kill_at")
    monkeypatch.setenv("CHANGES_LOG", str(tmp_path / "changes"))
    fleet.sh(FIRST, f"cat > /usr/local/sbin/nvidia-smi <<'END'\n{COUNTING}END\nchmod 755 /usr/local/sbin/nvidia-smi")
    for other in (SECOND, THIRD):
        fleet.plane.kubectl("cordon", other)
    fleet.stand_ins.workload("train", PODS, MIG)
    yield {
        "gpu_upgrade_kubeconfig": str(fleet.plane.operator),
        "gpu_upgrade_evict_timeout": 60,
        "gpu_heal_max_unavailable": "100%",
        # The test breaks the same GPU again and again.
        "gpu_heal_recurrence": 1,
        "driver": OLD,
    }
    fleet.sh(
        FIRST,
        f"rm -f /usr/local/sbin/nvidia-smi {RESETS} /var/lib/gpufleet/heal.json; virtual-gpu recovery --gpu 1 --action 0",
    )
    keys = ("state", "since", "failed-reason", "initial-unschedulable")
    fleet.plane.kubectl("annotate", "node", FIRST, *(f"gpufleet.github.io/heal-{key}-" for key in keys))
    fleet.forget()


def all_run(fleet):
    fleet.wait_for(lambda: len(running(fleet, "train")) == PODS)
    return running(fleet, "train")


def broken(fleet):
    """Break the second GPU; return the pods on the first one."""
    all_run(fleet)
    fleet.sh(FIRST, f"rm -f {RESETS}; virtual-gpu recovery --gpu 1 --action 1")
    return on_gpu(fleet, FIRST, 0)


def changes(tmp_path):
    return (tmp_path / "changes").read_text().splitlines()


def holder(fleet):
    lease = json.loads(fleet.plane.kubectl("get", "lease", "gpufleet-upgrade", "-o", "json").stdout)
    return (lease.get("spec") or {}).get("holderIdentity")


def repaired(fleet, healthy, offered):
    """The end that every repair comes to."""
    assert healthy <= set(all_run(fleet)), "the pods on the other GPU were left alone"
    assert fleet.sh(FIRST, f"wc -l < {RESETS}").strip() == "1", "nothing is repaired twice"
    assert not fleet.cordoned(FIRST) and fleet.resumed(FIRST)
    assert allocatable(fleet, FIRST) == offered
    marks = fleet.stand_ins.annotations(FIRST)
    assert marks["gpufleet.github.io/heal-state"] == "done"
    assert "gpufleet.github.io/heal-initial-unschedulable" not in marks
    kept = json.loads(fleet.sh(FIRST, "cat /var/lib/gpufleet/heal.json"))
    assert (kept["state"], kept["attempts"][-1]["outcome"]) == ("done", "repaired")
    assert not holder(fleet), "nobody holds the Lease"
    assert [gpu["recovery_action"] for gpu in json.loads(fleet.sh(FIRST, "virtual-gpu show"))["gpus"]] == [0, 0]


def test_a_repair_that_is_killed_after_any_task_is_finished_by_the_next_run(fleet, train, tmp_path, monkeypatch):
    offered = allocatable(fleet, FIRST)
    healthy = broken(fleet)
    whole = fleet.run("heal", "--limit", FIRST, **train)
    assert whole.status == 0, whole.output[-4000:]
    repaired(fleet, healthy, offered)
    steps = changes(tmp_path)
    names = Counter(step.rpartition(" #")[0] for step in steps)
    assert names["Record the step, started"] == names["Repair the GPUs"] == names["Record the step, done"] == 1, names
    assert len(steps) >= 8, steps

    for step in steps:
        healthy = broken(fleet)
        monkeypatch.setenv("KILL_AT", step)
        cut = fleet.run("heal", "--limit", FIRST, **train)
        assert cut.status == -signal.SIGKILL, (step, cut.output[-3000:])
        if fleet.cordoned(FIRST):
            assert fleet.stand_ins.annotations(FIRST)["gpufleet.github.io/heal-state"] in (
                "started",
                "repairing",
                "proving",
            ), step
        assert healthy <= set(running(fleet, "train")), step
        monkeypatch.delenv("KILL_AT")
        again = fleet.run("heal", "--limit", FIRST, **train)
        assert again.status == 0, (step, again.output[-4000:])
        repaired(fleet, healthy, offered)
    assert os.path.getsize(tmp_path / "changes") > 0
