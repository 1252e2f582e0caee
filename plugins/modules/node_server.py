#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: node_server
short_description: Choose whether the device plugin or the DRA driver serves the GPUs of a node
version_added: 0.1.0
description:
  - Sets the label C(gpufleet.github.io/migrated-to) of a node. While a pool is migrated (C(nvidia_sharing_migrate_from)), the rendered releases of the
    device plugin and of the DRA driver select their nodes by it.
  - Refuses to do so if no DaemonSet would serve the node afterwards, as long as the tree with C(nvidia_sharing_migrate_from) was not applied.
  - Waits until the pods of the other side have left the node and, if the device plugin is to serve it, until its ResourceSlices are gone.
  - This is an action plugin; the module only documents it. It runs on the controller and requires the Python package C(kubernetes) there.
options:
  node:
    description: Name of the node.
    type: str
    required: true
  server:
    description: What serves the node's GPUs.
    type: str
    choices: [device-plugin, dra]
    required: true
  state:
    description:
      - V(chosen) sets the label and waits until the other side has left.
      - V(cleared) removes the device plugin's resources from the node's status, and reads back that they stay away. It must follow
        M(gpufleet.nvidia.kubelet_devices).
    type: str
    choices: [chosen, cleared]
    required: true
  timeout:
    description: Seconds to wait.
    type: int
    default: 300
  settle:
    description: Seconds for which removed resources must stay away; must be longer than C(nodeStatusUpdateFrequency) of the kubelet.
    type: int
    default: 15
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.changes
  - gpufleet.nvidia.cluster
  - gpufleet.nvidia.cluster.namespaces
seealso:
  - module: gpufleet.nvidia.kubelet_devices
author:
  - The gpufleet.nvidia authors (@gpufleet)
"""

EXAMPLES = r"""
- name: Have the DRA driver serve the node
  gpufleet.nvidia.node_server:
    node: gpu-node-1
    server: dra
    state: chosen
"""

RETURN = r"""
pods:
  description: UIDs of the pods on the node that have not ended.
  type: list
  elements: str
  returned: with O(state=chosen)
resources:
  description: The resources that would be removed.
  type: list
  elements: str
  returned: with O(state=cleared) in check mode
"""
