#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: verify_node
short_description: Compare a node in the cluster with what its pool predicts
version_added: 0.1.0
description:
  - Compares allocatable and the labels of gpu-feature-discovery with what the host's GPUs and the variables of the roles predict.
  - If the GPU Operator's MIG manager partitions the GPUs (C(gpu_kubernetes_mig_manager=operator)), the state that it reports in the label
    C(nvidia.com/mig.config.state) is checked, too.
  - This is an action plugin; the module only documents it. It runs on the controller and requires the Python package C(kubernetes) there.
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
    description: Whether labels are compared, too.
    type: bool
    default: true
  capacity:
    description:
      - The C(capacity.json) of the node's cluster on the controller, as written by M(gpufleet.nvidia.render). If set, allocatable and labels, including
        the rendered labels of the node, are compared with its entry for the node, or with that for each node of the pool that the node joined
        (C(gpu_kubernetes_node_match)).
      - If empty, they are compared with what the host's GPUs and variables predict.
    type: path
    default: ""
  restart:
    description:
      - Label selectors of the pods of the node that are deleted first, so that their controllers restart them; not in check mode.
      - What the node offers counts only when pods of the same controllers have replaced them and are ready. Pods without a controller are not expected
        to return.
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds to wait until the node matches.
    type: int
    default: 0
  settle:
    description:
      - Seconds for which the node must match without interruption. A kubelet publishes the resources of device plugins every ten seconds, so until then
        the node offers what the previous plugin reported.
    type: int
    default: 0
  fail:
    description: Whether the action fails if the node does not match.
    type: bool
    default: true
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.reads
  - gpufleet.nvidia.cluster
  - gpufleet.nvidia.cluster.namespaces
author:
  - The gpufleet.nvidia authors (@gpufleet)
"""

EXAMPLES = r"""
- name: Check that the cluster shows what is predicted
  gpufleet.nvidia.verify_node:
    node: gpu-node-1
    facts: "{{ gpu_facts_host.gpu }}"
"""

RETURN = r"""
checks:
  description: The checks, in the format of M(gpufleet.nvidia.health).
  type: list
  elements: dict
  returned: always
healthy:
  description: Whether no check failed.
  type: bool
  returned: always
"""
