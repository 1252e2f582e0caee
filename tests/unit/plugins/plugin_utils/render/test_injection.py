# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How devices reach containers, in everything that is rendered."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.tree import cluster_tree

METHODS = {"cdi": "cdi-cri", "volume_mounts": "volume-mounts", "envvar": "envvar"}
WITH_HAMI = {
    "gpu_facts_gpus": [{"board": "l40s-48gb", "count": 4}],
    "nvidia_sharing_backend": "hami",
    "nvidia_sharing_memory_slice": "4GiB",
}
VARIABLE = "nvidia_toolkit_device_injection"


def tree_of(clusters_of, pools, **options):
    return cluster_tree(clusters_of(pools, **options)[0])


def with_method(pools, method, **more):
    return {name: {**variables, VARIABLE: method, **more} for name, variables in pools.items()}


def values(tree, name):
    return yaml.safe_load(tree[f"values/{name}.yaml"])


def refusal(clusters_of, pools, **options):
    with pytest.raises(Refused) as refused:
        tree_of(clusters_of, pools, **options)
    return refused.value


@pytest.mark.parametrize("method", METHODS)
def test_the_device_plugin_uses_what_the_hosts_accept(clusters_of, pools, method):
    tree = tree_of(clusters_of, with_method(pools, method))
    for pool in pools:
        rendered = values(tree, f"nvidia-device-plugin-{pool}")
        assert rendered["deviceListStrategy"] == METHODS[method]
        # Where the toolkit refuses the variable, the plugin's pod would see no GPU without it; elsewhere it needs no privilege.
        capabilities = rendered.get("securityContext", {}).get("capabilities", {}).get("add", [])
        assert capabilities == ([] if method == "envvar" else ["SYS_ADMIN"])
        assert "privileged" not in rendered.get("securityContext", {})
        # Only then the chart mounts the driver, from which the plugin makes its CDI specification.
        assert rendered.get("nvidiaDriverRoot") == ("/" if method == "cdi" else None)
        assert rendered["runtimeClassName"] == "nvidia"
    capacity = json.loads(tree["capacity.json"])
    assert {item["device_list_strategy"] for item in capacity["configurations"].values()} == {METHODS[method]}


def test_the_default_is_what_the_default_host_accepts(clusters_of, pools):
    assert tree_of(clusters_of, pools) == tree_of(clusters_of, with_method(pools, "cdi"))
    docker = with_method(pools, "auto", nvidia_toolkit_runtime="docker")
    assert values(tree_of(clusters_of, docker), "nvidia-device-plugin-batch")["deviceListStrategy"] == "envvar"


@pytest.mark.parametrize("method", METHODS)
def test_examples_name_the_runtime_class_where_their_devices_need_it(clusters_of, pools, method):
    tree = tree_of(clusters_of, with_method(pools, method))
    pods = [yaml.safe_load(text) for path, text in tree.items() if path.startswith("examples/")]
    assert pods
    assert {pod["spec"].get("runtimeClassName") for pod in pods} == {None if method == "cdi" else "nvidia"}
    checks = values(tree, "gpufleet-nvidia")["verification"]["checks"]
    assert {check["runtimeClassName"] for check in checks} == {"" if method == "cdi" else "nvidia"}
    policies = values(tree, "gpufleet-nvidia")["policies"]
    assert (policies["deviceInjection"], policies["defaultRuntime"]) == ([method], False)
    default = tree_of(clusters_of, with_method(pools, method, nvidia_toolkit_default_runtime=True))
    pods = [yaml.safe_load(text) for path, text in default.items() if path.startswith("examples/")]
    assert {pod["spec"].get("runtimeClassName") for pod in pods} == {None}


@pytest.mark.parametrize("method", METHODS)
def test_the_metrics_exporter_sees_the_gpus(clusters_of, pools, method):
    rendered = values(tree_of(clusters_of, with_method(pools, method)), "dcgm-exporter")
    capabilities = rendered.get("securityContext", {}).get("capabilities", {}).get("add", [])
    assert capabilities == ([] if method == "envvar" else ["SYS_ADMIN"])


@pytest.mark.parametrize(
    ("method", "strategy"), [("cdi", "cdi-annotations"), ("volume_mounts", "volume-mounts"), ("envvar", "envvar")]
)
def test_hami_uses_what_its_hosts_accept(clusters_of, method, strategy):
    plugin = values(tree_of(clusters_of, with_method({"sliced": WITH_HAMI}, method)), "hami")["devicePlugin"]
    assert plugin["deviceListStrategy"] == strategy
    assert plugin.get("nvidiaDriverRoot") == ("/" if method == "cdi" else None)


def test_the_operator_uses_what_its_hosts_accept(clusters_of, pools):
    pools.pop("batch")
    pools["shared"]["nvidia_sharing_mode"] = "time_slicing"
    rendered = values(tree_of(clusters_of, pools, stack="gpu_operator"), "gpu-operator")
    assert rendered["cdi"] == {"enabled": True}
    assert "env" not in rendered["devicePlugin"]
    mounts = tree_of(clusters_of, with_method(pools, "volume_mounts"), stack="gpu_operator")
    rendered = values(mounts, "gpu-operator")
    assert rendered["cdi"] == {"enabled": False}
    assert rendered["devicePlugin"]["env"] == [{"name": "DEVICE_LIST_STRATEGY", "value": "volume-mounts"}]
    pools["shared"][VARIABLE] = "volume_mounts"
    refused = refusal(clusters_of, pools, stack="gpu_operator")
    assert "volume_mounts for pool shared and cdi for pool training" in refused.reason


