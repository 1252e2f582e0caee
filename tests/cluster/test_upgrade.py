# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The upgrade of three real nodes, with pods on their GPUs."""

from __future__ import annotations

import re
import time

import pytest
from fleet import LAYOUT, NEW, NODES, OLD, TOOLKIT
from workloads import IMAGE, alone

FIRST, SECOND, THIRD = NODES
#: Another layout than the one that the nodes have.
OTHER = [{"devices": "all", "instances": {"3g.40gb": 2}}]
MIG = "nvidia.com/mig-3g.40gb"
#: What a node with two GPUs in fleet.LAYOUT offers, with either driver.
OFFERED = {"nvidia.com/mig-1g.10gb": 4, "nvidia.com/mig-2g.20gb": 2, MIG: 2}
#: A CUDA program that does not run with the new driver on one node: what a canary is for.
CUDA = "/usr/local/bin/cuda-proof"
BROKEN = f"#!/bin/sh\nif grep -q {NEW} /sys/module/nvidia/version && test -e /etc/new-driver-is-broken; then\n  echo 'CUDA error 999'; exit 1\nfi\n"


@pytest.fixture(autouse=True)
def clean(fleet):
    yield
    fleet.forget()


def install_proof(fleet, broken):
    for host in NODES:
        fleet.sh(host, f"cat > {CUDA} <<'EOF'\n{BROKEN}EOF\nchmod +x {CUDA}; rm -f /etc/new-driver-is-broken")
    fleet.sh(broken, "touch /etc/new-driver-is-broken")


def start_job(fleet):
    fleet.plane.kubectl("run", "job", f"--image={IMAGE}", "--labels=app=job", f"--overrides={alone(FIRST, MIG)}")
    fleet.wait_for(lambda: fleet.workloads.running("job"))


def each_ones_own(fleet, name):
    """The devices of a workload's running pods; empty where one has none, several, or that of another."""
    running = fleet.workloads.running(name)
    given = [held for host in NODES for uid, held in fleet.held(host).items() if uid in running]
    devices = set().union(*given)
    return devices if len(given) == len(running) == len(devices) and all(len(held) == 1 for held in given) else set()


def refused(fleet, host, run):
    """Nothing was changed, the node is in service, and the reason is on it."""
    assert run.status != 0
    assert fleet.state(host) == "refused", run.output[-3000:]
    assert not fleet.cordoned(host)
    assert fleet.resumed(host)
    assert fleet.versions() == dict.fromkeys(NODES, OLD)
    assert [fleet.state(other) for other in NODES if other != host] == [None, None], "no other node was begun"


def test_a_budget_that_never_has_room_ends_in_a_recorded_refusal(fleet):
    fleet.workloads.workload("train", 3, MIG, max_unavailable=0)
    fleet.wait_for(lambda: fleet.workloads.complete("train"))
    before = fleet.workloads.running("train")
    run = fleet.run("upgrade", gpu_node_evict_timeout=8)
    refused(fleet, FIRST, run)
    assert "Cannot evict pod as it would violate the pod's disruption budget" in fleet.reason(FIRST)
    assert fleet.workloads.running("train") == before


def test_a_pod_that_never_leaves_ends_in_a_recorded_refusal(fleet):
    fleet.workloads.workload(
        "stubborn", 1, MIG, nodeSelector={"kubernetes.io/hostname": FIRST}, terminationGracePeriodSeconds=60
    )
    fleet.wait_for(lambda: fleet.workloads.complete("stubborn"))
    run = fleet.run("upgrade", gpu_node_evict_timeout=8)
    refused(fleet, FIRST, run)
    assert "its eviction was accepted, but it does not terminate" in fleet.reason(FIRST)


def test_a_pod_that_nothing_would_make_again_is_not_touched(fleet):
    fleet.plane.kubectl(
        "run", "alone", f"--image={IMAGE}", "--labels=app=alone", f"--overrides={alone(FIRST, MIG)}", "--restart=Never"
    )
    before = fleet.wait_for(lambda: fleet.workloads.running("alone"))
    run = fleet.run("upgrade", gpu_node_evict_timeout=8)
    refused(fleet, FIRST, run)
    assert "it has no controller" in fleet.reason(FIRST)
    assert fleet.workloads.running("alone") == before


