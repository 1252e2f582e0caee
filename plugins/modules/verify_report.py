#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: verify_report
short_description: Show what the checks of all hosts found
version_added: 0.1.0
description:
  - Prints the checks of M(gpufleet.nvidia.health), registered as C(nvidia_health_result) on each host, and those of M(gpufleet.nvidia.verify_node),
    registered as C(gpu_verify_node). Never fails for what they found; C(verify.yml) fails when RV(healthy) is false.
  - This is an action; the module is only its documentation.
options:
  hosts:
    description: The hosts to report.
    type: list
    elements: str
    required: true
  report:
    description: File on the controller for the report as JSON. Empty for none.
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
