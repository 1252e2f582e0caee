# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of a cluster whose pods ask by claims: DRA, and the racks whose IMEX is masked."""

from __future__ import annotations

import json

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.plugin_utils.render.test_tree import documents, tree_of

DRA_DEVICES = {
    "gpu_facts_gpus": [{"board": "h100-80gb-sxm", "count": 2}],
    "nvidia_sharing_backend": "dra",
}


def test_dra_without_a_slice_is_for_whole_gpus_and_the_mig_devices_of_the_layout(clusters_of):
    tree = tree_of(clusters_of, {"claims": DRA_DEVICES})
    claim, pod = documents(tree["examples/claims-gpu.yaml"])
    (request,) = claim["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"] == {"deviceClassName": "gpu.nvidia.com"}
    assert pod["spec"]["resourceClaims"] == [{"name": "gpus", "resourceClaimTemplateName": "claims-gpu"}]
    assert "runtimeClassName" not in pod["spec"]
    values = yaml.safe_load(tree["values/dra-driver-nvidia-gpu.yaml"])
    assert "featureGates" not in values
    assert "consumableShares" not in values
    divided = {**DRA_DEVICES, "nvidia_mig_strategy": "mixed", "nvidia_mig_layout": "all-balanced"}
    tree = tree_of(clusters_of, {"claims": divided})
    assert [path for path in tree if path.startswith("examples/")] == [
        f"examples/claims-mig-{profile}.yaml" for profile in ("1g-10gb", "2g-20gb", "3g-40gb")
    ]
    claim, _pod = documents(tree["examples/claims-mig-1g-10gb.yaml"])
    (request,) = claim["spec"]["spec"]["devices"]["requests"]
    (selector,) = request["exactly"]["selectors"]
    assert selector["cel"]["expression"] == "device.attributes['gpu.nvidia.com'].profile == '1g.10gb'"


def test_a_gpu_that_was_left_in_mig_mode_is_none_to_claim_as_a_whole(clusters_of):
    """The layout does not name it, so that nobody switches MIG off."""
    layout = {"nvidia_mig_strategy": "mixed", "nvidia_mig_layout": [{"devices": [1], "instances": {"1g.10gb": 7}}]}
    pool = {"nvidia_sharing_backend": "dra", **layout}

    def examples(left):
        board = {"board": "h100-80gb-sxm", "memory_mib": 81559, "architecture": "hopper", "gpu_instances": []}
        gpus = [
            {**board, "index": index, "uuid": f"GPU-{index}", "mig": {"supported": True, "current": on, "pending": on}}
            for index, on in enumerate((left, True))
        ]
        facts = {f"claims-{number}": gpus for number in range(2)}
        tree = tree_of(clusters_of, {"claims": pool}, facts=facts)
        return [path for path in tree if path.startswith("examples/")]

    assert examples(left=False) == ["examples/claims-gpu.yaml", "examples/claims-mig-1g-10gb.yaml"]
    assert examples(left=True) == ["examples/claims-mig-1g-10gb.yaml"]


@pytest.mark.parametrize(
    ("variables", "options", "thing"),
    [
        (
            {
                "nvidia_mig_strategy": "mixed",
                "nvidia_mig_layout": "all-balanced",
                "nvidia_sharing_memory_slice": "4GiB",
            },
            {},
            "nvidia_sharing_memory_slice",
        ),
        ({"nvidia_sharing_replicas": 4}, {}, "nvidia_sharing_replicas"),
        ({"nvidia_sharing_gpus_per_pod": 2}, {}, "nvidia_sharing_gpus_per_pod"),
        ({}, {"values": {"dra-driver-nvidia-gpu": {"featureGates": {"DynamicMIG": True}}}}, "featureGates.DynamicMIG"),
        ({}, {"values": {"dra-driver-nvidia-gpu": {"featureGates": {"AllAlpha": True}}}}, "featureGates.AllAlpha"),
        ({}, {"version": "1.33"}, "nvidia_sharing_backend"),
    ],
)
def test_what_dra_must_not_do_or_cannot_is_refused(clusters_of, variables, options, thing):
    with pytest.raises(Refused) as refused:
        tree_of(clusters_of, {"claims": {**DRA_DEVICES, **variables}}, **options)
    assert thing in refused.value.thing


def test_one_dra_driver_has_one_kind_of_claim(clusters_of):
    sliced = {**DRA_DEVICES, "nvidia_sharing_memory_slice": "4GiB"}
    with pytest.raises(Refused, match="serves it and pool whole"):
        tree_of(clusters_of, {"sliced": sliced, "whole": DRA_DEVICES})


