# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the linter says of the GPU Operator's C(ClusterPolicy) and C(NVIDIADriver).

Nobody asks the operator's own definitions here: its releases newer than 1.11 come from no registry that a test reaches.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.lint import lint, lint_files

from ....golden.corpus import TRAINING, recorded

HOST = recorded(TRAINING, "ready")
#: A driver that no bulletin speaks against.
VERSION = "580.178.04"
#: Fields of spec.driver (ClusterPolicy) or spec (NVIDIADriver), with fields of spec beside them, and where the linter finds something.
DRIVERS: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, str] | None]] = {
    "a whole version": ({"version": VERSION}, {}, None),
    "a branch with precompiled modules": ({"version": "580", "usePrecompiled": True}, {}, None),
    "a branch": ({"version": "580"}, {}, ("error", "version")),
    "a whole version with precompiled modules": (
        {"version": VERSION, "usePrecompiled": True},
        {},
        ("error", "version"),
    ),
    "a digest with precompiled modules": (
        {"version": "sha256:" + "0" * 64, "usePrecompiled": True},
        {},
        ("error", "version"),
    ),
    "a version below the security floor": ({"version": "580.65.06"}, {}, ("warning", "version")),
    "GPUDirect Storage with precompiled modules": (
        {"version": "580", "usePrecompiled": True, "kernelModuleType": "open"},
        {"gds": {"enabled": True, "version": "2.20.5"}},
        ("error", "usePrecompiled"),
    ),
    "GDRCopy with precompiled modules": (
        {"version": "580", "usePrecompiled": True},
        {"gdrcopy": {"enabled": True}},
        ("error", "usePrecompiled"),
    ),
    "GPUDirect Storage with modules of any kind": (
        {"version": VERSION},
        {"gds": {"enabled": True, "version": "v2.17.5"}},
        ("error", "kernelModuleType"),
    ),
    "an older GPUDirect Storage with modules of any kind": (
        {"version": VERSION},
        {"gds": {"enabled": True, "version": "v2.16.1"}},
        None,
    ),
    "GPUDirect Storage with the open modules": (
        {"version": VERSION, "kernelModuleType": "open"},
        {"gds": {"enabled": True, "version": "v2.20.5"}},
        None,
    ),
    "a field of older releases": (
        {"version": VERSION, "useOpenKernelModules": True},
        {},
        ("warning", "useOpenKernelModules"),
    ),
}


def policy(name: str = "cluster-policy", **spec: Any) -> dict[str, Any]:
    """Return a C(ClusterPolicy) for hosts with driver and toolkit of their own; the fields that the definition requires are there."""
    required = ("daemonsets", "dcgm", "dcgmExporter", "devicePlugin", "gfd", "nodeStatusExporter", "operator")
    given = {"driver": {"enabled": False}, "toolkit": {"enabled": False}, **spec}
    return {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": name},
        "spec": {**{key: {} for key in required}, **given},
    }


def nvidia_driver(name: str = "training", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "NVIDIADriver",
        "metadata": {"name": name},
        "spec": {"driverType": "gpu", "image": "driver", "repository": "nvcr.io/nvidia", **spec},
    }


def findings(document, facts=None):
    return [(one.level, one.path) for one in lint(yaml.safe_dump(document), facts).findings]


def in_a_file(*documents):
    """Return the paths of the errors that the linter finds in each object of one file."""
    # Of patches no field is required.
    verdicts = lint_files({"patch.yaml": yaml.safe_dump_all(documents)})
    return [[finding.path for finding in verdict.errors] for verdict in verdicts.values()]


@pytest.mark.parametrize("case", DRIVERS)
def test_drivers(case):
    driver, beside, expected = DRIVERS[case]
    found = [(expected[0], f"spec.driver.{expected[1]}")] if expected else []
    assert findings(policy(driver=driver, **beside)) == found
    assert findings(policy(driver={**driver, "enabled": False}, **beside)) == []
    assert findings(policy(driver={**driver, "useNvidiaDriverCRD": True}, **beside)) == []
    found = [(level, path.replace("spec.driver", "spec")) for level, path in found]
    assert findings(nvidia_driver(**driver, **beside)) == found


@pytest.mark.parametrize(
    ("device", "driver", "where"),
    [
        ("0x2901", {"version": VERSION, "kernelModuleType": "open"}, None),
        ("0x2901", {"version": VERSION}, None),
        ("0x2901", {"version": VERSION, "kernelModuleType": "proprietary"}, "spec.kernelModuleType"),
        ("0x2901", {"version": "535.309.01"}, "spec.version"),
        ("0x1db1", {"version": VERSION, "kernelModuleType": "open"}, "spec.kernelModuleType"),
        ("0x1db1", {"version": "595.91.07"}, "spec.version"),
        ("0x1db1", {"version": "595", "usePrecompiled": True}, "spec.version"),
    ],
)
def test_a_driver_that_the_boards_of_a_node_cannot_run(device, driver, where):
    """0x2901 is a B200, 0x1db1 a V100."""
    (gpu,) = (one for one in HOST["pci"] if one["kind"] == "gpu" and one["address"] == HOST["gpus"][0]["pci_address"])
    architecture = {"0x2901": "blackwell", "0x1db1": "volta"}[device]
    facts = {**HOST, "pci": [{**gpu, "device_id": device, "architecture": architecture}]}
    errors = [one.path for one in lint(yaml.safe_dump(nvidia_driver(**driver)), facts).errors]
    assert errors == ([where] if where else [])


