# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Debian 12's slurmctld, slurmd and munge with the rendered files, on two nodes with different boards.

The tests run in order: each begins with what the one before left.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections import Counter
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind
from ansible_collections.gpufleet.nvidia.tests import drift, verdicts

sys.path.insert(0, str(Path(__file__).resolve().parent))

from slurm_site import INSTALL, USER, SlurmSite

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]

#: A part of the rounds, as C(26-50): the hundred in several runs are the same hundred.
ROUNDS = "GPUFLEET_SLURM_ROUNDS"
HOPPER, AMPERE = "slurm-hopper", "slurm-ampere"
BOARDS = {
    HOPPER: ("hopper", {"board": "h100-80gb-sxm", "count": 2}),
    AMPERE: ("ampere", {"board": "a100-40gb", "count": 1}),
}
FIRST = {
    HOPPER: [{"devices": [0], "instances": {"1g.10gb": 3, "2g.20gb": 2}}],
    AMPERE: [{"devices": [0], "instances": {"1g.5gb": 2, "3g.20gb": 1}}],
}
#: Instances that fit on a GPU together; so does each part of them.
FULL = (
    ["1g"] * 7,
    ["2g", "2g", "2g", "1g"],
    ["2g", "2g", "1g", "1g", "1g"],
    ["3g", "3g"],
    ["4g", "3g"],
    ["4g", "2g", "1g"],
    ["3g", "2g", "1g", "1g"],
    ["7g"],
)
NAMES = {
    HOPPER: {"1g": "1g.10gb", "2g": "2g.20gb", "3g": "3g.40gb", "4g": "4g.40gb", "7g": "7g.80gb"},
    AMPERE: {"1g": "1g.5gb", "2g": "2g.10gb", "3g": "3g.20gb", "4g": "4g.20gb", "7g": "7g.40gb"},
}


@pytest.fixture(scope="module")
def site(make_fleet, kept_disk):
    disk = kept_disk("slurm", INSTALL, driver="installed", boards=[BOARDS[HOPPER][1]])
    hosts = [
        {"name": name, "group": group, "boards": [boards], "driver": "installed", "snapshot": disk}
        for name, (group, boards) in BOARDS.items()
    ]
    found = SlurmSite(make_fleet("slurm", *hosts), {name: group for name, (group, _boards) in BOARDS.items()})
    found.partition(FIRST)
    return found


def idle(site):
    return all(state == "IDLE" for state in site.states().values())


def test_the_nodes_offer_what_is_rendered_and_the_role_says_so(site):
    site.wait(lambda: idle(site))
    assert sorted(site.offered(HOPPER).values()) == [1, 2, 3]
    assert sorted(site.offered(AMPERE).values()) == [1, 2]
    compared = site.compare()
    assert compared.rc == 0, compared.text
    assert compared.text.count("scontrol show node: passed: IDLE") == 2


def test_a_second_run_changes_nothing_and_restarts_nothing(site):
    before = site.daemons()
    again = site.play(tags="slurm")
    assert again.rc == 0 and all(again.quiet(host) for host in site.hosts), again.text
    assert site.daemons() == before


def test_while_all_instances_are_in_use_each_job_is_told_its_own_by_the_prolog_without_cgroups(site):
    wanted = [
        (host, kind) for host in site.hosts for kind, count in site.offered(host).items() for _one in range(count)
    ]
    jobs = {site.submit(host, kind): (host, kind) for host, kind in wanted}
    site.wait(lambda: all(site.seen(host, job) for job, (host, _kind) in jobs.items()), site.logs)
    for job, (host, kind) in jobs.items():
        pid, device, listed = site.seen(host, job)
        place = _take(site, host, pid, device)
        profile = kind.rpartition("_")[2] if place[1] is not None else ""
        assert place[2] == profile, (job, kind, device)
        # NVML lists all of the host's devices to it: nothing but CUDA_VISIBLE_DEVICES keeps it from them.
        assert len([line for line in listed if "MIG" in line]) == sum(
            n for name, n in site.devices(host).items() if name
        )
    taken = [(host, *place) for host in site.hosts for place in _processes(site, host)]
    assert len(taken) == len(set(taken)) == len(wanted), taken


