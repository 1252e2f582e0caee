# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of a cluster's GPUs is given to which pod, for every way of sharing, in the table that users of C(kubectl inspect cgpu) know. Pure.

The kubelet's checkpoint says which pod holds which device, the facts say on which GPU that device is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .devices import Holding
from .pods import Pod

_MIB_PER_GIB = 1024
MEMORY, UNITS = "memory", "units"


@dataclass(frozen=True)
class Share:
    """One device that the device plugin offers: a whole GPU or a MIG device, once or several times.

    :param profile: of the MIG device; empty for a whole GPU.
    :param start: first memory slice of the GPU that it occupies; 0 for a whole GPU.
    :param size: how many memory slices; 0 when the whole GPU is meant.
    :param replicas: how often it is offered.
    :param holders: the pods that hold it, by title, with how many replicas of it.
    """

    device: str
    profile: str
    start: int
    size: int
    memory_mib: int
    replicas: int
    holders: Mapping[str, int] = field(default_factory=dict)

    @property
    def taken(self) -> int:
        return min(self.replicas, sum(self.holders.values()))

    def amount(self, count: int, unit: str) -> int:
        """Return C(count) replicas of it in C(unit): MiB of memory, or units of the resource."""
        return count if unit == UNITS else self.memory_mib * count // self.replicas


@dataclass(frozen=True)
class GpuLedger:
    """One GPU with what is offered of it."""

    index: int
    name: str
    memory_mib: int
    mig: bool
    shares: tuple[Share, ...]

    def total(self, unit: str) -> int:
        if unit == MEMORY and not self.mig:
            return self.memory_mib
        return sum(share.amount(share.replicas, unit) for share in self.shares)

    def taken(self, unit: str) -> int:
        return sum(share.amount(share.taken, unit) for share in self.shares)


@dataclass(frozen=True)
class NodeLedger:
    """One node.

    :param pending: GPU resources of pods that are bound to the node and were not given a device yet.
    """

    name: str
    address: str
    gpus: tuple[GpuLedger, ...]
    pods: tuple[Pod, ...] = ()
    pending: Mapping[str, int] = field(default_factory=dict)

    def total(self, unit: str) -> int:
        return sum(gpu.total(unit) for gpu in self.gpus)

    def taken(self, unit: str) -> int:
        return sum(gpu.taken(unit) for gpu in self.gpus)


def node_ledger(
    name: str,
    address: str,
    facts: Mapping[str, Any],
    replicas: Mapping[str, int],
    holdings: Iterable[Holding],
    pods: Sequence[Pod],
    users: Mapping[str, Mapping[str, int]] | None = None,
) -> NodeLedger:
    """Return the ledger of one node.

    :param facts: the facts document.
    :param replicas: resource, as it is called before it is renamed, to the replicas of each of its devices.
    :param holdings: what the kubelet's checkpoint says.
    :param pods: the pods on the node.
    :param users: who else holds devices, such as L(process_users) where there is no cluster.
    """
    living = {pod.uid: pod for pod in pods if not pod.ended}
    held: dict[str, dict[str, int]] = {device: dict(names) for device, names in (users or {}).items()}
    served: set[str] = set()
    for holding in holdings:
        pod = living.get(holding.pod_uid)
        if pod is not None:
            served.add(pod.uid)
            titles = held.setdefault(holding.device, {})
            titles[pod.title] = titles.get(pod.title, 0) + 1
    pending: dict[str, int] = {}
    for pod in living.values():
        for resource, count in pod.resources.items() if pod.uid not in served else ():
            pending[resource] = pending.get(resource, 0) + count
    gpus = tuple(_gpu(gpu, replicas, held) for gpu in facts.get("gpus") or [])
    return NodeLedger(name, address, gpus, tuple(living.values()), pending)


