# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Layouts recommended for recorded hosts, and what C(plan) makes of the file with them."""

from __future__ import annotations

import builtins
import copy
import json
import re
from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import fleet_plan, fleet_recommend, host_plan
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import pods
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import plain
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend import one_host, outcome, ties
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.answer import FleetAnswer
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.checker import NotProven
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.seen import state_of
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen

from ...golden import corpus

pytest.importorskip("highspy")

TRAINING, SHARED = corpus.TRAINING, corpus.SHARED
ROOT = Path(__file__).resolve().parents[4]


def pods_on(facts, *places):
    """Give an instance of some GPUs to a pod each. A place is the index of a GPU and the start of its instance."""
    for index, start in places:
        instance = next(one for one in facts["gpus"][index]["gpu_instances"] if one["start"] == start)
        name = f"job-{index}-{start}"
        instance["compute_instances"][0]["allocations"] = [
            {"pod": f"jobs/{name}", "pod_uid": f"uid-{name}", "container": "c", "resource": "nvidia.com/mig-x"}
        ]


def everything_but(*free):
    """Return every place of the training host but these."""
    return [(index, start) for index in range(8) for start in (0, 2, 3, 4) if (index, start) not in free]


@pytest.fixture
def recommend(call, tmp_path):
    def run(arguments=None, change=None, **variables):
        training = corpus.ready(TRAINING, change)
        hosts = {
            TRAINING: {**training.variables, "gpu_facts_host": {"gpu": training.facts}, **variables},
            SHARED: {**corpus.ready(SHARED).variables, "gpu_facts_host": {"gpu": corpus.ready(SHARED).facts}},
        }
        groups = {"gpu_hosts": [TRAINING, SHARED], "training": [TRAINING], "shared": [SHARED]}
        files = {"report": str(tmp_path / "report.json"), "variables_file": str(tmp_path / "layouts.yml")}
        return call(fleet_recommend, {**files, **(arguments or {})}, {"groups": groups, "hostvars": hosts})

    return run


def written(tmp_path):
    return json.loads((tmp_path / "report.json").read_text()), yaml.safe_load((tmp_path / "layouts.yml").read_text())


def test_an_idle_fleet_is_partitioned_for_what_is_wanted_and_evicts_nobody(recommend, tmp_path):
    result, shown = recommend({"demand": [{"profile": "3g.40gb", "count": 10}, {"profile": "1g.10gb", "count": 8}]})
    assert not result.get("failed"), result
    report, variables = written(tmp_path)
    assert report["served"] == {"0": {"asked": 18, "served": 18}} and result["evicted"] == []
    # Eight of ten are there; each other one needs the place of one 2g.20gb and two 1g.10gb.
    changed = report["hosts"][TRAINING]["gpus"]
    assert [one["after"] for one in changed] == ["3g.40gb x2", "3g.40gb x2"]
    assert "2 GPUs of 1 hosts change; evicted: none; idle instances destroyed: 6." in shown.text
    assert result["msg"] == "Proven: no plan that serves as much evicts fewer, weighted by priority."
    # The most frequent partition is that of all other GPUs.
    layout = variables["gpu_recommend_layouts"][TRAINING]
    assert layout == [
        {"devices": [one["index"] for one in changed], "instances": {"3g.40gb": 2}},
        {"devices": "all", "instances": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}},
    ]
    assert variables["gpu_recommend_order"] == report["order"] == [TRAINING] and report["short"] == 0
    # A host of another pool that is not partitioned keeps what its inventory says.
    assert variables["gpu_recommend_layouts"][SHARED] == []
    assert report["certificate"]["gap"] == "0" and report["certificate"]["prices"]


def plan_of(call, variables, facts):
    """Return what C(plan) makes of the training host with the layouts of the file: what happens to its GPUs, and whom that disturbs."""
    described = corpus.ready(TRAINING).variables
    layout = variables["gpu_recommend_layouts"][TRAINING]
    hostvars = {TRAINING: {**described, "nvidia_mig_layout": layout, "nvidia_mig_disruption": "force"}}
    hostvars[TRAINING]["gpu_facts_host"] = {"gpu": facts}
    groups = {"gpu_hosts": [TRAINING], "training": [TRAINING]}
    given = {"groups": groups, "hostvars": hostvars, "gpu_recommend_seen": variables["gpu_recommend_seen"]}
    result, _shown = call(fleet_plan, {}, given)
    plan = result["plan"]["hosts"][TRAINING]
    assert not plan["impossible"], plan["impossible"]
    steps = plan["stages"]["mig"]["steps"]
    disturbed = sorted({one.split(" ")[1] for step in steps for one in step["disturbs"]})
    return sorted({step["data"]["index"] for step in steps if "index" in step["data"]}), disturbed


#: Two free places of one slice each, on two GPUs.
APART = everything_but((5, 2), (6, 3))


