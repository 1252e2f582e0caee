# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which pods the kubelet of this host allocated GPUs and MIG devices to, whether or not a process of theirs uses them.

The kubelet writes its checkpoint when it admits a pod, and the claims that it prepared into a record of their own, before a container starts. It drops
a pod that ended from the checkpoint only when it next allocates a device (UpdateAllocatedDevices in pkg/kubelet/cm/devicemanager/manager.go), so an entry
says nothing by itself. The folder of a pod stays until the pod is gone from the API: a pod without one uses nothing, and one that completed counts until
it is deleted.
"""

from __future__ import annotations

from typing import Any

from .._formats.kubelet_checkpoint import CHECKPOINT, CLAIMS, HeldDevices, read_checkpoint, read_claims
from .._plan import Refused
from .host_files import HostFiles

#: The key of what concerns every GPU.
EVERY_GPU = ""
_PODS, _LOGS = "/var/lib/kubelet/pods", "/var/log/pods"
#: A kubelet has 110 pods by default, and an entry takes some hundred bytes.
_LARGEST = 8 * 1024 * 1024


def read_allocations(files: HostFiles) -> dict[str, list[dict[str, Any]]]:
    """Return C(allocations) of the facts by the UUID of the device, or its L(place_of).

    Under EVERY_GPU is why they are not known, of each record for itself. Without a kubelet it is empty.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    entries: list[HeldDevices] = []
    for path, read in ((CHECKPOINT, _given), (CLAIMS, read_claims)):
        size = files.size(path)
        if size is None:
            continue
        written = None if size > _LARGEST else files.read(path)
        if written is None:
            why = f"it has {size} bytes" if size > _LARGEST else "it is not readable"
            found.setdefault(EVERY_GPU, []).append({"reason": f"{path}: {why}"})
            continue
        try:
            entries += read(written)
        except Refused as refused:
            found.setdefault(EVERY_GPU, []).append({"reason": f"{refused.thing}: {refused.reason}"})
    # The folder of a pod's logs is named by its namespace, its name and its UID, none of which has an underscore.
    titles = {
        uid: f"{space}/{name}"
        for space, name, uid in (one.split("_") for one in files.names(_LOGS) if one.count("_") == 2)
    }
    there = set(files.names(_PODS))
    for entry in entries:
        if entry.pod_uid not in there:
            continue
        told = {"pod_uid": entry.pod_uid, "container": entry.container or None, "resource": entry.resource}
        for device in dict.fromkeys(one.partition("::")[0] for one in entry.devices):
            key, said = device, {"pod": titles.get(entry.pod_uid), **told}
            if not entry.container and not device.startswith("/dev/"):
                key, said = (
                    EVERY_GPU,
                    {"reason": f"{CLAIMS}: {entry.resource} has a device that is not known here, {device}"},
                )
            found.setdefault(key, []).append(said)
    return found


def _given(written: str) -> tuple[HeldDevices, ...]:
    return read_checkpoint(written, "").entries
