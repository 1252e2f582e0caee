#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: site_times
short_description: Show how the hosts of a run spent their time, by stage
version_added: 0.1.0
description:
  - Prints a line for each stage that ran, with the seconds of its slowest host, and how much of that was spent on downloads, builds of kernel modules,
    other work of the package manager, other programs on the host, calls of the driver (NVML), Ansible (the connection, and the wait for a busy
    controller), and the collection itself (its modules, with Python's start).
  - Modules that do not report their time on the host, such as M(gpufleet.nvidia.gpu_info), count as the collection itself as a whole.
  - Downloads are shown separately only with apt. With dnf and zypper, they count as work of the package manager.
  - Run it once per play, with C(run_once). This is an action plugin; the module only documents it.
options:
  hosts:
    description: The hosts on which the stages ran.
    type: list
    elements: str
    required: true
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.reads
author:
  - The gpufleet.nvidia authors (@gpufleet)
seealso:
  - module: gpufleet.nvidia.driver
  - module: gpufleet.nvidia.site_gate
"""

EXAMPLES = r"""
- name: Show how the hosts spent their time
  gpufleet.nvidia.site_times:
    hosts: "{{ ansible_play_hosts_all }}"
  run_once: true
"""

RETURN = r"""
seconds:
  description: By host and stage, the seconds that it took (C(elapsed)), the part spent on each kind of work, and the rest (C(ours)).
  type: dict
  returned: always
  sample:
    gpu-training-7:
      driver: {elapsed: 412.3, download: 61.0, build: 301.5, packages: 38.2, programs: 6.1, nvml: 0.0, ansible: 3.6, ours: 1.9}
"""
