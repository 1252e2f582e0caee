# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which pods hold GPUs, and which of them can be evicted. Pure, over objects of the Kubernetes API as plain data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

GPU_PREFIXES = ("nvidia.com/gpu", "nvidia.com/mig-")
_MIRROR = "kubernetes.io/config.mirror"
#: HAMi's resources beside the number of GPUs: amounts of memory and compute, not devices.
_AMOUNTS = frozenset({"nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"})
_HAMI = "hami.io/vgpu-devices-allocated"
_HAMI_DEVICE = re.compile("([A-Za-z0-9-]{1,64}),NVIDIA,([0-9]{1,7}),[0-9]{1,3}")
_LONGEST_ANNOTATION = 65536
_QUANTITY = re.compile(r"([0-9]{1,18})(k|M|G|Ki|Mi|Gi|[eE][0-9])?")
_SUFFIXES = {"": 1, "k": 1000, "M": 1000**2, "G": 1000**3, "Ki": 1024, "Mi": 1024**2, "Gi": 1024**3}


@dataclass(frozen=True)
class Pod:
    """What an eviction has to know of a pod.

    :param controller: the kind of what says that it made the pod; None where nothing does.
    :param hami: the GPUs that HAMi's scheduler gave it, each with the memory in MiB. It counts only on nodes that HAMi serves.
    """

    namespace: str
    name: str
    uid: str
    phase: str
    terminating: bool
    controller: str | None
    mirror: bool
    empty_dirs: tuple[str, ...]
    resources: Mapping[str, int]
    claims: bool
    hami: tuple[tuple[str, int], ...] = ()
    controller_uid: str = ""

    def of_daemon_set(self, known: Collection[tuple[str, str]]) -> bool:
        """Whether a DaemonSet makes this pod. Whoever makes a pod can write an owner into it that there is not, or that is somebody else's."""
        return self.controller == "DaemonSet" and (self.namespace, self.controller_uid) in known

    @property
    def devices(self) -> dict[str, int]:
        """How many devices it asked for, by resource."""
        return {name: count for name, count in self.resources.items() if name not in _AMOUNTS}

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def uses_gpu(self) -> bool:
        """Whether it asked for GPUs, or has a resource claim, which may be one for a GPU."""
        return bool(self.resources) or self.claims


