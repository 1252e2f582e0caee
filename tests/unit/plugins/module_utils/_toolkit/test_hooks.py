# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hooks that the GPU Operator's device plugin has containers run on a node with a toolkit of its own: who wants them, and what becomes of them."""

from __future__ import annotations

import os

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit import apply, config
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.desired import HOOKS, DesiredToolkit
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.plan import plan
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.state import ToolkitState
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.descriptions import describe
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.pools import Racks
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.role_variables import collect
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.stages import plan_stages

from ....host_documents import FROM_OPERATOR
from ...plugin_utils.test_stages import BARE

HOOK, CTK = config.LINKS


def steps(found, wanted, present=True):
    made = plan(ToolkitState({}, (), hooks=found), DesiredToolkit(present=present, hooks=wanted))
    return [str(step.kind.name) + " " + step.target for step in made.steps if step.target in config.LINKS]


@pytest.mark.parametrize(
    ("found", "wanted", "made"),
    [
        ({}, "present", [f"CREATE_FILE {HOOK}", f"CREATE_FILE {CTK}"]),
        ({HOOK: True}, "present", [f"CREATE_FILE {CTK}"]),
        # Programs of the operator's toolkit, which are as good.
        ({HOOK: False, CTK: False}, "present", []),
        ({HOOK: True, CTK: True}, "", []),
        ({HOOK: False, CTK: True}, "", []),
    ],
)
def test_what_is_planned(found, wanted, made):
    assert steps(found, wanted) == made
    ours = [f"REMOVE_FILE {path}" for path, of_host in found.items() if of_host]
    assert steps(found, wanted, present=False) == ours, "they go with the toolkit"


def test_they_are_made_and_read_back(tmp_path, monkeypatch):
    folder = tmp_path / "toolkit"
    links = {str(folder / name): f"/usr/bin/{name}" for name in ("nvidia-cdi-hook", "nvidia-ctk")}
    for module in (config, apply):
        monkeypatch.setattr(module, "LINKS", links)
    assert config.read_hooks(HostFiles()) == {}
    for path, target in links.items():
        for _again in range(2):
            apply.write_link(path, target)
        assert os.readlink(path) == target
    assert config.read_hooks(HostFiles()) == dict.fromkeys(links, True)
    os.unlink(folder / "nvidia-ctk")
    (folder / "nvidia-ctk").write_text("#!/bin/sh\n")
    assert config.read_hooks(HostFiles())[str(folder / "nvidia-ctk")] is False


def wanted(mine, *others):
    """What the run finds out for the first host of the first pool, by the variables of the hosts of all others."""
    hostvars = {"a": mine, **{f"b{number}": one for number, one in enumerate(others)}}
    known = {name: [name] for name in hostvars}
    return describe("a", mine, known, racks=Racks({"hostvars": hostvars})).variables[HOOKS]


OPERATED = {"gpu_kubernetes_stack": "gpu_operator", "gpu_kubernetes_cluster": "one"}
BY_OPERATOR = {**OPERATED, "nvidia_toolkit_runtime": "none"}


@pytest.mark.parametrize(
    ("mine", "others", "found"),
    [
        # Somebody else's operator may be there.
        ({}, [], ""),
        ({"gpu_kubernetes_stack": "device_plugin"}, [BY_OPERATOR], ""),
        ({"gpu_kubernetes_stack": "device_plugin", "gpu_kubernetes_migrate_from": "gpu_operator"}, [], ""),
        (OPERATED, [], ""),
        (OPERATED, [OPERATED], ""),
        (OPERATED, [BY_OPERATOR], "present"),
        (OPERATED, [{**OPERATED, "nvidia_toolkit_migrate_from": "gpu_operator"}], "present"),
        (OPERATED, [{**BY_OPERATOR, "gpu_kubernetes_cluster": "another"}], ""),
        ({**OPERATED, **FROM_OPERATOR}, [], "present"),
        (BY_OPERATOR, [OPERATED], ""),
    ],
)
def test_they_are_wanted_where_the_operator_still_brings_its_toolkit_to_others(mine, others, found):
    assert wanted(mine, *others) == found


def test_site_leaves_those_alone_of_which_it_cannot_tell_who_runs_them():
    """A host with a toolkit of its own and the default stack, beside a GPU Operator that its inventory does not describe."""
    facts = view_of({**BARE, "toolkit": {"packages": {}, "hooks": {HOOK: True, CTK: True}}})
    steps = plan_stages(facts, describe("a", {}, {"pool": ["a"]}).variables)["toolkit"].steps
    assert steps and not [step for step in steps if step.target in config.LINKS]


def test_plan_names_them():
    facts = view_of({**BARE, "toolkit": {"packages": {}}})
    for value, count in (("present", 2), ("", 0), (None, 0)):
        desired = {**collect({}, lambda one: one), **({HOOKS: value} if value is not None else {})}
        named = [step for step in plan_stages(facts, desired)["toolkit"].steps if step.target in config.LINKS]
        assert len(named) == count
