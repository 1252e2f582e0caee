# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes that playbooks take out of service beside NVSentinel: whose they are, and that it leaves alone those that a playbook has."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import heal_node, repartition_node, upgrade_node
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import nvsentinel

from .rollouts import Nodes

NEW, OLD = nvsentinel.MANAGED
EVENT = {"quarantineHealthEvent": "[{}]", "quarantineHealthEventIsCordoned": "True"}
RELEASED = {"key": "nvsentinel.dgxc.nvidia.com/external-remediation", "value": "extrr-1", "effect": "NoSchedule"}
ACTIONS = {
    upgrade_node: {"target": "580.126.09", "origin": "570.133.20"},
    heal_node: {"members": ["n", *"abc"]},
    repartition_node: {},
}


class Api(Nodes):
    """A cluster with the node C(n), and others."""

    def __init__(self, labels=(), groups=(nvsentinel.GROUP,), annotations=(), **spec):
        super().__init__(*"nabc")
        self.groups, self.metadata, self.spec = groups, self.kept["n"]["metadata"], self.kept["n"]["spec"]
        self.metadata.update(labels=dict(labels), annotations=dict(annotations))
        self.spec.update(spec)


@pytest.fixture
def step(call, monkeypatch):
    records = {}

    def take(module, api, state, **more):
        monkeypatch.setattr(module.ActionModule, "cluster", lambda _self, _arguments: api)
        given = {"node": "n", "state": state, **ACTIONS[module], **more}
        if module is not repartition_node:
            given["record"] = records.get(module, {})
        result, _shown = call(module, given, {"inventory_hostname": "n", "hostvars": {}})
        assert "failed" not in result, result["msg"]
        records[module] = result.get("record", {})
        return result

    return take


@pytest.mark.parametrize("before", [{}, {NEW: "true"}, {NEW: "false", "zone": "a"}, {OLD: "false"}], ids=str)
@pytest.mark.parametrize("cordoned", [False, True])
@pytest.mark.parametrize("module", ACTIONS, ids=lambda module: module.__name__.rpartition(".")[2])
def test_the_label_comes_with_the_cordon_and_goes_with_the_uncordon_also_when_a_run_is_resumed(
    step, module, cordoned, before
):
    api = Api(before, unschedulable=cordoned)
    step(module, api, "started")
    assert [patch[2:] for patch in api.changed] == [(True, {NEW: "false", OLD: "false"})]
    # Another run finds them, and not what was before.
    step(module, api, "started")
    assert api.metadata["labels"] == {**before, NEW: "false", OLD: "false"}
    step(module, api, "done")
    assert api.metadata["labels"] == before and api.changed[-1][2] is cordoned
    assert nvsentinel.INITIAL not in api.metadata["annotations"]


@pytest.mark.parametrize("module", ACTIONS, ids=lambda module: module.__name__.rpartition(".")[2])
def test_a_node_whose_change_failed_stays_hidden_and_out_of_service(step, module):
    api = Api()
    step(module, api, "started")
    more = {"layout_changed": True} if module is repartition_node else {}
    step(module, api, "failed", reason="it failed", **more)
    assert api.metadata["labels"] == {NEW: "false", OLD: "false"} and api.spec["unschedulable"]


@pytest.mark.parametrize(
    ("groups", "labels", "mode", "hidden"),
    [
        ((), {}, "exclude", False),
        (("apps",), {"nvidia.com/gpu.present": "true"}, "exclude", False),
        ((), {"nvsentinel.dgxc.nvidia.com/dcgm.version": "4.x"}, "exclude", True),
        ((), {OLD: "true"}, "exclude", True),
        (("janitor.dgxc.nvidia.com",), {}, "exclude", True),
        ((nvsentinel.GROUP,), {}, "ignore", False),
    ],
)
def test_its_labels_are_set_only_where_it_is_seen(step, groups, labels, mode, hidden):
    api = Api(labels, groups)
    step(repartition_node, api, "started", nvsentinel=mode)
    assert (api.metadata["labels"].get(NEW) == "false") is hidden


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"annotations": EVENT}, "NVSentinel has quarantined it (annotation quarantineHealthEvent)"),
        (
            {"annotations": EVENT, "taints": [RELEASED]},
            "released it to another system (ExternalRemediationRequest extrr-1)",
        ),
    ],
)
@pytest.mark.parametrize("module", ACTIONS, ids=lambda module: module.__name__.rpartition(".")[2])
@pytest.mark.parametrize("mode", ["exclude", "remediate"])
def test_a_node_that_nvsentinel_has_is_not_taken(call, monkeypatch, step, module, mode, found, said):
    """What it has released to be repaired is for heal alone."""
    api = Api(unschedulable=True, **found)
    if "taints" in found and mode == "remediate" and module is heal_node:
        step(module, api, "started", nvsentinel=mode)
        return
    monkeypatch.setattr(module.ActionModule, "cluster", lambda _self, _arguments: api)
    given = {"node": "n", "state": "started", "nvsentinel": mode, **ACTIONS[module]}
    result, _shown = call(module, given, {"inventory_hostname": "n"})
    assert result["failed"] and result["msg"].startswith("node n: ") and said in result["msg"]
    assert api.changed == []
    step(module, api, "started", nvsentinel="ignore")
    assert [patch[2:] for patch in api.changed] == [(True, {})]


def test_a_cordon_that_nvsentinel_needs_by_the_end_stays_its_own(step):
    """It looked at the node before it saw the label: an uncordon would cancel its repair."""
    api = Api()
    step(repartition_node, api, "started")
    api.metadata["annotations"].update(EVENT)
    step(repartition_node, api, "done")
    assert api.spec["unschedulable"] and api.metadata["labels"] == {}


def test_what_nvsentinel_says_holds_nothing_up_where_it_is_ignored(step):
    api = Api(annotations=EVENT)
    step(repartition_node, api, "started", nvsentinel="ignore")
    step(repartition_node, api, "done", nvsentinel="ignore")
    assert not api.spec["unschedulable"]
    api = Api(annotations={"quarantineHealthEventIsCordoned": "False"})
    step(repartition_node, api, "started")
    step(repartition_node, api, "done")
    assert not api.spec["unschedulable"]


@pytest.mark.parametrize("module", ACTIONS, ids=lambda module: module.__name__.rpartition(".")[2])
def test_a_node_that_a_run_was_at_work_on_is_continued_although_nvsentinel_met_it_half_done(step, module):
    """A release before wrote no label, and DCGM was down."""
    api = Api(groups=())
    step(module, api, "started")
    api.metadata["annotations"].update(EVENT)
    api.groups = (nvsentinel.GROUP,)
    step(module, api, "started")
    assert api.metadata["labels"] == {NEW: "false", OLD: "false"}


@pytest.mark.parametrize("text", ["[]", "{", '{"nvsentinel.dgxc.nvidia.com/managed": 5}'])
def test_what_the_labels_were_is_not_believed_in_another_shape(text):
    node = {"metadata": {"annotations": {nvsentinel.INITIAL: text}}}
    assert nvsentinel.returned(node, False, "exclude") == ({NEW: None, OLD: None}, {nvsentinel.INITIAL: None}, False)