def test_what_the_operator_would_do_beside_the_host_is_said():
    found = findings(policy(driver={"version": VERSION}, toolkit={}), HOST)
    assert {path for _level, path in found} == {
        *("spec.driver.enabled", "spec.toolkit.enabled", "spec.migManager.config.default")
    }
    kept = {"migManager": {"config": {"default": ""}}}
    cdi = [path for level, path in findings(policy(**kept), HOST) if level == "error"]
    assert cdi == ["spec.devicePlugin, started with flags.plugin.deviceListStrategy"]
    assert findings(policy(**kept, cdi={"enabled": False}, mig={"strategy": "mixed"}), HOST) == [
        ("warning", "spec.devicePlugin, started with flags.plugin.deviceListStrategy")
    ], "the toolkit of this host accepts volume mounts only"
    by_variable = {**HOST, "toolkit": {**HOST["toolkit"], "accept_envvar_unprivileged": True}}
    single = findings(policy(**kept, cdi={"enabled": False}, mig={"strategy": "single"}), by_variable)
    assert [path for _level, path in single] == ["spec.devicePlugin, started with flags.migStrategy"]
    for manager in (kept, {"migManager": {"enabled": False}}):
        assert findings(policy(**manager, cdi={"enabled": False}, mig={"strategy": "mixed"}), by_variable) == []


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"cdi": {"nriPluginEnabled": True}, "toolkit": {"enabled": True}}, 0),
        ({"cdi": {"nriPluginEnabled": True}}, 1),
        ({"cdi": {"nriPluginEnabled": True, "enabled": False}}, 2),
    ],
)
def test_the_nri_plugin_needs_what_it_is_part_of(spec, expected):
    assert findings(policy(**spec)) == [("error", "spec.cdi.nriPluginEnabled")] * expected


def test_objects_of_one_file_that_exclude_each_other():
    handed_over = {"driver": {"enabled": True, "useNvidiaDriverCRD": True}}
    cluster = {"apiVersion": "nvidia.com/v1alpha1", "kind": "GPUCluster", "metadata": {"name": "claims"}, "spec": {}}
    assert in_a_file(policy(), policy("another")) == [[""], [""]]
    assert in_a_file(policy(), cluster) == [[""], []]
    assert in_a_file(policy(), nvidia_driver()) == [[], [""]]
    assert in_a_file(policy(**handed_over), nvidia_driver()) == [[], []]


def test_fields_of_the_object_that_hands_claims_to_the_operator():
    cluster = {"apiVersion": "nvidia.com/v1alpha1", "kind": "GPUCluster", "metadata": {"name": "claims"}}
    wrong = {"draDriver": {"gpus": {"kubeletPlugin": {"healthchek": {}}}}, "daemonsets": {"updateStrategy": "On"}}
    found = findings({**cluster, "spec": wrong})
    slip, choice = "spec.draDriver.gpus.kubeletPlugin.healthchek", "spec.daemonsets.updateStrategy"
    assert found == [("error", choice), ("warning", slip)]


@pytest.mark.parametrize(
    ("one", "other", "where"),
    [
        ({}, {}, "spec.nodeSelector"),
        ({}, {"nodeSelector": {"board": "b200"}}, "spec.nodeSelector"),
        ({"nodeSelector": {"board": "b200"}}, {"nodeSelector": {"board": "h100"}}, None),
        ({"nodeSelector": {"board": "b200"}}, {"nodeSelector": {"board": "b200", "zone": "1"}}, "spec.nodeSelector"),
        ({"default": True}, {"nodeSelector": {"board": "h100"}}, None),
        ({"default": True}, {"default": True}, "spec.default"),
    ],
)
def test_nodes_that_two_drivers_are_for(one, other, where):
    assert (
        in_a_file(nvidia_driver("one", **one), nvidia_driver("other", **other)) == [[where]] * 2 if where else [[]] * 2
    )


def test_the_label_of_the_operator_is_no_selector():
    label = "nvidia.com/gpu-operator.driver.owner"
    assert findings(nvidia_driver(nodeSelector={label: "training"})) == [("error", f"spec.nodeSelector['{label}']")]


@pytest.mark.parametrize("spec", [None, [], "x", {"driver": []}, {"driver": {"version": 580}}, {"migManager": None}])
def test_what_has_other_types_is_left_to_the_api_server(spec):
    document = {**policy(), "spec": spec}
    assert all(level == "error" for level, _path in findings(document))