def test_of_two_operators_the_second_ends_with_a_message(fleet):
    start_job(fleet)
    first = fleet.start("upgrade", gpu_node_wait_for_jobs="app=job", gpu_node_lease_duration=9)
    try:
        fleet.wait_for(lambda: fleet.state(FIRST) == "waiting-for-jobs")
        # Longer than the lease holds, within one step: it is renewed meanwhile.
        time.sleep(12)
        second = fleet.run("upgrade")
        assert second.status != 0
        assert "has held the fleet lock since" in second.output
        assert "gpu_node_lease_take_over=true" in second.output
        other = fleet.run(
            "repartition", "--limit", THIRD, "--skip-tags", "cluster", driver=OLD, nvidia_mig_layout=OTHER
        )
        assert other.status != 0
        assert "has held the fleet lock since" in other.output, other.output[-3000:]
        assert not fleet.cordoned(THIRD)
        assert fleet.state(FIRST) == "waiting-for-jobs"
    finally:
        first.kill()


def test_a_node_follows_as_soon_as_another_ends_and_waits_for_no_slow_one(fleet):
    """The first node waits for its job until the third is done, which needs the room that the second left."""
    start_job(fleet)
    run = fleet.start(
        "upgrade",
        gpu_node_wait_for_jobs="app=job",
        gpu_upgrade_canary=0,
        gpu_upgrade_max_parallel=2,
        gpu_upgrade_max_unavailable="2",
    )
    try:
        most = set()

        def third_is_done():
            fleet.alive(run)
            most.add(frozenset(host for host in NODES if fleet.cordoned(host)))
            return fleet.state(THIRD) == "done"

        fleet.wait_for(third_is_done, timeout=1200)
        assert fleet.state(FIRST) == "waiting-for-jobs"
        assert fleet.state(SECOND) == "done"
        assert max(map(len, most)) == 2, f"the budget is used, and kept: {most}"
        fleet.plane.kubectl("delete", "pod", "job", "--grace-period=1")
        run.wait()
    finally:
        if run.process.poll() is None:
            run.kill()
    assert run.status == 0, run.output[-3000:]
    assert fleet.versions() == dict.fromkeys(NODES, NEW)
    assert [fleet.state(host) for host in NODES] == ["done"] * 3
    assert not any(fleet.cordoned(host) for host in NODES)
    # As the next test expects them.
    assert fleet.run("rollback").status == 0


def test_a_node_whose_new_driver_does_not_work_is_rolled_back_and_nothing_else_is_touched(fleet):
    """The canary succeeds, the second node fails its verification and goes back, the third is never begun; the job is never lost."""
    install_proof(fleet, SECOND)
    fleet.workloads.workload("train", 3, MIG, max_unavailable=1)
    fleet.wait_for(lambda: fleet.workloads.complete("train"))
    # Gone after a reboot: while pods of the cluster hold the driver, it could not be changed without one.
    for host in NODES:
        fleet.sh(host, "touch /run/not-rebooted; pgrep nvidia-device && pgrep -f 'virtual-gpu hold'")
    run = fleet.run("upgrade", nvidia_health_cuda_check=[CUDA])
    assert run.status != 0
    assert fleet.versions() == {FIRST: NEW, SECOND: OLD, THIRD: OLD}, run.output[-3000:]
    assert [fleet.toolkits()[host] for host in NODES] == [TOOLKIT[NEW], TOOLKIT[OLD], TOOLKIT[OLD]]
    for host in NODES:
        fleet.sh(host, "test -e /run/not-rebooted")
        assert fleet.resumed(host)
    assert [fleet.state(host) for host in NODES] == ["done", "failed", None]
    assert [fleet.cordoned(host) for host in NODES] == [False, True, False]
    assert "CUDA error 999" in fleet.reason(SECOND)
    assert f"Rolled back to driver {OLD}, which works" in fleet.reason(SECOND)
    assert fleet.workloads.fewest["train"] >= 2, "the budget allows one pod to be away at a time"
    listing = fleet.sh(SECOND, "nvidia-smi -L")
    assert len(re.findall("MIG 1g.10gb", listing)) == 4, "the layout is back after the rollback"
    assert "at most 0 may" in run.output

    # The cause is removed: the failed node is tried again, and the rest follows.
    fleet.sh(SECOND, "rm /etc/new-driver-is-broken")
    again = fleet.run("upgrade", nvidia_health_cuda_check=[CUDA], gpu_upgrade_retry=True)
    assert again.status == 0, again.output[-3000:]
    assert fleet.versions() == dict.fromkeys(NODES, NEW)
    assert [fleet.state(host) for host in NODES] == ["done"] * 3
    assert not any(fleet.cordoned(host) for host in NODES)
    assert {host: fleet.workloads.offered(host) for host in NODES} == dict.fromkeys(NODES, OFFERED)
    assert fleet.workloads.fewest["train"] >= 2

    # And back by hand, with the toolkit that the rollout had found; a node that people cordoned stays so.
    fleet.plane.kubectl("cordon", THIRD)
    back = fleet.run("rollback")
    assert back.status == 0, back.output[-3000:]
    assert fleet.versions() == dict.fromkeys(NODES, OLD)
    assert fleet.toolkits() == dict.fromkeys(NODES, TOOLKIT[OLD])
    assert {host: fleet.workloads.offered(host) for host in NODES} == dict.fromkeys(NODES, OFFERED)
    fleet.wait_for(lambda: len(each_ones_own(fleet, "train")) == 3)
    assert [fleet.cordoned(host) for host in NODES] == [False, False, True]
    assert f"Rolled back by hand to driver {OLD}" in fleet.reason(FIRST)


