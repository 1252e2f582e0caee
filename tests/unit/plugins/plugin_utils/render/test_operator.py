# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the GPU Operator finds on its nodes, and what k3s and RKE2 bring themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import BOARDS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.layouts import label_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.gpu_operator import predefined_layouts
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.tree import cluster_tree

#: What people find on nodes whose MIG manager has no ConfigMap of ours.
DEFAULT = json.loads((Path(__file__).parent / "data/mig_parted_default.json").read_text())["layouts"]
#: Profiles of GB200 that drivers before its release had; no board of the table has them.
FORMER_PROFILES = {"all-3g.95gb", "all-4g.95gb", "all-7g.189gb"}
OTHER_BACKENDS = {
    "dra": {"nvidia_sharing_backend": "dra", "nvidia_sharing_memory_slice": "4GiB"},
    "hami": {"nvidia_sharing_backend": "hami", "nvidia_sharing_memory_slice": "4GiB"},
}
PLUGIN_LABEL, DEPLOY_LABEL = "nvidia.com/device-plugin.config", "nvidia.com/gpu.deploy.device-plugin"


def tree_of(clusters_of, pools, **options):
    return cluster_tree(clusters_of(pools, **{"version": "1.36", **options})[0])


def documents(text):
    return [item for item in yaml.safe_load_all(text) if item]


def labels_of(tree):
    rules = documents(tree["node-labels/pools.yaml"])[0]["spec"]["rules"]
    return {rule["labels"]["gpufleet.github.io/pool"]: rule["labels"] for rule in rules}


@pytest.mark.parametrize("backend", OTHER_BACKENDS)
@pytest.mark.parametrize("mig_manager", ["host", "operator"])
def test_the_operators_plugin_stays_away_from_nodes_of_another_backend(clusters_of, pools, backend, mig_manager):
    other = {"gpu_facts_gpus": pools["shared"]["gpu_facts_gpus"], **OTHER_BACKENDS[backend]}
    # HAMi takes nvidia.com/gpu, so the plugin's pool offers MIG devices by their own names.
    both = {"training": pools["training"], "other": other}
    tree = tree_of(clusters_of, both, stack="gpu_operator", mig_manager=mig_manager)
    labels = labels_of(tree)
    assert labels["other"][DEPLOY_LABEL] == "false"
    assert labels["other"]["gpufleet.github.io/backend"] == backend
    assert PLUGIN_LABEL not in labels["other"]
    assert DEPLOY_LABEL not in labels["training"]
    (config_map,) = documents(tree["objects/nvidia-device-plugin.yaml"])
    assert {one[PLUGIN_LABEL] for one in labels.values() if PLUGIN_LABEL in one} <= set(config_map["data"])
    if mig_manager == "operator":
        layouts = yaml.safe_load(documents(tree["objects/gpufleet-mig.yaml"])[0]["data"]["config.yaml"])["mig-configs"]
        assert {one["nvidia.com/mig.config"] for one in labels.values() if "nvidia.com/mig.config" in one} <= set(
            layouts
        )


def test_without_an_operator_nobody_would_partition(clusters_of, pools):
    claims = {**pools["training"], "nvidia_sharing_backend": "dra", "nvidia_mig_layout": "all-1g.10gb"}
    with pytest.raises(Refused, match="no GPU Operator is rendered"):
        tree_of(clusters_of, {"claims": claims}, stack="gpu_operator", mig_manager="operator")


def matching(entries, device):
    return [
        (enabled, devices or {})
        for devices_of, enabled, devices in entries
        if devices_of is None or device in devices_of
    ]


def test_no_layout_is_asked_of_boards_without_mig(clusters_of, pools):
    """The operator runs no MIG manager on their nodes, so that nothing would ever say that the layout is applied."""
    pools = {"training": pools["training"], "whole": {"gpu_facts_gpus": [{"board": "l40s", "count": 4}]}}
    labels = labels_of(tree_of(clusters_of, pools, stack="gpu_operator", mig_manager="operator"))
    assert labels["training"]["nvidia.com/mig.config"] == "training"
    assert "nvidia.com/mig.config" not in labels["whole"]


def test_the_predefined_layouts_are_those_of_the_manager(clusters_of, pools):
    del pools["training"]
    tree = tree_of(clusters_of, pools, stack="gpu_operator", mig_manager="operator")
    (config_map,) = documents(tree["objects/gpufleet-mig.yaml"])
    ours = yaml.safe_load(config_map["data"]["config.yaml"])["mig-configs"]
    assert set(DEFAULT) - set(ours) == FORMER_PROFILES
    assert {"batch", "all-disabled", "all-enabled", "all-balanced", "all-1g.5gb"} <= set(ours)
    compared = 0
    for board in BOARDS:
        offered = {
            "all-disabled",
            "all-enabled",
            "all-balanced",
            *(label_of(profile.name) for profile in board.profiles),
        }
        for name in offered & set(DEFAULT) if board.mig else ():
            mine = [(one.get("device-filter"), one["mig-enabled"], one.get("mig-devices")) for one in ours[name]]
            for device in board.pci_device_ids:
                theirs = matching(DEFAULT[name], device)
                most = {profile.name: profile.max_instances for profile in board.profiles}
                held = all(count <= most[kind] for _on, devices in theirs for kind, count in devices.items())
                if theirs and held:  # A layout without a filter is that of the larger board of two.
                    assert matching(mine, device) == theirs, (name, board.key)
                    compared += 1
    assert compared > 150


