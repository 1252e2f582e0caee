# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which pods the kubelet of this host allocated GPUs and MIG devices to, whether or not a process of theirs uses them.

The kubelet writes its checkpoint when it admits a pod, before a container starts. It drops a pod that ended only when it next allocates a device
(UpdateAllocatedDevices in pkg/kubelet/cm/devicemanager/manager.go), so an entry says nothing by itself. The folder of a pod stays until the pod is gone
from the API: a pod without one uses nothing, and one that completed counts until it is deleted.
"""

from __future__ import annotations

from typing import Any

from .._formats.kubelet_checkpoint import CHECKPOINT, read_checkpoint
from .._plan import Refused
from .host_files import HostFiles

#: The key of what concerns every GPU.
EVERY_GPU = ""
_PODS, _LOGS = "/var/lib/kubelet/pods", "/var/log/pods"
#: A kubelet has 110 pods by default, and an entry takes some hundred bytes.
_LARGEST = 8 * 1024 * 1024


def read_allocations(files: HostFiles) -> dict[str, list[dict[str, Any]]]:
    """Return C(allocations) of the facts by the UUID of the device; under EVERY_GPU why they are not known, and empty without a kubelet."""
    size = files.size(CHECKPOINT)
    if size is None:
        return {}
    written = None if size > _LARGEST else files.read(CHECKPOINT)
    if written is None:
        why = f"it has {size} bytes" if size > _LARGEST else "it is not readable"
        return {EVERY_GPU: [{"reason": f"{CHECKPOINT}: {why}"}]}
    try:
        entries = read_checkpoint(written, "").entries
    except Refused as refused:
        return {EVERY_GPU: [{"reason": f"{refused.thing}: {refused.reason}"}]}
    # The folder of a pod's logs is named by its namespace, its name and its UID, none of which has an underscore.
    titles = {
        uid: f"{space}/{name}"
        for space, name, uid in (one.split("_") for one in files.names(_LOGS) if one.count("_") == 2)
    }
    there = set(files.names(_PODS))
    found: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        if entry.pod_uid not in there:
            continue
        told = {"pod_uid": entry.pod_uid, "container": entry.container, "resource": entry.resource}
        for device in dict.fromkeys(one.partition("::")[0] for one in entry.devices):
            found.setdefault(device, []).append({"pod": titles.get(entry.pod_uid), **told})
    return found