def test_only_whoever_has_to_is_evicted_and_plan_says_the_same(recommend, call, tmp_path):
    """The two slices that are free are not beside each other: who is beside one of them moves to the other."""
    result, shown = recommend({"demand": [{"profile": "2g.20gb"}]}, lambda facts: pods_on(facts, *APART))
    report, variables = written(tmp_path)
    assert result["evicted"] in (["jobs/job-5-3"], ["jobs/job-6-2"]), shown.text
    assert f"1 GPUs of 1 hosts change; evicted: {result['evicted'][0]}; idle instances destroyed: 1." in shown.text
    facts = corpus.ready(TRAINING, lambda facts: pods_on(facts, *APART)).facts
    changed = [one["index"] for one in report["hosts"][TRAINING]["gpus"]]
    assert plan_of(call, variables, facts) == (changed, result["evicted"])


class FakeCluster:
    """Pods of the recorded hosts, and one that waits."""

    priorities: dict[str, int] = {}
    waiting = {"nvidia.com/mig-2g.20gb": "1"}
    rank = 7
    gone = ()

    def __init__(self, *_arguments):
        pass

    def pods(self):
        names = [name for index, start in APART if (name := f"job-{index}-{start}") not in self.gone]
        bound = [self.pod(name, f"uid-{name}", {}, nodeName=TRAINING) for name in names]
        return [*bound, self.pod("waits", "uid-waits", self.waiting, priority=self.rank)]

    def daemon_sets(self):
        return []

    def resource_claims(self):
        selector = {"cel": {"expression": "device.attributes['gpu.nvidia.com'].profile == '2g.20gb'"}}
        request = {"exactly": {"deviceClassName": "mig.nvidia.com", "selectors": [selector]}}
        return [{"metadata": {"namespace": "jobs", "name": "mine"}, "spec": {"devices": {"requests": [request]}}}]

    def pod(self, name, uid, limits, **spec):
        return {
            "metadata": {"namespace": "jobs", "name": name, "uid": uid},
            "spec": {
                "containers": [{"resources": {"limits": limits}}],
                "priority": self.priorities.get(name, 1),
                **spec,
            },
            "status": {"phase": "Running" if "nodeName" in spec else "Pending"},
        }


@pytest.mark.parametrize(("higher", "evicted"), [("job-5-3", "job-6-2"), ("job-6-2", "job-5-3")])
def test_pods_that_wait_are_served_and_the_least_priority_is_evicted(recommend, monkeypatch, tmp_path, higher, evicted):
    monkeypatch.setattr(fleet_recommend, "Cluster", FakeCluster)
    monkeypatch.setattr(FakeCluster, "priorities", {higher: 100})
    result, shown = recommend({"kubeconfig": "x"}, lambda facts: pods_on(facts, *APART))
    assert result["evicted"] == [f"jobs/{evicted}"]
    refused = "it has no controller, so nothing would recreate it; gpufleet.nvidia.repartition evicts it only with gpu_node_evict_force"
    assert f"jobs/{evicted}: {refused}" in shown.text
    assert written(tmp_path)[0]["served"]["7"] == {"asked": 1, "served": 1}
    # A pod that the kubelet has not forgotten yet uses nothing.
    monkeypatch.setattr(FakeCluster, "gone", ("job-5-3",))
    assert recommend({"kubeconfig": "x"}, lambda facts: pods_on(facts, *APART))[0]["evicted"] == []


def test_a_pod_that_waits_by_a_claim_is_left_out_where_no_pool_serves_claims(tmp_path, recommend, monkeypatch):
    monkeypatch.setattr(fleet_recommend, "Cluster", FakeCluster)
    monkeypatch.setattr(FakeCluster, "waiting", {})
    found = FakeCluster.pod
    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]}
    monkeypatch.setattr(
        FakeCluster,
        "pod",
        lambda *given, **spec: found(*given, **{**spec, **(claims if "nodeName" not in spec else {})}),
    )
    result, _shown = recommend({"kubeconfig": "x"}, lambda facts: pods_on(facts, *APART))
    assert not result.get("failed") and result["evicted"] == []
    (reason,) = [why for what, why in written(tmp_path)[0]["left_out"].items() if "mig.nvidia.com/2g.20gb" in what]
    assert reason == "no pool serves claims"


@pytest.mark.parametrize("resource", ["nvidia.com/mig-9g.999gb", "nvidia.com/mig-7g.80gb"])
def test_a_pod_that_nothing_serves_stops_no_recommendation(recommend, monkeypatch, tmp_path, resource):
    monkeypatch.setattr(fleet_recommend, "Cluster", FakeCluster)
    monkeypatch.setattr(FakeCluster, "waiting", {resource: "1"})
    monkeypatch.setattr(FakeCluster, "rank", -5)
    result, _shown = recommend({"kubeconfig": "x"}, lambda facts: pods_on(facts, *APART))
    report = written(tmp_path)[0]
    assert not result.get("failed") and result["evicted"] == []
    if resource.endswith("9g.999gb"):
        what = f"1 pods of priority -5 that wait for 1 x {resource}"
        assert report["left_out"] == {what: "no GPU of the fleet offers 9g.999gb"}
    else:
        assert report["served"]["-5"] == {"asked": 1, "served": 0}


