# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who brings driver and container toolkit to a node: the survey of a migration, and the labels with which the GPU Operator's pods leave or come back."""

from __future__ import annotations

import re

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._migration import FORMER
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import node_operands
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import ApiError

DEPLOY = "nvidia.com/gpu.deploy."
BOTH = ["driver", "container-toolkit"]
OPERATORS = {f"{DEPLOY}{name}": "true" for name in (*BOTH, "device-plugin")}
HOSTS = {**OPERATORS, f"{DEPLOY}driver": "false", f"{DEPLOY}container-toolkit": "false"}
#: Of hosts with the operator's driver and toolkit, with neither, and with their own.
BY_CONTAINER = {
    "schema": 1,
    "driver": {"source": "container", "packages": {}},
    "runtimes": {"containerd": {"binary": "/usr/local/nvidia/toolkit/nvidia-container-runtime", "nvidia": True}},
}
BARE = {"schema": 1, "driver": {"source": None, "packages": {}}, "toolkit": {"packages": {}}, "runtimes": {}}
BY_PACKAGES = {
    **BARE,
    "driver": {"source": "nvidia", "packages": {"libcuda1": "580.126.09-1"}},
    "toolkit": {"packages": {"nvidia-container-toolkit": "1.20.2-1"}},
}


class Operator:
    """A node, and an operator whose DaemonSets each put a pod on it while its label is true, some looks later."""

    def __init__(self, labels=None, names=BOTH, namespace="gpu-operator", looks=2, obeys=True):
        self.labels = dict(OPERATORS if labels is None else labels)
        self.names, self.namespace, self.looks, self.obeys = names, namespace, looks, obeys
        self.annotations: dict[str, str] = {}
        self.written = []
        self.running = {name for name in names if self.labels.get(f"{DEPLOY}{name}") == "true"}
        self.others: list[dict] = []

    def node(self, name):
        if name != "n":
            raise ApiError(404, "read the node", "not found")
        return {"metadata": {"labels": dict(self.labels), "annotations": dict(self.annotations)}}

    def daemon_sets(self):
        return [
            {
                "metadata": {"namespace": self.namespace, "name": f"nvidia-{name}", "uid": name},
                "spec": {"template": {"spec": {"nodeSelector": {f"{DEPLOY}{name}": "true"}}}},
            }
            for name in self.names
        ] + [{"metadata": {"namespace": "kube-system", "name": "proxy", "uid": "proxy"}, "spec": {"template": {}}}]

    def change_node(self, _name, annotations, labels):
        assert annotations == {}
        self.written.append(labels)
        self.labels.update(labels)

    def pods_on(self, _name):
        self.looks -= 1
        if self.looks <= 0 and self.obeys:
            self.running = {name for name in self.names if self.labels.get(f"{DEPLOY}{name}") == "true"}
        return [
            {
                "metadata": {
                    "namespace": self.namespace,
                    "name": f"nvidia-{name}-x",
                    "ownerReferences": [{"uid": name, "controller": True}],
                },
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }
            for name in sorted(self.running)
        ] + self.others


@pytest.fixture
def run(call, monkeypatch):
    def do(cluster, state, facts=BY_CONTAINER, check_mode=False, **more):
        monkeypatch.setattr(node_operands.ActionModule, "cluster", lambda _self, _arguments: cluster)
        given = {"node": "n", "operands": BOTH, "brought_by": "host", "state": state, "timeout": 5, "poll": 0.0, **more}
        return call(node_operands, given, {"gpu_facts_host": {"gpu": facts}}, check_mode)[0]

    return do


def test_the_operators_pods_leave_with_their_labels_and_nothing_else_is_touched(run):
    cluster = Operator()
    result = run(cluster, "chosen")
    assert result["clients"] == ["gpu-operator/nvidia-container-toolkit", "gpu-operator/nvidia-driver"]
    assert cluster.labels == HOSTS and not cluster.running
    again = run(cluster, "chosen")
    assert not again["changed"] and len(cluster.written) == 1, "a run that was cut off is repeated"