def test_the_facts_name_the_job_of_each_device_and_a_change_is_refused_for_it(site):
    for host in site.hosts:
        gpus = site.fleet.facts(host)["gpus"]
        parts = [part for gpu in gpus for one in gpu["gpu_instances"] for part in one["compute_instances"]]
        parts += [gpu for gpu in gpus if not gpu["mig"]["current"]]
        given = [one for part in parts for one in part.get("allocations", ())]
        assert [one["user"] for one in given] == [USER] * sum(site.offered(host).values()), given
        assert len({one["job"] for one in given}) == len(parts) and not [one for one in given if "sees" in one]
    site.describe({**FIRST, AMPERE: [{"devices": [0], "instances": {"7g.40gb": 1}}]})
    refused = site.fleet.play("site", "--tags", "mig", "--limit", AMPERE)
    assert refused.rc != 0 and f" of {USER} (gpu:" in refused.text, refused.text
    site.describe(FIRST)


def test_no_daemon_is_restarted_under_jobs_unless_the_site_allows_it(site):
    """Its record is gone: nobody knows what slurmd was started with."""
    site.lab.sh(AMPERE, "rm /etc/slurm/gpufleet/applied.json")
    before, jobs = site.daemons(), site.lab.sh(HOPPER, "squeue -h -t R -o %A")
    refused = site.play("--limit", AMPERE, tags="slurm")
    assert refused.rc != 0 and f"jobs run on node {AMPERE}" in refused.text, refused.text
    assert "gpu_slurm_restart_under_jobs: true" in refused.text
    assert site.daemons() == before and "DRAIN" not in site.states()[AMPERE]
    allowed = site.play("--limit", AMPERE, "-e", "gpu_slurm_restart_under_jobs=true", tags="slurm")
    assert allowed.rc == 0, allowed.text
    after = site.daemons()
    assert [host for host in after if after[host] != before[host]] == [AMPERE]
    assert site.lab.sh(HOPPER, "squeue -h -t R -o %A") == jobs


def test_a_controller_that_is_away_ends_no_job_and_is_named(site):
    before = {host: len(_processes(site, host)) for host in site.hosts}
    site.lab.sh(HOPPER, "systemctl stop slurmctld")
    compared = site.compare("--limit", AMPERE)
    assert compared.rc != 0
    assert "slurmctld gave no answer" in compared.text and "slurmctld runs there" in compared.text
    site.lab.sh(HOPPER, "systemctl start slurmctld")
    site.wait(lambda: set(site.states().values()) <= {"MIXED", "ALLOCATED", "IDLE"})
    assert {host: len(_processes(site, host)) for host in site.hosts} == before
    site.end_jobs()
    site.wait(lambda: idle(site))


def test_without_the_prolog_a_job_is_told_a_number_and_verify_says_what_cuda_makes_of_it(site):
    """A slurm.conf without TaskProlog, on hosts without cgroups."""
    site.set_prolog(False)
    kind = next(kind for kind, count in site.offered(AMPERE).items() if count == 2)
    jobs = [site.submit(AMPERE, kind) for _one in range(2)]
    site.wait(lambda: all(site.seen(AMPERE, job) for job in jobs), site.logs)
    assert {site.seen(AMPERE, job)[1] for job in jobs} == {"0", "1"}
    verified = site.fleet.play("verify", "--limit", AMPERE)
    for job in jobs:
        seen = f"sees the first MIG device of the host (CUDA_VISIBLE_DEVICES={site.seen(AMPERE, job)[1]})"
        assert f"job {job} of {USER} has gpu:{kind} (MIG-" in verified.text and seen in verified.text, verified.text
    site.set_prolog(True)
    site.end_jobs()
    site.wait(lambda: idle(site))


def test_a_prolog_that_is_no_program_fails_jobs_and_is_mended_without_a_restart(site):
    path = "/etc/slurm/gpufleet/task-prolog.sh"
    site.lab.sh(AMPERE, f"chmod 644 {path}")
    failing = site.lab.sh(AMPERE, f"srun -w {AMPERE} --chdir=/ true 2>&1", check=False)
    assert f"slurm task_prolog can not be executed ({path})" in failing, failing
    before = site.daemons()
    mended = site.play("--limit", AMPERE, tags="slurm")
    assert mended.rc == 0 and site.daemons() == before, mended.text
    assert site.lab.sh(AMPERE, f"srun -w {AMPERE} --chdir=/ hostname").strip() == AMPERE