def test_a_pod_that_waits_for_several_devices_gets_them_on_one_host_or_is_left_out(recommend, monkeypatch, tmp_path):
    monkeypatch.setattr(fleet_recommend, "Cluster", FakeCluster)
    monkeypatch.setattr(FakeCluster, "waiting", {"nvidia.com/mig-2g.20gb": "2"})
    result, _shown = recommend({"kubeconfig": "x"}, lambda facts: pods_on(facts, *APART))
    report = written(tmp_path)[0]
    assert report["served"]["7"] == {"asked": 2, "served": 2} and report["left_out"] == {} and result["evicted"]
    monkeypatch.setattr(FakeCluster, "waiting", {"nvidia.com/mig-2g.20gb": "25"})
    result, _shown = recommend({"kubeconfig": "x"}, lambda facts: pods_on(facts, *APART))
    what = "1 pods of priority 7 that wait for 25 x nvidia.com/mig-2g.20gb"
    assert written(tmp_path)[0]["left_out"] == {what: "no host can have all devices of one beside what it serves"}
    assert result["evicted"] == []


@pytest.mark.parametrize(("small", "served"), [(1, 2), (57, 0)])
def test_a_pod_that_waits_for_devices_of_several_kinds_gets_all_of_them_or_none(
    recommend, monkeypatch, tmp_path, small, served
):
    """The host has eight GPUs: beside a 3g.40gb it cannot have 57 slices, and nobody is evicted for a part of the pod."""
    waiting = {"nvidia.com/mig-1g.10gb": str(small), "nvidia.com/mig-3g.40gb": "1"}
    monkeypatch.setattr(fleet_recommend, "Cluster", FakeCluster)
    monkeypatch.setattr(FakeCluster, "waiting", waiting)
    result, _shown = recommend({"kubeconfig": "x"}, lambda facts: pods_on(facts, *APART))
    report = written(tmp_path)[0]
    assert report["served"].get("7", {"served": 0})["served"] == served
    # The slice is there, and a running pod leaves its instance to this one.
    assert result["evicted"] == [] and bool(report["preempted"]) == bool(served)
    what = f"1 pods of priority 7 that wait for {small} x nvidia.com/mig-1g.10gb, 1 x nvidia.com/mig-3g.40gb"
    reason = {what: "no host can have all devices of one beside what it serves"}
    assert report["left_out"] == ({} if served else reason)


@pytest.mark.parametrize(("gpus", "homeless", "fewer"), [(range(8), ["jobs/wide-6"], 0), ((0,), [], 1)])
def test_who_runs_with_several_devices_is_evicted_once_and_the_proof_says_that_it_counts_devices(
    recommend, tmp_path, gpus, homeless, fewer
):
    """Two users have to go. Where they are one pod, no plan evicts fewer; where they are two, a pod with more devices than both has might do."""

    def wide(facts):
        pods_on(facts, *APART)
        for index in gpus:
            for instance in facts["gpus"][index]["gpu_instances"]:
                for one in instance["compute_instances"][0].get("allocations", ()):
                    one.update(pod=f"jobs/wide-{index}", pod_uid=f"uid-{index}")

    demand = [{"profile": "2g.20gb", "count": 2, "priority": 1}]
    result, shown = recommend({"demand": demand, "partial": True}, wide)
    report = written(tmp_path)[0]
    assert report["served"] == {"1": {"asked": 2, "served": 2}, "0": {"asked": 30, "served": 29}}
    assert report["homeless"] == homeless and len(result["evicted"]) == 1 + fewer
    assert ("No host was found that has all devices of: jobs/wide-6." in shown.text) == bool(homeless)
    text = "This counts devices: by pods, of which some have several, another plan could evict up to 1 fewer, weighted by priority."
    assert (text in result["msg"]) == bool(fewer)


@pytest.mark.parametrize(("rank", "served"), [(7, (14, 1)), (-1, (16, 0))])
def test_who_makes_room_for_pods_of_more_priority_that_wait_is_no_reason_to_refuse(
    recommend, monkeypatch, tmp_path, rank, served
):
    monkeypatch.setattr(fleet_recommend, "Cluster", FakeCluster)
    monkeypatch.setattr(FakeCluster, "rank", rank)
    monkeypatch.setattr(FakeCluster, "waiting", {"nvidia.com/mig-7g.80gb": "1"})
    # All GPUs of the pool: a pod that gets one takes it from two requests, or waits.
    arguments = {"kubeconfig": "x", "demand": [{"profile": "3g.40gb", "count": 16}]}
    result, _shown = recommend(arguments)
    assert not result.get("failed"), result["msg"]
    report = written(tmp_path)[0]["served"]
    assert (report["0"]["served"], report[str(rank)]["served"]) == served
    arguments["demand"][0]["count"] = 17
    assert "serves 1 of 17 requests of priority 0" in recommend(arguments)[0]["msg"]