RACK = {"gpu_facts_gpus": [{"board": "gb200-186gb", "count": 4}], "nvidia_driver_imex": "masked"}


def driver_values(tree):
    return yaml.safe_load(tree["values/dra-driver-nvidia-gpu.yaml"])


def test_racks_whose_imex_is_masked_get_compute_domains_beside_the_device_plugin(clusters_of, pools):
    tree = tree_of(clusters_of, {"rack": RACK, "training": pools["training"]})
    values = driver_values(tree)
    assert values["resources"] == {"gpus": {"enabled": False}, "computeDomains": {"enabled": True}}
    assert "gpuResourcesEnabledOverride" not in values
    assert "values: [rack]" in yaml.safe_dump(values["kubeletPlugin"], default_flow_style=None)
    domain, job = documents(tree["examples/rack-compute-domain.yaml"])
    template = domain["spec"]["channel"]["resourceClaimTemplate"]["name"]
    spec = job["spec"]["template"]["spec"]
    assert spec["resourceClaims"] == [{"name": "channel", "resourceClaimTemplateName": template}]
    assert spec["containers"][0]["resources"]["claims"] == [{"name": "channel"}]
    assert spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    on_hosts = tree_of(clusters_of, {"rack": {**RACK, "nvidia_driver_imex": "host"}})
    assert "values/dra-driver-nvidia-gpu.yaml" not in on_hosts
    assert "examples/rack-compute-domain.yaml" not in on_hosts


def test_racks_by_claims_get_gpus_and_compute_domains_from_one_driver(clusters_of):
    tree = tree_of(clusters_of, {"claims": DRA_DEVICES, "rack": {**RACK, "nvidia_sharing_backend": "dra"}})
    values = driver_values(tree)
    assert values["resources"] == {"computeDomains": {"enabled": True}}
    assert values["gpuResourcesEnabledOverride"] is True
    claim, _domain, job = documents(tree["examples/rack-compute-domain.yaml"])
    spec = job["spec"]["template"]["spec"]
    assert [one["name"] for one in spec["resourceClaims"]] == ["gpus", "channel"]
    assert spec["resourceClaims"][0]["resourceClaimTemplateName"] == claim["metadata"]["name"]


@pytest.mark.parametrize(
    ("others", "variables", "options", "thing", "reason"),
    [
        ({"claims": DRA_DEVICES}, {}, {}, "nvidia_driver_imex of pool rack", "the same GPUs as the device plugin"),
        ({}, {"nvidia_toolkit_device_injection": "volume_mounts"}, {}, "device_injection of pool rack", "by CDI"),
        ({}, {}, {"version": "1.33"}, "nvidia_driver_imex of pool rack", "Kubernetes 1.33"),
    ],
    ids=["the driver would serve GPUs twice", "no CDI", "Kubernetes too old"],
)
def test_compute_domains_that_could_not_work_are_refused(clusters_of, others, variables, options, thing, reason):
    with pytest.raises(Refused) as refused:
        tree_of(clusters_of, {**others, "rack": {**RACK, **variables}}, **options)
    assert thing in refused.value.thing
    assert reason in refused.value.reason


def test_a_name_that_two_may_serve_is_said(clusters_of, pools):
    tree = tree_of(clusters_of, {"claims": DRA_DEVICES, "batch": pools["batch"]})
    assert "## Who serves requests by name" in tree["README.md"]
    assert "## Who serves" not in tree_of(clusters_of, {"batch": pools["batch"]})["README.md"]


SHARED = {**DRA_DEVICES, "nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 3}
SERVED = {**DRA_DEVICES, "nvidia_sharing_mode": "mps", "nvidia_sharing_replicas": 4}
DIVIDED = {"nvidia_mig_strategy": "mixed", "nvidia_mig_layout": [{"devices": "all", "instances": {"3g.40gb": 2}}]}


def parameters_of(claim):
    (config,) = claim["spec"]["devices"]["config"]
    assert config["requests"] == [claim["spec"]["devices"]["requests"][0]["name"]]
    assert config["opaque"]["driver"] == "gpu.nvidia.com"
    found = config["opaque"]["parameters"]
    assert found["apiVersion"] == "resource.nvidia.com/v1beta1"
    return found["kind"], found["sharing"]


def test_pods_share_a_gpu_in_time_slices_by_one_claim(clusters_of):
    tree = tree_of(clusters_of, {"claims": {**SHARED, "nvidia_sharing_time_slice": "long"}})
    claim, job = documents(tree["examples/claims-gpu.yaml"])
    assert claim["kind"] == "ResourceClaim"
    slicing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}
    assert parameters_of(claim) == ("GpuConfig", slicing)
    assert job["spec"]["parallelism"] == job["spec"]["completions"] == 3
    spec = job["spec"]["template"]["spec"]
    assert spec["resourceClaims"] == [{"name": "gpus", "resourceClaimName": claim["metadata"]["name"]}]
    assert driver_values(tree)["featureGates"] == {"TimeSlicingSettings": True}
    assert json.loads(tree["capacity.json"])["nodes"]["claims-0"]["devices"] == {"gpu.nvidia.com": 2}
    assert "nobody counts the pods that name the claim" in tree["README.md"]
    assert "3 on a device" in tree["README.md"]


