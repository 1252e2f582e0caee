# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Objects that tenants make, whatever is in them: no reader fails, and none says something else of the cluster's own and of other tenants."""

from __future__ import annotations

import datetime
import json

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import Cluster
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster_lease import Holder, may_take
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import (
    claims,
    clients,
    objects,
    plan,
    plugin_pod,
    pods,
    repair,
    served,
    usage,
)
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.adopt_cluster import Objects
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.expectations import Expected
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.upgrade import is_ready
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render import team_quotas

from ...mutation import examples_of, mutated, property_of, shown

OWN = objects.own_namespaces({})
GPUS = [{"index": i, "uuid": f"GPU-{i}", "memory_mib": 81920, "mig": {"current": False}} for i in range(2)]
FACTS = {"toolkit": {"accept_envvar_unprivileged": False, "accept_volume_mounts": False}}
NOT_PAUSED = {"matchExpressions": [{"key": clients.LABEL, "operator": "NotIn", "values": [clients.PAUSED]}]}
MOVED = {"matchExpressions": [{"key": served.MIGRATED_LABEL, "operator": "In", "values": [served.DRA]}]}
HAMI = "hami.io/vgpu-devices-allocated"


def plugin_spec(*terms, strategy="cdi-cri"):
    """The specification of the device plugin's pods, which a tenant can write, too."""
    container = {
        "name": "nvidia-device-plugin-ctr",
        "command": ["nvidia-device-plugin"],
        "env": [{"name": "DEVICE_LIST_STRATEGY", "value": strategy}, {"name": "MPS_ROOT", "value": "/run/nvidia/mps"}],
        "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}},
        "volumeMounts": [{"mountPath": "/var/lib/kubelet/device-plugins"}],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*terms]}}
    return {
        "nodeName": "n1",
        "runtimeClassName": "nvidia",
        "nodeSelector": {"pool": "a"},
        "affinity": {"nodeAffinity": required},
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": "config"}}],
    }


def metadata(namespace, name, owner=None):
    owners = [{"kind": owner or "ReplicaSet", "name": "x", "uid": f"uid-of-{owner}", "controller": True}]
    return {
        "namespace": namespace,
        "name": name,
        "uid": f"uid-{namespace}-{name}",
        "ownerReferences": owners,
        "annotations": {HAMI: "GPU-0,NVIDIA,4096,30:;", "kubernetes.io/config.mirror": "x"},
    }


def pod(namespace, name, owner=None, **of_plugin):
    ready = [{"type": "Ready", "status": "True"}]
    status = {"phase": "Running", "conditions": ready}
    return {"metadata": metadata(namespace, name, owner), "spec": plugin_spec(**of_plugin), "status": status}


def daemon_set(namespace, name, uid, *terms):
    about = {**metadata(namespace, name), "uid": uid}
    return {"metadata": about, "spec": {"template": {"metadata": {}, "spec": plugin_spec(*terms)}}}


def resource_slice(node, pool, generation, *names):
    devices = [{"name": name, "attributes": {"type": {"string": "gpu"}, "uuid": {"string": name}}} for name in names]
    spec = {"driver": "gpu.nvidia.com", "nodeName": node, "pool": {"name": pool, "generation": generation}}
    owners = [{"kind": "Node", "name": node, "uid": f"uid-{node}"}]
    return {"metadata": {"name": f"{node}-{pool}", "ownerReferences": owners}, "spec": {**spec, "devices": devices}}


def claim(node, pool, device, uid):
    results = [{"driver": "gpu.nvidia.com", "pool": pool, "device": device, "consumedCapacity": {"memory": "4Gi"}}]
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    where = {"nodeSelectorTerms": [{"matchFields": fields}]}
    users = [{"resource": "pods", "name": "p", "uid": uid}]
    return {"status": {"reservedFor": users, "allocation": {"devices": {"results": results}, "nodeSelector": where}}}


def node(name, address):
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {"pool": "a"}, "annotations": {}},
        "spec": {"unschedulable": False},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": address}],
            "allocatable": {"nvidia.com/gpu": "2"},
            "nodeInfo": {"kubeletVersion": "v1.34.4"},
        },
    }


NODES = {name: node(name, f"10.0.0.{number}") for number, name in enumerate(("n1", "n2"), 1)}
LABELS = {"pool": "a"}
PLUGIN, DRIVER = "uid-of-DaemonSet", "uid-of-the-driver"
OF_CLUSTER = [
    daemon_set("nvidia-gpu", "plugin", PLUGIN, NOT_PAUSED),
    daemon_set("nvidia-gpu", "driver", DRIVER, MOVED),
]
HONEST = [pod("jobs", "honest"), pod("nvidia-gpu", "plugin-x", "DaemonSet")]


