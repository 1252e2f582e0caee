# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import html.parser

from ansible_collections.gpufleet.nvidia.plugins.module_utils._fleet import ledger, ledger_html
from ansible_collections.gpufleet.nvidia.plugins.module_utils._fleet.devices import Holding
from ansible_collections.gpufleet.nvidia.plugins.module_utils._fleet.pods import read

H100 = "NVIDIA H100 80GB HBM3"


def pod(name, resources=None, phase="Running"):
    metadata = {"namespace": "jobs", "name": name, "uid": name}
    container = {"resources": {"limits": resources or {}}}
    return read({"metadata": metadata, "spec": {"containers": [container]}, "status": {"phase": phase}})


def whole(index, memory=16384, processes=()):
    return {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "Tesla V100",
        "memory_mib": memory,
        "mig": {"current": False},
        "processes": list(processes),
    }


def divided(index):
    parts = [("3g.40gb", 4, 4, 40448, "MIG-a"), ("1g.10gb", 0, 1, 9856, "MIG-b"), ("1g.10gb", 1, 1, 9856, "MIG-c")]
    instances = [
        {
            "profile": profile,
            "start": start,
            "size": size,
            "memory_mib": memory,
            "compute_instances": [{"uuid": uuid, "profile": profile}],
        }
        for profile, start, size, memory, uuid in parts
    ]
    return {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": H100,
        "memory_mib": 81559,
        "mig": {"current": True},
        "gpu_instances": instances,
    }


def held(uid, device, *replicas):
    return [Holding(uid, "c", "r", device, replica) for replica in replicas or ("",)]


SHARED = ledger.node_ledger(
    "gpu-1",
    "10.0.0.1",
    {"gpus": [whole(0), whole(1)]},
    {"nvidia.com/gpu": 4},
    held("a", "GPU-0", "0", "1") + held("b", "GPU-0", "2") + held("gone", "GPU-1", "0"),
    [pod("a"), pod("b"), pod("c", {"nvidia.com/gpu": "1"}), pod("ended", {"nvidia.com/gpu": "1"}, "Succeeded")],
)
MIG = ledger.node_ledger(
    "gpu-2", "10.0.0.2", {"gpus": [divided(0)]}, {}, held("d", "MIG-a") + held("e", "MIG-c"), [pod("d"), pod("e")]
)


def test_the_table_of_kubectl_inspect():
    assert ledger.table([SHARED, MIG]) == (
        "NAME   IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  PENDING(Allocated)  GPU Memory(GiB)\n"
        "gpu-1  10.0.0.1   12/16                  0/16                   1                   12/32\n"
        "gpu-2  10.0.0.2   49/59                  0/0                    0                   49/59\n"
        "---------------------------------------------------------------------------------------------------\n"
        "Allocated/Total GPU Memory In Cluster:\n"
        "61/91 (67%)\n"
    )


def test_units_are_instances_and_replicas():
    lines = ledger.table([SHARED, MIG], ledger.UNITS).splitlines()
    assert lines[1].split() == ["gpu-1", "10.0.0.1", "3/4", "0/4", "1", "3/8"]
    assert lines[2].split() == ["gpu-2", "10.0.0.2", "2/3", "0/0", "0", "2/3"]
    assert lines[-1] == "5/11 (45%)"


def test_no_pending_column_when_nothing_is_pending_and_no_nodes_at_all():
    assert "PENDING" not in ledger.table([MIG])
    assert ledger.table([]).splitlines()[-1] == "0/0 (0%)"
    assert ledger.details([]) == ""


def test_details_name_every_pod():
    text = ledger.details([SHARED])
    assert [line.split() for line in text.splitlines() if line.startswith(("a ", "b "))] == [
        ["a", "jobs", "8", "0"],
        ["b", "jobs", "4", "0"],
    ]
    assert "Allocated :  12 (37%)" in text
    assert "Total :      32" in text
    assert "Pending :    nvidia.com/gpu: 1" in text


def test_without_a_cluster_processes_hold_the_gpus():
    facts = {"gpus": [whole(0, processes=[{"pid": 7, "name": "python3"}]), divided(1)]}
    facts["gpus"][1]["gpu_instances"][0]["compute_instances"][0]["processes"] = [{"pid": 8, "name": "train"}]
    users = ledger.process_users(facts)
    assert users == {"GPU-0": {"python3 (pid 7)": 1}, "MIG-a": {"train (pid 8)": 1}}
    found = ledger.node_ledger("n", "", facts, {}, (), (), users)
    assert [gpu.taken(ledger.UNITS) for gpu in found.gpus] == [1, 1]


def test_as_data():
    found = ledger.as_dict([MIG])["gpu-2"]
    assert (found["allocated_mib"], found["total_mib"]) == (40448 + 9856, 40448 + 2 * 9856)
    shares = {share["device"]: share for share in found["gpus"][0]["shares"]}
    assert shares["MIG-a"]["pods"] == {"jobs/d": 1}
    assert shares["MIG-b"]["taken"] == 0


class Reader(html.parser.HTMLParser):
    VOID = ("meta", "rect", "br")

    def __init__(self):
        super().__init__()
        self.open, self.rects, self.texts = [], [], []

    def handle_starttag(self, tag, attrs):
        if tag == "rect":
            self.rects.append(dict(attrs))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert tag in self.VOID or self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_the_page_is_whole_and_draws_every_share():
    many = ledger.node_ledger("gpu-<3>", "", {"gpus": [whole(0)]}, {"nvidia.com/gpu": 16}, (), ())
    bare = ledger.node_ledger("bare", "", {}, {}, (), ())
    reader = Reader()
    reader.feed(ledger_html.page([SHARED, MIG, many, bare], "GPUs & pods", "today"))
    assert reader.open == []
    kinds = [rect["class"] for rect in reader.rects]
    assert kinds.count("none") == 8
    assert kinds.count("taken") == 3 + 2
    assert kinds.count("free") == 1 + 4 + 1 + 16
    assert "gpu-<3> " in reader.texts
    assert any("jobs/d" in text for text in reader.texts)
    large = reader.rects[8 + 8 : 8 + 8 + 3]
    assert {rect["width"] for rect in large if rect["x"] == "321.0"} == {"318.0"}, "3g.40gb is the right half"


def test_a_partly_taken_instance_is_shown_so():
    node = ledger.node_ledger(
        "n", "", {"gpus": [divided(0)]}, {"nvidia.com/mig-3g.40gb": 2}, held("d", "MIG-a", "0"), [pod("d")]
    )
    assert 'class="part"' in ledger_html.page([node], "t", "w")
