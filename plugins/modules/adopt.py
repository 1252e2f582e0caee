#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: adopt
short_description: Write an inventory for hosts that were set up by other means
version_added: 0.1.0
description:
  - Writes an inventory on the controller from the state of hosts, so that the first C(plan) with it shows nothing to do, or names what no variable
    can describe. Nothing on the hosts or in a cluster is changed.
  - Uses the result of M(gpufleet.nvidia.gpu_info) with V(holders) and V(mig_parted) in O(gpufleet.nvidia.gpu_info#module:gather), registered as
    C(gpu_facts_host) of each host, and with O(kubeconfig) the objects of the cluster - ClusterPolicy and NVIDIADriver of the GPU Operator, DaemonSets
    of the standalone device plugin with their ConfigMaps, and nodes.
  - Hosts with equal boards and settings become a pool. Anything that no variable can describe is left alone by C(site) (for example with
    O(gpufleet.nvidia.nvidia_driver#role:main:nvidia_driver_state=unmanaged)), and is listed in RV(differences).
  - Hosts in the group C(gpu_hosts), hosts without an NVIDIA GPU, and hosts whose driver does not respond are skipped, with the reason.
  - Connection variables such as C(ansible_host) and C(ansible_user) are copied, secrets are not.
  - This is an action plugin; the module only documents it.
options:
  hosts:
    description: The hosts to adopt.
    type: list
    elements: str
    required: true
  directory:
    description: Directory on the controller for the inventory, relative to the directory in which Ansible was started.
    type: path
    default: inventory/adopted
  overwrite:
    description: Whether to replace what an earlier run wrote there. Otherwise, a directory that contains files is refused.
    type: bool
    default: false
  namespaces:
    description:
      - Namespaces of the cluster's device plugin and GPU Operator. A DaemonSet elsewhere that looks like a device plugin may be a tenant's - it decides
        nothing, and is named.
    type: list
    elements: str
    default: [nvidia-gpu, gpu-operator, nvidia-device-plugin, kube-system]
  report:
    description: File on the controller to which the findings are written as JSON, readable only by its owner. If empty, none is written.
    type: path
    default: ""
  kubeconfig:
    description: A kubeconfig on the controller. If empty, no cluster is read.
    type: path
    default: ""
  context:
    description: The context in that kubeconfig. If empty, its current context.
    type: str
    default: ""
  api_timeout:
    description: Seconds to wait for an API server that does not answer.
    type: int
    default: 300
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
    details:
      - With O(overwrite=true), a second run on unchanged hosts writes nothing.
author:
  - The gpufleet.nvidia authors (@gpufleet)
seealso:
  - module: gpufleet.nvidia.fleet_plan
  - module: gpufleet.nvidia.doctor_report
"""

EXAMPLES = r"""
- name: Write the inventory
  gpufleet.nvidia.adopt:
    hosts: "{{ ansible_play_hosts_all }}"
    directory: inventory/adopted
"""

RETURN = r"""
directory:
  description: Where the inventory is.
  type: str
  returned: success
pools:
  description: The hosts of each pool.
  type: dict
  returned: success
hosts:
  description: The boards, variables, differences and notes of every host.
  type: dict
  returned: success
differences:
  description: By host, what no variable can describe.
  type: dict
  returned: success
left_out:
  description: The hosts that are not in the inventory, with the reason.
  type: dict
  returned: success
msg:
  description: A one-line summary.
  type: str
  returned: always
  sample: "40 hosts in 3 pools, 1 left out, 2 differences that are not described."
"""
