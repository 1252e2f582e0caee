# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Objects of the GPU Operator, C(ClusterPolicy) and C(NVIDIADriver): what the API server accepts and the operator does not carry out.

The rules are those of the operator 26.7: controllers/{clusterpolicy,nvidiadriver,nodelabeling}_controller.go, controllers/object_controls.go,
internal/validator/validator.go, api/nvidia/v1alpha1/nvidiadriver_types.go, and the chart's templates/validations.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._driver.desired import DesiredDriver
from ...module_utils._driver.floors import shortfall
from ...module_utils._driver.refusals import board_refusals
from ...module_utils._driver.state import from_facts
from ...module_utils._formats.driver_versions import branch_of, is_branch, is_driver_version
from ...module_utils._plan import Refused
from ...module_utils._versions import numbers
from .finding import ERROR, Report, below, group_of, mapping
from .node import LintedNode
from .node import check as check_on_node

POLICY, DRIVER, CLUSTER = "ClusterPolicy", "NVIDIADriver", "GPUCluster"
#: The node label that the operator sets itself, to give each node to one NVIDIADriver.
_OWNER = "nvidia.com/gpu-operator.driver.owner"
#: Where an NVIDIADriver has no nodeSelector of its own.
_EVERY_GPU_NODE = {"nvidia.com/gpu.present": "true"}
_BY_UPGRADE = " and upgrade the hosts with gpufleet.nvidia.upgrade"
#: Where images are NVIDIA's; what a repository of one's own has cannot be known.
_NVIDIA = "nvcr.io/nvidia"
#: From this version of GPUDirect Storage on its module is built against the open kernel modules only.
_GDS_NEEDS_OPEN = (2, 17, 5)


def is_operator(document: Mapping[str, Any]) -> bool:
    """Return whether an object tells the GPU Operator what to do."""
    return group_of(document) == "nvidia.com" and document.get("kind") in (POLICY, DRIVER, CLUSTER)


def check(document: Mapping[str, Any], others: Sequence[Mapping[str, Any]], report: Report) -> None:
    """Check one object, beside others of the operator for the same cluster; without facts nothing is said of a node."""
    spec = mapping(document.get("spec"))
    if document["kind"] == POLICY:
        _policy(spec, report, others)
    elif document["kind"] == DRIVER:
        _owner(spec, report, others)
        _driver(spec, "spec", mapping(spec.get("gds")), mapping(spec.get("gdrcopy")), report)


def _policy(spec: Mapping[str, Any], report: Report, others: Sequence[Mapping[str, Any]]) -> None:
    kinds = [other.get("kind") for other in others]
    for kind, why, remedy in (
        (POLICY, f"there are two {POLICY} objects: the operator obeys the oldest and ignores the others", "Keep one."),
        (CLUSTER, f"there is a {CLUSTER} too: beside one the operator carries out no {POLICY}", "Keep one of them."),
    ):
        if kind in kinds:
            report.error("", why, remedy)
    cdi, toolkit, driver = (mapping(spec.get(key)) for key in ("cdi", "toolkit", "driver"))
    if cdi.get("nriPluginEnabled") is True:
        for key, section in (("cdi", cdi), ("toolkit", toolkit)):
            if section.get("enabled") is False:
                report.error(
                    "spec.cdi.nriPluginEnabled",
                    f"the NRI plugin is part of what spec.{key}.enabled: false turns off",
                    f"Set spec.{key}.enabled: true, or leave the NRI plugin out.",
                )
    if driver.get("enabled") is not False and driver.get("useNvidiaDriverCRD") in (None, False):
        _driver(driver, "spec.driver", mapping(spec.get("gds")), mapping(spec.get("gdrcopy")), report)
    if report.node is not None:
        _beside_the_host(spec, report.node, report)


def _beside_the_host(spec: Mapping[str, Any], node: LintedNode, report: Report) -> None:
    """Check what the operator would put beside, or take from, what the host has already."""
    driver, toolkit = node.facts.driver.on_disk_version, node.facts.toolkit.version
    for key, version, what, why, more in (
        ("driver", driver, "driver", "finds it and deploys no driver there, upgrades included", _BY_UPGRADE),
        ("toolkit", toolkit, "the container toolkit", "installs a second one and points the runtime to it", ""),
    ):
        if version and below(spec, key, "enabled") is not False:
            message = f"the host has {what} {version} of its own: the operator {why}"
            report.warning(f"spec.{key}.enabled", message, f"Set spec.{key}.enabled: false{more}.")
    if below(spec, "toolkit", "enabled") is False:
        _plugin(spec, report)
    manager = mapping(spec.get("migManager"))
    default = mapping(manager.get("config")).get("default", "all-disabled")
    if node.profiles and manager.get("enabled") is not False and default == "all-disabled":
        report.warning(
            "spec.migManager.config.default",
            f"a node without the label nvidia.com/mig.config gets all-disabled, and the MIG manager destroys the {len(node.profiles)} MIG devices "
            "that this one has",
            'Set spec.migManager.enabled: false, or spec.migManager.config.default: "".',
        )


