# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What pods ask for (C(gpu_kubernetes_requests)), N GiB over M GPUs or MIG devices: which pools of a cluster serve it, and why the others do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...module_utils._mig.model import compute_name, describe, nearest, parse
from ...module_utils._plan import Refused
from ...module_utils._sharing import modes
from ...module_utils._sharing.mps_instances import GPU, mig_resource
from .clusters import DescribedCluster, PluginConfiguration, dns_label

#: Backends whose pods say how much memory they take, so that its size is not that of the pool's slices.
ANY_SIZE = ("hami", "dra")
#: Whether the M slices of a pod are on M GPUs: docs of the device plugin (sharing), HAMi's scheduler, and the claim's distinctAttribute.
_DISTINCT: Mapping[str, str] = {
    "mps": "best effort (the device plugin prefers them)",
    "hami": "guaranteed by HAMi's scheduler",
    "dra": "guaranteed by the claim (distinctAttribute)",
}


@dataclass(frozen=True)
class Answer:
    """What a pool says to a request.

    :param share: N GiB over M GPUs, resolved; None where the pool does not serve it, or the request is another.
    :param profile: of the MIG devices that are requested, C(count) of them.
    :param resource: under which the device plugin offers these.
    """

    text: str
    item: PluginConfiguration
    share: modes.Share | None = None
    profile: str = ""
    count: int = 1
    resource: str = ""
    refusal: Refused | None = None


def distinct(item: PluginConfiguration) -> str:
    """Return, for people, whether M slices of a pod are on M GPUs."""
    if item.sharing.claims_shared:
        return "guaranteed by the claim (each device once)"
    return _DISTINCT[item.sharing.backend]


def any_size(item: PluginConfiguration) -> bool:
    """Whether its pods say how much memory they take. With time slices nobody enforces what they say, so the number of slices decides."""
    return item.sharing.backend in ANY_SIZE and item.sharing.mode != "time_slicing"


def answers(cluster: DescribedCluster) -> tuple[Answer, ...]:
    """Return what each pool says to each request, in their order; refuse one that cannot be understood, or that no pool serves."""
    found: list[Answer] = []
    for number, entry in enumerate(cluster.options["requests"]):
        path = f"gpu_kubernetes_requests[{number}]"
        of_pools = _of_pools(cluster, entry, path)
        refused = [one for one in of_pools if one.refusal is not None]
        if refused and len(refused) == len(of_pools):
            # A pool that divides memory, or GPUs, says what is missing; the others say only that they do not.
            divided = [one for one in refused if (one.item.mig_devices if one.profile else one.item.sharing.slice_mib)]
            nearest_pool = [*divided, *refused][0]
            raise nearest_pool.refusal or AssertionError(path)
        found += of_pools
    return tuple(found)


def _of_pools(cluster: DescribedCluster, entry: Mapping[str, Any], path: str) -> list[Answer]:
    memory, profile = entry.get("memory"), entry.get("profile")
    if bool(memory) == bool(profile):
        reason = "it has both memory and profile" if memory else "it has neither memory nor profile"
        raise Refused(path, reason, "Ask for {memory: 8GiB, gpus: 2} or for {profile: 1g.10gb, count: 2}.")
    for name, of in (("gpus", "memory"), ("count", "profile")):
        if entry.get(name) is not None and not entry.get(of):
            raise Refused(f"{path}.{name}", f"it belongs to {of}, which is not set", "Remove it.")
    if profile:
        wanted, count = _device(str(profile), f"{path}.profile"), int(entry.get("count") or 1)
        if count < 1:
            raise Refused(f"{path}.count", f"{count} MIG devices are not a valid request", "Ask for one or more.")
        return [_mig_answer(item, wanted, count, path) for item in cluster.configurations]
    share = modes.share(str(memory), int(entry.get("gpus") or 1), path)
    text = f"{modes.memory_text(share.memory_mib)} over {share.gpus}"
    return [_answer(text, item, share, path) for item in cluster.configurations]


