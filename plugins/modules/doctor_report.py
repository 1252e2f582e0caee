#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: doctor_report
short_description: Report what hosts are, what is wrong with them, and what site would do
version_added: 0.1.0
description:
  - Reports what a host is, which of its health checks fail, and what C(gpufleet.nvidia.site) would do with the variables that the host has, or with
    the roles' defaults. It runs on the controller and uses the result of M(gpufleet.nvidia.gpu_info) with V(errors), V(health) and V(holders) in
    O(gpufleet.nvidia.gpu_info#module:gather), registered as C(gpu_facts_host) of each host.
  - The host needs no description, and nothing from this collection needs to be installed on it.
  - Never fails because of its findings; C(doctor.yml) fails when RV(healthy) is false.
  - This is an action plugin; the module only documents it.
options:
  hosts:
    description: The hosts to report on.
    type: list
    elements: str
    required: true
  report:
    description: File on the controller to which the report is written as JSON, readable only by its owner. If empty, none is written.
    type: path
    default: ""
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.reads
author:
  - The gpufleet.nvidia authors (@gpufleet)
"""

EXAMPLES = r"""
- name: Write a report on all hosts
  gpufleet.nvidia.doctor_report:
    hosts: "{{ ansible_play_hosts_all }}"
    report: build/doctor.json
"""

RETURN = r"""
hosts:
  description: >-
    For every host, what it is (C(identity)), its checks, whether it is healthy, the first failed check, the plan of every stage,
    and their C(verdict).
  type: dict
  returned: always
healthy:
  description: Whether no check of any host failed.
  type: bool
  returned: always
msg:
  description: A one-line summary - which hosts have a problem, or that none has.
  type: str
  returned: always
  sample: "Something is wrong with 1 of 3 hosts: gpu01."
"""
