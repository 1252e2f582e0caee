#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: check_variables
short_description: Check the variables of a playbook before anything is changed
version_added: 0.1.0
description:
  - Checks names, types and values of the variables that a playbook reads, for all hosts of a play at once. P(gpufleet.nvidia.playbooks#role)
    documents the variables that only a playbook has.
  - A name that is similar to that of a variable is refused with a suggestion; any other unknown name with the same prefix causes a warning.
  - What describes a host is checked, too, as far as no host is needed for it, which is all but what depends on the host's system and on what it has
    now. Boards, and with them the layout and the sharing, are checked if C(gpu_facts_gpus) describes them. Playbooks that change a host by its
    description are refused; the others print what is wrong and continue.
  - This is an action plugin; the module only documents it.
options:
  playbook:
    description: The playbook whose variables are checked.
    type: str
    choices: [adopt, doctor, heal, inspect, migrate, plan, remove, render, repartition, rollback, site, upgrade, verify]
    required: true
  hosts:
    description:
      - The hosts whose variables are checked.
      - Defaults to all hosts of the play.
    type: list
    elements: str
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.reads
author:
  - The gpufleet.nvidia authors (@gpufleet)
seealso:
  - module: gpufleet.nvidia.host_plan
"""

EXAMPLES = r"""
- name: Check the variables
  gpufleet.nvidia.check_variables:
    playbook: upgrade
  run_once: true
"""

RETURN = r"""
refusals:
  description: Why variables cannot be used, each with C(thing), C(reason), C(remedy), the whole C(message), and the C(hosts) that it is about.
  type: list
  elements: dict
  returned: always
"""
