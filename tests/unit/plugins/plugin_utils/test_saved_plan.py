# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Saved plans of the recorded hosts: what is written of them, what of a file is taken, and which drift between the plan and the run is refused."""

from __future__ import annotations

import copy
import dataclasses
import json
import random
import re
from functools import cache

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu_facts import GpuFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused, StagePlan, Step, Verdict
from ansible_collections.gpufleet.nvidia.plugins.module_utils._schema import Unfit, encode
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import plan_file
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.descriptions import describe
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import saved_plan
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.recording import _PASSING, digests, noting
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.saved_plan import PlannedHost
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.planning import Held, Planning, made_of
from ansible_collections.gpufleet.nvidia.tests.whole import examples, some

from ...golden import corpus
from .noted_reads import Reads, recording

SECRET = "correct-horse-battery"
POOLS = {"pool": ["host"], "other": []}


@cache
def hosts():
    return {**corpus.hosts(), **corpus.edited()}


@cache
def description(name, **variables):
    return describe("host", {**hosts()[name].variables, **variables}, POOLS)


def planning(name, facts=None, **variables):
    facts = hosts()[name].facts if facts is None else facts
    return Planning(description(name, **variables), view_of(facts), facts)


@cache
def saved():
    """Return the plan of all of them, its text and its digest."""
    made = {name: (planning(name), {"pool": "pool"}) for name in hosts()}
    text = made_of(made, {"tags": ["all"]}, "change board").as_text()
    return *saved_plan.read(text, "plan.json"), text


def said_of(stages):
    return {name: {**plan.as_dict(), "warnings": []} for name, plan in stages.items()}


#: What tells who uses a host, of which a plan has whom its steps disturb.
USERS = {"holders", "processes", "allocations", "clients", "servers", "containers"}


FIELDS_OF_GPU = [
    one
    for one in dataclasses.fields(GpuFacts)
    if one.metadata and one.name in ("minor", "compute_mode", "recovery_action")
]


def named(path):
    return {name.rstrip("?") for name in re.findall(r"[^.\[\]]+", path)}


def test_every_field_that_a_stage_reads_is_in_a_part_that_is_noted_and_changes_no_plan():
    """A view that notes each field, however deep, is held against the one that notes parts."""
    assert USERS < _PASSING
    for name in some(hosts()):
        facts, reads = view_of(hosts()[name].facts), Reads()
        whole, parts = noting(facts)
        planned = said_of(description(name).stages(facts))
        assert said_of(description(name).stages(whole)) == planned
        assert said_of(description(name).stages(recording(facts, reads))) == planned
        for path in reads.found:
            assert re.match(r"\w+", path)[0] in parts, (name, path)
            # A GPU of which every field was read was copied, to be one that is lost.
            place = path.rpartition(".")[0]
            copied = all(f"{place}.{one.name}" in reads.found for one in FIELDS_OF_GPU)
            assert copied or not named(path) & (_PASSING - USERS), (name, path)
        assert "host" in digests(hosts()[name].facts, parts, False)
        assert "host.root" in digests(hosts()[name].facts, parts, True)


def test_a_changed_view_notes_what_is_read_of_it_too():
    facts, parts = noting(view_of({"driver": {"source": "nvidia"}, "gpus": [{"index": 0, "pci_address": "a"}]}))
    changed = facts.but(gpus=())
    assert (changed.gpus, changed.driver.source, changed.says("pci"), facts.says("gpus")) == ((), "nvidia", False, True)
    assert parts == {"gpus", "driver", "pci"}
    # What was kept on the view before is found anew.
    facts.__dict__["kept"] = 1
    assert "kept" not in noting(facts)[0].__dict__


