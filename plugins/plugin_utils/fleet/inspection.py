# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the GPUs of a host are divided into and how much of that is taken, by the facts document; and what the cluster offers of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

from ...module_utils._boards.lookup import cards_on_bus
from .expectations import different_resources
from .text import counted, gib, ranges, table
from .usage import UNITS, GpuUsage, NodeUsage


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


def gpu_row(gpu: Mapping[str, Any], sharing: Mapping[str, Any], usage: GpuUsage) -> tuple[str, str, str, str]:
    """Return of one entry of C(gpus) of the facts: its name, what it is divided into, how much of that is taken, and the memory that processes use.

    :param sharing: C(mode), C(replicas), C(memory_mib) and C(thread_percentage) of a slice, as the pool's capacity says, and C(confirmed), whether the cluster
        offers that; empty without sharing.
    """
    name = str(gpu.get("name") or gpu.get("board") or "unknown")
    mig = gpu.get("mig") or {}
    instances = gpu.get("gpu_instances") or []
    pending = ", MIG mode pending" if bool(mig.get("pending")) != bool(mig.get("current")) else ""
    if mig.get("current"):
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
    hosts: Mapping[str, Mapping[str, Any]],
    sharing: Mapping[str, Mapping[str, Any]],
    nodes: Mapping[str, NodeUsage],
    width: int = 0,
) -> str:
    """Return one line for each run of equal GPUs of each host. C(sharing): host name to what L(gpu_row) takes."""
    rows: list[list[str]] = []
    for host, facts in hosts.items():
        driver = (facts.get("driver") or {}).get("loaded_version") or "not loaded"
        uses = [
            (int(gpu["index"]), gpu_row(gpu, sharing.get(host, {}), usage))
            for gpu, usage in zip(facts.get("gpus") or [], nodes[host].gpus)
        ]
        if not uses:
            reason = (facts.get("nvml") or {}).get("reason") or "no NVIDIA GPU"
            count = len(cards_on_bus(facts))
            rows.append([host, driver, f"{count} on PCI", "-", f"unknown: {reason}", "-", "-"])
        for row, group in groupby(uses, key=itemgetter(1)):
            rows.append([host, driver, ranges([index for index, _row in group]), *row])
    header = ["HOST", "DRIVER", "GPU", "BOARD", "EACH DIVIDED INTO", "EACH TAKEN", "MEMORY OF PROCESSES"]
    return table(header, rows, width)


def settings_table(hosts: Mapping[str, Mapping[str, Any]], width: int = 0) -> str:
    """Return power limit, clocks and ECC of the GPUs of hosts that keep some; empty where none does."""
    rows: list[list[str]] = []
    for host, facts in hosts.items():
        if (facts.get("recorded") or {}).get("settings") is None:
            continue
        found: dict[tuple[str, ...], list[int]] = {}
        for gpu in facts.get("gpus") or ():
            found.setdefault(_settings(gpu.get("settings") or {}), []).append(int(gpu["index"]))
        rows += [[host, ranges(indices), *values] for values, indices in found.items()]
    return (
        table(
            ["HOST", "GPU", "POWER LIMIT", "GRAPHICS CLOCK", "MEMORY CLOCK", "APPLICATION CLOCKS", "ECC"], rows, width
        )
        if rows
        else ""
    )


def imex_table(hosts: Mapping[str, Mapping[str, Any]], width: int = 0) -> str:
    """Return what the hosts of NVL72 racks have of IMEX; empty where there is no such host."""
    rows = []
    for host, facts in hosts.items():
        found = (facts.get("fabric") or {}).get("imex")
        if found is None:
            continue
        driver = (facts.get("driver") or {}).get("loaded_version") or "not loaded"
        nodes = "none" if found.get("nodes") is None else str(len(found["nodes"]))
        rows.append([host, imex_state(found), found.get("version") or "not installed", driver, nodes])
    return table(["HOST", "IMEX", "VERSION", "DRIVER", "NODES IN ITS FILE"], rows, width) if rows else ""


def imex_state(found: Mapping[str, Any]) -> str:
    """Return the state of C(nvidia-imex.service) in a few words."""
    if found.get("active") is None:
        return "unknown"
    running = "runs" if found["active"] else "does not run"
    if found.get("masked"):
        return f"masked, {running}" if found["active"] else "masked"
    return running if found.get("enabled") else f"{running}, not at boot"


def _settings(settings: Mapping[str, Any]) -> tuple[str, ...]:
    power, clocks, ecc = (settings.get(name) or {} for name in ("power_w", "clocks_mhz", "ecc"))
    own = power.get("limit") == power.get("default")
    limit = "unknown" if power.get("limit") is None else f"{power['limit']} W" + (" (the board's)" if own else "")
    application = clocks.get("application")
    if application == clocks.get("default"):
        shown = "the board's"
    else:
        shown = f"{application[0]} memory, {application[1]} graphics MHz" if application else "unknown"
    state = "none" if ecc.get("current") is None else "on" if ecc["current"] else "off"
    if ecc and ecc.get("pending") is not ecc.get("current"):
        state += f", {'on' if ecc.get('pending') else 'off'} after the next reset or reboot"
    return (limit, _lock(clocks.get("locked_graphics")), _lock(clocks.get("locked_memory")), shown, state)


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


def _multiset(instances: Sequence[Mapping[str, Any]]) -> str:
    counts = Counter(str(instance.get("profile")) for instance in instances)
    sizes = {str(instance.get("profile")): int(instance.get("size") or 0) for instance in instances}
    ordered = sorted(counts, key=lambda profile: (-sizes[profile], profile))
    return " + ".join(f"{counts[profile]} x {profile}" for profile in ordered)


def _memory(gpu: Mapping[str, Any]) -> str:
    used = sum(int(process.get("memory_mib") or 0) for process in gpu.get("processes") or [])
    total = gpu.get("memory_mib")
    return f"{gib(used)} of {gib(int(total))}" if total else f"{gib(used)}"
