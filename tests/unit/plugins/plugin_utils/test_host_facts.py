# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import gc
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from ansible.errors import AnsibleActionFail, AnsibleAuthenticationFailure, AnsibleConnectionFailure, AnsibleError
from ansible.plugins.loader import action_loader, module_loader
from ansible_collections.gpufleet.nvidia.plugins.module_utils._printable import is_printable
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import host_facts
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_facts import (
    _READ_BY_ANSIBLE,
    ControllerAction,
    FleetAction,
    _Facts,
    bounded,
    is_ours,
    own,
)
from ansible_collections.gpufleet.nvidia.tests.unit.roles.hostile_results import DROPPED, REFUSED
from hypothesis import strategies as st

from ...mutation import examples_of, property_of
from ...new_python import printed

REPOSITORY = Path(__file__).resolve().parents[4]
#: What runs on the controller alone.
_CONTROLLER = {
    "add_host",
    "assert",
    "debug",
    "fail",
    "import_playbook",
    "import_role",
    "import_tasks",
    "include_role",
    "include_tasks",
    "meta",
    "set_fact",
    "group_by",
}
_NO_MODULE = {
    "name",
    "block",
    "rescue",
    "always",
    "when",
    "register",
    "vars",
    "tags",
    "loop",
    "loop_control",
    "until",
    "retries",
    "delay",
}
_NO_MODULE |= {"run_once", "become", "delegate_to", "check_mode", "changed_when", "failed_when", "ignore_unreachable"}


def tasks(found):
    """Yield all tasks below some blocks or plays."""
    for one in found or ():
        yield one
        for part in ("block", "rescue", "always", "tasks", "post_tasks", "pre_tasks"):
            yield from tasks(one.get(part))


FILES = [*REPOSITORY.glob("roles/*/tasks/*.yml"), *REPOSITORY.glob("playbooks/*.yml")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_no_task_takes_the_result_of_a_host_past_the_actions_of_the_collection(path):
    for task in tasks(yaml.safe_load(path.read_text())):
        modules = {name for name in task if "." in name}
        foreign = {
            name for name in modules if name.startswith("ansible.builtin.") and name.split(".")[2] not in _CONTROLLER
        }
        foreign |= {name for name in modules if name.startswith("kubernetes.")}
        assert not foreign or task.get("delegate_to") == "localhost", (path, task["name"])
        # ansible.builtin.reboot makes a shell command of it: a fixed text, or the one that the task which includes the reboot has fixed.
        reboot = (task.get("gpufleet.nvidia.host_module") or {}).get("reboot") or {}
        reasons = [reboot.get("msg", "").replace("{{ __gpu_facts_reboot_reason }}", "")]
        if any(
            "reboot.yml" in str(task.get(name))
            for name in ("ansible.builtin.include_tasks", "ansible.builtin.include_role")
        ):
            reasons.append(task["vars"]["__gpu_facts_reboot_reason"])
        assert all(re.fullmatch(r"[\w. ]*", reason) for reason in reasons), (path, task["name"])


def test_every_module_of_hosts_has_an_action_that_drops_what_would_be_variables():
    for path in (REPOSITORY / "plugins" / "modules").glob("*.py"):
        found = module_loader.find_plugin_with_context(f"gpufleet.nvidia.{path.stem}")
        action = action_loader.get(found.action_plugin or f"gpufleet.nvidia.{path.stem}", class_only=True)
        assert issubclass(action, FleetAction), path.stem


def test_of_an_answer_only_the_result_is_kept():
    answer = {
        "changed": True,
        "msg": "a\x1b[2J\nb",
        "ansible_facts": {"gpu_node_name": "x", "discovered_interpreter_python": "/usr/bin/python3"},
        "ansible_facts_cacheable": True,
        "_ansible_facts_cacheable": True,
        "_ansible_parsed": True,
        "add_host": {},
        "add_group": "x",
    }
    assert own(answer) == {
        "changed": True,
        "msg": "a?[2J\nb",
        "_ansible_parsed": True,
        "ansible_facts": {"discovered_interpreter_python": "/usr/bin/python3"},
    }


@pytest.mark.parametrize("facts", [None, {}, {"x": 1}])
def test_without_a_discovered_interpreter_no_facts_are_left(facts):
    assert own({"ansible_facts": facts}) == {}


@pytest.mark.parametrize("poison", DROPPED, ids=str)
def test_what_ansible_reads_for_all_hosts_is_not_taken_from_one(poison):
    assert own({"changed": True, **poison}, "a") == {"changed": True}


@pytest.mark.parametrize("poison", [*REFUSED, {"exception": [1]}], ids=str)
def test_what_is_of_another_type_fails_its_host(poison):
    with pytest.raises(
        AnsibleActionFail, match=r"^a: .* of a module's answer is .*, and must be .*The host may be compromised"
    ):
        own({"gpu": {}, **poison}, "a")


@pytest.mark.parametrize(
    "answer", [{"a": "x" * 1000}, {"a": [["x" * 100]] * 11}, {"a": {"b": [0] * 1001}}, {"x" * 9: {"y" * 999: 1}}]
)
def test_an_answer_without_bounds_fails_its_host(monkeypatch, answer):
    monkeypatch.setattr(host_facts, "_LARGEST", 1000)
    with pytest.raises(AnsibleActionFail, match="a: a module's answer has more than 1000 characters and values"):
        own({"gpu": {}, **answer, "b": "x"}, "a")
    assert own({"gpu": {}, "a": "x" * 900}, "a")


_NAMES = st.one_of(st.sampled_from(sorted(_READ_BY_ANSIBLE)), st.text(max_size=8))
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=8,
)