def _plugin(spec: Mapping[str, Any], report: Report) -> None:
    """Check the device plugin as the operator starts it: its environment beats the plugin's own configuration."""
    flags = {"migStrategy": below(spec, "mig", "strategy") or "none"}
    started = () if below(spec, "cdi", "enabled") is False else ("cdi-annotations", "cdi-cri")
    found = Report(node=report.node)
    check_on_node({"flags": flags}, found, started)
    for finding in found.findings:
        add = report.error if finding.level == ERROR else report.warning
        add(f"spec.devicePlugin, started with {finding.path}", finding.message, finding.remedy)


def _owner(spec: Mapping[str, Any], report: Report, others: Sequence[Mapping[str, Any]]) -> None:
    """Check which nodes an NVIDIADriver is for: a node that two of them select gets neither."""
    selector = _selector(spec)
    if _OWNER in selector:
        report.error(
            f"spec.nodeSelector['{_OWNER}']", "the operator sets this label itself", "Select by another label."
        )
    for other in others:
        name, theirs = below(other, "metadata", "name"), mapping(other.get("spec"))
        if other.get("kind") == POLICY and below(theirs, "driver", "useNvidiaDriverCRD") in (None, False):
            message = f"{POLICY} {name} does not hand drivers over, so the operator ignores every {DRIVER}"
            report.error("", message, f"Set spec.driver.useNvidiaDriverCRD: true in the {POLICY}.")
        if other.get("kind") != DRIVER:
            continue
        if spec.get("default") is True and theirs.get("default") is True:
            report.error("spec.default", f"{name} is the default too: the operator then deploys neither", "Keep one.")
        elif True not in (spec.get("default"), theirs.get("default")) and _overlap(selector, _selector(theirs)):
            report.error(
                "spec.nodeSelector",
                f"every node of one is selected by {name} too: the operator deploys no driver on a node of both",
                "Select by a label that only one of them has, or set spec.default: true in the general one.",
            )


def _selector(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(spec.get("nodeSelector")) if "nodeSelector" in spec else _EVERY_GPU_NODE


def _overlap(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether the nodes of one selector are among those of the other; labels that differ are not traced to nodes."""
    # The operator looks at GPU nodes only.
    mine, theirs = (
        {(key, str(value)) for key, value in selector.items()} - set(_EVERY_GPU_NODE.items())
        for selector in (one, other)
    )
    return mine <= theirs or theirs <= mine


def _driver(
    driver: Mapping[str, Any], path: str, storage: Mapping[str, Any], copy: Mapping[str, Any], report: Report
) -> None:
    """Check the fields that both kinds of objects have, with those of GPUDirect Storage and of GDRCopy."""
    version, precompiled = str(driver.get("version") or ""), driver.get("usePrecompiled") is True
    for key, section, what in (("gds", storage, "GPUDirect Storage"), ("gdrcopy", copy, "GDRCopy")):
        if precompiled and section.get("enabled") is True:
            message = f"the operator deploys no driver with precompiled modules together with {what}"
            report.error(f"{path}.usePrecompiled", message, f"Set usePrecompiled: false, or {key}.enabled: false.")
    if precompiled and version.startswith("sha256:"):
        message = "precompiled drivers have an image for each kernel, so a digest names none"
        report.error(f"{path}.version", message, "Write the branch.")
    elif precompiled and is_driver_version(version) and str(driver.get("repository") or _NVIDIA).startswith(_NVIDIA):
        message = "images of precompiled drivers are named by the branch: there is none with this version"
        report.error(f"{path}.version", message, f'Write "{branch_of(version)}".')
    elif driver.get("usePrecompiled") in (None, False) and is_branch(version):
        report.error(
            f"{path}.version",
            f"only images of precompiled drivers are named by the branch: there is none {version}",
            f"Write a whole version of branch {version}, or set usePrecompiled: true.",
        )
    kernel_modules, of_storage = str(driver.get("kernelModuleType") or "auto"), str(storage.get("version") or "")
    needs_open = of_storage.startswith("sha256") or numbers(of_storage) >= _GDS_NEEDS_OPEN
    if storage.get("enabled") is True and kernel_modules in ("auto", "proprietary") and needs_open:
        message = "GPUDirect Storage from version 2.17.5 on needs the open kernel modules, and the operator deploys no driver without them"
        report.error(f"{path}.kernelModuleType", message, "Write open.")
    if "useOpenKernelModules" in driver:
        report.warning(f"{path}.useOpenKernelModules", "the operator no longer reads it", "Write kernelModuleType.")
    found = shortfall(version) if is_driver_version(version) else None
    if found is not None:
        why, instead = found
        report.warning(f"{path}.version", why, f"Write {instead} or newer.")
    if is_driver_version(version) or is_branch(version):
        _on_boards(version, kernel_modules, path, report)


def _on_boards(version: str, kernel_modules: str, path: str, report: Report) -> None:
    """Check a driver against the GPUs of a host."""
    try:
        host = from_facts(report.host)
    except Refused:
        return
    whole = version if is_driver_version(version) else ""
    branch = str(branch_of(version)) if whole else version
    flavour = kernel_modules if kernel_modules in ("open", "proprietary") else "open"
    for refusal in board_refusals(host, DesiredDriver(branch=branch, version=whole, flavour=flavour)):
        of_modules = refusal.thing.endswith("flavour")
        if of_modules and kernel_modules == "auto":
            continue
        report.error(
            f"{path}.{'kernelModuleType' if of_modules else 'version'}",
            refusal.reason,
            "Write another one, or select other nodes for it.",
        )
