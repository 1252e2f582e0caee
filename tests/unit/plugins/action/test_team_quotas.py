# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The quotas of teams around a new layout: lowered before, raised after, also by the run after one that was killed."""

from __future__ import annotations

import copy

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import cluster_lease
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import team_quotas
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import ApiError

from .rollouts import FakeCluster

SMALL, MIDDLE, LARGE = (f"nvidia.com/mig-{name}" for name in ("1g.10gb", "2g.20gb", "3g.40gb"))
DAY, NIGHT = {SMALL: 1000, LARGE: 8}, {SMALL: 4, MIDDLE: 6}
LEAST = {SMALL: 4, MIDDLE: 0, LARGE: 0}
UNLIMITED = {
    "coveredResources": ["cpu"],
    "flavors": [{"name": "all", "resources": [{"name": "cpu", "nominalQuota": "1M"}]}],
}

pytestmark = pytest.mark.usefixtures("run_folder", "renewed")


def groups(numbers):
    resources = [{"name": name, "nominalQuota": str(number)} for name, number in sorted(numbers.items())]
    first = {"coveredResources": sorted(numbers), "flavors": [{"name": "pool", "resources": resources}]}
    return [first, UNLIMITED]


def queue(numbers):
    metadata = {"name": "gpufleet-blue", "resourceVersion": "1"}
    return {"kind": "ClusterQueue", "metadata": metadata, "spec": {"resourceGroups": groups(numbers)}}


def quota(numbers):
    metadata = {"name": "gpufleet-blue", "namespace": "blue", "resourceVersion": "1"}
    return {"kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": {k: str(v) for k, v in numbers.items()}}}


class Quotas(FakeCluster):
    """What the API server has of them; it writes 1000 as 1k."""

    def __init__(self, *objects):
        super().__init__()
        self.objects = {(one["kind"], one["metadata"]["name"]): copy.deepcopy(one) for one in objects}
        self.killed_after = None

    def quota(self, kind, _namespace, name):
        return copy.deepcopy(self.objects.get((kind, name)))

    def change_quota(self, kind, live, spec, written):
        if self.killed_after == 0:
            raise KeyboardInterrupt
        self.killed_after = None if self.killed_after is None else self.killed_after - 1
        one = self.objects[kind, live["metadata"]["name"]]
        one["metadata"].setdefault("annotations", {}).update(written)
        for field, value in spec.items():
            merged = {**one["spec"][field], **value} if isinstance(value, dict) else value
            kept = {k: v for k, v in merged.items() if v is not None} if isinstance(merged, dict) else merged
            one["spec"][field] = yaml.safe_load(yaml.safe_dump(kept).replace("'1000'", "1k"))

    @property
    def numbers(self):
        return [
            {name: number for (_flavor, name), number in team_quotas.amounts(spec[field]).items()}
            for one in self.objects.values()
            for spec in [one["spec"]]
            for field in spec
        ]


def texts(make, before, after, gitops=""):
    both = {"before": before, "after": after}
    return {"production": {**{key: yaml.safe_dump(make(value)) for key, value in both.items()}, "gitops": gitops}}


@pytest.fixture
def change(call, monkeypatch):
    def do(cluster, state, quotas, check=False):
        monkeypatch.setattr(team_quotas.ActionModule, "cluster", lambda _self, _arguments: cluster)
        result, shown = call(team_quotas, {"state": state, "quotas": quotas}, {"inventory_hostname": "a"}, check)
        do.shown = shown.text
        return result

    return do


@pytest.mark.parametrize("make", [queue, quota])
def test_it_is_the_least_of_both_before_and_what_is_described_after(change, make):
    cluster, quotas = Quotas(make(DAY)), texts(make, DAY, NIGHT)
    assert not change(cluster, "planned", quotas)["changed"]
    assert cluster.numbers == [DAY]
    assert change(cluster, "lowered", quotas, check=True)["changed"]
    assert cluster.numbers == [DAY] and f"{LARGE} 8 -> 0" in change.shown
    assert change(cluster, "lowered", quotas)["changed"]
    assert cluster.numbers == [LEAST]
    assert cluster.held["spec"]["holderIdentity"] == str(cluster_lease.this_run()), "one run at a time"
    assert not change(cluster, "lowered", quotas)["changed"], "by every host of the run"
    assert change(cluster, "raised", quotas)["changed"]
    assert cluster.numbers == [NIGHT]
    assert not change(cluster, "raised", quotas)["changed"]


