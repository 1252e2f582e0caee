#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: inspect
short_description: Show what the GPUs of all hosts of a play are divided into and what is taken
version_added: 0.1.0
description:
  - Prints the table of C(kubectl inspect cgpu), what of every GPU is given to pods (without a cluster to processes), and for every host
    each GPU's board, what it is divided into and how much of that is taken.
  - With O(kubeconfig) it also prints the extended resources that each node offers, beside those that its pool's description makes expected, and
    marks where they differ. Without, the cluster is not asked, and what is printed of it is called expected.
  - Hosts that could not be read, nodes that are not ready or not in the inventory, and pods that wait for GPUs are named below it.
  - The facts are those that M(gpufleet.nvidia.gpu_info) returned into the variable C(gpu_facts_host) of each host.
  - This is an action; the module is only its documentation.
options:
  hosts:
    description: The hosts to show, those that could not be read among them. Without it, the hosts of the play that did not fail.
    type: list
    elements: str
  format:
    description: What is printed.
    type: str
    choices: [table, json]
    default: table
  kubeconfig:
    description:
      - A kubeconfig on the controller. With it the pods that hold devices are shown, else the processes on the GPUs.
      - The content of each kubelet's checkpoint of devices is in the variable C(gpu_inspect_checkpoint) of each host.
    type: path
    default: ""
  context:
    description: The context in it.
    type: str
    default: ""
  unit:
    description: What that table counts, GiB of memory or units of the resources.
    type: str
    choices: [memory, units]
    default: memory
  details:
    description: Whether it is also printed what each pod holds.
    type: bool
    default: false
  summary:
    description:
      - Leave out RV(hosts), RV(ledger), RV(expected) and RV(offered), which grow with the fleet. They are in O(report) all the same.
      - Ansible keeps what a task returns for every host, and copies it several times.
    type: bool
    default: false
  report:
    description: File on the controller for everything that is known, as JSON. Empty for none.
    type: path
    default: ""
  html:
    description: File on the controller for a report with a picture of every GPU. Empty for none.
    type: path
    default: ""
  wide:
    description: Whether tables are printed in full width where the terminal has no room for it. Otherwise columns wrap.
    type: bool
    default: false
  note:
    description: A line that is printed below the table, such as where rendered files are.
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

- name: Show them
  gpufleet.nvidia.inspect:
  run_once: true
"""

RETURN = r"""
hosts:
  description: The facts document of every host.
  type: dict
  returned: success
unread:
  description: For every host that could not be read, why.
  type: dict
  returned: success
ledger:
  description:
    - For every node and GPU, what is offered of it and which pods hold it; memory in MiB.
    - C(notes) of RV(ledger) says why the numbers of a node are not all that there is, C(pending_pods) of RV(ledger) which pods on it wait for a device.
  type: dict
  returned: success
total:
  description: The sums of all nodes, memory in MiB, and in C(pending) what pods ask for and do not have.
  type: dict
  returned: success
pending:
  description: The pods that wait for GPUs and are on no node.
  type: list
  elements: dict
  returned: success
not_in_inventory:
  description: Nodes of the cluster with GPUs that no host of the inventory stands for, with what they offer.
  type: dict
  returned: success
expected:
  description:
    - For every host its pool, the extended resources, devices of claims and labels that the cluster must show, and the memory of a slice in MiB.
    - This follows from the GPUs of the host and the variables of its pool. It does not say what the cluster shows.
  type: dict
  returned: success
offered:
  description:
    - For every host the GPU resources that its node offers (C(status.allocatable), and of pools with C(nvidia_sharing_backend=dra) the devices in its
      ResourceSlices by DeviceClass and MIG profile), or null when the cluster has no such node.
    - Null when the cluster was not asked.
  type: dict
  returned: success
mismatches:
  description: For every host whose node does not offer what is expected, in what they differ.
  type: dict
  returned: success
"""