def name_of(item: PluginConfiguration, kind: str) -> str:
    """Return the name of the example with one device: C(GPU), or a MIG profile."""
    return f"{item.name}-{dns_label(kind if kind == 'GPU' else f'mig-{kind}')}"


def file_of(item: PluginConfiguration, share: modes.Share) -> str:
    """Return the name of the example with N GiB over M GPUs."""
    return f"{item.name}-{modes.memory_text(share.memory_mib).lower()}-over-{share.gpus}.yaml"


def file_of_devices(one: Answer) -> str:
    """Return the name of the example with MIG devices of a profile."""
    name = name_of(one.item, one.profile)
    if one.resource and one.count == 1:
        name = f"{one.item.name}-{dns_label(one.resource.partition('/')[2])}"
    return f"{name}{f'-x{one.count}' if one.count > 1 else ''}.yaml"


def written_devices(one: Answer) -> str:
    """Return, for people, what a pod writes to get MIG devices of a profile."""
    if one.resource:
        return f"`{one.resource}: {one.count}`"
    return f"a claim of the class `mig.nvidia.com` with `profile == '{one.profile}'` and `count: {one.count}`"


def written(item: PluginConfiguration, gpus: int, each_mib: int) -> str:
    """Return, for people, what a pod writes to get C(each_mib) of each of C(gpus) GPUs."""
    if item.sharing.claims_shared:
        limit = f" and `defaultPinnedDeviceMemoryLimit: {each_mib}Mi`" if item.sharing.mode == "mps" else ""
        return f"the name of a shared ResourceClaim with `count: {gpus}`{limit}"
    if item.sharing.backend == "dra":
        return f"a claim with {gpus} request{'s' if gpus > 1 else ''} of `memory: {each_mib}Mi`"
    resource = next(iter(sorted(item.capacity.resources)), "nvidia.com/gpu")
    memory = f", `nvidia.com/gpumem: {each_mib}`" if item.sharing.backend == "hami" else ""
    return f"`{resource}: {gpus}`{memory}"


def own_share(item: PluginConfiguration) -> modes.Share:
    """Return the request for slices of the pool's own size, of as many as a pod of it spreads over."""
    size, gpus = item.sharing.slice_mib or 0, min(item.sharing.gpus_per_pod, item.gpus)
    return modes.Share(size * gpus, gpus, size)


def _answer(text: str, item: PluginConfiguration, share: modes.Share, path: str) -> Answer:
    refusal = _undivided(item, path) or _too_many(item, share, path) or _too_large(item, share, path)
    return Answer(text, item, refusal=refusal) if refusal else Answer(text, item, share)


def _device(name: str, path: str = "profile") -> str:
    """Return the one name of a MIG device, however its attributes are ordered and its letters are written."""
    parsed = parse(name, path)
    return compute_name(parsed.gpu_instance, parsed.compute)


def _mig_answer(item: PluginConfiguration, profile: str, count: int, path: str) -> Answer:
    text = f"{count} x {profile}"
    made: Counter[str] = Counter()
    for devices in item.mig_devices.values():
        made.update(devices)
    there = next((name for name in made if _device(name) == profile), "")
    refusal = None
    if not there:
        refusal = _no_such_device(item, profile, made, path)
    elif count > made[there]:
        refusal = Refused(
            f"{path}.count",
            f"{count} MIG devices {there}, and a node of pool {item.pool} has {made[there]}",
            "Ask for fewer, or change nvidia_mig_layout.",
        )
    elif count > 1 and item.sharing.backend == "mps" and item.sharing.replicated and item.sharing.gpus_per_pod < count:
        refusal = Refused(
            f"{path}.count",
            f"{count} MIG devices, and the device plugin of pool {item.pool} gives a container {item.sharing.gpus_per_pod} of those that are shared",
            f"Set nvidia_sharing_gpus_per_pod: {count} for the pool.",
        )
    if refusal:
        return Answer(text, item, profile=profile, count=count, refusal=refusal)
    resource = ""
    if item.sharing.backend != "dra":
        plain = GPU if item.strategy == "single" else mig_resource(there)
        resource = next((name for name in (f"{plain}.shared", plain) if name in item.capacity.resources), plain)
    return Answer(text, item, profile=there, count=count, resource=resource)