def test_a_demand_that_is_refused_is_planned_once_and_pods_are_read_once(recommend, monkeypatch):
    """What is missing without the pods that wait is counted, and not planned."""
    planned, read = [], []
    found = one_host.recommend
    monkeypatch.setattr(fleet_recommend, "Cluster", FakeCluster)
    for module in (one_host, outcome):
        monkeypatch.setattr(module, "recommend", lambda *given: planned.append(1) or found(*given))
    monkeypatch.setattr(ties, "search_of", lambda *given, of=ties.search_of: planned.append(2) or of(*given))
    monkeypatch.setattr(pods, "requested", lambda spec, of=pods.requested: read.append(1) or of(spec))
    arguments = {"kubeconfig": "x", "demand": [{"profile": "3g.40gb", "count": 17}]}
    assert "serves 1 of 17 requests of priority 0" in recommend(arguments)[0]["msg"]
    assert planned == [1, 2] and len(read) == len(FakeCluster().pods())


def test_who_is_evicted_is_found_once_however_many_pods_there_are(recommend, monkeypatch):
    asked = []
    found = FleetAnswer.evicted.fget
    monkeypatch.setattr(fleet_recommend, "Cluster", FakeCluster)
    monkeypatch.setattr(FleetAnswer, "evicted", property(lambda answer: asked.append(1) or found(answer)))
    recommend({"kubeconfig": "x"}, lambda facts: pods_on(facts, *APART))
    assert 0 < len(asked) < len(APART) / 2


GROW = {"mode": "grow", "variables_file": ""}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"demand": [{"profile": "3g.40gb", "count": 17}]}, "serves 1 of 17 requests of priority 0"),
        ({"demand": [{"profile": "1g.5gb"}]}, "gpu_recommend_demand[0]: no GPU of the fleet offers 1g.5gb"),
        ({"demand": "1g.10gb"}, "gpu_recommend_demand: must be a list"),
        ({"headroom": -1}, "gpu_recommend_headroom: -1 must be an integer"),
        ({"requests": "/nowhere.csv"}, "gpu_recommend_requests: /nowhere.csv cannot be read"),
        ({"free": {"1g.10gb": "many"}}, "gpu_recommend_free['1g.10gb']: 'many' must be an integer"),
        ({"weights": {"0": "much"}}, "gpu_recommend_weights: must be integers by priority"),
        ({"weights": {"0": 1.5}}, "gpu_recommend_weights: must be integers by priority"),
        ({"seconds": -1}, "gpu_recommend_seconds: -1 must be an integer from 1 on"),
        ({"mode": "grow"}, "gpu_recommend_file: gpu_recommend_mode: grow says what has to be bought"),
        ({**GROW, "html": "page.html"}, "gpu_recommend_html: gpu_recommend_mode: grow says what has to be bought"),
        ({**GROW}, "gpu_recommend_prices: no board has a price"),
        ({**GROW, "prices": {"h1000": 1}}, "gpu_recommend_prices['h1000']: the table of boards has no 'h1000'"),
        ({**GROW, "prices": {"a30": 0}}, "gpu_recommend_prices['a30']: 0 must be an integer from 1 on"),
        (
            {**GROW, "prices": {"a30": {"8": 0}}},
            "gpu_recommend_prices['a30']: 0 must be an integer from 1 on. It is the price of a host",
        ),
        (
            {**GROW, "prices": {"a30": {"many": 1}}},
            "gpu_recommend_prices['a30']['many']: must be an integer from 1 to 16",
        ),
        (
            {**GROW, "prices": {"a30": 5000}, "demand": [{"profile": "3g.40gb", "count": 17}]},
            "gpu_recommend_prices: no board that is offered serves all requests: 1 of priority 0 are left",
        ),
    ],
)
def test_bad_input_is_refused_with_its_path_and_nothing_is_written(recommend, tmp_path, arguments, said):
    result, _shown = recommend(arguments)
    assert result["failed"] and said in result["msg"] and result["msg"].endswith("Nothing was changed.")
    assert result["refusals"] and not list(tmp_path.iterdir())


def test_what_cannot_be_served_is_served_as_far_as_possible_where_that_is_allowed(recommend, tmp_path):
    result, _shown = recommend({"demand": [{"profile": "3g.40gb", "count": 17}], "partial": True})
    assert written(tmp_path)[0]["served"] == {"0": {"asked": 17, "served": 16}} and not result.get("failed")


def test_as_many_gpus_as_can_be_are_left_empty(recommend, tmp_path):
    """Two pods on two GPUs fit on one: six GPUs were idle, one is emptied."""
    arguments = {"mode": "consolidate", "demand": [{"profile": "3g.40gb", "pool": "training"}]}
    result, shown = recommend(arguments, lambda facts: pods_on(facts, (2, 0), (5, 2)))
    report, variables = written(tmp_path)
    empty = report["hosts"][TRAINING]["empty"]
    assert len(empty) == 7 and len(result["evicted"]) == 1, shown.text
    assert report["served"] == {"0": {"asked": 3, "served": 3}}
    layout = variables["gpu_recommend_layouts"][TRAINING]
    assert {"devices": "all", "layout": "all-enabled"} in layout
    # GPUs that MIG does not divide are left alone.
    assert not report["hosts"][SHARED]["empty"]
    assert f"Empty then: 7 GPUs ({TRAINING}: " in shown.text and "could perhaps" not in result["msg"]


