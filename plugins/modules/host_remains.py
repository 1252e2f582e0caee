#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: host_remains
short_description: Remove what the other modules leave on a host
version_added: 0.1.0
description:
  - Releases the holds of driver, toolkit and DCGM packages that stay installed, removes the driver's pin, restores the toolkit's C(config.toml), and
    removes C(/etc/gpufleet), C(/var/lib/gpufleet) and C(/usr/local/lib/gpufleet) with everything in them.
  - This is the last step of the playbook C(gpufleet.nvidia.remove), after the modules that undo their changes. It removes the records of what the host
    restores at boot and of the previous driver, but undoes none of it.
  - The repositories of packages that stay installed also stay, because they provide security updates.
options:
  toolkit:
    description:
      - Whether the container toolkit is removed by M(gpufleet.nvidia.container_toolkit).
      - With V(false), the holds of its packages are released and its settings restored.
    type: bool
    default: false
  driver:
    description:
      - Whether the driver is removed by M(gpufleet.nvidia.driver).
      - With V(false), the holds of its packages are released and its pins removed.
    type: bool
    default: false
  dcgm:
    description:
      - Whether DCGM is removed by M(gpufleet.nvidia.dcgm).
      - With V(false), the holds of its packages are released.
    type: bool
    default: false
  lock_timeout: {description: Seconds to wait for another run that changes the GPUs of the host., type: float, default: 60}
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.internal
  - gpufleet.nvidia.attributes.changes
"""

EXAMPLES = r"""
- name: Leave only the driver and the toolkit, without package holds
  gpufleet.nvidia.host_remains:
"""

RETURN = r"""
steps: {description: "What was done, or would be in check mode, each as RV(gpufleet.nvidia.mig#module:steps).", type: list, elements: dict, returned: success}
seconds: {description: "Seconds that it took, by what they were spent on, as RV(gpufleet.nvidia.mig#module:seconds).", type: dict, returned: success}
refusals: {description: "Why the request is refused, each with C(thing), C(reason), C(remedy), C(message).", type: list, elements: dict, returned: when refused}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.module_run import run_module
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_tools import manager_for
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.host import package_manager
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.toml_read import TomlError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host import leftovers
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure, Plan, carry_out

ARGUMENTS: dict[str, Any] = {
    "toolkit": {"type": "bool", "default": False},
    "driver": {"type": "bool", "default": False},
    "dcgm": {"type": "bool", "default": False},
    "lock_timeout": {"type": "float", "default": 60},
}


def run(module: AnsibleModule) -> tuple[Plan, dict[str, Any]]:
    """Read, plan, apply, read back."""
    gone = module.params["toolkit"], module.params["driver"], module.params["dcgm"]
    manager = manager_for(package_manager(HostFiles()) or "unknown")
    try:
        present = leftovers.read(manager)
        plan = leftovers.plan(present, *gone)
        if plan.changes and not module.check_mode:
            carry_out(
                "remove what is left",
                plan,
                lambda steps: leftovers.apply(steps, manager, present),
                lambda: leftovers.plan(leftovers.read(manager), *gone),
            )
    except TomlError as error:
        message = f"Failed to read {leftovers.TOOLKIT_SETTINGS}: {error}. Correct the file by hand."
        raise Failure(message) from error
    return plan, {}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    run_module(module, "what is left of gpufleet.nvidia", run, locked=True)


if __name__ == "__main__":
    main()
