# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Repairs on lab hosts without a cluster: a reset that helps, one that does not, one that needs its peers, and runs that are cut off.

The virtual GPU plays the driver: what it asks for, what ends that, and the lines of the kernel's log. That a real GPU comes back from a reset
cannot be tried here. The tests run in order: each begins with what the one before left.
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

HOST, OLD = "heal-hopper", "heal-volta"
RECORD = "/var/lib/gpufleet/heal.json"
POOLS = {
    "hopper": {
        "hosts": [HOST],
        "vars": {
            "nvidia_mig_strategy": "mixed",
            "nvidia_mig_layout": [{"devices": "all", "instances": {"1g.10gb": 2, "3g.40gb": 1}}],
        },
    },
    "volta": {"hosts": [OLD]},
}
#: A second in place of a day: the tests break the same GPU again and again.
VARIABLES = {
    "nvidia_driver_state": "unmanaged",
    "gpu_node_kubernetes": False,
    "gpu_heal_recurrence": 1,
}
PARTITION = """
- hosts: gpu_hosts
  gather_facts: false
  become: true
  roles: [gpufleet.nvidia.nvidia_mig]
"""


@pytest.fixture(scope="module")
def fleet(make_fleet):
    made = make_fleet(
        "heal",
        {
            "name": HOST,
            "group": "hopper",
            "boards": [{"board": "h100-80gb-sxm", "count": 2}],
            "driver": "installed",
        },
        {"name": OLD, "group": "volta", "boards": [{"board": "v100-16gb", "count": 2}], "driver": "installed"},
    )
    pools = {name: {**pool, "vars": {**VARIABLES, **pool.get("vars", {})}} for name, pool in POOLS.items()}
    made.describe(pools)
    (made.folder / "partition.yml").write_text(PARTITION, encoding="utf-8")
    done = made.play(made.folder / "partition.yml", "--limit", HOST)
    assert done.rc == 0, done.text[-4000:]
    return made


def heal(fleet, *options, host=HOST):
    """Run it on one host; what it printed is kept beside the inventory."""
    run = fleet.play("heal", "--limit", host, *options, timeout=900)
    with open(fleet.folder / "heal.log", "a") as log:
        log.write(run.text)
    return run


def record(fleet, host=HOST):
    return json.loads(fleet.lab.sh(host, f"cat {RECORD}"))


def gpus(fleet, host=HOST):
    return json.loads(fleet.lab.sh(host, "virtual-gpu show"))["gpus"]


def layout(gpu):
    return sorted(
        (instance["profile"], instance["start"], tuple(part["uuid"] for part in instance["compute_instances"]))
        for instance in gpu["gpu_instances"]
    )


def asks(fleet, action, until="reset", gpu=1, host=HOST):
    fleet.lab.sh(host, f"virtual-gpu recovery --gpu {gpu} --action {action} --until {until}")


def test_a_healthy_host_is_left_alone(fleet):
    run = heal(fleet)
    assert run.rc == 0 and run.quiet(HOST), run.text
    assert fleet.lab.status(HOST, f"test -e {RECORD}") != 0


def test_check_mode_shows_the_plan_and_touches_nothing(fleet):
    asks(fleet, 1)
    before = gpus(fleet)
    files = fleet.lab.sh(HOST, "find /var/lib/gpufleet /etc/gpufleet -type f -printf '%p %T@\\n' | sort")
    run = heal(fleet, "--check")
    assert run.rc == 0, run.text
    assert f"{HOST}: reset gpu" in run.text and "its driver asks for a reset (gpu_reset)" in run.text
    assert "keeps running: GPU 0" in run.text
    assert gpus(fleet) == before
    assert fleet.lab.sh(HOST, "find /var/lib/gpufleet /etc/gpufleet -type f -printf '%p %T@\\n' | sort") == files


def test_a_gpu_in_use_is_not_reset(fleet):
    fleet.lab.sh(
        HOST,
        "nohup sleep 3600 >/dev/null 2>&1 & virtual-gpu run --gpu 1 --gi 2 --ci 0 --pid $! --name train.py; echo $! > /run/user.pid",
    )
    before = [layout(gpu) for gpu in gpus(fleet)]
    run = heal(fleet)
    assert run.rc != 0
    assert "in use by sleep (PID " in run.text, run.text[-3000:]
    assert [layout(gpu) for gpu in gpus(fleet)] == before
    kept = record(fleet)
    assert (kept["state"], kept["attempts"]) == ("refused", [])
    fleet.lab.sh(HOST, "kill $(cat /run/user.pid)")


