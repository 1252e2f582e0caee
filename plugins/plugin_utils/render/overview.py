# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The README of a cluster's tree: what is shown, what holds, how to ask for it."""

from __future__ import annotations

import json
from collections.abc import Collection

from ...module_utils._sharing import arithmetic
from ...module_utils._sharing.modes import guarantee
from ..fleet import served
from ..fleet.node_match import VARIABLE
from ..fleet.sharing_configurations import CHOICE, DEFAULT, LABEL
from . import device_plugin, gpu_operator, plain_objects, quotas, requests
from .clusters import DescribedCluster, PluginConfiguration, servers
from .gitops import definition_policy, definitions
from .versions import DEFINITIONS, GPU_OPERATOR, tag

_MOST_GPUS = 8


def overview(cluster: DescribedCluster, charts: Collection[str]) -> str:
    """Return the text of README.md.

    :param charts: the names of those that its releases install.
    """
    text = f"# GPUs of cluster {cluster.name}\n\n"
    text += "Rendered by `gpufleet.nvidia.render` from the inventory. Change the inventory and render again; a change made here is refused.\n\n"
    text += _table(
        ["pool", "nodes", "resources of a node", "one unit"],
        [[_title(item), _number(item), _resources(item), _units(item)] for item in cluster.configurations],
    )
    text += "\n## Nodes\n\n"
    text += _table(["pool", "nodes"], [[_title(item), ", ".join(item.nodes)] for item in cluster.configurations])
    by_hand = not cluster.options["node_feature_discovery"]
    if by_hand and not all(item.match.labels for item in cluster.configurations):
        text += (
            "\n## Labels of the nodes\n\nNothing labels the nodes (`gpu_kubernetes_node_feature_discovery: false`), and without their labels no pod of the "
            "releases or the examples runs on them. Apply the labels\nafter each rendering, and after a node joined:\n\n"
            "    kubectl apply --server-side --field-manager=gpufleet -f node-labels.yaml\n"
        )
    text += _joining(cluster)
    text += "\n## What a pod can rely on\n\n"
    rows = []
    for item in cluster.configurations:
        holds = guarantee(item.sharing)
        rows.append(
            [_title(item), holds.counted_by, holds.enforced_by, holds.visible_in_nvidia_smi, holds.limit or "-"]
        )
    text += _table(["pool", "counted by", "enforced by", "nvidia-smi shows", "mind"], rows)
    for item in [one for one in cluster.configurations if one.sharing.slice_mib]:
        text += f"\n## N GiB over M GPUs in pool {item.pool}\n\n"
        text += (
            f"A slice is {arithmetic.memory_text(item.sharing.slice_mib or 0)} of one GPU. "
            "What ACK writes as `aliyun.com/gpu-mem` (N) and `aliyun.com/gpu-count` (M):\n\n"
        )
        text += _table(["N", "M", "on each GPU", "limits of the pod"], _cheat_sheet(item))
        if requests.any_size(item):
            text += "\nAny other size up to the memory of a GPU is written in the same way.\n"
        text += f"\nM distinct GPUs for the M slices of a pod: {requests.distinct(item)}.\n"
    text += _sharing_configurations(cluster)
    text += _requests(cluster)
    text += _quotas(cluster)
    text += _shared_name(cluster)
    text += _automated_sync(cluster) + _definitions(cluster, charts)
    assumed = sorted({note for item in cluster.configurations for note in item.capacity.assumed})
    if assumed:
        text += "\n## Assumed\n\n" + "".join(f"- {note}\n" for note in assumed)
    return text


def _number(item: PluginConfiguration) -> str:
    return f"{len(item.nodes)} and those that join" if item.match.by_property else str(len(item.nodes))


def _joining(cluster: DescribedCluster) -> str:
    """Say which nodes join a pool without a rendering, and what their hosts must bring: nothing in the cluster prepares a host."""
    items = [item for item in cluster.configurations if item.match.by_property]
    if not items:
        return ""
    text = (
        "\n## Nodes that join by what they are\n\n"
        f"`{VARIABLE}`: these nodes get the pool's configuration although the inventory does not know them. `capacity.json` says under\n"
        "`each_node` what each shows.\n\n"
    )
    rows = [[_title(item), _found_by(item), "; ".join(_of_host(cluster, item))] for item in items]
    text += _table(["pool", "every node with", "what its host must bring"], rows)
    text += "\nThe tree does not prepare hosts: their image does, or `ansible-pull`, whose inventory must list them.\n"
    if any(item.match.devices for item in items):
        text += (
            "Node Feature Discovery does not count devices: a node with fewer GPUs joins, too, and shows fewer. Whoever is root on a node of the\n"
            "cluster can report a GPU that it does not have.\n"
        )
    if any(item.match.labels for item in items):
        text += (
            "Nodes that are found by labels of a group get no labels from the tree: pods select them by the labels of the group. A kubelet can\n"
            "set labels of its own node, except those of `node-restriction.kubernetes.io/`.\n"
        )
    return text


