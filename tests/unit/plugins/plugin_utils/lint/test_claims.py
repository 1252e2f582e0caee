# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the linter says of objects by which devices of the DRA driver are claimed."""

from __future__ import annotations

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.lint import lint, lint_files

from .claim_cases import CONFIGURATIONS, PARAMETERS, PROFILE, REQUESTS, claim
from .test_lint_rules import facts, gpu

EXACTLY = "spec.spec.devices.requests[0].exactly"
NODE = facts(gpu(0), gpu(1, profiles=["1g.10gb", "1g.10gb", "3g.40gb"]))


def findings(document, node=None):
    return lint(yaml.safe_dump(document), node).findings


@pytest.mark.parametrize("case", REQUESTS)
def test_requests(case):
    request, expected = REQUESTS[case]
    found = [(one.level, one.path) for one in findings(claim(request))]
    assert found == ([(expected[0], f"{EXACTLY}.{expected[1]}")] if expected else [])
    by_hand = [(one.level, one.path) for one in findings(claim(request, kind="ResourceClaim"))]
    assert by_hand == [(level, path.replace("spec.spec", "spec")) for level, path in found]


def test_older_versions_of_the_api_and_alternatives_are_read_too():
    wrong = {"deviceClassName": "migs.nvidia.com"}
    flat = claim(wrong)
    flat["spec"]["spec"]["devices"]["requests"] = [{"name": "device", **wrong}]
    in_v1 = [one.message for one in findings(flat)]
    assert len(in_v1) == 2 and "resource.k8s.io/v1 has it below exactly or firstAvailable" in in_v1[0]
    flat["apiVersion"] = "resource.k8s.io/v1beta1"
    either = claim(wrong)
    either["spec"]["spec"]["devices"]["requests"] = [{"name": "device", "firstAvailable": [{"name": "a", **wrong}]}]
    assert [one.path for one in findings(flat)] == ["spec.spec.devices.requests[0].deviceClassName"]
    assert [one.path for one in findings(either)] == ["spec.spec.devices.requests[0].firstAvailable[0].deviceClassName"]


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"deviceClassName": "gpu.nvidia.com"}, ""),
        ({"deviceClassName": "gpu.nvidia.com", "count": 2}, "it asks for 2, and the node has 1 GPUs without MIG"),
        ({"deviceClassName": "mig.nvidia.com", "count": 3}, ""),
        ({"deviceClassName": "mig.nvidia.com", "count": 4}, "the node has 3 such MIG devices"),
        ({"deviceClassName": "mig.nvidia.com", "expression": PROFILE, "count": 2}, ""),
        ({"deviceClassName": "mig.nvidia.com", "expression": PROFILE, "count": 3}, "the node has 2 such MIG devices"),
        (
            {"deviceClassName": "mig.nvidia.com", "expression": PROFILE.replace("1g.10gb", "2g.20gb")},
            "no MIG device of the profile 2g.20gb",
        ),
    ],
)
def test_what_a_node_cannot_serve(request_, said):
    found = findings(claim(request_), NODE)
    assert [said in one.message for one in found] == ([True] if said else [])


def test_the_remedy_names_the_layout_that_is_there():
    (found,) = findings(
        claim({"deviceClassName": "mig.nvidia.com", "expression": PROFILE.replace("1g.10gb", "7g.80gb")}), NODE
    )
    assert found.remedy == "Its MIG devices: 2 x 1g.10gb, 1 x 3g.40gb. Add the profile to nvidia_mig_layout."


@pytest.mark.parametrize(
    ("attribute", "wrong"),
    [("uuid", False), ("parentUUID", True), ("slot", True)],
)
def test_constraints(attribute, wrong):
    constraint = {"requests": ["device"], "distinctAttribute": f"gpu.nvidia.com/{attribute}"}
    found = findings(claim({"deviceClassName": "gpu.nvidia.com"}, constraint))
    assert [one.path for one in found] == ["spec.spec.devices.constraints[0].distinctAttribute"] * wrong
    assert not findings(
        claim({"deviceClassName": "mig.nvidia.com"}, {**constraint, "distinctAttribute": "gpu.nvidia.com/parentUUID"})
    )


