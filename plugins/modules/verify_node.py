#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: verify_node
short_description: Compare what the cluster shows of a node with what its pool predicts
version_added: 0.1.0
description:
  - Compares allocatable and the labels of gpu-feature-discovery with what the host's GPUs and the variables of the roles predict.
  - Where the GPU Operator's MIG manager partitions the GPUs (C(gpu_kubernetes_mig_manager=operator)), what it says in the label
    C(nvidia.com/mig.config.state) is checked as well.
  - This is an action; the module is only its documentation. It runs on the controller and needs the Python package C(kubernetes) there.
options:
  node:
    description: Name of the node.
    type: str
    required: true
  facts:
    description: The facts document of M(gpufleet.nvidia.gpu_info).
    type: dict
    required: true
  labels:
    description: Whether labels are compared too.
    type: bool
    default: true
  capacity:
    description:
      - The C(capacity.json) of the node's cluster on the controller, as M(gpufleet.nvidia.render) wrote it. Allocatable and labels are then
        compared with what it says of the node, the rendered labels of the node with them.
      - Empty compares with what the host's GPUs and its variables predict.
    type: path
    default: ""
  restarted:
    description:
      - Pods of the node that were just deleted so that they start anew, as M(kubernetes.core.k8s_info) has them.
      - What the node offers counts when pods of the same controllers have taken their places and are ready. Those without a controller are not
        expected back.
    type: list
    elements: dict
    default: []
  timeout:
    description: Seconds to wait until they agree.
    type: int
    default: 0
  settle:
    description:
      - Seconds for which they have to agree without a break. A kubelet writes every ten seconds what device plugins tell it, so until then the
        node offers what the plugin of before had said.
    type: int
    default: 0
  fail:
    description: Whether the action fails when they do not.
    type: bool
    default: true
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.reads
  - gpufleet.nvidia.cluster
author:
  - The gpufleet.nvidia authors (@gpufleet)
"""

EXAMPLES = r"""
- name: The cluster sees what is predicted
  gpufleet.nvidia.verify_node:
    node: gpu-node-1
    facts: "{{ gpu_facts_host.gpu }}"
"""

RETURN = r"""
checks:
  description: The checks, as those of M(gpufleet.nvidia.health).
  type: list
  elements: dict
  returned: always
healthy:
  description: Whether none failed.
  type: bool
  returned: always
"""
