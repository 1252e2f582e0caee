#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: inspect
short_description: Show how the GPUs of all hosts of a play are partitioned and what is allocated
version_added: 0.1.0
description:
  - Prints a table like that of C(kubectl inspect cgpu) with the share of every GPU that is allocated to pods (without a cluster, to processes), and
    for every host the board of each GPU, how it is partitioned, and how much of that is allocated.
  - With O(kubeconfig), it also prints the extended resources that each node offers next to the ones expected from its pool's description, and marks
    differences. Without it, the cluster is not read, and the resources are printed as expected.
  - Hosts that could not be read, nodes that are not ready or not in the inventory, and pods that wait for GPUs are listed below the table.
  - Uses the result of M(gpufleet.nvidia.gpu_info) registered as C(gpu_facts_host) of each host.
  - This is an action plugin; the module only documents it.
options:
  hosts:
    description: The hosts to show, including those that could not be read. Defaults to the hosts of the play that did not fail.
    type: list
    elements: str
  format:
    description: The output format.
    type: str
    choices: [table, json]
    default: table
  kubeconfig:
    description:
      - A kubeconfig on the controller. If set, the pods that hold devices are shown, otherwise the processes on the GPUs.
      - The variable C(gpu_inspect_checkpoint) of each host contains the device checkpoint of its kubelet.
    type: path
    default: ""
  context:
    description: The context in that kubeconfig. If empty, its current context.
    type: str
    default: ""
  unit:
    description: What the table counts, either GiB of memory or instances and replicas.
    type: str
    choices: [memory, units]
    default: memory
  details:
    description: Whether to also print what each pod holds.
    type: bool
    default: false
  summary:
    description:
      - Whether to omit RV(hosts), RV(ledger), RV(expected) and RV(offered), which grow with the fleet. O(report) still contains them.
      - Ansible keeps the result of a task for every host, and copies it several times.
    type: bool
    default: false
  report:
    description: File on the controller to which all of this information is written as JSON. If empty, none is written.
    type: path
    default: ""
  html:
    description: File on the controller to which an HTML page with a diagram of every GPU is written. If empty, none is written.
    type: path
    default: ""
  wide:
    description: Whether tables are printed in full width even if the terminal is narrower. Otherwise, columns wrap.
    type: bool
    default: false
  note:
    description: A line to print below the table, such as the location of rendered files.
    type: str
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.reads
author:
  - The gpufleet.nvidia authors (@gpufleet)
seealso:
  - module: gpufleet.nvidia.gpu_info
"""

EXAMPLES = r"""
- name: Read every host
  gpufleet.nvidia.gpu_info:
  register: gpu_facts_host

- name: Show how the GPUs are partitioned and what is allocated
  gpufleet.nvidia.inspect:
  run_once: true
"""

RETURN = r"""
hosts:
  description: The facts document of every host.
  type: dict
  returned: success
unread:
  description: Why hosts could not be read, by host.
  type: dict
  returned: success
ledger:
  description:
    - For every node and GPU, what is offered and which pods hold it. Memory is in MiB.
    - C(notes) says why the numbers of a node are incomplete, C(pending_pods) lists the pods on the node that wait for a device.
  type: dict
  returned: success
total:
  description: The totals of all nodes, with memory in MiB, and in C(pending) what pods request but do not have yet.
  type: dict
  returned: success
pending:
  description: The pods that wait for GPUs and are not scheduled to a node.
  type: list
  elements: dict
  returned: success
not_in_inventory:
  description: Nodes of the cluster with GPUs that match no host in the inventory, with what they offer.
  type: dict
  returned: success
expected:
  description:
    - For every host, its pool, the extended resources, devices of claims and labels that the cluster must show, and the memory of a slice in MiB.
    - This is derived from the GPUs of the host and the variables of its pool, not read from the cluster.
  type: dict
  returned: success
offered:
  description:
    - For every host, the GPU resources that its node offers (C(status.allocatable), and for pools with C(nvidia_sharing_backend=dra) the devices in
      its ResourceSlices by DeviceClass and MIG profile), or null if the cluster has no such node.
    - Null if the cluster was not read.
  type: dict
  returned: success
mismatches:
  description:
    - The differences of every host whose node does not offer what is expected.
    - A node that is not in the inventory and joined a pool with C(gpu_kubernetes_node_match) is listed by the name of the node.
  type: dict
  returned: success
"""
