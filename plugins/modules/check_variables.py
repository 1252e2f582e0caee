#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: check_variables
short_description: Check the variables of a playbook before anything is touched
version_added: 0.1.0
description:
  - Checks, for all hosts of a play at once, names, types and values of the variables that a playbook reads. Those that only
    a playbook has are documented by P(gpufleet.nvidia.playbooks#role).
  - A name that is nearly that of a variable is refused with the name that may be meant; another name that begins as they do warns.
  - The variables that describe a host are checked by M(gpufleet.nvidia.host_plan).
  - This is an action; the module is only its documentation.
options:
  playbook:
    description: The playbook whose variables are checked.
    type: str
    choices: [heal, inspect, plan, repartition, rollback, upgrade, verify]
    required: true
  hosts:
    description:
      - The hosts whose variables are checked.
      - Left out, all of the play.
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
  description: What cannot be taken.
  type: list
  elements: dict
  returned: always
  contains:
    message:
      description: The variable, what is wrong with it, and what would be taken.
      type: str
    hosts:
      description: The hosts that have it.
      type: list
      elements: str
"""