def said_of_pods(documents):
    """Everything that is said of other pods, beside those of a tenant."""
    there = objects.taken(documents, objects.POD)
    mine = [one for one in there if objects.metadata(one).get("namespace") in ("jobs", *OWN)]
    sets = objects.identities(OF_CLUSTER)
    every = [pods.read(one) for one in there]
    plans = [pods.evictions(every, daemon_sets=sets, every=kind, holders=["uid-jobs-honest"]) for kind in (True, False)]
    view = plan.node_view("n1", NODES["n1"], there, sets, Expected({"nvidia.com/gpu": 2}, {}))
    used = [
        usage.node_usage("n1", "", view_of({"gpus": GPUS}), {"nvidia.com/gpu": 10}, (), every, hami=hami)
        for hami in (True, False)
    ]
    shown(repr((view, used, [one.blockers for one in plans])))
    own = objects.own(there, OWN)
    return {
        "evicted": [[one for one in found.evict if one.namespace == "jobs"] for found in plans],
        "stays": [[one for one in found.stay if one.namespace == "nvidia-gpu"] for found in plans],
        "blocked": [found.blockers.get("jobs/honest") for found in plans],
        "view": ("jobs/honest" in view.pods, view.differs, view.unavailable),
        "held": [share.held_mib.get("jobs/honest") for gpu in used[0].gpus for share in gpu.shares],
        "plugin": plugin_pod.check(own, view_of(FACTS)),
        "mps": plugin_pod.mps_check(own, ["nvidia.com/gpu"], []),
        "replaced": clients.not_replaced([pod("nvidia-gpu", "old", "DaemonSet")], own),
        "of the plugin": [clients.title(one) for one in own if clients.owner(one) == PLUGIN],
        "left": served.not_left(OF_CLUSTER, own, [], {"n1": NODES["n1"]}, LABELS, served.DRA),
        "of mine": [pods.read(one) for one in mine],
    }


def said_of_daemon_sets(documents):
    there = objects.taken(documents, objects.DAEMON_SET)
    own = objects.own(there, OWN)
    adopted = Objects([*NODES.values()], daemon_sets=there, config_maps={})
    shown(json.dumps(adopted.strangers))
    return {
        "clients": clients.moved(own, LABELS),
        "unready": [served.unready(own, LABELS, server) for server in (served.PLUGIN, served.DRA)],
        "adopted": (adopted.variables(), adopted.wanted_config_maps(), adopted.served(NODES["n1"])),
        "stays": [one for one in map(pods.read, HONEST) if one.of_daemon_set(objects.identities(there))],
    }


def said_of_slices(documents):
    there = objects.taken(documents, objects.RESOURCE_SLICE)
    found = claims.published(there, NODES)
    held = claims.holdings([claim("n1", "n1", "gpu-0", "uid-jobs-honest")], found)
    left = served.not_left(OF_CLUSTER, [], there, {"n1": NODES["n1"]}, LABELS, served.PLUGIN)
    return {"published": found.get("n1"), "counts": claims.counts(found["n1"]), "held": held.get("n1"), "left": left}


def said_of_nodes(documents):
    """What is said of one node beside those whose kubelets say what they like."""
    api = Cluster.__new__(Cluster)
    api.call = lambda *_arguments, **_query: {"items": documents}
    there = api.nodes()
    for name, one in there.items():
        view = plan.node_view(name, one, (), frozenset(), Expected({"nvidia.com/gpu": 2}, {"pool": "a"}), {})
        shown(repr((view, is_ready(one), served.left_over(one), repair.condition_of(one, "GpusHealthy"))))
    adopted = Objects([*there.values()], config_maps={})
    shown(repr(adopted.variables()))
    mine = there["n1"]
    found = adopted.node_named("host-1", "10.0.0.1")
    assert found is None or found is mine, "a host is not taken for another's node"
    return {
        "view": plan.node_view("n1", mine, (), frozenset(), Expected({"nvidia.com/gpu": 2}, {"pool": "a"})),
        "ready": is_ready(mine),
        "adopted": (adopted.node_named("n1", "host-1") is mine, adopted.served(mine)),
        "published": claims.published([resource_slice("n1", "n1", 1, "gpu-0")], there)["n1"],
    }


