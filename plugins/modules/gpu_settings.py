#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: gpu_settings
short_description: Set power limit, clocks and ECC of the GPUs of a host
version_added: 0.1.0
description:
  - Sets the power limit, the clocks and ECC of every GPU of a host through NVML, reads them back, and records them so that the host program
    (M(gpufleet.nvidia.host_program)) sets power limit and clocks again after a reboot. The board itself keeps the ECC setting.
  - Every value is compared with what the boards support before the first GPU is changed.
  - A value that you no longer set returns to the board's default, except for ECC, which stays as it is.
  - M(gpufleet.nvidia.driver) manages persistence mode, M(gpufleet.nvidia.mps) the compute mode. Confidential computing is left as it is.
options:
  state:
    description:
      - V(present) applies the other options.
      - V(absent) resets power limit and clocks to the board's defaults if this module has set them, and removes the record. ECC stays as it is. It
        accepts no other option than O(lock_timeout), and also works without a driver, because then the GPUs keep no settings.
    type: str
    choices: [present, absent]
    default: present
  reboot:
    description:
      - What happens if ECC changes only with a reboot. V(allow) makes the change and returns RV(reboot_required); V(never) refuses it.
    type: str
    choices: [allow, never]
    default: never
  lock_timeout: {description: Seconds to wait for another run that changes the GPUs of the host., type: float, default: 60}
extends_documentation_fragment:
  - gpufleet.nvidia.variables.gpu_settings
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.changes
  - gpufleet.nvidia.nvml
author:
  - The gpufleet.nvidia authors (@gpufleet)
seealso:
  - module: gpufleet.nvidia.host_program
  - module: gpufleet.nvidia.gpu_info
"""

EXAMPLES = r"""
- name: Reduce the power limit and lock the graphics clock
  gpufleet.nvidia.gpu_settings:
    power_limit: 500
    graphics_clocks: [1410]

- name: Disable ECC on GPUs that are not in use
  gpufleet.nvidia.gpu_settings:
    ecc: disabled

- name: Restore the boards' defaults
  gpufleet.nvidia.gpu_settings:
    state: absent
"""

RETURN = r"""
seconds:
  description: >-
    Seconds spent waiting for the driver (C(nvml)) and for programs (C(programs)), and by the module itself, with Python's start (C(own)). Parts
    that took no time are omitted.
  type: dict
  returned: success
  sample: {nvml: 1.2, own: 0.3}
steps:
  description: >-
    What was done, or in check mode would be done, in order. Each step has C(kind) and C(target), identifiers that do not depend on the wording,
    C(data), C(text), and the parts C(why) and C(disturbs) of the text.
  type: list
  elements: dict
  returned: success
settings:
  description: What the host records and restores at boot. Power is in watts, clocks are in MHz; null means the board's default.
  type: dict
  returned: when they could be computed
pending:
  description: >-
    Steps that wait for a reboot, each like one of RV(steps), with what it waits for in C(waits_for). Every other step is carried out, or the task
    fails.
  type: list
  elements: dict
  returned: when the GPUs could be read
reboot_required: {description: Whether ECC of a GPU changes at the next reboot., type: bool, returned: when the GPUs could be read}
reboot_reason: {description: "What waits for the reboot, GPU by GPU.", type: str, returned: when RV(reboot_required) is true}
refusals: {description: "Why the request is refused, each with C(thing), C(reason), C(remedy), C(message).", type: list, elements: dict, returned: when refused}
"""

import os
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import remove as remove_file
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.module_run import not_yet, run_module
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_gpus import open_nvml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_library import NvmlUnavailable
from ansible_collections.gpufleet.nvidia.plugins.module_utils._options import arguments, variables
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Plan, Step, carry_out
from ansible_collections.gpufleet.nvidia.plugins.module_utils._records import Settings
from ansible_collections.gpufleet.nvidia.plugins.module_utils._settings import apply
from ansible_collections.gpufleet.nvidia.plugins.module_utils._settings.desired import read
from ansible_collections.gpufleet.nvidia.plugins.module_utils._settings.plan import EccPolicy
from ansible_collections.gpufleet.nvidia.plugins.module_utils._settings.plan import plan as plan_settings
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind

ARGUMENTS = arguments(
    "gpu_settings",
    state={"type": "str", "choices": ["present", "absent"], "default": "present"},
    reboot={"type": "str", "choices": ["allow", "never"], "default": "never"},
    lock_timeout={"type": "float", "default": 60},
    _pynvml_archive={"type": "path"},
)


def run(module: AnsibleModule) -> tuple[Plan, Mapping[str, Any]]:
    """Read, plan, apply, read back."""
    absent = module.params["state"] == "absent"
    wanted = Settings() if absent else read(variables("gpu_settings", module.params))
    if not wanted.anything and apply.record() is None:
        # Nothing was ever set here, so nobody has to ask the GPUs.
        there = os.path.exists(apply.RECORD)
        return _without_record(module, "it cannot be read") if there else Plan(), answer(wanted, [])
    try:
        return set_up(module, wanted)
    except NvmlUnavailable as error:
        if absent:
            return _without_record(module, "without a driver nothing is set"), answer(wanted, [])
        return not_yet(module, error, "their settings are planned")


def set_up(module: AnsibleModule, wanted: Settings) -> tuple[Plan, dict[str, Any]]:
    policy = EccPolicy(module.params["reset"] == "auto", module.params["reboot"] == "allow")
    with open_nvml(module.params["_pynvml_archive"]) as nvml:

        def planned() -> Plan:
            return plan_settings(apply.observe(nvml, wanted), wanted, apply.record(), policy)

        found = planned()
        pending = [step for step in found.steps if apply.awaits_reboot(step)]
        if found.changes and not module.check_mode:
            _done, pending = carry_out(
                "apply the settings of the GPUs",
                found,
                lambda steps: apply.apply(steps, wanted, nvml),
                planned,
                waits=apply.awaits_reboot,
            )
    return found, answer(wanted, pending)


def _without_record(module: AnsibleModule, why: str) -> Plan:
    """Remove the record, without a GPU to ask."""
    if not module.check_mode:
        remove_file(apply.RECORD)
    return Plan((Step(Kind.REMOVE_FILE, apply.RECORD, why),))


def answer(wanted: Settings, pending: list[Step]) -> dict[str, Any]:
    """Return what the module returns beside the plan.

    :param pending: the steps that take effect with a reboot.
    """
    reason = {"reboot_reason": "; ".join(step.what for step in pending)} if pending else {}
    waiting = [{**step.as_dict(), "waits_for": "a reboot of the host"} for step in pending]
    return {"settings": wanted.as_dict(), "pending": waiting, "reboot_required": bool(pending), **reason}


def main() -> None:
    run_module(AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True), "GPU settings", run, locked=True)


if __name__ == "__main__":
    main()