def test_pools_with_a_release_of_their_own_may_differ(clusters_of, pools):
    pools["shared"][VARIABLE] = "volume_mounts"
    tree = tree_of(clusters_of, pools)
    assert values(tree, "nvidia-device-plugin-shared")["deviceListStrategy"] == "volume-mounts"
    assert values(tree, "nvidia-device-plugin-batch")["deviceListStrategy"] == "cdi-cri"


RUNTIME_CLASS = "gpu_kubernetes_runtime_class"
PLUGIN, OPERATOR, EXPORTER, HAMI = "nvidia-device-plugin", "gpu-operator", "dcgm-exporter", "hami"
STRATEGY = "DEVICE_LIST_STRATEGY"


def with_values(clusters_of, pools, chart, extra, method="cdi"):
    chosen = {"sliced": WITH_HAMI} if chart == HAMI else {"training": pools["training"]}
    stack = "gpu_operator" if chart == OPERATOR else "device_plugin"
    return clusters_of(with_method(chosen, method), values={chart: extra}, stack=stack)


@pytest.mark.parametrize(
    ("chart", "extra", "path", "variable"),
    [
        (PLUGIN, {"deviceListStrategy": "envvar"}, "deviceListStrategy", VARIABLE),
        (PLUGIN, {"deviceListStrategy": None}, "deviceListStrategy", VARIABLE),
        (PLUGIN, {"nvidiaDriverRoot": None}, "nvidiaDriverRoot", VARIABLE),
        (PLUGIN, {"cdi": None}, "cdi.nvidiaHookPath", VARIABLE),
        (PLUGIN, {"securityContext": None}, "securityContext.capabilities.add", VARIABLE),
        (PLUGIN, {"securityContext": {"capabilities": {"add": []}}}, "securityContext.capabilities.add", VARIABLE),
        (PLUGIN, {"gfd": {"securityContext": {"privileged": False}}}, "gfd.securityContext.privileged", VARIABLE),
        (PLUGIN, {"runtimeClassName": None}, "runtimeClassName", RUNTIME_CLASS),
        (PLUGIN, {"runtimeClassName": "other"}, "runtimeClassName", RUNTIME_CLASS),
        (EXPORTER, {"securityContext": {"capabilities": None}}, "securityContext.capabilities.add", VARIABLE),
        (EXPORTER, {"runtimeClassName": ""}, "runtimeClassName", RUNTIME_CLASS),
        (HAMI, {"devicePlugin": {"deviceListStrategy": "envvar"}}, "devicePlugin.deviceListStrategy", VARIABLE),
        (HAMI, {"devicePlugin": {"nvidiaDriverRoot": ""}}, "devicePlugin.nvidiaDriverRoot", VARIABLE),
        (HAMI, {"devicePlugin": {"runtimeClassName": "x"}}, "devicePlugin.runtimeClassName", RUNTIME_CLASS),
        (OPERATOR, {"cdi": {"enabled": False}}, "cdi.enabled", VARIABLE),
        (OPERATOR, {"toolkit": {"enabled": True}}, "toolkit.enabled", VARIABLE),
        (OPERATOR, {"operator": {"runtimeClass": "x"}}, "operator.runtimeClass", RUNTIME_CLASS),
        (OPERATOR, {"devicePlugin": {"env": [{"name": STRATEGY, "value": "envvar"}]}}, "devicePlugin.env", VARIABLE),
    ],
)
def test_added_values_that_say_otherwise_are_refused(clusters_of, pools, chart, extra, path, variable):
    with pytest.raises(Refused) as refused:
        cluster_tree(with_values(clusters_of, pools, chart, extra)[0])
    assert refused.value.thing == f"gpu_kubernetes_values['{chart}'].{path}"
    assert variable in refused.value.reason
    assert variable in refused.value.remedy


def test_an_environment_that_takes_the_strategy_from_the_operators_plugin_is_refused(clusters_of, pools):
    extra = {"devicePlugin": {"env": [{"name": "PASS_DEVICE_SPECS", "value": "true"}]}}
    assert cluster_tree(with_values(clusters_of, pools, OPERATOR, extra)[0])
    with pytest.raises(Refused, match=VARIABLE):
        cluster_tree(with_values(clusters_of, pools, OPERATOR, extra, "volume_mounts")[0])


