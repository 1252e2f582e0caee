# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Batches of C(repartition) and C(rollback): what a failed host means for its own batch, and for those after it."""

from __future__ import annotations

import json
import re

import pytest

from .upgrade_harness import Site

# Each of them runs a whole playbook.
pytestmark = pytest.mark.slow

#: The step that changes a host, by playbook.
CHANGES = {"repartition": "mig", "rollback": "install"}
NOT_STARTED = "Not started, because b failed in an earlier batch. Nothing was changed on this host."
#: By default the one that changes more.
ONE_OF_THEM = pytest.mark.parametrize("playbook", ["repartition", pytest.param("rollback", marks=pytest.mark.by_name)])


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path, "abc")


def batches(playbook, size):
    """Arguments for batches of a size, without the cluster's files."""
    return (playbook, "-e", f"gpu_{playbook}_serial={size}", "--skip-tags", "cluster")


def recap(done, host):
    """What Ansible counted of a host."""
    (line,) = re.findall(rf"^{host} +: (.*)$", done.stdout, re.MULTILINE)
    return {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", line)}


def said_of(done, host):
    """The message with which a host failed at the end."""
    return re.findall(rf"^fatal: \[{host}\]: FAILED! => (.*)$", done.stdout, re.MULTILINE)[-1]


def steps(site, host):
    return [line.split(" ", 1)[1] for line in site.log if line.startswith(f"{host} ")]


@ONE_OF_THEM
def test_batches_follow_each_other(site, playbook):
    done = site.run(*batches(playbook, 2))
    assert done.returncode == 0, done.stdout[-3000:]
    first, second = (max(site.log.index(f"{host} resume") for host in hosts) for hosts in ("ab", "c"))
    begun = [min(site.log.index(f"{host} {CHANGES[playbook]}") for host in hosts) for hosts in ("ab", "c")]
    assert begun[0] < first < begun[1] < second


@ONE_OF_THEM
def test_a_failed_host_leaves_the_others_of_its_batch_alone_and_no_other_batch_starts(site, playbook):
    site.fail(b=CHANGES[playbook])
    done = site.run(*batches(playbook, 2))
    assert done.returncode != 0
    assert steps(site, "a")[-3:] == ["health", "resume", "lease absent"]
    assert not (site.folder / "a" / "repartition.json").exists()
    assert recap(done, "a")["failed"] == recap(done, "a")["rescued"] == 0
    assert recap(done, "b")["failed"] == 1
    assert steps(site, "c") == ["lease absent"], "it is not touched"
    assert f"{CHANGES[playbook]} does not work" in said_of(done, "b")
    assert NOT_STARTED in said_of(done, "c")


@pytest.mark.by_name
@pytest.mark.parametrize(
    ("playbook", "step"),
    [
        ("repartition", "mig"),
        pytest.param("rollback", "install", marks=pytest.mark.by_name),
        pytest.param("repartition", "plan", marks=pytest.mark.by_name),
        pytest.param("rollback", "nvidia-dcgm stopped", marks=pytest.mark.by_name),
    ],
)
def test_a_lost_host_counts_as_failed_and_its_batch_is_finished(site, playbook, step):
    """Whether it was lost before it was changed, or while it was."""
    site.services("nvidia-dcgm")
    site.fail(lost=True, b=step)
    done = site.run(*batches(playbook, 2))
    assert done.returncode != 0
    assert recap(done, "b")["unreachable"] == 1
    assert steps(site, "a")[-3:] == ["health", "resume", "lease absent"]
    assert recap(done, "a")["failed"] == recap(done, "a")["rescued"] == 0
    assert steps(site, "c") == ["lease absent"], "it is not touched"
    assert NOT_STARTED in said_of(done, "c")


@pytest.mark.by_name
@ONE_OF_THEM
def test_one_host_at_a_time_by_default(site, playbook):
    site.fail(a=CHANGES[playbook])
    done = site.run(playbook, "--skip-tags", "cluster")
    assert done.returncode != 0
    assert {line.split()[0] for line in site.log if not line.endswith("lease absent")} == {"a"}


# By default the quotas of teams show when the Lease is given back.
@pytest.mark.by_name
@ONE_OF_THEM
def test_the_lease_is_held_until_the_last_batch_has_ended(site, playbook):
    site.fail(c=CHANGES[playbook])
    site.run(*batches(playbook, 1))
    last = max(number for number, line in enumerate(site.log) if not line.endswith("lease absent"))
    released = [number for number, line in enumerate(site.log) if line.endswith("lease absent")]
    assert released and min(released) > last


@pytest.mark.by_name
@ONE_OF_THEM
def test_check_mode_goes_through_all_batches(site, playbook):
    site.fail(a={"repartition": "plan", "rollback": "install"}[playbook])
    done = site.run(*batches(playbook, 1), "--check")
    assert done.returncode != 0
    assert {line.split()[0] for line in site.log} == set("abc")


def test_the_variables_of_the_last_host_are_checked_before_the_first_batch(site):
    inventory = site.folder / "inventory.yml"
    inventory.write_text(inventory.read_text().replace("    c: {}", "    c: {gpu_upgrade_reboots: false}"))
    done = site.run(*batches("rollback", 1))
    assert done.returncode != 0 and site.log == []
    assert "Did you mean gpu_upgrade_reboot?" in done.stdout


@pytest.mark.by_name
@pytest.mark.parametrize("fails", [pytest.param(False, marks=pytest.mark.by_name), True])
def test_the_cluster_is_rendered_only_where_every_host_has_its_layout(site, fails):
    """What a host that is left is described as, it is not yet."""
    if fails:
        site.fail(c="mig")
    values = {
        "gpu_repartition_serial": 2,
        "gpu_kubernetes_output_directory": f"{site.folder}/tree",
        "gpu_facts_gpus": [{"board": "h100-80gb-sxm", "count": 1}],
    }
    done = site.run("repartition", "-e", json.dumps(values))
    assert (done.returncode != 0) is fails, done.stdout[-3000:]
    assert (site.folder / "tree").exists() is not fails


TEAM = {"team": "blue", "namespaces": ["blue"], "shares": [{"pool": "training", "percent": 50}]}
#: With what a render returns of its cluster; the numbers are of no matter here.
QUOTAS = {"gpu_kubernetes_quotas": [TEAM], "gpu_kubernetes_result": {"quotas": {"production": {}}}}


@pytest.mark.by_name
@pytest.mark.parametrize("fails", [pytest.param(False, marks=pytest.mark.by_name), True])
def test_quotas_are_lowered_before_a_host_changes_and_raised_under_the_lease_whatever_became_of_the_hosts(site, fails):
    if fails:
        site.fail(b="mig")
    done = site.run(*batches("repartition", 2), "-e", json.dumps(QUOTAS))
    assert (done.returncode != 0) is fails, done.stdout[-3000:]
    places = {line: number for number, line in enumerate(site.log)}
    planned = [places[f"{host} quotas planned"] for host in "abc"]
    changed = "ab" if fails else "abc"
    for host in changed:
        steps_of = steps(site, host)
        lowered = steps_of.index("quotas lowered")
        assert steps_of[lowered - 1] == "lease present" and lowered < steps_of.index("drain") < steps_of.index("mig")
        assert max(planned) < places[f"{host} lease present"]
    raised = [places[f"{host} quotas raised"] for host in "abc"]
    assert max(places[f"{host} mig"] for host in changed) < min(raised)
    # A host that did not begin may have raised those of another cluster, under that one's Lease.
    assert max(raised) < min(places[f"{host} lease absent"] for host in "abc")


@pytest.mark.by_name
def test_quotas_that_cannot_be_raised_keep_neither_the_lease_nor_the_tree(site):
    site.fail(**dict.fromkeys("abc", "quotas raised"))
    values = {
        **QUOTAS,
        "gpu_repartition_serial": 3,
        "gpu_kubernetes_output_directory": f"{site.folder}/tree",
        "gpu_facts_gpus": [{"board": "h100-80gb-sxm", "count": 1}],
    }
    done = site.run("repartition", "-e", json.dumps(values))
    assert done.returncode != 0
    assert all("lease absent" in steps(site, host) for host in "abc")
    assert (site.folder / "tree").exists()
    assert "The hosts are done, and the quotas of teams stay low: quotas raised does not work" in said_of(done, "a")


@pytest.mark.by_name
def test_a_host_whose_quotas_cannot_be_lowered_is_not_touched(site):
    site.fail(b="quotas lowered")
    done = site.run(*batches("repartition", 2), "-e", json.dumps(QUOTAS))
    assert done.returncode != 0
    assert steps(site, "b")[-3:] == ["quotas lowered", "quotas raised", "lease absent"]
    assert not (site.folder / "b" / "repartition.json").exists()
    assert "mig" in steps(site, "a") and "mig" not in steps(site, "c")
    assert "quotas lowered does not work" in said_of(done, "b")


def test_no_host_changes_where_it_is_not_known_to_what_the_quotas_would_go(site):
    """What is refused of the facts of a host keeps no other one from its layout, and the numbers from being known."""
    values = {"gpu_node_kubernetes": True, "gpu_kubernetes_quotas": [TEAM]}
    values["gpu_kubernetes_output_directory"] = f"{site.folder}/tree"
    done = site.run("repartition", "-e", json.dumps(values))
    assert done.returncode != 0
    assert site.log == []
    assert "because the quotas of teams (gpu_kubernetes_quotas) cannot be computed" in done.stdout


def test_no_host_changes_where_a_node_has_a_name_that_kubernetes_refuses(site):
    """The last host of the last batch: its rule would match nothing."""
    inventory = site.folder / "inventory.yml"
    inventory.write_text(inventory.read_text().replace("    c: {}", "    c: {gpu_node_name: GPU-Node01.DC1}"))
    values = {
        "gpu_node_kubernetes": True,
        "gpu_kubernetes_output_directory": f"{site.folder}/tree",
        "gpu_facts_gpus": [{"board": "h100-80gb-sxm", "count": 1}],
    }
    done = site.run("repartition", "-e", json.dumps(values))
    assert done.returncode != 0
    assert site.log == []
    assert "c: gpu_node_name: Kubernetes has no node of the name 'GPU-Node01.DC1'" in done.stdout
    assert (
        "such as gpu-node01.dc1." in done.stdout
        and "No host is changed, because the files of the cluster" in done.stdout
    )
