# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the tests of rollouts share: clusters in memory, the hosts of a run, and what a survey found of them."""

from __future__ import annotations

import datetime
import json

from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import ApiError
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.upgrade import NodeRecord, from_annotations

TARGET = "driver 580.178.04"
OLD, NEW = "580.126.09", "580.178.04"
#: The variables of a host of a play that lost none.
AT_A = {"inventory_hostname": "a", "ansible_play_hosts": ["a"]}


def node(name="a", **labels):
    conditions = [{"type": "Ready", "status": "True"}]
    metadata = {"name": name, "annotations": {}, "labels": labels}
    return {"metadata": metadata, "spec": {}, "status": {"conditions": conditions}}


class Nodes:
    """The API server of a cluster whose nodes are what is written to them, with the changes in the order in which they came, and one Lease."""

    groups: tuple[str, ...] = ()

    def __init__(self, *names):
        self.kept = {name: node(name) for name in names}
        self.changed = []
        self.held = None

    def nodes(self):
        return json.loads(json.dumps(self.kept))

    def node(self, name):
        if name not in self.kept:
            raise ApiError(404, f"read node {name}", f'nodes "{name}" not found')
        return self.nodes()[name]

    def api_groups(self):
        return frozenset(self.groups)

    def change_node(self, name, annotations, unschedulable=None, labels=()):
        self.changed.append((name, annotations, unschedulable, dict(labels)))
        metadata = self.kept[name]["metadata"]
        for field, changes in (("annotations", annotations), ("labels", labels)):
            there = {**metadata[field], **dict(changes)}
            metadata[field] = {key: value for key, value in there.items() if value is not None}
        if unschedulable is not None:
            self.kept[name]["spec"]["unschedulable"] = unschedulable

    def lease(self, _namespace, _name):
        return self.held

    def clock(self, _namespace):
        return datetime.datetime.now(datetime.timezone.utc)

    def write_lease(self, _namespace, _name, spec, _version):
        self.held = {"metadata": {"resourceVersion": "1"}, "spec": dict(spec)}
        return True


class FakeCluster(Nodes):
    """One node, n, of which a run has a record."""

    def __init__(self, record=None, unschedulable=False):
        super().__init__("n")
        self.change_node("n", (record or NodeRecord()).annotations(), unschedulable)

    @property
    def unschedulable(self):
        return self.kept["n"]["spec"]["unschedulable"]

    @property
    def record(self):
        return from_annotations(self.kept["n"]["metadata"]["annotations"])


HOLDER = {"pid": 4711, "command": "python3", "devices": ["/dev/nvidia0"], "container_id": None}
EXPORTER = {**HOLDER, "pid": 4712, "command": "node", "unit": "dcgm-exporter.service"}
MPS_SERVER = {**HOLDER, "pid": 4713, "command": "nvidia-cuda-mps", "unit": "gpufleet-mps@node.service"}


def plain_host(*holders, **variables):
    """A host of no cluster, as the survey leaves it."""
    facts = {"schema": 1, "holders": list(holders), "gpus": [{"index": 0, "processes": []}]}
    about = {"node": "a", "needed": True, "reboots": True, "target": TARGET}
    return {"__gpu_upgrade_host": about, "gpu_facts_host": {"gpu": facts}, **variables}
