# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the tests of rollouts share: clusters in memory, the hosts of a run, and what a survey found of them."""

from __future__ import annotations

import datetime

from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.upgrade import NodeRecord, from_annotations

TARGET = "driver 580.178.04"
OLD, NEW = "580.126.09", "580.178.04"
#: The variables of a host of a play that lost none.
AT_A = {"inventory_hostname": "a", "ansible_play_hosts": ["a"]}


class FakeCluster:
    """One node whose annotations and cordon are kept, and a lease."""

    def __init__(self, record=None, unschedulable=False):
        self.annotations = {key: value for key, value in (record or NodeRecord()).annotations().items() if value}
        self.unschedulable = unschedulable
        self.labels = {}
        self.held = None

    def node(self, name):
        spec = {"unschedulable": True} if self.unschedulable else {}
        return {
            "metadata": {"name": name, "annotations": dict(self.annotations), "labels": dict(self.labels)},
            "spec": spec,
        }

    def api_groups(self):
        return frozenset()

    def change_node(self, _name, annotations, unschedulable, labels):
        self.labels = {key: value for key, value in {**self.labels, **labels}.items() if value}
        self.annotations = {key: value for key, value in {**self.annotations, **annotations}.items() if value}
        if unschedulable is not None:
            self.unschedulable = unschedulable

    def lease(self, _namespace, _name):
        return self.held

    def clock(self, _namespace):
        return datetime.datetime.now(datetime.timezone.utc)

    def write_lease(self, _namespace, _name, spec, _version):
        self.held = {"metadata": {"resourceVersion": "1"}, "spec": dict(spec)}
        return True

    @property
    def record(self):
        return from_annotations(self.annotations)


def node(**labels):
    conditions = [{"type": "Ready", "status": "True"}]
    return {"metadata": {"annotations": {}, "labels": labels}, "spec": {}, "status": {"conditions": conditions}}


class Nodes(FakeCluster):
    def __init__(self, *names):
        super().__init__()
        self.names = names

    def nodes(self):
        return {name: node() for name in self.names}


HOLDER = {"pid": 4711, "command": "python3", "devices": ["/dev/nvidia0"], "container_id": None}
EXPORTER = {**HOLDER, "pid": 4712, "command": "node", "unit": "dcgm-exporter.service"}
MPS_SERVER = {**HOLDER, "pid": 4713, "command": "nvidia-cuda-mps", "unit": "gpufleet-mps@node.service"}


def plain_host(*holders, **variables):
    """A host of no cluster, as the survey leaves it."""
    facts = {"schema": 1, "holders": list(holders), "gpus": [{"index": 0, "processes": []}]}
    about = {"node": "a", "needed": True, "reboots": True, "target": TARGET}
    return {"__gpu_upgrade_host": about, "gpu_facts_host": {"gpu": facts}, **variables}
