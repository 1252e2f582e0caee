# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of a cluster whose pods ask by claims: DRA, and the racks whose IMEX is masked."""

from __future__ import annotations

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
    assert "## Who serves nvidia.com/gpu" in tree["README.md"]
    assert "## Who serves" not in tree_of(clusters_of, {"batch": pools["batch"]})["README.md"]
