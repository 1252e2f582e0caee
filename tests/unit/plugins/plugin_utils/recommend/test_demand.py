# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wanted of a fleet, read from the variable, from pods that wait and from files of requests."""

from __future__ import annotations

import json

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import board
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.pods import read
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.demand import (
    DemandLine,
    described,
    over_time,
    profile_of_resource,
    waiting,
    wanted,
)

H100, A30, L40S = "h100-80gb-sxm", "a30-24gb", "l40s-48gb"
BOARDS = {name: board(name).profiles for name in (H100, A30, L40S)}
POOLS = {"train": [H100], "serve": [A30, L40S]}


def names(line, larger=False):
    return {(kind.board, kind.profile) for one in wanted([line], POOLS, BOARDS, larger)[0] for kind in one.kinds}


def test_the_variable_is_read():
    lines = described(
        [{"profile": "1G.10GB", "count": 4, "priority": 7, "pool": "train"}, {"memory": "20GiB"}, {"profile": "gpu"}]
    )
    assert lines == [
        DemandLine("gpu_recommend_demand[0]", "1g.10gb", None, 4, 7, "train"),
        DemandLine("gpu_recommend_demand[1]", None, 20480),
        DemandLine("gpu_recommend_demand[2]", "gpu", None),
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("1g.10gb", r"gpu_recommend_demand: must be a list"),
        (["1g.10gb"], r"gpu_recommend_demand\[0\]: every entry must be a mapping"),
        ([{"profile": "1g.10gb", "many": 3}], r"gpu_recommend_demand\[0\]\.many: is not a key"),
        ([{"profile": "1g.10gb"}, {"count": 3}], r"gpu_recommend_demand\[1\]: has neither profile nor memory"),
        ([{"profile": "1g.10gb", "memory": "4GiB"}], r"\[0\]: has both profile and memory"),
        ([{"profile": ["1g.10gb"]}], r"\[0\]\.profile: .* is not a MIG profile name"),
        ([{"profile": "big"}], r"gpu_recommend_demand\[0\]\.profile: 'big' is not a MIG profile name"),
        ([{"memory": "4GB"}], r"gpu_recommend_demand\[0\]\.memory: the unit 'GB'"),
        ([{"profile": "gpu", "count": 0}], r"\[0\]\.count: 0 must be an integer from 1"),
        ([{"profile": "gpu", "count": True}], r"\[0\]\.count: True must be an integer"),
        ([{"profile": "gpu", "priority": 1.5}], r"\[0\]\.priority: 1\.5 must be an integer"),
        ([{"profile": "gpu", "pool": 3}], r"\[0\]\.pool: 3 is not the name of a pool"),
    ],
)
def test_what_is_no_demand_is_refused_with_its_path(value, message):
    with pytest.raises(Refused, match=message):
        described(value)


def test_requests_are_served_by_what_the_boards_offer():
    assert names(DemandLine("x", "1g.10gb", None)) == {(H100, "1g.10gb")}
    assert names(DemandLine("x", "2g.12gb", None)) == {(A30, "2g.12gb")}
    assert names(DemandLine("x", "gpu", None, pool="serve")) == {(A30, "gpu"), (L40S, "gpu")}
    assert names(DemandLine("x", None, 10240)) == {(H100, "1g.20gb"), (A30, "2g.12gb"), (L40S, "gpu")}
    larger = names(DemandLine("x", "3g.40gb", None), larger=True)
    assert larger == {(H100, name) for name in ("3g.40gb", "4g.40gb", "7g.80gb", "gpu")}
    # No narrower instance has the optical flow accelerator of this one.
    media = names(DemandLine("x", "1g.10gb+me", None), larger=True)
    assert media == {(H100, name) for name in ("1g.10gb+me", "7g.80gb", "gpu")}


def test_what_no_gpu_offers_is_refused():
    with pytest.raises(Refused, match=r"y: no GPU of serve offers 1g.10gb\. Its profiles are 1g.6gb"):
        wanted([DemandLine("y", "1g.10gb", None, pool="serve")], POOLS, BOARDS)
    with pytest.raises(Refused, match=r"y\.pool: the fleet has no pool other\. It has serve, train"):
        wanted([DemandLine("y", "1g.10gb", None, pool="other")], POOLS, BOARDS)


def pod(name, phase="Pending", node=None, priority=None, **limits):
    resources = {key.replace("__", "."): value for key, value in limits.items()}
    spec = {"containers": [{"name": "main", "resources": {"limits": resources}}]}
    spec.update({key: value for key, value in (("nodeName", node), ("priority", priority)) if value is not None})
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}}


