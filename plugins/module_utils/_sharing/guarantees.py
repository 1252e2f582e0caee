# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a pod can rely on, by how the GPUs of its pool are shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from .modes import Sharing


@dataclass(frozen=True)
class Guarantee:
    """What a pod that asks for a slice can rely on.

    :param counted_by: who keeps two pods from being given the same slice.
    :param enforced_by: who stops a process that takes more; C(nobody) where nothing does.
    :param visible_in_nvidia_smi: what nvidia-smi shows inside the pod.
    :param limit: what the guarantee does not cover.
    """

    counted_by: str
    enforced_by: str
    visible_in_nvidia_smi: str
    limit: str

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


#: reference: device plugin 0.20, HAMi 2.10 and the DRA driver 0.5.0, as their code says; 256 is ResourceClaimReservedForMaxSize of Kubernetes.
GUARANTEES: Mapping[str, Guarantee] = {
    "none": Guarantee(
        "device plugin", "hardware: a pod has the GPU or MIG device for itself", "the whole GPU or MIG device", ""
    ),
    "time_slicing": Guarantee(
        "device plugin, replicas",
        "nobody: processes share memory and time, one can take all",
        "the whole GPU",
        "no isolation of memory or faults",
    ),
    "mps": Guarantee(
        "device plugin, replicas; spreading over distinct GPUs is best effort",
        "MPS server, for each client process and GPU",
        "the whole GPU",
        "the limit is per process, not per pod; two slots that land on one GPU are one slice",
    ),
    "mps_host": Guarantee(
        "nobody in the cluster",
        "MPS server of the host, for each client process and GPU",
        "the whole GPU",
        "the limit is per process; Kubernetes does not see the slices",
    ),
    "hami": Guarantee(
        "HAMi scheduler, exact, for each GPU",
        "libvgpu in the container, for each GPU",
        "the slice",
        "soft: a statically linked program or CUDA_DISABLE_CONTROL=true bypasses it; compute is shared",
    ),
    "dra_devices": Guarantee(
        "scheduler, exact (DRA)",
        "hardware: a pod has the GPU or MIG device for itself",
        "the GPU or MIG device",
        "the pod asks by a ResourceClaim; needs Kubernetes 1.34.2 and driver 580",
    ),
    "dra_time_slicing": Guarantee(
        "scheduler: the device, by its ResourceClaim; nobody counts the pods that name the claim (up to 256)",
        "nobody: processes share memory and time, one can take all",
        "the whole GPU, or the MIG device",
        "no isolation of memory or faults; alpha in the driver (TimeSlicingSettings); needs Kubernetes 1.34.2 and driver 580",
    ),
    "dra_mps": Guarantee(
        "scheduler: the device, by its ResourceClaim; nobody counts the pods that name the claim (up to 256)",
        "MPS server of the claim, for each client process and device",
        "the whole GPU, or the MIG device",
        "the limit is per process, not per pod, and more pods than replicas find no memory; one user ID at a time, pods of another wait without an "
        "error; alpha in the driver (MPSSupport); needs Kubernetes 1.34.2 and driver 580",
    ),
    "dra": Guarantee(
        "scheduler, exact (DRA consumable capacity)",
        "nobody: no memory isolation",
        "the whole GPU",
        "alpha; needs Kubernetes 1.36, or 1.35 with the gate DRAConsumableCapacity (1.34 on nodes with one GPU), and driver 580",
    ),
}


def guarantee(sharing: Sharing) -> Guarantee:
    """Return what holds for a pod of a pool that is shared like this."""
    if sharing.claims_shared:
        return GUARANTEES[f"dra_{sharing.mode}"]
    if sharing.backend == "dra" and not sharing.slice_mib:
        return GUARANTEES["dra_devices"]
    if sharing.backend in ("hami", "dra"):
        return GUARANTEES[sharing.backend]
    if sharing.shared and not sharing.replicated:
        return GUARANTEES["mps_host"]
    found = GUARANTEES[sharing.mode]
    if sharing.mode == "mps" and sharing.mps_manager == "device_plugin":
        # A daemon of the host can serve several users, where its release can: nvidia_sharing_mps_multi_user.
        return replace(found, limit=f"{found.limit}; one user ID at a time, pods of another wait without an error")
    return found
