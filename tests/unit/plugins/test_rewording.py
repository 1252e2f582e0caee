# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Words are for people: with every sentence of a plan written otherwise, the same is planned, done and decided.

The hosts are those of the tests of each domain; what is asserted is what is done on them.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils import _steps
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.plan import is_installed
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig import state as mig_state
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.host_plan import plan_host
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.model import DesiredGpu
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused, Step
from ansible_collections.gpufleet.nvidia.plugins.module_utils._records import HostSharing
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime import apply as runtime
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import apply as sharing_apply
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import plan as sharing_plan
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.desired import DesiredToolkit
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.packages import PACKAGES
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import evict_gpu_pods
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.devices import Holding, gone_devices, repartition
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.action.conftest import call  # noqa: F401
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.action.test_evict_gpu_pods import FakeCluster, document
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._driver import test_apply as driver
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._host import test_host_program as program
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._mig import test_apply_run as mig
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._mig.live import gpu
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._runtime import test_apply as containerd
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._sharing import mps_machine as sharing
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._toolkit import test_apply as toolkit
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.plugin_utils.fleet.test_repartition import pod
from jinja2 import Environment

REPOSITORY = Path(__file__).resolve().parents[3]
COLLECTION = _steps.__name__.partition(".plugins.")[0]

machine, engine, installed = sharing.machine, containerd.engine, program.host
make, virtual_nvml = mig.make, mig.virtual_nvml


def other_words(text):
    return f"in other words: {text.upper()}"


@pytest.fixture(autouse=True)
def reworded(monkeypatch):
    """Write every sentence and every title otherwise, wherever the function that writes it was imported to."""
    for written in (_steps.sentence, _steps.gpu_title, mig_state.instance_title):
        other = lambda *parts, _written=written: other_words(_written(*parts))  # noqa: E731
        for module in [one for name, one in sys.modules.items() if name.startswith(COLLECTION)]:
            if getattr(module, written.__name__, None) is written:
                monkeypatch.setattr(module, written.__name__, other)
    written = Step.__init__

    def step(self, kind, target, why="", disturbs=(), data=None):
        written(self, kind, target, other_words(why), tuple(map(other_words, disturbs)), data or {})

    monkeypatch.setattr(Step, "__init__", step)
    monkeypatch.setattr(Refused, "message", property(lambda self: other_words(self.reason)))
    monkeypatch.setattr(evict_gpu_pods, "_REFUSED", "{kind} {node} {why}")
    monkeypatch.setattr(evict_gpu_pods, "_REMEDY", "")


def kinds(steps):
    return [step.kind for step in steps]


def test_the_words_are_others():
    step = Step(Kind.START_SERVICE, "nvidia-persistenced", "it does not run", ("nobody",))
    assert step.what == "in other words: START NVIDIA-PERSISTENCED"
    assert step.as_dict()["why"] == "in other words: IT DOES NOT RUN"
    assert (step.kind, step.target) == (Kind.START_SERVICE, "nvidia-persistenced")


def test_the_pods_on_what_a_layout_does_away_with_are_evicted_and_no_others(make):
    host = make()
    mig.run(host, mig.one(**{"3g_40gb": 1, "2g_20gb": 1, "1g_10gb": 2}))
    there = {one["profile"]: one["compute_instances"][0]["uuid"] for one in host.gpus()[0]["gpu_instances"]}
    wanted = mig.one(**{"3g_40gb": 1, "1g_10gb": 2})
    planned = mig.run(host, wanted, check=True)
    assert [step["kind"] for step in planned["steps"]] == ["destroy_gpu_instance", "record_layout"]
    holdings = [Holding(name, "c", "r", there[name]) for name in ("3g.40gb", "2g.20gb", "1g.10gb")]
    found = repartition(gone_devices(planned), holdings, [pod(name) for name in there])
    assert found.gone == (there["2g.20gb"],)
    assert [one.name for one in found.leave] == ["2g.20gb"]
    assert sorted(one.name for one in found.stay) == ["1g.10gb", "3g.40gb"]
    done = mig.run(host, wanted)
    assert tuple(done["stale_uuids"]) == found.gone
    assert (len(planned["kept"]), len(done["kept"])) == (3, 3)
    assert (len(planned["destroyed"]), len(done["destroyed"])) == (1, 1)
    assert host.counts(0) == {"3g.40gb": 1, "1g.10gb": 2}


