# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the GPUs of a host are divided into and how much of that is taken, by the facts document; what the cluster offers of them; and the use of GPUs as the
table that users of C(kubectl inspect cgpu) know, and as plain data. Pure.

In that table memory is in GiB, rounded to the nearest; percentages are cut off, as there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

from ...module_utils._boards.cards import cards_on_bus
from ...module_utils._facts_view import Facts, ImexFacts
from ...module_utils._gpu_facts import GpuFacts, GpuInstanceFacts
from ...module_utils._gpu_settings import GpuSettings
from .expectations import different_resources
from .pods import Pod
from .text import blocks, counted, gib, ranges, table
from .usage import MEMORY, UNITS, GpuUsage, NodeUsage, asked


@dataclass(frozen=True)
class Resources:
    """The extended resources of one host: what the pool's description predicts, and what the cluster says when it was asked.

    :param expected: what follows from the description; None when it does not, because the host was not read or its variables are wrong.
    :param offered: C(status.allocatable) of the node; None when the cluster was not asked, or has no such node.
    """

    node: str
    pool: str
    expected: Mapping[str, int] | None
    asked: bool = False
    offered: Mapping[str, int] | None = None

    @property
    def mismatches(self) -> list[str]:
        """Where the cluster offers something else than is expected, for people."""
        if not self.asked or self.expected is None:
            return []
        if self.offered is None:
            return [f"the cluster has no node {self.node}"]
        return different_resources(self.offered, self.expected)

    @property
    def confirmed(self) -> bool:
        """Whether the cluster offers what is expected."""
        return self.asked and self.expected is not None and not self.mismatches

    @property
    def offered_text(self) -> str:
        return f"no node {self.node}" if self.offered is None else counted(self.offered) or "none"

    @property
    def expected_text(self) -> str:
        return "unknown" if self.expected is None else counted(self.expected) or "none"


def gpu_row(gpu: GpuFacts, sharing: Mapping[str, Any], usage: GpuUsage) -> tuple[str, str, str, str]:
    """Return of a GPU: its name, what it is divided into, how much of that is taken, and the memory that processes use.

    :param sharing: C(mode), C(replicas), C(memory_mib) and C(thread_percentage) of a slice, as the pool's capacity says, and C(confirmed), whether the cluster
        offers that; empty without sharing.
    """
    name = str(gpu.name or gpu.board or "unknown")
    mig = gpu.mig
    instances = gpu.gpu_instances
    pending = ", MIG mode pending" if bool(mig.pending) != bool(mig.current) else ""
    if mig.current:
        divided = (_multiset(instances) or "MIG, no instances") + pending
        return name, divided, f"{usage.instances_taken}/{len(instances)} instances", _memory(gpu)
    divided = f"whole{pending}" if pending else _slices(sharing)
    return name, divided, f"{usage.taken(UNITS)}/{usage.total(UNITS)}", _memory(gpu)


def _slices(sharing: Mapping[str, Any]) -> str:
    replicas = int(sharing.get("replicas") or 0)
    if replicas <= 1:
        return "whole"
    found = f"{replicas} time slices"
    if sharing.get("mode") == "mps":
        found = f"{replicas} MPS clients of {gib(int(sharing.get('memory_mib') or 0))}"
        # All of them is what a client has without a limit.
        threads = sharing.get("thread_percentage")
        found += f", {threads}% of the threads each" if threads and threads < 100 else ""
    return found if sharing.get("confirmed") else f"{found} (expected)"


def host_table(
    hosts: Mapping[str, Facts],
    sharing: Mapping[str, Mapping[str, Any]],
    nodes: Mapping[str, NodeUsage],
    width: int = 0,
) -> str:
    """Return one line for each run of equal GPUs of each host. C(sharing): host name to what L(gpu_row) takes."""
    rows: list[list[str]] = []
    for host, facts in hosts.items():
        driver = facts.driver.loaded_version or "not loaded"
        uses = [
            (gpu.index, gpu_row(gpu, sharing.get(host, {}), usage))
            for gpu, usage in zip(facts.gpus or (), nodes[host].gpus)
        ]
        if not uses:
            reason = facts.nvml.reason or "no NVIDIA GPU"
            count = len(cards_on_bus(facts))
            rows.append([host, driver, f"{count} on PCI", "-", f"unknown: {reason}", "-", "-"])
        for row, group in groupby(uses, key=itemgetter(1)):
            rows.append([host, driver, ranges([index for index, _row in group]), *row])
    header = ["HOST", "DRIVER", "GPU", "BOARD", "EACH DIVIDED INTO", "EACH TAKEN", "MEMORY OF PROCESSES"]
    return table(header, rows, width)


