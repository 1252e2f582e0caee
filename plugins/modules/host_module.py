#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: host_module
short_description: Run a built-in module of Ansible on a GPU host and return only its result
version_added: 0.1.0
description:
  - Ansible turns C(ansible_facts) in the result of any module into variables, which take precedence over the inventory. A compromised host could
    thereby set a command or a path for the controller.
  - This action runs one module of C(ansible.builtin) and removes from its result everything that would become a variable, a host or a group, and
    control characters, also from what ssh says and from what the host writes beside the result.
  - This is an action plugin; the module only documents it.
options:
  command: {description: Options of M(ansible.builtin.command)., type: dict}
  copy: {description: Options of M(ansible.builtin.copy)., type: dict}
  file: {description: Options of M(ansible.builtin.file)., type: dict}
  reboot: {description: Options of M(ansible.builtin.reboot)., type: dict}
  slurp: {description: Options of M(ansible.builtin.slurp)., type: dict}
  stat: {description: Options of M(ansible.builtin.stat)., type: dict}
  systemd_service: {description: Options of M(ansible.builtin.systemd_service)., type: dict}
  wait_for_connection: {description: Options of M(ansible.builtin.wait_for_connection)., type: dict}
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.internal
  - gpufleet.nvidia.attributes.changes
notes:
  - Exactly one of the options is required.
"""

EXAMPLES = r"""
- name: Read the progress of an upgrade
  gpufleet.nvidia.host_module:
    slurp:
      src: /var/lib/gpufleet/upgrade.json
"""

RETURN = r"""#"""
