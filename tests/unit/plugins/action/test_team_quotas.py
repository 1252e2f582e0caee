# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The quotas of teams around a new layout: lowered before, raised after as far as the nodes offer what is described, whatever became of the run."""

from __future__ import annotations

import copy

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import team_quotas as action
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import ApiError
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render import team_quotas
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.fleet import Fleet
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.plugin_utils.render.stacks import TRAINING

from .rollouts import Nodes

SMALL, MIDDLE, LARGE = (f"nvidia.com/mig-{name}" for name in ("1g.10gb", "2g.20gb", "3g.40gb"))
#: Of eight GPUs: 16 of SMALL, 8 of MIDDLE, 8 of LARGE; and 32 of SMALL, none of MIDDLE, 8 of LARGE.
DAY = "all-balanced"
NIGHT = [{"devices": "all", "instances": {"1g.10gb": 4, "3g.40gb": 1}}]
#: Of a host: what a node offers by day and by night.
OFFERS = {"day": {SMALL: 16, MIDDLE: 8, LARGE: 8}, "night": {SMALL: 32, LARGE: 8}}
KINDS = ["kueue", "resourcequota"]

pytestmark = pytest.mark.usefixtures("run_folder", "renewed")


def described(layout, kind="kueue", teams=("blue",), hosts=("a",), percent=50, **variables):
    """What the render of a cluster with one pool returns of its quotas, as a task registers it."""
    shares = [{"pool": "training", "percent": percent}]
    entries = [{"team": team, "namespaces": [team], "shares": shares} for team in teams]
    fleet = Fleet({"training": list(hosts), "gpu_hosts": list(hosts)}, lambda _host, _variables: None)
    pool = {**TRAINING, "nvidia_mig_layout": layout, "gpu_kubernetes_quota_kind": kind, **variables}
    for host in hosts:
        fleet.add(host, {**pool, "gpu_kubernetes_quotas": entries}, lambda value: value)
    (cluster,) = fleet.clusters()
    return {cluster.name: team_quotas.described(cluster)}


class Quotas(Nodes):
    """What an API server has of them, with the controls of optimistic locking; it writes 1000 as 1k."""

    def __init__(self, rendered, **nodes):
        super().__init__()
        self.of_nodes = {name: OFFERS[offers] for name, offers in (nodes or {"a": "day"}).items()}
        self.objects, self.calls, self.version = [], [], 0
        (one,) = rendered.values()
        for item in one["objects"]:
            self.add(item)

    def add(self, item, **metadata):
        self.version += 1
        made = copy.deepcopy(item)
        made["metadata"].update({"resourceVersion": str(self.version), **metadata})
        self.objects.append(made)
        return made

    def nodes(self):
        self.calls.append("nodes")
        return {name: {"status": {"allocatable": dict(offers)}} for name, offers in self.of_nodes.items()}

    def quotas(self, kind, selector=""):
        self.calls.append(f"list {kind}")
        parts = [part.partition("=") for part in selector.split(",") if part]

        def selected(labels):
            return all(labels.get(name) == value if equal else name in labels for name, equal, value in parts)

        # The items of a list have no kind.
        return [
            {name: copy.deepcopy(value) for name, value in one.items() if name != "kind"}
            for one in self.objects
            if one["kind"] == kind and selected(one["metadata"].get("labels") or {})
        ]

    def change_quota(self, kind, live, spec):
        self.calls.append(f"change {live['metadata']['name']}")
        (one,) = [
            one for one in self.objects if (one["kind"], one["metadata"]["name"]) == (kind, live["metadata"]["name"])
        ]
        if one["metadata"]["resourceVersion"] != live["metadata"]["resourceVersion"]:
            return
        self.version += 1
        one["metadata"]["resourceVersion"] = str(self.version)
        for field, value in spec.items():
            one["spec"][field] = {**one["spec"][field], **value} if field == "hard" else copy.deepcopy(value)

    def create_flavor(self, flavor):
        self.calls.append(f"create {flavor['metadata']['name']}")
        self.add(flavor)

    def numbers(self, name="gpufleet-blue"):
        (one,) = [one for one in self.objects if one["metadata"]["name"] == name and one["kind"] in team_quotas.SHAPES]
        found = team_quotas._numbers(one["kind"], one, "")
        return {key[1].removeprefix("requests."): number for key, number in found.items() if number}


