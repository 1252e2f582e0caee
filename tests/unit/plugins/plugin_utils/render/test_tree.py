# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of a cluster."""

from __future__ import annotations

import json

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import clients
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.lint import lint
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render import capacity_document
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.tree import cluster_tree


def tree_of(clusters_of, pools, **options):
    return cluster_tree(clusters_of(pools, **options)[0])


def test_what_the_files_say_of_the_nodes_is_made_once(clusters_of, pools, monkeypatch):
    made, make = [], capacity_document._document
    monkeypatch.setattr(capacity_document, "_document", lambda cluster: made.append(cluster.name) or make(cluster))
    (cluster,) = clusters_of(pools)
    hosts = json.loads(cluster_tree(cluster)["capacity.json"])["nodes"]
    assert set(capacity_document.digests_of_hosts([cluster], [])) == {one["host"] for one in hosts.values()}
    assert made == [cluster.name]


def documents(text):
    return [item for item in yaml.safe_load_all(text) if item]


def test_the_demos_three_pools(clusters_of, pools):
    tree = tree_of(clusters_of, pools)
    capacity = json.loads(tree["capacity.json"])
    assert {node["pool"]: node["resources"] for node in capacity["nodes"].values()} == {
        "training": {"nvidia.com/mig-1g.10gb": 16, "nvidia.com/mig-2g.20gb": 8, "nvidia.com/mig-3g.40gb": 8},
        "batch": {"nvidia.com/gpu": 56},
        "shared": {"nvidia.com/gpu": 44},
    }
    assert len(capacity["nodes"]) == 6
    assert [path for path in tree if path.startswith("values/nvidia-device-plugin-")] == [
        f"values/nvidia-device-plugin-{pool}.yaml" for pool in ("batch", "shared", "training")
    ]


def test_same_input_same_bytes(clusters_of, pools):
    reversed_pools = dict(reversed(list(pools.items())))
    assert tree_of(clusters_of, pools) == tree_of(clusters_of, reversed_pools)


def test_every_yaml_file_is_yaml_and_says_where_it_comes_from(clusters_of, pools):
    for gitops in (
        {"gitops": "argocd", "gitops_repository": "https://git.example.com/x.git"},
        {"gitops": "flux", "gitops_source": "x"},
    ):
        for path, text in tree_of(clusters_of, pools, **gitops).items():
            if path.endswith(".yaml"):
                assert documents(text), path
                assert text.startswith("# "), path


def test_config_maps_hold_a_safe_default_and_what_the_values_name(clusters_of, pools):
    tree = tree_of(clusters_of, pools)
    for pool in pools:
        (config_map,) = documents(tree[f"objects/nvidia-device-plugin-{pool}.yaml"])
        values = yaml.safe_load(tree[f"values/nvidia-device-plugin-{pool}.yaml"])
        assert values["config"] == {"name": config_map["metadata"]["name"], "default": pool}
        assert "sharing" not in yaml.safe_load(config_map["data"]["default"])
        assert all(not lint(text).findings for text in config_map["data"].values())
        assert values["migStrategy"] == yaml.safe_load(config_map["data"][pool])["flags"]["migStrategy"]


def test_the_name_of_a_config_map_changes_with_its_content(clusters_of, pools):
    before = tree_of(clusters_of, pools)
    pools["shared"]["nvidia_sharing_memory_slice"] = "8GiB"
    after = tree_of(clusters_of, pools)
    name = "values/nvidia-device-plugin-shared.yaml"
    assert yaml.safe_load(before[name])["config"]["name"] != yaml.safe_load(after[name])["config"]["name"]
    other = "values/nvidia-device-plugin-batch.yaml"
    assert before[other] == after[other]


