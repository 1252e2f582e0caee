# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which pod holds which device, from the kubelet's checkpoint of its device manager. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.kubelet_checkpoint import read_checkpoint

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
    """Return who was given which device. Shared devices are called C(<uuid>::<replica>).

    :raises Refused: the text is not a checkpoint.
    """
    found = []
    for entry in read_checkpoint(text, _REMEDY).entries:
        for listed in entry.devices:
            device, _colons, replica = listed.partition("::")
            found.append(Holding(entry.pod_uid, entry.container, entry.resource, device, replica))
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
