# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which pod holds which device, from the kubelet's checkpoint and its record of claims, and which have to leave when devices go. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...module_utils._formats.kubelet_checkpoint import read_checkpoint
from ...module_utils._gpu_facts import GpuFacts
from ...module_utils._plan import Refused
from .pods import Pod

_REMEDY = "Drain the node with gpufleet.nvidia.upgrade, or wait for a release that supports this kubelet."


@dataclass(frozen=True)
class Holding:
    """A device that a container of a pod was given.

    :param device: UUID of the GPU or MIG device, without the number of its replica.
    :param replica: that number, of a shared device; else empty.
    :param memory_mib: how much of its memory a claim consumes; None where the device is not divided so.
    """

    pod_uid: str
    container: str
    resource: str
    device: str
    replica: str = ""
    memory_mib: int | None = None


def holdings(text: str) -> tuple[Holding, ...]:
    """Return who was given which device. Shared devices are called C(<uuid>::<replica>)."""
    found = []
    for entry in read_checkpoint(text, _REMEDY).entries:
        for listed in entry.devices:
            device, _colons, replica = listed.partition("::")
            found.append(Holding(entry.pod_uid, entry.container, entry.resource, device, replica))
    return tuple(dict.fromkeys(found))


def claimed(gpus: Iterable[GpuFacts]) -> tuple[Holding, ...]:
    """Return which pod was given which device by a claim. Raises Refused: the kubelet's record of it could not be read."""
    found = []
    for gpu in gpus:
        for part in gpu.parts:
            for one in part.allocations:
                if one.reason:
                    raise Refused("the kubelet's record of devices", one.reason, _REMEDY)
                # A claim is no container's; what a container was given is in the checkpoint, with its replica.
                if not one.container and not one.job:
                    found.append(Holding(str(one.pod_uid), "", str(one.resource), str(part.uuid)))
    return tuple(dict.fromkeys(found))


def in_use(found: Iterable[Holding], live: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the UIDs of the pods that hold each device.

    :param live: UIDs of the pods that there are: the kubelet forgets a pod's entries only when it next gives a device.
    """
    there = set(live)
    users: dict[str, list[str]] = {}
    for holding in found:
        if holding.pod_uid in there:
            users.setdefault(holding.device, []).append(holding.pod_uid)
    return {device: tuple(dict.fromkeys(uids)) for device, uids in users.items()}


@dataclass(frozen=True)
class Repartition:
    """What a change of the MIG layout means for the pods of a node: only those on instances that go have to leave.

    :param gone: UUIDs of the MIG devices, and of GPUs whose mode changes, that do not stay.
    """

    gone: tuple[str, ...]
    leave: tuple[Pod, ...]
    stay: tuple[Pod, ...]

    def text(self) -> str:
        """Return the plan for people."""
        return (
            f"devices deleted: {len(self.gone)}; evicted: {_titles(self.leave)}; untouched: {_titles(self.stay)}"
            if self.gone
            else f"no device is deleted; untouched: {_titles(self.stay)}"
        )


def gone_devices(report: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the UUIDs that a plan of M(gpufleet.nvidia.mig) does away with: each step has its own in C(data.gone).

    :raises Refused: it is none, and nobody would be evicted.
    """
    steps = report.get("steps")
    if steps is None:
        raise Refused("mig_plan", "it has no steps", "Give what gpufleet.nvidia.mig returned in check mode.")
    return tuple(dict.fromkeys(str(uuid) for step in steps for uuid in step["data"].get("gone") or ()))


def repartition(
    gone: Sequence[str], holdings: Sequence[Holding], pods: Sequence[Pod], holders: Collection[str] = ()
) -> Repartition:
    """Return what it means for the pods of the node that devices go.

    :param holders: UIDs of pods of which a process has such a device open, whatever the checkpoint says.
    """
    users = in_use(holdings, [pod.uid for pod in pods])
    leaving = {uid for device in gone for uid in users.get(device, ())} | {*holders}
    staying = {uid for uids in users.values() for uid in uids} - leaving
    return Repartition(
        tuple(gone), tuple(pod for pod in pods if pod.uid in leaving), tuple(pod for pod in pods if pod.uid in staying)
    )


def _titles(pods: Sequence[Pod]) -> str:
    return ", ".join(pod.title for pod in pods) or "none"