@pytest.mark.parametrize(("current", "wanted"), [(True, False), (False, True)])
def test_a_gpu_whose_mode_changes_goes(current, wanted):
    one = gpu(current=current)
    steps = [step.as_dict() for step in plan_host([one], {0: DesiredGpu(wanted)}, {}, {}).steps()]
    found = repartition(gone_devices({"steps": steps}), [Holding("job", "c", "r", one.facts.uuid)], [pod("job")])
    assert [each.name for each in found.leave] == ["job"]


def test_mps_daemons_are_started_told_and_stopped(machine):
    sharing.bring(machine, sharing.DESIRED)
    pipe = sharing.DESIRED.daemons[0].pipe_directory
    assert machine.compute == {0: "exclusive_process", 1: "exclusive_process"}
    assert machine.running[pipe]["limits"] == {0: "4G", 1: "8G"}
    assert sharing_apply.recorded() == sharing.DESIRED
    machine.servers[pipe] = {910: [], 920: [1001]}
    machine.log.clear()
    other = HostSharing(compute_mode="exclusive_process", daemons=(sharing.daemon(limits_mib=(2048, 2048)),))
    plan = sharing_plan.plan(sharing_apply.observe(machine), other)
    assert kinds(plan.steps) == [Kind.SET_MPS_DEFAULTS, Kind.END_IDLE_MPS_SERVER, Kind.RECORD_SHARING]
    # One server has clients and keeps its limits.
    assert len(plan.warnings) == 1
    sharing_apply.apply(plan, other, machine)
    assert machine.log == ["end 910"]
    machine.servers.clear()
    sharing.bring(machine, HostSharing(compute_mode="default"))
    assert machine.running == {} and machine.at_boot == set()
    assert sharing_apply.recorded() == HostSharing(compute_mode="default")


def test_the_toolkit_is_installed_held_configured_and_removed():
    host = toolkit.PlayedSystem(toolkit.PlayedManager())
    host.manager.half = ("bash",)
    toolkit.run(host)
    assert host.manager.changes == ["repair", "add_repository", "refresh", "apply"] and len(host.manager.asked) == 1
    assert host.manager.held == set(PACKAGES) and host.config is not None
    toolkit.run(host, DesiredToolkit(present=False, cdi=False))
    assert not host.manager.held and not host.manager.urls
    assert host.manager.packages == {"bash": "5"}


def test_a_runtime_is_restarted_where_its_configuration_changes(engine):
    outcome = containerd.outcome(engine)
    assert kinds(outcome.plan.steps) == [Kind.CHANGE_FILE, Kind.RESTART_SERVICE]
    assert runtime.apply(engine, containerd.DESIRED, outcome).shortfalls(containerd.DESIRED) == ()
    assert engine.restarts == 1
    assert not containerd.outcome(engine).plan.changes


def test_a_driver_is_brought_changed_and_removed():
    system = driver.System()
    report = driver.run_stage(system, driver.DesiredDriver(version=driver.OLD), check=False)
    assert kinds(report.steps) == [
        Kind.PIN_DRIVER,
        Kind.INSTALL_DRIVER,
        Kind.HOLD_DRIVER,
        Kind.LOAD_DRIVER,
        Kind.ENABLE_SERVICE,
        Kind.START_SERVICE,
    ]
    assert system.loaded == driver.OLD and set(driver.NAMES) <= system.manager.held
    driver.run_stage(system, driver.DesiredDriver(version=driver.NEW), check=False)
    assert (system.loaded, system.record.version) == (driver.NEW, driver.OLD)
    assert system.pinned == driver.preferences(driver.NEW)
    driver.run_stage(system, driver.DesiredDriver(state="previous"), check=False)
    assert system.loaded == driver.OLD
    driver.run_stage(system, driver.DesiredDriver(state="absent"), check=False)
    assert (system.loaded, system.manager.packages, system.pinned) == (None, {}, None)


def test_the_host_program_is_installed_and_removed(installed):
    installed.install()
    assert installed.enabled == set(program.units("")) and not installed.reloads
    installed.path(program.VERSION_FILE).write_text("0.9\n")
    installed.install()
    assert installed.path(program.VERSION_FILE).read_text() == "1.2.3\n"
    installed.remove()
    assert not is_installed(installed.read()) and not installed.enabled