def read(document: Mapping[str, Any]) -> Pod:
    """Return the pod of an object of the API."""
    metadata, spec = document.get("metadata") or {}, document.get("spec") or {}
    asked = [_gpus(one) for one in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))]
    devices = sum(count for one in asked for name, count in one.items() if name not in _AMOUNTS)
    owners = [owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")]
    volumes = spec.get("volumes") or ()
    return Pod(
        namespace=str(metadata.get("namespace") or "default"),
        name=str(metadata.get("name")),
        uid=str(metadata.get("uid") or ""),
        phase=str((document.get("status") or {}).get("phase") or "Pending"),
        terminating=bool(metadata.get("deletionTimestamp")),
        controller=str(owners[0].get("kind")) if owners else None,
        # The annotation alone is anybody's. The pod that a kubelet makes of a static one is owned by its node.
        mirror=_MIRROR in (metadata.get("annotations") or {}) and bool(owners) and owners[0].get("kind") == "Node",
        empty_dirs=tuple(str(volume.get("name")) for volume in volumes if volume.get("emptyDir") is not None),
        resources=requested(spec),
        claims=bool(spec.get("resourceClaims")),
        controller_uid=str(owners[0].get("uid") or "") if owners else "",
        hami=_given_by_hami(str((metadata.get("annotations") or {}).get(_HAMI) or ""), devices),
    )


def _given_by_hami(text: str, most: int) -> tuple[tuple[str, int], ...]:
    """Read HAMi's annotation: containers end with a semicolon, devices with a colon, each is C(uuid,vendor,MiB,percent).

    Whoever makes a pod can write one, so it is of no more devices than the pod asks for, and none has more memory than a device can have.
    """
    found = (_HAMI_DEVICE.fullmatch(device) for device in re.split("[;:]", text[:_LONGEST_ANNOTATION]))
    return tuple((device.group(1), int(device.group(2))) for device in found if device)[:most]


def quantity(value: Any) -> int:
    """Return an amount of an extended resource: the API server writes 8000 as C(8k). What is none, is 0."""
    found = _QUANTITY.fullmatch(str(value).strip())
    if not found:
        return 0
    number, suffix = int(found.group(1)), found.group(2) or ""
    return number * (10 ** int(suffix[1:]) if suffix[:1] in ("e", "E") else _SUFFIXES[suffix])


def requested(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return the GPUs that a pod's containers ask for, by resource, counted as the scheduler does.

    Containers run together and add up, sidecars with them; ordinary init containers run one after the other, beside the
    sidecars that were started before them.
    """
    running: Counter[str] = Counter()
    for container in spec.get("containers") or ():
        running.update(_gpus(container))
    peak: dict[str, int] = {}
    sidecars: Counter[str] = Counter()
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            sidecars.update(_gpus(container))
            continue
        for name, count in _gpus(container).items():
            peak[name] = max(peak.get(name, 0), count + sidecars[name])
    running.update(sidecars)
    return {name: max(running[name], peak.get(name, 0)) for name in sorted({*running, *peak})}


def _gpus(container: Mapping[str, Any]) -> dict[str, int]:
    resources = container.get("resources") or {}
    wanted = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    asked = {str(name): quantity(count) for name, count in wanted.items() if str(name).startswith(GPU_PREFIXES)}
    return {name: count for name, count in asked.items() if count}


@dataclass(frozen=True)
class Evictions:
    """What emptying a node means.

    :param blockers: why some of them must not be evicted, by pod; none is touched then.
    :param stay: pods of DaemonSets, which would come back at once; when the whole node is emptied, static ones too.
    """

    evict: tuple[Pod, ...]
    blockers: Mapping[str, str]
    stay: tuple[Pod, ...] = ()


def evictions(
    pods: Iterable[Pod],
    *,
    daemon_sets: Collection[tuple[str, str]],
    uids: Sequence[str] | None = None,
    holders: Collection[str] = (),
    every: bool = False,
    force: bool = False,
    delete_empty_dir: bool = False,
) -> Evictions:
    """Return which pods have to leave a node.

    :param holders: UIDs of pods of which a process holds a GPU. They use one, whatever they asked for.
    :param every: the whole node is emptied, as C(kubectl drain) does it: pods that use no GPU go too, static pods stay.
    :param force: whether pods without a controller go, although nothing makes them again.
    :param delete_empty_dir: whether pods with emptyDir volumes go, although their data goes with them.
    """
    chosen, stay = [], []
    blockers: dict[str, str] = {}
    for pod in pods:
        uses = pod.uses_gpu or pod.uid in holders
        if pod.ended or not (every or (uses if uids is None else pod.uid in uids)):
            continue
        if pod.of_daemon_set(daemon_sets) or (every and pod.mirror):
            stay.append(pod)
            continue
        chosen.append(pod)
        if pod.terminating:
            continue
        if pod.mirror:
            blockers[pod.title] = "it is a static pod of the kubelet, which the API cannot evict"
        elif pod.controller is None and not force:
            blockers[pod.title] = "it has no controller, so nothing would recreate it"
        elif pod.controller == "DaemonSet" and not force:
            blockers[pod.title] = (
                "its owner is a DaemonSet that the cluster does not have, so nothing would recreate it"
            )
        elif pod.empty_dirs and not delete_empty_dir:
            blockers[pod.title] = f"the data in its emptyDir volume {pod.empty_dirs[0]} would be lost"
    return Evictions(tuple(chosen), blockers, tuple(stay))
