# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The graph of imports against the table of rooms in docs/architecture.md."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import RecordedFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._schema import View
from ansible_collections.gpufleet.nvidia.tests.unit.new_python import printed

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ROOT / "plugins"
NAMESPACE = "ansible_collections.gpufleet.nvidia.plugins."
#: Modules that reach files, processes or the network.
OUTSIDE = {"os", "subprocess", "socket", "glob", "tempfile", "shutil", "pathlib", "fcntl", "ctypes", "urllib", "http"}
#: The bases of actions that keep what a host says apart from variables.
SAFE_ACTIONS = {
    "FleetAction",
    "ControllerAction",
    "ClusterAction",
    "ClientsAction",
    "NodeStep",
    "HostAction",
    "NvmlAction",
    "ChosenAction",
}
TABLE = (ROOT / "docs" / "architecture.md").read_text().partition("| room |")[2].partition("\n\n")[0]
ROWS = re.findall(r"^\| `([\w/]+)`( \*pure\*)? \|", TABLE, re.M)
ORDER = [room for room, _pure in ROWS]


def room_of(parts: tuple[str, ...]) -> str:
    """Return the room of a module: the deepest folder below plugins that has a row, at most two folders deep."""
    return "/".join(parts[:2]) if "/".join(parts[:2]) in ORDER else parts[0]


def imported(file: Path) -> Iterator[tuple[str, ...]]:
    """Return the modules of this collection, below plugins, that C(file) imports anywhere in it; a folder's names are modules."""
    package = file.relative_to(PLUGINS).parts[:-1]
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.ImportFrom):
            continue
        named = (node.module or "").split(".") if node.module else []
        if node.level:
            target = [*package[: len(package) - node.level + 1], *named]
        elif (node.module or "").startswith(NAMESPACE):
            target = named[4:]
        else:
            continue
        if PLUGINS.joinpath(*target).is_dir():
            yield from ((*target, alias.name) for alias in node.names)
        else:
            yield tuple(target)


def files() -> list[Path]:
    return sorted(PLUGINS.rglob("*.py"))


def test_every_import_of_the_collection_leads_to_a_module():
    """The type checker lets those pass that it does not find."""
    wrong = {
        f"{file.relative_to(PLUGINS)} imports {'.'.join(target)}"
        for file in files()
        for target in imported(file)
        if not PLUGINS.joinpath(*target).with_suffix(".py").exists() and not PLUGINS.joinpath(*target).is_dir()
    }
    assert not wrong


def test_every_folder_of_code_is_a_room_of_the_table():
    folders = {"/".join(file.relative_to(PLUGINS).parts[:-1]) for file in files()} - {"doc_fragments"}
    assert folders == set(ORDER)
    assert len(ORDER) == len(set(ORDER))


@pytest.mark.parametrize("room", ORDER)
def test_a_room_imports_only_rooms_above_it(room):
    allowed = ORDER[: ORDER.index(room) + 1]
    wrong = {
        f"{file.relative_to(PLUGINS)} imports {'.'.join(target)}"
        for file in files()
        if room_of(file.relative_to(PLUGINS).parts) == room
        for target in imported(file)
        if room_of(target) not in allowed
    }
    assert not wrong


def test_no_two_files_import_each_other_inside_a_room_either():
    graph = {file.relative_to(PLUGINS).with_suffix("").parts: set(imported(file)) for file in files()}
    # The facts of GPUs are read in a process of their own, which begins where it is started from.
    graph.get(("module_utils", "_facts", "gpus"), set()).discard(("module_utils", "_facts", "nvml"))
    TopologicalSorter(graph).prepare()


#: What every domain has, and names of files that several rooms still have.
SHAPE = {"__init__", "desired", "state", "plan", "apply", "stage"}
SHARED_NAMES = {"host", "packages", "refusals", "system"}


def test_a_class_has_a_name_of_its_own():
    names = Counter(
        node.name for file in files() for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef)
    )
    loaded_by_name = {"ActionModule", "FilterModule", "ModuleDocFragment"}
    assert {name for name, count in names.items() if count > 1} == loaded_by_name


def test_a_file_is_found_by_its_name():
    names = Counter(
        file.stem
        for folder in ("module_utils", "plugin_utils")
        for file in (PLUGINS / folder).rglob("*.py")
        if file.parent.name != "actions"
    )
    assert {name for name, count in names.items() if count > 1} - SHAPE <= SHARED_NAMES


@pytest.mark.parametrize("room", [room for room, pure in ROWS if pure])
def test_a_pure_room_reaches_nothing_outside(room):
    wrong = []
    for file in files():
        if room_of(file.relative_to(PLUGINS).parts) != room:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
                wrong.append(f"{file.name}:{node.lineno} opens a file")
            wrong += [f"{file.name}:{node.lineno} imports {name}" for name in names if name.split(".")[0] in OUTSIDE]
    assert not wrong