def test_a_run_that_is_killed_at_every_step_is_continued_where_it_stopped(fleet):
    """One upgrade, killed five times; each run starts from what the one before it left on the node."""
    fleet.workloads.workload("train", 2, MIG, max_unavailable=1)
    fleet.wait_for(lambda: fleet.workloads.complete("train"))
    fleet.plane.kubectl("cordon", FIRST)
    jobs = {"gpu_node_wait_for_jobs": "app=job"}
    for step in ("started", "waiting-for-jobs", "evicting", "installing", "verifying"):
        if step == "waiting-for-jobs":
            start_job(fleet)
        run = fleet.start("upgrade", "--limit", FIRST, **jobs)
        fleet.wait_for(lambda run=run, step=step: fleet.reached(run, step, FIRST))
        run.kill()
        assert fleet.cordoned(FIRST)
        assert fleet.state(FIRST) not in (None, "done"), "it was caught in the act"
        assert fleet.workloads.annotations(FIRST)["gpufleet.github.io/upgrade-from"] == OLD
        if step == "waiting-for-jobs":
            assert fleet.state(FIRST) == step
            assert fleet.workloads.pods("job"), "nothing of it was touched"
            fleet.plane.kubectl("delete", "pod", "job", "--grace-period=1")
    last = fleet.run("upgrade", "--limit", FIRST, **jobs)
    assert last.status == 0, last.output[-3000:]
    assert "1 cut off earlier (gpu-node-1)" in last.output
    assert fleet.versions()[FIRST] == NEW
    assert fleet.state(FIRST) == "done"
    assert fleet.resumed(FIRST)
    assert fleet.cordoned(FIRST), "it was cordoned by hand before the first run, and stays so"
    assert fleet.workloads.annotations(FIRST)["gpufleet.github.io/upgrade-from"] == OLD
    assert fleet.workloads.fewest["train"] >= 1


def test_a_rollback_that_is_cut_off_is_finished_by_the_next_run(fleet):
    """First the one after a failed verification, by the next upgrade; then one by hand, by the next rollback."""
    install_proof(fleet, SECOND)
    run = fleet.start("upgrade", "--limit", SECOND, nvidia_health_cuda_check=[CUDA])
    fleet.wait_for(lambda: fleet.reached(run, "rolling-back", SECOND))
    run.kill()
    assert fleet.cordoned(SECOND)
    again = fleet.run("upgrade", "--limit", SECOND, nvidia_health_cuda_check=[CUDA])
    assert again.status != 0
    assert fleet.state(SECOND) == "failed", again.output[-3000:]
    assert "CUDA error 999" in fleet.reason(SECOND)
    assert f"Rolled back to driver {OLD}, which works" in fleet.reason(SECOND)
    assert fleet.versions()[SECOND] == OLD
    assert fleet.toolkits()[SECOND] == TOOLKIT[OLD]
    assert fleet.cordoned(SECOND)

    fleet.sh(SECOND, "rm /etc/new-driver-is-broken")
    done = fleet.run("upgrade", "--limit", SECOND, gpu_upgrade_retry=True)
    assert done.status == 0, done.output[-3000:]
    by_hand = fleet.start("rollback", "--limit", SECOND)
    fleet.wait_for(lambda: fleet.state(SECOND) == "rolling-back")
    by_hand.kill()
    assert fleet.cordoned(SECOND)
    last = fleet.run("rollback", "--limit", SECOND)
    assert last.status == 0, last.output[-3000:]
    assert fleet.versions()[SECOND] == OLD
    assert not fleet.cordoned(SECOND)
    assert fleet.resumed(SECOND)
    assert f"Rolled back by hand to driver {OLD}" in fleet.reason(SECOND)


