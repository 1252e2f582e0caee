#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: heal_plan
short_description: Decide for all hosts of a run what to repair, and how
version_added: 0.1.0
description:
  - Plans the least disruptive action that can resolve the faults of each host, from NVML's recovery action, or NVIDIA's catalogue of Xid errors if
    the driver reports none but shows the error in another way than in the kernel log, and from earlier attempts on the host.
  - Fails and repairs nothing if more hosts than O(breaker_hosts) need a repair at once, or if O(breaker_same_xid) of them have the same Xid error.
  - A host that cannot be read, or on which an upgrade or a repartition was interrupted, is refused; the others continue.
  - Reads the variable C(gpu_facts_host) of each host, which an earlier task registers from M(gpufleet.nvidia.gpu_info) with V(errors), V(health) and
    V(holders). Changes nothing.
  - Run it once per play, with C(run_once). This is an action plugin; the module only documents it.
options:
  hosts:
    description: The hosts that were read.
    type: list
    elements: str
    required: true
  retry:
    description: Whether hosts that were handed over for manual repair are tried again from the beginning.
    type: bool
    default: false
  recurrence:
    description: Seconds within which a fault that returns counts as not repaired.
    type: int
    default: 86400
  reboot:
    description: Whether hosts may be rebooted. Otherwise, a host that needs a reboot is handed over for manual repair.
    type: bool
    default: true
  breaker_hosts:
    description: How many hosts may need a repair at once - a number, or a percentage of all hosts of the group C(gpu_hosts), rounded down.
    type: str
    default: "10%"
  breaker_same_xid:
    description: The number of hosts with the same Xid error at which nothing is repaired.
    type: int
    default: 3
  breaker_window:
    description: Seconds for which a repair of another node by another run counts towards the breaker.
    type: int
    default: 3600
  ignore_breaker:
    description: Whether to repair even though the breaker has tripped.
    type: bool
    default: false
  condition:
    description:
      - Type of the node condition that reports whether the GPUs are healthy. Nodes with nothing to repair get it with the status C(True); for nodes
        that are repaired or handed over, M(gpufleet.nvidia.heal_node) writes it. If empty, none is written.
    type: str
    default: ""
  max_parallel:
    description: How many hosts are repaired at a time. V(0) sets no limit.
    type: int
    default: 1
  proves:
    description:
      - Whether to fail if a fault is left on O(hosts), which were repaired, and to do nothing else. Reads the variable C(gpu_heal_now) of each,
        registered from M(gpufleet.nvidia.gpu_info) with V(errors) and V(health).
      - Errors that the kernel logged before are not faults.
    type: bool
    default: false
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
    the affected C(gpus) and C(services), the devices that are C(disturbed), the GPUs that are C(untouched), C(notes), the step or outcome of the
    host's last repair (C(state_before)), and how its turn ends if it fails at once (C(if_failed), as in M(gpufleet.nvidia.heal_node)).
  type: dict
  returned: always
order:
  description: The hosts to repair, in order.
  type: list
  elements: str
  returned: always
refusals:
  description: Why hosts are skipped, each with C(thing), C(reason), C(remedy), the whole C(message), and the C(hosts) that it is about.
  type: list
  elements: dict
  returned: always
handed_over:
  description: Hosts that an earlier run handed over for manual repair, and why.
  type: dict
  returned: always
breaker:
  description: Why nothing may be repaired. Empty if repairs are allowed.
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
