# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""C(site) over hosts that are as described, in the ways in which people run a playbook: a host is asked for its facts once and for nothing else, and
each pool is one line.

The hosts answer at once what the README's said after C(site); a host that is asked for anything else fails the run (C(tests/bench/canned)).
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
import yaml

from ..warm_ansible import run as run_ansible
from .test_terminal import ROOT, inventory

#: Each run starts ansible-playbook.
pytestmark = pytest.mark.slow

#: Of the second host's pool there is a second one.
TRAINING, SHARED = ("gpu-training-1", "gpu-training-2"), ("gpu-shared-1",)
ALL = {*TRAINING, *SHARED}
LINES = ["  shared: 1 as described", "  training: 2 as described"]
STAGES = "  roles:\n" + "".join(
    f"    - gpufleet.nvidia.nvidia_{name}\n" for name in ("driver", "toolkit", "settings", "mig", "sharing", "dcgm")
)


@pytest.fixture
def fleet(tmp_path):
    """Write the inventory, and return what runs C(ansible-playbook) over it."""
    described = yaml.safe_load(inventory("ready", tmp_path))
    pools = described["gpu_hosts"]["children"]
    pools["training"]["hosts"][TRAINING[1]] = dict(pools["training"]["hosts"][TRAINING[0]])
    for pool in pools.values():
        for host, variables in pool["hosts"].items():
            facts = json.loads(Path(variables["bench_canned_facts"]).read_text(encoding="utf-8"))
            # Lab hosts run the kernel of the machine, so that they have no packages of one.
            facts["host"] |= {"name": host, "kernel_packages": ["linux-headers-amd64", "linux-image-amd64"]}
            path = tmp_path / f"{host}.json"
            path.write_text(json.dumps(facts), encoding="utf-8")
            variables["bench_canned_facts"] = str(path)
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump(described), encoding="utf-8")

    def run(*arguments, playbook="gpufleet.nvidia.site", callback="ansible.builtin.default"):
        tree = f"gpu_kubernetes_output_directory={tmp_path / 'tree'}"
        done = run_ansible(
            [
                sys.executable.replace("python", "ansible-playbook"),
                "-i",
                "inventory.yml",
                playbook,
                "-e",
                tree,
                *arguments,
            ],
            {
                **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
                "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "build" / "collections"),
                "ANSIBLE_CONNECTION_PLUGINS": str(ROOT / "tests" / "bench" / "canned"),
                "ANSIBLE_PIPELINING": "true",
                "ANSIBLE_NOCOLOR": "1",
                "ANSIBLE_STDOUT_CALLBACK": callback,
            },
            tmp_path,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        run.stderr.append(done.stderr)
        return done.stdout

    run.stderr = []

    return run


def pools_shown(said):
    return [line for line in said.splitlines() if re.match(r"  [\w-]+: \d", line)]


def recap(said):
    """Return for each host of the recap what Ansible counted: C(ok), C(changed) and so on."""
    return {
        host: {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", counts)}
        for host, counts in re.findall(r"^(\S+) +: (ok=.*)$", said.partition("PLAY RECAP")[2], re.MULTILINE)
    }


def test_a_run_is_one_line_per_pool_and_one_task_per_host(fleet):
    fleet()
    said = fleet()
    assert pools_shown(said) == LINES
    counted = recap(said)
    assert set(counted) - {"localhost"} == ALL
    assert not any(host["changed"] or host["failed"] for host in counted.values())
    # One host carries what is decided once for all of them.
    assert sorted((counted[host]["ok"], counted[host]["skipped"]) for host in ALL) == [(1, 0), (1, 0), (3, 4)]
    shown = fleet("--check", "--diff")
    assert pools_shown(shown) == LINES
    assert recap(shown) == counted
    assert "+++" not in shown


@pytest.mark.parametrize("tags", ["toolkit,runtime", "cluster"])
def test_a_stage_alone(fleet, tags):
    fleet()
    said = fleet("--tags", tags)
    assert pools_shown(said) == ([] if tags == "cluster" else LINES)
    # The tree is rendered on the controller, from what was recorded.
    assert recap(said).keys() - {"localhost"} == (set() if tags == "cluster" else ALL)


@pytest.mark.parametrize(
    ("limit", "hosts", "lines"),
    [
        ("gpu-training-2", {"gpu-training-2"}, ["  training: 1 as described"]),
        ("training", set(TRAINING), ["  training: 2 as described"]),
        ("all:!training", set(SHARED), ["  shared: 1 as described"]),
    ],
)
def test_a_part_of_the_fleet(fleet, limit, hosts, lines):
    said = fleet("--limit", limit)
    assert pools_shown(said) == lines
    assert set(recap(said)) == hosts


@pytest.mark.by_name
def test_a_tree_that_cannot_be_written_is_refused_before_the_hosts_are_changed(fleet, tmp_path):
    fleet()
    (readme,) = (tmp_path / "tree/clusters").glob("*/README.md")
    readme.write_text("by hand\n", encoding="utf-8")
    with pytest.raises(AssertionError) as failed:
        fleet("-e", '{"nvidia_health_fresh": true}')
    assert "No host is changed" in str(failed.value) and "PLAY [Hosts are as" not in str(failed.value)
    # Where no host has anything to do, the rendering itself says so, and the tree is rendered once.
    with pytest.raises(AssertionError) as failed:
        fleet()
    assert "Nothing was written" in str(failed.value) and "No host is changed" not in str(failed.value)
    fleet("--skip-tags", "cluster")
    fleet("--tags", "driver")


def test_hosts_one_after_the_other(fleet, tmp_path):
    """C(serial) is a play's, so that a user's own play with the roles has it; and one fork is a batch of one, too."""
    playbook = tmp_path / "rolling.yml"
    playbook.write_text(f"- hosts: gpu_hosts\n  serial: 1\n  gather_facts: false\n{STAGES}", encoding="utf-8")
    counted = recap(fleet(playbook=str(playbook)))
    assert set(counted) == ALL and not any(host["changed"] or host["failed"] for host in counted.values())
    assert pools_shown(fleet("--forks", "1")) == LINES


@pytest.mark.parametrize("callback", ["ansible.builtin.minimal", "gpufleet.nvidia.progress"])
def test_other_callbacks_show_the_same_lines(fleet, callback):
    assert pools_shown(fleet(callback=callback)) == LINES


@pytest.mark.by_name
@pytest.mark.parametrize("callback", ["ansible.posix.json", "ansible.posix.jsonl"])
def test_callbacks_for_programs_write_documents_and_nothing_else_to_standard_output(fleet, callback):
    said = fleet(callback=callback)
    documents = [json.loads(said)] if callback.endswith("json") else [json.loads(line) for line in said.splitlines()]
    assert documents[-1]["stats"].keys() - {"localhost"} == ALL
    assert pools_shown(fleet.stderr[-1]) == LINES


def test_a_saved_plan_holds_until_a_fact_that_it_was_made_from_differs(fleet, tmp_path):
    saved = f"gpu_plan_apply={tmp_path / 'plan.json'}"
    shown = fleet(
        "-e", f"gpu_plan_out={tmp_path / 'plan.json'}", "-e", "gpu_plan_fail=false", playbook="gpufleet.nvidia.plan"
    )
    assert "2 as described" not in shown and "3 hosts: 3 as described" in shown
    assert "3 hosts: 3 as described" in fleet(
        "-e", f"gpu_plan_in={tmp_path / 'plan.json'}", playbook="gpufleet.nvidia.plan"
    )
    assert "files changed" in fleet("-e", saved)
    held = fleet("-e", saved)
    assert pools_shown(held) == LINES
    # That costs no second reading of a host, and no second rendering.
    assert held.count("cluster, 0 files to change") == 1 and "files changed" not in held
    assert sorted(recap(held)[host]["ok"] for host in ALL) == [1, 1, 4]
    path = tmp_path / f"{TRAINING[0]}.json"
    facts = json.loads(path.read_text(encoding="utf-8"))
    # Whoever uses the host, and what no stage reads, is no difference.
    facts["health"]["cuda_program"] = "/opt/another"
    path.write_text(json.dumps(facts), encoding="utf-8")
    fleet("-e", saved)
    facts["host"]["kernel_headers"] = not facts["host"]["kernel_headers"]
    path.write_text(json.dumps(facts), encoding="utf-8")
    with pytest.raises(
        AssertionError, match=f"{TRAINING[0]}: the plan: facts that the plan was made from are others now: host"
    ):
        fleet("-e", saved)