def _found_by(item: PluginConfiguration) -> str:
    if item.match.labels:
        return ", ".join(f"`{key}={value}`" for key, value in item.match.labels.items())
    return "a GPU " + " or ".join(f"`10de:{device}`" for device in item.match.devices)


def _of_host(cluster: DescribedCluster, item: PluginConfiguration) -> list[str]:
    needs = [
        f"NVIDIA's driver, and the container toolkit for `nvidia_toolkit_device_injection: {item.injection.method}`"
    ]
    by_operator = (cluster.options["stack"], cluster.options["mig_manager"]) == ("gpu_operator", "operator")
    if item.strategy != "none" and not by_operator:
        needs.append("GPUs partitioned as `nvidia_mig_layout` says")
    if item.sharing.mps_of_host:
        needs.append("the MPS daemon of `nvidia_sharing_mps_manager: host`")
    if item.compute_domains:
        needs.append("IMEX masked")
    return needs


def _sharing_configurations(cluster: DescribedCluster) -> str:
    """Say what the nodes of each pool can choose by their label, and who may change the label."""
    items = [item for item in cluster.plugin_configurations if item.plugin_texts or item.choices.refused]
    if not items:
        return ""
    operator = plain_objects.operator_serves(cluster)
    text = f"\n## Sharing configurations\n\nThe label `{LABEL}` of a node chooses.\n\n"
    text += _table(
        ["pool", "label", "resources of a node", "chosen for"], [row for item in items for row in _rows(cluster, item)]
    )
    if cluster.options["node_feature_discovery"]:
        text += (
            f"\nWhere the inventory chooses (`{CHOICE}`), Node Feature Discovery sets the label by the rule in `node-labels/pools.yaml`.\n"
            "A change by hand is reverted when the features of the node change, or within an hour; without the rule NFD removes the label.\n"
        )
    else:
        text += (
            f"\nWhere the inventory chooses (`{CHOICE}`), `node-labels.yaml` has the label. After a change by hand, the next\n"
            "`kubectl apply --server-side` of that file ends with a conflict.\n"
        )
    if not operator or any(item.choices.default for item in items):
        text += (
            f"\nThe tree sets no such label on the other nodes, and nothing reverts `kubectl label node NODE --overwrite {LABEL}=NAME`;\n"
            f"`{LABEL}-` goes back to the default. The plugin restarts and offers other devices, so drain the node first where pods use its\n"
            "GPUs. A name that is not in the table keeps the plugin and gpu-feature-discovery from starting, or leaves them as they were.\n"
        )
    else:
        text += f"\nThe other nodes are labelled with their pool's own; `{DEFAULT}` leaves their label to `kubectl label`.\n"
    if operator:
        text += (
            "\nWhat a label by hand names is not read again when a new rendering changes it: delete the plugin's pod of the node then.\n"
            "A GPU Operator that these values did not install is given the same by\n"
            f"`kubectl patch clusterpolicies.nvidia.com/cluster-policy --type merge -p '{_patch(cluster)}'`.\n"
        )
    return text


def _rows(cluster: DescribedCluster, item: PluginConfiguration) -> list[list[str]]:
    rows = []
    labelled = plain_objects.operator_serves(cluster) and not item.choices.default
    for label, name in sorted(plain_objects.names_of_choices(cluster, item).items()):
        one = item.choices.named[name] if name else item.choices.own
        shown = ", ".join(f"`{resource}: {count}`" for resource, count in sorted(one.capacity.resources.items()))
        nodes = [node for node, mine in zip(item.nodes, item.choices_of, strict=True) if name and mine.chosen == name]
        if name == item.choices.default:
            nodes.append("the other nodes" if labelled else "nodes without the label")
        rows.append([_title(item), f"`{label}`", shown or "none", ", ".join(nodes) or "-"])
    rows += [
        [_title(item), f"`{name}`", f"not in this pool: {why.reason}", "-"]
        for name, why in sorted(item.choices.refused.items())
    ]
    return rows