def test_a_pool_whose_hosts_differ_gets_a_configuration_for_each_kind(clusters_of, pools):
    special = {"shared-1": {"nvidia_sharing_memory_slice": "8GiB"}}
    (cluster,) = clusters_of({"shared": pools["shared"]}, hosts=3, of_host=special)
    assert [(item.pool, len(item.nodes)) for item in cluster.configurations] == [("shared", 2), ("shared", 1)]
    assert cluster.configurations[0].name == "shared"
    assert cluster.configurations[1].name.startswith("shared-")
    tree = cluster_tree(cluster)
    rules = documents(tree["node-labels/pools.yaml"])[0]["spec"]["rules"]
    assert [rule["matchFeatures"][0]["matchExpressions"]["nodename"]["value"] for rule in rules] == [
        ["shared-0", "shared-2"],
        ["shared-1"],
    ]


def test_facts_come_before_what_the_inventory_says(clusters_of, pools):
    gpus = [
        {
            "index": index,
            "name": "NVIDIA L40S",
            "board": "l40s-48gb",
            "architecture": "ada",
            "memory_mib": 46068,
            "mig": {"supported": False, "current": False},
        }
        for index in range(4)
    ]
    (cluster,) = clusters_of({"shared": pools["shared"]}, facts={"shared-0": gpus, "shared-1": gpus})
    assert cluster.configurations[0].capacity.resources == {"nvidia.com/gpu": 44}
    assert cluster.configurations[0].capacity.assumed == ()


def test_mps_pools_are_not_restarted_under_their_clients(clusters_of, pools):
    tree = tree_of(clusters_of, pools)
    assert yaml.safe_load(tree["values/nvidia-device-plugin-shared.yaml"])["updateStrategy"] == {"type": "OnDelete"}
    assert "updateStrategy" not in yaml.safe_load(tree["values/nvidia-device-plugin-batch.yaml"])


def test_a_daemon_on_the_host_keeps_the_charts_own_away(clusters_of, pools):
    pools["shared"]["nvidia_sharing_mps_manager"] = "host"
    values = yaml.safe_load(tree_of(clusters_of, pools)["values/nvidia-device-plugin-shared.yaml"])
    assert values["gfd"] == {"enabled": False}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({}, "one GPU Operator has one MIG strategy"),
        ({"batch": {"nvidia_mig_strategy": "mixed"}}, "refuses MPS with it"),
        (
            {"batch": {"nvidia_mig_strategy": "mixed"}, "shared": {"nvidia_sharing_mps_manager": "host"}},
            "its own MPS daemon",
        ),
    ],
)
def test_what_one_operator_cannot_do_is_refused_with_the_alternative(clusters_of, pools, change, match):
    for pool, variables in change.items():
        pools[pool].update(variables)
    with pytest.raises(Refused, match=match) as refusal:
        tree_of(clusters_of, pools, stack="gpu_operator")
    assert "device_plugin" in refusal.value.remedy


def test_the_operator_where_it_can(clusters_of, pools):
    del pools["training"]
    tree = tree_of(clusters_of, pools, stack="gpu_operator", mig_manager="operator")
    values = yaml.safe_load(tree["values/gpu-operator.yaml"])
    assert values["mig"]["strategy"] == "single"
    assert values["driver"]["enabled"] is values["toolkit"]["enabled"] is False
    assert values["devicePlugin"]["config"]["default"] == "default"
    (mig,) = documents(tree["objects/gpufleet-mig.yaml"])
    assert values["migManager"]["config"]["name"] == mig["metadata"]["name"]
    layouts = yaml.safe_load(mig["data"]["config.yaml"])["mig-configs"]
    assert layouts["batch"] == [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 7}}]
    assert layouts["all-disabled"] == [{"devices": "all", "mig-enabled": False}]
    labels = {rule["name"]: rule["labels"] for rule in documents(tree["node-labels/pools.yaml"])[0]["spec"]["rules"]}
    (plugin,) = documents(tree["objects/nvidia-device-plugin.yaml"])
    assert values["devicePlugin"]["config"]["name"] == plugin["metadata"]["name"]
    for rule in labels.values():
        assert rule["nvidia.com/device-plugin.config"] in plugin["data"]
    assert "nvidia.com/mig.config" not in labels["gpufleet shared"], "its boards have no MIG"
    assert "values/node-feature-discovery.yaml" not in tree, "the operator brings its own"