def settings_table(hosts: Mapping[str, Facts], width: int = 0) -> str:
    """Return power limit, clocks and ECC of the GPUs of hosts that keep some; empty where none does."""
    rows: list[list[str]] = []
    for host, facts in hosts.items():
        if facts.recorded.settings is None:
            continue
        found: dict[tuple[str, ...], list[int]] = {}
        for gpu in facts.gpus or ():
            found.setdefault(_settings(gpu.settings or GpuSettings()), []).append(gpu.index)
        rows += [[host, ranges(indices), *values] for values, indices in found.items()]
    return (
        table(
            ["HOST", "GPU", "POWER LIMIT", "GRAPHICS CLOCK", "MEMORY CLOCK", "APPLICATION CLOCKS", "ECC"], rows, width
        )
        if rows
        else ""
    )


def imex_table(hosts: Mapping[str, Facts], width: int = 0) -> str:
    """Return what the hosts of NVL72 racks have of IMEX; empty where there is no such host."""
    rows = []
    for host, facts in hosts.items():
        found = facts.fabric.imex
        if found is None:
            continue
        driver = facts.driver.loaded_version or "not loaded"
        nodes = "none" if found.nodes is None else str(len(found.nodes))
        rows.append([host, imex_state(found), found.version or "not installed", driver, nodes])
    return table(["HOST", "IMEX", "VERSION", "DRIVER", "NODES IN ITS FILE"], rows, width) if rows else ""


def imex_state(found: ImexFacts) -> str:
    """Return the state of C(nvidia-imex.service) in a few words."""
    if found.active is None:
        return "unknown"
    running = "runs" if found.active else "does not run"
    if found.masked:
        return f"masked, {running}" if found.active else "masked"
    return running if found.enabled else f"{running}, not at boot"


def _settings(settings: GpuSettings) -> tuple[str, ...]:
    power, clocks, ecc = settings.power_w, settings.clocks_mhz, settings.ecc
    own = power.limit == power.default
    limit = "unknown" if power.limit is None else f"{power.limit} W" + (" (the board's)" if own else "")
    application = clocks.application
    if application == clocks.default:
        shown = "the board's"
    else:
        shown = f"{application[0]} memory, {application[1]} graphics MHz" if application else "unknown"
    state = "none" if ecc.current is None else "on" if ecc.current else "off"
    if ecc.pending is not ecc.current:
        state += f", {'on' if ecc.pending else 'off'} after the next reset or reboot"
    return (limit, _lock(clocks.locked_graphics), _lock(clocks.locked_memory), shown, state)


def _lock(clocks: Sequence[int] | None) -> str:
    if clocks is None:
        return "not locked"
    lowest, highest = clocks
    return f"{lowest} MHz" if lowest == highest else f"{lowest} to {highest} MHz"


def resource_table(resources: Mapping[str, Resources], width: int = 0) -> str:
    """Return what the cluster offers of each host beside what is expected; without a cluster what is expected, and that it is that only."""
    if not any(entry.asked for entry in resources.values()):
        rows = [[host, entry.pool or "unknown", entry.expected_text] for host, entry in resources.items()]
        return table(["HOST", "POOL", "EXPECTED IN THE CLUSTER"], rows, width) + (
            "The cluster was not read: gpu_cluster_kubeconfig shows what its nodes offer.\n"
        )
    rows = [
        [
            host,
            entry.pool or "unknown",
            entry.offered_text,
            entry.expected_text,
            "MISMATCH" if entry.mismatches else "yes" if entry.confirmed else "unknown",
        ]
        for host, entry in resources.items()
    ]
    shown = table(["HOST", "POOL", "OFFERED BY THE CLUSTER", "EXPECTED", "AS EXPECTED"], rows, width)
    if any(entry.mismatches for entry in resources.values()):
        shown += "MISMATCH: gpufleet.nvidia.verify says why, and what to do.\n"
    return shown


def _multiset(instances: Sequence[GpuInstanceFacts]) -> str:
    counts = Counter(instance.profile for instance in instances)
    sizes = {instance.profile: instance.size for instance in instances}
    ordered = sorted(counts, key=lambda profile: (-sizes[profile], profile))
    return " + ".join(f"{counts[profile]} x {profile}" for profile in ordered)


def _memory(gpu: GpuFacts) -> str:
    used = sum(process.memory_mib or 0 for process in gpu.processes or ())
    total = gpu.memory_mib
    return f"{gib(used)} of {gib(total)}" if total else f"{gib(used)}"


_MIB_PER_GIB = 1024


def usage_table(nodes: Sequence[NodeUsage], unit: str = MEMORY, width: int = 0) -> str:
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
    """Return, per node, what every pod holds on every GPU, and which pods wait there; parameters as for L(usage_table)."""
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
