# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import usage
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.pods import evictions as evictions_of
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.pods import read, requested
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.whole import examples

SETS = frozenset({("jobs", "uid-of-DaemonSet")})
MIG = "nvidia.com/mig-1g.10gb"


def pod(name="work", *, owner="ReplicaSet", limits=None, phase="Running", **spec):
    container = {"name": "work", "resources": {"limits": {"nvidia.com/gpu": "1"} if limits is None else limits}}
    owners = [{"kind": owner, "uid": f"uid-of-{owner}", "controller": True}] if owner else [{"kind": "Thing"}]
    metadata = {"namespace": "jobs", "name": name, "uid": f"uid-{name}", "ownerReferences": owners}
    metadata.update(spec.pop("metadata", {}))
    return read({"metadata": metadata, "spec": {"containers": [container], **spec}, "status": {"phase": phase}})


def evictions(pods, **how):
    return evictions_of(pods, daemon_sets=SETS, **how)


@pytest.mark.parametrize(
    ("limits", "resources"),
    [
        ({"nvidia.com/gpu": "2", "cpu": "500m"}, {"nvidia.com/gpu": 2}),
        ({MIG: "1"}, {MIG: 1}),
        ({"nvidia.com/gpu.shared": "3"}, {"nvidia.com/gpu.shared": 3}),
        ({"cpu": "1"}, {}),
        ({"nvidia.com/other": "1"}, {}),
        # As the API server writes 8000, and as people do; none is asked for by 0.
        ({"nvidia.com/gpu": "8k"}, {"nvidia.com/gpu": 8000}),
        ({"nvidia.com/gpu": "1e3"}, {"nvidia.com/gpu": 1000}),
        ({"nvidia.com/gpu": "0"}, {}),
    ],
)
def test_what_a_pod_asks_for(limits, resources):
    assert pod(limits=limits).resources == resources
    assert pod(limits=limits).uses_gpu == bool(resources)


def test_init_containers_run_beside_sidecars_and_before_the_others():
    spec = {
        "containers": [{"resources": {"limits": {MIG: "1"}}}, {"resources": {"requests": {MIG: "1"}}}],
        "initContainers": [
            {"restartPolicy": "Always", "resources": {"limits": {MIG: "1"}}},
            {"resources": {"limits": {MIG: "4"}}},
        ],
    }
    assert requested(spec) == {MIG: 5}


def test_only_gpu_pods_leave_and_daemon_sets_stay():
    pods = [
        pod("a"),
        pod("web", limits={}),
        pod("ended", phase="Succeeded"),
        pod("plugin", owner="DaemonSet"),
        pod("dra", limits={}, resourceClaims=[{"name": "gpu"}]),
    ]
    found = evictions(pods)
    assert [item.name for item in found.evict] == ["a", "dra"]
    assert [item.title for item in found.stay] == ["jobs/plugin"]
    assert not found.blockers


def test_a_pod_that_holds_a_gpu_without_asking_for_one_is_a_gpu_pod():
    pods = [pod("a", limits={}), pod("monitor", limits={}), pod("exporter", limits={}, owner="DaemonSet")]
    found = evictions(pods, holders=["uid-monitor", "uid-exporter", "uid-of-another-node"])
    assert [item.name for item in found.evict] == ["monitor"]
    assert [item.name for item in found.stay] == ["exporter"]


def test_a_drain_empties_the_node_of_all_but_what_cannot_leave():
    empty = [{"name": "cache", "emptyDir": {}}]
    static = {"annotations": {"kubernetes.io/config.mirror": "x"}}
    pods = [
        pod("a"),
        pod("web", limits={}),
        pod("ended", phase="Failed", limits={}),
        pod("network", owner="DaemonSet", limits={}, volumes=empty),
        pod("static", owner="Node", metadata=static),
    ]
    found = evictions(pods, every=True)
    assert [item.name for item in found.evict] == ["a", "web"]
    assert [item.name for item in found.stay] == ["network", "static"]
    assert not found.blockers
    alone = [*pods, pod("alone", owner=None, limits={}), pod("data", limits={}, volumes=empty)]
    assert list(evictions(alone, every=True).blockers) == ["jobs/alone", "jobs/data"]
    assert not evictions(alone, every=True, force=True, delete_empty_dir=True).blockers


