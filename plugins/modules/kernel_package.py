#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: kernel_package
short_description: Install the newest kernel of the distribution beside the running one
version_added: 0.1.0
description:
  - Installs the newest kernel of the kind and flavour that runs, by the distribution's own metapackage (such as C(linux-image-amd64),
    C(linux-image-generic-hwe-24.04), C(kernel-64k) or C(kernel-default)), with the headers that the driver's modules are built with. On Ubuntu,
    precompiled modules of the driver move with it, and packages that were held are held again.
  - Fails before anything is installed if the kernel would come without its headers or without a precompiled module, if another version of the driver
    would be installed for it, if a package would be removed, or if its metapackage is held by others than this collection.
  - A transaction of the package manager that was cut off is completed first.
  - Never reboots the host, removes no kernel, and does not choose what GRUB boots; see M(gpufleet.nvidia.boot_kernel).
options:
  state:
    description:
      - With V(planned), only the package lists are fetched, and RV(steps) says what would be installed.
    type: str
    choices: [latest, planned]
    default: latest
  lock_timeout: {description: Seconds to wait while another run changes the host., type: int, default: 60}
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.internal
  - gpufleet.nvidia.attributes.changes
"""

EXAMPLES = r"""
- name: Install the newest kernel
  gpufleet.nvidia.kernel_package:
  register: newest
"""

RETURN = r"""
running: {description: The release of the running kernel., type: str, returned: success, sample: 6.1.0-50-amd64}
release:
  description: The release of the newest installed kernel of the kind that runs. Before the installation the running or an earlier installed one.
  type: str
  returned: success
  sample: 6.1.0-51-amd64
steps: {description: "What was done, or would be in check mode, each as RV(gpufleet.nvidia.mig#module:steps).", type: list, elements: dict, returned: success}
seconds: {description: "Seconds that it took, by what they were spent on, as RV(gpufleet.nvidia.mig#module:seconds).", type: dict, returned: success}
refusals: {description: "Why the request is refused, each with C(thing), C(reason), C(remedy), C(message).", type: list, elements: dict, returned: when refused}
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.grub import installed_kernels
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.module_run import run_module
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_manager import PackageError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_tools import fetching
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.kernel_update import (
    Wanted,
    names_to_ask,
    newest_release,
    plan,
    repair,
    wanted,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.state import Host
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.system import DriverSystem
from ansible_collections.gpufleet.nvidia.plugins.module_utils._packages.transactions import hold_again
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Plan, Refused

ARGUMENTS: dict[str, Any] = {
    "state": {"type": "str", "choices": ["latest", "planned"], "default": "latest"},
    "lock_timeout": {"type": "int", "default": 60},
}


def ask(system: DriverSystem, host: Host) -> tuple[Wanted, Plan]:
    """Return what the package manager would do for the newest kernel."""
    asked = wanted(host, system.manager.offered(names_to_ask(host)))
    try:
        changes = system.manager.simulate(asked.transaction)
    except PackageError as error:
        raise Refused(
            "the newest kernel",
            str(error).rstrip("."),
            "Complete the mirror, or release the packages that keep it out.",
        ) from error
    return asked, plan(host, asked, changes, system.manager.installed())


def apply(system: DriverSystem, host: Host, asked: Wanted) -> None:
    try:
        system.manager.unhold([item.name for item in asked.transaction.install if item.name in host.holds])
        _completing(lambda: system.manager.apply(asked.transaction))
    finally:
        hold_again(system.manager, host.holds)


def run(module: AnsibleModule) -> tuple[Plan, dict[str, Any]]:
    """Read, plan, apply, read back."""
    system, files = DriverSystem(fetching(open_url)), HostFiles()
    host = system.read()
    names_to_ask(host)
    applied = module.params["state"] == "latest" and not module.check_mode
    repaired = repair(host)
    if repaired.changes:
        if not applied:
            return repaired, {"running": host.kernel, "release": newest_release(host, installed_kernels(files))}
        _completing(system.manager.repair)
        host = system.read()
    if not module.check_mode:
        system.manager.refresh()
    asked, steps = ask(system, host)
    release = newest_release(host, installed_kernels(files))
    if steps.changes and applied:
        apply(system, host, asked)
        before, release = release, newest_release(host, installed_kernels(files))
        if release == before:
            raise PackageError(
                f"Failed to install a kernel: the package manager reported success, but {before} is still the newest in /boot."
            )
    return replace(steps, steps=(*repaired.steps, *steps.steps)), {"running": host.kernel, "release": release}


def _completing(change: Callable[[], None]) -> None:
    """Let a transaction install kernels, and say what is to be done where the module of one cannot be built."""
    try:
        change()
    except PackageError as error:
        raise PackageError(
            f"{error} Where DKMS could not build the module, see /var/lib/dkms/*/*/build/make.log, correct that and run again: the kernel is "
            "half installed until then."
        ) from error


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    run_module(module, "the newest kernel", run, locked=True)


if __name__ == "__main__":
    main()