@pytest.mark.parametrize(
    ("chart", "extra"),
    [
        (PLUGIN, {"securityContext": {"privileged": True}}),
        (PLUGIN, {"securityContext": {"capabilities": {"add": ["SYS_PTRACE", "SYS_ADMIN"]}}}),
        (PLUGIN, {"nvidiaDriverRoot": "/run/nvidia/driver"}),
        (PLUGIN, {"gfd": {"securityContext": {"privileged": True}}, "runtimeClassName": "nvidia"}),
        (EXPORTER, {"extraEnv": [{"name": "X", "value": "y"}]}),
        (OPERATOR, {"cdi": {"enabled": True}, "toolkit": {"enabled": False}}),
    ],
)
def test_added_values_that_leave_the_decision_as_it_is_are_taken(clusters_of, pools, chart, extra):
    assert cluster_tree(with_values(clusters_of, pools, chart, extra)[0])


def test_the_operator_may_bring_the_toolkit_where_the_hosts_leave_it_alone(clusters_of, pools):
    pools["training"]["nvidia_toolkit_runtime"] = "none"
    assert cluster_tree(with_values(clusters_of, pools, OPERATOR, {"toolkit": {"enabled": True}})[0])


def test_a_kubelet_without_cdi_is_refused(clusters_of, pools):
    refused = refusal(clusters_of, pools, version="1.28")
    assert VARIABLE in refused.thing
    assert "gpu_kubernetes_version 1.28" in refused.reason
    assert tree_of(clusters_of, with_method(pools, "volume_mounts"), version="1.28")


@pytest.mark.parametrize("version", ["foo", "1", "1.x"])
def test_a_version_that_is_none_is_refused(clusters_of, pools, version):
    assert refusal(clusters_of, pools, version=version).thing == "gpu_kubernetes_version"


def test_no_runtime_class_and_no_default_runtime_is_refused(clusters_of, pools):
    refused = refusal(clusters_of, pools, runtime_class="")
    assert "gpu_kubernetes_runtime_class" in refused.thing
    assert "nvidia_toolkit_default_runtime" in refused.reason
    assert tree_of(clusters_of, with_method(pools, "cdi", nvidia_toolkit_default_runtime=True), runtime_class="")


def test_dra_hands_over_devices_by_cdi_only(clusters_of):
    pool = {**WITH_HAMI, "nvidia_sharing_backend": "dra"}
    refused = refusal(clusters_of, {"claims": {**pool, VARIABLE: "envvar"}})
    assert "nvidia_sharing_backend: dra" in refused.reason
    rendered = tree_of(clusters_of, {"claims": pool}, version="1.35")["values/dra-driver-nvidia-gpu.yaml"]
    assert "feature gate DRAConsumableCapacity in kube-apiserver" in rendered
    assert yaml.safe_load(rendered)["resources"] == {"computeDomains": {"enabled": False}}
    assert (
        "feature gate"
        not in tree_of(clusters_of, {"claims": pool}, version="1.36")["values/dra-driver-nvidia-gpu.yaml"]
    )


RENAMED = {"shared": {"replicas": 4, "rename": True}}


@pytest.mark.parametrize(
    ("pools", "options", "names"),
    [
        (
            {
                "training": {
                    "gpu_facts_gpus": [{"board": "h100-80gb-sxm", "count": 8}],
                    "nvidia_mig_strategy": "mixed",
                    "nvidia_mig_layout": "all-balanced",
                },
                "shared": {
                    "gpu_facts_gpus": [{"board": "l40s-48gb", "count": 4}],
                    "nvidia_sharing_mode": "mps",
                    "nvidia_sharing_memory_slice": "4GiB",
                },
            },
            {},
            {"nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb", "nvidia.com/mig-3g.40gb"},
        ),
        # What a node offers once somebody has labelled it, and before it was migrated.
        (
            {"any": {"gpu_facts_gpus": [{"board": "t4-16gb", "count": 2}]}},
            {"sharing_configurations": RENAMED},
            {"nvidia.com/gpu", "nvidia.com/gpu.shared"},
        ),
        (
            {
                "any": {
                    "gpu_facts_gpus": [{"board": "h100-80gb-sxm", "count": 2}],
                    "nvidia_sharing_backend": "dra",
                    "nvidia_sharing_migrate_from": "mps",
                }
            },
            {},
            {"nvidia.com/gpu"},
        ),
    ],
)
def test_the_policies_count_what_the_nodes_can_offer_and_nothing_else(clusters_of, pools, options, names):
    (cluster,) = clusters_of(pools, **options)
    policies = yaml.safe_load(cluster_tree(cluster)["values/gpufleet-nvidia.yaml"])["policies"]
    counted = re.compile(policies["gpuResources"]).search
    others = {
        "nvidia.com/mig-nosuch",
        "nvidia.com/mig-1gX10gb",
        "nvidia.com/gpuX",
        "Xnvidia.com/gpu",
        "nvidia.com/gpumem",
    }
    every = {"nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-7g.80gb", *names, *others}
    assert {name for name in every if counted(name)} == names


def test_a_site_says_who_may_mount_what_the_policies_guard(clusters_of, pools):
    mine = {"policies": {"hostDevices": {"serviceAccounts": ["logging/shipper"]}}}
    found = values(tree_of(clusters_of, pools, values={"gpufleet-nvidia": mine}), "gpufleet-nvidia")["policies"]
    assert found == {**values(tree_of(clusters_of, pools), "gpufleet-nvidia")["policies"], **mine["policies"]}
