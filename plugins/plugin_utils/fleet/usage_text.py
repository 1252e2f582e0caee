# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The use of GPUs as the table that users of C(kubectl inspect cgpu) know, and as plain data. Pure.

Memory is in GiB, rounded to the nearest; percentages are cut off, as there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .pods import Pod
from .text import blocks, counted
from .usage import MEMORY, UNITS, NodeUsage, asked

_MIB_PER_GIB = 1024


def table(nodes: Sequence[NodeUsage], unit: str = MEMORY, width: int = 0) -> str:
    """Return per node and GPU what is allocated of the total, and the cluster's sum.

    :param unit: L(MEMORY), or L(UNITS) for counts of instances and replicas.
    """
    columns = max((len(node.gpus) for node in nodes), default=0)
    pending = any(node.waiting for node in nodes)
    what = "GPU Memory(GiB)" if unit == MEMORY else "GPU Units"
    header = ["NAME", "IPADDRESS", *(f"GPU{index}(Allocated/Total)" for index in range(columns))]
    rows = [header + (["PENDING(Allocated)"] if pending else []) + [what]]
    for node in nodes:
        cells = [f"{_show(gpu.taken(unit), unit)}/{_show(gpu.total(unit), unit)}" for gpu in node.gpus]
        cells += ["0/0"] * (columns - len(cells))
        waiting = [str(sum(node.pending.values()))] if pending else []
        rows.append([node.name, node.address, *cells, *waiting, _sum(node.taken(unit), node.total(unit), unit)])
    body = blocks(rows, width)
    taken, total = sum(node.taken(unit) for node in nodes), sum(node.total(unit) for node in nodes)
    width = max((len(line) for line in body), default=0)
    noun = "GPU Memory" if unit == MEMORY else "GPU Units"
    tail = [
        "-" * width,
        f"Allocated/Total {noun} In Cluster:",
        f"{_sum(taken, total, unit)} ({percent(taken, total)}%)",
    ]
    return "\n".join([*body, *tail]) + "\n"


def remarks(nodes: Sequence[NodeUsage], unplaced: Sequence[Pod], strangers: Mapping[str, Mapping[str, int]]) -> str:
    """Return what the numbers do not show: pods without a node, and where what is shown is not all. Empty when that is nothing."""
    lines: list[str] = []
    if unplaced:
        lines.append(f"Pending Pods On No Node ({len(unplaced)}):")
        rows = [["NAME", "NAMESPACE", "ASKS FOR"]]
        rows += [[pod.name, pod.namespace, requests(pod)] for pod in unplaced]
        lines += blocks(rows)
    lines += [f"{node.name}: {note}." for node in nodes for note in node.notes]
    lines += [
        f"{name}: a node of the cluster that is not in the inventory, with {counted(offered)}."
        for name, offered in sorted(strangers.items())
    ]
    return "\n".join(lines) + "\n" if lines else ""


def details(nodes: Sequence[NodeUsage], unit: str = MEMORY, width: int = 0) -> str:
    """Return, per node, what every pod holds on every GPU, and which pods wait there; parameters as for L(table)."""
    lines: list[str] = []
    for node in nodes:
        lines += ["", f"NAME:       {node.name}", f"IPADDRESS:  {node.address}", ""]
        header = ["NAME", "NAMESPACE", *(f"GPU{gpu.index}(Allocated)" for gpu in node.gpus)]
        rows = [header + (["Pending(Allocated)"] if node.waiting else [])]
        for title in node.titles:
            namespace, name = parted(title)
            amounts = [sum(share.held(title, unit) for share in gpu.shares) for gpu in node.gpus]
            rows.append(
                [name, namespace, *(_show(amount, unit) for amount in amounts), *(["0"] if node.waiting else [])]
            )
        for pod in node.waiting:
            rows.append([pod.name, pod.namespace, *("0" for _gpu in node.gpus), str(sum(pod.devices.values()))])
        lines += blocks(rows, width)
        total, taken = node.total(unit), node.taken(unit)
        lines += [f"Allocated :  {_show(taken, unit)} ({percent(taken, total)}%)", f"Total :      {_show(total, unit)}"]
        if node.waiting:
            lines.append(f"Pending :    {counted(node.pending)}")
    return "\n".join(lines[1:]) + "\n" if lines else ""


def as_dict(node: NodeUsage) -> dict[str, Any]:
    """Return a node as plain data; memory in MiB."""
    return {
        "address": node.address,
        "allocated_mib": node.taken(MEMORY),
        "total_mib": node.total(MEMORY),
        "allocated_units": node.taken(UNITS),
        "total_units": node.total(UNITS),
        "pending": dict(node.pending),
        "pending_pods": [pod.title for pod in node.waiting],
        "notes": list(node.notes),
        "gpus": [
            {
                "index": gpu.index,
                "name": gpu.name,
                "lost": gpu.lost,
                "allocated_mib": gpu.taken(MEMORY),
                "total_mib": gpu.total(MEMORY),
                "undivided_slices": gpu.undivided,
                "shares": [
                    {
                        "device": share.device,
                        "profile": share.profile or None,
                        "memory_mib": share.memory_mib,
                        "replicas": share.replicas,
                        "taken": share.taken,
                        "allocated_mib": share.taken_in(MEMORY),
                        "pods": dict(share.holders),
                    }
                    for share in gpu.shares
                ],
            }
            for gpu in node.gpus
        ],
    }


def totals(nodes: Sequence[NodeUsage], unplaced: Sequence[Pod]) -> dict[str, Any]:
    """Return the sums of the cluster as plain data; memory in MiB."""
    taken, total = sum(node.taken(MEMORY) for node in nodes), sum(node.total(MEMORY) for node in nodes)
    return {
        "allocated_mib": taken,
        "total_mib": total,
        "percent": percent(taken, total),
        "allocated_units": sum(node.taken(UNITS) for node in nodes),
        "total_units": sum(node.total(UNITS) for node in nodes),
        "pending": asked([*unplaced, *(pod for node in nodes for pod in node.waiting)]),
    }


def waiting_dict(pods: Sequence[Pod]) -> list[dict[str, Any]]:
    """Return pods that are on no node as plain data."""
    return [{"pod": pod.title, "asks_for": pod.devices, "claims": pod.claims} for pod in pods]


def requests(pod: Pod) -> str:
    """Return what a pod waits for, for people."""
    return counted(pod.devices) or ("a resource claim" if pod.claims else "GPU memory")


def parted(title: str) -> tuple[str, str]:
    """Return namespace and name of a pod's title; of a process, whose name may be a path, no namespace."""
    namespace, slash, name = title.partition("/")
    return (namespace, name) if slash and namespace and "(PID " not in title else ("", title)


def percent(taken: int, total: int) -> int:
    return taken * 100 // total if total else 0


def _show(amount: int, unit: str) -> str:
    return str(amount) if unit == UNITS else str((amount + _MIB_PER_GIB // 2) // _MIB_PER_GIB)


def _sum(taken: int, total: int, unit: str) -> str:
    return f"{_show(taken, unit)}/{_show(total, unit)}"