@pytest.mark.parametrize("exact", [False, True])
def test_users_and_errors_are_no_facts_that_a_plan_is_made_from(exact):
    gpu = {"index": 0, "gpu_instances": [{"id": 1, "compute_instances": [{"id": 0}]}]}
    one = {
        "gpus": [gpu],
        "mps": [{"pid": 1}],
        "runtimes": {"docker": {"version": "28"}},
        "host": {"name": "a"},
        "recorded": {},
    }
    other = copy.deepcopy(one)
    other["holders"] = [{"pid": 1, "command": "x", "devices": ["/dev/nvidia0"]}]
    other["gpus"][0].update(processes=[{"pid": 1}], errors={"uncorrected": 1})
    other["gpus"][0]["gpu_instances"][0]["compute_instances"][0]["allocations"] = [{"pod": "a/b"}]
    other["mps"][0]["clients"] = 1
    other["runtimes"]["docker"]["containers"] = []
    other["host"]["boot_id"] = "x"
    other["recorded"].update(plan_begun="x", plan_applied="x")
    parts = {*one, "holders"}
    assert digests(one, parts, exact) == digests(other, parts, exact)
    for place, name in ((other["gpus"][0]["gpu_instances"][0], "size"), (other["runtimes"]["docker"], "own")):
        before = digests(other, parts, exact)
        place[name] = 2
        assert digests(other, parts, exact) != before


def test_a_plan_is_read_as_it_was_written_and_shown_as_it_was_planned():
    plan, digest, text = saved()
    assert plan.as_text() == text and digest in text
    for name in hosts():
        stages = {one: stage for one, stage in planning(name).stages.items() if stage.needed}
        assert said_of(plan.host(name).stages) == said_of(stages)
    assert "install driver branch 580" in plan.shown().text()


def test_a_host_without_work_is_a_line_and_a_step_is_one():
    plan, _digest, text = saved()
    lines = text.splitlines()
    idle = [name for name in hosts() if not plan.host(name).work]
    steps = sum(len(plan.host(name).work) for name in hosts())
    assert len(idle) > 20 and all(sum(line.startswith(f'  "{name}": ') for line in lines) == 1 for name in idle)
    assert len(lines) == len(hosts()) + steps + len(plan.variables) + 11
    assert max(len(line) for line in lines if line.startswith(tuple(f'  "{name}": ' for name in idle))) < 600


def test_it_is_written_in_one_way():
    changed = {name: (planning(name), {"pool": "pool"}) for name in reversed(hosts())}
    again = made_of(changed, {"tags": ["all"]}, "change board")
    assert dataclasses.replace(again, made=saved()[0].made).as_text() == saved()[2]


def test_it_has_no_secrets():
    mirror = corpus.VALUES["nvidia_toolkit_repository_username"][0]
    one, other = (
        planning("training, bare", **mirror, nvidia_toolkit_repository_password=word) for word in (SECRET, "other")
    )
    text = made_of({"a": (one, {})}, {}).as_text()
    assert SECRET not in text and "repository_password" not in text and "nvidia_toolkit_repository_username" in text
    # So that a new one is no difference.
    assert one.as_planned() == other.as_planned()


