# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nothing that a host says becomes a variable on the controller.

Ansible takes C(ansible_facts) of any result for variables, above the inventory and the defaults of roles, unless
C(inject_facts_as_vars) is off. A host that was broken into could so name a command, a path or a node for the controller.
"""

from __future__ import annotations

import gc
import os
import re
import shlex
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any, Callable

from ansible import constants as C
from ansible import context
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.common.text.converters import to_text
from ansible.plugins.action import ActionBase
from ansible.template import Templar
from ansible.vars.hostvars import HostVars

from ..module_utils._plan import Failure, Refused
from ..module_utils._printable import printable
from . import plan_file
from .fleet.stage_times import sum_seconds
from .plain import plain

with suppress(ImportError):
    # As actions (L(choices)): ansible-core imports what it packs the arguments of a module with, and unpacks its answer, where it first needs it, which
    # is in the process of each host. Before 2.19 it has no such modules.
    from ansible.module_utils.common.json import Direction, get_module_decoder, get_module_encoder

    get_module_encoder("legacy", Direction.CONTROLLER_TO_MODULE)
    get_module_decoder("legacy", Direction.MODULE_TO_CONTROLLER)

_COLLECTION = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
_ROLES, _PLAYBOOKS = os.path.join(_COLLECTION, "roles"), os.path.join(_COLLECTION, "playbooks")
#: What the names of all variables of the collection begin with.
_PREFIXES = (
    *(f"{role}_" for role in sorted(os.listdir(_ROLES))),
    *(
        f"gpu_{playbook}_"
        for playbook in ("site", "plan", "verify", "doctor", "adopt", "inspect", "recommend", "repartition")
    ),
    "gpu_cluster_",
    "device_plugin_lint_",
)
#: Found by Ansible itself, which removes it from what a module says.
_DISCOVERED = ("discovered_interpreter_", "ansible_discovered_interpreter_")
#: What Ansible itself reads of a result, much of it in the process of all hosts, by what it has to be; None is not taken from a host. From
#: ansible-core 2.18 to 2.21: the strategy plugins, TaskExecutor, the results' classes and the callbacks. All other names are data of the module.
_READ_BY_ANSIBLE: Mapping[str, tuple[type, ...] | None] = {
    **dict.fromkeys(("changed", "failed", "skipped", "unreachable", "_ansible_parsed", "_ansible_no_log"), (bool,)),
    "rc": (int, type(None)),
    **dict.fromkeys(("msg", "skip_reason", "stdout", "stderr", "module_stdout", "module_stderr"), (str,)),
    **dict.fromkeys(("stdout_lines", "stderr_lines", "warnings", "deprecations"), (list,)),
    "diff": (dict, list),
    "invocation": (dict,),
    **dict.fromkeys(
        (
            *("ansible_facts", "ansible_facts_cacheable", "ansible_stats", "add_host", "add_group", "results", "item"),
            *(
                "ansible_job_id",
                "async_result",
                "started",
                "finished",
                "attempts",
                "retries",
                "include",
                "include_args",
            ),
            *("include_file", "include_variables", "failed_when_result", "changed_when_result"),
            *("ansible_loop", "ansible_loop_var", "ansible_index_var", "ansible_async_watchdog_pid", "elapsed"),
        )
    ),
}
#: Bytes of what a host writes, and characters and values of its answer. That of a host with many GPUs has less than a fifth of it.
_LARGEST = 8 * 2**20
#: Parts of a result that ansible-core keeps as objects of its own, which become text where a template reads them.
_OF_CONTROLLER = frozenset({"warnings", "deprecations", "exception", "failed_when_suppressed_exception"})
#: Callbacks of ansible.posix that write a document for programs to standard output, which any line in between spoils.
_DOCUMENTS = frozenset({"json", "jsonl"})


def is_ours(name: Any) -> bool:
    """Whether a variable of this name has a meaning in the collection."""
    return str(name).lstrip("_").startswith(_PREFIXES)


def own(answer: Mapping[str, Any], host: str = "") -> dict[str, Any]:
    """Return what may be taken of the answer of a module on a host: its result, and no variables, hosts, statistics and terminal sequences.

    :raises AnsibleActionFail: it would end more than the task of this host.
    """
    kept, left = {}, _LARGEST
    for name, value in answer.items():
        types = _READ_BY_ANSIBLE.get(name, () if not str(name).startswith("_ansible_") else None)
        if types is None or not str(name).isidentifier():
            continue
        # Ansible may have made objects of its own of these, which no host can send.
        of_ansible = [value] if name == "exception" else value if name == "warnings" and isinstance(value, list) else []
        if (types and not isinstance(value, types)) or any(isinstance(one, _NO_TEXT) for one in of_ansible):
            allowed = " or ".join(one.__name__ for one in types) or "str"
            raise AnsibleActionFail(
                f"{host}: {name} of a module's answer is {printable(repr(value))[:60]}, and must be {allowed}. {_LOOK}"
            )
        left -= _size([name, value], left)
        if left < 0:
            raise AnsibleActionFail(
                f"{host}: a module's answer has more than {_LARGEST} characters and values. {_LOOK}"
            )
        kept[name] = printable(value, lines=True, longest=sys.maxsize)
    facts = answer.get("ansible_facts")
    found = (
        {name: value for name, value in facts.items() if str(name).startswith(_DISCOVERED)}
        if isinstance(facts, Mapping)
        else {}
    )
    return {**kept, "ansible_facts": found} if found else kept


_NO_TEXT = (bool, int, float, dict, list)
_LOOK = "The host may be compromised, or its Python is broken: look at it before the next run."


def _size(value: Any, most: int) -> int:
    """Return how many characters and values plain data has, or more than C(most) as soon as it has more."""
    found, rest = 0, [value]
    while rest and found <= most:
        one = rest.pop()
        found += len(one) if isinstance(one, str) else 1
        if isinstance(one, Mapping):
            rest += [*one, *one.values()]
        elif isinstance(one, (list, tuple)):
            rest += one
    return found


class _Facts:
    """Ansible's cache of facts without those that would be variables of the collection."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def get(self, host: str, default: Any = None) -> Any:
        try:
            facts = self._cache.get(host)
        except KeyError:
            facts = default
        return {name: value for name, value in (facts or {}).items() if not is_ours(name)}