#: The domains of module_utils that bring a host into its state.
DOMAINS = ("_driver", "_toolkit", "_runtime", "_settings", "_mig", "_sharing", "_dcgm")


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_domain_has_one_shape(domain):
    """desired, state, plan, apply: the stage on the controller plans with what the module on the host plans with, and only apply changes it."""
    folder = PLUGINS / "module_utils" / domain

    def within(*names: str) -> set[str]:
        found, left = set(), set(names)
        while left:
            name = left.pop()
            found.add(name)
            targets = {
                target[2] for target in imported(folder / f"{name}.py") if target[:2] == ("module_utils", domain)
            }
            left |= targets - found
        return found

    assert {"desired", "state", "plan", "stage", "apply"} <= {path.stem for path in folder.iterdir()}
    thought = within("desired", "state", "plan", "stage")
    assert not [name for name in thought if name.startswith(("apply", "system"))]
    assert "plan" in within("stage")


#: What reads a host, where its facts are data still; what boots it, which takes what NVML says; and the linter, which takes facts from people.
READS_HOSTS = (
    "module_utils/_adapters",
    "module_utils/_facts/",
    "module_utils/_formats/cdi.py",
    "module_utils/_host/restore.py",
    "plugin_utils/lint",
)
ONE_OF_FACTS = {"facts", "gpu", "card", "holder", "daemon"}
OF_FACTS = ONE_OF_FACTS | {"gpus", "cards", "holders"}


def reads_a_document(node: ast.AST) -> bool:
    """Return whether an expression takes facts, or a part of them, for a mapping, or a function wants them as one."""
    if isinstance(node, ast.arg):
        wanted = ast.unparse(node.annotation) if node.annotation else ""
        return node.arg in OF_FACTS and re.search(r"\b(Mapping|dict)\[str, Any\]", wanted) is not None
    place = None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
        place = node.func.value
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        place = node.value
    return (place.id if isinstance(place, ast.Name) else getattr(place, "attr", None)) in ONE_OF_FACTS


def test_behind_the_view_of_facts_nothing_reads_a_document():
    """Planners, checks and what is shown take views, which are made once of what a host sent and are no mappings; see L(_facts_view)."""
    wrong = {
        f"{file.relative_to(PLUGINS)}:{node.lineno}: {ast.unparse(node)}"
        for file in files()
        if not str(file.relative_to(PLUGINS)).startswith(READS_HOSTS)
        for node in ast.walk(ast.parse(file.read_text()))
        if reads_a_document(node)
    }
    assert not wrong
    assert not issubclass(View, Mapping) and not hasattr(View, "get") and not hasattr(View, "__getitem__")


def test_records_are_typed_in_the_view_of_facts():
    """A stage gets what a record says; only what the playbook of repairs keeps on a host is read by that playbook."""
    untyped = [one.name for one in dataclasses.fields(RecordedFacts) if "Mapping" in str(one.type)]
    assert untyped == ["heal"]


def test_what_reads_a_host_loads_no_view():
    """Making the classes of the view takes longer than reading most of a host."""
    asked = (
        "import sys; import ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.contents; "
        "print([name for name in sys.modules if name.endswith(('._facts_view', '._gpu_facts', '._records'))])"
    )
    assert printed(asked) == "[]"


def test_what_is_sent_to_every_host_that_is_read_changes_no_packages():
    """Ansible sends what a module imports anywhere in it, also in functions."""
    needed, pending = set(), [PLUGINS / "modules" / "gpu_info.py"]
    while pending:
        for target in imported(pending.pop()):
            file = next(
                (
                    one
                    for one in (PLUGINS.joinpath(*target[:-1]), PLUGINS.joinpath(*target))
                    if one.with_suffix(".py").exists()
                ),
                PLUGINS.joinpath(*target),
            ).with_suffix(".py")
            if file.is_file() and file not in needed:
                needed.add(file)
                pending.append(file)
    names = {str(file.relative_to(PLUGINS / "module_utils")) for file in needed}
    assert "_packages/key_file.py" in names
    assert {
        name for name in names if name.startswith(("_adapters/package", "_adapters/repositories", "_packages/"))
    } == {"_packages/key_file.py"}


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("facts.get('gpus')", True),
        ("host.facts['gpus']", True),
        ("one.get('gpus')", False),
        ("facts.gpus", False),
        ("gpus[0]", False),
        ("def plan(gpu: Mapping[str, Any]): pass", True),
        ("def plan(gpus: Sequence[dict[str, Any]]): pass", True),
        ("def plan(gpu: GpuFacts): pass", False),
    ],
)
def test_a_new_reading_of_a_document_is_found(code, found):
    assert any(map(reads_a_document, ast.walk(ast.parse(code)))) is found


