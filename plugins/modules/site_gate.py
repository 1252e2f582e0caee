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
  - Plans the stages of every host and judges its health, on the controller, from the facts that M(gpufleet.nvidia.gpu_info) returned into the
    variable C(gpu_facts_host) of each host with O(gpufleet.nvidia.gpu_info#module:gather) holding V(errors) and V(health).
  - Fails, before any host is changed, where the description of one is refused whose variable C(gpu_facts_skip_refused_hosts) is not true.
  - Prints one line for each pool.
  - Run it once for a play, with C(run_once). This is an action; the module is only its documentation.
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

- name: Let them enter the next play
  ansible.builtin.add_host:
    name: "{{ item }}"
    groups: gpu_site_todo
  loop: "{{ gpu_site_gate.todo }}"
  changed_when: false
"""

RETURN = r"""
todo:
  description: Hosts with a stage that has to run, whose health has to be looked at, whose description is refused, or that could not be read.
  type: list
  elements: str
  returned: always
  sample: [gpu-training-7]
to_change:
  description: Those of them with a stage that has to run.
  type: list
  elements: str
  returned: always
  sample: [gpu-training-7]
refused:
  description: Hosts of which something is refused.
  type: list
  elements: str
  returned: always
  sample: []
as_described:
  description: How many hosts have nothing to do.
  type: int
  returned: always
  sample: 199
"""