def test_they_come_back_and_are_waited_for_also_by_a_run_that_finds_the_labels_written(run):
    cluster = Operator(HOSTS)
    assert run(cluster, "chosen", brought_by="gpu_operator")["changed"]
    assert cluster.labels == OPERATORS and cluster.running == {*BOTH}
    cut_off = Operator(OPERATORS)
    cut_off.running = set()
    assert not run(cut_off, "chosen", brought_by="gpu_operator")["changed"]
    assert cut_off.running == {*BOTH}


@pytest.mark.parametrize("operand", BOTH)
def test_one_of_them_moves_alone(run, operand):
    (other,) = {*BOTH} - {operand}
    cluster = Operator()
    assert run(cluster, "chosen", operands=[operand])["labels"] == {f"{DEPLOY}{operand}": "false"}
    assert cluster.running == {other}


@pytest.mark.parametrize("names", [[], ["driver"]])
def test_what_the_operator_does_not_bring_is_kept_away_and_not_waited_for(run, names):
    """Such as its driver, where driver.enabled is false because the hosts have one already."""
    cluster = Operator(names=names)
    assert run(cluster, "chosen")["changed"] and cluster.labels == HOSTS


@pytest.mark.parametrize(
    ("labels", "to", "text"),
    [
        (
            OPERATORS,
            "host",
            "the host bring driver and container-toolkit: .*nvidia-driver-x did not leave node n within 0 s",
        ),
        (HOSTS, "gpu_operator", "the GPU Operator bring .*gpu-operator/nvidia-driver were not ready on node n"),
    ],
)
def test_pods_that_do_not_obey_are_named(run, labels, to, text):
    result = run(Operator(labels, obeys=False), "chosen", brought_by=to, timeout=0)
    assert result["failed"] and re.search(text, result["msg"])


def test_check_mode_writes_nothing_and_waits_for_nobody(run):
    cluster = Operator(obeys=False)
    assert run(cluster, "chosen", check_mode=True)["changed"] and not cluster.written


def test_nothing_of_a_tenant_is_waited_for(run):
    cluster = Operator(namespace="tenant", obeys=False)
    assert run(cluster, "chosen", timeout=0)["clients"] == []


@pytest.mark.parametrize(
    ("labels", "facts", "to", "moved"),
    [
        (OPERATORS, BY_CONTAINER, "host", False),
        # Somebody labelled the node by hand, and its containers left what they had loaded.
        (HOSTS, BY_CONTAINER, "host", False),
        (HOSTS, BARE, "host", True),
        (HOSTS, BY_PACKAGES, "host", True),
        (OPERATORS, BY_PACKAGES, "host", False),
        ({**HOSTS, f"{DEPLOY}driver": "pre-installed"}, BY_PACKAGES, "host", True),
        (HOSTS, BY_PACKAGES, "gpu_operator", False),
        (OPERATORS, BY_PACKAGES, "gpu_operator", False),
        (HOSTS, BARE, "gpu_operator", False),
        (OPERATORS, BY_CONTAINER, "gpu_operator", True),
    ],
)
def test_a_survey_says_whether_the_node_was_moved_and_changes_nothing(run, labels, facts, to, moved):
    cluster = Operator(labels)
    assert run(cluster, "surveyed", facts, brought_by=to) == {"changed": False, "moved": moved}
    assert not cluster.written


def test_a_host_that_is_no_node_is_left_to_the_plan(run):
    assert run(Operator(), "surveyed", node="elsewhere")["moved"] is False


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"stack": "device_plugin"}, "nvidia_driver_migrate_from: gpu_kubernetes_stack is device_plugin"),
        ({"kubernetes": False}, "gpu_node_kubernetes is false"),
        ({"pauses": False}, "Set gpu_node_pause_clients: true."),
        ({"operands": ["container-toolkit"], "stack": "device_plugin"}, "nvidia_toolkit_migrate_from: "),
    ],
)
def test_what_would_take_the_driver_from_pods_is_refused_before_anything_is_touched(run, given, text):
    cluster = Operator()
    result = run(cluster, "surveyed", **given)
    assert result["failed"] and text in result["msg"] and not cluster.written