def said_of_claims(documents):
    there = objects.taken(documents, objects.RESOURCE_CLAIM)
    published = claims.published([resource_slice("n1", "n1", 1, "gpu-0", "gpu-1")], NODES)
    held = claims.holdings(there, published).get("n1", ())
    return [one for one in held if one.pod_uid == "uid-jobs-honest" and one.device == "gpu-0"][:1]


#: By reader: honest objects, one that a tenant makes to be taken for something else, and what is said of the honest ones.
READERS = {
    "pods": (HONEST, pod("tenant", "hostile", "DaemonSet", strategy="envvar"), said_of_pods),
    "daemon sets": (
        OF_CLUSTER,
        daemon_set("tenant", "hostile", "uid-of-a-tenant", NOT_PAUSED),
        said_of_daemon_sets,
    ),
    "daemon sets that serve": (OF_CLUSTER[:1], daemon_set("tenant", "hostile", "uid", MOVED), said_of_daemon_sets),
    "slices": ([resource_slice("n1", "n1", 1, "gpu-0")], resource_slice("n2", "n1", 9, "gpu-0"), said_of_slices),
    "nodes": ([node("n1", "10.0.0.1")], node("n2", "10.0.0.1"), said_of_nodes),
    "claims": ([claim("n1", "n1", "gpu-0", "uid-jobs-honest")], claim("n2", "n1", "gpu-1", "uid"), said_of_claims),
}


@pytest.mark.parametrize("reader", READERS)
@examples_of()
def test_what_a_tenant_makes_changes_nothing_that_is_said_of_others(reader, examples):
    honest, hostile, said = READERS[reader]
    expected = said(honest)
    assert said([*honest, hostile]) == expected
    assert said([hostile, *honest]) == expected

    @property_of(mutated(hostile), examples)
    def check(document):
        assert said([*honest, document]) == expected
        assert said([document, *honest]) == expected


@examples_of()
def test_what_one_node_says_of_repairs_counts_for_no_other(examples):
    now = datetime.datetime.fromisoformat("2026-11-26T12:00:00+00:00")
    annotations = {
        repair.STATE: "done",
        repair.SINCE: "2026-11-26T11:30:00Z",
        "gpufleet.github.io/heal-failed-reason": "x",
    }
    node = {"metadata": {"annotations": annotations}}

    @property_of(mutated(annotations), examples)
    def check(values):
        texts = values if isinstance(values, dict) else {}
        hostile = {"metadata": {"annotations": {str(name): str(value) for name, value in texts.items()}}}
        found = repair.repaired_lately({"honest": node, "hostile": hostile}, (), now, 3600)
        assert "honest" in found and set(found) <= {"honest", "hostile"}


POLICY = {
    "metadata": {"name": "policy", "labels": {"helm.sh/chart": "gpu-operator-v26.7.0"}},
    "spec": {
        "driver": {"enabled": True, "useNvidiaDriverCRD": True, "version": "580.178.04"},
        "toolkit": {"enabled": False},
        "mig": {"strategy": "mixed"},
        "migManager": {"enabled": True},
        "operator": {"runtimeClass": "nvidia"},
        "devicePlugin": {"config": {"name": "config", "default": "four"}},
    },
    "status": {"state": "ready", "namespace": "gpu-operator"},
}
DRIVER_OBJECT = {"metadata": {"name": "driver"}, "spec": {"version": "580.178.04", "nodeSelector": {"pool": "a"}}}
SHARING = {
    "version": "v1",
    "flags": {"migStrategy": "mixed"},
    "sharing": {
        "timeSlicing": {
            "renameByDefault": True,
            "resources": [
                {"name": "nvidia.com/gpu", "replicas": 4},
                {"name": "nvidia.com/mig-1g.10gb", "replicas": 2, "devices": "all", "rename": "x"},
            ],
        },
    },
}


def adopted_of(policies, drivers, texts):
    """What C(adopt) makes of a GPU Operator's objects."""
    found = Objects(
        [NODES["n1"]],
        objects.taken(policies, objects.CLUSTER_POLICY),
        objects.taken(drivers, objects.NVIDIA_DRIVER),
        [daemon_set("nvidia-gpu", "plugin", PLUGIN, NOT_PAUSED)],
        {("gpu-operator", "config"): texts},
    )
    return found.variables(), found.served(NODES["n1"]), found.wanted_config_maps(), found.charts


