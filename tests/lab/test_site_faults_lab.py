# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The main job with bad input, dead neighbours and cut cables: site.yml and plan.yml on lab hosts.

The tests run in order: each begins with what the one before left. One machine has several names in the inventory where a test needs
many hosts that must not be touched.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import time

import pytest
from ansible_collections.gpufleet.nvidia.tests.whole import examples, sampled

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]

MIG, MPS, PLAIN = "site-mig", "site-mps", "site-plain"
TRAINING = {
    "nvidia_mig_strategy": "mixed",
    "nvidia_mig_layout": [{"devices": "all", "instances": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}}],
}
SHARED = {
    "nvidia_sharing_mode": "mps",
    "nvidia_sharing_memory_slice": "4GiB",
    "nvidia_sharing_mps_manager": "host",
}
POOLS = {"training": {"hosts": [MIG], "vars": TRAINING}, "shared": {"hosts": [MPS], "vars": SHARED}}

#: Host name to its variables, and what the message has to hold: variable, value, reason, the nearest thing that works.
BAD = {
    "wrong-type": ({"nvidia_sharing_replicas": "many"}, ["nvidia_sharing_replicas: 'many' must be an integer"]),
    "misspelt": ({"nvidia_mig_layot": "all-balanced"}, ["nvidia_mig_layot: ", "Did you mean nvidia_mig_layout?"]),
    "misspelt-role": (
        {"nvidea_driver_branch": "580"},
        ["nvidea_driver_branch: ", "Did you mean nvidia_driver_branch?"],
    ),
    "two-mistakes": (
        {"nvidia_toolkit_runtime": "containred", "nvidia_sharing_mode": "msp"},
        ["nvidia_toolkit_runtime: 'containred'", "mean containerd?", "nvidia_sharing_mode: 'msp'", "mean mps?"],
    ),
    "unknown-profile": (
        {"nvidia_mig_layout": [{"devices": "all", "instances": {"1g.11gb": 2}}]},
        ["nvidia_mig_layout[0].instances['1g.11gb']: GPU 0", "no MIG profile 1g.11gb", "nearest are 1g.10gb"],
    ),
    "does-not-fit": (
        {"nvidia_mig_layout": [{"devices": "all", "instances": {"3g.40gb": 3}}]},
        ["nvidia_mig_layout[0].instances: 3g.40gb x3", "does not fit", "The nearest that fit: 3g.40gb x2"],
    ),
    "no-such-gpu": (
        {"nvidia_mig_layout": [{"devices": [7], "instances": {"1g.10gb": 7}}]},
        ["nvidia_mig_layout[0].devices", "7"],
    ),
    "mps-on-mig": (
        {**TRAINING, "nvidia_sharing_mode": "mps", "nvidia_sharing_memory_slice": "4GiB"},
        [
            "nvidia_sharing_mode: the device plugin does not share MIG devices by MPS",
            "Use nvidia_sharing_mode: time_slicing",
        ],
    ),
    "slice-too-large": (
        {"nvidia_sharing_mode": "mps", "nvidia_sharing_memory_slice": "60GiB"},
        ["nvidia_sharing_memory_slice: a slice of 60GiB fits 1 times", "The largest slice of this GPU is"],
    ),
    "ambiguous-unit": (
        {"nvidia_sharing_mode": "mps", "nvidia_sharing_memory_slice": "4GB"},
        ["nvidia_sharing_memory_slice: the unit 'GB' of '4GB' is ambiguous", "4GiB?"],
    ),
    "unknown-branch": (
        {"nvidia_driver_branch": "581"},
        ["nvidia_driver_branch: branch 581 no longer gets security fixes", "Use "],
    ),
    "below-the-floor": ({"nvidia_driver_version": "580.65.06"}, ["nvidia_driver_version: ", "580.65.06"]),
    "no-version": ({"nvidia_toolkit_version": "newest"}, ["nvidia_toolkit_version: 'newest'", "such as 1.20.2"]),
    "unknown-pool": ({"gpu_facts_pool": "trainin"}, ["gpu_facts_pool", "trainin", "The nearest: training"]),
    "two-pools": ({}, ["gpu_facts_pool", "several groups", "night, training", "Set gpu_facts_pool"]),
}


