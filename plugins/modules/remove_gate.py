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
  - Fails, before any host is touched, where one of them uses its GPUs - processes, MPS clients, pods with a device file open, pods that the
    kubelet gave a device.
  - Processes and pods are allowed by the host's C(nvidia_mig_disruption=force), clients of MPS by C(nvidia_sharing_mps_disruption=force), and
    nothing is where C(gpu_remove_driver) is true.
  - Reads the variables C(gpu_facts_host) (M(gpufleet.nvidia.gpu_info) with V(holders)), C(gpu_remove_checkpoint) (the kubelet's record of
    devices) and C(gpu_remove_pods) (the pods on the host) of each host, which tasks before it register.
  - Run it once for a play, with C(run_once). This is an action; the module is only its documentation.
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
  description: Of each host that is not refused, the variables of the host roles that its removal needs, with their defaults.
  type: dict
  returned: always
refused:
  description: Messages by host.
  type: dict
  returned: always
  sample: {}
left:
  description: What is left to do by people, a line each.
  type: list
  elements: str
  returned: always
"""
