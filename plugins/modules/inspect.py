#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: inspect
short_description: Show what the GPUs of all hosts of a play are divided into and what is taken
version_added: 0.1.0
description:
  - Prints, for every host of the play whose facts were read, each GPU's board, what it is divided into and how much of that is taken, and
    the extended resources that the cluster will see of the host.
  - The facts are those that M(gpufleet.nvidia.gpu_info) returned into the variable C(gpu_facts_host) of each host.
  - This is an action; the module is only its documentation.
options:
  format:
    description: What is printed.
    type: str
    choices: [table, json]
    default: table
  note:
    description: A line that is printed below the table, such as where rendered files are.
    type: str
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.reads
author:
  - The gpufleet.nvidia authors (@gpufleet)
seealso:
  - module: gpufleet.nvidia.gpu_info
"""

EXAMPLES = r"""
- name: Read every host
  gpufleet.nvidia.gpu_info:
  register: gpu_facts_host

- name: Show them
  gpufleet.nvidia.inspect:
  run_once: true
"""

RETURN = r"""
hosts:
  description: The facts document of every host.
  type: dict
  returned: success
capacity:
  description: For every host its pool, the extended resources and labels that the cluster must show, and the memory of a slice in MiB.
  type: dict
  returned: success
"""
