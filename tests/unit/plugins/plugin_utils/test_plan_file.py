# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Saved plans on the controller: signed and verified by commands without a shell, opened, and refused for another run than theirs."""

from __future__ import annotations

import dataclasses
import time

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused, StagePlan, Step
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import plan_file, planning
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import saved_plan
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_program import collection_version

STEP = Step(Kind.INSTALL_TOOLKIT, "nvidia-container-toolkit", "it is not installed", (), {"version": "1.20.2"})


def plan(**changes):
    hosts = {
        "a": saved_plan.PlannedHost(work=tuple(saved_plan.work_of({"toolkit": StagePlan("toolkit", True, (STEP,))})))
    }
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    found = saved_plan.SavedPlan(saved_plan.FORMAT, collection_version(), made, hosts=hosts)
    return dataclasses.replace(found, **changes)


#: A signature is a copy here, and no shell makes two commands of the semicolon.
SIGN = ["/bin/cp", "{file}", "{file}.;true"]
VERIFY = ["/usr/bin/cmp", "{file}", "{file}.;true"]


def test_a_plan_is_signed_by_a_command_and_taken_while_the_other_one_agrees(tmp_path):
    path = str(tmp_path / "plan.json")
    digest = plan_file.write(path, plan(), SIGN)
    assert (tmp_path / "plan.json.;true").exists()
    assert (
        plan_file.opened(path, VERIFY) == plan_file.opened(path) == (plan(made=plan_file.opened(path)[0].made), digest)
    )
    plan_file.write(path, plan(author="somebody else"), [])
    with pytest.raises(Refused, match=r"gpu_plan_verify_command: Failed to run /usr/bin/cmp .*: exit status 1"):
        plan_file.opened(path, VERIFY)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["/bin/false", "{file}"], "exit status 1"),
        (["/bin/none", "{file}"], "not installed"),
        (["/bin/true"], "none of its"),
    ],
)
def test_a_plan_that_cannot_be_signed_leaves_the_earlier_one_and_its_signature(tmp_path, command, said):
    path = tmp_path / "plan.json"
    for there in (False, True):
        before = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
        assert bool(before) == there
        with pytest.raises(Refused, match=f"gpu_plan_sign_command: .*{said}"):
            plan_file.write(str(path), plan(author="somebody else"), command)
        assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == before
        plan_file.write(str(path), plan(), SIGN)
    plan_file.opened(str(path), VERIFY)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"author": "x" * 300}, "author: the text has 300 characters"),
        ({"author": "a\x1b[31m"}, "author: .* has control characters"),
        ({"files": {"a": "changed" * 100}}, "files.a: the text has 700 characters"),
        ({"target": "x" * 70_000}, r"hosts.a.work\[0\].target: the text has 70000 characters"),
        ({"data": {"content": "\x07"}}, r"hosts.a.work\[0\].data.content: .* has control characters"),
        ({"data": {"size": 2**60}}, r"hosts.a.work\[0\].data.size: .* is not between"),
    ],
)
def test_a_value_that_could_not_be_read_again_is_not_written(tmp_path, changes, said):
    path = tmp_path / "plan.json"
    plan_file.write(str(path), plan(), [])
    before = path.read_bytes()
    of_step = {name: changes.pop(name) for name in list(changes) if name in ("target", "data")}
    stages = {"toolkit": StagePlan("toolkit", True, (dataclasses.replace(STEP, **of_step),))}
    if of_step:
        changes = {"hosts": {"a": saved_plan.PlannedHost(work=tuple(saved_plan.work_of(stages)))}}
    with pytest.raises(Refused, match=f"it could not be read again .{said}") as refused:
        plan_file.write(str(path), plan(**changes), SIGN)
    assert refused.value.remedy and path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("text", ["x" * 70_000, "a\x1b[31m\r", "\ud800"])
