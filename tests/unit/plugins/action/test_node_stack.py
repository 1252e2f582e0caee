# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose device plugin serves a node: the survey of a change of stack, and the order in which one leaves and the other comes."""

from __future__ import annotations

import re

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import node_stack
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import ApiError
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.clients import OPERATOR_REPLACED, REPLACED

STACK = "gpufleet.github.io/stack"
DEPLOY = {name: f"nvidia.com/gpu.deploy.{name}" for name in (*REPLACED, "operator-validator")}
OPERATORS = {**dict.fromkeys(DEPLOY.values(), "true"), STACK: "gpu_operator"}
NONE = {**OPERATORS, **{DEPLOY[name]: OPERATOR_REPLACED for name in REPLACED}}
OURS = {**NONE, STACK: "device_plugin"}
OWN = {"nvidia-device-plugin-moved", "dcgm-exporter"}
THEIRS = {f"nvidia-{name}" for name in REPLACED}
ALL_OFF = {DEPLOY[name]: "false" for name in REPLACED}
SIDES = [("device_plugin", OPERATORS, OURS), ("gpu_operator", OURS, OPERATORS)]


class Cut(Exception):
    """The run was killed."""


class Node:
    """A node with the DaemonSets of both stacks, which each put a pod on it while its labels say so; a pod takes some looks to leave or to come.

    :param cut: after so many writes of labels the run is killed.
    """

    def __init__(self, labels, missing=(), namespace="gpu-operator", slow=2, obeys=True, cut=None):
        self.labels, self.namespace, self.slow, self.obeys, self.cut = dict(labels), namespace, slow, obeys, cut
        self.annotations: dict[str, str] = {}
        self.names = {*OWN, *THEIRS, "nvidia-operator-validator"} - {*missing}
        self.running, self.looks = self.wanted(), 0
        self.unstarted, self.written, self.history = 0, [], []

    def wanted(self):
        found = {name for name in self.names if self.labels.get(self.selector(name)[0]) == self.selector(name)[1]}
        return found if self.labels.get("nvidia.com/gpu.deploy.operands") != "false" else found & OWN

    @staticmethod
    def selector(name):
        return (STACK, "device_plugin") if name in OWN else (DEPLOY[name.removeprefix("nvidia-")], "true")

    def node(self, name):
        if name != "n":
            raise ApiError(404, "read the node", "not found")
        return {"metadata": {"labels": dict(self.labels), "annotations": dict(self.annotations)}}

    def daemon_sets(self):
        return [
            {
                "metadata": {"namespace": self.namespace, "name": name, "uid": name},
                "spec": {"template": {"spec": {"nodeSelector": dict([self.selector(name)])}}},
            }
            for name in sorted(self.names)
        ]

    def change_node(self, _name, annotations, labels):
        assert annotations == {} and labels
        if self.cut is not None and len(self.written) == self.cut:
            raise Cut
        self.written.append((labels, self.unstarted))
        self.labels.update(labels)
        self.looks = 0

    def pods_on(self, _name):
        self.looks += 1
        self.unstarted = max(self.unstarted - 1, 0)
        if self.looks > self.slow and self.obeys:
            self.running = self.wanted()
        self.history.append((self.running & OWN, self.running & THEIRS))
        pods = [
            {
                "metadata": {"namespace": self.namespace, "name": f"{name}-x", "ownerReferences": [{"uid": name, "controller": True}]},
                "status": {"startTime": "2026-11-27T10:00:00Z", "conditions": [{"type": "Ready", "status": "True"}]},
            }
            for name in sorted(self.running)
        ]  # fmt: skip
        asked = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
        bound = {
            "metadata": {"namespace": "team", "name": "bound", "uid": "u"},
            "spec": asked,
            "status": {"phase": "Pending"},
        }
        return [*pods, *self.others(asked), *([bound] if self.unstarted else [])]

    def others(self, asked):
        """Pods that nobody waits for: one without a GPU, one that was refused, and each time another one that somebody binds by its name."""
        for name, spec, phase in (
            ("cpu", {}, "Pending"),
            ("ended", asked, "Failed"),
            (f"new-{self.looks}", asked, "Pending"),
        ):
            if name != "new-1":
                yield {
                    "metadata": {"namespace": "team", "name": name, "uid": name},
                    "spec": spec,
                    "status": {"phase": phase},
                }


@pytest.fixture
def run(call, monkeypatch):
    def do(cluster, state="chosen", check_mode=False, **more):
        monkeypatch.setattr(node_stack.ActionModule, "cluster", lambda _self, _arguments: cluster)
        given = {"node": "n", "stack": "device_plugin", "state": state, "timeout": 5, "poll": 0.0, **more}
        return call(node_stack, given, {}, check_mode)[0]

    return do


@pytest.mark.parametrize(("stack", "before", "after"), SIDES)
def test_one_plugin_has_left_before_the_other_one_comes(run, stack, before, after):
    node = Node(before)
    result = run(node, stack=stack)
    assert result["changed"] and node.labels == after
    assert not [both for both in node.history if all(both)], "never both at once"
    assert node.running - {"nvidia-operator-validator"} == (OWN if stack == "device_plugin" else THEIRS)
    assert "nvidia-operator-validator" in node.running, "what has no release of ours stays"
    again = run(node, stack=stack)
    assert not again["changed"] and len(node.written) == 2, "a second run changes nothing"


@pytest.mark.parametrize("value", ["false", "pre-installed"])
def test_what_people_had_switched_off_stays_off_there_and_on_the_way_back(run, value):
    """The pod of a DaemonSet that does not come is not waited for either."""
    before = {**OPERATORS, DEPLOY["dcgm-exporter"]: value}
    node = Node(before)
    assert run(node)["changed"] and node.labels == {**OURS, DEPLOY["dcgm-exporter"]: value}
    node.written.clear()
    assert run(node, stack="gpu_operator")["changed"] and node.labels == before
    assert node.running & THEIRS == THEIRS - {"nvidia-dcgm-exporter"}