@pytest.fixture
def change(call, monkeypatch):
    def do(cluster, state, quotas, host="a", hosts=("a",), check=False, **arguments):
        monkeypatch.setattr(action.ActionModule, "cluster", lambda _self, _arguments: cluster)
        variables = {
            "inventory_hostname": host,
            "ansible_play_hosts": list(hosts),
            "gpu_kubernetes_result": {"quotas": quotas},
        }
        result, shown = call(action, {"state": state, **arguments}, variables, check)
        do.shown = shown.text
        return result

    return do


@pytest.mark.parametrize("kind", KINDS)
def test_each_number_is_the_smaller_one_before_and_what_is_described_after(change, kind):
    cluster, quotas = Quotas(described(DAY, kind)), described(NIGHT, kind)
    assert not change(cluster, "planned", quotas)["changed"]
    assert f"{MIDDLE} 4 -> 0" in change.shown
    assert change(cluster, "lowered", quotas, check=True)["changed"]
    assert cluster.numbers() == {SMALL: 8, MIDDLE: 4, LARGE: 4} and cluster.held is None
    assert change(cluster, "lowered", quotas)["changed"]
    assert cluster.numbers() == {SMALL: 8, LARGE: 4}
    assert cluster.held, "one run at a time"
    assert not change(cluster, "lowered", quotas)["changed"], "by every host of the run"
    cluster.of_nodes = {"a": OFFERS["night"]}
    assert change(cluster, "raised", quotas)["changed"]
    assert cluster.numbers() == {SMALL: 16, LARGE: 4}
    assert not change(cluster, "raised", quotas)["changed"]
    assert "so far" not in change.shown
    # And back again: one that the nodes do not offer any more comes back.
    quotas = described(DAY, kind)
    change(cluster, "lowered", quotas)
    assert cluster.numbers() == {SMALL: 8, LARGE: 4}
    cluster.of_nodes = {"a": OFFERS["day"]}
    change(cluster, "raised", quotas)
    assert cluster.numbers() == {SMALL: 8, MIDDLE: 4, LARGE: 4}


@pytest.mark.parametrize("kind", KINDS)
def test_a_limited_or_failed_run_raises_as_far_as_the_nodes_offer_it(change, kind):
    hosts = ("a", "b", "c", "d")
    teams = ("blue", "red")
    quotas = described(NIGHT, kind, teams, hosts)
    cluster = Quotas(described(DAY, kind, teams, hosts), **dict.fromkeys(hosts, "day"))
    change(cluster, "lowered", quotas, hosts=hosts)
    # Only one host has it: 32 + 3 * 16 of the 128 that are described.
    cluster.of_nodes["a"] = OFFERS["night"]
    change(cluster, "raised", quotas)
    assert cluster.numbers("gpufleet-blue")[SMALL] == cluster.numbers("gpufleet-red")[SMALL] == 40
    assert f"{SMALL} is 40 of 64: the nodes offer 80 of 128 so far" in change.shown
    assert MIDDLE not in cluster.numbers()
    # A node that is not there offers nothing, and no number that is there already falls for that.
    cluster.of_nodes = {"a": OFFERS["night"]}
    assert not change(cluster, "raised", quotas)["changed"]
    assert cluster.numbers()[SMALL] == 40
    cluster.of_nodes = dict.fromkeys(hosts, OFFERS["night"])
    change(cluster, "raised", quotas)
    assert cluster.numbers("gpufleet-blue")[SMALL] == 64


@pytest.mark.parametrize(("gitops", "owned"), [("none", False), ("argocd", True), ("flux", True)])
def test_what_a_gitops_controller_syncs_is_neither_read_nor_written_and_the_file_is_named(change, gitops, owned):
    cluster, quotas = Quotas(described(DAY)), described(NIGHT, gpu_kubernetes_gitops=gitops)
    ((name, one),) = quotas.items()
    for state in ("planned", "lowered", "raised"):
        assert change(cluster, state, quotas)["changed"] is (not owned and state == "lowered")
        named = f"{gitops} syncs clusters/{name}/quotas/quotas.yaml" in change.shown
        assert named is (owned and state != "lowered"), "not by each host"
    assert bool(cluster.calls) is not owned
    assert bool(one["gitops"]) is owned


