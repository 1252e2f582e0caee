#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: boot_kernel
short_description: Verify that the kernel that boots next has the driver, and have GRUB boot another one
version_added: 0.1.0
description:
  - Fails if the kernel that GRUB boots next, or O(release), could not load the driver that is installed for the running kernel. Its module must exist,
    be of the same version and built for that kernel (C(vermagic)). With Secure Boot, the key that signed it must be enrolled (C(mokutil)), or must have
    signed the module that is loaded.
  - With O(release), has GRUB boot that kernel by default (C(grubby --set-default), C(grub-set-default)). If C(GRUB_DEFAULT) is not C(saved), GRUB boots
    it the next time only (C(grub-reboot)), where its configuration supports that. The result is read back.
  - Never reboots the host, and writes neither C(/etc/default/grub) nor C(grub.cfg).
options:
  release: {description: "The release of an installed kernel, such as V(6.1.0-50-amd64). If empty, what GRUB boots is not changed.", type: str, default: ""}
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.internal
  - gpufleet.nvidia.attributes.changes
"""

EXAMPLES = r"""
- name: Refuse to reboot into a kernel without the driver
  gpufleet.nvidia.boot_kernel:
"""

RETURN = r"""
running: {description: The release of the running kernel., type: str, returned: success, sample: 6.1.0-50-amd64}
boots_next:
  description: The release of the kernel that is booted next. Empty if the files of the host do not show it.
  type: str
  returned: success
  sample: 6.1.0-51-amd64
steps: {description: "What was done, or would be in check mode, each as RV(gpufleet.nvidia.mig#module:steps).", type: list, elements: dict, returned: success}
seconds: {description: "Seconds that it took, by what they were spent on, as RV(gpufleet.nvidia.mig#module:seconds).", type: dict, returned: success}
refusals: {description: "Why the request is refused, each with C(thing), C(reason), C(remedy), C(message).", type: list, elements: dict, returned: when refused}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import grub, kernel
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.grub import Grub
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.host_reader import HostReader
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.module_run import run_module
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.kernel_update import plan_boot
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.driver import read_next_kernel
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import DriverFacts, view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.hardware import module_problem
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure, Plan, Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._printable import printable
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind

ARGUMENTS: dict[str, Any] = {"release": {"type": "str", "default": ""}}


def read(source: HostReader, release: str) -> tuple[Grub, DriverFacts]:
    """Return what GRUB boots, and the part of the facts that says whether that has the driver."""
    disk, _reason = kernel.module_on_disk(source.files, kernel.running_kernel(), source.run)
    driver = {"on_disk_version": disk.version if disk else None, **read_next_kernel(source, disk, release)}
    return grub.read_grub(source.files), view_of({"driver": printable(driver)}).driver


def apply(booted: Grub, plan: Plan) -> None:
    for step in plan.steps:
        change = grub.set_default if step.kind is Kind.BOOT_KERNEL else grub.set_once
        change(booted, step.target)


def run(module: AnsibleModule) -> tuple[Plan, dict[str, Any]]:
    """Read, plan, apply, read back."""
    source, release = HostReader(HostFiles()), module.params["release"]
    booted, driver = read(source, release)
    plan = plan_boot(booted, release) if release else Plan()
    problem = module_problem(driver)
    if problem:
        reason, remedy = problem
        raise Refused("the next boot", reason, f"{remedy}. Then run again.")
    if plan.changes and not module.check_mode:
        apply(booted, plan)
        booted = grub.read_grub(source.files)
        if booted.following != release:
            raise Failure(
                f"GRUB was told to boot kernel {release}, but boots {booted.following or 'an unknown one'} next."
            )
    return plan, {"running": kernel.running_kernel(), "boots_next": booted.following or ""}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    run_module(module, "the kernel that is booted next", run)


if __name__ == "__main__":
    main()