@pytest.mark.parametrize("cut", [0, 1])
@pytest.mark.parametrize(("stack", "before", "after"), SIDES)
def test_a_run_that_was_killed_before_either_label_is_repeated(run, stack, before, after, cut):
    node = Node(before, cut=cut)
    with pytest.raises(Cut):
        run(node, stack=stack)
    node.cut = None
    assert run(node, state="surveyed", stack=stack)["moved"] is False
    assert run(node, stack=stack)["changed"] and node.labels == after
    assert not [both for both in node.history if all(both)]
    assert len(node.written) == 2, "nothing is written twice"


@pytest.mark.parametrize(("stack", "after"), [(stack, after) for stack, _before, after in SIDES])
def test_a_run_that_was_killed_while_the_other_one_was_to_come_waits_for_it(run, stack, after):
    node = Node(after)
    node.running = set()
    assert not run(node, stack=stack)["changed"] and node.running


def test_no_plugin_leaves_before_the_kubelet_has_admitted_every_pod_that_is_bound_to_it(run):
    node = Node(OPERATORS)
    node.unstarted = 4
    assert run(node)["changed"]
    assert node.written[0][1] == 0
    stuck = Node(OPERATORS)
    stuck.unstarted = 10**6
    result = run(stuck, timeout=0)
    assert "team/bound did not start on it within 0 s" in result["msg"] and not stuck.written


@pytest.mark.parametrize(
    ("before", "text"),
    [
        (OPERATORS, "device plugin of its own release serve node n: .*gpu-operator/nvidia-device-plugin-x.* did not leave it"),
        (NONE, "gpu-operator/nvidia-device-plugin-moved were not ready on it within 0 s. See what keeps the pod"),
    ],
)  # fmt: skip
def test_pods_that_do_not_obey_are_named_and_nothing_is_written_behind_them(run, before, text):
    node = Node(before, obeys=False)
    result = run(node, timeout=0)
    assert result["failed"] and re.search(text, result["msg"])
    assert (node.labels[STACK] == "device_plugin") is (before == NONE)


def test_check_mode_writes_nothing(run):
    node = Node(OPERATORS)
    assert run(node, check_mode=True)["changed"] and not node.written


def test_what_a_tenant_calls_a_plugin_is_not_waited_for(run):
    assert run(Node(OPERATORS, namespace="tenant", obeys=False), timeout=0)["clients"] == []


@pytest.mark.parametrize("stack", ["device_plugin", "gpu_operator"])
@pytest.mark.parametrize("labels", [OPERATORS, NONE, OURS, {}, {**OURS, DEPLOY["dcgm"]: "true"}])
def test_a_survey_says_whether_the_node_was_moved(run, stack, labels):
    node = Node(labels)
    moved = {"device_plugin": labels == OURS, "gpu_operator": labels == OPERATORS}[stack]
    assert run(node, state="surveyed", stack=stack) == {"changed": False, "moved": moved}
    assert not node.written


def test_a_node_on_which_people_had_switched_all_of_the_operators_off_is_moved_and_keeps_them_off(run):
    node = Node({**OPERATORS, **ALL_OFF})
    assert run(node, state="surveyed") == {"changed": False, "moved": False}
    assert run(node)["changed"] and node.labels == {**OURS, **ALL_OFF} and node.running & OWN == OWN
    assert run(node, state="surveyed")["moved"]


def test_a_host_that_is_no_node_is_left_to_the_plan(run):
    assert run(Node({}), state="surveyed", node="elsewhere")["moved"] is False


@pytest.mark.parametrize(
    ("labels", "missing", "given", "text"),
    [
        (OPERATORS, OWN, {}, "no DaemonSet of its own release would serve node n .*Render the clusters"),
        (OURS, THEIRS, {"stack": "gpu_operator"}, "no DaemonSet of the GPU Operator would serve node n .*Render"),
        (OURS, OWN, {"stack": "gpu_operator"}, "no DaemonSet of its own release would leave node n\\. Render"),
        ({**OURS, DEPLOY["device-plugin"]: "false"}, (), {"stack": "gpu_operator"}, "Set the label nvidia.com/gpu.deploy.device-plugin to replaced-by"),
        ({**OURS, DEPLOY["device-plugin"]: "pre-installed"}, (), {"stack": "gpu_operator"}, "in place of pre-installed, and run again"),
        ({**OURS, **ALL_OFF}, (), {"stack": "gpu_operator"}, f"replaced-by-gpufleet in place of false, and those of {', '.join([*ALL_OFF][1:])} that"),
        ({**OPERATORS, **ALL_OFF}, OWN, {}, "no DaemonSet of its own release would serve node n"),
        ({**OURS, "nvidia.com/gpu.deploy.operands": "false"}, (), {"stack": "gpu_operator"}, "Remove the label nvidia.com/gpu.deploy.operands=false"),
        (OPERATORS, (), {"operands": ["driver"]}, "moves its driver as well. Move driver and container toolkit first"),
        (OPERATORS, (), {"kubernetes": False}, "gpu_node_kubernetes is false"),
    ],
)  # fmt: skip
def test_what_nothing_would_serve_is_refused_before_anything_is_touched(run, labels, missing, given, text):
    node = Node(labels, missing)
    result = run(node, state="surveyed", **given)
    assert result["failed"] and re.search(f"gpu_kubernetes_migrate_from: .*{text}", result["msg"])
    assert not node.written
