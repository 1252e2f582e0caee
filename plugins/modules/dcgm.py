#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: dcgm
short_description: Install NVIDIA DCGM and run its host engine
version_added: 0.1.0
description:
  - Installs the packages of DCGM 4 for the CUDA version of the driver at one exact version, in one transaction that is simulated first, holds them,
    and starts and enables the host engine, C(nvidia-dcgm.service).
  - Removes DCGM 3, which cannot be installed alongside DCGM 4.
  - Refuses versions with published vulnerabilities, and a transaction that would change packages other than those of DCGM.
  - Configures no repository. DCGM is in NVIDIA's CUDA repository, which M(gpufleet.nvidia.driver) configures, or in a mirror of it.
  - To run C(dcgmi diag), use M(gpufleet.nvidia.health).
options:
  state:
    description:
      - Whether DCGM is installed or removed.
      - V(absent) stops the host engine and removes all packages of DCGM with their holds.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment:
  - gpufleet.nvidia.variables.dcgm
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.changes
author:
  - The gpufleet.nvidia authors (@gpufleet)
seealso:
  - module: gpufleet.nvidia.health
  - module: gpufleet.nvidia.driver
"""

EXAMPLES = r"""
- name: Install DCGM for the installed driver
  gpufleet.nvidia.dcgm:
    version: 4.6.0

- name: Install DCGM for V100 boards, which the driver's CUDA version does not support
  gpufleet.nvidia.dcgm:
    cuda: ['12', '13']

- name: Remove DCGM
  gpufleet.nvidia.dcgm:
    state: absent
"""

RETURN = r"""
packages: {description: "The installed packages of DCGM, by name. In check mode, the packages that are present now.", type: dict, returned: success}
active: {description: Whether the host engine is running., type: bool, returned: success}
seconds:
  description: >-
    Seconds spent on downloads (C(download), with apt), other work of the package manager (C(packages)), other programs (C(programs)) and the module
    itself (C(own)). Parts that took no time are omitted.
  type: dict
  returned: success
  sample: {download: 61.0, packages: 38.2, programs: 6.1, own: 1.9}
steps:
  description: >-
    What was done, or in check mode would be done, in order. Each step has C(kind) and C(target), identifiers that do not depend on the wording,
    C(data), C(text), and the parts C(why) and C(disturbs) of the text.
  type: list
  elements: dict
  returned: success
refusals: {description: "Why the request is refused, each with C(thing), C(reason), C(remedy), C(message).", type: list, elements: dict, returned: when refused}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.module_run import run_module
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_tools import manager_for
from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm.apply import run_stage
from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm.desired import from_options
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.host import package_manager
from ansible_collections.gpufleet.nvidia.plugins.module_utils._options import arguments
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Plan

ARGUMENTS = arguments("dcgm", state={"type": "str", "choices": ["present", "absent"], "default": "present"})


def run(module: AnsibleModule) -> tuple[Plan, dict[str, Any]]:
    """Read, plan, apply, read back."""
    manager = manager_for(package_manager(HostFiles()) or "unknown")
    report = run_stage(manager, from_options(module.params), module.check_mode)
    return report.plan, {"packages": dict(report.after.packages), "active": report.after.active}


def main() -> None:
    run_module(AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True), "DCGM", run, locked=True)


if __name__ == "__main__":
    main()