def test_an_api_server_that_is_away_for_a_while_is_waited_for(fleet):
    run = fleet.start("upgrade", "--limit", SECOND)
    fleet.wait_for(lambda: fleet.state(SECOND) == "installing")
    fleet.plane.pause()
    try:
        # The driver is installed meanwhile, however long that takes; the next record has to wait.
        fleet.wait_for(lambda: run.process.poll() is not None or "The API server does not answer" in run.output)
        assert run.process.poll() is None, run.output[-3000:]
    finally:
        fleet.plane.resume()
    run.wait()
    assert run.status == 0, run.output[-3000:]
    assert fleet.state(SECOND) == "done"


def test_plain_hosts_are_upgraded_and_rolled_back_with_the_hooks_of_another_scheduler(fleet, tmp_path):
    log = tmp_path / "scheduler.log"
    hooks = {
        "gpu_node_kubernetes": False,
        "gpu_node_drain_command": ["sh", "-c", f"echo drain {{{{ inventory_hostname }}}} >> {log}"],
        "gpu_node_resume_command": ["sh", "-c", f"echo resume {{{{ inventory_hostname }}}} >> {log}"],
    }
    run = fleet.run("upgrade", "--limit", THIRD, **hooks)
    assert run.status == 0, run.output[-3000:]
    assert fleet.versions()[THIRD] == NEW
    assert fleet.toolkits()[THIRD] == TOOLKIT[NEW]
    assert log.read_text() == f"drain {THIRD}\nresume {THIRD}\n"
    assert '"state": "done"' in fleet.sh(THIRD, "cat /var/lib/gpufleet/upgrade.json")
    assert not fleet.workloads.annotations(THIRD), "no cluster was touched"
    back = fleet.run("rollback", "--limit", THIRD, **hooks)
    assert back.status == 0, back.output[-3000:]
    assert fleet.versions()[THIRD] == OLD
    assert fleet.toolkits()[THIRD] == TOOLKIT[OLD]
    assert "Rolled back by hand" in fleet.sh(THIRD, "cat /var/lib/gpufleet/upgrade.json")

    # A new layout, and the one of before, between the same hooks.
    log.write_text("")
    for layout, count in ((OTHER, 4), (LAYOUT, 2)):
        parted = fleet.run(
            "repartition", "--limit", THIRD, "--skip-tags", "cluster", driver=OLD, nvidia_mig_layout=layout, **hooks
        )
        assert parted.status == 0, parted.output[-3000:]
        assert fleet.sh(THIRD, "nvidia-smi -L").count("MIG 3g.40gb") == count
    assert log.read_text() == f"drain {THIRD}\nresume {THIRD}\n" * 2
    fleet.sh(THIRD, "test ! -e /var/lib/gpufleet/repartition.json")


def test_a_host_that_never_comes_back_from_its_reboot_stays_cordoned_with_the_reason(fleet):
    fleet.sh(
        THIRD,
        "mv /sbin/shutdown /sbin/shutdown.real; printf '#!/bin/sh\\nsystemctl poweroff\\n' > /sbin/shutdown; chmod +x /sbin/shutdown",
    )
    fleet.sh(THIRD, "systemd-run --unit=monitor virtual-gpu hold")
    run = fleet.run("upgrade", "--limit", THIRD, gpu_node_reboot_timeout=20)
    assert run.status != 0
    assert fleet.state(THIRD) == "failed", run.output[-3000:]
    assert fleet.cordoned(THIRD)
    assert "Reboot" in fleet.reason(THIRD)
    fleet.lab("start", THIRD)
    fleet.sh(THIRD, "mv /sbin/shutdown.real /sbin/shutdown")
    again = fleet.run("upgrade", "--limit", THIRD, gpu_upgrade_retry=True)
    assert again.status == 0, again.output[-3000:]
    assert fleet.versions()[THIRD] == NEW
    assert not fleet.cordoned(THIRD)