@pytest.fixture(scope="module")
def fleet(make_fleet):
    return make_fleet(
        "faults-site",
        {"name": MIG, "group": "training", "boards": [{"board": "h100-80gb-sxm", "count": 2}]},
        {"name": MPS, "group": "shared", "boards": [{"board": "l40s", "count": 2}]},
        {"name": PLAIN, "group": "plain", "boards": []},
    )


class Untouched:
    """What is on a host: packages, its facts, and every file of /etc, /usr/local and /var/lib with its time."""

    def __init__(self, fleet, host):
        self.facts = fleet.facts(host)
        self.packages = fleet.lab.sh(host, "dpkg-query -W")
        self.files = fleet.lab.sh(
            host,
            "find /etc /usr/bin /usr/lib/systemd /usr/local /var/lib/dpkg /var/lib/gpufleet -xdev -type f "
            "-printf '%p %s %T@\\n' 2>/dev/null | grep -v '^/etc/mtab\\|lock' | sort || true",
        )

    def __eq__(self, other):
        assert self.packages == other.packages
        assert self.files == other.files
        assert self.facts == other.facts
        return True


def blocks(text, host):
    """What the run said of a host, without the breaks with which it was folded."""
    found = re.findall(rf"^fatal: \[{re.escape(host)}\][^\n]*\n(?:[ \t][^\n]*\n|\n)*", text, re.MULTILINE)
    return re.sub(r"\s+", " ", " ".join(found))


def converged(fleet, *hosts):
    """Run site until nothing fails, then once more: that run has to change nothing."""
    first = fleet.play("site")
    assert first.rc == 0, first.text
    second = fleet.play("site")
    assert second.rc == 0, second.text
    assert all(second.quiet(host) for host in hosts), second.text


def test_every_variable_is_refused_before_the_host_is_touched(fleet):
    pools = {"training": {"hosts": [*BAD]}, "night": {"hosts": ["two-pools"]}}
    fleet.describe(pools, {host: {"machine": MIG, **variables} for host, (variables, _said) in BAD.items()})
    fleet.describe({**pools, "day": {"hosts": [MIG]}}, {host: {"machine": MIG, **BAD[host][0]} for host in BAD})
    before = Untouched(fleet, MIG)
    # What no host could meet is said of all of them before the first is read; which GPUs a host has, it says itself.
    left, rounds = dict(BAD), []
    for heading in ("TASK [Check the variables]", "Decide which hosts have something to do"):
        run = fleet.play("site", "--limit", ",".join(left))
        assert run.rc != 0
        told = run.text.partition(heading)[2].splitlines()
        said = {}
        for host in left:
            # A host of which no task ran is not in the recap.
            assert host not in run.recap or run.recap[host]["changed"] == 0, f"{host}: {run.text}"
            said[host] = "\n".join(line for line in told if f"{host}: " in line)
        rounds.append({host for host, text in said.items() if all(word in text for word in left[host][1])})
        left = {host: entry for host, entry in left.items() if host not in rounds[-1]}
    assert not left and rounds[1] == {"unknown-profile", "does-not-fit", "no-such-gpu", "slice-too-large"}, run.text
    named = run.text.partition("No host is changed, because the description of ")[2]
    assert all(host in named.partition(" is refused, for the reasons above")[0] for host in rounds[1]), run.text
    assert Untouched(fleet, MIG) == before


