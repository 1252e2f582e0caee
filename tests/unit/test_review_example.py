# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The workflows of examples/review: what they give to playbooks is taken, what one of them saves the other one applies, and their commands do it."""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import plan_file
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.playbook_variables import check

from .test_examples import PLAYBOOKS
from .test_terminal import ROOT, inventory

REVIEW = ROOT / "examples" / "review"
COMMENT = "gh pr comment"


def steps(name):
    (job,) = yaml.safe_load((REVIEW / name).read_text(encoding="utf-8"))["jobs"].values()
    return job["steps"]


def commands(name):
    """The calls of ansible-playbook: playbook, inventory, and the variables that each is given."""
    found = []
    for line in "\n".join(step.get("run", "") for step in steps(name)).splitlines():
        words = shlex.split(line)
        if "ansible-playbook" in words:
            at = words.index("ansible-playbook")
            given = dict(zip(words[at + 1 : -1], words[at + 2 :]))
            playbook = next(word for word in words if word.startswith("gpufleet.nvidia."))
            variables = [two for one, two in zip(words, words[1:]) if one == "-e"]
            found.append((playbook.rpartition(".")[2], given["-i"], dict(one.split("=", 1) for one in variables)))
    return found


def artifact(name, action):
    (given,) = [step["with"] for step in steps(name) if step.get("uses", "").startswith(f"actions/{action}-artifact@")]
    return given


def test_what_the_workflows_give_to_playbooks_is_taken():
    found = commands("plan.yml") + commands("apply.yml")
    assert [playbook for playbook, _inventory, _given in found] == ["plan", "plan", "site"]
    for playbook, _inventory, given in found:
        answer = check(playbook, given)
        assert playbook in PLAYBOOKS and given and (answer.refusals, tuple(answer.unknown)) == ((), ())


def test_what_one_saves_the_other_applies_from_the_inventory_that_starts_it():
    (saved, shown), (applied,) = commands("plan.yml"), commands("apply.yml")
    path = saved[2]["gpu_plan_out"]
    assert (shown[2], applied[2]) == ({"gpu_plan_in": path}, {"gpu_plan_apply": path})
    kept, taken = artifact("plan.yml", "upload"), artifact("apply.yml", "download")
    assert (kept["name"], kept["path"]) == (taken["name"], path)
    starts = yaml.safe_load((REVIEW / "plan.yml").read_text(encoding="utf-8"))["on"]["pull_request"]["paths"]
    assert {one.partition("/")[0] for one in starts} == {saved[1]} == {shown[1]} == {applied[1]}


@pytest.mark.slow
def test_their_commands_save_a_plan_for_the_comment_and_apply_it(tmp_path):
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory" / "hosts.yml").write_text(inventory("ready", tmp_path), encoding="utf-8")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
        "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
        "GITHUB_ACTOR": "octocat",
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "build" / "collections"),
        "ANSIBLE_CONNECTION_PLUGINS": str(ROOT / "tests" / "bench" / "canned"),
        "ANSIBLE_PIPELINING": "true",
    }

    def run(name):
        for step in steps(name):
            if "run" in step and not step["run"].startswith(COMMENT):
                command = ["bash", "-e", "-c", step["run"]]
                done = subprocess.run(
                    command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300
                )
                assert done.returncode == 0, f"{step['name']}: {done.stdout}\n{done.stderr}"

    run("plan.yml")
    plan, digest = plan_file.opened(str(tmp_path / "plan.json"))
    comment = (tmp_path / "comment.md").read_text(encoding="utf-8")
    assert plan.author == "octocat" and f"The plan {digest} for site" in comment and comment.startswith("```\n")
    assert [step["run"].split()[-1] for step in steps("plan.yml") if COMMENT in step.get("run", "")] == ["comment.md"]
    run("apply.yml")
    assert list(tmp_path.glob("**/capacity.json"))
