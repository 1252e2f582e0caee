#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rack_drivers
short_description: Say which NVL72 racks have hosts with two driver versions
version_added: 0.1.0
description:
  - An IMEX domain forms only among hosts with one driver version. Warns of each rack whose hosts have more than one, and says how to make it whole.
  - This is an action plugin; the module only documents it.
options:
  racks:
    description: The inventory groups of the racks.
    type: list
    elements: str
    required: true
  read:
    description:
      - The results of a loop of M(ansible.builtin.slurp) over the hosts of the racks that reads C(/sys/module/nvidia/version). Hosts that were not
        reached, or have no driver loaded, are not compared.
    type: list
    elements: dict
    required: true
  rolled_back:
    description: The hosts that were rolled back in this run.
    type: list
    elements: str
    required: true
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.reads
author:
  - The gpufleet.nvidia authors (@gpufleet)
seealso:
  - module: gpufleet.nvidia.upgrade_waves
"""

EXAMPLES = r"""
- name: Read the driver of each host of a rack
  ansible.builtin.slurp:
    src: /sys/module/nvidia/version
  loop: "{{ groups['rack_a'] }}"
  delegate_to: "{{ item }}"
  run_once: true
  register: drivers
  failed_when: false

- name: Say whether the rack has two driver versions
  gpufleet.nvidia.rack_drivers:
    racks: [rack_a]
    read: "{{ drivers.results }}"
    rolled_back: "{{ ansible_play_hosts_all }}"
  run_once: true
"""

RETURN = r"""
mixed_racks:
  description: For each rack with more than one driver version, by its name, what that means and how to make it whole.
  returned: always
  type: dict
  sample: {}
"""
