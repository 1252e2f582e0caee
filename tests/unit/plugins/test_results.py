# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Steps, refusals and diffs: one key and one shape in the documentation, in the source and in the results of all modules and actions."""

from __future__ import annotations

import ast
import json
import re
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.action import fleet, rollout
from ansible_collections.gpufleet.nvidia.plugins.action import node as node_action
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import module_run
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure, Plan, Refused, Step, refuse, succeed
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_facts import choices

from ...result_shape import FORMER, SHAPES, misshapen

PLUGINS = Path(__file__).resolve().parents[3] / "plugins"
MODULES = sorted((PLUGINS / "modules").glob("*.py"))
DOCUMENTED = {
    "steps": "What was done, or in check mode would be done, in order. Each step has C(kind) and C(target), identifiers that do not depend on the "
    "wording, C(data), C(text), and the parts C(why) and C(disturbs) of the text.",
    "refusals": "each with C(thing), C(reason), C(remedy)",
}


def documentation(path):
    """Return the file that documents a module: one of YAML beside it where the module has no code."""
    beside = path.with_suffix(".yml")
    return beside if beside.exists() else path


def returned(path):
    path = documentation(path)
    if path.suffix == ".yml":
        return yaml.safe_load(path.read_text(encoding="utf-8"))["RETURN"] or {}
    found = re.search(r'^RETURN = r?"""(.*?)"""', path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return yaml.safe_load(found[1]) or {} if found else {}


def calls(path):
    """Return the calls of a module by the name of what is called."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            found.setdefault(name, []).append(node)
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_the_documentation_has_one_key_and_one_sentence_for_each(path):
    keys = returned(path)
    internal = "gpufleet.nvidia.internal" in documentation(path).read_text(encoding="utf-8")
    # The plan of the whole fleet is a report of its own: by host, its stages have steps and refusals.
    assert not set(keys) & set(FORMER) - ({"plan"} if path.stem == "fleet" else set())
    for key in set(keys) & set(DOCUMENTED):
        assert (keys[key]["type"], keys[key]["elements"]) == ("list", "dict")
        # What only playbooks call refers to a module that people call.
        sentence = "each as RV(gpufleet.nvidia.mig#module:steps)" if internal and key == "steps" else DOCUMENTED[key]
        assert sentence in str(keys[key]["description"])


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_leaves_the_shape_to_the_one_helper_and_documents_what_it_returns(path):
    made, keys = calls(path), returned(path)
    # Both are what it leads to.
    runs = "run_module" in made
    assert (runs or "succeed" in made) <= ("steps" in keys)
    assert (runs or "refuse" in made) <= ("refusals" in keys)
    assert runs <= ("seconds" in keys)
    raises = {"Refused", "refuse"} & {
        node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)
    }
    assert not raises or runs or "refuse" in made, "a refusal does not reach the result"
    own = {word.arg for name in ("exit_json", "fail_json") for node in made.get(name, []) for word in node.keywords}
    # The driver's module stops after the first steps where somebody has to enrol a key, and says which it did.
    allowed = {"steps", "refusals"} if path.stem == "driver" else set()
    assert not own & ({*SHAPES, *FORMER} - allowed)


ACTIONS = {path: path.stem for path in sorted((PLUGINS / "action").glob("*.py"))}
ACTIONS |= {
    Path(choice.__file__): name
    for name, module in (("fleet", fleet), ("node", node_action), ("rollout", rollout))
    for choice in (*module.ActionModule.CHOICES, *choices(module.ActionModule.LATE))
}


@pytest.mark.parametrize("path", ACTIONS, ids=lambda path: path.stem)
def test_no_action_returns_a_former_key(path):
    text = path.read_text(encoding="utf-8")
    written = set(re.findall(r'result\["(\w+)"\] =|^\s+"(\w+)": |update\((\w+)=', text, re.MULTILINE))
    names = {name for groups in written for name in groups}
    assert not names & {"refusal", "refused"}
    assert "refusals" not in names or "refusals" in returned(PLUGINS / "modules" / f"{ACTIONS[path]}.py")


class Ended(Exception):
    pass


@pytest.fixture
def module():
    def end(**result):
        raise Ended(json.dumps(result))

    warnings = []
    return SimpleNamespace(_diff=True, warn=warnings.append, exit_json=end, fail_json=end, warnings=warnings)


def result_of(function, *arguments, **more):
    with pytest.raises(Ended) as ended:
        function(*arguments, **more)
    result = json.loads(str(ended.value))
    assert misshapen(result) == []
    return result


STEP = Step(Kind.CHANGE_FILE, "/etc/x", "it is old", ("nobody",), {"owner": "root"})


def test_a_plan_ends_in_steps_and_in_a_diff_of_steps_and_states(module):
    plan = Plan((STEP,), {"x": 1}, {"x": 2}, ("look",))
    result = result_of(succeed, module, "x", plan, version="1")
    assert (result["changed"], result["version"], module.warnings) == (True, "1", ["look"])
    assert result["steps"] == [STEP.as_dict()]
    assert [part["after"] for part in result["diff"]] == [f"{STEP}\n", '{\n  "x": 2\n}\n']


def test_parts_stand_in_for_the_states_and_what_stays_is_not_shown(module):
    part = {"before_header": "f", "after_header": "f", "before": "", "after": "text"}
    result = result_of(succeed, module, "x", Plan((STEP,), {"x": 1}), [part, {**part, "after": ""}])
    assert result["diff"][1:] == [part]
    assert result_of(succeed, module, "x", Plan())["diff"] == []


def test_a_diff_is_only_made_for_who_asks(module):
    module._diff = False
    assert set(result_of(succeed, module, "x", Plan((STEP,)))) == {"changed", "steps"}


def test_every_refusal_is_returned_and_said(module):
    refusals = Refused("a", "it is wrong", "Do b."), Refused("c", "it is not there")
    result = result_of(refuse, module, *refusals)
    assert result["msg"] == "a: it is wrong. Do b.\nc: it is not there. Nothing was changed."
    assert result["refusals"] == [refusal.as_dict() for refusal in refusals]


def ends(error):
    def work(_module):
        raise error

    return work


def test_what_a_module_did_is_returned_with_its_time_in_the_one_shape(module):
    result = result_of(module_run.run_module, module, "x", lambda _module: (Plan((STEP,)), {"version": "1"}))
    assert (result["changed"], result["version"], result["steps"]) == (True, "1", [STEP.as_dict()])
    assert set(result["seconds"]) <= {"own", "programs", "packages"}


@pytest.mark.parametrize(
    ("error", "failed", "said"),
    [
        (Failure("it does not start", outcome="restored"), "", {"msg": "it does not start", "outcome": "restored"}),
        (CommandError(["/bin/x"], "it is not there"), "", {"msg": "Failed to run /bin/x: it is not there"}),
        (OSError(28, "No space left on device", "/etc/x"), "", {"msg": "[Errno 28] No space left on device: '/etc/x'"}),
        (Failure("it stays."), "Failed to forget", {"msg": "Failed to forget: it stays."}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_module_could_not_do_is_its_message(module, error, failed, said):
    assert result_of(module_run.run_module, module, "x", ends(error), failed=failed) == said


def test_a_refusal_ends_a_module_before_anything_is_changed(module):
    result = result_of(module_run.run_module, module, "x", ends(Refused("a", "it is wrong")))
    assert result["msg"] == "a: it is wrong. Nothing was changed."


def test_nothing_else_changes_gpus_while_a_module_does(module, monkeypatch):
    begun = []

    @contextmanager
    def exclusive(timeout):
        begun.append(timeout)
        yield
        begun.append("ended")

    monkeypatch.setattr(module_run, "exclusive", exclusive)
    module.params = {"lock_timeout": 7}
    result_of(module_run.run_module, module, "x", lambda _module: (Plan(), {"seen": list(begun)}))
    assert begun == []
    result = result_of(module_run.run_module, module, "x", lambda _module: (Plan(), {"seen": list(begun)}), locked=True)
    assert (result["seen"], begun) == ([7], [7, "ended"])


def test_only_check_mode_plans_later_for_gpus_that_do_not_answer(module):
    module.check_mode = True
    plan, result = module_run.not_yet(module, Failure("no driver"), "the sharing is planned")
    assert (result, plan.steps) == ({"changed": True}, ())
    assert plan.warnings == (
        "The GPUs cannot be queried yet (no driver); the sharing is planned once the driver is loaded.",
    )
    module.check_mode = False
    # It says what to do itself, and that is not for every reason the same.
    with pytest.raises(Failure, match=r"^no driver$") as failed:
        module_run.not_yet(module, Failure("no driver", reason="driver_not_loaded"), "it is planned")
    assert failed.value.more == {"reason": "driver_not_loaded"}


@pytest.mark.parametrize(
    "result",
    [
        {"plan": {"steps": []}},
        {"refused": []},
        {"refusal": {"thing": "a"}},
        {"steps": [{"kind": "x", "target": "y"}]},
        {"steps": {"kind": "x"}},
        {"refusals": [{"message": "m"}]},
        {"diff": {"before": "", "after": ""}},
        {"refusals": [{**Refused("a", "b").as_dict(), "more": 1}]},
    ],
)
def test_another_shape_is_noticed(result):
    assert misshapen(result)
