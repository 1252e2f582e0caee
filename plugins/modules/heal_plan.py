#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: heal_plan
short_description: Decide for all hosts of a run what is repaired, and how
version_added: 0.1.0
description:
  - Plans for each host the smallest action that can end its faults, by NVML's recovery action first and NVIDIA's catalogue of Xid errors where
    the driver does not tell, and by what was tried on the host before.
  - Fails, and repairs nothing, when more hosts than O(breaker_hosts) need a repair at once, or when O(breaker_same_xid) of them have the same
    Xid error.
  - A host that cannot be read, or that an upgrade or a repartition was cut off on, is refused, and the others go on.
  - Reads the variable C(gpu_facts_host) of each host (M(gpufleet.nvidia.gpu_info) with V(errors), V(health) and V(holders)), which a task before
    it registers. Changes nothing.
  - Run it once for a play, with C(run_once). This is an action; the module is only its documentation.
options:
  hosts:
    description: The hosts that were read.
    type: list
    elements: str
    required: true
  retry:
    description: Whether hosts that were handed over to people are tried again from the beginning.
    type: bool
    default: false
  recurrence:
    description: Seconds in which a fault that comes back counts as one that was not repaired.
    type: int
    default: 86400
  reboot:
    description: Whether hosts may be rebooted. Otherwise a host that needs it is handed over.
    type: bool
    default: true
  breaker_hosts:
    description: How many hosts may need a repair at once - a number, or a percentage of all hosts of the group C(gpu_hosts), rounded down.
    type: str
    default: "10%"
  breaker_same_xid:
    description: On how many hosts the same Xid error stops everything.
    type: int
    default: 3
  breaker_window:
    description: Seconds in which the repair of another node, by another run, counts as one of now.
    type: int
    default: 3600
  ignore_breaker:
    description: Whether to go on all the same.
    type: bool
    default: false
  condition:
    description:
      - Type of a condition of the nodes that says whether their GPUs are healthy. Nodes with nothing to repair get it with the status C(True); those that are
        repaired, or handed over, by M(gpufleet.nvidia.heal_node). Empty for none.
    type: str
    default: ""
  max_parallel:
    description: How many hosts are repaired at a time; 0 sets no limit.
    type: int
    default: 1
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.reads
  - gpufleet.nvidia.cluster
author:
  - The gpufleet.nvidia authors (@gpufleet)
seealso:
  - module: gpufleet.nvidia.gpu_repair
"""

EXAMPLES = r"""
- name: Plan the repairs
  gpufleet.nvidia.heal_plan:
    hosts: "{{ ansible_play_hosts_all }}"
  register: plan
  run_once: true
"""

RETURN = r"""
plans:
  description: >-
    By host, the C(action) (V(nothing), V(restart_service), V(drain), V(reset_gpu), V(reload_driver), V(reboot) or V(hand_over)), its C(faults),
    the C(gpus) and C(services) that it is about, the devices that are C(disturbed), the GPUs that are C(untouched), C(notes), and in which step
    or end the last repair of the host was (C(state_before)).
  type: dict
  returned: always
order:
  description: The hosts to work on, in order.
  type: list
  elements: str
  returned: always
refused:
  description: Why hosts are left alone, by host.
  type: dict
  returned: always
handed_over:
  description: Hosts that people have to look at since an earlier run, and why.
  type: dict
  returned: always
breaker:
  description: Why nothing may be repaired; empty where that is not so.
  type: str
  returned: always
nodes:
  description: The name of each host's node in the cluster.
  type: dict
  returned: always
members:
  description: The nodes of the whole fleet.
  type: list
  elements: str
  returned: always
serial:
  description: How many hosts are repaired at a time.
  type: int
  returned: always
"""
