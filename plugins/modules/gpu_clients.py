#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: gpu_clients
short_description: Pause and resume a cluster's own GPU pods on a node
version_added: 0.1.0
description:
  - The device plugin, gpu-feature-discovery and the metrics exporter hold the driver, and an eviction does not remove pods of a DaemonSet
    permanently.
  - Labels the node C(gpufleet.github.io/gpu-clients=paused), which the node affinity of the charts from M(gpufleet.nvidia.render) excludes, and sets
    the labels C(nvidia.com/gpu.deploy.*) of the GPU Operator's operands that are V(true) to C(paused-for-driver-upgrade).
  - Waits until the pods of the DaemonSets that these labels affect have terminated, or are ready again. The node selectors and affinities determine
    which DaemonSets these are. A DaemonSet that excludes neither label stays and keeps holding the driver.
  - This is an action plugin; the module only documents it. It runs on the controller and requires the Python package C(kubernetes) there.
options:
  node:
    description: Name of the node.
    type: str
    required: true
  state:
    description: Whether the pods are paused or resumed.
    type: str
    choices: [paused, resumed]
    required: true
  timeout:
    description: Seconds to wait for the pods.
    type: int
    default: 300
  poll:
    description: Seconds between two checks.
    type: float
    default: 2.0
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.changes
  - gpufleet.nvidia.cluster
  - gpufleet.nvidia.cluster.namespaces
author:
  - The gpufleet.nvidia authors (@gpufleet)
"""

EXAMPLES = r"""
- name: Remove the cluster's GPU clients from the node
  gpufleet.nvidia.gpu_clients:
    node: gpu-node-1
    state: paused
"""

RETURN = r"""
clients:
  description: The DaemonSets that the labels affect.
  type: list
  elements: str
  returned: success
labels:
  description: The labels that were changed. V(none) for a label that was removed.
  type: dict
  returned: success
"""
