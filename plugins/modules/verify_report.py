#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: verify_report
short_description: Judge all hosts that were read, and their nodes in the cluster
version_added: 0.1.0
description:
  - Judges on the controller, from the facts that M(gpufleet.nvidia.gpu_info) returned into the variable C(gpu_facts_host) of each host with
    O(gpufleet.nvidia.gpu_info#module:gather) holding V(errors) and V(health), whether each is what its variables say, from the PCI bus upwards.
    What M(gpufleet.nvidia.health) found on a host, registered as C(gpu_verify_on_host), counts in place of that.
  - With O(kubeconfig) each host's node has to show what is predicted, as M(gpufleet.nvidia.verify_node) says for one.
  - Prints the checks of every host. Never fails for what they found; C(verify.yml) fails when RV(healthy) is false.
  - This is an action; the module is only its documentation.
options:
  hosts:
    description: The hosts to report.
    type: list
    elements: str
    required: true
  summary:
    description:
      - Leave out RV(hosts), which grow with the fleet. They are in O(report) all the same.
      - Ansible keeps what a task returns for every host, and copies it several times.
    type: bool
    default: false
  report:
    description: File on the controller for the report as JSON. Empty for none.
    type: path
    default: ""
  kubeconfig:
    description: File with the connection to the API server. Empty for none; then no node is looked at.
    type: path
    default: ""
  context:
    description: The context in it. Empty for its current one.
    type: str
    default: ""
  capacity:
    description: A rendered capacity.json, whose numbers and labels the nodes have to show. Empty for what follows from the variables.
    type: path
    default: ""
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.reads
author:
  - The gpufleet.nvidia authors (@gpufleet)
"""

EXAMPLES = r"""
- name: Report
  gpufleet.nvidia.verify_report:
    hosts: "{{ groups['gpu_hosts'] }}"
    report: build/verify.json
"""

RETURN = r"""
hosts:
  description: The checks of every host, whether it is healthy, and the first check that failed.
  type: dict
  returned: always
healthy:
  description: Whether no check of any host failed.
  type: bool
  returned: always
msg:
  description: One line for people - which hosts are not as described, or that all are.
  type: str
  returned: always
  sample: "1 of 3 hosts are not as described: gpu01."
"""