@pytest.mark.parametrize("kind", KINDS)
def test_a_team_that_left_gets_nothing_more_and_what_others_own_is_left(change, kind):
    before = described(DAY, kind, ("blue", "red"))
    cluster, quotas = Quotas(before), described(DAY, kind, ("blue",))
    of_others = copy.deepcopy(
        next(
            one
            for one in cluster.objects
            if one["metadata"]["name"] == "gpufleet-red" and "kind" in one and one["kind"] in team_quotas.SHAPES
        )
    )
    cluster.add(of_others, name="gpufleet-green", labels={"app.kubernetes.io/managed-by": "gpufleet"})
    cluster.add(of_others, name="gpufleet-white", labels=None)
    numbers = cluster.numbers("gpufleet-green")
    change(cluster, "lowered", quotas)
    assert cluster.numbers("gpufleet-red") == {}
    assert numbers and cluster.numbers("gpufleet-green") == cluster.numbers("gpufleet-white") == numbers
    assert cluster.numbers("gpufleet-blue") == {SMALL: 8, MIDDLE: 4, LARGE: 4}
    assert not change(cluster, "raised", quotas)["changed"]


def test_what_is_not_in_the_cluster_is_named_and_the_others_follow(change):
    cluster, quotas = Quotas(described(DAY, teams=("blue",))), described(NIGHT, teams=("blue", "red"))
    change(cluster, "planned", quotas)
    assert "ClusterQueue gpufleet-red is not in the cluster: apply clusters/" in change.shown
    assert change(cluster, "lowered", quotas)["changed"]


def test_a_flavor_that_the_cluster_lacks_is_made_before_a_queue_names_it(change):
    """A layout of some hosts is a second configuration of their pool."""
    quotas = described(NIGHT, hosts=("a", "b"))
    cluster = Quotas(described(DAY, hosts=("a", "b")), a="night", b="night")
    cluster.objects = [one for one in cluster.objects if one["kind"] != "ResourceFlavor"]
    assert change(cluster, "raised", quotas)["changed"]
    made = [call for call in cluster.calls if call.startswith(("create", "change"))]
    assert made == ["create gpufleet-training", "create gpufleet.unlimited", "change gpufleet-blue"]