def test_nothing_goes_back_to_a_node_from_which_a_label_keeps_the_operator(run):
    cluster = Operator({**HOSTS, "nvidia.com/gpu.deploy.operands": "false"})
    result = run(cluster, "surveyed", BY_PACKAGES, brought_by="gpu_operator")
    assert result["failed"] and "nvidia.com/gpu.deploy.operands=false" in result["msg"] and not cluster.written


@pytest.mark.parametrize("names", [[], ["driver"], ["container-toolkit"]])
def test_nothing_goes_back_to_an_operator_that_would_not_bring_it(run, names):
    result = run(Operator(HOSTS, names=names), "surveyed", BY_PACKAGES, brought_by="gpu_operator")
    lacking = " and ".join(name for name in BOTH if name not in names)
    assert result["failed"] and f"no DaemonSet of the GPU Operator would bring {lacking} to node n" in result["msg"]


def other(uid, kind="ReplicaSet", owner="x", namespace="default", **annotations):
    """A pod that requests no GPU."""
    owners = [{"kind": kind, "uid": owner, "controller": True}]
    metadata = {"namespace": namespace, "name": uid, "uid": uid, "ownerReferences": owners, "annotations": annotations}
    return {"metadata": metadata}


OPERATORS_PROGRAM, HOSTS_PROGRAM = (f"{folder}/nvidia-container-runtime" for folder in (FORMER, "/usr/bin"))


@pytest.mark.parametrize(("to", "program"), [("host", OPERATORS_PROGRAM), ("gpu_operator", HOSTS_PROGRAM)])
@pytest.mark.parametrize(
    ("pod", "stays"),
    [
        (other("web"), False),
        (other("bare", kind="", owner=""), False),
        (other("agent", "DaemonSet", "proxy", "kube-system"), True),
        # Whoever makes a pod can write an owner into it.
        (other("agent", "DaemonSet", "nobody", "kube-system"), False),
        (other("static", "Node", "n", "kube-system", **{"kubernetes.io/config.mirror": "hash"}), True),
        # One of those that leave with their labels.
        (other("toolkit", "DaemonSet", "container-toolkit", "gpu-operator"), False),
        # Of another runtime's namespace, or of a pod that the API does not know.
        (None, True),
    ],
)
def test_a_toolkit_is_not_taken_from_pods_that_no_drain_evicts(run, to, program, pod, stays):
    cluster = Operator(OPERATORS if to == "host" else HOSTS)
    cluster.others = [pod] if pod else []
    uid = pod["metadata"]["uid"] if pod else "unknown"
    by = BY_CONTAINER if to == "host" else BY_PACKAGES

    def surveyed(program, **more):
        runtimes = {
            "containerd": {
                **by["runtimes"].get("containerd", {}),
                "containers": [{"program": program, "name": "kube-system/agent", "pod_uid": uid}],
            }
        }
        return run(cluster, "surveyed", {**by, "runtimes": runtimes}, brought_by=to, **more)

    found = surveyed(program)
    assert bool(found.get("failed")) is stays and not cluster.written
    if stays:
        assert "kube-system/agent were started by nvidia-container-runtime of the" in found["msg"]
        assert "nvidia_toolkit_disruption: force" in found["msg"]
        assert surveyed(program, disruption="force")["moved"] is False
        assert surveyed(program, operands=["driver"])["moved"] is False, "only its driver moves"
    (others,) = {OPERATORS_PROGRAM, HOSTS_PROGRAM} - {program}
    assert not surveyed(others).get("failed"), "the toolkit that comes"