def test_impossible_desired_states_are_reported_by_the_plan_and_do_not_end_it(fleet):
    run = fleet.play("plan", "-e", f"gpu_plan_report={fleet.folder}/bad.json", "-e", "gpu_plan_fail=false")
    report = json.loads((fleet.folder / "bad.json").read_text())
    assert set(report["hosts"]) == {*BAD, MIG}
    assert all(report["hosts"][host]["impossible"] for host in BAD), run.text
    for host, (_variables, said) in BAD.items():
        told = " ".join(report["hosts"][host]["impossible"])
        assert all(words in told for words in said), f"{host}: {told}"
    assert report["hosts"][MIG]["impossible"] == []
    assert f"{len(BAD)} impossible" in run.text


def test_check_mode_on_untouched_hosts_shows_the_whole_plan_and_changes_nothing(fleet):
    fleet.describe(POOLS)
    before = [Untouched(fleet, host) for host in (MIG, MPS)]
    run = fleet.play("site", "--check", "--diff")
    assert run.rc == 0, run.text
    for line in (
        f"{MIG}: driver: install driver branch 580",
        f"{MIG}: toolkit: install nvidia-container-toolkit 1.20.2",
        f"{MIG}: runtime: configure the runtime nvidia of containerd",
        f"{MIG}: mig: partition GPU",
        f"{MPS}: mig: nothing to do",
        f"{MPS}: sharing: start MPS daemon node",
        "+# gpufleet.nvidia: begin",
    ):
        assert line in run.text, line
    assert "capacity.json" in run.text
    assert not fleet.gitops.exists()
    assert [Untouched(fleet, host) for host in (MIG, MPS)] == before


def test_the_plan_of_hosts_that_drift_ends_with_another_status_than_0(fleet):
    facts = fleet.folder / "facts"
    run = fleet.play("plan", "-e", f"gpu_plan_facts_directory={facts}")
    assert run.rc != 0
    assert "2 hosts: 0 as described, 2 to change" in run.text
    assert sorted(path.name for path in facts.iterdir()) == [f"{MIG}.json", f"{MPS}.json"]
    one = fleet.play("plan", "--limit", MPS, "-e", "gpu_plan_fail=false")
    assert one.rc == 0, one.text
    assert "1 host: 0 as described, 1 to change" in one.text


def test_the_plan_works_from_recorded_facts_without_the_hosts(fleet):
    facts = fleet.folder / "facts"
    fleet.lab.run("stop", MPS)
    try:
        run = fleet.play("plan", "-e", f"gpu_plan_facts_directory={facts}", "-e", "gpu_plan_offline=true")
        assert "2 hosts: 0 as described, 2 to change, 0 impossible, 0 unread" in run.text
        live = fleet.play("plan", "-e", "gpu_plan_fail=false")
        assert "1 unread" in live.text
    finally:
        fleet.lab.run("start", MPS)


def test_a_refused_host_stops_all_unless_it_is_skipped_and_dead_ones_fail_alone(fleet):
    address = fleet.variables["lab_repository_url"]
    dead = {
        "nvidia_driver_repository_url": f"{address}/compute/cuda/repos/debian12/x86_64",
        "nvidia_toolkit_repository_url": f"{address}/libnvidia-container/stable/deb",
    }
    pools = {
        "training": {"hosts": [MIG, "site-gone"], "vars": TRAINING},
        "shared": {"hosts": [MPS], "vars": {**SHARED, **dead}},
        "plain": {"hosts": [PLAIN], "vars": {"gpu_facts_gpus": [{"board": "t4", "count": 1}]}},
    }
    fleet.describe(pools, {"site-gone": {"machine": "nowhere"}})
    before = {host: Untouched(fleet, host) for host in (MIG, MPS, PLAIN)}
    gated = fleet.play("site")
    assert gated.rc != 0
    assert f"the description of {PLAIN} is refused, for the reasons above" in re.sub(r"\s+", " ", gated.text), (
        gated.text
    )
    assert "gpu_facts_skip_refused_hosts: true" in gated.text
    assert {host: Untouched(fleet, host) for host in before} == before, "one host that is refused stops all"
    del before[MIG]
    fleet.lab.run("repository", "off")
    try:
        run = fleet.play("site", "-e", "gpu_facts_skip_refused_hosts=true")
    finally:
        fleet.lab.run("repository", "on")
    assert run.rc != 0
    assert run.recap["site-gone"]["unreachable"] == 1
    assert run.recap[MIG]["failed"] == 0 and run.recap[MIG]["changed"] > 0, run.text
    assert run.recap[MPS]["failed"] == 1 and run.recap[MPS]["changed"] == 0, run.text
    assert address in blocks(run.text, MPS), run.text
    assert run.recap[PLAIN]["failed"] == 1 and run.recap[PLAIN]["changed"] == 0, run.text
    assert f"{PLAIN}: " in blocks(run.text, PLAIN) and "NVIDIA GPU" in blocks(run.text, PLAIN), run.text
    assert {host: Untouched(fleet, host) for host in (MPS, PLAIN)} == before
    assert len(fleet.facts(MIG)["gpus"][0]["gpu_instances"]) == 4


