#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: host_module
short_description: Run a module of Ansible's own on a GPU host and take nothing but its result
version_added: 0.1.0
description:
  - Ansible takes C(ansible_facts) of the result of any module for variables, which stand above the inventory. A host that was broken into
    could name a command or a path for the controller by that.
  - This runs one module of C(ansible.builtin) and leaves out of its result whatever would become a variable, a host or a group, and
    control characters.
  - This is an action; the module is only its documentation.
options:
  command:
    description: Options of M(ansible.builtin.command).
    type: dict
  copy:
    description: Options of M(ansible.builtin.copy).
    type: dict
  file:
    description: Options of M(ansible.builtin.file).
    type: dict
  slurp:
    description: Options of M(ansible.builtin.slurp).
    type: dict
  stat:
    description: Options of M(ansible.builtin.stat).
    type: dict
  systemd_service:
    description: Options of M(ansible.builtin.systemd_service).
    type: dict
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.changes
notes:
  - Exactly one of the options is needed.
author:
  - The gpufleet.nvidia authors (@gpufleet)
seealso:
  - module: gpufleet.nvidia.gpu_info
"""

EXAMPLES = r"""
- name: Read how far an upgrade came
  gpufleet.nvidia.host_module:
    slurp:
      src: /var/lib/gpufleet/upgrade.json
"""

RETURN = r"""#"""
