# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host that was broken into sets no variable: not a command, a path, an argument of a module or the name of a node."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from .hostile_harness import Fleet, variables
from .hostile_results import DROPPED

# Each of them runs a whole playbook twice.
pytestmark = pytest.mark.slow


def poison(canary) -> dict:
    """What a host adds to all its answers: every variable of the collection, as a command that leaves a file."""
    facts = {name: ["touch", str(canary)] for name in variables()}
    facts.update(gpu_node_name="another-node", __gpu_node_stopped_path=str(canary), gpu_facts_pool="elsewhere")
    # What Ansible reads of results for all hosts, beside what would be variables and hosts.
    of_results = {name: value for one in DROPPED for name, value in one.items()}
    return {
        **of_results,
        "ansible_facts": facts,
        "ansible_facts_cacheable": True,
        "_ansible_facts_cacheable": True,
        "add_host": {"host_name": "b", "groups": ["gpu_hosts"], "host_vars": {"gpu_node_name": "another-node"}},
        "add_group": "gpu_upgrade_todo",
        "warnings": ["\x1b]0;title\x07"],
    }


def test_the_poison_has_what_matters(tmp_path):
    names = poison(tmp_path)["ansible_facts"]
    assert {"gpu_node_drain_command", "gpu_plan_report", "nvidia_driver_version", "__gpu_upgrade_host"} <= set(names)
    assert {"ansible_stats", "results", "_ansible_notify", "async_result", "add_host"} <= set(poison(tmp_path))


#: By playbook, the files that it writes on the controller, and the variables that have it do so.
WRITES = {
    "site": (["gitops/clusters/cluster/manifest.json", "gitops/facts/a.json"], {}),
    "plan": (["report.json", "facts/a.json"], {"gpu_plan_report": "report.json", "gpu_plan_facts_directory": "facts"}),
    "inspect": (["report.json", "r.html"], {"gpu_inspect_report": "report.json", "gpu_inspect_html": "r.html"}),
    "verify": (["report.json"], {"gpu_verify_report": "report.json"}),
    "doctor": (["report.json"], {"gpu_doctor_report": "report.json"}),
    "adopt": (["report.json", "inventory/adopted/README.md"], {"gpu_adopt_report": "report.json"}),
    "upgrade": (["commands"], {}),
    "repartition": (
        ["commands", "gitops/clusters/cluster/manifest.json"],
        {"nvidia_mig_strategy": "mixed", "nvidia_mig_layout": [{"devices": "all", "instances": {"1g.10gb": 7}}]},
    ),
    "rollback": ([], {}),
    "heal": ([], {}),
    "remove": ([], {}),
}


#: One of those that write the tree, the inventory, commands and records; the others run by name.
BY_DEFAULT = ("site",)


@pytest.mark.parametrize(
    "playbook",
    [pytest.param(name, marks=() if name in BY_DEFAULT else pytest.mark.by_name) for name in WRITES],
)
def test_a_hostile_host_changes_nothing_of_what_is_done(tmp_path, playbook):
    written, variables_of_run = WRITES[playbook]
    group = "others" if playbook == "adopt" else "gpu_hosts"
    honest, hostile = (Fleet(tmp_path / name, {}, group=group) for name in ("honest", "hostile"))
    (hostile.folder / "poison.json").write_text(json.dumps(poison(hostile.canary)))
    expected, done = (
        fleet.run(f"gpufleet.nvidia.{playbook}", "-e", json.dumps(variables_of_run)) for fleet in (honest, hostile)
    )
    assert not hostile.canary.exists(), "what a host said was run on the controller"
    assert {"modules", *written} <= set(honest.did()), expected.stdout + expected.stderr
    assert hostile.did() == honest.did()
    assert untimed(done.stdout).replace(str(hostile.folder), str(honest.folder)) == untimed(expected.stdout)
    assert done.returncode == expected.returncode
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize("path", ["gitops/clusters/cluster/values/x.yaml", "inventory/adopted/x", "report.json", "x"])
def test_whatever_is_written_by_one_of_them_is_a_difference(tmp_path, path):
    honest, hostile = Fleet(tmp_path / "honest", {}), Fleet(tmp_path / "hostile", poison(tmp_path))
    assert hostile.did() == honest.did() == {}
    (hostile.folder / path).parent.mkdir(parents=True, exist_ok=True)
    (hostile.folder / path).write_text("x")
    assert hostile.did() != honest.did()


def untimed(output):
    """What was printed, without the seconds that a run of site took."""
    return re.sub("Seconds of the slowest host of each stage:\n.*?collection's own", "", output, flags=re.DOTALL)


def timeless(did):
    """What was done, without who did it and when, and how often a host was asked whether it answers, which no two runs have in common."""
    return {
        name: re.sub(r'"(operator|since|at)": "[^"]*"|^ping .*\n', "", text, flags=re.M) for name, text in did.items()
    }


@pytest.mark.by_name
def test_a_hostile_host_that_has_to_be_repaired_changes_nothing_of_what_is_done(tmp_path):
    honest, hostile = Fleet(tmp_path / "honest", {}), Fleet(tmp_path / "hostile", {})
    (hostile.folder / "poison.json").write_text(json.dumps(poison(hostile.canary)))
    for fleet in (honest, hostile):
        gpu = {**fleet.answers["gpu_info"]["gpu"]["gpus"][0], "recovery_action": "gpu_reset"}
        fleet.answers["gpu_info"] = {"changed": False, "gpu": {**fleet.answers["gpu_info"]["gpu"], "gpus": [gpu]}}
    expected, done = (
        fleet.run("gpufleet.nvidia.heal", "-e", "gpu_heal_breaker_hosts=1") for fleet in (honest, hostile)
    )
    assert "gpu_repair" in honest.did()["modules"], expected.stdout + expected.stderr
    assert honest.did()["commands"].splitlines()[0] == "a drain"
    assert not hostile.canary.exists() and timeless(hostile.did()) == timeless(honest.did())
    assert done.returncode == expected.returncode and "\x1b" not in done.stdout + done.stderr


@pytest.mark.by_name
def test_the_commands_of_the_controller_are_run_as_they_are_described(tmp_path):
    fleet = Fleet(tmp_path / "fleet", poison(tmp_path / "canary"), ("a", "b"))
    done = fleet.run("gpufleet.nvidia.upgrade")
    assert fleet.did()["commands"].splitlines() == ["a drain", "a resume", "b drain", "b resume"], done.stdout


def test_facts_that_another_play_took_from_the_host_are_refused(tmp_path):
    fleet = Fleet(tmp_path / "fleet", poison(tmp_path / "canary"))
    play = [
        {"hosts": "gpu_hosts", "gather_facts": True, "tasks": []},
        {"ansible.builtin.import_playbook": "gpufleet.nvidia.upgrade"},
    ]
    (fleet.folder / "site.yml").write_text(yaml.safe_dump(play))
    done = fleet.run("site.yml")
    assert done.returncode != 0
    assert "a: its facts set variables of gpufleet.nvidia: __" in done.stdout + done.stderr
    assert not (tmp_path / "canary").exists() and "commands" not in fleet.did()