def test_an_instance_too_few_and_one_too_many_are_named_with_the_next_step_and_mended(site):
    """What Slurm itself does of both: the one drains the node, the other is not seen in C(sinfo)."""
    path = "/etc/slurm/gpufleet/gres.conf"
    old = site.lab.sh(AMPERE, f"cat {path}")
    mine = [line for line in old.splitlines() if AMPERE in line]
    site.lab.write(AMPERE, path, old.replace(f"{mine[-1]}\n", ""))
    site.lab.sh(AMPERE, "systemctl restart slurmd")
    site.wait(lambda: "INVALID_REG" in site.states()[AMPERE])
    asked = {name: site.fleet.play(name, "--limit", AMPERE) for name in ("plan", "verify", "doctor")}
    assert all(one.rc != 0 and f"write {path}" in one.text for one in asked.values()), asked["plan"].text
    for name in ("verify", "doctor"):
        assert "INVALID_REG" in asked[name].text, asked[name].text
        assert f"scontrol update nodename={AMPERE} state=resume" in asked[name].text
    mended = site.play("--limit", AMPERE, tags="slurm")
    assert mended.rc == 0, mended.text
    assert site.lab.sh(AMPERE, f"cat {path}") == old
    site.wait(lambda: idle(site), site.logs)
    site.lab.write(AMPERE, path, f"{old}{mine[0]}\n")
    site.lab.sh(AMPERE, "systemctl restart slurmd")
    verified = site.fleet.play("verify", "--limit", AMPERE)
    assert verified.rc != 0 and "slurmd ignores devices of gres.conf" in verified.text, verified.text
    mended = site.play("--limit", AMPERE, tags="slurm")
    assert mended.rc == 0, mended.text
    site.wait(lambda: idle(site), site.logs)


def asked_of(site, host):
    """What C(plan), C(verify) and C(doctor) report of a host."""
    found = {}
    for name in ("plan", "verify", "doctor"):
        path = site.fleet.folder / f"{name}.json"
        played = site.fleet.play(name, "--limit", host, "-e", f"gpu_{name}_report={path}")
        assert path.exists(), played.text
        report = json.loads(path.read_text())
        found[name] = report.get("hosts", report)[host]
        path.unlink()
    return found["plan"], found["verify"], found["doctor"]


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=row.what, marks=() if row.default else pytest.mark.by_name) for row in drift.SLURM_ROWS],
)
def test_what_is_done_by_hand_is_named_by_all_and_mended(site, row):
    site.lab.sh(AMPERE, row.by_hand)
    before = site.daemons()
    plan, verified, diagnosed = asked_of(site, AMPERE)
    stage = plan["stages"]["slurm"]
    assert [step["kind"] for step in stage["steps"]] == [kind.key for kind in row.steps]
    evidence = "\n".join(text for _name, text in verdicts.failed_checks(verified))
    assert [text for text in verdicts.said({"stages": {"slurm": stage}}) if text not in evidence] == []
    assert plan["verdict"] == diagnosed["verdict"] == "to change"
    mended = site.play("--limit", AMPERE, tags="slurm")
    assert mended.rc == 0, f"{mended.text}\n{site.logs()}"
    after = site.daemons()
    restarted = [AMPERE] if Kind.RESTART_SERVICE in row.steps else []
    assert [host for host in site.hosts if after[host] != before[host]] == restarted
    site.wait(lambda: idle(site), site.logs)
    plan, verified, _diagnosed = asked_of(site, AMPERE)
    assert not plan["stages"]["slurm"]["needed"], plan["stages"]["slurm"]
    of_slurm = {check["name"]: check["status"] for check in verified["checks"]}
    assert (of_slurm["slurmd -G"], of_slurm["scontrol show node"]) == ("passed", "passed"), verified


@pytest.mark.by_name
@pytest.mark.parametrize(
    "step",
    [
        "Drain the node, unless it is drained, or somebody else took it out",
        "Bring the files to the controllers",
        "Bring the files to the node",
        "Read what slurmd finds on the host",
        "Resume the node",
    ],
)
def test_a_run_that_was_killed_is_finished_by_the_next(site, step):
    now = site.devices(AMPERE)
    other = {"7g.40gb": 1} if now != {"7g.40gb": 1} else {"1g.5gb": 7}
    site.describe({**FIRST, AMPERE: [{"devices": [0], "instances": other}]})
    site.kill_at(step)
    again = site.play()
    assert again.rc == 0, f"{again.text}\n{site.logs()}"
    site.wait(lambda: idle(site), site.logs)
    assert {kind.rpartition("_")[2]: n for kind, n in site.offered(AMPERE).items()} == other