def test_a_truncated_or_edited_file_is_refused():
    whole, chance = saved()[0], random.Random(0)
    text = dataclasses.replace(whole, hosts={name: whole.hosts[name] for name in list(whole.hosts)[:12]}).as_text()
    saved_plan.read(text, "plan.json")
    for _try in range(examples(1000)):
        where = chance.randrange(1, len(text) - 1)
        other = chance.choice([one for one in '0az{}" ' if one != text[where]])
        for wrong in (text[:where], text[:where] + other + text[where + 1 :], text + " "):
            with pytest.raises(Refused) as refused:
                saved_plan.read(wrong, "plan.json")
            assert refused.value.thing == "plan.json" and "approved" in refused.value.remedy


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("", "it is no whole JSON document"),
        ("[]", "it is no plan that"),
        ('{"drift": false, "hosts": {}}', "it is no plan that"),
        ('{"format": "gpufleet.nvidia plan 2"}', "its format is gpufleet.nvidia plan 2"),
        ('{"format": "gpufleet.nvidia plan 1"}', "release: it is missing"),
    ],
)
def test_a_foreign_file_is_refused(wrong, said):
    with pytest.raises(Refused) as refused:
        saved_plan.read(wrong, "plan.json")
    assert said in refused.value.reason


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("made", "2026-13-45T00:00:00Z", "made: '2026-13-45T00:00:00Z' is no time"),
        ("made", 1, "made: 1 must be text"),
        ("options", {"tags": 1}, "options.tags: 1 must be a list"),
        ("options", {"tags": [1]}, r"options.tags\[0\]: 1 must be text"),
        ("tree", "{{ lookup('pipe', 'id') }}", "tree: .* is not of the form"),
        ("variables", {"a": {"b": "{{ 1 }}"}}, "variables.a.b: .* is not of the form"),
        ("author", "a\nb", "author: .* has control characters"),
        ("hosts", {"a": {"facts": {"gpus": "{% x %}"}}}, "hosts.a.facts.gpus: .* is not of the form"),
        (
            "hosts",
            {"a": {"work": [{"stage": "mig", "refused": {"bogus": "x"}}]}},
            "refused: it must have a thing, a reason",
        ),
        ("hosts", {"a": {"work": [{"stage": "mig", "kind": 1}]}}, r"hosts.a.work\[0\].kind: 1 must be text"),
    ],
)
def test_whoever_wrote_it_each_value_is_what_it_has_to_be(name, value, said):
    """What stands in a file with a digest that is right may still have been written by anybody."""
    document = {**json.loads(saved()[2]), name: value}
    with pytest.raises(Refused, match=said):
        saved_plan.read(json.dumps(document), "plan.json")


def test_a_variable_with_another_value_is_refused():
    refused = 0
    for seed in range(examples(500)):
        chance = random.Random(seed)
        name = chance.choice(sorted(hosts()))
        variable = chance.choice(sorted(corpus.VALUES))
        value = chance.choice(corpus.VALUES[variable])
        changed = value if isinstance(value, dict) else {variable: value}
        one = Planning(
            describe("host", {**hosts()[name].variables, **changed}, POOLS),
            view_of(hosts()[name].facts),
            hosts()[name].facts,
        )
        differs = one.variables != planning(name).variables
        said = [each.reason for each in held().objections(name, one, view_of(hosts()[name].facts))]
        # Of a password there is no digest; one that is refused keeps the stage from being planned, which has to read other parts then.
        secret = any(one.endswith("_password") for one in changed)
        assert bool(said) == differs or secret, (name, changed, said)
        refused += differs
    assert 0 < refused < examples(500)


def test_the_place_of_what_does_not_fit_is_named():
    document = json.loads(saved()[2])
    name = next(name for name, one in document["hosts"].items() if one.get("work"))
    document["hosts"][name]["work"][0]["kind"] = "make_coffee"
    with pytest.raises(Refused, match=r"work\[0\].kind: 'make_coffee' is no kind of step"):
        saved_plan.read(json.dumps(document), "plan.json")
    text = saved()[2].replace('"change board"', '"somebody else"')
    with pytest.raises(Refused, match=f"line {text.count(chr(10)) - 1}: what is in it is not what its digest says"):
        saved_plan.read(text, "plan.json")
    with pytest.raises(Refused, match="line 3: it is not as it was written"):
        saved_plan.read(text.replace(' "release": ', ' "release":  '), "plan.json")


@pytest.mark.parametrize("name", [*list(corpus.hosts())[:9], "nobody"])
def test_one_host_is_read_without_the_others(name):
    plan, digest, text = saved()
    one, its_digest = saved_plan.read_host(text, name, "plan.json")
    assert (one.host(name), its_digest) == (plan.host(name), digest)
    mine = plan.host(name).variables
    assert mine is None or one.variables == {mine: plan.variables[mine]}
    with pytest.raises(Refused, match="somebody changed it"):
        saved_plan.read_host(text.replace('"change board"', '"somebody else"'), name, "plan.json")


def step(kind=Kind.INSTALL_DRIVER, target="driver", disturbs=(), **data):
    return Step(kind, target, "why", disturbs, {"version": "580.1", "branch": "580", **data})


