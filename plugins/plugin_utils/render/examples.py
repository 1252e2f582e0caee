# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Example workloads of a cluster: a check of each resource, a pod for each MIG profile, a shared pod, N GiB over M GPUs, a job over hosts of a rack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._printable import amount
from ...module_utils._sharing import modes
from ...module_utils._sharing.modes import guarantee
from . import claimed_devices
from .clusters import DescribedCluster, PluginConfiguration, dns_label, kube_object
from .emit import documents, made
from .requests import Answer, answers, distinct, file_of, file_of_devices, name_of, own_share


def examples(cluster: DescribedCluster) -> dict[str, str]:
    """Return file name to text. Raises Refused: a request in C(gpu_kubernetes_requests) that no pool can serve."""
    files: dict[str, str] = {}
    asked = answers(cluster)
    for item in cluster.configurations:
        for resource in item.capacity.resources:
            name = f"{item.name}-{dns_label(resource.partition('/')[2])}"
            files[f"{name}.yaml"] = documents(_about(item, resource), [_pod(cluster, item, name, {resource: 1})])
        for kind in claimed_devices.kinds(item):
            name = name_of(item, kind)
            files[f"{name}.yaml"] = _claiming(cluster, item, name, f"One {kind} of {item.origin}", kind)
        for share in _shares(item, asked):
            file = file_of(item, share)
            files[file] = _share(cluster, item, file.removesuffix(".yaml"), share)
        if item.compute_domains:
            files[f"{item.name}-compute-domain.yaml"] = _compute_domain(cluster, item)
    for one in asked:
        if one.profile and one.count > 1:
            files[file_of_devices(one)] = _devices(cluster, one)
    return dict(sorted(files.items()))


def _devices(cluster: DescribedCluster, one: Answer) -> str:
    """Return a pod with several MIG devices of a profile."""
    item, name = one.item, file_of_devices(one).removesuffix(".yaml")
    about = f"{one.count} MIG devices {one.profile} of {item.origin}"
    if item.sharing.backend == "dra":
        return _claiming(cluster, item, name, about, one.profile, one.count)
    lines = "\n".join([f"{about}.", *_guarantee(item)])
    return documents(lines, [_pod(cluster, item, name, {one.resource: one.count})])


def _claiming(
    cluster: DescribedCluster,
    item: PluginConfiguration,
    name: str,
    about: str,
    kind: str,
    count: int = 1,
    share: modes.Share | None = None,
) -> str:
    """Return a claim with a pod, or a claim that the pods of a job share, as many as the pool's description counts on."""
    wanted = claimed_devices.devices(item, kind, count, share)
    users = claimed_devices.users(item, kind, share)
    if users < 2:
        header = [f"{about}, by a claim.", *_guarantee(item)]
        pod = _pod(cluster, item, name, claims=[_claim(name)])
        return documents("\n".join(header), [claimed_devices.template(name, wanted), pod])
    header = [f"{about}, by one claim that {users} pods share.", *_guarantee(item)]
    pod = _pod(cluster, item, name, claims=[{"name": "gpus", "resourceClaimName": name}])
    return documents("\n".join(header), [claimed_devices.shared(name, wanted), _job(name, users, pod["spec"])])