@pytest.mark.parametrize("rounds", [2, pytest.param(100, marks=pytest.mark.by_name)])
def test_random_repartitions_end_idle_with_nothing_lost(site, rounds):
    chosen = random.Random(rounds)
    first, last = (int(number) for number in os.environ.get(ROUNDS, f"1-{rounds}").split("-"))
    for number in range(1, rounds + 1):
        layouts = {host: _layout(chosen, host) for host in site.hosts}
        if not first <= number <= last:
            continue
        site.partition(layouts)
        site.wait(lambda: idle(site))
        for host in site.hosts:
            assert _offered(site, host) == site.devices(host), layouts
    compared = site.compare()
    assert compared.rc == 0, compared.text


def _offered(site, host):
    """How many of each profile Slurm has to give; whole GPUs have none."""
    return {kind.rpartition("_")[2] if "g." in kind else "": n for kind, n in site.offered(host).items()}


def _devices_of(site, host, index):
    """How many instances of each profile a GPU has."""
    gpu = next(one for one in site.show(host) if one["index"] == index)
    return dict(Counter(one["profile"] for one in gpu["gpu_instances"]))


def _layout(chosen, host):
    """A layout for each GPU of a host: some of what fits on one, or no MIG."""
    entries = []
    for index in range(BOARDS[host][1]["count"]):
        full = chosen.choice(FULL)
        part = chosen.sample(full, chosen.randint(0, len(full)))
        if part:
            instances = Counter(NAMES[host][name] for name in part)
            entries.append({"devices": [index], "instances": dict(instances)})
    return entries


def _take(site, host, pid, device):
    """Do what CUDA does with the device that a job was told; return its GPU, its GPU instance and its profile."""
    name, *ids = device.removeprefix("MIG-").split("/")
    gpu = next(one for one in site.show(host) if one["uuid"] == name)
    if not ids:
        assert not gpu["mig"]["current"]
        site.lab.sh(host, f"virtual-gpu run --gpu {gpu['index']} --pid {pid}")
        return gpu["index"], None, ""
    site.lab.sh(host, f"virtual-gpu run --gpu {gpu['index']} --gi {ids[0]} --ci {ids[1]} --pid {pid}")
    instance = next(one for one in gpu["gpu_instances"] if one["id"] == int(ids[0]))
    return gpu["index"], instance["id"], instance["profile"]


def _processes(site, host):
    """GPU and instance of each process that the driver knows."""
    return [
        (gpu["index"], one.get("gpu_instance_id", one.get("gpu_instance")))
        for gpu in site.show(host)
        for one in gpu["processes"]
    ]


# The last ones: to a layout that it replaced, site does not go back.
def test_repartition_drains_in_slurm_returns_the_jobs_and_resumes_only_what_it_drained(site):
    site.partition(FIRST)
    job = site.submit(AMPERE, next(kind for kind in site.offered(AMPERE) if kind.endswith("3g.20gb")))
    site.wait(lambda: site.seen(AMPERE, job), site.logs)
    site.lab.sh(HOPPER, f"scontrol update nodename={HOPPER} state=drain reason=fan")
    layouts = {
        HOPPER: [{"devices": [0], "instances": {"1g.10gb": 7}}],
        AMPERE: [{"devices": [0], "instances": {"3g.20gb": 2}}],
    }
    site.describe(layouts)
    done = site.fleet.play("repartition", "-e", "gpu_slurm_jobs=requeue")
    assert done.rc == 0, f"{done.text}\n{site.logs()}"
    # The other GPU of the Hopper is described by nobody: it keeps what it has, and Slurm offers that, too.
    assert _devices_of(site, HOPPER, 0) == {"1g.10gb": 7} and _devices_of(site, AMPERE, 0) == {"3g.20gb": 2}
    assert all(_offered(site, host) == site.devices(host) for host in site.hosts)
    assert "DRAIN" in site.states()[HOPPER] and site.node(HOPPER)["Reason"].startswith("fan")
    assert "DRAIN" not in site.states()[AMPERE]
    assert site.lab.sh(HOPPER, f"scontrol show job {job} | grep -o Restarts=.").strip() == "Restarts=1"
    # Before the job was started again, one of the run had the node for itself.
    (kind,) = site.offered(AMPERE)
    assert f"{AMPERE}: job with gpu:{kind}:1: passed: MIG-GPU-" in done.text, done.text
    assert f"{HOPPER}: job with" not in done.text and site.reservations() == "No reservations in the system"
    site.lab.sh(HOPPER, f"scontrol update nodename={HOPPER} state=resume")
    site.end_jobs()
    site.wait(lambda: idle(site), site.logs)


