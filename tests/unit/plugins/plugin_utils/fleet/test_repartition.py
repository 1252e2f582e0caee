# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.devices import (
    Holding,
    gone_devices,
    holdings,
    in_use,
    repartition,
)
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.pods import read


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


def report(*gone):
    """Return the result of the module mig in check mode, with a step for each list of UUIDs that go."""
    return {"steps": [{"kind": "some_step", "data": {"gone": list(uuids)} if uuids else {}} for uuids in gone]}


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


def test_what_goes_is_named_once():
    assert gone_devices(report(("MIG-a", "MIG-b"), (), ("GPU-0", "MIG-a"))) == ("MIG-a", "MIG-b", "GPU-0")
    assert gone_devices(report()) == ()
    # A result of another release, read as one in which nothing goes, would leave every pod where it is.
    with pytest.raises(Refused, match="mig_plan: it has no steps"):
        gone_devices({"plan": report()})


def test_only_pods_on_what_goes_leave():
    found = repartition(
        ["MIG-c"],
        holdings(checkpoint(("small", {"0": ["MIG-c"]}), ("large", {"0": ["MIG-a"]}))),
        [pod("small"), pod("large"), pod("web")],
    )
    assert [item.name for item in found.leave] == ["small"]
    assert [item.name for item in found.stay] == ["large"]
    assert found.text() == "devices deleted: 1; evicted: jobs/small; untouched: jobs/large"


def test_a_pod_that_holds_something_that_goes_and_something_that_stays_leaves():
    found = repartition(
        ["MIG-c"],
        holdings(checkpoint(("both", {"0": ["MIG-c", "MIG-a"]}))),
        [pod("both")],
    )
    assert [item.name for item in found.leave] == ["both"]
    assert found.stay == ()
    assert repartition((), (), ()).text() == "no device is deleted; untouched: none"
