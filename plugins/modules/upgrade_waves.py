#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: upgrade_waves
short_description: Decide which nodes of a rollout are worked on
version_added: 0.1.0
description:
  - Plans a rollout, lets a host wait until the budget has room for it, or ends the rollout. Cordoned nodes and nodes that are not ready
    count as unavailable. A node follows as soon as another ends.
  - A Lease in the cluster lets only one rollout run. A run on the same machine that has ended does not hold it.
  - What is known of each host is in its variables, which the role P(gpufleet.nvidia.gpu_upgrade#role) sets.
  - This is an action; the module is only its documentation. It runs on the controller and needs the Python package C(kubernetes) there.
options:
  state:
    description:
      - V(planned) takes the lease and returns the order of the hosts; all other options are those of the whole run.
      - V(next) waits until work on the host of the task may start, V(ended) says that it has ended.
      - V(finished) gives the lease back.
    type: str
    choices: [planned, next, ended, finished]
    default: planned
  target:
    description: What the rollout brings, for people. Records with another target belong to an older rollout.
    type: str
    default: ""
  hosts:
    description: The fleet.
    type: list
    elements: str
    default: []
  canary:
    description: How many nodes go first, and have to be done before any other starts.
    type: int
    default: 1
  max_parallel:
    description: How many nodes are worked on at a time. V(0) sets no limit of its own.
    type: int
    default: 1
  max_unavailable:
    description: How many nodes may be out of service, a number or a percentage.
    type: str
    default: "25%"
  max_failures:
    description: How many failed nodes are borne.
    type: int
    default: 0
  retry:
    description: Whether nodes that failed earlier are tried again.
    type: bool
    default: false
  wait:
    description: Seconds to wait for room that others take, or for a node to be ready, while this run works on no node.
    type: int
    default: 300
  lease_namespace:
    description: Namespace of the lease.
    type: str
    default: default
  lease_duration:
    description: Seconds after which a run that has not renewed its lease may be continued by another.
    type: int
    default: 1800
  take_over:
    description: Take the lease from whoever has it.
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
  description: Whether the host has to ask again. It learns then which hosts Ansible cannot reach any more.
  type: bool
  returned: with O(state=next)
record:
  description: How far an earlier run came with the host.
  type: dict
  returned: with O(state=next), when RV(start) is true
rolling_back:
  description: Whether a rollback has to be finished.
  type: bool
  returned: with O(state=next), when RV(start) is true
wave:
  description: The how-manyeth node of the rollout this one is.
  type: int
  returned: with O(state=next), when RV(start) is true
stopped:
  description: Why no further host starts, or V(none).
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
