# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import inspect
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import ApiError

GROUPS = {"gpu_hosts": ["a", "b", "c"], "shared": ["a", "b", "c"]}
L40S = {
    "index": 0,
    "name": "NVIDIA L40S",
    "board": "l40s-48gb",
    "architecture": "ada",
    "memory_mib": 46068,
    "mig": {"supported": False, "current": False, "pending": False},
    "gpu_instances": [],
    "processes": [],
}
FACTS = {"schema": 1, "driver": {"loaded_version": "580.178.04"}, "gpus": [L40S, {**L40S, "index": 1}]}
SHARED = {"nvidia_sharing_mode": "mps", "nvidia_sharing_memory_slice": "4GiB"}


@pytest.fixture
def show(call):
    def run(arguments=None, play_hosts=("a",), **hosts):
        hostvars = {host: hosts.get(host, {}) for host in GROUPS["gpu_hosts"]}
        variables = {"groups": GROUPS, "hostvars": hostvars, "ansible_play_hosts": list(play_hosts)}
        return call(inspect, arguments or {}, variables)

    return run


def read(**variables):
    return {"gpu_facts_host": {"gpu": FACTS}, **variables}


def test_the_table_tells_what_is_divided_and_what_is_expected_in_the_cluster(show, tmp_path):
    page = tmp_path / "gpus.html"
    result, shown = show({"note": "files are there", "html": str(page)}, a=read(**SHARED))
    assert "11 MPS clients of 4.1 GiB, 9% of the threads each (expected)" in shown.text
    assert "EXPECTED IN THE CLUSTER\na     shared  nvidia.com/gpu: 22\nThe cluster was not read" in shown.text
    assert "Expected in the cluster, which was not asked: nvidia.com/gpu: 22." in page.read_text()
    assert shown.lines[-1] == "files are there"
    assert result["expected"]["a"]["pool"] == "shared"
    assert (result["offered"], result["mismatches"]) == (None, {})
    assert "capacity" not in result, "a prediction is not what the cluster has"
    assert result["changed"] is True, "the page is new"


def test_whole_gpus(show):
    result, shown = show(a=read())
    assert "whole" in shown.text
    assert result["expected"]["a"]["resources"] == {"nvidia.com/gpu": 2}
    assert result["changed"] is False


def test_as_json(show):
    result, shown = show({"format": "json"}, a=read(**SHARED))
    told = json.loads(shown.text)
    assert (told["hosts"], told["expected"]) == (result["hosts"], result["expected"])


def test_a_summary_leaves_out_what_grows_with_the_fleet_and_the_report_has_it(show, tmp_path):
    path = tmp_path / "inspect.json"
    result, _shown = show({"summary": True, "report": str(path)}, a=read())
    assert not {"hosts", "ledger", "expected", "offered"} & set(result)
    assert result["unread"] == {} and "total" in result
    assert {"hosts", "ledger", "expected", "offered"} <= set(json.loads(path.read_text()))


def test_hosts_that_were_not_read_are_named_and_wrong_ones_are_warned_of(show):
    unreachable = {"gpu_facts_host": {"unreachable": True, "msg": "Failed to connect: timed out.\nmore"}}
    result, shown = show(play_hosts=("a", "b", "c"), a=read(), b=unreachable, c=read(nvidia_sharing_replicas="many"))
    assert list(result["hosts"]) == ["a", "c"]
    assert list(result["expected"]) == ["a"]
    assert result["unread"] == {"b": "it could not be read: Failed to connect: timed out"}
    assert "b: it could not be read: Failed to connect: timed out.\n" in shown.text
    assert len(shown.warnings) == 1 and shown.warnings[0].startswith("c: nvidia_sharing_replicas: 'many'")
    assert shown.text.count("NVIDIA L40S") == 2


class Trace:
    """What ansible-core adds to the answer of a task that failed, and what is no data."""


class FakeApi:
    def __init__(self, nodes, pods, slices=None, claims=None):
        self._nodes, self._pods, self._slices, self._claims = nodes, pods, slices, claims

    def resource_slices(self):
        assert self._slices is not None, "no pool is served by claims: they need not be allowed"
        return self._slices

    def resource_claims(self):
        return self._claims

    def nodes(self):
        return self._nodes

    def pods(self):
        return self._pods


