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

# Each of them runs a whole playbook twice.
pytestmark = pytest.mark.slow


def poison(canary) -> dict:
    """What a host adds to all its answers: every variable of the collection, as a command that leaves a file."""
    facts = {name: ["touch", str(canary)] for name in variables()}
    facts.update(gpu_node_name="another-node", __gpu_node_stopped_path=str(canary), gpu_facts_pool="elsewhere")
    return {
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


@pytest.mark.parametrize(
    "playbook",
    [
        *("site", "adopt", "upgrade", "heal"),
        *(
            pytest.param(name, marks=pytest.mark.by_name)
            for name in ("plan", "inspect", "verify", "doctor", "repartition", "rollback", "remove")
        ),
    ],
)
def test_a_hostile_host_changes_nothing_of_what_is_done(tmp_path, playbook):
    honest, hostile = Fleet(tmp_path / "honest", {}), Fleet(tmp_path / "hostile", {})
    (hostile.folder / "poison.json").write_text(json.dumps(poison(hostile.canary)))
    expected = honest.run(f"gpufleet.nvidia.{playbook}")
    done = hostile.run(f"gpufleet.nvidia.{playbook}")
    assert not hostile.canary.exists(), "what a host said was run on the controller"
    assert "modules" in honest.did(), expected.stdout + expected.stderr
    assert hostile.did() == honest.did()
    assert untimed(done.stdout).replace(str(hostile.folder), str(honest.folder)) == untimed(expected.stdout)
    assert done.returncode == expected.returncode
    assert "\x1b" not in done.stdout + done.stderr


def untimed(output):
    """What was printed, without the seconds that a run of site took."""
    return re.sub("Seconds of the slowest host of each stage:\n.*?collection's own", "", output, flags=re.DOTALL)


def timeless(did):
    """What was done, without who did it, when, and how often a host was asked for before it answered: no two runs have that in common."""
    return {
        name: re.sub(r'"(operator|since|at)": "[^"]*"|^ping \{\}\n', "", text, flags=re.M) for name, text in did.items()
    }


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