def test_pods_that_wait_are_demand():
    ask = {"nvidia.com/mig-1g.10gb": "1"}
    documents = [
        pod("a", priority=1000, **ask),
        pod("b", priority=1000, **ask),
        pod("c", node="gpu-0", **ask),
        pod("d", phase="Running", node="gpu-0", **ask),
        pod("e", **{"nvidia.com/gpu": "1", **ask}),
        pod("h", **{"nvidia.com/gpu": "2"}),
        pod("f", **{"nvidia.com/mig-9g.999gb": "1"}),
        pod("g", **{"nvidia.com/gpu-of-others": "1"}),
    ]
    lines = waiting([(read(one), one) for one in documents])
    alone = DemandLine(
        "pods of priority 1000 that wait for 1 x nvidia.com/mig-1g.10gb", "1g.10gb", None, 2, 1000, pods=True
    )
    assert alone in lines
    # Nothing larger serves them, whatever serves other requests.
    assert names(alone, larger=True) == {(H100, "1g.10gb")}
    found, left_out = wanted(lines, POOLS, BOARDS)
    several = "pods of priority 0 that wait for 1 x nvidia.com/gpu, 1 x nvidia.com/mig-1g.10gb"
    assert [(one.count, one.priority, one.optional, one.together) for one in found] == [
        (1, 0, True, 1),
        (1, 0, True, 1),
        (2, 0, True, 2),
        (2, 1000, True, 1),
    ]
    assert [one.pod for one in found[:2]] == [several, several] and several not in (found[2].pod, found[3].pod)
    assert left_out == {
        "1 pods of priority 0 that wait for 1 x nvidia.com/mig-9g.999gb": "no GPU of the fleet offers 9g.999gb",
        "1 pods of priority 0 that wait for 1 x nvidia.com/gpu-of-others": "no GPU of the fleet offers nvidia.com/gpu-of-others",
    }


def test_a_pod_is_left_out_with_all_its_devices_where_nothing_offers_one_of_them():
    both = pod("a", **{"nvidia.com/gpu": "1", "nvidia.com/mig-9g.999gb": "1"})
    found, left_out = wanted(waiting([(read(both), both)]), POOLS, BOARDS)
    assert found == [] and list(left_out.values()) == ["no GPU of the fleet offers 9g.999gb"]


def claim(name, device_class="mig.nvidia.com", profile=None, allocated=False, **exactly):
    rule = f"device.attributes['gpu.nvidia.com'].profile == '{profile}'"
    selectors = [{"cel": {"expression": rule}}] if profile else []
    request = {"deviceClassName": device_class, "selectors": selectors, **exactly}
    status = {"allocation": {"devices": {}}} if allocated else {}
    spec = {"devices": {"requests": [{"name": "one", "exactly": request}]}}
    return {"metadata": {"namespace": "default", "name": name}, "spec": spec, "status": status}


def claiming(name, *claims, made=()):
    found = pod(name)
    found["spec"]["resourceClaims"] = [
        {"name": one, **({} if one in made else {"resourceClaimName": one})} for one in claims
    ]
    found["status"]["resourceClaimStatuses"] = [{"name": one, "resourceClaimName": f"{name}-{one}"} for one in made]
    return found


def test_pods_that_wait_by_claims_are_demand_of_the_pools_that_serve_claims():
    claims = [
        claim("a-mine", profile="1g.10gb"),
        claim("shared", "gpu.nvidia.com"),
        claim("had", profile="1g.10gb", allocated=True),
        claim("two", profile="1g.10gb", count=2),
        claim("any", "gpu.nvidia.com", allocationMode="All"),
        claim("rules", "gpu.nvidia.com", profile="1g.10gb"),
    ]
    documents = [
        claiming("a", "mine", made=["mine"]),
        # One device for two pods.
        claiming("b", "shared"),
        claiming("c", "shared"),
        claiming("d", "had"),
        claiming("e", "two"),
        claiming("f", "any"),
        claiming("g", "rules"),
        claiming("h", "gone"),
        pod("i", **{"nvidia.com/mig-1g.10gb": "1"}),
        pod("j", **{"nvidia.com/gpu": "1"}),
    ]
    pools = {"claims": [H100], "plugin": [H100]}
    found, left_out = wanted(
        waiting([(read(one), one) for one in documents], claims), pools, BOARDS, by_claims={"claims"}
    )
    served = sorted((one.count, one.together, *((kind.pool, kind.profile) for kind in one.kinds)) for one in found)
    assert served == [
        (1, 1, ("claims", "1g.10gb")),
        (1, 1, ("claims", "gpu")),
        (1, 1, ("claims", "gpu"), ("plugin", "gpu")),
        (1, 1, ("plugin", "1g.10gb")),
        (2, 2, ("claims", "1g.10gb")),
    ]
    assert left_out == {
        "2 pods of priority 0 that wait for 1 x gpu.nvidia.com by rules of its own": "no GPU of the fleet offers gpu.nvidia.com by rules of its own",
        "1 pods of priority 0 that wait for 1 x the ResourceClaim gone, which there is not yet": (
            "no GPU of the fleet offers the ResourceClaim gone, which there is not yet"
        ),
    }


def test_resources_are_profiles():
    assert profile_of_resource("mig.nvidia.com/1g.10gb+me") == "1g.10gb+me"
    assert profile_of_resource("nvidia.com/mig-1g.10gb.me") == "1g.10gb+me"
    assert profile_of_resource("nvidia.com/mig-1g.10gb.shared") == "1g.10gb"
    assert profile_of_resource("nvidia.com/gpu.shared") == "gpu"


