# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a configuration does on one node, whose facts are known: which resources it has, what MPS meets there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...module_utils import _injection as injection
from ...module_utils._boards.board import mps_clients_of_device_plugin
from ...module_utils._boards.lookup import find_board
from ...module_utils._facts.schema import check_facts
from ...module_utils._facts_view import Facts
from ...module_utils._gpu_facts import ComputeInstanceFacts, GpuFacts
from ...module_utils._plan import Refused
from ...module_utils._schema import Unfit
from ...module_utils._sharing.mps_instances import GPU, mig_resource
from .decode import REFUSED
from .finding import Report
from .plugin_fields import FLAGS


@dataclass(frozen=True)
class LintedNode:
    """A node whose GPUs were read."""

    facts: Facts

    @property
    def gpus(self) -> tuple[GpuFacts, ...]:
        return self.facts.gpus or ()

    @property
    def with_mig(self) -> tuple[GpuFacts, ...]:
        return tuple(gpu for gpu in self.gpus if gpu.mig.current)

    @property
    def without_mig(self) -> tuple[GpuFacts, ...]:
        return tuple(gpu for gpu in self.gpus if not gpu.mig.current)

    @property
    def profiles(self) -> tuple[str, ...]:
        """The profile of every MIG device (compute instance), such as C(1g.10gb) or C(1c.3g.40gb)."""
        return tuple(_profile_of(device) for gpu in self.with_mig for device in gpu.devices)

    def resources(self, strategy: str) -> set[str]:
        """Return the resources that the plugin offers on this node, before renaming."""
        if strategy == "none":
            return {GPU} if self.gpus else set()
        offered = {GPU} if self.without_mig else set()
        for profile in self.profiles:
            offered.add(GPU if strategy == "single" else mig_resource(profile))
        return offered


def facts_of(document: Any) -> Facts:
    """Return what M(gpufleet.nvidia.gpu_info) says of a node, from its facts or from its whole answer; nothing where there is none.

    :raises Refused: they are no facts, and which field is not.
    """
    if document is None:
        return Facts()
    try:
        return check_facts(document.get("gpu", document) if isinstance(document, Mapping) else document)
    except Unfit as unfit:
        remedy = "Read the node again with gpufleet.nvidia.gpu_info."
        raise Refused(f"the facts of the node: {unfit.thing}", unfit.reason, remedy) from unfit


def _profile_of(device: ComputeInstanceFacts) -> str:
    slices, _dot, rest = device.profile.partition("c.")
    return rest if rest.startswith(f"{slices}g.") else device.profile


def check(config: Mapping[str, Any], report: Report, started_with: Sequence[str] = ()) -> None:
    """Check a decoded configuration against the node; without one, say only what depends on one. C(started_with): strategies that beat its own."""
    node: LintedNode | None = report.node
    flags = config.get("flags") or {}
    strategy = flags.get("migStrategy") or "none"
    sharing = config.get("sharing") or {}
    mps, time_slicing = sharing.get("mps"), sharing.get("timeSlicing")
    strategies = list(started_with) or (flags.get("plugin") or {}).get("deviceListStrategy")
    _cdi(strategies, node, report)
    if node is None:
        return
    _injection(strategies, node, report)
    if not node.gpus:
        report.warning(
            "", "the node has no GPU that NVML shows: the plugin offers nothing there", "Check the driver of the node."
        )
        return
    if strategy == "single":
        _single(node, report)
    elif strategy == "mixed":
        _mixed(node, report)
    if mps is not None and mps is not REFUSED:
        _mps(mps, node, report)
    active, path = (mps, "sharing.mps") if mps is not None else (time_slicing, "sharing.timeSlicing")
    if active is not None and strategy in FLAGS["migStrategy"].choices:
        _absent(active, path, node.resources(strategy), report)


def _cdi(strategies: Any, node: LintedNode | None, report: Report) -> None:
    chosen = [name for name in strategies if name.startswith("cdi-")] if isinstance(strategies, list) else []
    # The driver's libraries, from which a CDI specification is made.
    host = node.facts if node else Facts()
    if not chosen or (host.nvml.available and host.driver.library_version):
        return
    path = "flags.plugin.deviceListStrategy"
    if node is None:
        message = f"{', '.join(chosen)} starts only where the plugin finds NVML and the driver's libraries (libcuda.so), which cannot be checked here"
        report.note(path, message, "Pass the facts of the node to the linter.")
    else:
        missing = "the driver's libraries are" if host.nvml.available else "NVML is"
        message = f"{', '.join(chosen)} needs NVML and libcuda.so, and {missing} not there"
        report.error(path, message, "Install the driver, or write [envvar].")