@pytest.mark.parametrize("kind", ["policy", "driver", "configuration"])
@examples_of()
def test_what_an_operators_objects_say_is_adopted_or_not_taken(kind, examples):
    four = yaml.safe_dump(SHARING)
    said = adopted_of([POLICY], [DRIVER_OBJECT], {"four": four})
    assert said[1].sharing and "580.178.04" in said[1].notes[0]

    @property_of(mutated({"policy": POLICY, "driver": DRIVER_OBJECT, "configuration": SHARING}[kind]), examples)
    def check(document):
        given = {"policy": [POLICY], "driver": [DRIVER_OBJECT], "configuration": four}
        given[kind] = yaml.safe_dump(document) if kind == "configuration" else [document]
        variables, served_by, _wanted, _charts = adopted_of(
            given["policy"], given["driver"], {"four": given["configuration"]}
        )
        # All of it is written into the inventory and the report.
        assert json.loads(json.dumps([variables, dict(served_by.sharing), served_by.differences, served_by.notes]))
        assert kind != "driver" or served_by.sharing == said[1].sharing


LEASE = {
    "holderIdentity": "root@there/9-9",
    "leaseDurationSeconds": 60,
    "acquireTime": "2026-11-26T11:00:00.000000Z",
    "renewTime": "2026-11-26T11:59:50.000000Z",
}


@examples_of()
def test_a_lease_holds_a_run_up_for_a_bounded_time_whatever_is_in_it(examples):
    now = datetime.datetime(2026, 11, 26, 12, tzinfo=datetime.timezone.utc)
    me = Holder("root@here", "1-2-x")
    assert may_take({"spec": LEASE}, me, now, False)

    @property_of(mutated(LEASE), examples)
    def check(document):
        lease = {"spec": document if isinstance(document, dict) else {}}
        shown(may_take(lease, me, now, False) or "")
        assert may_take(lease, me, now, True) is None
        # A day is the longest, whatever it says.
        assert may_take(lease, me, now + datetime.timedelta(days=2), False) is None


def quota(kind, numbers):
    """A rendered object of a team, with a number of each resource."""
    metadata = {"name": "gpufleet-a", "resourceVersion": "1"}
    if kind == team_quotas.QUOTA:
        hard = {f"requests.{name}": str(number) for name, number in numbers.items()}
        return {"kind": kind, "metadata": {**metadata, "namespace": "a"}, "spec": {"hard": hard}}
    cells = [{"name": name, "nominalQuota": str(number)} for name, number in numbers.items()]
    group = {"coveredResources": [*numbers], "flavors": [{"name": "gpufleet-a", "resources": cells}]}
    return {"kind": kind, "metadata": metadata, "spec": {"resourceGroups": [group]}}


@pytest.mark.parametrize("kind", team_quotas.SHAPES)
@examples_of()
def test_a_quota_of_the_cluster_is_lowered_or_named_whatever_is_in_it(kind, examples):
    goal = quota(kind, {"nvidia.com/gpu": 4, "nvidia.com/mig-1g.10gb": 0})
    live = quota(kind, {"nvidia.com/gpu": 8})

    @property_of(mutated(live), examples)
    def check(document):
        for there in (None, {(flavor, name): (1, 2) for flavor in ("", "gpufleet-a") for name in ("nvidia.com/gpu",)}):
            try:
                found, _notes = team_quotas.changes("the file", [goal], {kind: [document]}, there)
            except Refused as refusal:
                shown(str(refusal))
                continue
            assert json.loads(json.dumps([spec for _kind, _one, spec, _text in found])) is not None


SHAPES = {
    "pod": objects.POD,
    "node": objects.NODE,
    "policy": objects.CLUSTER_POLICY,
    "driver": objects.NVIDIA_DRIVER,
    "set": objects.DAEMON_SET,
    "slice": objects.RESOURCE_SLICE,
    "claim": objects.RESOURCE_CLAIM,
    "rule": objects.DEVICE_TAINT_RULE,
    "queue": objects.CLUSTER_QUEUE,
    "quota": objects.RESOURCE_QUOTA,
}


def test_objects_of_every_shape_are_mutated():
    shapes = [value for value in vars(objects).values() if isinstance(value, dict) and "metadata" in value]
    assert sorted(map(id, shapes)) == sorted(map(id, SHAPES.values()))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("answer", [None, {}, "x", 1, [None], ["x"], [[]]], ids=repr)
def test_an_answer_that_is_no_list_of_objects_has_none(answer, shape):
    assert objects.taken(answer, SHAPES[shape]) == []