def without_injected(hostvars: Any, extra_vars: Mapping[str, Any] | None = None) -> Any:
    """Return Ansible's C(hostvars) in which the variables of the collection come from people alone, and not from facts.

    :param extra_vars: in place of those given with C(-e).
    """
    # The variable manager has no other way to leave them out. Copied by its own rules, both would lose their loader.
    given = hostvars._variable_manager
    manager = object.__new__(type(given))
    manager.__dict__.update(given.__dict__, _fact_cache=_Facts(given._fact_cache))
    if extra_vars is not None:
        manager._extra_vars = dict(extra_vars)
    found = object.__new__(type(hostvars))
    found.__dict__.update(hostvars.__dict__, _variable_manager=manager)
    return found


def described(task_vars: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the variables of a task, whose C(hostvars) are those of L(without_injected)."""
    found = dict(task_vars or {})
    if isinstance(found.get("hostvars"), HostVars):
        found["hostvars"] = without_injected(found["hostvars"])
    return found


def registered(variables: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return what a task registered for a host, as it came, but for its warnings; None where it registered nothing.

    A host's answer is data. Looking for templates in the facts of a host with many GPUs takes most of the time of its plan.
    """
    answer = getattr(variables, "_vars", variables).get(name)
    if not isinstance(answer, Mapping):
        return None
    return {key: value for key, value in answer.items() if key not in _OF_CONTROLLER}


#: Of the modules. The answer of an older one is a trace of whatever it stumbled over.
_OLDEST_PYTHON = (3, 9)
_ASK_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


class _Terminal:
    """Shows nothing but what can be printed: what actions show holds names and texts of hosts and of objects in a cluster.

    Where a callback writes a document for programs to standard output, it is shown on standard error.
    """

    def __init__(self, display: Any) -> None:
        self._shown_by = display
        self._options = {"stderr": True} if C.DEFAULT_STDOUT_CALLBACK.rpartition(".")[2] in _DOCUMENTS else {}

    def display(self, message: str, **options: Any) -> None:
        self._shown_by.display(_shown(message), **{**options, **self._options})

    def warning(self, message: str, **options: Any) -> None:
        self._shown_by.warning(_shown(message), **options)

    def v(self, message: str, **options: Any) -> None:
        self._shown_by.v(_shown(message), **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shown_by, name)


def _shown(text: str) -> str:
    return str(printable(str(text), lines=True, longest=sys.maxsize))


def bounded(execute: Callable[..., tuple[int, Any, Any]], host: str) -> Callable[..., tuple[int, bytes, bytes]]:
    """Return a connection's C(exec_command) that refuses more than a host may write before anything is made of it, and gives on what can be printed.

    ansible-core shows what stands before and behind a module's JSON, what ssh says, and the output of a module that did not start.
    """

    def exec_command(*arguments: Any, **options: Any) -> tuple[int, bytes, bytes]:
        try:
            status, *written = execute(*arguments, **options)
        except AnsibleError as error:
            kind = AnsibleConnectionFailure if isinstance(error, AnsibleConnectionFailure) else AnsibleError
            raise kind(_shown(str(error))) from None
        if sum(map(len, written)) > _LARGEST:
            raise AnsibleActionFail(f"{host}: it wrote more than {_LARGEST} bytes as the answer of one module. {_LOOK}")
        output, errors = (_shown(to_text(part, errors="replace")).encode() for part in written)
        return status, output, errors

    exec_command.unbounded = execute  # type: ignore[attr-defined]
    return exec_command


def counted(result: dict[str, Any], task_vars: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a result as the recap counts it: what is only asked, for a saved plan or before it is applied, is no change of the run."""
    asked = result.get("changed") and (task_vars or {}).get("__gpu_facts_asked")
    return {**result, "changed": False, "would_change": True} if asked else result


class FleetAction(ActionBase):
    """Base of all action plugins of the collection: refuses what the facts of a host have already made of its variables."""

    _display: Any

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        self._display = _Terminal(self._display)
        given = task_vars or {}
        ours = os.path.realpath(str(given.get("playbook_dir") or "")) == _PLAYBOOKS
        if ours and context.CLIARGS.get("start_at_task"):
            raise AnsibleActionFail(
                "--start-at-task leaves out the tasks that check and read the hosts, which every later one needs. Run the playbook from its "
                "beginning: what is done already is not done again. --limit selects hosts, and site has --tags for its stages."
            )
        facts = given.get("ansible_facts") or {}
        injected = sorted(str(name) for name in facts if is_ours(name)) if C.INJECT_FACTS_AS_VARS else []
        if injected:
            raise AnsibleActionFail(
                f"{(task_vars or {}).get('inventory_hostname')}: its facts set variables of gpufleet.nvidia: "
                f"{', '.join(printable(injected[:5]))}. Facts are what the host says, so it may be compromised, or another play sets "
                "them with a custom fact or a cacheable set_fact. Set them in the inventory, and clear the host's cached facts."
            )
        return result


class ControllerAction(FleetAction):
    """Base of the actions that run on the controller alone: their options are checked, and variables come from people (L(described))."""

    _requires_connection = False
    #: An option that is not one of them is refused by the check of all.
    _VALID_ARGS = None
    OPTIONS: Mapping[str, Mapping[str, Any]] = {}
    #: Those that all of its kind have.
    COMMON: Mapping[str, Mapping[str, Any]] = {}
    #: What is said behind a refusal.
    UNTOUCHED = ""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        # The process was forked for this task. What it had by then, the answers of all hosts among it, it shares with the one that forked it, until its
        # collector looks at it, which takes a copy, and time again and again.
        gc.freeze()
        result = super().run(tmp, task_vars)
        _checked, arguments = self.validate_argument_spec(argument_spec={**self.COMMON, **self.OPTIONS})
        result["changed"] = False
        try:
            return counted({**result, **self.act(plain(arguments), described(task_vars))}, task_vars)
        except Refused as refusal:
            refusals = [refusal.as_dict()]
            return {**result, "failed": True, "refusals": refusals, "msg": f"{refusal.message}{self.UNTOUCHED}"}
        except Failure as failure:
            return {**result, "failed": True, "msg": str(failure), **failure.more}

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the action. What it refuses, and why it fails, ends the task with its message."""
        raise NotImplementedError

    def _template(self, value: Any, variables: Mapping[str, Any]) -> Any:
        """Return what a raw value is with these variables, which are not those of the task."""
        return Templar(loader=self._loader, variables=variables).template(value)


def choices(names: str) -> tuple[ModuleType, ...]:
    """Return the modules of plugin_utils/actions of these names. They are imported before Ansible forks for each host."""
    return tuple(import_module(f"{__package__}.actions.{name}") for name in names.split())


class ChosenAction(FleetAction):
    """Base of the actions for playbooks alone: its option C(action) chooses the one that runs, with all other options of the task.

    Without it, the name of the task chooses: names that were actions of their own lead here (meta/runtime.yml).
    """

    _requires_connection = False
    #: Modules with an C(ActionModule) each, which are called by their names.
    CHOICES: tuple[ModuleType, ...] = ()
    #: Names of others that few playbooks call, and once: they are imported by the task that does.
    LATE = ""
    #: What runs where neither says which.
    DEFAULT = ""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        given = self._task.args
        name = str(given.get("action") or self._task.action.rpartition(".")[2])
        actions = {module.__name__.rpartition(".")[2]: module.ActionModule for module in self.CHOICES}
        if name not in actions and "action" not in given:
            name = self.DEFAULT or name
        if name in self.LATE.split():
            actions[name] = choices(name)[0].ActionModule
        if name not in actions:
            raise AnsibleActionFail(
                f"action must be one of {', '.join([*actions, *self.LATE.split()])}, and is {printable(name)}."
            )
        parts = ("task", "connection", "play_context", "loader", "templar", "shared_loader_obj")
        chosen = actions[name](**{part: getattr(self, f"_{part}") for part in parts})
        chosen._load_name = name
        self._task.args = {option: value for option, value in given.items() if option != "action"}
        try:
            return dict(chosen.run(tmp, task_vars))
        finally:
            # A task that is tried again has them again.
            self._task.args = given


class HostAction(FleetAction):
    """Base of the action plugins of all modules that run on a host. Adds C(elapsed), the seconds until the host had answered."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, begun = super().run(tmp, task_vars), time.monotonic()
        given = task_vars or {}
        host, connection = str(given.get("inventory_hostname")), self._connection
        # One connection serves all items of a loop.
        execute = getattr(connection.exec_command, "unbounded", connection.exec_command)
        connection.exec_command = bounded(execute, host)
        try:
            answer = self._beyond_plan(given, host) or own(self.ask(given), host)
            if answer.get("failed") and (answer.get("module_stderr") or answer.get("exception")):
                answer = self._of_old_python() or answer
        except AnsibleConnectionFailure as error:
            answer = self._unreachable(error)
        except RecursionError as error:
            raise AnsibleActionFail(f"{host}: a module's answer is nested too deeply. {_LOOK}") from error
        return counted({**result, **answer, "elapsed": round(time.monotonic() - begun, 1)}, given)

    def _beyond_plan(self, task_vars: dict[str, Any], host: str) -> dict[str, Any]:
        """Return why the module may not run: it would do what the plan that this run is held to does not have. Empty where it may."""
        module, check_mode = self._task.action.rpartition(".")[2], self._task.check_mode
        # What a host is rolled back by that does not work as planned is no step of a plan.
        rolled_back = task_vars.get("__gpu_facts_rolled_back")
        if rolled_back or module not in plan_file.STAGE_OF or not plan_file.is_judged(task_vars, check_mode):
            return {}
        path = str(self._templar.template(task_vars[plan_file.APPLY]))
        self._task.check_mode = True
        try:
            would = own(self.ask(task_vars), host)
        finally:
            self._task.check_mode = check_mode
        try:
            beyond = plan_file.beyond(task_vars, path, host, module, would) if not would.get("failed") else []
        except Refused as refusal:
            beyond = [refusal.message.rstrip(".")]
        if not beyond:
            return would if would.get("failed") or check_mode else {}
        why = f"{host}: {path} is not what would be done: {'; '.join(beyond)}. It was stopped before that."
        return {"failed": True, "msg": why}

    def _of_old_python(self) -> dict[str, Any]:
        """Return the answer of a host whose Python is too old to run a module; empty where that is not why it failed."""
        program = shlex.split(str(getattr(self, "_used_interpreter", None) or "").lstrip("#!"))
        if not program:
            return {}
        said = self._low_level_execute_command(shlex.join([*program, "-c", _ASK_VERSION])).get("stdout", "")
        found = re.fullmatch(r"\s*([0-9]{1,3})\.([0-9]{1,3})\s*", said)
        if not found or (int(found[1]), int(found[2])) >= _OLDEST_PYTHON:
            return {}
        oldest = ".".join(map(str, _OLDEST_PYTHON))
        return {
            "failed": True,
            "msg": f"its Python is {said.strip()}, and modules need {oldest} or newer. Install one, and set ansible_python_interpreter to its "
            f"path (now: {' '.join(program)}).",
        }

    def _unreachable(self, error: AnsibleConnectionFailure) -> dict[str, Any]:
        """Return the result of a host that cannot be reached: a line, where Ansible would print a trace for each of them.

        Where a play goes on without such hosts, and its task takes every answer (C(failed_when: false)), its report names them.
        """
        taken = bool(self._task.ignore_unreachable) and self._task.failed_when == [False]
        said = " ".join(str(error).split()).removeprefix("Failed to connect to the host via ssh: ")
        return {"failed" if taken else "unreachable": True, "msg": f"it cannot be reached: {printable(said)}"}

    def ask(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        """Return the host's answer as it came."""
        answer: dict[str, Any] = self._execute_module(module_args=dict(self._task.args), task_vars=task_vars)
        return answer

    def ask_again(
        self, first: Mapping[str, Any], arguments: dict[str, Any], task_vars: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the answer to a second call of the module, whose C(seconds) are those of both.

        :param first: the answer to the first call, of which nothing else is left.
        """
        answer: dict[str, Any] = self._execute_module(module_args=arguments, task_vars=task_vars)
        if "seconds" in answer:
            answer["seconds"] = sum_seconds(first.get("seconds"), answer["seconds"])
        return answer

    def send(self, name: str, content: bytes) -> str:
        """Put a file into the task's temporary folder on the host, which Ansible removes, and return its path."""
        shell = self._connection._shell
        if shell.tmpdir is None:
            self._make_tmp_path()
        path: str = shell.join_path(shell.tmpdir, name)
        self._transfer_data(path, content)
        self._fixup_perms2([shell.tmpdir, path])
        return path