#: What reads JSON that is no record of the product: formats of others, the answers of its own processes, and data that a domain takes in elsewhere.
READS_OTHERS = {
    "module_utils/_formats/cdi.py",
    "module_utils/_formats/json_edit.py",
    "module_utils/_health/software.py",
    "module_utils/_runtime/containers.py",
    "module_utils/_runtime/engines.py",
    "plugin_utils/driver_advisories.py",
    "plugin_utils/host_program.py",
    "plugin_utils/lint/yaml.py",
    # Arguments and answers of its own processes, and the state of a run.
    "module_utils/_facts/nvml.py",
    "plugin_utils/lease_renewal.py",
    "plugin_utils/upgrade_run.py",
    # Records as they are: the view of the facts takes them in, Entry the journal, or they are shown.
    "action/gpu_info.py",
    "action/host_module.py",
    "module_utils/_facts/environment.py",
    "module_utils/_host/main.py",
    "module_utils/_mig/journal_lines.py",
}
_SCHEMAS = {"text", "number", "boolean", "items", "mapping", "not_null", "one_of", "row", "of", "anything"}


def is_schema(value: ast.AST) -> bool:
    called = value.func if isinstance(value, ast.Call) else value
    return isinstance(called, ast.Name) and called.id in _SCHEMAS


def declares_apart(tree: ast.AST) -> Iterator[str]:
    """Name what a file says of the fields of a document beside those of a dataclass: schemas by names in a mapping."""
    for node in ast.walk(tree):
        values = node.values if isinstance(node, ast.Dict) else []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "fromkeys":
            values = node.args
        if any(map(is_schema, values)):
            yield f"{node.lineno}: {ast.unparse(node)[:60]}"


def test_what_reads_json_holds_it_against_a_schema():
    """A record is taken in by L(check), L(taken) or L(read_record), and not field by field."""
    reads = {
        str(file.relative_to(PLUGINS))
        for file in files()
        if re.search(r"\b(read_json|json\.loads)\(", text := file.read_text())
        and not re.search(r"\b(check|taken|check_facts|facts_of)\(", text)
    }
    assert reads == READS_OTHERS


def test_a_record_and_its_schema_are_one_declaration():
    """A field of a record stands in one place: a dataclass with L(has) and L(needs), of which L(of) makes the schema and the decoder."""
    wrong = {
        f"{file.relative_to(PLUGINS)}:{found}"
        for file in files()
        if "_schema import" in (text := file.read_text())
        for found in declares_apart(ast.parse(text))
        if file.name != "_schema.py"
    }
    assert not wrong


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("known = {'version': text(256), 'schema': number(1, 1)}", True),
        ("known = dict.fromkeys(('a', 'b'), text(8))", True),
        ("version: str = needs(text(256))", False),
        ("state = {work: states for work in WORK}", False),
    ],
)
def test_a_schema_beside_its_dataclass_is_found(code, found):
    assert bool(list(declares_apart(ast.parse(code)))) is found


def test_no_module_reads_its_options_into_a_desired_state_itself():
    """The variables of the role and the options of the module are read by one function, in the domain's desired.py."""
    wrong = [
        f"{file.name}:{node.lineno} makes a {ast.unparse(node.func)}"
        for file in sorted((PLUGINS / "modules").glob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and re.fullmatch(r"(.*\.)?Desired\w+", ast.unparse(node.func))
    ]
    assert not wrong


def test_the_graph_is_drawn_from_every_kind_of_import():
    """The reader of imports itself: relative, absolute, and of modules of a folder."""
    found = set(imported(PLUGINS / "plugin_utils" / "lint" / "lint.py"))
    assert ("plugin_utils", "lint", "rules") in found and ("plugin_utils", "lint", "plugin_fields") in found
    assert ("plugin_utils", "fleet", "usage") in set(imported(PLUGINS / "plugin_utils" / "actions" / "inspect.py"))
    assert any(
        target[:2] == ("module_utils", "_mig") for target in imported(PLUGINS / "plugin_utils/fleet/capacity.py")
    )


def test_what_a_host_answers_passes_through_an_action_that_takes_no_variables_of_it():
    """Ansible runs a module without an action by its own, which takes over the facts in its answer as variables."""
    modules = {path.stem for path in (PLUGINS / "modules").glob("*.py")}
    routed = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text())["plugin_routing"]["modules"]
    routed = {name: there["action_plugin"] for name, there in routed.items() if "action_plugin" in there}
    bases = {
        path.stem: next(
            {ast.unparse(base) for base in node.bases}
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.ClassDef) and node.name == "ActionModule"
        )
        for folder in ("action", "plugin_utils/actions")
        for path in (PLUGINS / folder).glob("*.py")
    }
    actions = {path.stem for path in (PLUGINS / "action").glob("*.py")}
    assert actions <= modules
    assert {name: f"gpufleet.nvidia.{name}" for name in ("fleet", "node", "rollout")}.items() <= routed.items()
    assert {name for name, action in routed.items() if action == "gpufleet.nvidia.host_module"} == modules - actions
    assert {name: found for name, found in bases.items() if not found & SAFE_ACTIONS} == {}