def test_layouts_of_single_gpus_in_mig_parteds_format(clusters_of, pools):
    pools["batch"]["nvidia_mig_strategy"] = "mixed"
    pools["batch"]["nvidia_mig_layout"] = [{"devices": [0, 1], "instances": {"1g.5gb": 7}}]
    tree = tree_of(clusters_of, {"batch": pools["batch"]}, stack="gpu_operator", mig_manager="operator")
    (mig,) = documents(tree["objects/gpufleet-mig.yaml"])
    assert yaml.safe_load(mig["data"]["config.yaml"])["mig-configs"]["batch"] == [
        {"devices": [0, 1], "mig-enabled": True, "mig-devices": {"1g.5gb": 7}},
        {"devices": [2, 3, 4, 5, 6, 7], "mig-enabled": False},
    ]


def test_eight_gib_over_two_gpus(clusters_of, pools):
    pools["shared"]["nvidia_sharing_gpus_per_pod"] = 2
    tree = tree_of(
        clusters_of,
        {"shared": pools["shared"]},
        requests=[{"memory": "8GiB", "gpus": 2}, {"memory": "4GiB", "gpus": 2}],
    )
    (pod,) = documents(tree["examples/shared-8gib-over-2.yaml"])
    assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"
    (narrow,) = documents(tree["examples/shared-4gib-over-2.yaml"])
    assert narrow["spec"]["containers"][0]["env"] == [
        {"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "value": "0=2048M,1=2048M"}
    ]
    config = documents(tree["objects/nvidia-device-plugin-shared.yaml"])[0]["data"]["shared"]
    assert yaml.safe_load(config)["sharing"]["mps"]["failRequestsGreaterThanOne"] is False
    assert "Enforced by: MPS server" in tree["examples/shared-8gib-over-2.yaml"]


def test_a_pod_over_more_gpus_than_the_device_plugin_gives_is_refused(clusters_of, pools):
    with pytest.raises(Refused, match="gives a container one slice") as refusal:
        tree_of(clusters_of, {"shared": pools["shared"]}, requests=[{"memory": "8GiB", "gpus": 2}])
    assert "nvidia_sharing_gpus_per_pod: 2" in refusal.value.remedy
    pools["shared"]["nvidia_sharing_gpus_per_pod"] = 5
    with pytest.raises(Refused, match="a node of the pool has 4"):
        clusters_of({"shared": pools["shared"]})


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        ({"memory": "9GiB", "gpus": 2}, "is not a whole number of GiB"),
        ({"memory": "8GiB", "gpus": 1}, "Two slices on one GPU are not one larger slice"),
        ({"memory": "20GiB", "gpus": 5}, "has 4"),
    ],
)
def test_requests_that_no_pod_can_make(clusters_of, pools, request_, match):
    pools["shared"]["nvidia_sharing_gpus_per_pod"] = 2
    with pytest.raises(Refused, match=match):
        tree_of(clusters_of, {"shared": pools["shared"]}, requests=[request_])