@pytest.mark.parametrize(
    ("names", "never", "drain", "ends", "drains"),
    [
        (("work",), (), True, False, False),
        (("work", "stuck"), ("stuck",), True, False, True),
        (("work", "stuck"), ("stuck",), False, True, True),
        # Nothing would make this pod again.
        (("alone",), (), True, False, True),
    ],
)
def test_a_node_is_drained_where_pods_could_not_be_evicted(call, monkeypatch, names, never, drain, ends, drains):  # noqa: F811
    cluster = FakeCluster(*names, never=never)
    if "alone" in cluster.there:
        cluster.there["alone"] = {**document("alone"), "metadata": {"name": "alone", "uid": "alone"}}
    monkeypatch.setattr(evict_gpu_pods.ActionModule, "cluster", lambda _self, _arguments: cluster)
    result, _shown = call(evict_gpu_pods, {"node": "n", "timeout": 0, "poll": 0}, {})
    if "msg" in result:
        result["msg"] = other_words(result["msg"])
    empty = yaml.safe_load((REPOSITORY / "roles/gpu_node/tasks/evict.yml").read_text())
    tasks = {task["name"]: task for task in empty}
    decide = Environment(autoescape=False)
    decide.tests["failed"], decide.filters["bool"] = lambda answer: bool(answer.get("failed")), bool
    variables = {"__gpu_node_evicted": result, "gpu_node_drain": drain}
    evicts = decide.compile_expression(tasks["Evict the pods that hold GPUs"]["failed_when"])
    drained = decide.compile_expression(tasks["Drain the node, because its GPU pods could not be evicted"]["when"])
    assert (evicts(**variables), drained(**variables)) == (ends, drains)


#: What people read of a step or a refusal, as attributes and as keys of a result.
_SENTENCES = {"what", "why", "disturbs", "message"}
_KEYS = {"text", "why", "disturbs", "msg"}
_CUTS = {"startswith", "endswith", "partition", "rpartition", "split", "find", "index", "removeprefix", "removesuffix"}


def is_sentence(node):
    if isinstance(node, ast.Attribute):
        return node.attr in _SENTENCES
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value in _KEYS
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "get" and node.args and isinstance(node.args[0], ast.Constant):
            return node.args[0].value in _KEYS
        return node.func.attr in ("lower", "upper", "strip") and is_sentence(node.func.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
        return is_sentence(node.args[0]) or (
            isinstance(node.args[0], ast.Name) and node.args[0].id in ("step", "error")
        )
    return False


def decisions_on_sentences(source):
    """Return the lines that compare a sentence, cut one into parts, or look one up."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            read = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CUTS:
            # str(error) of another program may have to be shortened before it is shown.
            read = [node.func.value] if not isinstance(node.func.value, ast.Call) else []
        elif isinstance(node, ast.Subscript):
            read = [node.slice]
        else:
            continue
        if any(map(is_sentence, read)):
            found.add(node.lineno)
    return sorted(found)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("if step.why == 'it is old': pass", [1]),
        ("if 'clients' in step.disturbs: pass", [1]),
        ("if 'Failed to' in str(error): pass", [1]),
        ("x = [s for s in steps if s['text'].startswith('restart')]", [1]),
        ("act[step.what](step)", [1]),
        ("if 'no room' in result.get('msg'): pass", [1]),
        ("if refused.message.lower() == 'x': pass", [1]),
        ("if step.kind is Kind.RESTART_SERVICE and step.data['unit'] in names: pass", []),
        ("print(step.why, str(step), result['msg'])", []),
    ],
)
def test_a_decision_on_a_sentence_is_found(source, found):
    assert decisions_on_sentences(source) == found


def test_no_code_decides_on_a_sentence():
    found = {
        str(path.relative_to(REPOSITORY)): lines
        for path in sorted((REPOSITORY / "plugins").rglob("*.py"))
        if (lines := decisions_on_sentences(path.read_text()))
    }
    assert found == {}


def test_every_kind_has_a_key_and_a_phrase_of_its_own():
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", kind.key) for kind in Kind)
    assert len({kind.value for kind in Kind}) == len(Kind)
