# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._fleet.devices import Holding, holdings, in_use
from ansible_collections.gpufleet.nvidia.plugins.module_utils._fleet.pods import read
from ansible_collections.gpufleet.nvidia.plugins.module_utils._fleet.repartition import gone_devices, repartition
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused

GPU0 = "GPU 0 (0000:18:00.0)"


def checkpoint(*entries):
    listed = [
        {
            "PodUID": uid,
            "ContainerName": "c",
            "ResourceName": "nvidia.com/mig-1g.10gb",
            "DeviceIDs": ids,
            "AllocResp": "",
        }
        for uid, ids in entries
    ]
    return json.dumps({"Data": {"PodDeviceEntries": listed, "RegisteredDevices": {}}, "Checksum": 1})


def pod(name):
    metadata = {
        "namespace": "jobs",
        "name": name,
        "uid": name,
        "ownerReferences": [{"kind": "Job", "controller": True}],
    }
    return read({"metadata": metadata, "spec": {"containers": []}, "status": {"phase": "Running"}})


def instance(number, profile, start, size, *uuids):
    parts = [{"id": index, "profile": profile, "uuid": uuid} for index, uuid in enumerate(uuids)]
    return {"id": number, "profile": profile, "start": start, "size": size, "compute_instances": parts}


def report(*steps):
    before = [
        {
            "index": 0,
            "uuid": "GPU-0",
            "pci_address": "0000:18:00.0",
            "instances": [instance(1, "3g.40gb", 4, 4, "MIG-a", "MIG-b"), instance(9, "1g.10gb", 0, 1, "MIG-c")],
        },
        {"index": 1, "uuid": "GPU-1", "pci_address": None, "instances": []},
    ]
    return {"before": before, "plan": {"steps": [{"action": a, "target": t, "data": d} for a, t, d in steps]}}


def test_devices_are_read_by_numa_node_and_as_the_old_list():
    text = checkpoint(("p1", {"0": ["MIG-a"], "1": ["MIG-b::3"]}), ("p2", ["GPU-1::0", "GPU-1::1"]), ("p3", None))
    resource = "nvidia.com/mig-1g.10gb"
    assert holdings(text) == (
        Holding("p1", "c", resource, "MIG-a"),
        Holding("p1", "c", resource, "MIG-b", "3"),
        Holding("p2", "c", resource, "GPU-1", "0"),
        Holding("p2", "c", resource, "GPU-1", "1"),
    )


def test_pods_that_are_gone_hold_nothing():
    text = checkpoint(("p1", {"0": ["MIG-a"]}), ("gone", {"0": ["MIG-a", "MIG-b"]}))
    assert in_use(holdings(text), ["p1"]) == {"MIG-a": ("p1",)}


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"Data": {"PodDeviceEntries": [1]}}', '{"Data": null}'])
def test_a_checkpoint_that_is_none_is_refused(text):
    with pytest.raises(Refused, match="not what a kubelet writes"):
        holdings(text)


def test_an_empty_checkpoint_is_one():
    assert holdings('{"Data": {"PodDeviceEntries": null, "RegisteredDevices": {}}, "Checksum": 0}') == ()


@pytest.mark.parametrize(
    ("steps", "gone"),
    [
        ((), ()),
        ((("destroy GPU instance", f"{GPU0}: 1g.10gb at 0:1 (id 9)", {}),), ("MIG-c",)),
        (
            (("destroy compute instance", f"{GPU0}: 3g.40gb at 4:4 (id 1): 1c.3g.40gb", {"compute_instance": 1}),),
            ("MIG-b",),
        ),
        ((("disable MIG", GPU0, {}),), ("GPU-0", "MIG-a", "MIG-b", "MIG-c")),
        ((("enable MIG", "GPU 1", {}),), ("GPU-1",)),
        ((("create GPU instance", f"{GPU0}: 1g.10gb at 1:1", {}),), ()),
    ],
)
def test_what_goes(steps, gone):
    assert gone_devices(report(*steps)) == gone


def test_only_pods_on_what_goes_leave():
    found = repartition(
        report(("destroy GPU instance", f"{GPU0}: 1g.10gb at 0:1 (id 9)", {})),
        holdings(checkpoint(("small", {"0": ["MIG-c"]}), ("large", {"0": ["MIG-a"]}))),
        [pod("small"), pod("large"), pod("web")],
    )
    assert [item.name for item in found.leave] == ["small"]
    assert [item.name for item in found.stay] == ["large"]
    assert found.text() == "1 devices go; evicted: jobs/small; untouched: jobs/large"


def test_a_pod_that_holds_something_that_goes_and_something_that_stays_leaves():
    found = repartition(
        report(("destroy GPU instance", f"{GPU0}: 1g.10gb at 0:1 (id 9)", {})),
        holdings(checkpoint(("both", {"0": ["MIG-c", "MIG-a"]}))),
        [pod("both")],
    )
    assert [item.name for item in found.leave] == ["both"]
    assert found.stay == ()
    assert repartition(report(), (), ()).text() == "no device goes; untouched: none"