def test_pods_of_hami_and_of_claims_ask_for_any_size(clusters_of, pools):
    gpus = pools["shared"]["gpu_facts_gpus"]
    asked = {"gpu_facts_gpus": gpus, "nvidia_sharing_memory_slice": "4GiB"}
    requests = [{"memory": "7GiB"}, {"memory": "20GiB", "gpus": 2}]
    tree = tree_of(clusters_of, {"hami": {**asked, "nvidia_sharing_backend": "hami"}}, requests=requests)
    (pod,) = documents(tree["examples/hami-7gib-over-1.yaml"])
    assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] == str(7 * 1024)
    tree = tree_of(
        clusters_of, {"claims": {**asked, "nvidia_sharing_backend": "dra"}}, requests=requests, version="1.36"
    )
    claim, _pod = documents(tree["examples/claims-20gib-over-2.yaml"])
    devices = claim["spec"]["spec"]["devices"]
    assert [one["exactly"]["capacity"]["requests"]["memory"] for one in devices["requests"]] == ["10240Mi"] * 2
    assert devices["constraints"][0]["distinctAttribute"] == "gpu.nvidia.com/uuid"
    with pytest.raises(Refused, match="60GiB on each GPU, and a GPU of pool claims has") as refusal:
        tree_of(
            clusters_of,
            {"claims": {**asked, "nvidia_sharing_backend": "dra"}},
            requests=[{"memory": "60GiB"}],
            version="1.36",
        )
    assert "spread over more GPUs" in refusal.value.remedy


def test_shares_by_claims_need_a_scheduler_that_sees_more_than_the_first_gpu(clusters_of):
    def pool(count):
        gpus = {"gpu_facts_gpus": [{"board": "l40s", "count": count}]}
        return {"claims": {**gpus, "nvidia_sharing_memory_slice": "4GiB", "nvidia_sharing_backend": "dra"}}

    with pytest.raises(Refused, match="allocates shares of the first one of a node only") as refusal:
        tree_of(clusters_of, pool(2), version="1.34")
    assert "1.35 or newer" in refusal.value.remedy
    for count, version in ((1, "1.34"), (2, "1.35"), (2, "1.36")):
        assert "values/dra-driver-nvidia-gpu.yaml" in tree_of(clusters_of, pool(count), version=version)


def test_a_request_is_answered_for_every_pool_and_refused_where_none_serves_it(clusters_of, pools):
    hami = {**pools["shared"], "nvidia_sharing_mode": "none", "nvidia_sharing_backend": "hami"}
    # Both offer nvidia.com/gpu, unless the plugin's is renamed.
    shared = {**pools["shared"], "nvidia_sharing_rename": True}
    tree = tree_of(clusters_of, {"shared": shared, "soft": hami}, requests=[{"memory": "6GiB"}])
    assert "examples/soft-6gib-over-1.yaml" in tree
    assert "examples/shared-6gib-over-1.yaml" not in tree
    readme = tree["README.md"]
    written = "`nvidia.com/gpu: 1`, `nvidia.com/gpumem: 6144`: `examples/soft-6gib-over-1.yaml`"
    assert f"| 6GiB over 1 | soft | {written} | - |" in readme
    assert "| 6GiB over 1 | shared | 6GiB on each GPU, and a slice of pool shared is 4GiB | - |" in readme
    assert "best effort" in readme and "guaranteed by HAMi's scheduler" in readme
    with pytest.raises(Refused, match="a slice of pool shared is 4GiB"):
        tree_of(clusters_of, {"shared": shared}, requests=[{"memory": "6GiB"}])


SLICE = {"nvidia_sharing_memory_slice": "4GiB", "nvidia_sharing_gpus_per_pod": 2}


@pytest.mark.parametrize(
    ("sharing", "said"),
    [
        ({"nvidia_sharing_mode": "mps"}, "`nvidia.com/gpu: 2`: `examples/pool-8gib-over-2.yaml` | best effort"),
        (
            {"nvidia_sharing_mode": "time_slicing"},
            "`nvidia.com/gpu: 2`: `examples/pool-8gib-over-2.yaml` | best effort",
        ),
        (
            {"nvidia_sharing_backend": "hami"},
            "`nvidia.com/gpu: 2`, `nvidia.com/gpumem: 4096`: `examples/pool-8gib-over-2.yaml` | guaranteed by HAMi's scheduler",
        ),
        (
            {"nvidia_sharing_backend": "dra"},
            "a claim with 2 requests of `memory: 4096Mi`: `examples/pool-8gib-over-2.yaml` | guaranteed by the claim",
        ),
    ],
)
def test_whether_the_gpus_of_a_pod_are_distinct_is_said_for_every_backend(clusters_of, pools, sharing, said):
    pool = {"gpu_facts_gpus": pools["shared"]["gpu_facts_gpus"], **SLICE, **sharing}
    tree = tree_of(clusters_of, {"pool": pool}, requests=[{"memory": "8GiB", "gpus": 2}], version="1.36")
    assert f"| 8GiB over 2 | pool | {said}" in tree["README.md"]
    assert f"# 2 distinct GPUs: {said.rpartition('| ')[2]}" in tree["examples/pool-8gib-over-2.yaml"]


