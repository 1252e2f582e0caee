#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: evict_gpu_pods
short_description: Empty a node of the pods that hold GPUs
version_added: 0.1.0
description:
  - Evicts, through the eviction API, the pods that asked for C(nvidia.com/gpu), C(nvidia.com/mig-*) or have a resource claim. Disruption budgets
    are respected; pods of DaemonSets and other pods stay.
  - When one of them must not be evicted, none is touched.
  - With O(mig_plan) only the pods on MIG devices that go are evicted, with O(devices) only those on these devices.
  - With O(every_pod) the node is drained. M(kubernetes.core.k8s_drain) takes pods that did not leave in time for a success, gives up at the first
    budget that has no room at the moment, and counts emptyDir volumes of DaemonSets.
  - This is an action; the module is only its documentation. It runs on the controller and needs the Python package C(kubernetes) there.
options:
  node:
    description: Name of the node.
    type: str
    required: true
  mig_plan:
    description: The result of M(gpufleet.nvidia.mig) in check mode.
    type: dict
  devices:
    description: UUIDs of the GPUs and MIG devices whose pods are evicted, and no others. Empty for none. Not used with O(mig_plan).
    type: list
    elements: str
  checkpoint:
    description:
      - Content of the kubelet's C(/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint), for O(mig_plan) and O(devices).
    type: str
    default: ""
  holders:
    description:
      - UIDs of pods of which a process holds a GPU, as RV(gpufleet.nvidia.gpu_info#module:gpu.holders) has them.
      - They are evicted too, although they did not ask for a GPU.
    type: list
    elements: str
    default: []
  device_holders:
    description: All processes that have a device file open, as RV(gpufleet.nvidia.gpu_info#module:gpu.holders) has them, for O(device_nodes).
    type: list
    elements: dict
    default: []
  device_nodes:
    description: Device files. The pods of those of O(device_holders) that have one of them open are evicted too.
    type: list
    elements: str
    default: []
  every_pod:
    description: Whether the whole node is emptied, pods that use no GPU among them. Pods of DaemonSets and static pods of the kubelet stay.
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
    description: Seconds in which all of them have to have left.
    type: int
    default: 300
  poll:
    description: Seconds between two looks.
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
  description: The pods that left, or in check mode would.
  type: list
  elements: str
  returned: always
not_evicted:
  description: Why pods could not be evicted, by pod. A drain of the whole node can help against that, and against no other failure.
  type: dict
  returned: when pods could not be evicted
gone_devices:
  description: UUIDs of the devices that go.
  type: list
  elements: str
  returned: with O(mig_plan) or O(devices)
leave:
  description: Pods that hold one of them.
  type: list
  elements: str
  returned: with O(mig_plan) or O(devices)
in_use:
  description: Every device that a pod holds, with the UIDs of the pods.
  type: dict
  returned: with O(mig_plan) or O(devices)
stay:
  description: Pods that hold other devices.
  type: list
  elements: str
  returned: with O(mig_plan) or O(devices)
"""
