# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a configuration does on one node, whose facts are known: which resources it has, what MPS meets there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...module_utils import _injection as injection
from ...module_utils._boards.architectures import mps_clients_of_device_plugin
from ...module_utils._boards.lookup import find_board
from ...module_utils._facts_view import Facts, view_of
from ...module_utils._schema import Unfit
from ...module_utils._sharing.mps_instances import GPU, mig_resource
from .decode import REFUSED
from .finding import Report
from .plugin_fields import FLAGS


@dataclass(frozen=True)
class LintedNode:
    """What the linter has to know of a node.

    :param gpus: entries of C(gpus) in the facts document.
    :param nvml: whether NVML answers; None when it is not known.
    :param cdi: whether the driver's libraries, from which a CDI specification is made, are there; None when it is not known.
    :param accepted: for each way in which devices reach containers, whether the node's toolkit and runtime do it; what is not known
        is missing.
    """

    gpus: tuple[Mapping[str, Any], ...]
    nvml: bool | None
    cdi: bool | None
    accepted: Mapping[str, bool] = field(default_factory=dict)

    @property
    def with_mig(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(gpu for gpu in self.gpus if _mig_enabled(gpu))

    @property
    def without_mig(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(gpu for gpu in self.gpus if not _mig_enabled(gpu))

    @property
    def profiles(self) -> tuple[str, ...]:
        """The profile of every MIG device of the node."""
        return tuple(profile for gpu in self.with_mig for profile in mig_devices(gpu))

    def resources(self, strategy: str) -> set[str]:
        """Return the resources that the plugin offers on this node, before renaming."""
        if strategy == "none":
            return {GPU} if self.gpus else set()
        offered = {GPU} if self.without_mig else set()
        for profile in self.profiles:
            offered.add(GPU if strategy == "single" else mig_resource(profile))
        return offered


def node_of(facts: Mapping[str, Any] | None) -> LintedNode | None:
    """Return the node that C(facts) describe: the document of M(gpufleet.nvidia.gpu_info), or its whole answer."""
    if not facts:
        return None
    document = facts.get("gpu", facts)
    gpus = document.get("gpus") if isinstance(document, Mapping) else None
    if not isinstance(gpus, (list, tuple)):
        return None
    nvml = (document.get("nvml") or {}).get("available")
    library = (document.get("driver") or {}).get("library_version")
    return LintedNode(
        tuple(gpu for gpu in gpus if isinstance(gpu, Mapping)),
        nvml,
        None if nvml is None else bool(nvml and library),
        injection.accepted_by(host_of(document)),
    )


def host_of(document: Mapping[str, Any]) -> Facts:
    """Return what facts say of a node beside its GPUs; nothing where they do not fit."""
    try:
        return view_of({name: part for name, part in document.items() if name != "gpus"})
    except Unfit:
        return Facts()


def mig_devices(gpu: Mapping[str, Any]) -> list[str]:
    """Return the profile of every MIG device (compute instance) of C(gpu), such as C(1g.10gb) or C(1c.3g.40gb)."""
    profiles = []
    for instance in gpu.get("gpu_instances") or ():
        for compute in instance.get("compute_instances") or ():
            name = str(compute.get("profile") or instance.get("profile"))
            slices, _dot, rest = name.partition("c.")
            whole = _dot and rest.startswith(f"{slices}g.")
            profiles.append(rest if whole else name)
    return profiles


def check(config: Mapping[str, Any], report: Report, started_with: Sequence[str] = ()) -> None:
    """Check a decoded configuration against the node; without one, say only what depends on one.

    :param started_with: device list strategies that the plugin is started with, which beat those of the configuration.
    """
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
    if not chosen or (node is not None and node.cdi):
        return
    path = "flags.plugin.deviceListStrategy"
    if node is None or node.cdi is None:
        message = f"{', '.join(chosen)} starts only where the plugin finds NVML and the driver's libraries (libcuda.so), which cannot be checked here"
        report.note(path, message, "Pass the facts of the node to the linter.")
    else:
        missing = "the driver's libraries are" if node.nvml else "NVML is"
        message = f"{', '.join(chosen)} needs NVML and libcuda.so, and {missing} not there"
        report.error(path, message, "Install the driver, or write [envvar].")


def _injection(strategies: Any, node: LintedNode, report: Report) -> None:
    """One of the chosen ways has to be open on the node: otherwise pods are given devices and get none, without an error."""
    if strategies is REFUSED:
        return
    chosen = strategies if isinstance(strategies, list) and strategies else [injection.STRATEGIES[injection.ENVVAR]]
    if any(node.accepted.get(method, True) for method in injection.methods_of(chosen)):
        return
    path = "flags.plugin.deviceListStrategy"
    opened = [injection.STRATEGIES[method] for method in injection.METHODS if node.accepted.get(method)]
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
    empty = [str(gpu.get("index")) for gpu in node.with_mig if not mig_devices(gpu)]
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
        indices = ", ".join(str(gpu.get("index")) for gpu in node.with_mig)
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


def _architecture(gpu: Mapping[str, Any]) -> str:
    """The architecture as the facts say it, else that of the board that they name."""
    known = gpu.get("architecture")
    board = None if known else find_board(gpu.get("device_id"), gpu.get("name"))
    return str(known or (board.architecture if board else "")).lower()


def _absent(active: Mapping[str, Any], path: str, offered: set[str], report: Report) -> None:
    for index, item in enumerate(active.get("resources") or ()):
        name = item.get("name") if isinstance(item, dict) else None
        if isinstance(name, str) and name not in offered:
            has = ", ".join(sorted(offered)) or "none"
            message = f"the node does not have {name}: it is ignored"
            report.warning(f"{path}.resources[{index}].name", message, f"The node has: {has}.")


def _mig_enabled(gpu: Mapping[str, Any]) -> bool:
    return bool((gpu.get("mig") or {}).get("current"))