def test_a_pool_that_divides_no_memory_says_so_and_a_request_of_it_alone_is_refused(clusters_of, pools):
    whole = {"gpu_facts_gpus": [{"board": "a100-40gb", "count": 2}], "nvidia_sharing_rename": False}
    shared = {**pools["shared"], "nvidia_sharing_rename": True}
    tree = tree_of(clusters_of, {"shared": shared, "whole": whole}, requests=[{"memory": "4GiB"}])
    assert (
        "| whole | the pods of pool whole ask for nvidia.com/gpu by number, and nothing counts memory there | - |"
        in tree["README.md"]
    )
    claims = {**whole, "nvidia_sharing_backend": "dra"}
    for pool, match in ((whole, "ask for nvidia.com/gpu by number"), (claims, "claim whole devices")):
        with pytest.raises(Refused, match=match) as refusal:
            tree_of(clusters_of, {"whole": pool}, requests=[{"memory": "4GiB"}])
        assert "nvidia_sharing_memory_slice" in refusal.value.remedy
    # What the pool that divides memory lacks is the nearest.
    with pytest.raises(Refused, match="a slice of pool shared is 4GiB"):
        tree_of(clusters_of, {"shared": shared, "whole": whole}, requests=[{"memory": "6GiB"}])


def test_the_limit_of_mps_is_written_only_where_mps_enforces_it(clusters_of, pools):
    pool = {"gpu_facts_gpus": pools["shared"]["gpu_facts_gpus"], **SLICE, "nvidia_sharing_mode": "time_slicing"}
    tree = tree_of(clusters_of, {"pool": pool}, requests=[{"memory": "2GiB"}])
    assert "CUDA_MPS" not in tree["examples/pool-2gib-over-1.yaml"]


def test_hami(clusters_of, pools):
    hami = {
        "gpu_facts_gpus": pools["shared"]["gpu_facts_gpus"],
        "nvidia_sharing_backend": "hami",
        "nvidia_sharing_memory_slice": "4GiB",
        "nvidia_sharing_gpus_per_pod": 2,
    }
    tree = tree_of(clusters_of, {"training": pools["training"], "hami": hami})
    (pod,) = documents(tree["examples/hami-8gib-over-2.yaml"])
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    assert (limits["nvidia.com/gpu"], limits["nvidia.com/gpumem"]) == ("2", "4096")
    assert pod["spec"]["schedulerName"] == "hami-scheduler"
    plugin = yaml.safe_load(tree["values/hami.yaml"])["devicePlugin"]
    assert plugin["deviceMemoryScaling"] == 1
    labels = {rule["name"]: rule["labels"] for rule in documents(tree["node-labels/pools.yaml"])[0]["spec"]["rules"]}
    selector = {key: value for key, value in plugin["nvidiaNodeSelector"].items() if value is not None}
    assert selector.items() <= labels["gpufleet hami"].items()
    assert not selector.items() <= labels["gpufleet training"].items()
    assert "values/nvidia-device-plugin-hami.yaml" not in tree
    with pytest.raises(Refused, match=r"both offer nvidia\.com/gpu"):
        tree_of(clusters_of, {"batch": pools["batch"], "hami": hami})


