# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Claims for devices of the DRA driver: a device for one pod, a device that several pods share, a part of a GPU's memory.

Classes, attributes and the configuration of a claim are those of the driver 0.5.0: deployments/helm, demo/specs and
api/nvidia.com/resource/v1beta1.
"""

from __future__ import annotations

from typing import Any

from ...module_utils._sharing import modes
from ..fleet.claims import GPU_CLASS, mig_devices
from ..fleet.node_labels import Slice
from .clusters import MANAGED_BY, DescribedCluster, PluginConfiguration, kube_object
from .emit import made

#: What a claim is for that is for no MIG device.
GPU = "GPU"


def kinds(item: PluginConfiguration) -> list[str]:
    """Return what pods of a DRA pool claim as a whole: C(GPU), and MIG profiles."""
    if item.sharing.backend != "dra" or item.sharing.consumed:
        return []
    profiles = {profile for devices in item.mig_devices.values() for profile in devices}
    # A GPU that the layout does not name may be in MIG mode, and is none to claim as a whole then.
    whole = len(item.mig_devices) < item.gpus and GPU_CLASS in item.capacity.slices
    return sorted(profiles) + ([GPU] if whole else [])


def unit_of(item: PluginConfiguration, kind: str) -> Slice:
    """Return what a pod gets of one device."""
    return item.capacity.slices[GPU_CLASS if kind == GPU else mig_devices(kind)]


def users(item: PluginConfiguration, kind: str, share: modes.Share | None = None) -> int:
    """Return how many pods share a device by one claim: as the pool's description says, unless each gets another C(share) by MPS."""
    unit = unit_of(item, kind)
    if not item.sharing.claims_shared:
        return 1
    if share and item.sharing.mode == "mps" and unit.memory_mib:
        return max(1, unit.memory_mib // share.per_gpu_mib)
    return unit.replicas


def devices(item: PluginConfiguration, kind: str, count: int = 1, share: modes.Share | None = None) -> dict[str, Any]:
    """Return what a claim asks for: whole devices, and how their pods share them.

    :param kind: C(GPU), or a MIG profile.
    :param share: what each process gets, where that is not what the pool's description says.
    """
    whole, unit = {"each_mib": 0, "count": count, "profile": "" if kind == GPU else kind}, unit_of(item, kind)
    if not item.sharing.claims_shared or unit.replicas < 2:
        return made("claim", strategy="", **whole)
    if item.sharing.mode == "mps":
        memory, percentage = unit.limit_mib, unit.active_thread_percentage
        if share:
            memory, percentage = share.per_gpu_mib, 100 // users(item, kind, share)
        return made("claim", strategy="MPS", percentage=int(percentage or 100), memory_mib=memory, **whole)
    # A MIG device has no time slice of its own: pods share it by the claim alone.
    strategy = "TimeSlicing" if kind == GPU else ""
    return made("claim", strategy=strategy, interval=item.sharing.time_slice.capitalize(), **whole)


def parts(share: modes.Share) -> dict[str, Any]:
    """Return a claim for a part of the memory of M distinct GPUs."""
    return made("claim", each_mib=share.per_gpu_mib, count=share.gpus)


def template(name: str, claimed: dict[str, Any]) -> dict[str, Any]:
    """Return a template, of which each pod makes a claim of its own."""
    return kube_object("resource.k8s.io/v1", "ResourceClaimTemplate", name, spec={"spec": {"devices": claimed}})


def named_classes(cluster: DescribedCluster) -> list[dict[str, Any]]:
    """Return DeviceClasses by which pods get MIG devices that they request by the device plugin's names; the chart has one for whole GPUs alone."""
    named = {kind: resource for item in cluster.configurations for kind, resource in item.named_classes.items()}
    profiles = ((kind.partition("/")[2], resource) for kind, resource in sorted(named.items()))
    return [
        made("device_class", profile=profile, resource=resource, managed_by=MANAGED_BY)
        for profile, resource in profiles
        if profile
    ]


def shared(name: str, claimed: dict[str, Any]) -> dict[str, Any]:
    """Return a claim that several pods name."""
    return kube_object("resource.k8s.io/v1", "ResourceClaim", name, spec={"devices": claimed})