def test_pods_share_a_gpu_by_the_mps_daemon_of_their_claim(clusters_of):
    tree = tree_of(clusters_of, {"claims": SERVED})
    claim, job = documents(tree["examples/claims-gpu.yaml"])
    limits = {"defaultActiveThreadPercentage": 25, "defaultPinnedDeviceMemoryLimit": f"{81559 // 4}Mi"}
    assert parameters_of(claim) == ("GpuConfig", {"strategy": "MPS", "mpsConfig": limits})
    assert job["spec"]["parallelism"] == 4
    assert driver_values(tree)["featureGates"] == {"MPSSupport": True}
    tree = tree_of(clusters_of, {"claims": {**SERVED, **DIVIDED}})
    claim, _job = documents(tree["examples/claims-mig-3g-40gb.yaml"])
    assert parameters_of(claim)[0] == "MigDeviceConfig"


def test_mig_devices_are_shared_by_the_claim_alone_for_they_have_no_time_slices(clusters_of):
    tree = tree_of(clusters_of, {"claims": {**SHARED, **DIVIDED}})
    claim, job = documents(tree["examples/claims-mig-3g-40gb.yaml"])
    assert "config" not in claim["spec"]["devices"]
    assert job["spec"]["parallelism"] == 3


def test_both_ways_of_sharing_and_whole_devices_have_one_driver(clusters_of):
    tree = tree_of(clusters_of, {"sliced": SHARED, "served": SERVED, "whole": DRA_DEVICES})
    assert driver_values(tree)["featureGates"] == {"TimeSlicingSettings": True, "MPSSupport": True}
    claim, _pod = documents(tree["examples/whole-gpu.yaml"])
    assert claim["kind"] == "ResourceClaimTemplate"
    assert "config" not in claim["spec"]["spec"]["devices"]


def test_helm_test_claims_each_kind_of_device(clusters_of):
    checks = yaml.safe_load(tree_of(clusters_of, {"claims": {**SERVED, **DIVIDED}})["values/gpufleet-nvidia.yaml"])
    (check,) = checks["verification"]["checks"]
    assert check["device"] == "3g.40gb"
    assert check["claim"]["config"][0]["opaque"]["parameters"]["kind"] == "MigDeviceConfig"


def test_a_request_is_a_limit_of_the_shared_claim_of_mps_and_of_time_slices_a_share_of_the_slices(clusters_of):
    slices = {**DRA_DEVICES, "nvidia_sharing_memory_slice": "10GiB", "nvidia_sharing_gpus_per_pod": 2}
    ask = [{"memory": "40GiB", "gpus": 2}]
    tree = tree_of(clusters_of, {"claims": {**slices, "nvidia_sharing_mode": "mps"}}, requests=ask)
    claim, job = documents(tree["examples/claims-40gib-over-2.yaml"])
    assert claim["spec"]["devices"]["requests"][0]["exactly"]["count"] == 2
    limits = {"defaultActiveThreadPercentage": 33, "defaultPinnedDeviceMemoryLimit": "20480Mi"}
    assert parameters_of(claim)[1]["mpsConfig"] == limits
    assert job["spec"]["parallelism"] == 3, "as many as have room beside each other"
    assert "`defaultPinnedDeviceMemoryLimit: 20480Mi`" in tree["README.md"]
    assert "guaranteed by the claim (each device once)" in tree["README.md"]
    with pytest.raises(Refused, match="a slice of pool claims is 10GiB"):
        tree_of(clusters_of, {"claims": {**slices, "nvidia_sharing_mode": "time_slicing"}}, requests=ask)


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"nvidia_sharing_replicas": 0}, "mps needs the number of slices"),
        ({"nvidia_sharing_mps_manager": "host"}, "the DRA driver starts an MPS daemon for each claim"),
        ({"nvidia_sharing_rename": True}, "name a ResourceClaim"),
        ({"nvidia_sharing_compute_mode": "exclusive_process"}, "the DRA driver sets the one that each claim needs"),
        ({"nvidia_sharing_replicas": 61}, "at most 60 clients"),
        ({"nvidia_sharing_memory_slice": "1GiB"}, "both nvidia_sharing_replicas"),
        ({"nvidia_sharing_mps_active_thread_percentage": 50}, "MPS daemons of the host"),
        ({**DIVIDED, "nvidia_sharing_replicas": 40}, "clients"),
        ({"nvidia_sharing_migrate_from": "mps"}, "the DRA driver gives each pod a device of its own"),
        (
            {**DIVIDED, "nvidia_sharing_mode": "time_slicing", "nvidia_sharing_time_slice": "long"},
            "sets no time slice of MIG devices",
        ),
        (
            {"nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": {"1g.10gb": 2}},
            "the node has no such resource",
        ),
    ],
)
def test_what_claims_cannot_share_is_refused(clusters_of, variables, text):
    with pytest.raises(Refused) as refused:
        tree_of(clusters_of, {"claims": {**SERVED, **variables}})
    assert text in refused.value.message
    assert refused.value.remedy


