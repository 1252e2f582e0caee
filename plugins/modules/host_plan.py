#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: host_plan
short_description: Decide what each stage would do on a host, from facts and variables alone
version_added: 0.1.0
description:
  - Checks the variables of all host roles (types, choices, misspelt names) and plans the stages C(driver), C(toolkit), C(runtime),
    C(mig) and C(sharing) of a host, on the controller, without a connection.
  - A desired state that can never be met on the host fails here, before anything is touched.
  - This is an action; the module is only its documentation.
options:
  facts:
    description: What M(gpufleet.nvidia.gpu_info) returned under RV(gpufleet.nvidia.gpu_info#module:gpu).
    type: dict
    required: true
  show:
    description:
      - Print the plan, a line for each step.
      - The default is V(true) in check mode and V(false) otherwise.
    type: bool
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.reads
author:
  - The gpufleet.nvidia authors (@gpufleet)
seealso:
  - module: gpufleet.nvidia.gpu_info
"""

EXAMPLES = r"""
- name: Read the host
  gpufleet.nvidia.gpu_info:
  register: host

- name: What would site.yml do?
  gpufleet.nvidia.host_plan:
    facts: "{{ host.gpu }}"
    show: true
"""

RETURN = r"""
pool:
  description: The pool of the host.
  type: str
  returned: success
  sample: training
needed:
  description: The stages that have to run, in order.
  type: list
  elements: str
  returned: always
  sample: [driver, mig]
stages:
  description: The plan of every stage, by name.
  type: dict
  returned: always
  contains:
    needed:
      description: Whether the stage has to run; false only when the facts prove that nothing is to do.
      type: bool
    steps:
      description: >-
        What it would do; each with C(kind) and C(target), which are keys that do not change with the words, C(data), C(text), and of the
        text C(why) and C(disturbs).
      type: list
      elements: dict
    unknown:
      description: Why the plan cannot be complete yet, or null.
      type: str
    warnings:
      description: What the user should know although it stops nothing.
      type: list
      elements: str
refusals:
  description: DesiredLayout that cannot be met, each with thing, reason and remedy.
  type: list
  elements: dict
  returned: when there are any
"""
