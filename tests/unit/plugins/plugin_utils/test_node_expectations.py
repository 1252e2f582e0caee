# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which checks of a node follow from the description of its host."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import node_expectations
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen

VARIABLES = {
    "nvidia_mig_strategy": "none",
    "nvidia_mig_layout": [],
    "gpu_kubernetes_stack": "device_plugin",
    "gpu_kubernetes_migrate_from": "",
    "gpu_kubernetes_mig_manager": "host",
}
MPS = {"nvidia_sharing_mode": "mps", "nvidia_sharing_replicas": 10}
PIPE = "/run/nvidia/mps/nvidia.com/gpu/pipe"


def facts(in_container=True, limits=("7G", "7G"), percentage=10.0):
    gpus = [{"index": index, "memory_mib": 81559, "architecture": "hopper"} for index in range(2)]
    daemon = {"pipe_directory": PIPE, "in_container": in_container, "responds": True, "percentage": percentage}
    return {"gpus": gpus, "mps": [{**daemon, "limits": list(limits)}]}


def checks(sharing, found, **how):
    wanted = node_expectations.expected("n", seen(found), lambda: {**VARIABLES, **sharing})
    node = {"status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"nvidia.com/gpu": "20"}}}
    return {check.name: check for check in node_expectations.checks("n", node, list, wanted, seen(found), (), **how)}


@pytest.mark.parametrize(
    ("sharing", "found", "status"),
    [
        (MPS, facts(), "passed"),
        (MPS, facts(limits=("7G", "1G")), "failed"),
        (MPS, facts(percentage=100.0), "failed"),
        ({**MPS, "nvidia_sharing_mps_manager": "host"}, facts(in_container=False), None),
        ({"nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 10}, facts(), None),
        ({}, facts(), None),
    ],
)
def test_the_limits_of_the_device_plugins_mps_daemon_are_those_of_the_description(sharing, found, status):
    limits = checks(sharing, found).get("MPS limits")
    assert (limits.status if limits else None) == status


def test_a_node_that_is_waited_for_is_not_judged_by_daemons_of_before():
    """After an upgrade the plugin's pods come back last, and the host was read before."""
    assert "MPS limits" not in checks(MPS, {**facts(), "mps": []}, waiting=True)
    assert checks(MPS, {**facts(), "mps": []})["MPS limits"].status == "failed"


CHOICES = {
    "gpu_kubernetes_sharing_configurations": {"ten": {"replicas": 10}, "three": {"replicas": 3}},
    "gpu_kubernetes_sharing_default": "three",
}


@pytest.mark.parametrize(
    ("variables", "label", "status"),
    [
        ({}, "ten", "passed"),
        ({}, "three", "failed"),
        ({}, None, "failed"),
        ({"gpu_kubernetes_sharing_default": "ten"}, None, "passed"),
        # What the inventory chooses Node Feature Discovery writes, whatever is there for a moment.
        ({"gpu_kubernetes_sharing_configuration": "three"}, "ten", "failed"),
        ({"gpu_kubernetes_sharing_configuration": "ten"}, "three", "passed"),
    ],
)
def test_what_a_node_must_offer_follows_its_label_where_the_inventory_does_not_choose(variables, label, status):
    wanted = node_expectations.expected("n", seen(facts()), lambda: {**VARIABLES, **CHOICES, **variables})
    node = {
        "metadata": {"labels": {"nvidia.com/device-plugin.config": label} if label else {}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"nvidia.com/gpu": "20"}},
    }
    found = {check.name: check.status for check in node_expectations.checks("n", node, list, wanted, seen(facts()), ())}
    assert found["allocatable"] == status


@pytest.mark.parametrize(
    ("variables", "own", "label", "failed"),
    [
        ({}, "training", "tne", True),
        ({}, "training", "training", False),
        ({}, "training", "ten", False),
        # Without a rendered tree nobody knows what the pool's own configuration is called, so that this may be it.
        ({}, None, "tne", False),
        # Under a GPU Operator one ConfigMap has those of all pools.
        ({"gpu_kubernetes_stack": "gpu_operator"}, "training", "tne", False),
    ],
)
def test_a_typo_in_the_label_is_found_where_a_rendered_tree_named_the_pools_own_configuration(
    variables, own, label, failed
):
    wanted = node_expectations.expected("n", seen(facts()), lambda: {**VARIABLES, **CHOICES, **variables})
    labels = {"nvidia.com/device-plugin.config": label, **({"gpufleet.github.io/configuration": own} if own else {})}
    node = {
        "metadata": {"name": "n", "labels": labels},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    found = {check.name: check for check in node_expectations.checks("n", node, list, wanted, seen(facts()), ())}
    assert ("configuration" in found and found["configuration"].status == "failed") == failed
    if failed:
        step = found["configuration"].next_step
        assert step.startswith("kubectl label node n --overwrite") and "one of default, ten, three, training;" in step
