#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: doctor_report
short_description: Say of hosts what they are, what is wrong with them, and what site would do
version_added: 0.1.0
description:
  - Says on the controller, from the facts that M(gpufleet.nvidia.gpu_info) returned into the variable C(gpu_facts_host) of each host with
    O(gpufleet.nvidia.gpu_info#module:gather) holding V(errors), V(health) and V(holders), what a host is, which checks of its health fail, and
    what C(gpufleet.nvidia.site) would do with the variables that it has, or with the roles' defaults.
  - Nobody has to have described the host, and nothing of this collection has to be on it.
  - Never fails for what it finds; C(doctor.yml) fails when RV(healthy) is false.
  - This is an action; the module is only its documentation.
options:
  hosts:
    description: The hosts to report.
    type: list
    elements: str
    required: true
  report:
    description: File on the controller for the report as JSON, readable by its owner alone. Empty for none.
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
  gpufleet.nvidia.doctor_report:
    hosts: "{{ ansible_play_hosts_all }}"
    report: build/doctor.json
"""

RETURN = r"""
hosts:
  description: Of every host what it is (C(identity)), its checks, whether it is healthy, the first check that failed, and the plan of every stage.
  type: dict
  returned: always
healthy:
  description: Whether no check of any host failed.
  type: bool
  returned: always
msg:
  description: One line for people - what is wrong with which hosts, or that nothing is.
  type: str
  returned: always
  sample: "Something is wrong with 1 of 3 hosts: gpu01."
"""