@pytest.mark.parametrize("make", [queue, quota])
def test_a_run_that_was_cut_off_is_continued_or_taken_back(change, make):
    """The tree is as it was until the end of a run, which has another layout perhaps."""
    for changed in ("", "lowered", "raised"):
        for wanted in (NIGHT, DAY, {MIDDLE: 3}):
            cluster = Quotas(make(DAY))
            for state in ("lowered", "raised") if changed == "raised" else [changed] if changed else []:
                change(cluster, state, texts(make, DAY, NIGHT))
            for state in ("planned", "lowered", "raised"):
                assert not change(cluster, state, texts(make, DAY, wanted)).get("failed"), (changed, wanted, state)
                if state == "lowered":
                    assert all(number <= wanted.get(name, 0) for name, number in cluster.numbers[0].items())
            assert cluster.numbers == [wanted]


def test_a_run_that_is_killed_between_two_objects_is_continued(change):
    def both(numbers):
        return [queue(numbers), quota(numbers)]

    quotas = {
        "production": {
            "before": yaml.safe_dump_all(both(DAY)),
            "after": yaml.safe_dump_all(both(NIGHT)),
            "gitops": "",
        }
    }
    for state, expected in (("lowered", LEAST), ("raised", NIGHT)):
        cluster = Quotas(*both(DAY))
        if state == "raised":
            change(cluster, "lowered", quotas)
        cluster.killed_after = 1
        with pytest.raises(KeyboardInterrupt):
            change(cluster, state, quotas)
        assert cluster.numbers[0] == expected != cluster.numbers[1]
        cluster.killed_after = None
        assert not change(cluster, "planned", quotas).get("failed")
        assert change(cluster, state, quotas)["changed"]
        assert cluster.numbers == [expected] * 2


@pytest.mark.parametrize("make", [queue, quota])
@pytest.mark.parametrize("state", ["planned", "lowered", "raised"])
def test_what_somebody_changed_is_named_and_nothing_is_touched(change, make, state):
    cluster = Quotas(make({**DAY, LARGE: 7}))
    refused = change(cluster, state, texts(make, DAY, NIGHT))
    assert refused["failed"] and "gpufleet-blue" in refused["msg"] and "clusters/production/quotas" in refused["msg"]
    assert cluster.numbers == [{**DAY, LARGE: 7}]


@pytest.mark.parametrize(("there", "gitops"), [(False, ""), (True, "argocd")])
def test_what_gitops_owns_or_nobody_applied_is_left_and_said(change, there, gitops):
    cluster, quotas = Quotas(*[queue(DAY)] * there), texts(queue, DAY, NIGHT, gitops)
    for state in ("planned", "lowered", "raised"):
        assert not change(cluster, state, quotas)["changed"]
        assert (f"{SMALL} 1000 -> 4" in change.shown) is (state == "planned")
    assert cluster.numbers == [DAY] * there


@pytest.mark.parametrize("writer", ["another host", "a person"])
def test_what_changed_since_it_was_read_is_read_again(change, writer):
    """Hosts of one batch lower at the same time."""

    class Contended(Quotas):
        def change_quota(self, kind, live, spec, written):
            first, self.annotated = not hasattr(self, "annotated"), True
            if first:
                theirs = {"resourceGroups": groups({SMALL: 3})}
                super().change_quota(kind, live, spec if writer == "another host" else theirs, {})
                raise ApiError(409, "change it", "the object has been modified")
            super().change_quota(kind, live, spec, written)

    cluster = Contended(queue(DAY))
    if writer == "a person":
        done = change(cluster, "lowered", texts(queue, DAY, NIGHT))
        assert done["failed"] and "somebody changed the numbers" in done["msg"]
    else:
        assert change(cluster, "lowered", texts(queue, DAY, NIGHT))["changed"]
    assert cluster.numbers == [{SMALL: 3} if writer == "a person" else LEAST]


def test_numbers_that_the_cluster_does_not_take_end_the_run(change):
    cluster = Quotas(queue(DAY))
    cluster.change_quota = lambda *_arguments: None
    done = change(cluster, "lowered", texts(queue, DAY, NIGHT))
    assert done["failed"] and "did not take the numbers (ClusterQueue gpufleet-blue: pool" in done["msg"]


def test_a_run_changes_the_quotas_of_one_cluster(change):
    quotas = texts(queue, DAY, NIGHT)
    refused = change(Quotas(queue(DAY)), "planned", {**quotas, "other": quotas["production"]})
    assert refused["failed"] and "clusters other, production" in refused["msg"]
    assert not change(None, "planned", {})["changed"]
