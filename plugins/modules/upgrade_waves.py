#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: upgrade_waves
short_description: Decide which nodes of a rollout are upgraded next
version_added: 0.1.0
description:
  - Plans a rollout, makes a host wait until the budget allows another unavailable node, or finishes the rollout. Cordoned nodes and nodes that are not
    ready count as unavailable. The next node starts as soon as another has ended.
  - A Lease in the cluster allows only one rollout to run at a time. A run on the same machine that has ended does not hold it.
  - Reads the state of each host from its variables, which the role P(gpufleet.nvidia.gpu_upgrade#role) sets.
  - This is an action plugin; the module only documents it. It runs on the controller and requires the Python package C(kubernetes) there.
options:
  state:
    description:
      - V(planned) acquires the Lease and returns the order of the hosts; all other options apply to the whole run.
      - V(next) waits until work on the host of the task may start, V(ended) reports that it has ended.
      - V(finished) releases the Lease.
    type: str
    choices: [planned, next, ended, finished]
    default: planned
  work:
    description: What the run does with its nodes.
    type: str
    choices: [upgrade, migrate]
    default: upgrade
  target:
    description: What the rollout installs, as readable text. Records with another target belong to an older rollout.
    type: str
    default: ""
  hosts:
    description: The hosts of the fleet.
    type: list
    elements: str
    default: []
  canary:
    description: How many nodes go first and must succeed before any other starts.
    type: int
    default: 1
  max_parallel:
    description: How many nodes are upgraded at a time. V(0) sets no limit.
    type: int
    default: 1
  max_unavailable:
    description: How many nodes may be out of service - a number, or a percentage, rounded down.
    type: str
    default: "25%"
  max_failures:
    description: How many failed nodes are tolerated.
    type: int
    default: 0
  retry:
    description: Whether nodes that failed earlier are tried again.
    type: bool
    default: false
  wait:
    description: Seconds to wait until the budget allows another unavailable node, or until a node is ready, while this run works on no node.
    type: int
    default: 300
  lease_namespace:
    description: Namespace of the Lease.
    type: str
    default: default
  lease_duration:
    description: Seconds after which a run that has not renewed its Lease may be continued by another.
    type: int
    default: 1800
  take_over:
    description: Whether to take over the Lease from its current holder.
    type: bool
    default: false
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.changes
  - gpufleet.nvidia.cluster
author:
  - The gpufleet.nvidia authors (@gpufleet)
"""

EXAMPLES = r"""
- name: Plan the rollout
  gpufleet.nvidia.upgrade_waves:
    target: driver 580.178.04
    hosts: "{{ ansible_play_hosts_all }}"
    max_parallel: 4
  run_once: true
"""

RETURN = r"""
order:
  description: The hosts in the order in which they start.
  type: list
  elements: str
  returned: with O(state=planned)
start:
  description: Whether work on the host starts now.
  type: bool
  returned: with O(state=next)
wait:
  description: Whether the task must be repeated for the host. It then also detects hosts that Ansible can no longer reach.
  type: bool
  returned: with O(state=next)
record:
  description: The progress of an earlier run on the host.
  type: dict
  returned: with O(state=next), when RV(start) is true
turn:
  description:
    - What is done with the node now. V(upgrade) or V(migrate) as in O(work); V(revert) finishes a rollback after a failure, V(rollback) one that was
      started by hand. Empty where RV(start) is false.
  type: str
  returned: with O(state=next)
if_failed:
  description: How the node's turn ends if it fails before anything is recorded of it, as in M(gpufleet.nvidia.upgrade_node).
  type: dict
  returned: with O(state=next), when RV(start) is true
wave:
  description: The position of this node in the rollout.
  type: int
  returned: with O(state=next), when RV(start) is true
stopped:
  description: Why no other host starts, or V(none).
  type: str
  returned: with O(state=planned) and O(state=next)
report:
  description: The record of every host.
  type: dict
  returned: with O(state=finished)
complete:
  description: Whether every host is done.
  type: bool
  returned: with O(state=finished)
"""
