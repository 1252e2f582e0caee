#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: upgrade_node
short_description: Record on a node how far a rollout is with it
version_added: 0.1.0
description:
  - Writes annotations below C(gpufleet.github.io/) to the Node object and, in the same change, cordons it with the first step and gives it back with
    the last one. A node that people had cordoned before stays cordoned.
  - This is an action; the module is only its documentation. It runs on the controller and needs the Python package C(kubernetes) there.
options:
  node:
    description: Name of the node.
    type: str
    required: true
  state:
    description: The step that begins, or how it ended.
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
  toolkit:
    description: The version of the container toolkit before the rollout. Empty when there was none.
    type: str
    default: ""
  target:
    description: What the rollout brings.
    type: str
    default: ""
  wave:
    description: The how-manyeth node of its rollout this one is.
    type: int
    default: 0
  reason:
    description: Why it failed.
    type: str
    default: ""
  lease_namespace:
    description: Namespace of the lease that is renewed. Empty for none.
    type: str
    default: ""
  lease_duration:
    description: Its duration in seconds.
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
  description: The record as it is now.
  type: dict
  returned: success
text:
  description: The record as the text of its file on the host.
  type: str
  returned: success
"""