def test_a_reset_that_helps_leaves_the_other_gpu_alone(fleet):
    fleet.lab.sh(
        HOST,
        "nohup sleep 3600 >/dev/null 2>&1 & virtual-gpu run --gpu 0 --gi 2 --ci 0 --pid $! --name other.py; echo $! > /run/user.pid",
    )
    before = gpus(fleet)
    run = heal(fleet)
    assert run.rc == 0, run.text[-4000:]
    after = gpus(fleet)
    assert layout(after[0]) == layout(before[0]), "its instances have their UUIDs still"
    user = fleet.lab.sh(HOST, "cat /run/user.pid").strip()
    assert user in fleet.lab.sh(HOST, "virtual-gpu show"), "the program on it goes on"
    # The layout is back: profiles and places as they are recorded.
    assert [one[:2] for one in layout(after[1])] == [one[:2] for one in layout(before[1])]
    kept = record(fleet)
    assert kept["state"] == "done"
    assert [(one["action"], one["outcome"]) for one in kept["attempts"]] == [("reset_gpu", "repaired")]
    again = heal(fleet)
    assert again.rc == 0 and again.quiet(HOST), again.text


@pytest.mark.by_name
def test_a_run_that_is_killed_while_the_gpu_is_reset_is_finished_by_the_next(fleet):
    asks(fleet, 1)
    fleet.lab.sh(HOST, "virtual-gpu fail gpuReset delay:6000 --count 1")
    line, environment = fleet.command("heal", "--limit", HOST)
    log = fleet.folder / "killed.log"
    with open(log, "w") as output:
        run = subprocess.Popen(
            line, env=environment, stdout=output, stderr=subprocess.STDOUT, cwd=fleet.folder, start_new_session=True
        )
    until = time.monotonic() + 300
    while fleet.lab.status(HOST, f'grep -q \'"state": "repairing"\' {RECORD}') != 0:
        assert run.poll() is None and time.monotonic() < until, log.read_text()[-3000:]
        time.sleep(0.3)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    again = heal(fleet)
    assert again.rc == 0, again.text[-4000:]
    kept = record(fleet)
    assert (kept["state"], kept["attempts"][-1]["outcome"]) == ("done", "repaired")
    assert fleet.module(HOST, "health", {"checks": ["recovery"]})["healthy"]


def test_what_does_not_help_twice_is_handed_over_and_never_tried_again(fleet):
    asks(fleet, 1, "replaced")
    first = heal(fleet)
    assert first.rc != 0
    assert record(fleet)["state"] == "failed" and "after the reset" in record(fleet)["reason"]
    fleet.lab.sh(HOST, "touch /run/not-rebooted")
    # The other GPU is in use, and what comes next is a reboot.
    refused = heal(fleet)
    assert refused.rc != 0 and "gpu_node_disruption: force" in " ".join(refused.text.split()), refused.text[-3000:]
    assert fleet.lab.status(HOST, "test -e /run/not-rebooted") == 0
    second = heal(fleet, "-e", "gpu_node_disruption=force")
    assert second.rc != 0
    assert fleet.lab.status(HOST, "test -e /run/not-rebooted") != 0, second.text[-3000:]
    tried = [(one["action"], one["outcome"]) for one in record(fleet)["attempts"][-2:]]
    assert tried == [("reset_gpu", "failed"), ("reboot", "failed")]

    fleet.lab.sh(HOST, "touch /run/not-rebooted")
    third = heal(fleet)
    assert third.rc != 0 and "Handed over to people, out of service" in third.text, third.text[-3000:]
    kept = record(fleet)
    assert kept["state"] == "handed-over" and kept["bundle"] in third.text.replace("\n", "")
    bundle = kept["bundle"]
    assert fleet.lab.sh(HOST, f"stat -c '%a %U' {bundle} $(dirname {bundle})").split() == ["700", "root"] * 2
    modes = fleet.lab.sh(HOST, f"stat -c '%a %n' {bundle}/* | sed 's,{bundle}/,,'").splitlines()
    assert {mode.split()[0] for mode in modes} == {"600"}
    assert {mode.split()[1] for mode in modes} >= {"facts.json", "attempts.json", "reason.txt", "serial-numbers.csv"}
    assert "GPU-" in fleet.lab.sh(HOST, f"cat {bundle}/serial-numbers.csv")

    fourth = heal(fleet)
    assert fourth.rc != 0 and fourth.recap[HOST]["changed"] == 0
    assert "gpu_heal_retry=true" in fourth.text
    assert record(fleet) == kept
    assert fleet.lab.status(HOST, "test -e /run/not-rebooted") == 0


