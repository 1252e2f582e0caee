# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import html.parser

from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import inspection, usage
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.devices import Holding
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.pods import read
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render import usage_page
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen

H100 = "NVIDIA H100 80GB HBM3"


def pod(name, resources=None, phase="Running", annotations=None, **spec):
    metadata = {"namespace": "jobs", "name": name, "uid": name, "annotations": annotations or {}}
    container = {"resources": {"limits": resources or {}}}
    return read({"metadata": metadata, "spec": {"containers": [container], **spec}, "status": {"phase": phase}})


def whole(index, memory=16384, processes=(), **others):
    return {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "Tesla V100",
        "memory_mib": memory,
        "mig": {"current": False},
        "processes": list(processes),
        **others,
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


SHARED = usage.node_usage(
    "gpu-1",
    "10.0.0.1",
    seen({"gpus": [whole(0), whole(1)]}),
    {"nvidia.com/gpu": 4},
    held("a", "GPU-0", "0", "1") + held("b", "GPU-0", "2") + held("gone", "GPU-1", "0"),
    [pod("a"), pod("b"), pod("c", {"nvidia.com/gpu": "1"}), pod("ended", {"nvidia.com/gpu": "1"}, "Succeeded")],
)
MIG = usage.node_usage(
    "gpu-2",
    "10.0.0.2",
    seen({"gpus": [divided(0)]}),
    {},
    held("d", "MIG-a") + held("e", "MIG-c"),
    [pod("d"), pod("e")],
)


def test_the_table_of_kubectl_inspect():
    assert inspection.usage_table([SHARED, MIG]) == (
        "NAME   IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  PENDING(Allocated)  GPU Memory(GiB)\n"
        "gpu-1  10.0.0.1   12/16                  0/16                   1                   12/32\n"
        "gpu-2  10.0.0.2   49/59                  0/0                    0                   49/59\n"
        "---------------------------------------------------------------------------------------------------\n"
        "Allocated/Total GPU Memory In Cluster:\n"
        "61/91 (67%)\n"
    )


def test_units_are_instances_and_replicas():
    lines = inspection.usage_table([SHARED, MIG], usage.UNITS).splitlines()
    assert lines[1].split() == ["gpu-1", "10.0.0.1", "3/4", "0/4", "1", "3/8"]
    assert lines[2].split() == ["gpu-2", "10.0.0.2", "2/3", "0/0", "0", "2/3"]
    assert lines[-1] == "5/11 (45%)"


def test_no_pending_column_when_nothing_is_pending_and_no_nodes_at_all():
    assert "PENDING" not in inspection.usage_table([MIG])
    assert inspection.usage_table([]).splitlines()[-1] == "0/0 (0%)"
    assert inspection.details([]) == ""


def test_details_name_every_pod():
    text = inspection.details([SHARED])
    assert [line.split() for line in text.splitlines() if line.startswith(("a ", "b "))] == [
        ["a", "jobs", "8", "0", "0"],
        ["b", "jobs", "4", "0", "0"],
    ]
    assert ["c", "jobs", "0", "0", "1"] in [line.split() for line in text.splitlines()], "it waits for its device"
    assert "Allocated :  12 (37%)" in text
    assert "Total :      32" in text
    assert "Pending :    nvidia.com/gpu: 1" in text


def test_without_a_cluster_processes_hold_the_gpus():
    facts = {"gpus": [whole(0, processes=[{"pid": 7, "name": "python3"}]), divided(1)]}
    facts["gpus"][1]["gpu_instances"][0]["compute_instances"][0]["processes"] = [{"pid": 8, "name": "train"}]
    users = usage.users_on_host(seen(facts))
    assert users == {"GPU-0": {"python3 (PID 7)": 1}, "MIG-a": {"train (PID 8)": 1}}
    found = usage.node_usage("n", "", seen(facts), {}, (), (), users)
    assert [gpu.taken(usage.UNITS) for gpu in found.gpus] == [1, 1]


def test_the_kubelets_record_on_the_host_comes_before_the_processes():
    facts = {
        "gpus": [whole(0, processes=[{"pid": 7, "name": "python3"}], allocations=[{"pod": "jobs/a"}] * 2), divided(1)]
    }
    assert usage.users_on_host(seen(facts)) == {"GPU-0": {"jobs/a": 2}}


def test_beside_a_cluster_a_process_holds_what_no_pod_was_given():
    facts = {"gpus": [whole(0, processes=[{"pid": 7, "name": "train"}]), whole(1, processes=[{"pid": 8, "name": "x"}])]}
    users = usage.users_on_host(seen(facts))
    found = usage.node_usage("n", "", seen(facts), {}, held("a", "GPU-0"), [pod("a")], users)
    assert found.titles == ["jobs/a", "x (PID 8)"]


def test_as_data():
    found = inspection.as_dict(MIG)
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
    many = usage.node_usage("gpu-<3>", "", seen({"gpus": [whole(0)]}), {"nvidia.com/gpu": 16}, (), ())
    bare = usage.node_usage("bare", "", seen({}), {}, (), ())
    reader = Reader()
    reader.feed(usage_page.page([SHARED, MIG, many, bare], "GPUs & pods", "today"))
    assert reader.open == []
    kinds = [rect["class"] for rect in reader.rects]
    assert kinds.count("none") == 2, "where nothing lies"
    assert kinds.count("taken") == 3 + 2
    assert kinds.count("free") == 1 + 4 + 1 + 16
    assert "gpu-<3> " in reader.texts
    assert any("jobs/d" in text for text in reader.texts)
    large = reader.rects[8 + 2 : 8 + 2 + 3]
    assert {rect["width"] for rect in large if rect["x"] == "361.0"} == {"358.0"}, "3g.40gb is the right half"


def test_a_partly_taken_instance_is_shown_so():
    node = usage.node_usage(
        "n", "", seen({"gpus": [divided(0)]}), {"nvidia.com/mig-3g.40gb": 2}, held("d", "MIG-a", "0"), [pod("d")]
    )
    assert 'class="part"' in usage_page.page([node], "t", "w")


def test_a_gpu_that_fell_off_the_bus_is_named_and_counts_nothing():
    lost = {"index": 1, "lost": True, "uuid": None, "name": None, "memory_mib": None, "mig": None}
    node = usage.node_usage("n", "", seen({"gpus": [whole(0), lost]}), {}, (), ())
    assert node.total(usage.MEMORY) == 16384
    assert inspection.remarks([node], (), {}) == "n: GPU 1 cannot be reached: it fell off the bus.\n"
    assert "None" not in usage_page.page([node], "t", "w")


def test_slices_of_an_mps_daemon_of_the_host_have_the_size_that_was_asked_for():
    replicas, gpu = {"nvidia.com/gpu": 11}, whole(0, 46068)
    node = usage.node_usage(
        "n", "", seen({"gpus": [gpu]}), replicas, held("a", "GPU-0", "0", "1"), [pod("a")], None, 4096
    )
    assert (node.taken(usage.MEMORY), node.total(usage.MEMORY)) == (8192, 46068)
    assert "4 GiB" in usage_page.page([node], "t", "w")


def test_hami_says_on_the_pod_which_gpu_it_has_and_how_much_of_it():
    given = {"hami.io/vgpu-devices-allocated": "GPU-0,NVIDIA,4096,30:GPU-1,NVIDIA,4096,30:;GPU-0,NVIDIA,1024,0:;"}
    pods = [pod("a", {"nvidia.com/gpu": "3", "nvidia.com/gpumem": "4096"}, annotations=given)]
    # The kubelet believes that it gave other devices.
    there = ("n", "", seen({"gpus": [whole(0), whole(1)]}), {"nvidia.com/gpu": 10}, held("a", "GPU-1", "3"), pods)
    node = usage.node_usage(*there, hami=True)
    assert [gpu.taken(usage.MEMORY) for gpu in node.gpus] == [5120, 4096]
    assert [gpu.taken(usage.UNITS) for gpu in node.gpus] == [2, 1]
    assert not node.waiting
    assert ["a", "jobs", "5", "4"] in [line.split() for line in inspection.details([node]).splitlines()]
    assert "2 of 10 slices, 5 GiB" in usage_page.page([node], "t", "w")
    elsewhere = usage.node_usage(*there)
    assert [gpu.taken(usage.UNITS) for gpu in elsewhere.gpus] == [0, 1], "where HAMi does not run, nothing is believed"


def test_pods_on_no_node_are_listed_with_what_they_ask_for():
    waiting = usage.unplaced(
        [
            pod("z", {"nvidia.com/mig-1g.10gb": "1", "nvidia.com/gpumem": "4096"}, "Pending"),
            pod("claims", None, "Pending", resourceClaims=[{"name": "gpu"}]),
            pod("web", None, "Pending"),
            pod("ended", {"nvidia.com/gpu": "1"}, "Failed"),
        ]
    )
    assert [item.name for item in waiting] == ["claims", "z"]
    text = inspection.remarks([MIG], waiting, {"other": {"nvidia.com/gpu": 8}})
    assert text == (
        "Pending Pods On No Node (2):\n"
        "NAME    NAMESPACE  ASKS FOR\n"
        "claims  jobs       a resource claim\n"
        "z       jobs       nvidia.com/mig-1g.10gb: 1\n"
        "other: a node of the cluster that is not in the inventory, with nvidia.com/gpu: 8.\n"
    )
    assert inspection.totals([SHARED, MIG], waiting)["pending"] == {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 1}
    assert inspection.remarks([MIG], (), {}) == ""
    page = usage_page.page([MIG], "t", "w", waiting, ["<other>"])
    assert "Pods that wait for GPUs and are on no node: 2" in page and "&lt;other&gt;" in page


def test_a_board_with_fewer_or_more_memory_slices_is_drawn_with_those():
    for board, slices in (("a30-24gb", 4), ("rtx-pro-6000-96gb", 12), ("h100-80gb-sxm", 8)):
        node = usage.node_usage(
            "n", "", seen({"gpus": [{**divided(0), "board": board, "gpu_instances": []}]}), {}, (), ()
        )
        assert (node.gpus[0].slices, node.gpus[0].undivided) == (slices, slices)
        assert usage_page.page([node], "t", "w").count('class="none"') == slices
    assert MIG.gpus[0].undivided == 2


def test_compute_instances_lie_beside_each_other_and_share_the_memory_of_their_instance():
    gpu = divided(0)
    parts = [{"uuid": f"MIG-{number}", "profile": "1c.3g.40gb"} for number in range(3)]
    gpu["gpu_instances"] = [{**gpu["gpu_instances"][0], "compute_instances": parts}]
    node = usage.node_usage("n", "", seen({"gpus": [gpu]}), {}, (), ())
    assert node.total(usage.MEMORY) == 40448 // 3 * 3
    assert node.gpus[0].undivided == 4
    reader = Reader()
    reader.feed(usage_page.page([node], "t", "w"))
    places = [float(rect["x"]) for rect in reader.rects if rect["class"] == "free"]
    assert places == [361.0, 481.0, 601.0]


def test_several_processes_of_a_whole_gpu_are_all_named():
    facts = {"gpus": [whole(0, processes=[{"pid": 7, "name": "/usr/bin/python3"}, {"pid": 8, "name": "train"}])]}
    node = usage.node_usage("n", "", seen(facts), {}, (), (), usage.users_on_host(seen(facts)))
    page = usage_page.page([node], "t", "w", users="processes")
    assert "16 GiB: /usr/bin/python3 (PID 7), train (PID 8)" in page
    assert "given to processes" in page
    assert inspection.parted("/usr/bin/python3 (PID 7)") == ("", "/usr/bin/python3 (PID 7)")
    assert inspection.parted("jobs/a") == ("jobs", "a")


def test_the_page_asks_the_network_for_nothing():
    page = usage_page.page([SHARED, MIG], "t", "w")
    assert not [word for word in ("http", "src=", "href=", "url(", "@import", "<script") if word in page]


def test_names_are_shortened_in_their_middle_and_whole_in_the_hint():
    node = usage.node_usage(
        "n", "", seen({"gpus": [divided(0)]}), {}, held("training-run-5", "MIG-b"), [pod("training-run-5")]
    )
    page = usage_page.page([node], "t", "w")
    assert "<title>1g.10gb 9.6 GiB: jobs/training-run-5</title>" in page
    assert ">traini…run-5<" in page
