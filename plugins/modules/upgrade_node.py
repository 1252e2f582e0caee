#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: upgrade_node
short_description: Record the progress of a rollout on a node
version_added: 0.1.0
description:
  - Writes annotations with the prefix C(gpufleet.github.io/) to the Node object and, in the same change, cordons the node with the first step and
    uncordons it with the last. A node that was already cordoned by somebody else stays cordoned.
  - This is an action plugin; the module only documents it. It runs on the controller and requires the Python package C(kubernetes) there.
options:
  node:
    description: Name of the node.
    type: str
    required: true
  state:
    description: The step that begins, or the outcome.
    type: str
    choices: [started, waiting-for-jobs, evicting, installing, verifying, rolling-back, returning, done, failed, refused]
    required: true
  record:
    description: The record so far, for hosts that are in no cluster.
    type: dict
    default: {}
  origin:
    description: The driver version before the rollout.
    type: str
    default: ""
  driver:
    description: The driver version of the host now. Empty if none is loaded.
    type: str
    default: ""
  toolkit:
    description: The version of the container toolkit before the rollout. Empty if there was none.
    type: str
    default: ""
  kernel:
    description: The release of the running kernel before the rollout. Empty if the rollout does not change it.
    type: str
    default: ""
  target:
    description: What the rollout installs.
    type: str
    default: ""
  wave:
    description: The position of this node in its rollout.
    type: int
    default: 0
  reason:
    description: Why the node failed.
    type: str
    default: ""
  lease_namespace:
    description: Namespace of the Lease to renew. If empty, none is renewed.
    type: str
    default: ""
  lease_duration:
    description: Duration of the Lease in seconds.
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
- name: Record and cordon
  gpufleet.nvidia.upgrade_node:
    node: gpu-node-1
    state: started
    origin: 580.126.09
    target: driver 580.178.04
"""

RETURN = r"""
record:
  description: The new record.
  type: dict
  returned: success
if_failed:
  description: How the node's turn ends if it fails now.
  type: dict
  returned: success
  contains:
    state:
      description: What is recorded, V(failed) or V(refused).
      type: str
    uncordon:
      description: Whether the node returns to service, because nothing of its host was changed.
      type: bool
    revert:
      description: Whether the host was changed, so that a rollback has something to restore.
      type: bool
text:
  description: The new record as the content of its file on the host.
  type: str
  returned: success
"""