def test_a_board_that_people_replaced_is_proven_and_returned(fleet):
    asks(fleet, 0, "replaced")
    run = heal(fleet, "-e", "gpu_heal_retry=true")
    assert run.rc == 0, run.text[-4000:]
    kept = record(fleet)
    assert (kept["state"], kept["attempts"], kept["bundle"]) == ("done", [], "")


@pytest.mark.by_name
def test_an_error_of_the_log_is_acted_on_once_where_the_driver_does_not_tell(fleet):
    """The kernel's log of the host is a file here, because a lab host has none of its own."""
    fleet.lab.sh(HOST, "test ! -e /dev/kmsg && touch /dev/kmsg")
    fleet.lab.sh(HOST, "virtual-gpu fail nvmlDeviceGetFieldValues NOT_SUPPORTED")
    fleet.lab.sh(
        HOST,
        'virtual-gpu xid --gpu 0 --number 119 --text "pid=4711, name=train.py, Timeout after 6s of waiting for RPC response from GPU0 GSP!"',
    )
    alone = heal(fleet)
    assert alone.rc == 0 and alone.quiet(HOST), alone.text
    assert "The driver shows no fault beside this text" in " ".join(alone.text.split())
    fleet.lab.sh(HOST, "virtual-gpu memory --gpu 0 --uncorrected 1")
    run = heal(fleet)
    assert run.rc == 0, run.text[-4000:]
    assert "Xid 119 (GSP RPC Timeout)" in run.text
    assert [one["faults"] for one in record(fleet)["attempts"]] == [[["0000:18:00.0", "xid_119"]]]
    again = heal(fleet)
    assert again.rc == 0 and again.quiet(HOST), again.text
    fleet.lab.sh(HOST, "virtual-gpu fail --clear")


def test_a_host_in_the_middle_of_an_upgrade_is_refused(fleet):
    fleet.lab.sh(HOST, 'echo \'{"schema": 1, "state": "installing"}\' > /var/lib/gpufleet/upgrade.json')
    asks(fleet, 1)
    run = heal(fleet)
    assert run.rc != 0 and "an upgrade of it was cut off while installing" in " ".join(run.text.split())
    assert gpus(fleet)[1]["recovery_action"] == 1
    fleet.lab.sh(HOST, "rm /var/lib/gpufleet/upgrade.json")
    asks(fleet, 0)


@pytest.mark.by_name
def test_gpus_of_before_ampere_are_reset_together_with_their_peers(fleet):
    fleet.lab.sh(OLD, "virtual-gpu peers on")
    asks(fleet, 1, gpu=0, host=OLD)
    alone = fleet.lab.run("exec", OLD, "--", "nvidia-smi", "--gpu-reset", "-i", "0", check=False)
    assert alone.returncode != 0 and "must be reset in the same command" in alone.stdout
    run = heal(fleet, host=OLD)
    assert run.rc == 0, run.text[-4000:]
    assert "are reset together with those that NVLink connects them to" in run.text
    assert record(fleet, OLD)["state"] == "done"
    assert [gpu["recovery_action"] for gpu in gpus(fleet, OLD)] == [0, 0]


def test_many_broken_hosts_trip_the_breaker(fleet):
    for host in (HOST, OLD):
        asks(fleet, 1, host=host)
    run = fleet.play("heal", timeout=900)
    assert run.rc != 0 and "Nothing is repaired: 2 hosts need a repair at once" in " ".join(run.text.split())
    assert all(run.recap[host]["changed"] == 0 for host in (HOST, OLD)), run.text
    assert [gpus(fleet, host)[1]["recovery_action"] for host in (HOST, OLD)] == [1, 1]
    run = fleet.play("heal", "-e", "gpu_heal_ignore_breaker=true", timeout=900)
    assert run.rc == 0, run.text[-4000:]
    assert [gpus(fleet, host)[1]["recovery_action"] for host in (HOST, OLD)] == [0, 0]
