#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: evict_gpu_pods
short_description: Evict the pods that hold GPUs from a node
version_added: 0.1.0
description:
  - Evicts, through the eviction API, the pods that request C(nvidia.com/gpu) or C(nvidia.com/mig-*), or have a resource claim. Disruption budgets are
    respected; pods of DaemonSets and other pods stay.
  - If one of these pods must not be evicted, none is evicted.
  - With O(mig_plan), only the pods on MIG devices that are destroyed are evicted; with O(devices), only those on these devices.
  - With O(every_pod), the node is drained.
  - This is an action plugin; the module only documents it. It runs on the controller and requires the Python package C(kubernetes) there.
options:
  node:
    description: Name of the node.
    type: str
    required: true
  mig_plan:
    description: The result of M(gpufleet.nvidia.mig) in check mode.
    type: dict
  devices:
    description: UUIDs of the only GPUs and MIG devices whose pods are evicted. If empty, none is. Not used with O(mig_plan).
    type: list
    elements: str
  checkpoint:
    description:
      - Content of the kubelet's C(/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint), for O(mig_plan) and O(devices).
    type: str
    default: ""
  holders:
    description:
      - UIDs of pods with a process that holds a GPU, as in RV(gpufleet.nvidia.gpu_info#module:gpu.holders).
      - They are evicted too, even if they did not request a GPU.
    type: list
    elements: str
    default: []
  device_holders:
    description: All processes that have a device file open, as in RV(gpufleet.nvidia.gpu_info#module:gpu.holders), for O(device_nodes).
    type: list
    elements: dict
    default: []
  device_nodes:
    description: Device files. The pods of the O(device_holders) that have one of them open are evicted too.
    type: list
    elements: str
    default: []
  every_pod:
    description: Whether the whole node is drained, including pods that use no GPU. Pods of DaemonSets and static pods of the kubelet stay.
    type: bool
    default: false
  force:
    description: Whether pods without a controller are evicted.
    type: bool
    default: false
  delete_empty_dir:
    description: Whether pods with emptyDir volumes are evicted.
    type: bool
    default: false
  timeout:
    description: Seconds within which all of these pods must have terminated.
    type: int
    default: 300
  poll:
    description: Seconds between two checks.
    type: float
    default: 3.0
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.changes
  - gpufleet.nvidia.cluster
author:
  - The gpufleet.nvidia authors (@gpufleet)
"""

EXAMPLES = r"""
- name: Evict the pods that hold GPUs
  gpufleet.nvidia.evict_gpu_pods:
    node: gpu-node-1

- name: Evict only the pods on one GPU
  gpufleet.nvidia.evict_gpu_pods:
    node: gpu-node-1
    devices: [GPU-e696dbe1-2a37-4ed5-a88a-f2a6db88df6f]
    checkpoint: "{{ checkpoint.content | b64decode }}"
"""

RETURN = r"""
evicted:
  description: The pods that were evicted, or in check mode would be.
  type: list
  elements: str
  returned: always
not_evicted:
  description: Why pods could not be evicted, by pod. Only this failure can be resolved by draining the whole node.
  type: dict
  returned: when pods could not be evicted
gone_devices:
  description: UUIDs of the devices that are destroyed or repaired.
  type: list
  elements: str
  returned: with O(mig_plan) or O(devices)
leave:
  description: Pods that hold one of these devices.
  type: list
  elements: str
  returned: with O(mig_plan) or O(devices)
in_use:
  description: Every device that pods hold, with the UIDs of these pods.
  type: dict
  returned: with O(mig_plan) or O(devices)
stay:
  description: Pods that hold other devices.
  type: list
  elements: str
  returned: with O(mig_plan) or O(devices)
"""
