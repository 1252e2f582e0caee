# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import clients

LABEL = "gpufleet.github.io/gpu-clients"
DEPLOY = "nvidia.com/gpu.deploy."


def daemon_set(name, selector=None, *terms):
    spec = {"nodeSelector": selector or {}}
    if terms:
        required = {"nodeSelectorTerms": [{"matchExpressions": list(term)} for term in terms]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return {
        "metadata": {"namespace": "gpu", "name": name, "uid": name},
        "spec": {"template": {"spec": spec}},
    }


def expression(operator, key=LABEL, *values):
    return {"key": key, "operator": operator, "values": list(values)}


RENDERED = daemon_set("plugin", {"pool": "a"}, [expression("NotIn", LABEL, "paused")])
OPERANDS = daemon_set("exporter", {f"{DEPLOY}dcgm-exporter": "true"})


def test_pausing_and_resuming_are_each_others_reverse():
    labels = {"pool": "a", f"{DEPLOY}device-plugin": "true", f"{DEPLOY}dcgm": "false", f"{DEPLOY}driver": "true"}
    paused = clients.paused(labels)
    assert paused == {
        **labels,
        LABEL: "paused",
        f"{DEPLOY}device-plugin": "paused-for-driver-upgrade",
    }
    assert clients.resumed(paused) == labels
    assert clients.paused(paused) == paused
    assert clients.resumed(labels) == labels


def test_only_what_differs_is_written():
    before = {"pool": "a", LABEL: "paused", f"{DEPLOY}dcgm": "paused-for-driver-upgrade"}
    assert clients.patch(before, clients.resumed(before)) == {LABEL: None, f"{DEPLOY}dcgm": "true"}
    assert clients.patch(before, before) == {}


@pytest.mark.parametrize("state", [clients.paused, clients.resumed])
def test_which_daemon_sets_move_does_not_depend_on_the_state_of_the_node(state):
    labels = {"pool": "a", f"{DEPLOY}dcgm-exporter": "true"}
    others = [daemon_set("proxy"), daemon_set("elsewhere", {"pool": "b"}, [expression("NotIn", LABEL, "paused")])]
    assert clients.moved([RENDERED, OPERANDS, *others], state(labels)) == {
        "plugin": "gpu/plugin",
        "exporter": "gpu/exporter",
    }


def test_an_operand_that_people_switched_off_is_no_client():
    assert clients.moved([OPERANDS], {f"{DEPLOY}dcgm-exporter": "false"}) == {}


@pytest.mark.parametrize(
    ("found", "fits"),
    [
        (expression("In", "a", "1", "2"), True),
        (expression("In", "a", "2"), False),
        (expression("In", "b", "1"), False),
        (expression("NotIn", "a", "1"), False),
        (expression("NotIn", "b", "1"), True),
        (expression("Exists", "a"), True),
        (expression("Exists", "b"), False),
        (expression("DoesNotExist", "a"), False),
        (expression("DoesNotExist", "b"), True),
        (expression("Gt", "a", "0"), True),
        (expression("Gt", "a", "1"), False),
        (expression("Lt", "a", "2"), True),
        (expression("Lt", "b", "2"), False),
        (expression("Lt", "c", "2"), False),
    ],
)
def test_the_operators_of_node_affinity(found, fits):
    spec = daemon_set("x", {}, [found])["spec"]["template"]["spec"]
    assert clients.placed(spec, {"a": "1", "c": "text"}) is fits


def test_terms_are_alternatives_and_an_empty_one_fits_nothing():
    spec = daemon_set("x", {}, [expression("Exists", "b")], [expression("Exists", "a")])["spec"]["template"]["spec"]
    assert clients.placed(spec, {"a": ""})
    assert not clients.placed(daemon_set("x", {}, [])["spec"]["template"]["spec"], {"a": ""})


def test_a_pod_is_ready_only_while_it_stays():
    pod = {
        "metadata": {
            "namespace": "gpu",
            "name": "p",
            "ownerReferences": [{"uid": "x"}, {"uid": "y", "controller": True}],
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    assert clients.is_ready(pod)
    assert clients.owner(pod) == "y"
    assert clients.title(pod) == "gpu/p"
    pod["metadata"]["deletionTimestamp"] = "now"
    assert not clients.is_ready(pod)
    assert not clients.is_ready({})
    assert clients.owner({}) == ""


def plugin_pod(uid, controller="set-1", ready=True, ending=False):
    metadata = {"namespace": "gpu", "name": f"plugin-{uid}", "uid": uid}
    if controller:
        metadata["ownerReferences"] = [{"uid": controller, "controller": True}]
    if ending:
        metadata["deletionTimestamp"] = "now"
    return {"metadata": metadata, "status": {"conditions": [{"type": "Ready", "status": str(ready)}]}}


@pytest.mark.parametrize(
    ("present", "reasons"),
    [
        ([plugin_pod("old")], {"gpu/plugin-old": "it was restarted, and no new pod has taken its place"}),
        (
            [plugin_pod("new", controller="set-2")],
            {"gpu/plugin-old": "it was restarted, and no new pod has taken its place"},
        ),
        (
            [plugin_pod("old"), plugin_pod("new", ready=False)],
            {"gpu/plugin-new": "it was recreated and is not ready"},
        ),
        ([plugin_pod("new", ending=True)], {"gpu/plugin-old": "it was restarted, and no new pod has taken its place"}),
        ([plugin_pod("old"), plugin_pod("new")], {}),
        ([plugin_pod("crashed", ready=False), plugin_pod("new")], {}),
    ],
)
def test_a_deleted_pod_is_replaced_by_another_one_that_is_ready(present, reasons):
    assert clients.not_replaced([plugin_pod("old")], present) == reasons


def test_a_pod_without_a_controller_is_not_expected_back():
    assert clients.not_replaced([plugin_pod("old", controller=None)], []) == {}