def test_a_host_is_left_empty_as_a_whole_or_not_at_all(recommend, tmp_path):
    """The recorded fleet has one host that MIG divides: it is empty where nobody needs it, and left alone where somebody does."""
    _result, shown = recommend({"mode": "consolidate_hosts"})
    report, variables = written(tmp_path)
    assert report["hosts"][TRAINING]["empty"] == [*range(8)] and not report["hosts"][SHARED]["empty"]
    assert variables["gpu_recommend_layouts"][TRAINING] == [{"devices": "all", "layout": "all-enabled"}]
    assert (
        f"Hosts left empty: {TRAINING}; no plan that serves as much leaves more. With these, hosts changed: 1;"
        in shown.text
    )
    assert report["order"] == [TRAINING] and report["served"] == {}
    result, shown = recommend({"mode": "consolidate_hosts", "demand": [{"profile": "3g.40gb"}]})
    assert not written(tmp_path)[0]["hosts"][TRAINING]["empty"] and "Empty then: 0 GPUs (none)." in shown.text
    assert result["to_change"] == [] and "and leaves as many hosts empty evicts fewer" in result["msg"]


def test_where_plans_are_not_compared_the_answer_says_so(recommend, monkeypatch):
    monkeypatch.setattr(ties, "_COLUMNS", 0)
    _result, shown = recommend({"mode": "consolidate"}, lambda facts: pods_on(facts, (2, 0), (5, 2)))
    assert "could leave room for" in shown.text


def test_the_page_has_each_gpu_that_changes_now_and_then(recommend, tmp_path):
    arguments = {"demand": [{"profile": "2g.20gb"}], "html": str(tmp_path / "page.html")}
    result, _shown = recommend(arguments, lambda facts: pods_on(facts, *APART))
    page, (evicted,) = (tmp_path / "page.html").read_text(), result["evicted"]
    # The GPU has four instances now, of which one is free, and three then: of these one is made, and whoever is evicted is in none.
    assert page.count("<svg") == 2 and page.count("<b>then</b>") == 1 and TRAINING in page
    now, then = (re.findall(r"<title>(.*?)</title>", part) for part in page.split("<svg")[1:])
    assert len(now) == 4 and sum(one.endswith(": free") for one in now) == 1
    assert any(evicted in one for one in now) and not any(evicted in one for one in then)
    assert sorted(one.split()[0] for one in then) == ["2g.20gb", "2g.20gb", "3g.40gb"]
    assert sum(one.endswith(": free") for one in then) == 1


def test_what_has_to_be_bought_is_said_with_its_price(recommend, tmp_path):
    prices = {"a30": 5000, corpus.ready(TRAINING).facts["gpus"][0]["board"]: 30000}
    arguments = {"demand": [{"profile": "3g.40gb", "count": 17, "pool": "training"}], "mode": "grow", "prices": prices}
    result, shown = recommend({**arguments, "variables_file": ""})
    report = json.loads((tmp_path / "report.json").read_text())
    bought = {"pool": "training", "board": "h100-80gb-sxm", "gpus": 1, "count": 1, "price": 30000}
    assert (report["purchase"], report["cost"], result["to_change"]) == ([bought], 30000, [])
    assert "1 GPUs are missing; the cheapest cost 30000." in shown.text
    # A half of another GPU would do, so prices alone do not show that a whole one is needed.
    assert result["msg"] == "Proven by the search, and not by prices alone: no cheaper purchase serves everything."
    host = {"h100-80gb-sxm": {"8": 250000}}
    _result, shown = recommend({**arguments, "prices": host, "variables_file": ""})
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["purchase"] == [{**bought, "gpus": 8, "price": 250000}]
    assert "8 GPUs are missing, in 1 hosts; the cheapest cost 250000." in shown.text
    arguments["demand"][0]["count"] = 16
    assert recommend({**arguments, "variables_file": ""})[0]["msg"] == NOTHING


NOTHING = "Nothing has to be bought: layouts of the GPUs that there are serve everything."


def test_what_pods_with_several_devices_need_is_bought_by_device_and_the_proof_says_so(recommend, monkeypatch):
    monkeypatch.setattr(fleet_recommend, "Cluster", FakeCluster)
    monkeypatch.setattr(FakeCluster, "waiting", {"nvidia.com/mig-3g.40gb": "2"})
    result, _shown = recommend({"kubeconfig": "x", "mode": "grow", "prices": {"a30": 5000}, "variables_file": ""})
    assert result["msg"] == f"{NOTHING} That one host has all devices of each pod is not part of it."


def test_a_gpu_of_a_pool_that_shares_its_gpus_serves_as_many_as_it_has_replicas(recommend):
    shared = {"profile": "gpu", "pool": "shared"}
    assert not recommend({"demand": [{**shared, "count": 44}]})[0].get("failed")
    result, _shown = recommend({"demand": [{**shared, "count": 45}]})
    assert "serves 1 of 45 requests of priority 0" in result["msg"]


