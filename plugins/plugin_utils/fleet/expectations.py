# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: RUF009 (the functions declare fields)

"""Whether a node shows what its pool's description predicts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...module_utils._formats.documents import read_record
from ...module_utils._health.report import FAILED, PASSED, SKIPPED, WARNING, Check
from ...module_utils._plan import Refused
from ...module_utils._schema import boolean, has, mapping, needs, not_null, number, of, text
from . import served
from .objects import labels_of
from .pods import GPU_PREFIXES, quantity
from .sharing_configurations import COUNTS, LABEL, LABELS, ShownChoice
from .text import CONFIGURATION_LABEL, MIG_CONFIG_LABEL, MIG_STATE_LABEL, counted

#: What of the device plugin's configurations is not in C(choices).
OWN, MORE = "own", "more"


@dataclass(frozen=True)
class Expected:
    """What a node must show.

    :param labels: labels of gpu-feature-discovery that follow from the description.
    :param node_labels: labels that the rendered tree gives the node.
    :param devices: kind of device to count, as in ResourceSlices; empty where the DRA driver does not serve the node.
    :param mps_replicas: resource to its replicas, where the device plugin's own MPS daemon serves it.
    :param choices: what it must show under each configuration of the device plugin that the node's label can name.
    :param other_choices: what else is in the ConfigMap of the plugin: nothing (empty), C(own), the pool's own configuration, which the label
        of a rendered tree on the node names, or C(more), that of other pools as well.
    :param moved_to: while its pool is migrated, what serves a node that has been moved; else empty.
    :param before: what a node shows until then.
    """

    resources: Mapping[str, int]
    labels: Mapping[str, str]
    node_labels: Mapping[str, str] = field(default_factory=dict)
    mig_manager: bool = False
    mps_of_host: bool = False
    devices: Mapping[str, int] = field(default_factory=dict)
    mps_replicas: Mapping[str, int] = field(default_factory=dict)
    choices: Mapping[str, ShownChoice] = field(default_factory=dict)
    other_choices: str = ""
    moved_to: str = ""
    before: Expected | None = None


_NAME = text(253)
_CHOICES = mapping(not_null(of(ShownChoice)))


@dataclass(frozen=True)
class ShownBefore:
    """What a node of C(capacity.json) shows until it is moved, and what serves it then."""

    to: str = needs(_NAME)
    resources: Mapping[str, int] = needs(COUNTS)
    labels: Mapping[str, str] = needs(LABELS)
    devices: Mapping[str, int] | None = has(COUNTS)


@dataclass(frozen=True)
class ShownNode:
    """What a node of C(capacity.json) shows; what is null is as its configuration has it. C(selector): of each node that is found by a property."""

    configuration: str = has(_NAME, "")
    resources: Mapping[str, int] = needs(COUNTS, None)
    devices: Mapping[str, int] | None = has(COUNTS)
    labels: Mapping[str, str] | None = has(LABELS)
    node_labels: Mapping[str, str] | None = has(LABELS)
    choices: Mapping[str, ShownChoice] | None = has(_CHOICES)
    migration: ShownBefore | None = has(of(ShownBefore))
    selector: Mapping[str, str] | None = has(LABELS)


@dataclass(frozen=True)
class ShownSlice:
    replicas: int = needs(number())


@dataclass(frozen=True)
class ShownSharing:
    mode: str = has(_NAME, "")
    backend: str = has(_NAME, "")
    mps_of_host: bool = has(boolean, False)


@dataclass(frozen=True)
class ShownConfiguration:
    """What the nodes of a configuration have in common; C(content) is a hash, and empty in trees that do not tell."""

    pool: str = has(_NAME, "")
    content: str = has(text(63), "")
    labels: Mapping[str, str] | None = has(LABELS)
    node_labels: Mapping[str, str] | None = has(LABELS)
    choices: Mapping[str, ShownChoice] | None = has(_CHOICES)
    slices: Mapping[str, ShownSlice] | None = has(mapping(not_null(of(ShownSlice))))
    sharing: ShownSharing = has(of(ShownSharing), ShownSharing())
    each_node: ShownNode | None = has(of(ShownNode))


_ANY = ShownConfiguration()


@dataclass(frozen=True)
class ShownCluster:
    """What of a rendered C(capacity.json) is read again."""

    configurations: Mapping[str, ShownConfiguration] = needs(mapping(not_null(of(ShownConfiguration))))
    nodes: Mapping[str, ShownNode] = needs(mapping(not_null(of(ShownNode)), 10**6))


_CLUSTER = of(ShownCluster)


def read_capacity(text: str) -> ShownCluster | None:
    """Return what a C(capacity.json) says; None where the text is none."""
    found: ShownCluster | None = read_record(_CLUSTER, text)
    return found


def expected(text: str, source: str, node: str, there: Mapping[str, Any] | None = None) -> Expected:
    """Return what a rendered C(capacity.json) says that a node must show.

    :param there: the Node object; a node that the file does not name may have joined a pool that finds its nodes by a property.
    :raises Refused: it is no such file, or it has no such node.
    """
    document = read_capacity(text)
    if document is None:
        remedy = "Name the capacity.json of the cluster, below gpu_kubernetes_output_directory."
        raise Refused(source, "it is not a capacity.json that gpufleet.nvidia.render wrote", remedy)
    entry = document.nodes.get(node) or _joined(document.configurations, there or {})
    if entry is None:
        remedy = "Render the clusters again, or name the capacity.json of the cluster that has it."
        raise Refused(source, f"it has no node {node}", remedy)
    item = document.configurations.get(entry.configuration, _ANY)
    labels = (item.labels if entry.labels is None else entry.labels) or {}
    node_labels = (item.node_labels if entry.node_labels is None else entry.node_labels) or {}
    choices = (item.choices if entry.choices is None else entry.choices) or {}
    sharing, before = item.sharing, entry.migration
    of_plugin = (sharing.mode, sharing.backend) == ("mps", "mps") and not sharing.mps_of_host
    return Expected(
        entry.resources,
        labels,
        node_labels,
        mig_manager=MIG_CONFIG_LABEL in node_labels,
        mps_of_host=sharing.mps_of_host,
        mps_replicas={name: unit.replicas for name, unit in (item.slices or {}).items() if of_plugin},
        devices=entry.devices or {},
        choices=choices,
        moved_to=before.to if before else "",
        before=Expected(before.resources, before.labels, node_labels, devices=before.devices or {}) if before else None,
    )


def _joined(configurations: Mapping[str, ShownConfiguration], there: Mapping[str, Any]) -> ShownNode | None:
    """Return what the pool says of each of its nodes that the node has joined by a property."""
    labels = labels_of(there)
    for name, item in configurations.items():
        each = item.each_node
        # Releases of groups keep away from a node that Node Feature Discovery labelled for another pool.
        if (
            each
            and labels.get(CONFIGURATION_LABEL, name) == name
            and each.selector is not None
            and each.selector.items() <= labels.items()
        ):
            return replace(each, configuration=name)
    return None


def chosen(node: Mapping[str, Any], wanted: Expected) -> tuple[Expected, tuple[Check, ...]]:
    """Return what the node must show by the configuration that its label names, and what there is to say of the label.

    Where the rendered tree sets the label, what it sets is what must be.
    """
    labels = labels_of(node)
    if wanted.before is not None and labels.get(served.MIGRATED_LABEL) != wanted.moved_to:
        by = next(name for server, name in served.NAMES.items() if server != wanted.moved_to)
        note = f"served by {by}, until gpufleet.nvidia.migrate moves the node to {served.NAMES[wanted.moved_to]}"
        return wanted.before, (Check("migration", PASSED, note),)
    name = labels.get(LABEL)
    if not wanted.choices or LABEL in wanted.node_labels or not name:
        return wanted, ()
    shown = wanted.choices.get(name)
    if shown is not None:
        # Somebody who may label nodes chose it, so it is no mistake; that it differs from the default is still worth saying.
        check = Check("configuration", PASSED, f"{LABEL}={name} chooses what the node offers")
        return replace(wanted, resources=shown.resources, labels=shown.labels, mps_replicas=shown.mps_replicas), (
            check,
        )
    own = labels.get(CONFIGURATION_LABEL) if wanted.other_choices else None
    if wanted.other_choices == MORE or (wanted.other_choices == OWN and own in (None, name)):
        return wanted, ()
    named = sorted({*wanted.choices, *((own,) if own else ())})
    check = Check(
        "configuration",
        FAILED,
        f"{LABEL}={name}, and the device plugin's ConfigMap has no such configuration: the plugin and gpu-feature-discovery do not start, "
        "or keep what they had",
        f"kubectl label node {node['metadata'].get('name')} --overwrite {LABEL}=NAME with one of {', '.join(named)}; "
        f"or remove the label: {LABEL}-",
    )
    return wanted, (check,)


def gpu_allocatable(node: Mapping[str, Any]) -> dict[str, int]:
    """Return the GPU resources that a Node object offers; those with 0 are left out."""
    offered = ((node.get("status") or {}).get("allocatable")) or {}
    return {
        str(name): quantity(count)
        for name, count in sorted(offered.items())
        if str(name).startswith(GPU_PREFIXES) and quantity(count)
    }


def compare(node: Mapping[str, Any], wanted: Expected, published: Mapping[str, int] | None = None) -> tuple[Check, ...]:
    """Return the checks of a node against what its description predicts.

    :param published: kind of device to count in the node's ResourceSlices; None where nobody asked, because no DRA driver is to serve it.
    """
    checks: tuple[Check, ...] = (_allocatable(node, wanted.resources), _labels(node, wanted.labels))
    if published is not None:
        checks = (_devices(published, wanted.devices), *checks, _left_over(node))
    if wanted.mig_manager:
        # What the node offers follows from its layout, so this is the first to mend.
        checks = (_mig_manager(node), *checks)
    return (*checks, _node_labels(node, wanted.node_labels)) if wanted.node_labels else checks


#: What the states of the MIG manager but C(success) mean, and what to do. Source: NVIDIA/mig-parted, pkg/mig/reconfigure.
_UNFINISHED = {
    "pending": ("is still applying it", "Wait. If it stays so, see the log of the node's pod nvidia-mig-manager."),
    "rebooting": ("reboots the node to apply it", "Wait until the node is back."),
    "failed": (
        "failed to apply it",
        "See the log of the node's pod nvidia-mig-manager; it tries again when the label changes.",
    ),
}


def _mig_manager(node: Mapping[str, Any]) -> Check:
    """What the GPU Operator's MIG manager says of the layout that the node's label asks for."""
    there = labels_of(node)
    layout, state = there.get(MIG_CONFIG_LABEL), there.get(MIG_STATE_LABEL)
    asked = f"{MIG_CONFIG_LABEL}={layout or 'missing'}"
    if state == "success" and layout:
        return Check("mig manager", PASSED, f"{asked} is applied")
    if state in _UNFINISHED:
        what, step = _UNFINISHED[str(state)]
        return Check("mig manager", FAILED, f"{asked}: the MIG manager {what} ({MIG_STATE_LABEL}={state})", step)
    step = "Check that the operator runs nvidia-mig-manager on the node (gpu_kubernetes_mig_manager: operator), and read its log."
    return Check("mig manager", FAILED, f"{asked}, {MIG_STATE_LABEL}={state or 'missing'}", step)


def _left_over(node: Mapping[str, Any]) -> Check:
    """A kubelet keeps what a device plugin once offered, with 0 of it, and the scheduler then looks for no claim in its place."""
    offered = ((node.get("status") or {}).get("allocatable")) or {}
    names = sorted(str(name) for name in offered if str(name).startswith(GPU_PREFIXES) and not quantity(offered[name]))
    if not names:
        return Check("left over", PASSED, "no resource of a device plugin is left on the node")
    return Check(
        "left over",
        WARNING,
        f"the node still lists 0 of {', '.join(names)}, left by a device plugin: pods that ask for it wait for ever, although the DRA driver could serve them",
        "gpufleet.nvidia.migrate removes it. By hand: drain the node, stop the kubelet, remove "
        "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint, remove the resource from the node's status "
        "(kubectl patch node --subresource=status), and start the kubelet.",
    )


def different_resources(offered: Mapping[str, int], wanted: Mapping[str, int]) -> list[str]:
    """Return, for people, where what a node offers is not what it must; what is missing counts as 0."""
    return [
        f"{name}: {offered.get(name, 0)} instead of {wanted.get(name, 0)}"
        for name in sorted({*offered, *wanted})
        if offered.get(name, 0) != wanted.get(name, 0)
    ]


def _compared(name: str, wrong: Sequence[str], shown: str, step: str, where: str = "") -> Check:
    """Return the check of what a node shows: where it differs and what to do, or what it shows."""
    return Check(name, FAILED, where + "; ".join(wrong), step) if wrong else Check(name, PASSED, shown)


def _allocatable(node: Mapping[str, Any], resources: Mapping[str, int]) -> Check:
    there = gpu_allocatable(node)
    return _compared(
        "allocatable",
        different_resources(there, {name: int(count) for name, count in resources.items()}),
        counted(there) or "no GPU resources, as predicted",
        "Restart the device plugin's pod on the node. If it stays so, its log says which configuration it reads.",
    )


def _devices(there: Mapping[str, int], wanted: Mapping[str, int]) -> Check:
    return _compared(
        "devices of claims",
        different_resources(there, wanted),
        counted(there),
        "Restart the pod of the DRA driver on the node: it publishes what it found when it started. If it stays so, see its log.",
        "in the node's ResourceSlices ",
    )


def _labels(node: Mapping[str, Any], labels: Mapping[str, str]) -> Check:
    there = labels_of(node)
    if not any(_of_feature_discovery(str(name)) for name in there):
        step = "Enable gfd in the values of the device plugin's chart." if labels else ""
        return Check("labels", WARNING if labels else SKIPPED, "the node has no labels of gpu-feature-discovery", step)
    return _compared(
        "labels",
        _differing(node, labels),
        f"{len(labels)} labels as predicted",
        "Restart gpu-feature-discovery on the node; if it stays so, compare its configuration with the rendered values.",
    )


def _of_feature_discovery(name: str) -> bool:
    """Whether a label says that gpu-feature-discovery is at work. The GPU Operator and NFD write labels of that namespace, too."""
    theirs = name.startswith("nvidia.com/gpu.deploy.") or name == "nvidia.com/gpu.present"
    return (name.startswith("nvidia.com/gpu.") and not theirs) or name == "nvidia.com/mig.capable"


def _node_labels(node: Mapping[str, Any], labels: Mapping[str, str]) -> Check:
    return _compared(
        "node labels",
        _differing(node, labels),
        f"{len(labels)} labels as rendered",
        "Apply the rendered node labels, or let the GitOps controller apply them. Labels of gpu_kubernetes_node_match are set by what makes the node.",
    )


def _differing(node: Mapping[str, Any], labels: Mapping[str, str]) -> list[str]:
    there = labels_of(node)
    return [
        f"{name}={there.get(name, 'missing')} instead of {value}"
        for name, value in sorted(labels.items())
        if there.get(name) != value
    ]