@examples_of()
def test_an_answer_is_taken_in_or_fails_its_host(examples):
    @property_of(st.dictionaries(_NAMES, _JSON, max_size=5), examples)
    def check(answer):
        try:
            taken = own(answer, "a")
        except AnsibleActionFail as failure:
            assert str(failure).startswith("a: ")
            return
        for name, value in taken.items():
            types = _READ_BY_ANSIBLE.get(name, ())
            assert types is not None and (not types or isinstance(value, types))
            assert not name.startswith("_ansible_") or name in ("_ansible_parsed", "_ansible_no_log")
        json.dumps(taken).encode()


def test_names_of_the_collection_are_told_from_others():
    assert all(map(is_ours, ["gpu_node_name", "nvidia_mig_layout", "__gpu_upgrade_host", "gpu_plan_report"]))
    assert not any(map(is_ours, ["ansible_distribution", "nvidia_smi_version", "gpu_count", 1]))


def test_the_cache_of_facts_is_read_without_them():
    class Raises(dict):
        def get(self, name):
            return self[name]

    cache = _Facts(Raises(a={"gpu_node_name": "x", "ansible_distribution": "Debian"}))
    assert cache.get("a") == {"ansible_distribution": "Debian"}
    assert cache.get("b") == {}


class _Unread(bytes):
    def decode(self, *_arguments):
        raise AssertionError("more than is allowed was read")


def test_what_a_host_writes_has_a_bound_before_anything_reads_it(monkeypatch):
    monkeypatch.setattr(host_facts, "_LARGEST", 1000)
    for written in ((_Unread(1001), b""), (b"", _Unread(1001)), (_Unread(600), _Unread(600))):
        with pytest.raises(AnsibleActionFail, match=r"a: it wrote more than 1000 bytes .*The host may be compromised"):
            bounded(lambda *_a, written=written, **_o: (0, *written), "a")("command")
    assert bounded(lambda *_a, **_o: (3, b"x" * 500, b"y" * 500), "a")("command") == (3, b"x" * 500, b"y" * 500)


@examples_of()
def test_what_a_host_writes_can_be_printed(examples):
    @property_of(st.tuples(st.just(0), st.binary(max_size=40), st.binary(max_size=40)), examples)
    def check(answer):
        status, *written = bounded(lambda *_arguments, **_options: answer, "a")("command", sudoable=True)
        assert status == 0
        assert all(is_printable(part.decode(), lines=True) for part in written)


@pytest.mark.parametrize("kind", [AnsibleError, AnsibleConnectionFailure, AnsibleAuthenticationFailure])
def test_what_ssh_shows_of_a_host_can_be_printed(kind):
    def execute(*_arguments, **_options):
        raise kind("Failed to connect: \x1b[2J\x9b31m\u202e banner")

    with pytest.raises(AnsibleError) as failure:
        bounded(execute, "a")("command")
    # Whether a host counts as unreachable is said by the type.
    assert isinstance(failure.value, AnsibleConnectionFailure) == issubclass(kind, AnsibleConnectionFailure)
    assert str(failure.value).endswith("Failed to connect: ?[2J?31m? banner")


@pytest.mark.parametrize(("callback", "errors"), [("default", {}), ("ansible.posix.json", {"stderr": True})])
def test_what_actions_show_can_be_printed(monkeypatch, callback, errors):
    monkeypatch.setattr(host_facts.C, "DEFAULT_STDOUT_CALLBACK", callback)
    shown = []
    display = SimpleNamespace(
        columns=80, **{name: lambda text, **given: shown.append((text, given)) for name in ("display", "warning", "v")}
    )
    terminal = host_facts._Terminal(display)
    terminal.display("a\x1b[2J\nb", color="red")
    terminal.warning("\x9b31m", formatted=True)
    terminal.v("\u202e")
    assert shown == [("a?[2J\nb", {"color": "red", **errors}), ("?31m", {"formatted": True}), ("?", {})]
    assert terminal.columns == 80


def test_what_each_hosts_process_needs_is_imported_before_ansible_forks():
    """What packs the arguments of a module and unpacks its answer, where this ansible-core has modules of their own for it."""
    asked = (
        "import sys; from importlib.util import find_spec; from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import host_facts; "
        "profiles = 'ansible.module_utils._internal._json._profiles'; names = [f'{profiles}._module_legacy_{way}' for way in ('c2m', 'm2c')]; "
        "print([name for name in names if find_spec(profiles) and find_spec(name) and name not in sys.modules])"
    )
    assert printed(asked) == "[]"


def test_an_action_on_the_controller_leaves_alone_what_its_process_came_with(monkeypatch):
    frozen = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    monkeypatch.setattr(FleetAction, "run", lambda *_given: {})
    monkeypatch.setattr(ControllerAction, "validate_argument_spec", lambda *_given, **_named: (None, {}))
    monkeypatch.setattr(ControllerAction, "act", lambda *_given: {"frozen": list(frozen)})
    assert object.__new__(ControllerAction).run(None, {})["frozen"] == [True]


@pytest.mark.parametrize("playbook", ["site", "plan", "verify", "inspect"])
def test_the_task_that_reads_all_hosts_has_no_condition(playbook):
    """Each host's process would compile it anew, which is a sixth of what the task costs the controller."""
    plays = yaml.safe_load((REPOSITORY / "playbooks" / f"{playbook}.yml").read_text(encoding="utf-8"))
    tasks = [task for play in plays for task in play.get("tasks", ()) if task.get("register") == "gpu_facts_host"]
    assert len(tasks) == 1 and "when" not in tasks[0]