@pytest.mark.parametrize(
    ("done", "said"),
    [
        (step(), []),
        # What the plan or the step leaves open, and what is beside.
        (step(version=""), []),
        (step(changes=["nvidia-driver"]), []),
        (step(version="580.2"), ['version is "580.1" in the plan, and "580.2" now']),
        (step(disturbs=("pod a/b",)), ["it disturbs pod a/b, whom the plan does not name"]),
        (step(disturbs=("pod a/a",)), []),
        (step(target="other"), ["it is not in the plan"]),
        (step(Kind.REMOVE_FILE), ["it is not in the plan"]),
        (step(Kind.REPAIR_PACKAGE_DATABASE), ["it is not in the plan"]),
    ],
)
def test_a_step_is_one_of_the_plan_or_is_objected_to(done, said):
    stages = {"driver": StagePlan("driver", True, (step(disturbs=("pod a/a",)),))}
    then = PlannedHost(work=tuple(saved_plan.work_of(stages)))
    assert saved_plan.objections(then, "driver", done) == said
    assert saved_plan.objections(then, "toolkit", done) == ["it is not in the plan"]


@pytest.mark.parametrize(
    ("meant", "unknown", "said"),
    [
        (step(), None, ['remove is ["old"] in the plan, and ["old", "other"] now']),
        # What the plan does not have of it, where a module said what it has.
        (step(remove=None), None, []),
        (Step(Kind.INSTALL_DRIVER, "driver", "", (), {}), None, ["remove is null in the plan", "version is null", "branch is null"]),
        (Step(Kind.INSTALL_DRIVER, "driver", "", (), {}), "no repository was asked", []),
    ],
)  # fmt: skip
def test_a_module_does_no_more_than_the_step_that_it_said(meant, unknown, said):
    if "version" in meant.data and "remove" not in meant.data:
        meant = dataclasses.replace(meant, data={**meant.data, "remove": ["old"]})
    then = PlannedHost(work=tuple(saved_plan.work_of({"driver": StagePlan("driver", True, (meant,), unknown)})))
    found = saved_plan.objections(then, "driver", step(remove=["old", "other"], open=None), True, True)
    assert len(found) == len(said) and all(any(each.startswith(one) for each in found) for one in said), found
    # What the planner of facts alone knows less of.
    if not meant.data:
        assert saved_plan.objections(then, "driver", step(), True) == []


def test_what_ends_a_half_done_change_is_in_a_plan_that_was_begun():
    then = PlannedHost(work=tuple(saved_plan.work_of({"mig": StagePlan("mig", True, (step(Kind.RECORD_LAYOUT),))})))
    finish = step(Kind.FINISH_MIG_CHANGE)
    assert saved_plan.objections(then, "mig", finish, begun=True) == []
    assert saved_plan.objections(then, "mig", finish) == ["it is not in the plan"]
    assert saved_plan.objections(then, "driver", finish, begun=True) == ["it is not in the plan"]


def test_the_steps_of_a_modules_result_are_steps():
    (found,) = saved_plan.steps_of([{**step().as_dict(), "text": "anything"}])
    assert found == step()
    with pytest.raises(Unfit):
        saved_plan.steps_of([{"kind": "make_coffee"}])


def test_what_the_modules_said_in_check_mode_is_planned():
    one = planning("training, bare")
    exact = step(version="580.178.04", changes=[{"name": "nvidia-driver", "version": "580.178.04-1"}])
    failed = {"failed": True, "msg": "no repository answers"}
    more = step(Kind.HOLD_DRIVER)
    answers = {"nvidia_driver_result": {"steps": [exact.as_dict(), more.as_dict()]}, "nvidia_toolkit_result": failed}
    before = one.stages
    one.ask(answers.get)
    driver, toolkit = one.stages["driver"], one.stages["toolkit"]
    assert driver.steps == (exact, more) and driver.unknown is None
    assert toolkit.unknown == "its module failed in check mode: no repository answers"
    assert toolkit.steps == before["toolkit"].steps and one.stages["mig"] == before["mig"]
    # Nor is it known where it said what nobody can write.
    one.ask({"nvidia_toolkit_result": {"steps": [{**exact.as_dict(), "target": "x" * 70_000}]}}.get)
    assert "failed in check mode: [0].target: the text has 70000 characters" in one.stages["toolkit"].unknown
    # The same host is still as it was planned from its facts alone.
    then = one.as_planned()
    assert saved_plan.differences(then, planning("training, bare").as_planned(then), {}, {}, False) == []