def test_texts_for_people_are_written_as_they_can_be_shown(tmp_path, text):
    step = dataclasses.replace(STEP, why=text, disturbs=(text,))
    refusal = Refused(text, text, text)
    stages = {"toolkit": StagePlan("toolkit", True, (step,), text, (refusal,), (), text)}
    path, hosts = str(tmp_path / "plan.json"), {"a": saved_plan.PlannedHost(work=tuple(saved_plan.work_of(stages)))}
    plan_file.write(path, plan(hosts=hosts), [])
    assert plan_file.opened(path)[0].hosts == hosts


def test_a_plan_that_is_written_while_it_is_verified_is_refused(tmp_path):
    path = tmp_path / "plan.json"
    plan_file.write(str(path), plan(), [])
    with pytest.raises(Refused, match="somebody wrote it while it was read"):
        plan_file.opened(str(path), ["/usr/bin/truncate", "--size=+1", "{file}"])


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(Refused, match="there is no such file"):
        plan_file.opened(str(tmp_path / "none"))
    (tmp_path / "latin").write_bytes(b"\xe9")
    with pytest.raises(Refused, match="is not UTF-8"):
        plan_file.opened(str(tmp_path / "latin"))
    with pytest.raises(Refused, match=r"it cannot be written .*gpu_plan_out"):
        plan_file.write(str(tmp_path), plan(), [])


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([STEP], []),
        ([], []),
        (
            [dataclasses.replace(STEP, data={"version": "1.21.0"})],
            ['install nvidia-container-toolkit 1.21.0: version is "1.20.2" in the plan, and "1.21.0" now'],
        ),
        (
            [Step(Kind.RESTART_SERVICE, "containerd", "it is down")],
            ["restart containerd: it is not in the plan"],
        ),
    ],
)
def test_a_module_may_do_what_is_in_the_plan_alone(tmp_path, steps, said):
    path = str(tmp_path / "plan.json")
    gate = {"gpu_plan_gate": {"digest": plan_file.write(path, plan(), [])}}
    answer = {"steps": [step.as_dict() for step in steps]}
    assert plan_file.beyond(gate, path, "a", "container_toolkit", answer) == said
    # Roles that no gate was before have no plan that was looked at.
    for other in ({}, {"gpu_plan_gate": {}}, {"gpu_plan_gate": {"digest": "1"}}):
        with pytest.raises(Refused, match="another plan than the one that this run of"):
            plan_file.beyond(other, path, "a", "container_toolkit", answer)
    if steps:
        assert plan_file.beyond(gate, path, "a", "dcgm", answer)
        assert plan_file.beyond(gate, path, "b", "container_toolkit", answer)


@pytest.mark.parametrize(
    ("changes", "hosts", "limited", "options", "said"),
    [
        ({}, ["a"], False, {}, ""),
        ({"playbook": "upgrade"}, ["a"], False, {}, "it is for upgrade, and this is site"),
        ({"release": "0.9.0"}, ["a"], False, {}, "0.9.0 made the plan"),
        ({"made": "2026-01-01T00:00:00Z"}, ["a"], False, {}, "may be 24 hours old"),
        ({"made": "2126-01-01T00:00:00Z"}, ["a"], False, {}, "which is in the future"),
        ({}, ["a", "b"], False, {}, "b: the plan does not have these hosts of this run"),
        ({}, [], False, {}, "a: the plan has these hosts, and this run does not"),
        ({}, [], True, {}, ""),
        ({}, ["a"], False, {"tags": ["driver"]}, "made for all without any, and this run has driver without any"),
        ({"options": {"skip_tags": ["cluster"]}}, ["a"], False, {"skip_tags": ["cluster"]}, ""),
    ],
)
def test_another_run_than_the_plans_is_refused(changes, hosts, limited, options, said):
    try:
        planning.refuse(plan(**changes), "site", hosts, limited, options, 24)
    except Refused as refused:
        assert said and said in refused.message and refused.remedy
    else:
        assert not said
