#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: node
short_description: Read, annotate and cordon a node, and wait for its pods
version_added: 0.1.0
description:
  - Reads a node of the cluster; where O(annotations) or O(unschedulable) say something else, both are changed in one call.
  - Waits before that until no pod of O(without_pods) runs on the node.
  - This is an action plugin; the module only documents it. It runs on the controller and requires the Python package C(kubernetes) there.
options:
  node:
    description: Name of the node.
    type: str
    required: true
  annotations:
    description: Annotations to set. A null removes one; others stay.
    type: dict
    default: {}
  unschedulable:
    description: Whether the node is cordoned. If not set, it stays as it is.
    type: bool
  without_pods:
    description: Label selector of the pods to wait for, such as C(app=training). Pods that have ended do not count. If empty, none.
    type: str
    default: ""
  timeout:
    description: Seconds to wait for them.
    type: int
    default: 3600
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.changes
  - gpufleet.nvidia.cluster
author:
  - The gpufleet.nvidia authors (@gpufleet)
"""

EXAMPLES = r"""
- name: Wait until the jobs on the node have ended
  gpufleet.nvidia.node:
    node: gpu-node-1
    without_pods: app=training
    timeout: 3600
"""

RETURN = r"""
annotations:
  description: The annotations of the node before the change. Empty if the cluster has no such node.
  type: dict
  returned: success
labels:
  description: Its labels. Empty if the cluster has no such node.
  type: dict
  returned: success
unschedulable:
  description: Whether it was cordoned before the change.
  type: bool
  returned: success
"""