def held():
    plan, digest, _text = saved()
    return Held("plan.json", plan, digest)


def objections(name, facts=None, **variables):
    one = planning(name, facts, **variables)
    facts = view_of(facts or hosts()[name].facts)
    return [each.reason for each in held().objections(name, one, facts)]


def test_nothing_differs_from_the_plan_of_the_same_host():
    assert {name: objections(name) for name in some(hosts()) if objections(name)} == {}


def test_other_variables_are_named():
    (said,) = objections("training after site", nvidia_driver_lock_timeout=61)
    assert said == "variables have other values: nvidia_driver_lock_timeout"
    said = objections("training, bare", nvidia_toolkit_version="1.19.1")
    assert 'toolkit: install nvidia-container-toolkit 1.19.1: version is "1.20.2" in the plan, and "1.19.1" now' in said


def test_facts_are_named_and_the_step_before_which_it_ends():
    facts = copy.deepcopy(hosts()["training, bare"].facts)
    facts["host"]["kernel"] = "6.99"
    said = objections("training, bare", facts)
    assert said[0].startswith('before the step "install driver branch 580": facts')
    assert said[0].endswith("are others now: host.kernel")


def test_a_host_that_the_plan_does_not_have_or_that_was_not_read_is_refused():
    one = Planning(description("training after site"), None, None)
    assert [each.reason for each in held().objections("training after site", one, None, "it is down")] == [
        "it could not be read: it is down"
    ]
    assert [each.reason for each in held().objections("nobody", one, None)] == ["the plan does not have this host"]
    # Nor is a host known that is down for the reason for which it was down then.
    down = made_of({"a": (one, {"unread": "it is down"})}, {})
    (said,) = Held("plan.json", down, "1").objections("a", one, None, "it is down")
    assert said.reason == "it could not be read: it is down"


def test_a_plan_that_was_begun_may_be_half_done():
    """What is done already differs from what was recorded, and is what was wanted."""
    plan, digest, _text = saved()
    facts = copy.deepcopy(hosts()["training after site"].facts)
    bare = plan.host("training, bare")
    half = {
        **dict(plan.hosts),
        "training after site": dataclasses.replace(bare, variables=plan.host("training after site").variables),
    }
    begun = Held("plan.json", dataclasses.replace(plan, hosts=half), digest)
    one = planning("training after site")
    assert begun.objections("training after site", one, view_of(facts))
    facts["recorded"]["plan_begun"] = digest
    assert begun.objections("training after site", one, view_of(facts)) == []
    facts["recorded"]["plan_begun"] = "another"
    assert begun.objections("training after site", one, view_of(facts))
    # What is not the plan's is none of it afterwards, either.
    facts["recorded"]["plan_begun"] = digest
    facts["driver"]["persistence_daemon"]["active"] = False
    later = planning("training after site", facts)
    assert later.stages["driver"].verdict is Verdict.TO_CHANGE
    assert any(
        "it is not in the plan" in each.reason
        for each in begun.objections("training after site", later, view_of(facts))
    )