def test_a_layout_that_the_hosts_other_variables_refuse_is_not_recommended(recommend, tmp_path):
    """Slices that the replicas of the pool are counted by fit into what is there, and not into what would be made."""
    settings = {"nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": {"nvidia.com/mig-2g.20gb": 2}}
    result, _shown = recommend({"demand": [{"profile": "1g.10gb", "count": 56}]}, **settings)
    assert result["failed"] and f"{TRAINING}: nvidia_sharing_replicas" in result["msg"], result["msg"]
    assert not list(tmp_path.iterdir())


def test_requests_of_a_file_headroom_and_free_slots_are_wanted(recommend, tmp_path):
    (tmp_path / "requests.csv").write_text("submitted,ended,profile\n0,10,3g.40gb\n5,,3g.40gb\n10,,3g.40gb\n")
    arguments = {"requests": str(tmp_path / "requests.csv"), "headroom": 50, "free": {"3g.40gb": 6}}
    recommend({**arguments, "demand": [{"profile": "2g.20gb", "count": 3}]})
    served = written(tmp_path)[0]["served"]
    assert served == {"0": {"asked": 3 + 5, "served": 8}, str(-(2**31)): {"asked": 6, "served": 6}}


def test_what_is_to_stay_free_does_not_make_evictions_weigh_more(recommend, tmp_path):
    """Whoever has to go has the lowest priority of all, and costs one eviction of weight 1, which is the scale."""
    for free in ({}, {"1g.10gb": 1}):
        arguments = {"demand": [{"profile": "2g.20gb"}], "free": free}
        result, _shown = recommend(arguments, lambda facts: pods_on(facts, *everything_but((5, 2), (6, 3), (7, 3))))
        certificate = written(tmp_path)[0]["certificate"]
        assert len(result["evicted"]) == certificate["cost"] // certificate["scale"] == 1


def test_a_plan_that_is_not_what_it_says_is_not_written(recommend, monkeypatch, tmp_path):
    def wrong(*_asked):
        raise NotProven("group 0 is fixed")

    monkeypatch.setattr(one_host, "verify", wrong)
    result, _shown = recommend({"demand": [{"profile": "3g.40gb"}]})
    assert result["failed"] and "group 0 is fixed. Nothing was written." in result["msg"]
    assert not list(tmp_path.iterdir())


def test_a_fleet_of_which_no_gpu_is_known_is_refused_with_the_reasons(call):
    host = corpus.ready(TRAINING, lambda facts: facts.update(gpus=[]))
    hosts = {TRAINING: {**host.variables, "gpu_facts_host": {"gpu": host.facts}}}
    groups = {"gpu_hosts": [TRAINING], "training": [TRAINING]}
    result, _shown = call(fleet_recommend, {}, {"groups": groups, "hostvars": hosts})
    assert result["failed"] and f"no GPU can be planned ({TRAINING}: no driver reports a GPU of it)" in result["msg"]


def shared_host(replicas):
    variables = {**corpus.ready(SHARED).variables, "nvidia_sharing_mode": "time_slicing" if replicas else "none"}
    variables["nvidia_sharing_memory_slice"] = ""
    variables["nvidia_sharing_replicas"] = replicas
    return {**variables, "gpu_facts_host": {"gpu": corpus.ready(SHARED).facts}}


@pytest.mark.parametrize(("replicas", "most"), [((4, 4), 4), ((4, 2), 2), ((4, 0), 1)])
def test_hosts_of_a_pool_that_share_their_gpus_otherwise_have_the_fewest_replicas(call, replicas, most):
    hosts = {name: shared_host(count) for name, count in zip("ab", replicas)}
    groups = {"gpu_hosts": ["a", "b"], "shared": ["a", "b"]}
    gpus = 2 * len(corpus.ready(SHARED).facts["gpus"])

    def served(count):
        demand = {"demand": [{"profile": "gpu", "count": count}]}
        return not call(fleet_recommend, demand, {"groups": groups, "hostvars": hosts})[0].get("failed")

    assert served(gpus * most) and not served(gpus * most + 1)


def test_an_mps_server_uses_nothing_of_its_own():
    processes = [{"pid": pid, "name": "x"} for pid in (7, 8)]
    facts = seen({"gpus": [{"uuid": "GPU-0", "processes": processes}], "mps": [{"pid": 6, "servers": [7]}]})
    assert fleet_recommend._users(facts, None) == {"GPU-0": ("x (PID 8)",)}