def repartition(site, instances, *options):
    """Give the Ampere another layout, in service."""
    site.describe(
        {HOPPER: [{"devices": [0], "instances": {"1g.10gb": 7}}], AMPERE: [{"devices": [0], "instances": instances}]}
    )
    return ("repartition", "--limit", AMPERE, *options)


def finished(site, instances):
    """Whether the Ampere has a layout, and is for everybody."""
    site.wait(lambda: idle(site), site.logs)
    assert _offered(site, AMPERE) == site.devices(AMPERE) == instances
    assert site.reservations() == "No reservations in the system"
    return True


def test_a_node_on_which_a_job_is_not_told_its_device_stays_drained_until_it_is(site):
    """A slurm.conf without the rendered prolog, on hosts without cgroups."""
    site.set_prolog(False)
    failed = site.fleet.play(*repartition(site, {"1g.5gb": 7}))
    assert failed.rc != 0 and ":1: failed: no device of its type: 0" in failed.text, failed.text
    assert f"Node {AMPERE} is drained again (gpufleet.nvidia.repartition" in failed.text
    assert "DRAIN" in site.states()[AMPERE] and site.reservations() == "No reservations in the system"
    site.set_prolog(True)
    again = site.fleet.play(*repartition(site, {"1g.5gb": 7}))
    assert again.rc == 0 and finished(site, {"1g.5gb": 7}), again.text


def test_a_user_who_may_run_no_job_is_named_and_the_node_is_back_in_service(site):
    done = site.fleet.play(*repartition(site, {"3g.20gb": 2}, "-e", "gpu_slurm_jobs_user=nobody-here"))
    assert done.rc == 0 and finished(site, {"3g.20gb": 2}), done.text
    assert f"no job was run on node {AMPERE}" in done.text and "gpu_slurm_jobs_user" in done.text


@pytest.mark.by_name
@pytest.mark.parametrize(
    "step",
    ["Reserve the node for the jobs of the run", "Resume the node", "Run a job for each type", "End the reservation"],
)
def test_a_repartition_that_was_killed_is_finished_by_the_next(site, step):
    other = {"7g.40gb": 1} if site.devices(AMPERE) != {"7g.40gb": 1} else {"1g.5gb": 7}
    command = repartition(site, other)
    site.kill_at(step, *command)
    again = site.fleet.play(*command)
    assert again.rc == 0 and finished(site, other), f"{again.text}\n{site.logs()}"


def both(site):
    """Give both another layout, in service, and return the jobs to the queue."""
    wanted = {host: {NAMES[host]["7g"]: 1} for host in site.hosts}
    if _devices_of(site, HOPPER, 0) == wanted[HOPPER]:
        wanted = {host: {NAMES[host]["1g"]: 7} for host in site.hosts}
    site.describe({host: [{"devices": [0], "instances": instances}] for host, instances in wanted.items()})
    return wanted, ("repartition", "-e", "gpu_slurm_jobs=requeue")


@pytest.mark.by_name
def test_a_run_that_returns_jobs_drains_all_nodes_before_the_first_turn_and_the_next_one_finishes_them(site):
    wanted, command = both(site)
    site.kill_at("Wait until no job runs on the node", *command)
    assert ["DRAIN" in state for state in site.states().values()] == [True, True]
    again = site.fleet.play(*command)
    assert again.rc == 0, f"{again.text}\n{site.logs()}"
    site.wait(lambda: idle(site), site.logs)
    assert {host: _devices_of(site, host, 0) for host in site.hosts} == wanted
    assert all(_offered(site, host) == site.devices(host) for host in site.hosts)


@pytest.mark.by_name
def test_a_node_whose_turn_does_not_come_is_returned_as_it_was(site):
    """The turn of the first fails in its proof: a slurm.conf without the rendered prolog, on hosts without cgroups."""
    wanted, command = both(site)
    before = {host: site.devices(host) for host in site.hosts}
    site.set_prolog(False)
    failed = site.fleet.play(*command)
    assert failed.rc != 0, failed.text
    (first,) = (host for host, state in site.states().items() if "DRAIN" in state)
    (other,) = {*site.hosts} - {first}
    assert site.states()[other] == "IDLE" and _offered(site, other) == site.devices(other) == before[other]
    site.set_prolog(True)
    again = site.fleet.play(*command)
    assert again.rc == 0, f"{again.text}\n{site.logs()}"
    site.wait(lambda: idle(site), site.logs)
    assert {host: _devices_of(site, host, 0) for host in site.hosts} == wanted
