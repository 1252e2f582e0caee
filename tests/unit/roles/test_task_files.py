# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The task files of the roles for day two: a playbook names the first, and none is included deeper than three; what a turn is, Python alone says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.host_names import UPGRADE_STEPS
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.upgrade import WORK, NodeRecord, turn

REPOSITORY = Path(__file__).parents[3]
ROLES = ("gpu_heal", "gpu_node", "gpu_repartition", "gpu_upgrade")
DEEPEST = 3
_INCLUDES = ("include_tasks", "import_tasks")
_ROLE_INCLUDES = ("include_role", "import_role")


def tasks_in(document):
    """Every task, wherever it stands: of plays and of blocks, with what follows their failure."""
    for entry in document or []:
        yield entry
        for part in ("tasks", "pre_tasks", "post_tasks", "block", "rescue", "always"):
            yield from tasks_in(entry.get(part))


def included(path, role=""):
    """Return the task files of the roles that a file includes, as role and name.

    :param role: the role of the file; empty of a playbook.
    """
    found = []
    for task in tasks_in(yaml.safe_load(path.read_text(encoding="utf-8"))):
        for key, value in task.items():
            action = key.removeprefix("ansible.builtin.")
            if action in _INCLUDES:
                name = value["file"] if isinstance(value, dict) else value
                assert "{{" not in name, f"{path}: {name} cannot be followed"
                found.append((role, name))
            elif action in _ROLE_INCLUDES:
                found.append((value["name"].removeprefix("gpufleet.nvidia."), value.get("tasks_from", "main.yml")))
            elif key == "roles":
                names = [one if isinstance(one, str) else one.get("role", one.get("name")) for one in value]
                found += [(name.removeprefix("gpufleet.nvidia."), "main.yml") for name in names]
    return [entry for entry in found if entry[0] in ROLES]


def deepest_chains(root):
    """Return of each task file that a playbook reaches the longest chain of includes that leads to it.

    A file that includes itself, to go on waiting, is in a chain once.
    """
    longest = {}

    def walk(entry, above):
        if entry in above:
            return
        chain = (*above, entry)
        if len(chain) > len(longest.get(entry, ())):
            longest[entry] = chain
        role, name = entry
        for following in included(root / "roles" / role / "tasks" / name, role):
            walk(following, chain)

    # What is asked for a saved plan begins there, from plan and from each playbook that is held to one.
    asks = (root / "roles" / "gpu_facts" / "tasks").glob("ask.yml")
    for playbook in (*sorted((root / "playbooks").glob("*.yml")), *asks):
        for entry in included(playbook):
            walk(entry, ())
    return longest


def test_no_task_file_is_included_deeper_than_three_and_each_is_reached():
    chains = deepest_chains(REPOSITORY)
    deep = [" > ".join("/".join(entry) for entry in chain) for chain in chains.values() if len(chain) > DEEPEST]
    assert not deep
    files = {(role, path.name) for role in ROLES for path in (REPOSITORY / "roles" / role / "tasks").iterdir()}
    assert set(chains) == files, "a file that nothing includes, or one that is not there"


def test_a_chain_is_followed_through_blocks_and_from_one_role_into_the_other(tmp_path):
    def write(name, document):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(yaml.safe_dump(document))

    heal = {"ansible.builtin.include_role": {"name": "gpufleet.nvidia.gpu_heal"}}
    upgrade = {"ansible.builtin.include_role": {"name": "gpufleet.nvidia.gpu_upgrade", "tasks_from": "a.yml"}}
    write("playbooks/p.yml", [{"hosts": "all", "tasks": [heal, upgrade]}])
    write("roles/gpu_heal/tasks/main.yml", [{"block": [{"debug": {}}], "rescue": [upgrade]}])
    again = {"ansible.builtin.include_tasks": "a.yml"}
    write("roles/gpu_upgrade/tasks/a.yml", [{"ansible.builtin.include_tasks": {"file": "b.yml"}}, again])
    write("roles/gpu_upgrade/tasks/b.yml", [{"debug": {}}])
    chains = deepest_chains(tmp_path)
    assert chains["gpu_upgrade", "b.yml"] == (
        ("gpu_heal", "main.yml"),
        ("gpu_upgrade", "a.yml"),
        ("gpu_upgrade", "b.yml"),
    )


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("reason", ["", "CUDA error"])
def test_each_turn_has_its_change_in_the_one_file_that_a_host_in_its_turn_includes(work, reason):
    waits = yaml.safe_load((REPOSITORY / "roles/gpu_upgrade/tasks/wait.yml").read_text(encoding="utf-8"))
    files = {task["ansible.builtin.include_tasks"]: task for task in waits if "ansible.builtin.include_tasks" in task}
    changes = yaml.safe_load((REPOSITORY / "roles/gpu_upgrade/tasks/turn.yml").read_text(encoding="utf-8"))[0]["block"]
    its_own = [str(task.get("when")) for task in changes]
    for state in ("", *UPGRADE_STEPS, "done", "failed", "refused"):
        what = turn(NodeRecord(state, failed_reason=reason), work)
        if what != "revert":
            assert files["turn.yml"]["when"] == "__gpu_upgrade_next.turn not in ['', 'revert']"
            its_change = f"__gpu_upgrade_turn == '{what}'"
            assert any(when.startswith(its_change) for when in its_own), "what changes the host"
    (begins,) = [task["ansible.builtin.set_fact"] for task in waits if "ansible.builtin.set_fact" in task]
    assert begins["__gpu_upgrade_reverts"] == "{{ __gpu_upgrade_next.turn == 'revert' }}"
    assert "__gpu_upgrade_reverts | bool" in files["revert.yml"]["when"]


_PRIVATE = re.compile(r"\b__g?[a-z]+_[a-z0-9_]+\b")
#: Who gives a variable its value: a key of vars, set_fact or a vars file; register; the variable of a loop.
_GIVEN = re.compile(r"^\s*(?:- )?(__[a-z0-9_]+):|\b(?:register|loop_var|index_var): (__[a-z0-9_]+)", re.MULTILINE)


def private_variables(root):
    """Return the private variables that roles and playbooks read, with the files that do, and those that something gives a value."""
    read: dict[str, set[str]] = {}
    given: set[str] = set()
    for path in [*(root / "roles").rglob("*.yml"), *(root / "playbooks").rglob("*.yml")]:
        text = re.sub(r"^\s*#.*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        given |= {name for pair in _GIVEN.findall(text) for name in pair if name}
        for name in _PRIVATE.findall(text):
            read.setdefault(name, set()).add(str(path.relative_to(root)))
    return read, given


def test_every_private_variable_that_is_read_is_given_a_value_somewhere(tmp_path):
    read, given = private_variables(REPOSITORY)
    assert {name: files for name, files in read.items() if name not in given} == {}

    (tmp_path / "playbooks").mkdir()
    (tmp_path / "playbooks" / "p.yml").write_text(
        "- debug:\n    msg: '{{ __gpu_given + __gpu_missing }}'\n  vars:\n    __gpu_given: 1\n"
    )
    read, given = private_variables(tmp_path)
    assert set(read) - given == {"__gpu_missing"}