def _job(name: str, pods: int, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job whose pods run all at once, and are labelled with its name."""
    template = {"metadata": {"labels": {"app.kubernetes.io/name": name}}, "spec": spec}
    return kube_object("batch/v1", "Job", name, spec={"completions": pods, "parallelism": pods, "template": template})


def _about(item: PluginConfiguration, resource: str) -> str:
    unit = item.capacity.slices.get(resource)
    lines = [f"One {resource} of {item.origin}."]
    if unit and unit.memory_mib:
        lines.append(
            f"GPU or MIG device: {unit.memory_mib} MiB in {unit.replicas} part{'s' if unit.replicas > 1 else ''}."
        )
    if unit and unit.limit_mib:
        lines.append(f"Each process can allocate {unit.limit_mib} MiB.")
    return "\n".join(lines + _guarantee(item))


def _guarantee(item: PluginConfiguration) -> list[str]:
    holds = guarantee(item.sharing)
    lines = [
        f"Counted by: {holds.counted_by}.",
        f"Enforced by: {holds.enforced_by}.",
        f"nvidia-smi in the pod shows: {holds.visible_in_nvidia_smi}.",
    ]
    return lines + ([f"Mind: {holds.limit}."] if holds.limit else [])


def _shares(item: PluginConfiguration, asked: Sequence[Answer]) -> list[modes.Share]:
    """Return the requests "N GiB over M GPUs" that this pool serves: the user's, or one of the pool's own slice size."""
    if not item.sharing.slice_mib:
        return []
    return [one.share for one in asked if one.item is item and one.share] or [own_share(item)]


def _share(cluster: DescribedCluster, item: PluginConfiguration, name: str, share: modes.Share) -> str:
    each = modes.memory_text(share.per_gpu_mib)
    about = f"{modes.memory_text(share.memory_mib)} over {amount(share.gpus, 'GPU')} of {item.origin}: {each} on each"
    if item.sharing.claims_shared:
        return _claiming(cluster, item, name, about, claimed_devices.GPU, share.gpus, share)
    header = [f"{about}.", *_guarantee(item)]
    if share.gpus > 1:
        header.append(f"{share.gpus} distinct GPUs: {distinct(item)}.")
    gpu = next(iter(item.capacity.resources), "nvidia.com/gpu")
    if item.sharing.backend == "dra":
        claim = claimed_devices.template(name, claimed_devices.parts(share))
        return documents("\n".join(header), [claim, _pod(cluster, item, name, claims=[_claim(name)])])
    limits: dict[str, Any] = {gpu: share.gpus}
    environment = []
    if item.sharing.backend == "hami":
        limits["nvidia.com/gpumem"] = share.per_gpu_mib
    elif item.sharing.mode == "mps" and share.per_gpu_mib < (item.sharing.slice_mib or 0):
        limit = ",".join(f"{ordinal}={share.per_gpu_mib}M" for ordinal in range(share.gpus))
        header.append(
            "The variable lowers the pool's limit for this pod; it is not a quota, because the pod can change it."
        )
        environment.append({"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "value": limit})
    return documents("\n".join(header), [_pod(cluster, item, name, limits, environment=environment)])


def _pod(
    cluster: DescribedCluster,
    item: PluginConfiguration,
    name: str,
    limits: Mapping[str, Any] | None = None,
    **given: Any,
) -> dict[str, Any]:
    amounts = {"cpu": "1", "memory": "1Gi", **{key: str(value) for key, value in (limits or {}).items()}}
    more = {"environment": [], "claims": [], "spread": False, **given}
    return made("pod", name=name, item=item, options=cluster.options, limits=amounts, **more)


def _claim(template: str, name: str = "gpus") -> dict[str, str]:
    return {"name": name, "resourceClaimTemplateName": template}


def _compute_domain(cluster: DescribedCluster, item: PluginConfiguration) -> str:
    """Return a job over two hosts of a rack whose pods share a ComputeDomain. Its API is the DRA driver's (resource.nvidia.com/v1beta1)."""
    name = f"{item.name}-compute-domain"
    # The driver makes the template and the IMEX daemons of the nodes on which pods with a claim of it run; 0 is any number of them.
    wanted = {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": name}}}
    items = [kube_object("resource.nvidia.com/v1beta1", "ComputeDomain", name, spec=wanted)]
    header = [
        f"Two pods of {item.origin} on two hosts of a rack, which share GPU memory through the IMEX channel of a ComputeDomain."
    ]
    limits, claims = {}, [_claim(name, "channel")]
    for kind in claimed_devices.kinds(item)[:1]:
        header.append(f"Each claims one {kind} as well.")
        claims.insert(0, _claim(name_of(item, kind)))
        items.insert(0, claimed_devices.template(name_of(item, kind), claimed_devices.devices(item, kind)))
    if len(claims) == 1:
        limits = {next(iter(item.capacity.resources), ""): 1}
    pod = _pod(cluster, item, name, limits, claims=claims, spread=True)
    return documents("\n".join(header), [*items, _job(name, 2, pod["spec"])])