def process_users(facts: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Return which processes are on which GPU or MIG device, for hosts that are in no cluster."""
    found: dict[str, dict[str, int]] = {}
    for gpu in facts.get("gpus") or []:
        parts = [(gpu.get("uuid"), gpu.get("processes"))]
        for instance in gpu.get("gpu_instances") or []:
            for compute in instance.get("compute_instances") or []:
                parts.append((compute.get("uuid"), compute.get("processes")))
        for uuid, processes in parts:
            for process in processes or []:
                found.setdefault(str(uuid), {})[f"{process.get('name')} (pid {process.get('pid')})"] = 1
    return found


def _gpu(gpu: Mapping[str, Any], replicas: Mapping[str, int], held: Mapping[str, Mapping[str, int]]) -> GpuLedger:
    mig = bool((gpu.get("mig") or {}).get("current"))
    memory = int(gpu.get("memory_mib") or 0)
    shares = []
    if mig:
        for instance in sorted(gpu.get("gpu_instances") or [], key=lambda entry: int(entry.get("start") or 0)):
            for compute in instance.get("compute_instances") or []:
                uuid, profile = str(compute.get("uuid")), str(compute.get("profile"))
                resource = f"nvidia.com/mig-{profile.replace('+', '.')}"
                count = replicas.get(resource, replicas.get("nvidia.com/gpu", 1))
                shares.append(
                    Share(
                        uuid,
                        profile,
                        int(instance.get("start") or 0),
                        int(instance.get("size") or 0),
                        int(instance.get("memory_mib") or 0),
                        count,
                        held.get(uuid, {}),
                    )
                )
    else:
        uuid = str(gpu.get("uuid"))
        shares.append(Share(uuid, "", 0, 0, memory, replicas.get("nvidia.com/gpu", 1), held.get(uuid, {})))
    return GpuLedger(int(gpu.get("index") or 0), str(gpu.get("name")), memory, mig, tuple(shares))


def table(nodes: Sequence[NodeLedger], unit: str = MEMORY) -> str:
    """Return the table of C(kubectl inspect cgpu): per node and GPU what is allocated of the total, and the cluster's sum.

    Memory is in GiB, rounded to the nearest; percentages are cut off, as there.

    :param unit: L(MEMORY), or L(UNITS) for counts of instances and replicas.
    """
    columns = max((len(node.gpus) for node in nodes), default=0)
    pending = any(node.pending for node in nodes)
    what = "GPU Memory(GiB)" if unit == MEMORY else "GPU Units"
    header = ["NAME", "IPADDRESS", *(f"GPU{index}(Allocated/Total)" for index in range(columns))]
    rows = [header + (["PENDING(Allocated)"] if pending else []) + [what]]
    for node in nodes:
        cells = [f"{_show(gpu.taken(unit), unit)}/{_show(gpu.total(unit), unit)}" for gpu in node.gpus]
        cells += ["0/0"] * (columns - len(cells))
        waiting = [str(sum(node.pending.values()))] if pending else []
        rows.append([node.name, node.address, *cells, *waiting, _sum(node.taken(unit), node.total(unit), unit)])
    body = _aligned(rows)
    taken, total = sum(node.taken(unit) for node in nodes), sum(node.total(unit) for node in nodes)
    width = max((len(line) for line in body), default=0)
    percent = taken * 100 // total if total else 0
    noun = "GPU Memory" if unit == MEMORY else "GPU Units"
    tail = ["-" * width, f"Allocated/Total {noun} In Cluster:", f"{_sum(taken, total, unit)} ({percent}%)"]
    return "\n".join([*body, *tail]) + "\n"


def details(nodes: Sequence[NodeLedger], unit: str = MEMORY) -> str:
    """Return, per node, what every pod holds on every GPU."""
    lines: list[str] = []
    for node in nodes:
        lines += ["", f"NAME:       {node.name}", f"IPADDRESS:  {node.address}", ""]
        rows = [["NAME", "NAMESPACE", *(f"GPU{gpu.index}(Allocated)" for gpu in node.gpus)]]
        for title in sorted({title for gpu in node.gpus for share in gpu.shares for title in share.holders}):
            namespace, _slash, name = title.partition("/")
            amounts = [
                sum(share.amount(share.holders.get(title, 0), unit) for share in gpu.shares) for gpu in node.gpus
            ]
            rows.append([name, namespace, *(_show(amount, unit) for amount in amounts)])
        lines += _aligned(rows)
        total, taken = node.total(unit), node.taken(unit)
        percent = taken * 100 // total if total else 0
        lines += [f"Allocated :  {_show(taken, unit)} ({percent}%)", f"Total :      {_show(total, unit)}"]
        if node.pending:
            waiting = ", ".join(f"{name}: {count}" for name, count in sorted(node.pending.items()))
            lines.append(f"Pending :    {waiting}")
    return "\n".join(lines[1:]) + "\n" if lines else ""


def as_dict(nodes: Sequence[NodeLedger]) -> dict[str, Any]:
    """Return all of it as plain data; memory in MiB."""
    return {
        node.name: {
            "address": node.address,
            "allocated_mib": node.taken(MEMORY),
            "total_mib": node.total(MEMORY),
            "pending": dict(node.pending),
            "gpus": [
                {
                    "index": gpu.index,
                    "name": gpu.name,
                    "allocated_mib": gpu.taken(MEMORY),
                    "total_mib": gpu.total(MEMORY),
                    "shares": [
                        {
                            "device": share.device,
                            "profile": share.profile or None,
                            "memory_mib": share.memory_mib,
                            "replicas": share.replicas,
                            "taken": share.taken,
                            "pods": dict(share.holders),
                        }
                        for share in gpu.shares
                    ],
                }
                for gpu in node.gpus
            ],
        }
        for node in nodes
    }


def _show(amount: int, unit: str) -> str:
    return str(amount) if unit == UNITS else str((amount + _MIB_PER_GIB // 2) // _MIB_PER_GIB)


def _sum(taken: int, total: int, unit: str) -> str:
    return f"{_show(taken, unit)}/{_show(total, unit)}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