def test_the_most_requests_at_once_are_wanted():
    text = (
        "\ufeffsubmitted,ended,profile,priority\n"
        "0,10.5,1g.10gb,1\n"
        "5,,1g.10gb,1\n"
        "10.5,20,1g.10gb,1\n"
        "2026-11-27T18:00:00Z,2026-11-27T19:00:00+00:00,gpu,\n"
    )
    assert over_time(text, "trace.csv", headroom=10) == [
        DemandLine("trace.csv", "1g.10gb", None, 3, 1),
        DemandLine("trace.csv", "gpu", None, 2, 0),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"t\.csv:1: the header is ''"),
        ("submitted,ended,what\n", r"t\.csv:1, column 3: the header"),
        ("submitted,ended,profile,profile\n", r"t\.csv:1, column 4: the header"),
        ("submitted,ended,profile\n0,1\n", r"t\.csv:2, column 3: has 2 columns, and the header has 3"),
        ("submitted,ended,profile\n0,1,gpu\n0,soon,gpu\n", r"t\.csv:3, column 2: 'soon' is not a moment"),
        ("submitted,ended,profile\n5,1,gpu\n", r"t\.csv:2, column 2: 1 is before 5"),
        ("submitted,ended,profile\n2026-11-27T18:00:00,,gpu\n", r"t\.csv:2, column 1: .* is not a moment"),
        ("submitted,ended,profile\n0,1,huge\n", r"t\.csv:2, column 3.*: 'huge' is not a MIG profile name"),
        ("submitted,ended,profile,priority\n0,1,gpu,high\n", r"t\.csv:2, column 4: 'high' must be an integer"),
        ('submitted,ended,profile\n0,1,"gpu\n', r"t\.csv:2: invalid CSV"),
    ],
)
def test_a_malformed_file_is_refused_with_line_and_column(text, message):
    with pytest.raises(Refused, match=message):
        over_time(text, "t.csv")


def answered(*series):
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": list(series)}})


def test_what_prometheus_answered_is_demand():
    """The most that there were at once of series that ask for the same: of 2 and 3 at one moment, 4 and 0 at the next, five."""
    small = {"resource": "nvidia_com_mig_1g_10gb_me", "priority": "-7", "pool": "train"}
    text = answered(
        {"metric": {**small, "namespace": "a"}, "values": [[1764288000, "2"], [1764288060.5, "4"]]},
        {"metric": {**small, "namespace": "b"}, "values": [[1764288000, "3"], [1764288060.5, "0"]]},
        {"metric": {"resource": "nvidia_com_gpu_shared"}, "value": [1764288000, "1.2e+1"]},
        {"metric": {"memory": "20GiB"}, "values": [[1764288000, "0.5"]]},
        {"metric": {"profile": "2g.20gb"}, "values": [[1764288000, "0"]]},
    )
    assert over_time(text, "p.json", headroom=20) == [
        DemandLine("p.json", "1g.10gb+me", None, 6, -7, "train"),
        DemandLine("p.json", "gpu", None, 15),
        DemandLine("p.json", None, 20480, 1),
    ]


GPU = {"metric": {"profile": "gpu"}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"data": \n  {"result": x}}', r"p\.json:2, column 14: invalid JSON"),
        ("{" + '"a":{' * 200 + "}" * 201, r"p\.json: it is nested too deeply"),
        ("{}", r"p\.json: data: it must not be null"),
        ('{"status": "error", "data": {"result": {}}}', r"p\.json: data\.result: .* must be a list"),
        (answered(GPU), r"p\.json: data\.result\[0\]: it has neither value nor values"),
        (answered({**GPU, "values": [[1, 2]]}), r"data\.result\[0\]\.values\[0\]\[1\]: 2 must be text"),
        (answered({**GPU, "values": [[1, "1", 2]]}), r"data\.result\[0\]\.values\[0\]: the list has 3 entries"),
        (answered({**GPU, "value": [1, "NaN"]}), r"data\.result\[0\]: its value 'NaN' at 1.0 must be a number"),
        (answered({**GPU, "value": [1, "-1"]}), r"its value '-1' at 1.0 must be a number from 0 on"),
        (answered({"metric": {}, "value": [1, "1"]}), r"data\.result\[0\]\.metric: has neither profile nor memory"),
        (
            answered({"metric": {"resource": "cpu"}, "value": [1, "1"]}),
            r"data\.result\[0\]\.metric\.profile: 'cpu' is not a MIG",
        ),
        (
            answered({"metric": {"profile": "gpu", "priority": "high"}, "value": [1, "1"]}),
            r"data\.result\[0\]\.metric\.priority: 'high' must be an integer",
        ),
    ],
)
def test_an_answer_of_prometheus_that_is_none_is_refused_with_its_place(text, message):
    with pytest.raises(Refused, match=message):
        over_time(text, "p.json")