def test_a_pool_named_like_a_predefined_layout_is_refused(clusters_of, pools):
    assert "all-balanced" in predefined_layouts()
    with pytest.raises(Refused, match="predefined MIG layout"):
        tree_of(clusters_of, {"all-balanced": pools["batch"]}, stack="gpu_operator", mig_manager="operator")


@pytest.mark.parametrize(
    ("runtimes", "options", "made"),
    [
        (("containerd", "containerd"), {}, True),
        (("k3s", "k3s"), {}, False),
        (("rke2", "rke2"), {}, False),
        # A node of k3s has a server of k3s, whatever the others are.
        (("containerd", "k3s"), {}, False),
        (("k3s", "k3s"), {"version": "1.28"}, True),
        (("rke2", "rke2"), {"version": "1.31"}, True),
        (("k3s", "k3s"), {"runtime_class": "gpu"}, True),
        (("k3s", "k3s"), {"stack": "gpu_operator"}, False),
    ],
)
def test_k3s_and_rke2_bring_the_runtime_class_themselves(clusters_of, pools, runtimes, options, made):
    two = {"batch": pools["batch"], "shared": pools["shared"]}
    for pool, runtime in zip(two.values(), runtimes):
        # Kubernetes 1.28 has no CDI devices of plugins yet.
        pool.update(nvidia_toolkit_runtime=runtime, nvidia_toolkit_device_injection="volume_mounts")
    tree = tree_of(clusters_of, two, **options)
    assert ("objects/runtime-class.yaml" in tree) is made
    values = yaml.safe_load(tree_of(clusters_of, two, objects="chart", **options)["values/gpufleet-nvidia.yaml"])
    assert values["runtimeClass"]["create"] is made
    assert values["runtimeClass"]["name"], "pods still name it"


def test_what_of_the_toolkit_the_cluster_does_not_see_splits_no_pool(clusters_of, pools):
    of_host = {
        "shared-0": {"nvidia_toolkit_version": "1.19.1", "nvidia_toolkit_repository_url": "https://mirror.example.com"},
        "shared-1": {"nvidia_toolkit_runtime": "crio"},
    }
    (cluster,) = clusters_of({"shared": pools["shared"]}, of_host=of_host)
    assert [item.name for item in cluster.configurations] == ["shared"]
    assert cluster.runtimes == {"containerd", "crio"}


BY_OPERATOR = {"nvidia_driver_state": "unmanaged", "nvidia_toolkit_runtime": "none"}
DEPLOY = {"driver": "nvidia.com/gpu.deploy.driver", "toolkit": "nvidia.com/gpu.deploy.container-toolkit"}


def rendered(clusters_of, pools, by_operator):
    """The values of the operator, their comments, and the labels of the nodes of each pool."""
    pools = {pool: {**pools[pool], **(BY_OPERATOR if pool in by_operator else {})} for pool in ("batch", "shared")}
    tree = tree_of(clusters_of, pools, stack="gpu_operator")
    text = tree["values/gpu-operator.yaml"]
    return yaml.safe_load(text), text, labels_of(tree)


def test_where_all_hosts_bring_driver_and_toolkit_the_operator_does_not(clusters_of, pools):
    values, text, labels = rendered(clusters_of, pools, ())
    assert values["driver"] == values["toolkit"] == {"enabled": False}
    assert "The hosts bring the driver" in text and "The hosts bring the container toolkit" in text
    assert not any(set(DEPLOY.values()) & set(of_pool) for of_pool in labels.values())


def test_where_no_host_brings_them_the_operators_stay(clusters_of, pools):
    values, text, labels = rendered(clusters_of, pools, ("batch", "shared"))
    assert values["driver"] == values["toolkit"] == {"enabled": True}
    assert "The hosts bring" not in text and "The operator brings the driver" in text
    assert not any(set(DEPLOY.values()) & set(of_pool) for of_pool in labels.values())


def test_in_a_mixed_cluster_the_operator_stays_away_from_the_nodes_whose_hosts_bring_them(clusters_of, pools):
    values, text, labels = rendered(clusters_of, pools, ("batch",))
    assert values["driver"] == values["toolkit"] == {"enabled": True}
    for deploy in DEPLOY.values():
        assert labels["shared"][deploy] == "false" and deploy not in labels["batch"]
        assert f'{deploy}: "false"' in text


FORWARD = {"nvidia_driver_migrate_from": "gpu_operator", "nvidia_toolkit_migrate_from": "gpu_operator"}
BACK = {**BY_OPERATOR, "nvidia_driver_migrate_from": "host", "nvidia_toolkit_migrate_from": "host"}