def _injection(strategies: Any, node: LintedNode, report: Report) -> None:
    """One of the chosen ways has to be open on the node: otherwise pods are given devices and get none, without an error."""
    if strategies is REFUSED:
        return
    chosen = strategies if isinstance(strategies, list) and strategies else [injection.STRATEGIES[injection.ENVVAR]]
    accepted = injection.accepted_by(node.facts)
    if any(accepted.get(method, True) for method in injection.methods_of(chosen)):
        return
    path = "flags.plugin.deviceListStrategy"
    opened = [injection.STRATEGIES[method] for method in injection.METHODS if accepted.get(method)]
    remedy = f"Write [{opened[0]}]" if opened else "Configure the node's container toolkit"
    if strategies:
        message = f"this node's container toolkit and runtime do not accept {', '.join(chosen)}: unprivileged pods would get no GPU"
        report.error(path, message, f"{remedy}, or change {injection.VARIABLE} of the node's pool.")
    else:
        report.warning(
            path,
            "the plugin's default is envvar, which this node's container toolkit refuses in unprivileged containers: their pods get no GPU "
            "unless the plugin is configured otherwise (DEVICE_LIST_STRATEGY, or deviceListStrategy in its chart's values)",
            f"{remedy} here, or see that the chart's values say so.",
        )


def _single(node: LintedNode, report: Report) -> None:
    path = "flags.migStrategy"
    if not node.with_mig:
        return
    if node.without_mig:
        message = (
            f"single needs the same MIG mode on all GPUs, and {len(node.with_mig)} of {len(node.gpus)} have it enabled"
        )
        report.error(path, message, "Enable MIG on all GPUs of the pool, or write mixed.")
    empty = [str(gpu.index) for gpu in node.with_mig if not gpu.devices]
    if empty:
        report.error(
            path, f"GPU {', '.join(empty)} has MIG enabled and no MIG devices", "Create its instances, or disable MIG."
        )
    kinds = sorted(set(node.profiles))
    if len(kinds) > 1:
        report.error(path, f"single needs one kind of MIG device, and the node has {', '.join(kinds)}", "Write mixed.")


def _mixed(node: LintedNode, report: Report) -> None:
    parts = sorted({profile for profile in node.profiles if "c." in profile})
    if parts:
        message = f"the plugin has no resource for compute instances that share a GPU instance ({', '.join(parts)}), and exits"
        report.error("flags.migStrategy", message, "Make one compute instance in each GPU instance.")


def _mps(mps: Mapping[str, Any], node: LintedNode, report: Report) -> None:
    if node.with_mig:
        indices = ", ".join(str(gpu.index) for gpu in node.with_mig)
        message = f"MPS does not share GPUs with MIG enabled (GPU {indices}): gpu-feature-discovery exits and the node gets no label at all"
        report.error("sharing.mps", message, "Use timeSlicing, or disable MIG.")
    most = mps_clients_of_device_plugin(None)
    limits = {name: mps_clients_of_device_plugin(name) for name in sorted({_architecture(gpu) for gpu in node.gpus})}
    limit = min(limits.values(), default=most)
    architectures = [name for name, value in limits.items() if value < most]
    for index, item in enumerate(mps.get("resources") or ()):
        replicas = item.get("replicas") if isinstance(item, dict) else None
        # What no GPU takes is found without a node.
        if isinstance(replicas, int) and limit < replicas <= most:
            message = f"the MPS daemon dies on {', '.join(architectures)}: maximum allowed replicas exceeded: {replicas} > {limit}"
            report.error(f"sharing.mps.resources[{index}].replicas", message, f"Write {limit} or less.")


def _architecture(gpu: GpuFacts) -> str:
    """The architecture as the facts say it, else that of the board that they name."""
    board = None if gpu.architecture else find_board(gpu.device_id, gpu.name)
    return (gpu.architecture or (board.architecture if board else "")).lower()


def _absent(active: Mapping[str, Any], path: str, offered: set[str], report: Report) -> None:
    for index, item in enumerate(active.get("resources") or ()):
        name = item.get("name") if isinstance(item, dict) else None
        if isinstance(name, str) and name not in offered:
            has = ", ".join(sorted(offered)) or "none"
            message = f"the node does not have {name}: it is ignored"
            report.warning(f"{path}.resources[{index}].name", message, f"The node has: {has}.")