@pytest.mark.parametrize(("parameters", "request_", "path", "said"), CONFIGURATIONS)
def test_how_the_pods_of_a_claim_share_its_devices(parameters, request_, path, said):
    document = claim({"deviceClassName": "gpu.nvidia.com", **request_})
    opaque = {"driver": "gpu.nvidia.com", "parameters": {**PARAMETERS, **parameters}}
    document["spec"]["spec"]["devices"]["config"] = [{"requests": ["device"], "opaque": opaque}]
    found = findings(document)
    errors = [one for one in found if one.level == "error"]
    assert [one.path for one in errors] == ([f"spec.spec.devices.config[0].opaque.parameters{path}"] if said else [])
    assert not said or said in f"{errors[0].message} {errors[0].remedy}"
    if not said:
        assert ["feature gate" in one.message for one in found] == [True]


def test_the_parameters_of_another_driver_and_of_a_class():
    opaque = {"driver": "network.example.com", "parameters": {"anything": True}}
    assert not findings(device_class("nic.example.com", config=[{"opaque": opaque}]))
    opaque = {"driver": "gpu.nvidia.com", "parameters": {**PARAMETERS, "sharing": {"strategy": "Shared"}}}
    found = findings(device_class("shared.example.com", config=[{"opaque": opaque}]))
    assert [one.path for one in found] == ["spec.config[0].opaque.parameters.sharing.strategy"]


def device_class(name, expression="device.driver == 'gpu.nvidia.com'", **spec):
    selectors = [{"cel": {"expression": expression}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors, **spec},
    }


def test_classes():
    assert not findings(device_class("gpu.nvidia.com", extendedResourceName="nvidia.com/gpu"))
    (twice,) = findings(device_class("h100.example.com", extendedResourceName="nvidia.com/gpu"))
    assert (twice.level, twice.path) == ("warning", "spec.extendedResourceName")
    (open_,) = findings(device_class("h100.example.com", "device.attributes['gpu.nvidia.com'].brand == 'Nvidia'"))
    assert (open_.level, "device.driver" in open_.message) == ("warning", True)


@pytest.mark.parametrize("kind", ["Pod", "Job", "CronJob"])
def test_a_pod_that_asks_for_mig_devices_by_their_class_gets_none(kind):
    pod = {
        "containers": [{"name": "a", "resources": {"limits": {"deviceclass.resource.kubernetes.io/mig.nvidia.com": 1}}}]
    }
    spec = {
        "Pod": pod,
        "Job": {"template": {"spec": pod}},
        "CronJob": {"jobTemplate": {"spec": {"template": {"spec": pod}}}},
    }[kind]
    document = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    (found,) = findings(document)
    assert found.level == "error" and "without any device" in found.message
    pod["containers"][0]["resources"]["limits"] = {"deviceclass.resource.kubernetes.io/gpu.nvidia.com": 1}
    assert not findings(document)


def test_a_file_with_several_objects_is_taken_apart():
    good, bad = (
        claim({"deviceClassName": "gpu.nvidia.com"}),
        claim({"deviceClassName": "gpus.nvidia.com"}, kind="ResourceClaim"),
    )
    text = yaml.safe_dump_all([good, bad, {"version": "v1"}])
    found = {name: [one.level for one in verdict.findings] for name, verdict in lint_files({"f": text}).items()}
    assert found == {
        "f[ResourceClaimTemplate/claimed]": [],
        "f[ResourceClaim/claimed]": ["error"],
        "f[configuration]": [],
    }


@pytest.mark.parametrize(
    ("attribute", "wrong"),
    [("gpuModuleID == 1", False), ("partition4 == 1", False), ("index == 0", True), ("numa == 0", True)],
)
def test_attributes_are_those_that_the_driver_publishes(attribute, wrong):
    """As cmd/gpu-kubelet-plugin/deviceinfo.go of 0.5.0 has them."""
    expression = f"device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].{attribute}"
    said = [
        finding
        for finding in findings(device_class("h100.example.com", expression))
        if "have no attribute" in finding.message
    ]
    assert bool(said) == wrong
