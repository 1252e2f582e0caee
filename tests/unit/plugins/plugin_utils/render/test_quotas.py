# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Shares of teams: the numbers, against capacity.json, and what is refused."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.tree import cluster_tree
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.plugin_utils.render.test_tree import documents, tree_of
from hypothesis import given
from hypothesis import strategies as st

from .conftest import BATCH, SHARED, TRAINING

# hosts=2: 16 GPUs with 1g.10gb: 2, 2g.20gb: 1, 3g.40gb: 1 each.
SMALL = "nvidia.com/mig-1g.10gb"
WHOLE = {"gpu_facts_gpus": [{"board": "l40s-48gb", "count": 4}]}


def team(name, *shares, namespaces=None):
    return {"team": name, "namespaces": namespaces or [name], "shares": list(shares)}


def of(pool, resource=None, **number):
    return {"pool": pool, **({"resource": resource} if resource else {}), **number}


def rendered(clusters_of, pools, quotas, **options):
    """The objects, by kind, and the rest of the tree."""
    tree = tree_of(clusters_of, pools, quotas=quotas, **options)
    found = {}
    for item in documents(tree["quotas/quotas.yaml"]):
        found.setdefault(item["kind"], []).append(item)
    return found, tree


def numbers(queue):
    return {
        (flavor["name"], resource["name"]): int(resource["nominalQuota"])
        for flavor in queue["spec"]["resourceGroups"][0]["flavors"]
        for resource in flavor["resources"]
    }


def offered(tree):
    """By pool and resource, what capacity.json says of all nodes."""
    found = Counter()
    for node in json.loads(tree["capacity.json"])["nodes"].values():
        for resource, number in node["resources"].items():
            found[node["pool"], resource] += number
    return found


