#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: host_plan
short_description: Plan what each stage would do on a host, from facts and variables only
version_added: 0.1.0
description:
  - Checks the variables of all host roles (types, choices, misspelled names) and plans the stages of a host, on the controller, without a connection.
  - Fails if the host can never reach the desired state, before anything is changed.
  - This is an action plugin; the module only documents it.
options:
  facts:
    description: RV(gpufleet.nvidia.gpu_info#module:gpu) of M(gpufleet.nvidia.gpu_info).
    type: dict
    required: true
  show:
    description:
      - Whether to print the plan, one line for each step.
      - Defaults to V(true) in check mode and to V(false) otherwise.
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
  description: The stages that must run, in order.
  type: list
  elements: str
  returned: always
  sample: [driver, mig]
metrics_directory:
  description: The directory that the host writes metrics to. Empty if it writes none.
  type: str
  returned: success
  sample: /var/lib/prometheus/node-exporter
stages:
  description: The plan of every stage, by name.
  type: dict
  returned: always
  contains:
    verdict:
      description: >-
        V(as described), V(to change), V(impossible), or V(unread) if the facts do not tell.
      type: str
    needed:
      description: Whether the stage must run. V(false) only if the facts prove that there is nothing to do.
      type: bool
    steps:
      description: >-
        What the stage would do. Each step has C(kind) and C(target), identifiers that do not depend on the wording, C(data), C(text), and the parts
        C(why) and C(disturbs) of the text.
      type: list
      elements: dict
    unknown:
      description: Why the plan cannot be complete yet, or null.
      type: str
    warnings:
      description: What you should know, although it does not block the plan.
      type: list
      elements: str
refusals:
  description: Why the desired state cannot be reached, each with C(thing), C(reason), C(remedy) and the whole C(message).
  type: list
  elements: dict
  returned: when there are any
"""