def node(ready=True, address="10.0.0.1", gpus="2", **spec):
    return {
        "metadata": {"name": "a", "uid": "uid-of-a"},
        "spec": spec,
        "status": {
            "addresses": [{"type": "Hostname", "address": "x"}, {"type": "InternalIP", "address": address}],
            "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}],
            "allocatable": {"nvidia.com/gpu": gpus},
        },
    }


def pod(name, node=None, count="1", phase="Running", **spec):
    limits = {"nvidia.com/gpu": count} if count else {}
    return {
        "metadata": {"namespace": "jobs", "name": name, "uid": f"uid-{name}"},
        "spec": {
            **({"nodeName": node} if node else {}),
            "containers": [{"resources": {"limits": limits}}, {"name": "side"}],
            **spec,
        },
        "status": {"phase": phase},
    }


def checkpoint(**held):
    entries = [
        {"PodUID": f"uid-{name}", "ContainerName": "c", "ResourceName": "nvidia.com/gpu", "DeviceIDs": {"0": devices}}
        for name, devices in held.items()
    ]
    text = json.dumps({"Data": {"PodDeviceEntries": entries}})
    return {"gpu_inspect_checkpoint": {"content": base64.b64encode(text.encode()).decode()}}


@pytest.fixture
def in_cluster(show, monkeypatch):
    def run(nodes, pods, arguments=None, slices=None, claims=None, **options):
        monkeypatch.setattr(inspect, "Cluster", lambda *_arguments: FakeApi(nodes, pods, slices, claims))
        return show({"kubeconfig": "/kube", **(arguments or {})}, **options)

    return run


