#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: heal_node
short_description: Record how far the repair of a host is, and cordon its node or return it to service
version_added: 0.1.0
description:
  - Returns the record of the host at its next step, to be written on it, and marks its node in the cluster. The node is cordoned with the first
    step, and returned to service with the last - never one that people had cordoned.
  - A node is not taken out of service when that would be more than O(max_unavailable).
  - This is an action; the module is only its documentation. It runs on the controller.
options:
  node:
    description: Name of the node.
    type: str
    required: true
  state:
    description:
      - The step - V(started), V(repairing), V(proving), V(returning) - or how it ended.
      - V(done) is repaired and proven, V(failed) out of service until the next run tries what is stronger, V(handed-over) out of service until
        people looked at it, V(refused) in service as before, because nothing was repaired.
    type: str
    choices: [started, repairing, proving, returning, done, failed, handed-over, refused]
    required: true
  record:
    description: What was recorded before.
    type: dict
    default: {}
  plan:
    description: The plan of the host, as M(gpufleet.nvidia.heal_plan) returned it.
    type: dict
    default: {}
  forget:
    description: Whether what was tried before is forgotten.
    type: bool
    default: false
  reason:
    description: Why it failed, or was handed over.
    type: str
    default: ""
  bundle:
    description: The folder on the host with the bundle for people.
    type: str
    default: ""
  members:
    description: The nodes of the whole fleet, for O(max_unavailable).
    type: list
    elements: str
    default: []
  max_unavailable:
    description: How many of them may be out of service - a number, or a percentage, rounded down.
    type: str
    default: "25%"
  condition:
    description:
      - Type of a condition of the node that says whether its GPUs are healthy, such as V(GpusHealthy). Empty for none.
    type: str
    default: ""
  lease_namespace:
    description: Namespace of the Lease that this run has to hold. Empty for none.
    type: str
    default: ""
  lease_duration:
    description: Seconds after which a run that has not renewed its Lease has lost it.
    type: int
    default: 1800
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.changes
  - gpufleet.nvidia.cluster
author:
  - The gpufleet.nvidia authors (@gpufleet)
"""

EXAMPLES = r"""
- name: Cordon the node, because it is repaired now
  gpufleet.nvidia.heal_node:
    node: gpu-node-1
    state: started
    plan: "{{ plan.plans['gpu-node-1'] }}"
"""

RETURN = r"""
record:
  description: What is recorded now.
  type: dict
  returned: success
text:
  description: The same as the file on the host.
  type: str
  returned: success
"""
