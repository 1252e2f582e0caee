#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: remove_gate
short_description: Decide for all hosts of a run whether the collection can be removed from them
version_added: 0.1.0
description:
  - Fails, before any host is changed, if the GPUs of a host are in use by processes, MPS clients, pods with a device file open, or pods to which the
    kubelet allocated a device.
  - C(nvidia_mig_disruption=force) of the host allows processes and pods, C(nvidia_sharing_mps_disruption=force) allows MPS clients. With
    C(gpu_remove_driver=true), none are allowed.
  - Reads the variable C(gpu_facts_host) (M(gpufleet.nvidia.gpu_info) with V(holders)) of each host, which an earlier task registers.
  - Run it once per play, with C(run_once). This is an action plugin; the module only documents it.
options:
  hosts:
    description: The hosts that were read.
    type: list
    elements: str
    required: true
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.reads
author:
  - The gpufleet.nvidia authors (@gpufleet)
seealso:
  - module: gpufleet.nvidia.host_remains
"""

EXAMPLES = r"""
- name: Refuse hosts whose GPUs are in use
  gpufleet.nvidia.remove_gate:
    hosts: "{{ ansible_play_hosts_all }}"
  register: gpu_remove_gate
  run_once: true
"""

RETURN = r"""
hosts:
  description: By host that is not refused, the variables of the host roles that its removal needs, including defaults.
  type: dict
  returned: always
refusals:
  description: Why hosts are refused, each with C(thing), C(reason), C(remedy), the whole C(message), and the C(hosts) that it is about.
  type: list
  elements: dict
  returned: always
left:
  description: What you must still do manually, one line each.
  type: list
  elements: str
  returned: always
"""