def _patch(cluster: DescribedCluster) -> str:
    """Return what the rendered values say of the device plugin's configuration, for a ClusterPolicy."""
    name = device_plugin.shared_config_map(cluster, gpu_operator.strategy_of(cluster))["metadata"]["name"]
    config = {"name": name, "default": gpu_operator.default_of(cluster)}
    return json.dumps({"spec": {"devicePlugin": {"config": config}}})


def _requests(cluster: DescribedCluster) -> str:
    """Say which pool serves each request of C(gpu_kubernetes_requests), and why another does not."""
    rows = []
    for one in requests.answers(cluster):
        if one.refusal:
            rows.append([one.text, _title(one.item), one.refusal.reason, "-"])
        elif one.share:
            said = requests.written(one.item, one.share.gpus, one.share.per_gpu_mib)
            example = f"`examples/{requests.file_of(one.item, one.share)}`"
            distinct = requests.distinct(one.item) if one.share.gpus > 1 else "-"
            rows.append([one.text, _title(one.item), f"{said}: {example}", distinct])
        else:
            said = f"{requests.written_devices(one)}: `examples/{requests.file_of_devices(one)}`"
            rows.append([one.text, _title(one.item), said, "-"])
    if not rows:
        return ""
    head = ["N GiB over M GPUs, or MIG devices", "pool", "what a pod writes, or why it cannot", "M distinct GPUs"]
    return "\n## Requests\n\n" + _table(head, rows)


def _quotas(cluster: DescribedCluster) -> str:
    """Say what each team may use of each pool, and what is left over."""
    if not cluster.options["quotas"]:
        return ""
    numbers = quotas.quotas(cluster)
    rows = [
        [pool, f"`{resource}`", str(offered)]
        + [str(numbers.of_pool(cluster, team, pool, resource)) for team in numbers.teams]
        + [str(numbers.left[pool, resource])]
        for (pool, resource), offered in numbers.offered.items()
    ]
    head = ["pool", "resource", "offered", *(team.name for team in numbers.teams), "left over"]
    text = (
        "\n## Quotas\n\nOf what the nodes in `capacity.json` offer together; what is left over no team may use.\n\n"
        + _table(head, rows)
    )
    if cluster.options["quota_kind"] == "kueue":
        teams = ", ".join(f"{team.name}: `{team.queue}`" for team in numbers.teams)
        return f"{text}\nPods name their queue in the label `kueue.x-k8s.io/queue-name`, in a namespace of their team ({teams}).\n"
    teams = ", ".join(f"{team.name}: `{team.namespaces[0]}`" for team in numbers.teams)
    return f"{text}\nA ResourceQuota counts in the namespace of each team ({teams}).\n"


def _shared_name(cluster: DescribedCluster) -> str:
    """Say that two things may offer the same name: the DRA driver has DeviceClasses for ordinary requests, too."""
    lines = served.lines(cluster.name, servers(cluster))
    if not lines:
        return ""
    return (
        "\n## Who serves requests by name\n\n"
        "A pod that must have one server or the other needs the node selector of its example. The DRA driver serves such requests from Kubernetes\n"
        f"1.36 on, and 1.34 with the feature gate {served.GATE}.\n\n"
        + "".join(f"{'  ' if line.startswith('  ') else ''}- {line.strip()}\n" for line in lines)
    )


_BY_PERSON = {
    "argocd": "no Application has automated sync: `argocd app sync` applies a change of the tree",
    "flux": "everything is suspended: `flux resume` applies a change, until the tree is reconciled the next time",
}
_WITHOUT_PRUNE = {
    "argocd": "Argo CD shows objects that are no longer in the tree as out of sync and leaves them",
    "flux": "Flux leaves objects that are no longer in the tree",
}


def _automated_sync(cluster: DescribedCluster) -> str:
    """Say what the GitOps controller does by itself."""
    kind, automated = str(cluster.options["gitops"]), cluster.options["automated_sync"]
    if kind not in _BY_PERSON:
        return ""
    applies = "changes of the tree are applied, and changes of its objects in the cluster reverted"
    said = {"none": _BY_PERSON[kind], "sync": f"{applies}. {_WITHOUT_PRUNE[kind]}"}
    return (
        "\n## Automated sync\n\n"
        f"`gpu_kubernetes_automated_sync: {automated}`: {said.get(automated, f'{applies}, and objects that are no longer in the tree are removed')}.\n"
    )