def _no_such_device(item: PluginConfiguration, profile: str, made: Mapping[str, int], path: str) -> Refused:
    """Refuse a profile that no layout makes, with the layout that would do."""
    reason = f"nvidia_mig_layout of pool {item.pool} makes no {profile} (it makes {describe(made) or 'no MIG devices'})"
    fits = next((one for one in item.profiles if one.name == parse(profile).gpu_instance), None)
    if fits is None:
        near = nearest(parse(profile), item.profiles)
        of = f"Its GPUs have the profiles {', '.join(near)} and others." if near else "Its GPUs have no MIG profiles."
        return Refused(f"{path}.profile", f"{reason}, and its GPUs have no such profile", of)
    strategy = "" if item.strategy == "mixed" else "nvidia_mig_strategy: mixed and "
    remedy = f"Set {strategy}nvidia_mig_layout: [{{devices: all, instances: {{{profile}: {fits.max_instances}}}}}] or one with fewer of it beside others."
    return Refused(f"{path}.profile", reason, remedy)


def _undivided(item: PluginConfiguration, path: str) -> Refused | None:
    """Nothing counts memory in a pool without a memory slice."""
    if item.sharing.slice_mib:
        return None
    kinds = ", ".join(sorted(item.capacity.offers)) or "nothing"
    what = f"the pods of pool {item.pool} ask for {kinds} by number"
    if item.sharing.backend == "dra":
        what = f"the pods of pool {item.pool} claim whole devices ({kinds})"
    return Refused(
        f"{path}.memory",
        f"{what}, and nothing counts memory there",
        "Set nvidia_sharing_memory_slice for the pool, with nvidia_sharing_mode: mps or time_slicing, or with nvidia_sharing_backend: "
        f"{' or '.join(ANY_SIZE)}.",
    )


def _too_many(item: PluginConfiguration, share: modes.Share, path: str) -> Refused | None:
    if share.gpus > item.gpus:
        return Refused(
            f"{path}.gpus", f"{share.gpus} GPUs, and a node of pool {item.pool} has {item.gpus}", "Ask for fewer GPUs."
        )
    if share.gpus > 1 and item.sharing.gpus_per_pod == 1 and item.sharing.backend == "mps":
        reason = f"{share.gpus} GPUs, and the device plugin of pool {item.pool} gives a container one slice (nvidia_sharing_gpus_per_pod: 1)"
        return Refused(f"{path}.gpus", reason, f"Set nvidia_sharing_gpus_per_pod: {share.gpus} for the pool.")
    return None


def _too_large(item: PluginConfiguration, share: modes.Share, path: str) -> Refused | None:
    each = modes.memory_text(share.per_gpu_mib)
    if any_size(item):
        most = min((unit.memory_mib for unit in item.capacity.slices.values() if unit.memory_mib), default=None)
        if most is None or share.per_gpu_mib <= most:
            return None
        reason = f"{each} on each GPU, and a GPU of pool {item.pool} has {most} MiB"
        return Refused(f"{path}.memory", reason, "Ask for less, or spread over more GPUs.")
    if share.per_gpu_mib <= (item.sharing.slice_mib or 0):
        return None
    return Refused(
        f"{path}.memory",
        f"{each} on each GPU, and a slice of pool {item.pool} is {modes.memory_text(item.sharing.slice_mib or 0)}",
        f"Two slices on one GPU are not one larger slice: set nvidia_sharing_memory_slice: {each}, spread over more GPUs, or use a backend "
        f"whose pods say how much they take (nvidia_sharing_backend: {' or '.join(ANY_SIZE)}).",
    )