@pytest.mark.parametrize("every", [True, False])
def test_a_daemon_set_that_there_is_not_keeps_no_pod_on_the_node(every):
    made_up = {"ownerReferences": [{"kind": "DaemonSet", "uid": "made-up", "controller": True}]}
    found = evictions([pod("stowaway", metadata=made_up)], every=every)
    assert (
        found.stay == ()
        and "its owner is a DaemonSet that the cluster does not have" in found.blockers["jobs/stowaway"]
    )
    forced = evictions([pod("stowaway", metadata=made_up)], every=every, force=True)
    assert [item.name for item in forced.evict] == ["stowaway"] and not forced.blockers


def test_one_pod_that_must_stay_is_enough_to_touch_none():
    empty = [{"name": "cache", "emptyDir": {}}]
    static = {"annotations": {"kubernetes.io/config.mirror": "x"}}
    pods = [
        pod("a"),
        pod("alone", owner=None),
        pod("data", volumes=empty),
        pod("static", owner="Node", metadata=static),
        # Whoever makes a pod can write the annotation.
        pod("said-to-be-static", metadata=static),
    ]
    assert evictions(pods).blockers == {
        "jobs/alone": "it has no controller, so nothing would recreate it",
        "jobs/data": "the data in its emptyDir volume cache would be lost",
        "jobs/static": "it is a static pod of the kubelet, which the API cannot evict",
    }
    allowed = evictions(pods, force=True, delete_empty_dir=True)
    assert list(allowed.blockers) == ["jobs/static"]


def test_a_pod_that_is_ending_already_is_waited_for_and_blocks_nothing():
    found = evictions([pod("alone", owner=None, metadata={"deletionTimestamp": "now"})])
    assert [item.name for item in found.evict] == ["alone"]
    assert not found.blockers


def test_with_uids_only_those_leave_whatever_they_asked_for():
    found = evictions([pod("a"), pod("b", limits={})], uids=["uid-b"])
    assert [item.name for item in found.evict] == ["b"]


HAMI = "hami.io/vgpu-devices-allocated"


@pytest.mark.parametrize(
    ("text", "given_devices"),
    [
        ("GPU-1,NVIDIA,4096,30:;", (("GPU-1", 4096),)),
        ("GPU-1,NVIDIA,\u00b2,1:;", ()),
        ("GPU-1,NVIDIA,\u0664,1:;GPU-2,NVIDIA,1024,0:;", (("GPU-2", 1024),)),
        (f"GPU-1,NVIDIA,{'9' * 5000},1:;", ()),
        ("GPU-1,NVIDIA,99999999,1:;GPU-1,NVIDIA,-1,1:;GPU-1,NVIDIA,1.5,1:;GPU-1,NVIDIA,,1:;", ()),
        ("GPU-1,MLU,4096,30:;", ()),
        # No more devices than the pod asks for.
        ("GPU-1,NVIDIA,1,1:;" * 10_000, (("GPU-1", 1),)),
    ],
)
def test_what_an_annotation_of_hami_says(text, given_devices):
    assert pod(metadata={"annotations": {HAMI: text}}).hami == given_devices


_FIELDS = st.one_of(
    st.sampled_from(["GPU-0", "GPU-1", "NVIDIA", "4096", "\u00b2", "-1", "9" * 5000]), st.text(max_size=8)
)
_ANNOTATIONS = st.one_of(
    st.text(), st.lists(st.one_of(_FIELDS, st.sampled_from([",", ":", ";"])), max_size=20).map("".join)
)


def _harms_no_other(annotation, other):
    gpus = [{"index": i, "uuid": f"GPU-{i}", "memory_mib": 81920, "mig": {"current": False}} for i in range(2)]
    honest = pod("honest", metadata={"annotations": {HAMI: "GPU-0,NVIDIA,4096,30:;"}})
    hostile = pod("hostile", metadata={"annotations": {HAMI: annotation, other[:60]: other}})
    assert evictions([honest, hostile]).evict == (honest, hostile)
    node = usage.node_usage("n", "", seen({"gpus": gpus}), {"nvidia.com/gpu": 10}, (), [honest, hostile], hami=True)
    assert node.gpus[0].shares[0].held_mib["jobs/honest"] == 4096


@given(_ANNOTATIONS, st.text())
def test_no_annotation_of_a_pod_fails_a_run_or_changes_what_another_has(annotation, other):
    _harms_no_other(annotation, other)


@pytest.mark.slow
def test_no_annotation_of_10000_does():
    settings(max_examples=examples(10_000), deadline=None)(given(_ANNOTATIONS, st.text())(_harms_no_other))()
