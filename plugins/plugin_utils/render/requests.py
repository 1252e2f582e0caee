# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""N GiB over M GPUs (C(gpu_kubernetes_requests)): which pools of a cluster serve a request, and why the others do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import arithmetic
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.model import Cluster, Configuration

#: Backends whose pods say how much memory they take, so that its size is not that of the pool's slices.
ANY_SIZE = ("hami", "dra")
#: Whether the M slices of a pod are on M GPUs: docs of the device plugin (sharing), HAMi's scheduler, and the claim's distinctAttribute.
DISTINCT: Mapping[str, str] = {
    "mps": "best effort (the device plugin prefers them)",
    "hami": "guaranteed by HAMi's scheduler",
    "dra": "guaranteed by the claim (distinctAttribute)",
}


@dataclass(frozen=True)
class Answer:
    """What a pool says to a request.

    :param share: the request, resolved; None where the pool does not serve it.
    :param refusal: why it does not.
    """

    text: str
    item: Configuration
    share: arithmetic.Share | None = None
    refusal: Refused | None = None


def sliced(cluster: Cluster) -> tuple[Configuration, ...]:
    """Return the configurations whose GPUs are shared by memory."""
    return tuple(item for item in cluster.configurations if item.sharing.slice_mib)


def answers(cluster: Cluster) -> tuple[Answer, ...]:
    """Return what each pool says to each request, in the order of the requests.

    :raises Refused: a request cannot be understood, or no pool serves it.
    """
    found: list[Answer] = []
    for number, entry in enumerate(cluster.options["requests"]):
        path = f"gpu_kubernetes_requests[{number}]"
        share = arithmetic.share(str(entry["memory"]), int(entry.get("gpus") or 1), path)
        text = f"{arithmetic.memory_text(share.memory_mib)} over {share.gpus}"
        of_pools = [_answer(text, item, share, path) for item in cluster.configurations]
        refused = [one for one in of_pools if one.refusal is not None]
        if refused and len(refused) == len(of_pools):
            # A pool that divides memory says what is missing; the others say only that they do not.
            nearest = next((one for one in refused if one.item.sharing.slice_mib), refused[0])
            raise nearest.refusal or AssertionError(text)
        found += of_pools
    return tuple(found)


def written(item: Configuration, gpus: int, each_mib: int) -> str:
    """Return, for people, what a pod writes to get C(each_mib) of each of C(gpus) GPUs."""
    if item.sharing.backend == "dra":
        return f"a claim with {gpus} request{'s' if gpus > 1 else ''} of `memory: {each_mib}Mi`"
    resource = next(iter(sorted(item.capacity.resources)), "nvidia.com/gpu")
    memory = f", `nvidia.com/gpumem: {each_mib}`" if item.sharing.backend == "hami" else ""
    return f"`{resource}: {gpus}`{memory}"


def own_share(item: Configuration) -> arithmetic.Share:
    """Return the request for slices of the pool's own size, of as many as a pod of it spreads over."""
    size, gpus = item.sharing.slice_mib or 0, min(item.sharing.gpus_per_pod, item.gpus)
    return arithmetic.Share(size * gpus, gpus, size)


def _answer(text: str, item: Configuration, share: arithmetic.Share, path: str) -> Answer:
    refusal = _undivided(item, path) or _too_many(item, share, path) or _too_large(item, share, path)
    return Answer(text, item, refusal=refusal) if refusal else Answer(text, item, share)


def _undivided(item: Configuration, path: str) -> Refused | None:
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


def _too_many(item: Configuration, share: arithmetic.Share, path: str) -> Refused | None:
    if share.gpus > item.gpus:
        return Refused(
            f"{path}.gpus", f"{share.gpus} GPUs, and a node of pool {item.pool} has {item.gpus}", "Ask for fewer GPUs."
        )
    if share.gpus > 1 and item.sharing.gpus_per_pod == 1 and item.sharing.backend == "mps":
        return Refused(
            f"{path}.gpus",
            f"{share.gpus} GPUs, and the device plugin of pool {item.pool} gives a container one slice (nvidia_sharing_gpus_per_pod: 1)",
            f"Set nvidia_sharing_gpus_per_pod: {share.gpus} for the pool.",
        )
    return None


def _too_large(item: Configuration, share: arithmetic.Share, path: str) -> Refused | None:
    each = arithmetic.memory_text(share.per_gpu_mib)
    if item.sharing.backend in ANY_SIZE:
        most = min((unit.memory_mib for unit in item.capacity.slices.values() if unit.memory_mib), default=None)
        if most is None or share.per_gpu_mib <= most:
            return None
        return Refused(
            f"{path}.memory",
            f"{each} on each GPU, and a GPU of pool {item.pool} has {most} MiB",
            "Ask for less, or spread over more GPUs.",
        )
    if share.per_gpu_mib <= (item.sharing.slice_mib or 0):
        return None
    return Refused(
        f"{path}.memory",
        f"{each} on each GPU, and a slice of pool {item.pool} is {arithmetic.memory_text(item.sharing.slice_mib or 0)}",
        f"Two slices on one GPU are not one larger slice: set nvidia_sharing_memory_slice: {each}, spread over more GPUs, or use a backend "
        f"whose pods say how much they take (nvidia_sharing_backend: {' or '.join(ANY_SIZE)}).",
    )