def test_a_plan_that_came_to_its_end_on_a_host_is_not_begun_there_again():
    plan, digest, _text = saved()
    work = plan.host("training, bare").work
    for name, variables in (("training after site", "training after site"), ("training, bare", "training, bare")):
        hosts_then = {**dict(plan.hosts), name: dataclasses.replace(plan.host(name), work=work, facts={"driver": "0"})}
        then = Held("plan.json", dataclasses.replace(plan, hosts=hosts_then), digest)
        facts = copy.deepcopy(hosts()[name].facts)
        facts["recorded"]["plan_applied"] = digest
        said = [one.reason for one in then.objections(name, planning(variables), view_of(facts))]
        # What it has changed is no difference, and everything that is to be done is.
        assert bool(said) == (name == "training, bare")
        assert all(one.startswith("it was applied to the host already, and since then: ") for one in said)
        assert not said or "install driver branch 580: it is not in the plan" in said[0]
        assert [one for one in said if "is not as described" in one] or not said
        # As it was begun, all of it would be done once more.
        facts["recorded"] = {**facts["recorded"], "plan_applied": None, "plan_begun": digest}
        assert then.objections(name, planning(variables), view_of(facts)) == []


def test_what_the_change_of_a_driver_takes_comes_back():
    change = StagePlan("driver", True, (Step(Kind.CHANGE_DRIVER, "driver", ""),))
    again = Step(Kind.CREATE_GPU_INSTANCE, "GPU-1", "", (), {})
    idle = {name: StagePlan(name, False) for name in ("toolkit", "settings", "mig")}
    then = PlannedHost(work=tuple(saved_plan.work_of({"driver": change, **idle})))
    driver, *back = then.work
    # The plan says of which stages, and people see it.
    assert [(one.stage, one.after) for one in back] == [("settings", "driver"), ("mig", "driver")]
    assert list(then.stages) == ["driver"] and list(then.brought_back) == ["settings", "mig"]
    assert not [one for one in saved_plan.work_of(idle) if one.after]
    assert saved_plan.objections(then, "mig", again, True) == []
    # Not before it was begun, nor where nobody changes the driver, where something else was planned of it, or at anybody's cost.
    for host, stage, step, begun in (
        (then, "mig", again, False),
        (then, "toolkit", again, True),
        (PlannedHost(), "mig", again, True),
        (PlannedHost(work=(driver, saved_plan.Work("mig", unknown="it has no driver"))), "mig", again, True),
        (then, "mig", dataclasses.replace(again, disturbs=("pod jobs/one",)), True),
    ):
        assert saved_plan.objections(host, stage, step, begun) == ["it is not in the plan"]


def leaves(document, path=()):
    if isinstance(document, dict) and document:
        return [leaf for name, one in document.items() for leaf in leaves(one, (*path, name))]
    if isinstance(document, list) and document:
        return [leaf for place, one in enumerate(document) for leaf in leaves(one, (*path, place))]
    return [path]


def drifted(document, path, chance):
    """Return the facts with another value at a place, of the same type; None where that is no drift."""
    found = copy.deepcopy(document)
    place = found
    for part in path[:-1]:
        place = place[part]
    value = place[path[-1]]
    if isinstance(value, bool):
        place[path[-1]] = not value
    elif isinstance(value, int):
        place[path[-1]] = value + chance.choice([1, 2])
    elif isinstance(value, str):
        place[path[-1]] = f"{value}{chance.choice('xyz')}"
    else:
        return None
    try:
        view_of(found)
    except Unfit:
        return None
    return found


def read_of(name, document):
    """Return what the stages of a host read, with the values."""
    reads = Reads()
    description(name).stages(recording(view_of(document), reads))
    return {path: encode(value) for path, value in reads.found.items()}


def parts_of(name, document):
    whole, parts = noting(view_of(document))
    description(name).stages(whole)
    return parts


def test_a_drift_is_refused_where_a_recorded_fact_differs_and_nowhere_else():
    refused = 0
    for seed in range(examples(500)):
        chance = random.Random(seed)
        name = chance.choice(sorted(hosts()))
        document, facts = hosts()[name].facts, None
        while facts is None:
            path = chance.choice(leaves(document))
            facts = drifted(document, path, chance)
        said = objections(name, facts)
        refused += bool(said)
        recorded = path[0] in parts_of(name, document) and not set(path) & _PASSING
        assert bool(said) == recorded or any("disturbs" in one for one in said), (seed, name, path, said)
        # Whatever field it is that a stage read.
        assert said or read_of(name, document) == read_of(name, facts), (seed, name, path)
    assert 0 < refused < examples(500)


