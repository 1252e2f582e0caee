#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: verify_report
short_description: Check all hosts that were read, and their nodes in the cluster
version_added: 0.1.0
description:
  - Checks on the controller whether each host is as its variables describe it, which the plan of its stages says, and whether it works, from the PCI
    bus upwards. Uses the result of M(gpufleet.nvidia.gpu_info) with V(errors) and V(health) in O(gpufleet.nvidia.gpu_info#module:gather),
    registered as C(gpu_facts_host) of each host. Checks in a result of M(gpufleet.nvidia.health) from the host, registered as
    C(gpu_verify_on_host), are used instead of its own.
  - With O(kubeconfig), each host's node must show what is predicted, as M(gpufleet.nvidia.verify_node) checks for a single node.
    The namespaces of the cluster's own plugins are C(gpu_kubernetes_namespace) and C(gpu_node_plugin_namespaces) of the host.
  - Prints the checks of every host. Never fails because of their findings; C(verify.yml) fails when RV(healthy) is false.
  - This is an action plugin; the module only documents it.
options:
  hosts:
    description: The hosts to report.
    type: list
    elements: str
    required: true
  summary:
    description:
      - Whether to omit RV(hosts), which grows with the fleet. O(report) still contains it.
      - Ansible keeps the result of a task for every host, and copies it several times.
    type: bool
    default: false
  report:
    description: File on the controller to which the report is written as JSON. If empty, none is written.
    type: path
    default: ""
  kubeconfig:
    description: A kubeconfig on the controller. If empty, no node is checked.
    type: path
    default: ""
  context:
    description: The context in that kubeconfig. If empty, its current context.
    type: str
    default: ""
  capacity:
    description: A rendered C(capacity.json) whose numbers and labels the nodes must show. If empty, they must show what the variables predict.
    type: path
    default: ""
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.reads
author:
  - The gpufleet.nvidia authors (@gpufleet)
"""

EXAMPLES = r"""
- name: Check all hosts and write a report
  gpufleet.nvidia.verify_report:
    hosts: "{{ groups['gpu_hosts'] }}"
    report: build/verify.json
"""

RETURN = r"""
hosts:
  description:
    - The checks of every host, whether it is healthy, and the first check that failed.
    - Each check has a C(group). In V(description), there is a failed check, called V(stage mig) and so on, for every step that C(site) would take,
      with its text as C(evidence). V(function) is everything else.
  type: dict
  returned: always
healthy:
  description: Whether no check of any host failed.
  type: bool
  returned: always
msg:
  description: A one-line summary - which hosts are not as described, or that all are.
  type: str
  returned: always
  sample: "1 of 3 hosts are not as described, or do not work: gpu01."
"""