def test_dra(clusters_of, pools):
    dra = {
        "gpu_facts_gpus": pools["shared"]["gpu_facts_gpus"],
        "nvidia_sharing_backend": "dra",
        "nvidia_sharing_memory_slice": "4GiB",
        "nvidia_sharing_gpus_per_pod": 2,
    }
    tree = tree_of(clusters_of, {"dra": dra}, version="1.36")
    claim, pod = documents(tree["examples/dra-8gib-over-2.yaml"])
    assert len(claim["spec"]["spec"]["devices"]["requests"]) == 2
    assert pod["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] == claim["metadata"]["name"]
    assert yaml.safe_load(tree["values/dra-driver-nvidia-gpu.yaml"])["featureGates"] == {"ConsumableShares": True}
    with pytest.raises(Refused, match=r"Kubernetes 1\.33"):
        tree_of(clusters_of, {"dra": dra}, version="1.33")


def test_a_dead_key_is_an_error(clusters_of, pools):
    with pytest.raises(Refused, match="no template of the chart nvidia-device-plugin"):
        tree_of(clusters_of, pools, values={"nvidia-device-plugin": {"gfd": {"sleepInterval": "30s"}}})
    tree = tree_of(
        clusters_of, pools, values={"nvidia-device-plugin": {"sleepInterval": "30s", "gfd": {"enabled": False}}}
    )
    values = yaml.safe_load(tree["values/nvidia-device-plugin-batch.yaml"])
    assert values["sleepInterval"] == "30s"
    assert values["gfd"] == {"enabled": False}


def test_gitops_needs_to_know_where_the_tree_is(clusters_of, pools):
    for kind in ("argocd", "flux"):
        with pytest.raises(Refused, match="needs to know where"):
            tree_of(clusters_of, pools, gitops=kind)


def test_argocd_takes_chart_and_values_from_where_they_are(clusters_of, pools):
    tree = tree_of(
        clusters_of, pools, gitops="argocd", gitops_repository="https://git.example.com/x.git", gitops_path="gpu"
    )
    (application,) = documents(tree["argocd/nvidia-device-plugin-batch.yaml"])
    chart, repository = application["spec"]["sources"]
    assert chart["targetRevision"] == "0.20.0"
    assert chart["helm"]["valueFiles"] == ["$tree/gpu/clusters/cluster/values/nvidia-device-plugin-batch.yaml"]
    assert repository["ref"] == "tree"


def test_flux_carries_the_values(clusters_of, pools):
    tree = tree_of(clusters_of, pools, gitops="flux", gitops_source="fleet")
    (release,) = documents(tree["flux/nvidia-device-plugin-batch.yaml"])
    assert release["spec"]["values"] == yaml.safe_load(tree["values/nvidia-device-plugin-batch.yaml"])
    (source,) = documents(tree["flux/source-node-feature-discovery.yaml"])
    assert source["spec"]["type"] == "oci"


def test_objects_can_be_left_to_the_chart(clusters_of, pools):
    tree = tree_of(clusters_of, pools, objects="chart")
    assert not [path for path in tree if path.startswith("objects/nvidia-device-plugin")]
    values = yaml.safe_load(tree["values/gpufleet-nvidia.yaml"])
    assert len(values["configMaps"]) == 3
    assert values["runtimeClass"] == {"create": True, "name": "nvidia"}


def test_without_node_feature_discovery_labels_are_applied_by_hand(clusters_of, pools):
    tree = tree_of(clusters_of, pools, node_feature_discovery=False)
    nodes = documents(tree["node-labels.yaml"])
    assert len(nodes) == 6
    assert all(node["metadata"]["labels"]["gpufleet.github.io/configuration"] for node in nodes)
    assert "node-labels/pools.yaml" not in tree
    assert "objects/node-labels.yaml" not in tree
    apply = "kubectl apply --server-side --field-manager=gpufleet -f node-labels.yaml"
    assert apply in tree["README.md"] and apply not in tree_of(clusters_of, pools)["README.md"]


def test_what_holds_the_driver_leaves_a_node_whose_clients_are_paused(clusters_of, pools):
    dra = {
        "gpu_facts_gpus": pools["shared"]["gpu_facts_gpus"],
        "nvidia_sharing_backend": "dra",
        "nvidia_sharing_memory_slice": "4GiB",
        "nvidia_sharing_gpus_per_pod": 2,
    }
    tree = tree_of(clusters_of, {"training": pools["training"]})
    by_dra = tree_of(clusters_of, {"dra": dra}, version="1.36")
    plugin = yaml.safe_load(tree["values/nvidia-device-plugin-training.yaml"])
    exporter = yaml.safe_load(tree["values/dcgm-exporter.yaml"])
    kubelet_plugin = yaml.safe_load(by_dra["values/dra-driver-nvidia-gpu.yaml"])["kubeletPlugin"]
    for found, name in ((plugin, "training"), (exporter, "training"), (kubelet_plugin, "dra")):
        spec = {"nodeSelector": found.get("nodeSelector"), "affinity": found["affinity"]}
        labels = {"gpufleet.github.io/configuration": name, "gpufleet.github.io/backend": name}
        assert clients.placed(spec, labels), found
        assert not clients.placed(spec, clients.paused(labels)), found
        assert not clients.placed(spec, {"gpufleet.github.io/backend": "hami"}), found
    assert not clients.placed({"nodeSelector": plugin["nodeSelector"]}, {"gpufleet.github.io/configuration": "other"})


def test_replicas_of_each_resource_reach_the_plugins_file(clusters_of, pools):
    pools["training"].update(
        nvidia_mig_layout=[{"devices": [0], "instances": {"1g.10gb": 7}}],
        nvidia_sharing_mode="time_slicing",
        nvidia_sharing_replicas={"gpu": 4, "1g.10gb": 2},
    )
    tree = tree_of(clusters_of, {"training": pools["training"]})
    config = yaml.safe_load(documents(tree["objects/nvidia-device-plugin-training.yaml"])[0]["data"]["training"])
    assert config["sharing"]["timeSlicing"]["resources"] == [
        {"name": "nvidia.com/gpu", "replicas": 4},
        {"name": "nvidia.com/mig-1g.10gb", "replicas": 2},
    ]
    shows = json.loads(tree["capacity.json"])["nodes"]["training-0"]["resources"]
    assert shows == {"nvidia.com/gpu": 28, "nvidia.com/mig-1g.10gb": 14}
    sharing = json.loads(tree["capacity.json"])["configurations"]["training"]["sharing"]
    assert sharing["replicas"] == {"nvidia.com/gpu": 4, "nvidia.com/mig-1g.10gb": 2}
    assert "in 2 parts" in tree["examples/training-mig-1g-10gb.yaml"]
    assert "in 4 parts" in tree["examples/training-gpu.yaml"]
    assert "4 on a device" in tree["README.md"]


def test_two_time_slices_of_one_gpu_are_legal(clusters_of, pools):
    pools["shared"].update(
        gpu_facts_gpus=[{"board": "l40s-48gb", "count": 1}],
        nvidia_sharing_mode="time_slicing",
        nvidia_sharing_gpus_per_pod=2,
    )
    tree = tree_of(clusters_of, {"shared": pools["shared"]})
    config = documents(tree["objects/nvidia-device-plugin-shared.yaml"])[0]["data"]["shared"]
    assert yaml.safe_load(config)["sharing"]["timeSlicing"]["failRequestsGreaterThanOne"] is False
    pools["shared"]["nvidia_sharing_gpus_per_pod"] = 13
    with pytest.raises(Refused, match="13 time slices, and a node of the pool has 1"):
        clusters_of({"shared": pools["shared"]})
    pools["shared"].update(nvidia_sharing_mode="mps", nvidia_sharing_gpus_per_pod=2)
    with pytest.raises(Refused, match="2 GPUs, and a node of the pool has 1"):
        clusters_of({"shared": pools["shared"]})
