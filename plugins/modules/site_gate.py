#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: site_gate
short_description: Decide for all hosts of a run which of them have something to do
version_added: 0.1.0
description:
  - Plans the stages of every host and checks its health, on the controller, from the result of M(gpufleet.nvidia.gpu_info) with V(errors) and
    V(health) in O(gpufleet.nvidia.gpu_info#module:gather), registered as C(gpu_facts_host) of each host.
  - Fails, before any host is changed, if the description of a host is refused and its variable C(gpu_facts_skip_refused_hosts) is not true.
  - Prints one line for each pool.
  - Run it once per play, with C(run_once). This is an action plugin; the module only documents it.
options:
  hosts:
    description: The hosts that were read.
    type: list
    elements: str
    required: true
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.reads
author:
  - The gpufleet.nvidia authors (@gpufleet)
seealso:
  - module: gpufleet.nvidia.gpu_info
  - module: gpufleet.nvidia.fleet_plan
  - module: gpufleet.nvidia.host_plan
"""

EXAMPLES = r"""
- name: Read the host
  gpufleet.nvidia.gpu_info:
    gather: [errors, health]
  register: gpu_facts_host

- name: Decide which hosts have something to do
  gpufleet.nvidia.site_gate:
    hosts: "{{ ansible_play_hosts }}"
  register: gpu_site_gate
  run_once: true

- name: Add these hosts to the group of the next play
  ansible.builtin.add_host:
    name: "{{ item }}"
    groups: gpu_site_todo
  loop: "{{ gpu_site_gate.todo }}"
  changed_when: false
"""

RETURN = r"""
todo:
  description: Hosts that have a stage that must run, need a health check, have a description that is refused, or could not be read.
  type: list
  elements: str
  returned: always
  sample: [gpu-training-7]
to_change:
  description: The hosts in RV(todo) with a stage that must run.
  type: list
  elements: str
  returned: always
  sample: [gpu-training-7]
to_accept:
  description: Those of RV(to_change) that DCGM has to accept afterwards. A host on which only the host program and its units change is not one.
  type: list
  elements: str
  returned: always
  sample: [gpu-training-7]
refusals:
  description: Why descriptions cannot be met, each with C(thing), C(reason), C(remedy), the whole C(message), and the C(hosts) that it is about.
  type: list
  elements: dict
  returned: always
as_described:
  description: How many hosts have nothing to do.
  type: int
  returned: always
  sample: 199
"""