@pytest.mark.parametrize("moved", [("batch",), ("batch", "shared")])
@pytest.mark.parametrize("variables", [FORWARD, BACK])
def test_while_pools_are_moved_the_tree_stays_what_it_was_and_labels_none_of_their_nodes(
    clusters_of, pools, variables, moved
):
    """Node by node migrate writes the labels, which no rule may take away or give to all nodes at once."""
    before, after = (
        tree_of(
            clusters_of,
            {pool: {**pools[pool], **(given if pool in moved else {})} for pool in ("batch", "shared")},
            stack="gpu_operator",
        )
        for given in (BY_OPERATOR, variables)
    )
    assert before == after
    assert yaml.safe_load(after["values/gpu-operator.yaml"])["driver"] == {"enabled": True}
    assert not any(set(DEPLOY.values()) & set(labels_of(after)[pool]) for pool in moved)


@pytest.mark.parametrize(("name", "other"), [("driver", "toolkit"), ("toolkit", "driver")])
def test_only_what_is_moved_stays_the_operators(clusters_of, pools, name, other):
    tree = tree_of(
        clusters_of,
        {"batch": {**pools["batch"], f"nvidia_{name}_migrate_from": "gpu_operator"}},
        stack="gpu_operator",
    )
    values = yaml.safe_load(tree["values/gpu-operator.yaml"])
    assert (values[name], values[other]) == ({"enabled": True}, {"enabled": False})
    text = " ".join(tree["values/gpu-operator.yaml"].replace("#", "").split())
    assert f"those with nvidia_{name}_migrate_from to the nodes that gpufleet.nvidia.migrate has not moved" in text


@pytest.mark.parametrize("variables", [FORWARD, BACK, {"nvidia_toolkit_migrate_from": "gpu_operator"}])
def test_the_operator_is_not_taken_from_nodes_that_still_need_it(clusters_of, pools, variables):
    with pytest.raises(Refused) as refused:
        clusters_of({"batch": {**pools["batch"], **variables}}, stack="device_plugin")
    assert refused.value.thing == f"{next(name for name in variables if name.endswith('_from'))} of pool batch"
    assert "gpu_kubernetes_stack is device_plugin" in refused.value.reason


def test_hosts_of_one_pool_can_differ_in_who_brings_the_driver(clusters_of, pools):
    tree = tree_of(
        clusters_of,
        {"shared": pools["shared"]},
        stack="gpu_operator",
        of_host={"shared-1": {"nvidia_driver_state": "unmanaged"}},
    )
    rules = documents(tree["node-labels/pools.yaml"])[0]["spec"]["rules"]
    without = {
        node: rule["labels"].get(DEPLOY["driver"])
        for rule in rules
        for node in rule["matchFeatures"][0]["matchExpressions"]["nodename"]["value"]
    }
    assert without == {"shared-0": "false", "shared-1": None}
    values = yaml.safe_load(tree["values/gpu-operator.yaml"])
    assert (values["driver"], values["toolkit"]) == ({"enabled": True}, {"enabled": False})


def test_the_releases_of_the_device_plugin_are_the_same_whoever_brings_the_driver(clusters_of, pools):
    first, second = (
        tree_of(clusters_of, {"shared": {**pools["shared"], **one}})
        for one in ({}, {"nvidia_driver_state": "unmanaged"})
    )
    assert first == second


@pytest.mark.parametrize("gitops", ["argocd", "flux", "none"])
def test_the_operators_chart_stays_at_the_version_that_the_cluster_keeps(clusters_of, pools, gitops):
    del pools["training"]
    given = {"argocd": {"gitops_repository": "https://git.example.com/fleet"}, "flux": {"gitops_source": "fleet"}}
    options = {"stack": "gpu_operator", "gitops": gitops, **given.get(gitops, {})}
    trees = {
        version: tree_of(clusters_of, pools, **options, operator_version=version)
        for version in ("", "v26.7.0", "v25.3.4")
    }
    assert trees["v26.7.0"] == trees[""], "the pinned version is what it is without"
    changed = {path for path, text in trees["v25.3.4"].items() if text != trees[""][path]}
    assert trees["v25.3.4"].keys() == trees[""].keys()
    for path in changed - {"values/gpu-operator.yaml"}:
        assert trees["v25.3.4"][path].replace("v25.3.4", "v26.7.0") == trees[""][path], path
    expected = {
        "argocd": {"README.md", "argocd/gpu-operator.yaml", "argocd/crds-gpu-operator.yaml"},
        # Its HelmRelease upgrades the definitions.
        "flux": {"flux/gpu-operator.yaml"},
        "none": {"README.md"},
    }
    assert changed == {"values/gpu-operator.yaml", *expected[gitops]}
    assert "a key that v25.3.4 does not read has no effect" in " ".join(
        trees["v25.3.4"]["values/gpu-operator.yaml"].split()
    )


@pytest.mark.parametrize("version", ["latest", "v25", "v25.3.4 ", "v25.3.4\n", "../v25.3.4", ">=25.3.4"])
def test_what_is_no_version_of_a_chart_is_refused(clusters_of, pools, version):
    del pools["training"]
    with pytest.raises(Refused, match=r"gpu_kubernetes_operator_version.* is not a version of the chart gpu-operator"):
        clusters_of(pools, stack="gpu_operator", operator_version=version)