def test_what_the_cluster_offers_is_shown_when_it_was_asked_and_mismatches_are_marked(in_cluster, tmp_path):
    """One node as described, one with other slices, one that is not there, and one whose host was not read."""
    page = tmp_path / "gpus.html"
    sliced = {"nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 3}
    result, shown = in_cluster(
        {"a": node(gpus="6"), "node-b": node(gpus="2")},
        [],
        {"html": str(page)},
        play_hosts=("a", "b", "c"),
        a=read(**sliced),
        b=read(**sliced, gpu_node_name="node-b"),
        c={"gpu_facts_host": {"unreachable": True, "msg": "timed out"}},
    )
    rows = [line.split("  ") for line in shown.text.splitlines() if "MISMATCH" in line or line.endswith("yes")]
    assert [[cell.strip() for cell in row if cell] for row in rows[:2]] == [
        ["a", "shared", "nvidia.com/gpu: 6", "nvidia.com/gpu: 6", "yes"],
        ["b", "shared", "nvidia.com/gpu: 2", "nvidia.com/gpu: 6", "MISMATCH"],
    ]
    assert rows[2] == ["MISMATCH: gpufleet.nvidia.verify says why, and what to do."]
    assert "not asked" not in shown.text
    divided = {line.split()[0]: "(expected)" in line for line in shown.text.splitlines() if "3 time slices" in line}
    assert divided == {"a": False, "b": True}, "only what the cluster offers is called so without a word"
    assert result["offered"] == {"a": {"nvidia.com/gpu": 6}, "b": {"nvidia.com/gpu": 2}, "c": None}
    assert result["mismatches"] == {"b": ["nvidia.com/gpu: 2 instead of 6"]}
    text = page.read_text()
    assert "<p>Offered by the cluster, as expected: nvidia.com/gpu: 6.</p>" in text
    assert (
        '<p class="note">MISMATCH. Offered by the cluster: nvidia.com/gpu: 2. Expected: nvidia.com/gpu: 6.</p>' in text
    )


def labelled(gpus, **labels):
    return {**node(gpus=gpus), "metadata": {"labels": labels}}


@pytest.mark.parametrize(
    ("match", "labels"),
    [
        ({"boards": True}, {"gpufleet.github.io/pool": "shared"}),
        ({"labels": {"group": "elastic"}}, {"group": "elastic"}),
    ],
)
def test_nodes_that_joined_a_pool_by_what_they_are_are_compared_with_its_hosts(in_cluster, match, labels):
    pool = {"nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 3, "gpu_kubernetes_node_match": match}
    nodes = {"a": labelled("6"), "new-1": labelled("6", **labels), "new-2": labelled("3", **labels)}
    nodes |= {"other": labelled("6", **{"gpufleet.github.io/pool": "other", "group": "other"}), "b": labelled("0")}
    result, shown = in_cluster(nodes, [], play_hosts=("a",), a=read(**pool))
    rows = {cells[0]: cells for line in shown.text.splitlines() if (cells := line.split()) and "shared" in cells}
    assert set(rows) == {"a", "new-1", "new-2"}
    assert (rows["new-1"][-1], rows["new-2"][-1]) == ("yes", "MISMATCH")
    assert result["mismatches"] == {"new-2": ["nvidia.com/gpu: 3 instead of 6"]}
    assert set(result["not_in_inventory"]) == {"new-1", "new-2", "other"}
    by_name, _shown = in_cluster(nodes, [], a=read(**{**pool, "gpu_kubernetes_node_match": {}}))
    assert by_name["mismatches"] == {}


def test_a_joined_node_with_the_name_of_a_host_takes_nobodys_place(in_cluster):
    pool = {"gpu_kubernetes_node_match": {"boards": True}, "gpu_node_name": "node-a"}
    joined = labelled("1", **{"gpufleet.github.io/pool": "shared"})
    result, _shown = in_cluster({"node-a": labelled("2"), "a": joined}, [], a=read(**pool))
    assert result["mismatches"] == {"node a": ["nvidia.com/gpu: 1 instead of 2"]}


def test_a_host_that_belongs_to_no_cluster_has_no_node_and_its_processes_are_counted(in_cluster):
    result, shown = in_cluster({"a": node()}, [], a=read(), b=read(gpu_kubernetes_cluster=""))
    assert result["mismatches"].keys() <= {"a"} and "has no node" not in shown.text


UUIDS = {"gpus": [{**L40S, "uuid": "GPU-0"}, {**L40S, "uuid": "GPU-1", "index": 1}]}
WITH_UUIDS = {"gpu_facts_host": {"gpu": {**FACTS, **UUIDS}}}


def test_pods_of_every_kind_and_nodes_in_every_state(in_cluster, tmp_path):
    nodes = {"a": node(), "node-b": node(ready=False, address="10.0.0.2", unschedulable=True), "stranger": node()}
    nodes["cpu-only"] = node(gpus="0")
    pods = [
        pod("one", "a"),
        pod("ended", "a", phase="Succeeded"),
        pod("late", "a"),
        pod("web", "a", count=None),
        pod("init", "a", count=None, initContainers=[{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]),
        pod("big", count="16", phase="Pending"),
        pod("<b>claim", count=None, phase="Pending", resourceClaims=[{"name": "gpu"}]),
        pod("lost", "node-b"),
    ]
    held = checkpoint(one=["GPU-0"], ended=["GPU-1"], init=["GPU-1"])
    page, report = tmp_path / "gpus.html", tmp_path / "gpus.json"
    result, shown = in_cluster(
        nodes,
        pods,
        {"details": True, "html": str(page), "report": str(report)},
        play_hosts=("a", "b", "c"),
        a={**WITH_UUIDS, **held},
        b={
            **WITH_UUIDS,
            "gpu_node_name": "node-b",
            "gpu_inspect_checkpoint": {"msg": "file not found", "of": Trace()},
        },
        c=WITH_UUIDS,
    )
    rows = [line.split() for line in shown.lines[1].splitlines()]
    assert rows[1] == ["a", "10.0.0.1", "45/45", "45/45", "1", "90/90"]
    assert rows[2] == ["node-b", "10.0.0.2", "0/45", "0/45", "1", "0/90"]
    assert rows[3] == ["c", "0/45", "0/45", "0", "0/90"]
    for remark in (
        "Pending Pods On No Node (2):",
        "big       jobs       nvidia.com/gpu: 16",
        "node-b: the node is not ready.",
        "node-b: the node is cordoned.",
        "node-b: which pod holds which device is not known: the kubelet's checkpoint of devices: file not found.",
        "c: the cluster has no node c: set gpu_node_name",
        "stranger: a node of the cluster that is not in the inventory, with nvidia.com/gpu: 2.",
    ):
        assert remark in shown.text
    assert "cpu-only" not in shown.text
    assert ["late", "jobs", "0", "0", "1"] in [line.split() for line in shown.text.splitlines()]
    assert result["pending"][1] == {"pod": "jobs/big", "asks_for": {"nvidia.com/gpu": 16}, "claims": False}
    assert result["ledger"]["a"]["pending_pods"] == ["jobs/late"]
    assert result["total"]["pending"] == {"nvidia.com/gpu": 18}
    assert json.loads(report.read_text())["not_in_inventory"] == {"stranger": {"nvidia.com/gpu": 2}}
    assert "jobs/&lt;b&gt;claim" in page.read_text() and "<b>claim" not in page.read_text()


@pytest.mark.parametrize("content", ["", "not json", "\xff\xfe", '{"Data": {}}'])
def test_a_checkpoint_that_is_none_is_a_remark_on_its_node_and_no_more(in_cluster, content):
    given = {"gpu_inspect_checkpoint": {"content": base64.b64encode(content.encode("latin-1")).decode()}}
    result, shown = in_cluster({"a": node()}, [pod("one", "a")], a={**WITH_UUIDS, **given})
    assert "failed" not in result
    assert "a: which pod holds which device is not known" in shown.text
    _quiet, shown = in_cluster({"a": node()}, [], a={**WITH_UUIDS, **given})
    assert "not known" not in shown.text, "nobody can hold one"


def test_a_host_without_a_driver_and_a_lost_gpu(in_cluster, bare_facts):
    gone = {**L40S, "uuid": None, "index": 1, "lost": True, "name": None, "memory_mib": None, "mig": None}
    half = {"gpu_facts_host": {"gpu": {**FACTS, "gpus": [UUIDS["gpus"][0], gone]}}}
    nodes = {"a": node(), "b": node()}
    _result, shown = in_cluster(nodes, [], play_hosts=("a", "b"), a=half, b={"gpu_facts_host": {"gpu": bare_facts}})
    assert "a: GPU 1 cannot be reached" in shown.text
    assert "b: no GPU could be read: libnvidia-ml.so.1 is not installed." in shown.text


def test_an_api_server_that_does_not_answer_ends_it_with_its_words(show, monkeypatch):
    class Away:
        def pods(self):
            raise ApiError(0, "list the pods", "connection refused")

    monkeypatch.setattr(inspect, "Cluster", lambda *_arguments: Away())
    result, _shown = show({"kubeconfig": "/kube"}, a=read())
    assert result["failed"] and result["msg"] == "Failed to list the pods: connection refused"


def test_what_hami_gave_is_shown_and_what_dra_gave_is_named(in_cluster):
    given = {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,4096,0:;"}
    sliced = pod("one", "a")
    sliced["metadata"]["annotations"] = given
    hami = {**WITH_UUIDS, "nvidia_sharing_backend": "hami", "nvidia_sharing_memory_slice": "4GiB"}
    result, _shown = in_cluster({"a": node()}, [sliced], a={**hami, **checkpoint(one=["GPU-0-3"])})
    assert [gpu["allocated_mib"] for gpu in result["ledger"]["a"]["gpus"]] == [0, 4096]
    assert [gpu["shares"][0]["replicas"] for gpu in result["ledger"]["a"]["gpus"]] == [10, 10]
    claims = [pod("two", "a", None, resourceClaims=[{}]), pod("ended", "a", None, "Failed", resourceClaims=[{}])]
    _result, shown = in_cluster({"a": node()}, claims, a=WITH_UUIDS)
    assert "a: the devices that jobs/two got by resource claims are not shown here.\n" in shown.text


def test_slices_of_a_daemon_of_the_host(in_cluster):
    desired = {**SHARED, "nvidia_sharing_mps_manager": "host", "nvidia_sharing_mps_scope": "node"}
    held = checkpoint(one=["GPU-0::0", "GPU-0::1"])
    result, _shown = in_cluster({"a": node()}, [pod("one", "a")], a={**WITH_UUIDS, **desired, **held})
    assert result["ledger"]["a"]["gpus"][0]["allocated_mib"] == 8192


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (["4G", "4G"], ""),
        (["1G", "4G"], "limits a client to 1G on GPU 0 instead of 4188 MiB; gpufleet.nvidia.verify shows what to do"),
    ],
)
def test_a_daemon_that_gives_its_clients_something_else_than_the_table_says_is_named(show, limits, said):
    pipe = "/run/nvidia/mps/nvidia.com/gpu/pipe"
    daemon = {"pid": 9, "pipe_directory": pipe, "responds": True, "percentage": 9.0, "limits": limits}
    facts = {**FACTS, "mps": [{**daemon, "in_container": True}]}
    _result, shown = show(a={"gpu_facts_host": {"gpu": facts}, **SHARED})
    assert said in shown.text and ("verify shows" in shown.text) is bool(said)


#: What docs/scenarios/inspect.md shows; with RECORD_TRANSCRIPTS=1 it is written anew.
TRANSCRIPT = Path(__file__).resolve().parents[4] / "docs" / "transcripts" / "inspect.txt"


def test_the_page_of_the_documentation_shows_what_is_printed(in_cluster):
    nodes = {"a": node(gpus="22"), "node-b": node(gpus="2", address="10.0.0.2")}
    pods = [
        pod("prompt-1", "a"),
        pod("prompt-2", "a"),
        pod("embed", "a"),
        pod("train", "node-b"),
        pod("late", phase="Pending"),
    ]
    held = checkpoint(**{"prompt-1": ["GPU-0::0"], "prompt-2": ["GPU-0::1"], "embed": ["GPU-1::0"]})
    whole = checkpoint(train=["GPU-0"])
    _result, shown = in_cluster(
        nodes,
        pods,
        {"details": True},
        play_hosts=("a", "b"),
        a={**WITH_UUIDS, **SHARED, **held},
        b={**WITH_UUIDS, **whole, "gpu_node_name": "node-b"},
    )
    text = "\n".join(line.rstrip() for line in shown.text.splitlines()).strip() + "\n"
    if os.environ.get("RECORD_TRANSCRIPTS"):
        TRANSCRIPT.write_text(text, encoding="utf-8")
    assert TRANSCRIPT.read_text(encoding="utf-8") == text


def devices_of_claims(*names):
    devices = [
        {"name": f"gpu-{name}", "attributes": {"type": {"string": "gpu"}, "uuid": {"string": f"GPU-{name}"}}}
        for name in names
    ]
    pool = {"name": "a", "generation": 1}
    owner = {"ownerReferences": [{"kind": "Node", "name": "a", "uid": "uid-of-a"}]}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "a", "pool": pool, "devices": devices}
    return [{"metadata": owner, "spec": spec}]


def test_devices_of_claims_are_counted_as_extended_resources_are(in_cluster):
    uuids = [{**gpu, "uuid": f"GPU-{gpu['index']}"} for gpu in FACTS["gpus"]]
    host = {"gpu_facts_host": {"gpu": {**FACTS, "gpus": uuids}}, "nvidia_sharing_backend": "dra"}
    trainer = pod("train", "a", count=None, resourceClaims=[{"name": "gpus"}])
    allocated = {"results": [{"driver": "gpu.nvidia.com", "pool": "a", "device": "gpu-1"}]}
    status = {"reservedFor": [{"resource": "pods", "uid": "uid-train"}], "allocation": {"devices": allocated}}
    result, shown = in_cluster(
        {"a": node(gpus="0")}, [trainer], slices=devices_of_claims(0, 1), claims=[{"status": status}], a=host
    )
    assert result["offered"]["a"] == {"gpu.nvidia.com": 2} and result["mismatches"] == {}
    held = [share["pods"] for gpu in result["ledger"]["a"]["gpus"] for share in gpu["shares"]]
    assert held == [{}, {"jobs/train": 1}]
    assert "resource claims" not in shown.text
    result, _shown = in_cluster({"a": node(gpus="0")}, [], slices=devices_of_claims(0), claims=[], a=host)
    assert result["mismatches"] == {"a": ["gpu.nvidia.com: 1 instead of 2"]}


@pytest.mark.parametrize(
    ("label", "chosen", "expected"),
    [("four", "", 8), (None, "", 6), ("nothing", "", 6), ("four", "three", 6), ("default", "", 2)],
)
def test_what_is_expected_follows_the_label_by_which_a_node_chooses(in_cluster, label, chosen, expected):
    described = {
        "gpu_kubernetes_sharing_configurations": {"three": {"replicas": 3}, "four": {"replicas": 4}},
        "gpu_kubernetes_sharing_default": "three",
        "gpu_kubernetes_sharing_configuration": chosen,
    }
    labels = {"nvidia.com/device-plugin.config": label} if label else {}
    there = {**node(gpus="8"), "metadata": {"labels": labels}}
    result, shown = in_cluster({"a": there}, [], a=read(**described))
    assert result["expected"]["a"]["resources"] == {"nvidia.com/gpu": expected}
    assert bool(result["mismatches"]) is (expected != 8)
    assert ("4 time slices" in shown.text) is (expected == 8)
