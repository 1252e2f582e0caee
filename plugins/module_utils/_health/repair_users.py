# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who uses a GPU, so that it cannot be repaired now. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from .._mig.state import TOLERATE_RESET
from .repair_faults import subject_of


def users_of(facts: Mapping[str, Any], addresses: Collection[str], mps: bool = False) -> list[str]:
    """Return who uses one of some GPUs, as people name them: C(python3 (pid 812)).

    :param facts: with the holders of device files.
    :param addresses: PCI addresses of the GPUs.
    :param mps: whether MPS daemons and their servers are no users: they are what is repaired.
    """
    gpus = [gpu for gpu in facts.get("gpus") or () if subject_of(gpu) in addresses]
    nodes = {f"/dev/nvidia{gpu['minor']}" for gpu in gpus if gpu.get("minor") is not None}
    daemons = facts.get("mps") or ()
    excused = {pid for one in daemons for pid in (one.get("pid"), *(one.get("servers") or ()))} if mps else set()
    found: dict[int, str] = {}
    for gpu in gpus:
        for process in processes_of(gpu):
            found[int(process["pid"])] = f"{process.get('name') or 'a process'} (pid {process['pid']})"
    for holder in facts.get("holders") or ():
        if not nodes.intersection(holder["devices"]) or holder["command"] in TOLERATE_RESET:
            continue
        pod = f", pod {holder['pod_uid']}" if holder.get("pod_uid") else ""
        found[int(holder["pid"])] = f"{holder['command']} (pid {holder['pid']}{pod})"
    return [text for pid, text in sorted(found.items()) if pid not in excused]


def processes_of(gpu: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Return the processes that NVML lists on a GPU and on its instances."""
    yield from gpu.get("processes") or ()
    for instance in gpu.get("gpu_instances") or ():
        yield from instance.get("processes") or ()
        for part in instance.get("compute_instances") or ():
            yield from part.get("processes") or ()
