# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts of a pool that is moved from the GPU Operator's containers to the hosts: what site does on each of them, and when a node counts as moved."""

from __future__ import annotations

from itertools import product

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils import _migration as migration
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.clients import is_moved
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.role_variables import collect
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.stages import plan_stages

from ...host_documents import FROM_OPERATOR as TO_HOST
from ...host_documents import TO_OPERATOR as BACK
from .test_stages import BARE

OPERATORS = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
STAGES = ("driver", "toolkit", "runtime")


def host(source="container", binary=OPERATORS, **runtime):
    """Facts of a host with the operator's driver and toolkit; without, as they are once its containers have left."""
    driver = {"source": source, "loaded_version": "580.126.09" if source else None, "packages": {}}
    containerd = {**BARE["runtimes"]["containerd"], "nvidia": binary is not None, "binary": binary, **runtime}
    return {**BARE, "driver": driver, "toolkit": {"packages": {}}, "runtimes": {"containerd": containerd}}


def plans(facts, **variables):
    return plan_stages(view_of(facts), collect(variables, lambda value: value))


@pytest.mark.parametrize("source", ["container", "outside"])
def test_what_the_operator_still_brings_is_left_alone_and_what_is_asked_for_is_refused_all_the_same(source):
    found = plans(host(source), **TO_HOST)
    assert [found[name].needed for name in STAGES] == [False] * 3
    assert found["driver"].warnings == (migration.LEFT.format("driver"),)
    assert found["toolkit"].warnings == (migration.LEFT.format("container toolkit"),)
    # Without the variable the driver is somebody's whom site must not take the place of.
    assert "no package has the driver" in plans(host(source))["driver"].refusals[0].reason
    (refused,) = plans(host(source), **TO_HOST, nvidia_driver_branch="535", nvidia_driver_version="535.1.1")[
        "driver"
    ].refusals
    assert refused.thing == "nvidia_driver_version"
    (refused,) = plans(host(source), **TO_HOST, nvidia_toolkit_version="1.0.0")["toolkit"].refusals
    assert refused.thing == "nvidia_toolkit_version"


@pytest.mark.parametrize(
    "runtime",
    [{"binary": None}, {"absent": [OPERATORS]}, {"binary": "/usr/bin/nvidia-container-runtime"}],
)
def test_once_the_containers_have_left_the_stages_do_what_they_always_do(runtime):
    moving, always = (plans(host(None, **runtime), **variables) for variables in (TO_HOST, {}))
    for name in STAGES:
        assert moving[name] == always[name]
    assert moving["driver"].steps and moving["toolkit"].steps


def test_of_k3s_the_operators_toolkit_is_known_by_its_folder():
    facts = host(None, None)
    facts["runtimes"] = {"k3s": {"version": "1.33.1", "active": True, "leftovers": [migration.FORMER]}}
    found = plans(facts, **TO_HOST, nvidia_toolkit_runtime="k3s")
    assert not found["toolkit"].needed and not found["runtime"].refusals
    assert plans(facts, nvidia_toolkit_runtime="k3s")["runtime"].refusals[0].thing == migration.FORMER


def test_on_the_way_back_site_touches_neither():
    for source, binary in product((None, "container", "nvidia"), (None, OPERATORS)):
        found = plans(host(source, binary), **BACK)
        assert not any(found[name].needed for name in STAGES)


@pytest.mark.parametrize(
    ("given", "thing", "text"),
    [
        ({"nvidia_driver_state": "unmanaged"}, "nvidia_driver_migrate_from", "Set nvidia_driver_state: present"),
        ({"nvidia_driver_state": "absent"}, "nvidia_driver_migrate_from", "nvidia_driver_state is absent"),
        ({"nvidia_toolkit_runtime": "none"}, "nvidia_toolkit_migrate_from", "Set the nvidia_toolkit_runtime of the"),
        ({"nvidia_driver_migrate_from": "host"}, "nvidia_driver_migrate_from", "Move the pool one way at a time"),
        ({"nvidia_driver_migrate_from": "operator"}, "nvidia_driver_migrate_from", "gpu_operator, host"),
    ],
)
def test_a_description_of_neither_side_is_refused_by_the_variable(given, thing, text):
    try:
        refusals = [refusal for plan in plans(host(), **{**TO_HOST, **given}).values() for refusal in plan.refusals]
    except migration.Refused as refusal:
        refusals = [refusal]
    assert text in next(one.message for one in refusals if one.thing == thing)


@pytest.mark.parametrize("name", ["nvidia_driver_state", "nvidia_toolkit_runtime"])
def test_the_way_back_is_refused_where_the_host_is_to_bring_it(name):
    found = plans(host(), **{key: value for key, value in BACK.items() if key != name})
    (refused,) = [refusal for plan in found.values() for refusal in plan.refusals]
    assert refused.thing in BACK and refused.remedy.startswith(f"Set {name}: {BACK[name]}")


BOTH = (migration.DRIVER, migration.TOOLKIT)


@pytest.mark.parametrize("operands", [BOTH, BOTH[:1], BOTH[1:]])
@pytest.mark.parametrize("labelled", [[], ["driver"], ["container-toolkit"], [*BOTH]])
@pytest.mark.parametrize("facts", [host(), host(None, None), host("container", None), host(None)])
def test_a_node_is_moved_when_its_labels_and_its_host_say_so_of_every_operand(operands, labelled, facts):
    view = view_of(facts)
    has = {
        "driver": facts["driver"]["source"] is not None,
        "container-toolkit": bool(view.runtimes["containerd"].binary),
    }
    moved = is_moved(view, operands, lambda one: one in labelled, migration.HOST)
    assert moved is all(one in labelled and not has[one] for one in operands)
    # Back: nothing of the host's own is left, and nothing keeps the containers away.
    assert is_moved(view, operands, lambda one: one in labelled, migration.OPERATOR) is not bool(
        {*operands} & {*labelled}
    )


@pytest.mark.parametrize("operand", BOTH)
def test_a_node_is_not_back_as_long_as_its_host_has_the_packages(operand):
    facts = host(None, None)
    part = facts["driver" if operand == "driver" else "toolkit"]
    # Named like them, and no removal takes them away.
    part["packages"] = {"nvidia-vaapi-driver": "0.0.11-1", "libnvidia-container1-dbgsym": "1.20.2-1"}
    assert is_moved(view_of(facts), BOTH, lambda _one: False, migration.OPERATOR)
    part["packages"] |= {"libcuda1": "580.126.09-1"} if operand == "driver" else {"libnvidia-container1": "1.20.2-1"}
    for operands in (BOTH, (operand,)):
        assert not is_moved(view_of(facts), operands, lambda _one: False, migration.OPERATOR)
    (other,) = {*BOTH} - {operand}
    assert is_moved(view_of(facts), (other,), lambda _one: False, migration.OPERATOR)
