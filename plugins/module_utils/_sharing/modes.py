# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ways of sharing a GPU, and which one a pool has, with how its hosts run MPS daemons of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .._plan import Refused
from . import arithmetic
from .resources import GPU

MODES = ("none", "time_slicing", "mps")
BACKENDS = ("mps", "hami", "dra")
#: Between these M(gpufleet.nvidia.migrate) moves a pool.
MIGRATED = ("mps", "dra")
MPS_MANAGERS = ("device_plugin", "host")
#: C(auto) is what the way of sharing needs.
COMPUTE_MODES = ("auto", "default", "exclusive_process", "prohibited")
TIME_SLICES = ("default", "short", "medium", "long")
SCOPES = ("node", "gpu", "instance")
PRIORITIES = {"normal": 0, "below_normal": 1}


@dataclass(frozen=True)
class HostOptions:
    """How the host runs MPS.

    :param scope: C(node), one daemon in the directories that the device plugin expects; C(gpu), one for each GPU; C(instance), one
        for each MIG device.
    :param percentage: active thread percentage of a client; 0 means all threads (100).
    :param priority: C(normal) or C(below_normal).
    :param multi_user: whether clients of several users share a server; None leaves it to what the daemon serves.
    :param limits_mib: GPU index to memory of a client in MiB, for GPUs that differ from the pool's slice.
    :param protocol: of the control daemon: 2, which every release speaks, or 3.
    """

    scope: str = "node"
    percentage: float = 0.0
    priority: str = "normal"
    multi_user: bool | None = None
    limits_mib: Mapping[int, int] = field(default_factory=dict, hash=False)
    protocol: int = 2


@dataclass(frozen=True)
class Sharing:
    """One pool's desired state.

    :param mode: C(none), C(time_slicing) or C(mps): how containers come to share a GPU.
    :param replicas: into how many devices a GPU (or MIG device) is divided; 0 when the slice decides, the resources differ, or nothing
        is shared.
    :param resource_replicas: the same by resource, as it is called before it is renamed; a resource that is not named is not shared.
    :param slice_mib: memory of one slice on one GPU, or None.
    :param gpus_per_pod: over how many GPUs a pod of this pool spreads.
    :param time_slice: the hardware's time slice; C(default) leaves the driver's.
    :param mps_manager: who runs the MPS daemon.
    :param backend: who counts and enforces memory slices.
    :param rename: whether shared devices get a name of their own, C(nvidia.com/gpu.shared).
    :param mps_scope: with C(mps_manager) C(host), what one daemon serves.
    :param compute_mode: of every GPU; C(auto) is what the way of sharing needs.
    :param migrate_from: while a pool is migrated, the backend that serves the nodes on which C(migrate) has not ended; else empty.
    :param host: how the host runs MPS; nothing of it is the cluster's business but what a client gets.
    """

    mode: str = "none"
    replicas: int = 0
    slice_mib: int | None = None
    gpus_per_pod: int = 1
    time_slice: str = "default"
    mps_manager: str = "device_plugin"
    backend: str = "mps"
    rename: bool = False
    mps_scope: str = "node"
    resource_replicas: tuple[tuple[str, int], ...] = ()
    compute_mode: str = field(default="auto", repr=False)
    migrate_from: str = field(default="", repr=False)
    host: HostOptions = field(default_factory=HostOptions, repr=False)

    @property
    def shared(self) -> bool:
        """Whether containers share GPUs."""
        return self.mode != "none"

    @property
    def mps_of_host(self) -> bool:
        """Whether a daemon of the host serves the clients that the device plugin counts."""
        return self.mode == "mps" and self.mps_manager == "host" and self.replicated

    @property
    def mps_of_plugin(self) -> bool:
        """Whether the device plugin's own daemon serves clients."""
        return (self.mode, self.backend, self.mps_manager) == ("mps", "mps", "device_plugin")

    @property
    def claims_shared(self) -> bool:
        """Whether several pods share a device of the DRA driver, by one ResourceClaim that all of them name."""
        return self.backend == "dra" and self.shared

    @property
    def consumed(self) -> bool:
        """Whether each pod says by itself how much memory of a GPU it takes: HAMi, and consumable shares of the DRA driver."""
        return self.backend != "mps" and not self.shared and bool(self.slice_mib)

    @property
    def replicated(self) -> bool:
        """Whether the device plugin is told to replicate devices.

        A daemon of the host that serves the whole node keeps the directories that the plugin expects, so the plugin counts its
        clients; what daemons of other scopes serve, the cluster does not see.
        """
        return self.shared and (self.mode != "mps" or self.mps_manager == "device_plugin" or self.mps_scope == "node")

    @property
    def counted(self) -> bool:
        """Whether the number of replicas is given, and does not follow from the memory of a slice."""
        return bool(self.replicas or self.resource_replicas)

    def replicas_on(
        self, total_mib: int | None, thing: str = "nvidia_sharing_memory_slice", resource: str = GPU
    ) -> int:
        """Return the number of replicas on a GPU or MIG device with C(total_mib); 1 when it is not shared.

        :param resource: what the device is offered as, before it is renamed.
        :raises Refused: the slice does not fit twice, or the memory is not known.
        """
        if not self.shared:
            return 1
        if self.replicas:
            return self.replicas
        if self.resource_replicas:
            return dict(self.resource_replicas).get(resource, 1)
        if total_mib is None:
            raise Refused(
                thing,
                "the memory of this GPU is not known, so the number of slices is not",
                "Record the facts of a host of the pool, or set nvidia_sharing_replicas in place of nvidia_sharing_memory_slice.",
            )
        return arithmetic.replicas_of(total_mib, self.slice_mib or 0, thing)