_TAKEN_OVER = {
    "argocd": (
        "Their Applications (`gpufleet-crds-*`) upgrade them and remove none, also not when they are removed themselves; releases are synced without\n"
        "their charts' definitions (`skipCrds`) and prune nothing. In a tree of an earlier release of the collection, the Applications of these charts\n"
        "owned their definitions: sync this tree and wait until every `gpufleet-crds-*` is Synced before you prune by hand, remove an Application or\n"
        "change `gpu_kubernetes_stack`. Otherwise Argo CD deletes the definitions, and with them every object of their kinds.\n"
    ),
    "none": (
        "Helm installs definitions with the first installation of a chart and does not upgrade them. Apply them before a release of another version, and\n"
        "install releases with `--skip-crds`. In a checkout of the repository at the tag:\n\n"
        "    kubectl apply --server-side --force-conflicts -f FILE\n"
    ),
}


_UPGRADED_BY_HOOK = (
    "The GPU Operator's chart upgrades its own, and those of Node Feature Discovery if it installs it, in a job before each upgrade of its release\n"
    "(`operator.upgradeCRD`), those of ComputeDomains not.\n"
)


def _definitions_of_releases(charts: Collection[str]) -> str:
    """Say what HelmReleases of Flux do with the definitions of their charts."""
    text = (
        "\n## Custom resource definitions\n\n"
        "Each HelmRelease applies the definitions of its chart before it installs or upgrades the rest (`crds: CreateReplace`). Nothing removes them.\n"
    )
    if definition_policy(GPU_OPERATOR, charts) == "Create" and GPU_OPERATOR in charts:
        text += (
            "\nThe definitions of ComputeDomains belong to the DRA driver, so the GPU Operator's HelmRelease only creates what is missing (`crds: Create`).\n"
            + _UPGRADED_BY_HOOK
        )
    return text


def _definitions(cluster: DescribedCluster, charts: Collection[str]) -> str:
    """Say who owns the custom resource definitions of the charts."""
    if cluster.options["gitops"] == "flux":
        return _definitions_of_releases(charts) if DEFINITIONS.keys() & set(charts) else ""
    names = definitions(cluster, charts)
    if not names:
        return ""
    rows = []
    for name in names:
        found = DEFINITIONS[name]
        without = f", without `{found.exclude}`" if found.exclude else ""
        rows.append([name, f"{found.repository}, `{found.path}`{without}", f"`{tag(name)}`"])
    text = "\n## Custom resource definitions\n\nEach definition has one owner:\n\n"
    return (
        text
        + _table(["definitions of", "repository and folder", "tag"], rows)
        + "\n"
        + _TAKEN_OVER[str(cluster.options["gitops"])]
        + (f"\n{_UPGRADED_BY_HOOK}" if cluster.options["gitops"] == "none" and GPU_OPERATOR in charts else "")
    )


def _title(item: PluginConfiguration) -> str:
    return item.pool if item.name == item.pool else f"{item.pool} ({item.name})"


def _resources(item: PluginConfiguration) -> str:
    return ", ".join(f"`{name}: {count}`" for name, count in sorted(item.capacity.offers.items())) or "none"


def _units(item: PluginConfiguration) -> str:
    parts = []
    for name, unit in sorted(item.capacity.slices.items()):
        size = f"{unit.limit_mib or unit.memory_mib} MiB" if unit.memory_mib else "memory not known"
        if unit.active_thread_percentage and unit.active_thread_percentage < 100:
            size += f" and {unit.active_thread_percentage}% of the threads"
        of = f", {unit.replicas} on a device" if unit.replicas > 1 else ""
        parts.append(f"`{name}`: {size}{of}")
    return "; ".join(parts) or "-"


def _cheat_sheet(item: PluginConfiguration) -> list[list[str]]:
    rows = []
    size = item.sharing.slice_mib or 0
    for gpus in range(1, min(item.gpus, _MOST_GPUS) + 1):
        limits = requests.written(item, gpus, size)
        rows.append([arithmetic.memory_text(size * gpus), str(gpus), arithmetic.memory_text(size), limits])
        if gpus > 1 and item.sharing.gpus_per_pod == 1 and item.sharing.backend == "mps":
            rows[-1][3] = "refused: nvidia_sharing_gpus_per_pod is 1"
            break
    return rows


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