planned = cache(planning)


def asked(name, change=lambda step: step, pods=("jobs/one", "jobs/two"), **variables):
    """Return a host whose modules said what they would do. C(change): what the repositories have become for one step."""
    # Planned once: what the modules say is another one each time.
    one, answers = copy.copy(planned(name, **variables)), {"__gpu_node_evicted": {"evicted": list(pods)}}
    one.pods = []
    for stage, registered in plan_file.STAGE_OF.values():
        if stage in one.stages and one.stages[stage].steps:
            answers[registered] = {"steps": [change(step).as_dict() for step in one.stages[stage].steps]}
    one.ask(answers.get, "upgrade")
    return one


def changed(meant, name):
    """Return what makes a step another one, of another version or with another target."""
    data = {**meant.data, name: f"{meant.data[name]}-newer"} if name else meant.data
    other = dataclasses.replace(meant, data=data, target=meant.target if name else f"{meant.target}-other")
    return lambda step: other if step == meant else step


@cache
def emptied(name):
    return made_of({name: (asked(name), {"pods": ["jobs/one", "jobs/two"]})}, {}, playbook="upgrade")


def test_a_drift_of_variables_packages_or_pods_is_refused_and_nothing_else_is():
    """Between the plan and the run, each of them becomes another one, or only seems to."""
    begins = plan_file.APPLYING["upgrade"].begins
    work = {name: [stages[stage] for stage in begins if stage in (stages := planned(name).stages)] for name in hosts()}
    names = sorted(name for name in hosts() if any(stage.steps for stage in work[name]))
    found = {True: 0, False: 0}
    for seed in range(examples(500)):
        chance = random.Random(seed)
        name, drifts = chance.choice(names), chance.random() < 0.5
        what = chance.choice(["variables", "packages", "pods"])
        then, now = emptied(name), {}
        if what == "variables":
            # Its default is no other value.
            default = 1800
            now = {"nvidia_driver_lock_timeout": default + drifts}
        elif what == "packages" and drifts:
            step = chance.choice([one.step for one in then.host(name).work if one.step and one.stage in begins])
            exact = [key for key, value in step.data.items() if key in ("version", "package") and value]
            now = {"change": changed(step, chance.choice([*exact, None]))}
        elif what == "pods":
            left = chance.sample(["jobs/one", "jobs/two"], chance.randrange(3))
            now = {"pods": [*left, *([f"jobs/arrived-{seed}"] if drifts else [])]}
        said = Held("plan.json", then, "1").objections(name, asked(name, **now), view_of(hosts()[name].facts))
        assert bool(said) == drifts, (seed, name, what, [one.reason for one in said])
        found[drifts] += 1
    assert all(found.values())


def test_pods_that_come_are_a_difference_only_where_a_step_disturbs_them():
    for seed in range(examples(200)):
        chance = random.Random(seed)
        name = chance.choice(sorted(name for name in hosts() if hosts()[name].facts.get("gpus")))
        facts = copy.deepcopy(hosts()[name].facts)
        gpu = chance.choice([one for one in facts["gpus"] if not one.get("lost")])
        gpu["processes"] = [*(gpu.get("processes") or []), {"pid": 4711, "name": "python3", "kind": "compute"}]
        before, after = (
            {who for plan in planning(name, one).stages.values() for step in plan.steps for who in step.disturbs}
            for one in (None, facts)
        )
        said = objections(name, facts)
        assert bool(after - before) == any("whom the plan does not name" in one for one in said)
        # With users, a plan may have to read other parts, and then it is another one.
        alike = parts_of(name, hosts()[name].facts) == parts_of(name, facts)
        assert not (alike and any("facts that the plan was made from" in one for one in said)), (name, said)