def test_consumable_shares_and_shared_claims_are_no_kinds_of_one_driver(clusters_of):
    sliced = {**DRA_DEVICES, "nvidia_sharing_memory_slice": "4GiB"}
    with pytest.raises(Refused, match="serves it and pool shared"):
        tree_of(clusters_of, {"sliced": sliced, "shared": SERVED})


ONE = {"gpu_facts_gpus": [{"board": "h100-80gb-sxm", "count": 2}], **DIVIDED}


@pytest.mark.parametrize(
    ("variables", "said", "example"),
    [
        ({}, "`nvidia.com/mig-3g.40gb: 2`", "pool-mig-3g-40gb-x2"),
        ({"nvidia_mig_strategy": "single"}, "`nvidia.com/gpu: 2`", "pool-mig-3g-40gb-x2"),
        (
            {"nvidia_sharing_backend": "dra"},
            "a claim of the class `mig.nvidia.com` with `profile == '3g.40gb'` and `count: 2`",
            "pool-mig-3g-40gb-x2",
        ),
    ],
)
def test_a_request_for_mig_devices_is_answered_as_the_pool_is_served(clusters_of, variables, said, example):
    tree = tree_of(clusters_of, {"pool": {**ONE, **variables}}, requests=[{"profile": "3G.40GB", "count": 2}])
    assert f"| 2 x 3g.40gb | pool | {said}: `examples/{example}.yaml` | - |" in tree["README.md"]
    objects = documents(tree[f"examples/{example}.yaml"])
    text = json.dumps(objects)
    assert '"count": 2' in text if variables.get("nvidia_sharing_backend") else '"2"' in text


@pytest.mark.parametrize(
    ("request_", "variables", "thing", "text"),
    [
        (
            {"profile": "1g.10gb"},
            {"nvidia_sharing_backend": "dra"},
            "gpu_kubernetes_requests[0].profile",
            "makes no 1g.10gb (it makes 3g.40gb x4). Set nvidia_mig_layout: [{devices: all, instances: {1g.10gb: 7}}]",
        ),
        (
            {"profile": "1g.10gb"},
            {"nvidia_mig_strategy": "none", "nvidia_mig_layout": []},
            "gpu_kubernetes_requests[0].profile",
            "Set nvidia_mig_strategy: mixed and nvidia_mig_layout: [{devices: all, instances: {1g.10gb: 7}}]",
        ),
        ({"profile": "1g.5gb"}, {}, "gpu_kubernetes_requests[0].profile", "Its GPUs have the profiles 1g.10gb"),
        ({"profile": "3g.40gb", "count": 5}, {}, "gpu_kubernetes_requests[0].count", "a node of pool pool has 4"),
        (
            {"profile": "3g.40gb", "count": 2},
            {"nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 2},
            "gpu_kubernetes_requests[0].count",
            "nvidia_sharing_gpus_per_pod: 2",
        ),
        ({"profile": "small"}, {}, "gpu_kubernetes_requests[0].profile", "is not a MIG profile name"),
        ({"profile": "3g.40gb", "memory": "4GiB"}, {}, "gpu_kubernetes_requests[0]", "both memory and profile"),
        ({}, {}, "gpu_kubernetes_requests[0]", "neither memory nor profile"),
        ({"profile": "3g.40gb", "gpus": 2}, {}, "gpu_kubernetes_requests[0].gpus", "belongs to memory"),
    ],
)
def test_a_claim_for_what_no_layout_makes_is_refused_with_the_layout_that_would_do(
    clusters_of, request_, variables, thing, text
):
    with pytest.raises(Refused) as refused:
        tree_of(clusters_of, {"pool": {**ONE, **variables}}, requests=[request_])
    assert refused.value.thing == thing
    assert text in refused.value.message