@pytest.mark.parametrize("writer", ["Kueue", "a person", "always"])
def test_what_changed_since_it_was_read_is_read_again_and_never_overwritten(change, writer):
    class Contended(Quotas):
        times = 0

        def change_quota(self, kind, live, spec):
            self.times += 1
            if self.times == 1 or writer == "always":
                (one,) = [one for one in self.objects if one["kind"] == kind]
                self.version += 1
                one["metadata"]["resourceVersion"] = str(self.version)
                if writer == "a person":
                    (cell,) = [
                        item
                        for item in one["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
                        if item["name"] == SMALL
                    ]
                    cell["nominalQuota"] = "3"
            super().change_quota(kind, live, spec)

    cluster = Contended(described(DAY))
    done = change(cluster, "lowered", described(NIGHT))
    if writer == "always":
        assert done["failed"] and "the cluster does not keep the numbers (ClusterQueue gpufleet-blue: " in done["msg"]
    else:
        assert done["changed"] and cluster.times == 2
        assert cluster.numbers() == {SMALL: 3 if writer == "a person" else 8, LARGE: 4}


def test_each_cluster_has_its_own_by_the_connection_of_its_hosts(change):
    both = {"one": described(NIGHT, hosts=("a", "b")).popitem()[1], "two": described(NIGHT, hosts=("c",)).popitem()[1]}
    hosts = ("a", "b", "c")
    for host, changes in (("a", True), ("b", False), ("c", True)):
        cluster = Quotas(described(DAY, hosts=("a", "b") if host != "c" else ("c",)), a="night", b="night", c="night")
        done = change(cluster, "raised", both, host, hosts)
        assert done["changed"] is changes, host
        assert bool(cluster.calls) is changes
    assert change(Quotas(described(DAY)), "lowered", both, "b", hosts)["changed"], "before it changes itself"
    assert not change(None, "lowered", both, "of no cluster", hosts)["changed"]
    assert not change(None, "lowered", both, "a", hosts, kubernetes=False)["changed"]
    for nothing in ({}, None):
        assert not change(None, "planned", nothing)["changed"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nothing", ["spec", "field", "labels", "flavors", "number"])
def test_null_and_broken_values_of_the_cluster(change, kind, nothing):
    cluster, quotas = Quotas(described(DAY, kind)), described(DAY, kind)
    (one,) = [one for one in cluster.objects if one["kind"] in team_quotas.SHAPES]
    field = "hard" if kind == "resourcequota" else "resourceGroups"
    if nothing == "spec":
        one["spec"] = None
    elif nothing == "field":
        one["spec"][field] = None
    elif nothing == "labels":
        cluster.add({**one, "metadata": {"name": "another", "labels": None}})
    elif kind == "kueue":
        group = one["spec"][field][0]
        if nothing == "flavors":
            group["flavors"] = None
        else:
            group["flavors"][0]["resources"][0]["nominalQuota"] = None
    else:
        one["spec"][field]["requests.nvidia.com/gpu"] = None if nothing == "number" else "many"
    refused = nothing == "number" or (nothing == "flavors" and kind == "resourcequota")
    done = change(cluster, "planned", quotas)
    assert bool(done.get("failed")) is refused
    if refused:
        assert "gpufleet-blue" in done["msg"] and "is not a number of devices" in done["msg"]


@pytest.mark.parametrize(
    "broken", ["text", 7, {"metadata": {"name": "x"}}, {"metadata": {"name": 7}}, {"metadata": []}]
)
def test_an_object_that_is_none_is_refused_with_its_name_and_the_file(change, broken):
    cluster = Quotas(described(DAY))
    cluster.quotas = lambda *_arguments: [broken]
    done = change(cluster, "planned", described(NIGHT))
    assert done["failed"] and "ClusterQueue" in done["msg"] and "quotas/quotas.yaml" in done["msg"]


def test_an_answer_of_the_api_server_ends_the_run(change):
    cluster = Quotas(described(DAY))

    def refuse(*_arguments):
        raise ApiError(403, "list the ClusterQueues", "forbidden")

    cluster.quotas = refuse
    assert "Failed to list the ClusterQueues: forbidden" in change(cluster, "planned", described(NIGHT))["msg"]


def test_what_others_added_to_an_object_stays(change):
    cluster, quotas = Quotas(described(DAY)), described(NIGHT)
    (one,) = [one for one in cluster.objects if one["kind"] == "ClusterQueue"]
    one["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["borrowingLimit"] = "0"
    one["spec"]["resourceGroups"][1]["flavors"][0]["resources"][0]["nominalQuota"] = "64"
    change(cluster, "lowered", quotas)
    groups = one["spec"]["resourceGroups"]
    assert groups[0]["flavors"][0]["resources"][0]["borrowingLimit"] == "0"
    assert groups[1]["flavors"][0]["resources"][0]["nominalQuota"] == "64"
    cluster = Quotas(described(DAY, "resourcequota"))
    (one,) = [one for one in cluster.objects if one["kind"] == "ResourceQuota"]
    one["spec"]["hard"] |= {"pods": "1k", "requests.nvidia.com/gpumem": "7", f"requests.{LARGE}": "0"}
    change(cluster, "lowered", described(NIGHT, "resourcequota"))
    hard = one["spec"]["hard"]
    assert (hard["pods"], hard["requests.nvidia.com/gpumem"]) == ("1k", "7")
    assert cluster.numbers() == {SMALL: 8}, "what somebody lowered is not raised before the nodes have changed"


def test_a_flavor_that_others_added_to_a_queue_stays_or_is_named(change):
    cluster, quotas = Quotas(described(DAY)), described(NIGHT)
    (one,) = [one for one in cluster.objects if one["kind"] == "ClusterQueue"]
    group = one["spec"]["resourceGroups"][0]
    spot = {"name": "spot", "resources": [{"name": name, "nominalQuota": "2"} for name in group["coveredResources"]]}
    group["flavors"].append(spot)
    change(cluster, "lowered", quotas)
    assert spot in one["spec"]["resourceGroups"][0]["flavors"]
    one["spec"]["resourceGroups"][0]["flavors"][-1] = {**spot, "resources": [{"name": "cpu", "nominalQuota": "2"}]}
    assert "the flavor spot" in change(cluster, "raised", quotas)["msg"]


def test_whole_gpus_in_claims_are_counted_in_slices():
    offered = [
        {
            "key": ["", "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"],
            "resource": "gpu.nvidia.com",
            "nodes": ["a"],
            "number": 8,
        },
        {"key": ["", "requests.nvidia.com/gpu"], "resource": "gpu.nvidia.com", "nodes": ["a"], "number": 8},
    ]
    variables = {"nvidia_sharing_backend": "dra", "nvidia_mig_strategy": "none", "gpu_kubernetes_version": "1.36"}
    (one,) = described([], "resourcequota", **variables).values()
    assert one["offered"] == offered