def test_a_queue_has_its_teams_part_of_every_resource_of_a_pool(clusters_of):
    found, tree = rendered(
        clusters_of,
        {"training": TRAINING, "shared": SHARED},
        [
            team("vision", of("training", percent=75), namespaces=["vision", "vision-dev"]),
            team("speech", of("training", SMALL, percent=25), of("shared", count=5)),
        ],
    )
    vision, speech = found["ClusterQueue"]
    everything = {resource: number for (pool, resource), number in offered(tree).items() if pool == "training"}
    assert numbers(vision) == {("gpufleet-training", name): number * 3 // 4 for name, number in everything.items()}
    held = numbers(speech)
    assert held["gpufleet-training", SMALL] == everything[SMALL] // 4
    assert held["gpufleet-shared", "nvidia.com/gpu"] == 5
    assert sum(held.values()) == everything[SMALL] // 4 + 5
    (selector,) = vision["spec"]["namespaceSelector"]["matchExpressions"]
    assert selector["values"] == ["vision", "vision-dev"]
    assert [(one["metadata"]["namespace"], one["spec"]["clusterQueue"]) for one in found["LocalQueue"]] == [
        ("vision", "gpufleet-vision"),
        ("vision-dev", "gpufleet-vision"),
        ("speech", "gpufleet-speech"),
    ]
    labels = {one["metadata"]["name"]: (one.get("spec") or {}).get("nodeLabels") for one in found["ResourceFlavor"]}
    assert labels == {
        "gpufleet-shared": {"gpufleet.github.io/configuration": "shared"},
        "gpufleet-training": {"gpufleet.github.io/configuration": "training"},
        "gpufleet.unlimited": {},
    }
    assert all(one["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "gpufleet" for one in found["ClusterQueue"])
    assert f"| training | `{SMALL}` | 32 | 24 | 8 | 0 |" in tree["README.md"]
    total = offered(tree)["shared", "nvidia.com/gpu"]
    assert f"| shared | `nvidia.com/gpu` | {total} | 0 | 5 | {total - 5} |" in tree["README.md"]
    assert "quotas/quotas.yaml" in tree["kustomization.yaml"]


def test_a_pool_can_be_called_unlimited(clusters_of):
    """Its flavor is another one than that of CPU and memory, which has no limit."""
    found, _tree = rendered(clusters_of, {"unlimited": WHOLE}, [team("a", of("unlimited", count=1))])
    names = [one["metadata"]["name"] for one in found["ResourceFlavor"]]
    assert len(set(names)) == len(names) == 2
    (queue,) = found["ClusterQueue"]
    limited, free = (group["flavors"] for group in queue["spec"]["resourceGroups"])
    assert {one["name"] for one in limited}.isdisjoint(one["name"] for one in free)


def test_a_team_without_a_share_of_a_resource_is_covered_with_none_of_it(clusters_of):
    """Kueue takes a flavor only with a number for every resource of its group."""
    found, _tree = rendered(clusters_of, {"training": TRAINING}, [team("a", of("training", SMALL, count=1))])
    (queue,) = found["ClusterQueue"]
    group = queue["spec"]["resourceGroups"][0]
    assert {one["name"] for flavor in group["flavors"] for one in flavor["resources"]} == set(group["coveredResources"])
    assert sorted(numbers(queue).values()) == [0, 0, 1]


@pytest.mark.parametrize(
    ("percents", "expected"),
    [
        ((50, 50), [4, 4]),
        # 8/3 each: two are left, for the first ones of those that lost the same.
        ((Fraction(100, 3), Fraction(100, 3), Fraction(100, 3)), [3, 3, 2]),
        ((33, 33, 34), [3, 2, 3]),
        ((10, 90), [1, 7]),
        ((12.5, 12.5), [1, 1]),
        ((0, 99), [0, 7]),
    ],
)
def test_percentages_are_rounded_by_the_largest_remainder(clusters_of, percents, expected):
    teams = [team(f"t{number}", of("gpus", percent=float(percent))) for number, percent in enumerate(percents)]
    found, _tree = rendered(clusters_of, {"gpus": WHOLE}, teams)
    assert [sum(numbers(queue).values()) for queue in found["ClusterQueue"]] == expected


@given(
    percents=st.lists(st.integers(0, 1000), min_size=1, max_size=6),
    counts=st.lists(st.integers(0, 12), max_size=3),
    hosts=st.integers(1, 5),
)
def test_the_sum_is_never_above_what_there_is_and_no_part_is_lost(clusters_of_property, percents, counts, hosts):
    shares = [of("gpus", percent=number / 10) for number in percents] + [of("gpus", count=one) for one in counts]
    total = 4 * hosts
    teams = [team(f"t{number}", share) for number, share in enumerate(shares)]
    wanted = sum(Fraction(number, 1000) * total for number in percents) + sum(counts)
    if wanted > total:
        with pytest.raises(Refused, match="of the"):
            clusters_of_property({"gpus": WHOLE}, hosts=hosts, quotas=teams)
        return
    tree = clusters_of_property({"gpus": WHOLE}, hosts=hosts, quotas=teams)
    queues = [one for one in documents(tree["quotas/quotas.yaml"]) if one["kind"] == "ClusterQueue"]
    got = [sum(numbers(queue).values()) for queue in queues]
    assert sum(got) == int(wanted) <= offered(tree)["gpus", "nvidia.com/gpu"]
    assert all(abs(one - Fraction(number, 1000) * total) < 1 for one, number in zip(got, percents))
    assert got[len(percents) :] == counts


@pytest.fixture(scope="module")
def clusters_of_property():
    """A tree of one pool; hypothesis does not take the fixture of a function."""
    from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.fleet import Fleet

    def build(pools, hosts, quotas):
        groups = {pool: [f"{pool}-{number}" for number in range(hosts)] for pool in pools}
        groups["gpu_hosts"] = [host for members in groups.values() for host in members]
        fleet = Fleet(groups, lambda *_of: None)
        for pool, variables in pools.items():
            for host in groups[pool]:
                fleet.add(host, {**variables, "gpu_kubernetes_quotas": quotas}, lambda value: value)
        return cluster_tree(fleet.clusters()[0])

    return build


def test_a_pool_of_two_kinds_of_nodes_has_a_flavor_for_each(clusters_of):
    """Pods select by the configuration of a node, which Kueue compares with the labels of the flavor."""
    other = {"gpus-1": {"nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 2}}
    quotas = [team("a", of("gpus", count=6)), team("b", of("gpus", percent=50))]
    found, tree = rendered(clusters_of, {"gpus": WHOLE}, quotas, of_host=other)
    first, second = (numbers(queue) for queue in found["ClusterQueue"])
    sizes = {}
    for node in json.loads(tree["capacity.json"])["nodes"].values():
        sizes[f"gpufleet-{node['configuration']}"] = node["resources"]["nvidia.com/gpu"]
    assert sum(sizes.values()) == 12
    assert sum(first.values()) == sum(second.values()) == 6
    assert all(first[key] + second[key] <= sizes[key[0]] for key in first)


def test_a_resource_quota_counts_in_the_namespace_of_its_team(clusters_of):
    dra = {**WHOLE, "nvidia_sharing_backend": "dra"}
    quotas = [team("a", of("training", percent=50), of("claims", count=3)), team("b", of("training", SMALL, count=2))]
    found, _tree = rendered(clusters_of, {"training": TRAINING, "claims": dra}, quotas, quota_kind="resourcequota")
    assert list(found) == ["ResourceQuota"]
    first, second = found["ResourceQuota"]
    assert (first["metadata"]["namespace"], second["metadata"]["namespace"]) == ("a", "b")
    assert first["spec"]["hard"][f"requests.{SMALL}"] == "16"
    assert first["spec"]["hard"]["gpu.nvidia.com.deviceclass.resource.k8s.io/devices"] == "3"
    # The API server counts claims of the class under this name, too.
    assert first["spec"]["hard"]["requests.nvidia.com/gpu"] == "3"
    # What no share names is not without a limit.
    assert second["spec"]["hard"] == {**dict.fromkeys(first["spec"]["hard"], "0"), f"requests.{SMALL}": "2"}


def test_a_team_without_a_share_of_mig_devices_claims_none_by_any_class(clusters_of):
    quotas = [team("a", of("shared", count=1))]
    pools = {"shared": {**SHARED, "nvidia_sharing_rename": True}, "divided": DIVIDED}
    found, _tree = rendered(clusters_of, pools, quotas, quota_kind="resourcequota", version="1.36")
    (quota,) = found["ResourceQuota"]
    classes = ["mig.nvidia.com", "gpufleet-mig-1g.10gb", "gpufleet-mig-2g.20gb", "gpufleet-mig-3g.40gb"]
    none = {f"{name}.deviceclass.resource.k8s.io/devices": "0" for name in classes}
    # Nor by the names of the device plugin.
    none.update({f"requests.nvidia.com/mig-{name}": "0" for name in ("1g.10gb", "2g.20gb", "3g.40gb")})
    assert quota["spec"]["hard"] == {"requests.nvidia.com/gpu.shared": "1", **none}


RENAMING = {"sharing_configurations": {"two": {"replicas": 2, "rename": True}}}
MIGRATED = {**WHOLE, "nvidia_sharing_backend": "dra", "nvidia_sharing_migrate_from": "mps"}


@pytest.mark.parametrize(
    ("other", "options", "names"),
    [
        (WHOLE, RENAMING, ["requests.nvidia.com/gpu", "requests.nvidia.com/gpu.shared", f"requests.{SMALL}.shared"]),
        (MIGRATED, {}, ["requests.nvidia.com/gpu", "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"]),
    ],
)
def test_a_team_has_nothing_of_what_nodes_may_offer_after_a_choice_or_did_before_a_migration(
    clusters_of, other, options, names
):
    pools = {"training": TRAINING, "other": other}
    quotas = [team("a", of("training", SMALL, count=1))]
    found, _tree = rendered(clusters_of, pools, quotas, quota_kind="resourcequota", version="1.36", **options)
    (quota,) = found["ResourceQuota"]
    hard = quota["spec"]["hard"]
    assert {name: hard.get(name) for name in names} == dict.fromkeys(names, "0")
    assert hard[f"requests.{SMALL}"] == "1"


@pytest.mark.parametrize(
    ("gitops", "path"),
    [
        ({"gitops": "argocd", "gitops_repository": "https://git.example.com/x.git"}, "argocd/quotas.yaml"),
        ({"gitops": "flux", "gitops_source": "fleet"}, "flux/quotas.yaml"),
    ],
)
def test_a_gitops_controller_syncs_them_by_themselves(clusters_of, gitops, path):
    _found, tree = rendered(clusters_of, {"gpus": WHOLE}, [team("a", of("gpus", percent=10))], **gitops)
    (item,) = documents(tree[path])
    assert item["metadata"]["name"].endswith("gpufleet-quotas")
    assert ("SkipDryRunOnMissingResource=true" in str(item)) == path.startswith("argocd")


def test_without_quotas_nothing_is_rendered(clusters_of):
    tree = tree_of(clusters_of, {"gpus": WHOLE})
    assert not [path for path in tree if "quotas" in path]
    assert "Quotas" not in tree["README.md"]


HAMI = {**WHOLE, "nvidia_sharing_backend": "hami", "nvidia_sharing_memory_slice": "4GiB"}
CLAIMS = {**WHOLE, "nvidia_sharing_backend": "dra"}
PARTS = {**CLAIMS, "nvidia_sharing_memory_slice": "4GiB"}
DIVIDED = {**TRAINING, "nvidia_sharing_backend": "dra"}
TWO = {"team": "b", "namespaces": ["a"], "shares": [of("gpus", count=1)]}


@pytest.mark.parametrize(
    ("quotas", "expected"),
    [
        (
            [team("a", of("gpus", percent=60)), team("b", of("gpus", percent=50))],
            r"nvidia.com/gpu of pool gpus: the shares are 110 % together, 8\.8 of the 8 that its nodes offer \(a 60 %, b 50 %\)",
        ),
        (
            [team("a", of("gpus", count=5)), team("b", of("gpus", percent=50))],
            r"112\.5 % together, 9 of the 8 .*\(a 5, b 50 %\)",
        ),
        ([team("a")], r"gpu_kubernetes_quotas\[0\]\.shares: team a has no share of any pool"),
        (
            [team("a", of("gpu", percent=1))],
            r"shares\[0\]\.pool: the cluster has no pool 'gpu' that offers GPUs\. Did you mean gpus",
        ),
        (
            [team("a", of("gpus", "nvidia.com/gpux", count=1))],
            r"do not offer nvidia.com/gpux\. Did you mean nvidia.com/gpu",
        ),
        ([team("a", of("gpus"))], "neither percent nor count"),
        ([team("a", of("gpus", percent=1, count=1))], "both percent and count"),
        ([team("a", of("gpus", percent=-1))], r"percent: -1\S* must be from 0 to 100"),
        ([team("a", of("gpus", percent=101))], r"percent: 101\S* must be from 0 to 100"),
        ([team("a", of("gpus", percent=float("nan")))], "must be from 0 to 100"),
        ([team("a", of("gpus", count=-1))], r"count: -1 must be 0 or more"),
        (
            [team("a", of("gpus", percent=1), of("gpus", "nvidia.com/gpu", count=1))],
            r"shares\[1\]: team a has a share of nvidia.com/gpu of pool gpus already \(gpu_kubernetes_quotas\[0\]\.shares\[0\]\)",
        ),
        ([team("A b", of("gpus", count=1))], "'A b' is not a valid name of a team"),
        ([team("a", of("gpus", count=1), namespaces=["A"])], "'A' is not a valid name of a namespace"),
        ([{**TWO, "namespaces": []}], r"\[0\]\.namespaces: team b has no namespace"),
        ([team("a", of("gpus", count=1)), TWO], "namespace a is named twice"),
        ([team("a", of("gpus", count=1))] * 2, "team a is named twice"),
        ([{"team": "a", "namespaces": ["a"]}], "shares"),
        ([{**TWO, "share": []}], "share"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(clusters_of, quotas, expected):
    with pytest.raises(Refused, match=expected):
        tree_of(clusters_of, {"gpus": WHOLE}, quotas=quotas)


@pytest.mark.parametrize(
    ("pools", "kind", "quotas", "expected"),
    [
        ({"p": TRAINING}, "kueue", [team("a", of("p", count=1))], "count says of one resource how many"),
        ({"p": HAMI}, "kueue", [team("a", of("p", count=1))], "limits nothing"),
        ({"p": HAMI}, "resourcequota", [team("a", of("p", count=1))], "limits nothing"),
        ({"p": CLAIMS}, "kueue", [team("a", of("p", count=1))], "Kueue 0.14 counts no claims.*resourcequota"),
        ({"p": PARTS}, "resourcequota", [team("a", of("p", count=1))], "parts of a GPU's memory"),
        ({"p": DIVIDED}, "resourcequota", [team("a", of("p", percent=1))], "mig.nvidia.com/1g.10gb by profile"),
        (
            {"p": WHOLE, "q": BATCH},
            "resourcequota",
            [team("a", of("p", percent=1))],
            "pools p and q offer nvidia.com/gpu, and a ResourceQuota does not know pools.*kueue",
        ),
        # Pods can request the DRA driver's GPUs by the name of the device plugin's.
        (
            {"p": WHOLE, "q": CLAIMS},
            "resourcequota",
            [team("a", of("q", percent=1))],
            "pools q and p offer nvidia.com/gpu, and a ResourceQuota",
        ),
        (
            {"p": WHOLE},
            "resourcequota",
            [team("a", of("p", percent=1), namespaces=["a", "b"])],
            r"gpu_kubernetes_quotas\[0\]\.namespaces: team a has 2 namespaces",
        ),
    ],
)
def test_what_would_not_count_what_pods_use_is_refused(clusters_of, pools, kind, quotas, expected):
    with pytest.raises(Refused, match=expected):
        tree_of(clusters_of, pools, quotas=quotas, quota_kind=kind, version="1.36")


def test_a_pool_with_more_labels_than_a_flavor_has_is_refused(clusters_of):
    """Eight: the limit of nodeLabels in Kueue's own definition."""
    quotas = [team("a", of("gpus", count=1))]

    def pools(count):
        labels = {f"example.com/of-{number}": "x" for number in range(count)}
        return {"gpus": {**WHOLE, "gpu_kubernetes_node_match": {"labels": labels}}}

    with pytest.raises(
        Refused, match=r"^gpu_kubernetes_node_match\.labels of pool gpus: it has 9 labels, .*at most 8\. Use 8 or fewer"
    ):
        tree_of(clusters_of, pools(9), quotas=quotas)
    tree_of(clusters_of, pools(9), quotas=quotas, quota_kind="resourcequota")
    tree_of(clusters_of, {**pools(9), "other": BATCH}, quotas=[team("a", of("other", count=1))])
    found, _tree = rendered(clusters_of, pools(8), quotas)
    assert len(found["ResourceFlavor"][0]["spec"]["nodeLabels"]) == 8
