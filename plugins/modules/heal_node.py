#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: heal_node
short_description: Record the progress of the repair of a host, and cordon its node or return it to service
version_added: 0.1.0
description:
  - Returns the record of the host for its next step, to be written to the host, and annotates its node in the cluster. The first step cordons the
    node, the last returns it to service, unless the node was already cordoned by somebody else.
  - A node is not taken out of service if that would exceed O(max_unavailable).
  - This is an action plugin; the module only documents it. It runs on the controller.
options:
  node:
    description: Name of the node.
    type: str
    required: true
  state:
    description:
      - The step - V(started), V(repairing), V(proving), V(returning) - or the outcome.
      - V(done) means repaired and verified, V(failed) out of service until the next run tries a stronger action, V(handed-over) out of service until
        it is repaired manually, V(refused) in service as before, because nothing was repaired.
    type: str
    choices: [started, repairing, proving, returning, done, failed, handed-over, refused]
    required: true
  record:
    description: The previous record.
    type: dict
    default: {}
  plan:
    description: The plan of the host, as M(gpufleet.nvidia.heal_plan) returned it.
    type: dict
    default: {}
  forget:
    description: Whether to discard the record of earlier attempts.
    type: bool
    default: false
  reason:
    description: Why the repair failed, or the host was handed over for manual repair.
    type: str
    default: ""
  bundle:
    description: The directory on the host with the support bundle.
    type: str
    default: ""
  members:
    description: The nodes of the whole fleet, for O(max_unavailable).
    type: list
    elements: str
    default: []
  max_unavailable:
    description: How many of these nodes may be out of service - a number, or a percentage, rounded down.
    type: str
    default: "25%"
  condition:
    description:
      - Type of the node condition that reports whether the GPUs are healthy, such as V(GpusHealthy). If empty, none is written.
    type: str
    default: ""
  lease_namespace:
    description: Namespace of the Lease that this run must hold. If empty, no Lease is needed.
    type: str
    default: ""
  lease_duration:
    description: Seconds after which a run that has not renewed its Lease loses it.
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
- name: Cordon the node before its repair
  gpufleet.nvidia.heal_node:
    node: gpu-node-1
    state: started
    plan: "{{ plan.plans['gpu-node-1'] }}"
"""

RETURN = r"""
record:
  description: The new record.
  type: dict
  returned: success
if_failed:
  description: How the host's turn ends if it fails now. Empty where nothing is to be recorded.
  type: dict
  returned: success
  contains:
    state:
      description: What is recorded, V(failed) or V(refused).
      type: str
    untouched:
      description: The same where the repair itself was refused before it touched anything.
      type: str
text:
  description: The same as the content of the file on the host.
  type: str
  returned: success
"""
