# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The actions of heal that are no reset: restarted services, a reloaded driver, a drain, with the real MPS daemon and Debian's real Slurm.

The virtual GPU plays the driver, and dcgmi writes what it wrote on real machines (dcgm_outputs.py). The tests run in order.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.lab,
    pytest.mark.by_name,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]

REPOSITORY = Path(__file__).resolve().parents[2]
LAB = REPOSITORY / "tests" / "lab" / "lab"
HOST = "heal-mps"
RECORD = "/var/lib/gpufleet/heal.json"
CALLBACKS = REPOSITORY / "tests" / "lab" / "callbacks"
DCGMI = "/usr/local/bin/dcgmi"
VARIABLES = {
    "nvidia_driver_state": "unmanaged",
    "gpu_node_kubernetes": False,
    "gpu_heal_recurrence": 1,
    "nvidia_sharing_mode": "mps",
    "nvidia_sharing_mps_manager": "host",
}
#: A cluster of one node, whose jobs are accepted without accounting.
SLURM = f"""
ClusterName=lab
SlurmctldHost={HOST}
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
ReturnToService=2
NodeName={HOST} CPUs=1 RealMemory=100 State=UNKNOWN
PartitionName=gpu Nodes={HOST} Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture(scope="module")
def fleet(make_fleet):
    made = make_fleet(
        "heal-actions",
        {"name": HOST, "group": "shared", "boards": [{"board": "l40s", "count": 2}], "driver": "installed"},
    )
    made.describe({"shared": {"hosts": [HOST], "vars": VARIABLES}})
    made.module(HOST, "host_program")
    done = made.module(HOST, "mps", {"mode": "mps", "manager": "host", "replicas": 2})
    assert "steps" in done, done
    return made


def heal(fleet, **variables):
    return fleet.play("heal", "-e", json.dumps(variables), timeout=900)


def record(fleet):
    return json.loads(fleet.lab.sh(HOST, f"cat {RECORD}"))


def attempts(fleet, count):
    return [(one["action"], one["outcome"]) for one in record(fleet)["attempts"][-count:]]


def daemon(fleet):
    names = fleet.lab.sh(
        HOST, "systemctl list-units --plain --no-legend --all 'gpufleet-mps@*' | cut -d' ' -f1"
    ).split()
    assert len(names) == 1, names
    return names[0]


def started(fleet, unit):
    return fleet.lab.sh(HOST, f"systemctl show --value --property=ActiveEnterTimestampMonotonic {unit}").strip()


def test_a_dead_mps_daemon_is_started_again_and_nothing_else(fleet):
    unit = daemon(fleet)
    fleet.lab.sh(HOST, f"systemctl stop {unit}")
    shown = heal(fleet)
    assert shown.rc == 0, shown.text[-4000:]
    assert f"restarts {unit}" in shown.text
    assert fleet.lab.status(HOST, f"systemctl is-active --quiet {unit}") == 0
    assert attempts(fleet, 1) == [("restart_service", "repaired")]
    before = started(fleet, unit)
    again = heal(fleet)
    assert again.rc == 0 and again.quiet(HOST), again.text
    assert started(fleet, unit) == before


def test_two_faults_at_once_are_ended_by_the_stronger_action(fleet):
    """The reset of a GPU, for which the MPS daemon goes, and a compute mode that somebody changed."""
    fleet.lab.sh(HOST, "nvidia-smi -i 0 -c DEFAULT")
    fleet.lab.sh(HOST, "virtual-gpu recovery --gpu 1 --action 1 --until reset")
    run = heal(fleet)
    assert run.rc == 0, run.text[-4000:]
    assert f"{HOST}: reset gpu" in run.text
    kept = record(fleet)
    assert attempts(fleet, 1) == [("reset_gpu", "repaired")]
    assert {kind for _subject, kind in kept["attempts"][-1]["faults"]} >= {"compute_mode"}
    healthy = fleet.module(HOST, "health", {"checks": ["recovery", "mps"]})
    assert healthy["healthy"], healthy


def test_a_driver_that_is_not_loaded_is_loaded_with_what_belongs_to_it(fleet):
    unit = daemon(fleet)
    fleet.lab.sh(HOST, f"systemctl stop {unit} nvidia-persistenced; modprobe -r nvidia_uvm nvidia_modeset nvidia")
    assert fleet.lab.status(HOST, "test -e /sys/module/nvidia") != 0
    run = heal(fleet)
    assert run.rc == 0, run.text[-4000:]
    assert f"{HOST}: reload driver" in run.text
    assert attempts(fleet, 1) == [("reload_driver", "repaired")]
    fleet.lab.sh(HOST, "test -e /sys/module/nvidia && nvidia-smi -L")
    assert fleet.lab.status(HOST, f"systemctl is-active --quiet {unit}") == 0
    assert fleet.module(HOST, "health", {"checks": ["mps"]})["healthy"]


def test_programs_are_drained_and_what_that_does_not_end_is_reset(fleet):
    """drain_p2p: the driver wants the programs gone. Here it goes on asking, so that the next run takes the stronger action."""
    fleet.lab.sh(
        HOST,
        "nohup sleep 3600 >/dev/null 2>&1 & virtual-gpu run --gpu 0 --pid $! --name train.py; echo $! > /run/user.pid; "
        "virtual-gpu recovery --gpu 0 --action 3 --until reset",
    )
    refused = heal(fleet)
    assert refused.rc != 0 and "in use by" in refused.text, refused.text[-3000:]
    assert record(fleet)["state"] == "refused"
    fleet.lab.sh(HOST, "kill $(cat /run/user.pid); virtual-gpu stop --pid $(cat /run/user.pid) || true")
    drained = heal(fleet)
    assert drained.rc != 0 and "although no process uses it any longer" in drained.text, drained.text[-3000:]
    assert (record(fleet)["state"], attempts(fleet, 1)) == ("failed", [("drain", "failed")])
    done = heal(fleet, gpu_heal_recurrence=86400)
    assert done.rc == 0, done.text[-4000:]
    assert attempts(fleet, 1) == [("reset_gpu", "repaired")]


def cut(fleet, log, step=None):
    """Run heal, and kill it with all its processes right after this task; without one it only tells its tasks. Return its status."""
    line, environment = fleet.command("heal")
    told = {"ANSIBLE_CALLBACK_PLUGINS": str(CALLBACKS), "ANSIBLE_CALLBACKS_ENABLED": "kill_at", "CHANGES_LOG": str(log)}
    told.update({"KILL_AT": step} if step else {})
    with open(fleet.folder / "cut.log", "w") as output:
        run = subprocess.Popen(
            line,
            env={**environment, **told},
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=fleet.folder,
            start_new_session=True,
        )
        return run.wait(timeout=600)


@pytest.mark.upgrade
def test_a_repair_that_is_killed_after_any_of_its_tasks_is_finished_by_the_next_run(fleet, tmp_path):
    """The tasks are those that an undisturbed run changes something with, so that a new one is tried, too."""
    unit, log = daemon(fleet), tmp_path / "changes"

    def broken():
        log.unlink(missing_ok=True)
        fleet.lab.sh(HOST, "virtual-gpu recovery --gpu 1 --action 1 --until reset")

    # The first repair of a host finds more to do than those that follow.
    for _time in range(2):
        broken()
        assert cut(fleet, log) == 0, (fleet.folder / "cut.log").read_text()[-3000:]
    steps = log.read_text().splitlines()
    assert (
        "Record the step, started #1" in steps and "Repair the GPUs #1" in steps and "Record the step, done #1" in steps
    ), steps
    for step in steps:
        broken()
        assert cut(fleet, log, step) == -signal.SIGKILL, (step, (fleet.folder / "cut.log").read_text()[-3000:])
        assert cut(fleet, log) == 0, (step, (fleet.folder / "cut.log").read_text()[-3000:])
        assert log.read_text().count("Repair the GPUs #") == 1, f"{step}: it was repaired once, {log.read_text()}"
        kept = record(fleet)
        assert (kept["state"], kept["attempts"][-1]["outcome"]) == ("done", "repaired"), step
        assert fleet.lab.status(HOST, f"systemctl is-active --quiet {unit}") == 0, step
        assert fleet.module(HOST, "health", {"checks": ["recovery", "mps"]})["healthy"], step


@pytest.fixture(scope="module")
def slurm(fleet):
    """The real Slurm of Debian on the host, and the commands of the inventory that reach its scontrol from the controller."""
    fleet.lab.sh(
        HOST,
        "export DEBIAN_FRONTEND=noninteractive; apt-get update -qq; "
        "apt-get install -y -qq --no-install-recommends slurmctld slurmd slurm-client munge >/dev/null 2>&1; "
        "mkdir -p /var/lib/slurm/slurmctld /var/lib/slurm/slurmd",
    )
    fleet.lab.write(HOST, "/etc/slurm/slurm.conf", SLURM)
    # A lab host has the machine's hybrid hierarchy, which slurmd would refuse to choose from.
    fleet.lab.write(HOST, "/etc/slurm/cgroup.conf", "CgroupPlugin=cgroup/v1\n")
    fleet.lab.sh(HOST, "systemctl restart munge slurmctld slurmd")
    for _try in range(30):
        if "idle" in state(fleet):
            break
        fleet.lab.sh(HOST, "sleep 1")
    else:
        pytest.fail(fleet.lab.sh(HOST, "sinfo; journalctl -b -u slurmctld -u slurmd | tail -n 30"))
    scontrol = [
        str(LAB),
        "exec",
        "--name",
        fleet.lab.name,
        HOST,
        "--",
        "scontrol",
        "update",
        "NodeName={{ inventory_hostname }}",
    ]
    return {
        "gpu_node_drain_command": [*scontrol, "State=DRAIN", "Reason=gpufleet.nvidia.heal"],
        "gpu_node_resume_command": [*scontrol, "State=RESUME"],
    }


def state(fleet):
    return fleet.lab.sh(HOST, "sinfo --noheader --format=%T").strip()


def test_slurm_gives_the_host_no_job_while_it_is_repaired_and_its_jobs_are_waited_for(fleet, slurm):
    fleet.lab.sh(HOST, "virtual-gpu recovery --gpu 1 --action 1 --until reset")
    # A real job; the virtual GPU is told that it uses GPU 1. It ends while heal waits.
    fleet.lab.write(
        HOST,
        "/root/job.sh",
        "#!/bin/bash\nvirtual-gpu run --gpu 1 --pid $$ --name job\ntouch /run/job-runs\n"
        "for _ in {1..600}; do sinfo --noheader --format=%T | grep -q ^drain && break; sleep 0.2; done; sleep 3\n"
        "sinfo --noheader --format=%T > /run/state\n"
        "virtual-gpu stop --pid $$\ntouch /run/job-ended\n",
    )
    fleet.lab.sh(HOST, "cd /root && sbatch --quiet job.sh && until test -e /run/job-runs; do sleep 0.5; done")
    fleet.lab.sh(HOST, "cd /root && sbatch --quiet --wrap 'touch /run/second-ran'")
    run = heal(fleet, gpu_heal_wait=300, **slurm)
    assert run.rc == 0, run.text[-4000:]
    assert attempts(fleet, 1) == [("reset_gpu", "repaired")]
    fleet.lab.sh(HOST, "test -e /run/job-ended")
    assert fleet.lab.sh(HOST, "cat /run/state").strip().startswith("drain"), "it was drained while the job ran"
    assert not state(fleet).startswith("drain"), "it takes jobs again"
    fleet.lab.sh(HOST, "for _ in $(seq 60); do test -e /run/second-ran && exit 0; sleep 0.5; done; squeue; exit 1")


def test_what_is_handed_over_stays_drained_in_slurm(fleet, slurm):
    fleet.lab.sh(HOST, "virtual-gpu recovery --gpu 1 --action 9")
    run = heal(fleet, **slurm)
    assert run.rc != 0 and "Handed over to people" in run.text, run.text[-3000:]
    assert state(fleet).startswith("drain")
    assert "gpufleet.nvidia.heal" in fleet.lab.sh(HOST, "scontrol show node --oneliner")
    fleet.lab.sh(HOST, "virtual-gpu recovery --gpu 1 --action 0")
    back = heal(fleet, gpu_heal_retry=True, **slurm)
    assert back.rc == 0, back.text[-3000:]
    assert not state(fleet).startswith("drain")


def dcgmi(fleet, text, status):
    """Have dcgmi write a recorded text, and keep how it was called."""
    fleet.lab.write(HOST, "/run/dcgmi.text", text)
    fleet.lab.write(HOST, DCGMI, f'#!/bin/sh\necho "$@" >> /run/dcgmi.calls\ncat /run/dcgmi.text\nexit {status}\n')
    fleet.lab.sh(HOST, f"chmod 755 {DCGMI}; rm -f /run/dcgmi.calls")


def test_nvidias_diagnostic_decides_whether_the_host_returns(fleet, recorded):
    """It also pays what the host owes of site, by the same diagnostic."""
    owed = "test -e /var/lib/gpufleet/acceptance.json"
    fleet.lab.write(HOST, "/var/lib/gpufleet/acceptance.json", '{"level": 2}')
    fleet.lab.sh(HOST, "virtual-gpu recovery --gpu 1 --action 1 --until reset")
    dcgmi(fleet, recorded.NO_HOST_ENGINE, 1)
    failed = heal(fleet, nvidia_health_dcgm_level=2)
    assert failed.rc != 0 and "unable to establish a connection" in failed.text, failed.text[-3000:]
    assert record(fleet)["state"] == "failed" and "The check dcgm failed" in record(fleet)["reason"]
    assert fleet.lab.status(HOST, owed) == 0
    # The next run finds nothing to repair, and proves the host.
    dcgmi(fleet, recorded.LEVEL_2, 226)
    proven = heal(fleet, nvidia_health_dcgm_level=2)
    assert proven.rc == 0, proven.text[-4000:]
    assert record(fleet)["state"] == "done"
    assert fleet.lab.status(HOST, owed) == 1
    assert fleet.lab.sh(HOST, "cat /run/dcgmi.calls").splitlines() == ["diag -r 2 -j"]
