# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.claims import counts, holdings
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.claims import published as published_by
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.devices import Holding


def gpu(name="gpu-0", uuid="GPU-0"):
    return {"name": name, "attributes": {"type": {"string": "gpu"}, "uuid": {"string": uuid}}}


def mig(name, uuid, profile="1g.10gb"):
    attributes = {"type": {"string": "mig"}, "uuid": {"string": uuid}, "profile": {"string": profile}}
    return {"name": name, "attributes": attributes}


NODES = {name: {"metadata": {"name": name, "uid": f"uid-{name}"}} for name in ("n1", "n2")}


def published(slices):
    return published_by(slices, NODES)


def resource_slice(*devices, node="n1", generation=1, driver="gpu.nvidia.com", pool=None, owner=None):
    owned = {"ownerReferences": [{"kind": "Node", "name": node, "uid": owner or f"uid-{node}"}]}
    where = {"name": pool or node, "generation": generation, "resourceSliceCount": 1}
    return {"metadata": owned, "spec": {"driver": driver, "nodeName": node, "pool": where, "devices": list(devices)}}


def claim(*results, users=("uid-a",), node=None):
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    where = {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]}} if node else {}
    reserved = [{"resource": "pods", "name": uid, "uid": uid} for uid in users]
    return {"status": {"reservedFor": reserved, "allocation": {"devices": {"results": list(results)}, **where}}}


def result(device, pool="n1", driver="gpu.nvidia.com", **more):
    return {"driver": driver, "pool": pool, "device": device, "request": "device", **more}


def test_gpus_and_mig_devices_are_counted_by_what_claims_ask_for():
    slices = [
        resource_slice(gpu(), mig("mig-a", "MIG-a"), mig("mig-b", "MIG-b"), mig("mig-c", "MIG-c", "3g.40gb")),
        resource_slice(gpu(), gpu("gpu-1", "GPU-1"), node="n2"),
    ]
    found = published(slices)
    assert counts(found["n1"]) == {"gpu.nvidia.com": 1, "mig.nvidia.com/1g.10gb": 2, "mig.nvidia.com/3g.40gb": 1}
    assert counts(found["n2"]) == {"gpu.nvidia.com": 2}


def test_several_slices_of_a_pool_add_up_and_older_generations_do_not_count():
    slices = [
        resource_slice(gpu("gpu-7"), generation=1),
        resource_slice(gpu(), generation=2),
        resource_slice(gpu("gpu-1"), generation=2),
    ]
    assert [device.name for device in published(slices)["n1"]] == ["gpu-0", "gpu-1"]


@pytest.mark.parametrize(
    "other",
    [
        resource_slice(gpu(), driver="compute-domain.nvidia.com"),
        resource_slice({"name": "gpu-vfio-0", "attributes": {"type": {"string": "vfio"}}}),
        resource_slice({"name": "nic"}, driver="nic.example.com"),
        {},
    ],
)
def test_other_drivers_and_kinds_are_no_gpus(other):
    assert published([other]) == {}


def test_a_pod_holds_what_its_claim_was_allocated():
    devices = published([resource_slice(gpu(), mig("mig-a", "MIG-a"))])
    found = holdings([claim(result("gpu-0")), claim(result("mig-a"), users=("uid-b", "uid-c"))], devices)
    assert found == {
        "n1": (
            Holding("uid-a", "", "gpu.nvidia.com", "GPU-0"),
            Holding("uid-b", "", "mig.nvidia.com/1g.10gb", "MIG-a"),
            Holding("uid-c", "", "mig.nvidia.com/1g.10gb", "MIG-a"),
        )
    }


def test_a_claim_for_memory_holds_that_much_of_the_gpu():
    devices = published([resource_slice(gpu())])
    (holding,) = holdings([claim(result("gpu-0", consumedCapacity={"memory": "30Gi"}))], devices)["n1"]
    assert holding.memory_mib == 30 * 1024


@pytest.mark.parametrize(
    "nothing",
    [
        claim(result("gpu-0"), users=()),
        claim(result("gpu-0", driver="nic.example.com")),
        claim(result("gpu-0", pool="n9")),
        claim(result("gpu-0", adminAccess=True)),
        {"status": {}},
        {},
    ],
)
def test_what_nobody_holds_yet_or_what_is_no_gpu_of_ours_is_not_held(nothing):
    assert holdings([nothing], published([resource_slice(gpu())])) == {}


def test_a_pool_that_another_node_calls_its_own_hides_no_device_and_takes_no_claim():
    """What decides is the node that owns the slice; the name of its pool is anybody's."""
    real = resource_slice(gpu(), mig("mig-a", "MIG-a"))
    foreign = resource_slice(gpu("gpu-0", "GPU-forged"), node="n2", pool="n1", generation=9)
    assert published([real, foreign])["n1"] == published([real])["n1"]
    devices = published([real, foreign])
    assert holdings([claim(result("mig-a"))], devices) == holdings([claim(result("mig-a"))], published([real]))
    assert holdings([claim(result("gpu-0"), node="n1")], devices) == holdings(
        [claim(result("gpu-0"))], published([real])
    )
    assert holdings([claim(result("gpu-0"))], devices) == {}, "of which node is not said"


@pytest.mark.parametrize(
    "nobodys",
    [
        resource_slice(gpu("forged"), generation=9, owner="uid-n2"),
        resource_slice(gpu("forged"), node="n3"),
        {**resource_slice(gpu("forged"), generation=9), "metadata": {}},
        {
            **resource_slice(gpu("forged"), generation=9),
            "metadata": {"ownerReferences": [{"kind": "Pod", "name": "n1"}]},
        },
    ],
)
def test_a_slice_that_its_node_does_not_own_is_nobodys(nobodys):
    real = resource_slice(gpu())
    assert published([real, nobodys]) == published([real])