def test_runs_that_are_killed_anywhere_can_be_repeated(fleet):
    fleet.describe(POOLS)
    fleet.lab.sh(MPS, "true")
    chance = random.Random(20260731)
    for _round in range(examples(4, 1)):
        line, environment = fleet.command("site")
        player = subprocess.Popen(
            line,
            env=environment,
            cwd=fleet.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            time.sleep(chance.uniform(4.0, 22.0))
        finally:
            # The session holds the workers too; what already runs on the hosts goes on without its controller, as in life.
            os.killpg(player.pid, signal.SIGKILL)
            player.wait()
    converged(fleet, MIG, MPS)
    assert fleet.facts(MPS)["mps"][0]["responds"]


def test_without_drift_the_plan_ends_with_status_0(fleet):
    run = fleet.play("plan")
    assert run.rc == 0, run.text
    assert "2 hosts: 2 as described, 0 to change" in run.text


def test_a_run_without_work_reads_every_host_once_and_starts_nothing_else_on_it(fleet):
    run = fleet.play("site")
    assert run.rc == 0, run.text
    assert [task for task, _host in run.started if task == "Read the host"] == ["Read the host"] * 2
    on_hosts = {task for task, host in run.started if host in (MIG, MPS)}
    assert on_hosts == {"Check the variables", "Read the host", "Decide which hosts have something to do"}, run.text
    assert "training: 1 as described" in run.text and "shared: 1 as described" in run.text


@sampled("tag", ["driver", "toolkit", "mig", "sharing", "health"], default=2)
def test_a_stage_alone_reads_the_host_for_itself(fleet, tag):
    run = fleet.play("site", "--tags", tag, "--limit", MIG)
    assert run.rc == 0 and run.quiet(MIG), run.text
    assert [task for task, _host in run.started].count("Read the host") == 1


def test_the_clusters_files_alone_ask_no_host(fleet):
    run = fleet.play("site", "--tags", "cluster")
    assert run.rc == 0, run.text
    assert {host for _task, host in run.started} == {"localhost"}
    # A limit leaves out localhost: the task is shown under a host then, and runs on the controller all the same.
    limited = fleet.play("site", "--tags", "cluster", "--limit", MPS)
    assert limited.rc == 0, limited.text
    assert [task for task, _host in limited.started] == ["Render the clusters"]


@pytest.mark.by_name
def test_drift_on_a_host_is_seen_and_taken_back(fleet):
    fleet.lab.sh(MPS, "systemctl stop gpufleet-mps@node.service; nvidia-smi -c DEFAULT")
    run = fleet.play("plan")
    assert run.rc != 0
    assert re.search(rf"^{MPS} .*to change +sharing", run.text, re.MULTILINE), run.text
    converged(fleet, MIG, MPS)