def test_without_highs_it_is_refused_with_what_installs_it(recommend, monkeypatch, tmp_path):
    there = builtins.__import__

    def missing(name, *arguments, **options):
        if name == "highspy":
            raise ImportError("No module named 'highspy'")
        return there(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    result, _shown = recommend()
    assert result["failed"] and "Install it: pip install highspy==" in result["msg"] and not list(tmp_path.iterdir())


def test_hosts_that_are_not_planned_are_named_and_keep_their_layout(recommend, tmp_path):
    _result, shown = recommend(nvidia_mig_strategy="none", nvidia_mig_layout=[])
    assert f"left out: {TRAINING}: MIG is on, and nvidia_mig_strategy is none" in shown.text
    variables = written(tmp_path)[1]
    assert variables["gpu_recommend_layouts"] == {SHARED: [], TRAINING: []} and not variables["gpu_recommend_seen"]


def test_a_host_that_changed_since_is_refused_before_anything_is_touched(call):
    facts = corpus.ready(TRAINING).facts
    layout = [{"devices": "all", "instances": {"3g.40gb": 2}}]
    variables = {**corpus.ready(TRAINING).variables, "nvidia_mig_layout": layout, "inventory_hostname": TRAINING}
    groups = {"gpu_hosts": [TRAINING], "training": [TRAINING]}

    def planned(state, **more):
        seen = {TRAINING: {"state": state, "evicts": []}}
        return call(host_plan, {"facts": facts}, {**variables, "gpu_recommend_seen": seen, "groups": groups, **more})[0]

    assert not planned(state_of(view_of(facts))).get("failed")
    result = planned("older")
    assert result["failed"] and f"gpu_recommend_seen.{TRAINING}: the GPUs of the host were partitioned" in result["msg"]
    # What is in place already is not refused: the run that made it so may be repeated.
    assert not planned("older", nvidia_mig_layout=corpus.described(TRAINING)["nvidia_mig_layout"]).get("failed")


@pytest.mark.parametrize("keeps", [0, 1])
def test_plan_keeps_whom_the_recommendation_keeps_and_refuses_an_older_one(call, keeps):
    """One of two instances stays whose users force takes for equals: which one, the file says."""
    facts = corpus.ready(TRAINING, lambda facts: pods_on(facts, *everything_but())).facts
    small = [one for one in facts["gpus"][0]["gpu_instances"] if one["profile"] == "1g.10gb"]
    (staying,) = small[keeps]["compute_instances"]
    seen = {"state": state_of(view_of(facts)), "evicts": [], "keeps": [staying["uuid"]]}
    layout = [{"devices": [0], "instances": {"1g.10gb": 1, "3g.40gb": 1}}]
    variables = {"gpu_recommend_layouts": {TRAINING: layout}, "gpu_recommend_seen": {TRAINING: seen}}
    index, disturbed = plan_of(call, variables, facts)
    assert index == [0] and f"jobs/job-0-{small[1 - keeps]['start']}" in disturbed
    assert f"jobs/job-0-{small[keeps]['start']}" not in disturbed
    variables["gpu_recommend_seen"][TRAINING]["state"] = "older"
    with pytest.raises(AssertionError, match="were partitioned since"):
        plan_of(call, variables, facts)


def applied(facts, *indices, layout=None):
    """Give GPUs two halves, as the layout of the file says; C(layout): what the host has recorded of it."""
    for index in indices:
        gpu = facts["gpus"][index]
        half = next(one for one in gpu["gpu_instances"] if one["profile"] == "3g.40gb")
        other = {**copy.deepcopy(half), "id": 99, "start": 4 - half["start"]}
        other["compute_instances"][0]["uuid"] = f"MIG-new-{index}"
        gpu["gpu_instances"] = [half, other]
    if layout:
        facts["recorded"]["mig"]["request"] = {"layout": layout, "strategy": "mixed"}


HALVES = [{"devices": [0, 1], "instances": {"3g.40gb": 2}}]


def without_driver(facts):
    facts.update(gpus=None, nvml={**facts["nvml"], "available": False, "reason": "no driver is loaded"})


def cut_off(facts):
    applied(facts, 0)
    facts["recorded"]["mig_unfinished"] = True


def other_instance(facts):
    """GPU 1 lost its layout again, and somebody made an instance of another profile."""
    applied(facts, 0, 1, layout=HALVES)
    facts["gpus"][1]["gpu_instances"] = copy.deepcopy(facts["gpus"][2]["gpu_instances"])


@pytest.mark.parametrize(
    ("since", "goes"),
    [
        (lambda facts: applied(facts, 0, 1, layout=HALVES), True),
        (cut_off, True),
        (lambda facts: facts["gpus"][0].update(gpu_instances=[]) or applied(facts, 1), True),
        (other_instance, True),
        (without_driver, True),
        (lambda facts: applied(facts, 0), False),
    ],
    ids=["applied", "cut off before GPU 1", "cut off after an instance went", "later", "no driver", "somebody else"],
)
def test_a_host_that_got_its_layout_or_was_cut_off_on_the_way_is_not_refused(call, since, goes):
    before = corpus.ready(TRAINING).facts
    seen = {TRAINING: {"state": state_of(view_of(before)), "evicts": [], "keeps": []}}
    variables = {"gpu_recommend_seen": seen, "nvidia_mig_layout": HALVES}
    result = planned_with(call, variables, corpus.ready(TRAINING, since).facts)
    said = [one["message"] for one in result.get("refusals", [])]
    assert (not said) == goes and all("were partitioned since" in one for one in said), said


def test_a_host_that_the_file_does_not_name_keeps_its_gpus_as_they_are(recommend, call, tmp_path):
    recommend({"demand": [{"profile": "3g.40gb", "count": 10}]})
    variables = as_extra_variables(written(tmp_path)[1])
    planned = planned_with(call, variables, corpus.ready(TRAINING).facts)
    assert planned["stages"]["mig"]["needed"] and not planned.get("failed")
    del variables["gpu_recommend_seen"][TRAINING]
    of_pool = variables["gpu_recommend_layouts"].pop(TRAINING)
    planned = planned_with(call, variables, corpus.ready(TRAINING).facts)
    assert not planned.get("failed"), planned["msg"]
    assert not planned["stages"]["mig"]["needed"] and planned["recommended"] == {"state": "", "evicts": []}
    # What its pool has is made where nothing is taken for it.
    variables["gpu_recommend_layouts"]["training"] = of_pool
    planned = planned_with(
        call,
        variables,
        corpus.ready(TRAINING, lambda facts: [one.update(gpu_instances=[]) for one in facts["gpus"]]).facts,
    )
    assert planned["stages"]["mig"]["needed"] and not planned.get("failed")
    planned = planned_with(call, variables, corpus.ready(TRAINING).facts)
    assert "changes nothing on the host, and its layout takes instances from it now" in planned["msg"]


def test_repartition_keeps_what_the_file_says_and_else_whatever_is_in_use():
    tasks = yaml.safe_load((ROOT / "roles" / "gpu_repartition" / "tasks" / "plan.yml").read_text())
    (plan,) = (task["gpufleet.nvidia.mig"] for task in tasks if "gpufleet.nvidia.mig" in task)

    def busy(**variables):
        given = {"__gpu_repartition_busy": ["MIG-a", "MIG-b"], **variables}
        return plain(Templar(loader=DataLoader(), variables=given).template(trust_as_template(plan["busy_instances"])))

    assert busy() == busy(gpu_facts_plan={"recommended": {}}) == ["MIG-a", "MIG-b"]
    assert busy(gpu_facts_plan={"recommended": {"state": "x", "keeps": ["MIG-a"]}}) == ["MIG-a"]


def as_extra_variables(value):
    """Return what Ansible makes of a variables file: every text of it may be a template."""
    if isinstance(value, dict):
        return {key: as_extra_variables(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_extra_variables(item) for item in value]
    return trust_as_template(value) if isinstance(value, str) else value


def test_nothing_that_a_host_says_is_a_template_of_the_file(recommend, call, tmp_path):
    run = "{{ lookup('pipe', 'touch " + str(tmp_path / "ran") + "') }}"

    def change(facts):
        pods_on(facts, *everything_but())
        for gpu in facts["gpus"][:4]:
            for number, instance in enumerate(gpu["gpu_instances"]):
                inside = instance["compute_instances"][0]
                inside["allocations"][0].update(pod=f"jobs/{run}", pod_uid=run)
                if number % 2:
                    inside.update(allocations=[], processes=[{"pid": 1, "name": run}])

    demand = [{"profile": "7g.80gb", "count": 8, "priority": 1}]
    result, _shown = recommend({"demand": demand, "partial": True}, change)
    assert any(run in who for who in result["evicted"]) and "jobs/job-7-0" in result["evicted"]
    variables = {**as_extra_variables(written(tmp_path)[1]), "inventory_hostname": TRAINING}
    evaluated = plain(Templar(loader=DataLoader(), variables=variables).template(variables))
    assert "jobs/job-7-0" in evaluated["gpu_recommend_seen"][TRAINING]["evicts"]
    planned = planned_with(call, variables, corpus.ready(TRAINING, change).facts)
    assert not planned.get("failed"), planned["msg"]
    assert planned["recommended"] == {
        key: evaluated["gpu_recommend_seen"][TRAINING][key] for key in planned["recommended"]
    }
    assert not (tmp_path / "ran").exists()


def test_what_a_file_says_of_a_host_is_no_template_whoever_wrote_it(call, tmp_path):
    run = trust_as_template("{{ lookup('pipe', 'touch " + str(tmp_path / "ran") + "') }}")
    seen = {"state": "x", "evicts": [run, "jobs/a"]}
    variables = {"gpu_recommend_seen": {TRAINING: seen, SHARED: seen}}
    assert planned_with(call, variables, corpus.ready(TRAINING).facts)["recommended"]["evicts"] == ["jobs/a"]
    for wrong in ("{{ x }}", {TRAINING: "x"}, {TRAINING: {"state": "x", "evicts": "jobs/a"}}):
        result = planned_with(call, {"gpu_recommend_seen": wrong}, corpus.ready(TRAINING).facts)
        assert result["failed"] and "gpu_recommend_seen: it is not as" in result["msg"]
    assert not (tmp_path / "ran").exists()


def planned_with(call, variables, facts):
    """Return the plan of the stages of the training host with these variables."""
    described = {**corpus.ready(TRAINING).variables, "__gpu_facts_emptied": True, "inventory_hostname": TRAINING}
    groups = {"gpu_hosts": [TRAINING], "training": [TRAINING]}
    known = {"groups": groups, "group_names": ["gpu_hosts", "training"]}
    return call(host_plan, {"facts": facts}, {**described, **known, **variables})[0]
