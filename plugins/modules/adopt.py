#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: adopt
short_description: Write the inventory of hosts that somebody else set up
version_added: 0.1.0
description:
  - Writes an inventory on the controller from what hosts are, so that the first C(plan) over it shows nothing to do, or names what no
    variable describes. Nothing on the hosts or in a cluster is changed.
  - Uses the facts that M(gpufleet.nvidia.gpu_info) returned into the variable C(gpu_facts_host) of each host with
    O(gpufleet.nvidia.gpu_info#module:gather) holding V(holders) and V(mig_parted), and the objects of the cluster where O(kubeconfig) is given -
    ClusterPolicy and NVIDIADriver of the GPU Operator, DaemonSets of the standalone device plugin with their ConfigMaps, and nodes.
  - Hosts with equal boards and settings become a pool. What cannot be described is left alone by C(site) (such as
    O(gpufleet.nvidia.nvidia_driver#role:main:nvidia_driver_state=unmanaged)), and is in RV(differences).
  - Hosts in the group C(gpu_hosts), hosts without an NVIDIA GPU, and hosts whose driver does not answer are left out, with the reason.
  - How hosts are reached is copied (C(ansible_host), C(ansible_user) and their like), secrets are not.
  - This is an action; the module is only its documentation.
options:
  hosts:
    description: The hosts to adopt.
    type: list
    elements: str
    required: true
  directory:
    description: Folder on the controller for the inventory. Relative to where Ansible was started.
    type: path
    default: inventory/adopted
  overwrite:
    description: Whether what an earlier run wrote there may be replaced. Otherwise a folder that has files is refused.
    type: bool
    default: false
  report:
    description: File on the controller for what was found as JSON, readable by its owner alone. Empty for none.
    type: path
    default: ""
  kubeconfig:
    description: A kubeconfig on the controller. Empty asks no cluster.
    type: path
    default: ""
  context:
    description: The context in it. Empty for its current one.
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
      - With O(overwrite=true), a second run over hosts that did not change writes nothing.
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
  description: Of every host its boards, variables, differences and notes.
  type: dict
  returned: success
differences:
  description: By host, what no variable describes.
  type: dict
  returned: success
left_out:
  description: The hosts that are not in the inventory, with the reason.
  type: dict
  returned: success
msg:
  description: One line for people.
  type: str
  returned: always
  sample: "40 hosts in 3 pools, 1 left out, 2 differences that are not described."
"""
