#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: mps
short_description: Share the GPUs of a host with MPS or time slicing
version_added: 0.1.0
description:
  - Applies the desired compute mode, time slice and MPS control daemons to a host, and records them so that they are restored after a reboot.
  - Uses C(nvidia-cuda-mps-control). Its exit status is not relied on; every value is read back.
  - The daemons are instances of the unit C(gpufleet-mps@.service). A daemon that exits is restarted with its settings.
  - With O(manager=device_plugin), the NVIDIA device plugin runs the daemon, and none runs on the host.
options:
  state:
    description:
      - V(present) applies O(mode) to the host.
      - V(absent) stops the daemons of this module, resets its settings (to compute mode C(DEFAULT) and the default time slice), and removes the units,
        settings, logs and the record that it wrote. It accepts no other options than O(disruption) and O(lock_timeout), and also works without a
        driver.
    type: str
    choices: [present, absent]
    default: present
  lock_timeout: {description: Seconds to wait for another run that changes the GPUs of the host., type: float, default: 60}
extends_documentation_fragment:
  - gpufleet.nvidia.variables.mps
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.changes
  - gpufleet.nvidia.nvml
author:
  - The gpufleet.nvidia authors (@gpufleet)
seealso:
  - module: gpufleet.nvidia.gpu_info
"""

EXAMPLES = r"""
- name: Limit clients to 4 GiB each, with the daemon on the host
  gpufleet.nvidia.mps:
    mode: mps
    manager: host
    memory_slice: 4GiB

- name: Run one daemon for each GPU, with more memory on the first
  gpufleet.nvidia.mps:
    mode: mps
    manager: host
    scope: gpu
    memory_slice: 4GiB
    limits:
      - gpu: 0
        memory: 8GiB

- name: Stop sharing the GPUs
  gpufleet.nvidia.mps:
    mode: none

- name: Remove everything that this module created on the host
  gpufleet.nvidia.mps:
    state: absent
"""

RETURN = r"""
seconds:
  description: >-
    Seconds spent waiting for the driver (C(nvml)) and for programs (C(programs)), and by the module itself, with Python's start (C(own)). Parts
    that took no time are omitted.
  type: dict
  returned: success
  sample: {nvml: 2.1, programs: 1.3, own: 0.4}
steps:
  description: >-
    What was done, or in check mode would be done, in order. Each step has C(kind) and C(target), identifiers that do not depend on the wording,
    C(data), C(text), and the parts C(why) and C(disturbs) of the text.
  type: list
  elements: dict
  returned: success
sharing:
  description: What the host records and restores at boot - compute mode, time slice and daemons with their limits in MiB.
  type: dict
  returned: when it could be computed
refusals: {description: "Why the request is refused, each with C(thing), C(reason), C(remedy), C(message).", type: list, elements: dict, returned: when refused}
"""

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.module_run import not_yet, run_module
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_gpus import Nvml, open_nvml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_library import NvmlUnavailable
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.driver_versions import (
    branch_of,
    is_driver_version,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu_facts import gpu_view
from ansible_collections.gpufleet.nvidia.plugins.module_utils._options import arguments, variables
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Plan, carry_out
from ansible_collections.gpufleet.nvidia.plugins.module_utils._printable import printable
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import apply as sharing_apply
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import mps_removal
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import plan as sharing_plan
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.desired import read
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.host import (
    HostSharing,
    host_sharing,
    one_user_at_a_time,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.state import Observed

ARGUMENTS = arguments(
    "mps",
    state={"type": "str", "choices": ["present", "absent"], "default": "present"},
    lock_timeout={"type": "float", "default": 60},
    _pynvml_archive={"type": "path"},
)


def share(module: AnsibleModule) -> tuple[Plan, HostSharing]:
    """Read, plan, apply, read back."""
    sharing = read(variables("mps", module.params))
    with open_nvml(module.params["_pynvml_archive"]) as nvml:
        version = nvml.driver_version()
        branch = branch_of(version) if version and is_driver_version(version) else None
        observed = sharing_apply.observe(nvml)
        gpus = [gpu_view(printable(gpu.facts)) for gpu in nvml.gpus() if not gpu.lost]
        wanted = host_sharing(sharing, gpus, branch, observed.multi_user)

        def planned(seen: Observed) -> Plan:
            return sharing_plan.plan(seen, wanted, module.params["disruption"])

        plan = planned(observed)
        alone = one_user_at_a_time(sharing, wanted)
        if alone and plan.changes:
            plan = replace(plan, warnings=(*plan.warnings, alone))
        if plan.changes and not module.check_mode:
            carry_out(
                "apply the sharing of this host",
                plan,
                lambda steps: sharing_apply.apply(steps, wanted, nvml),
                lambda: planned(sharing_apply.observe(nvml)),
            )
    return plan, wanted


def remove(module: AnsibleModule) -> tuple[Plan, HostSharing]:
    """Read, plan, apply, read back for O(state=absent), with NVML where the driver answers."""
    with ExitStack() as opened:
        nvml: Nvml | None = None
        with suppress(NvmlUnavailable):
            nvml = opened.enter_context(open_nvml(module.params["_pynvml_archive"]))
        found, plan = _plan_removal(module, nvml)
        if plan.changes and not module.check_mode:
            carry_out(
                "remove the sharing of this host",
                plan,
                lambda steps: mps_removal.apply(steps, nvml),
                lambda: _plan_removal(module, nvml)[1],
            )
    return plan, mps_removal.wanted(found)


def _plan_removal(module: AnsibleModule, nvml: Nvml | None) -> tuple[Observed, Plan]:
    observed = sharing_apply.observe(nvml)
    present = mps_removal.leftovers()
    return observed, mps_removal.plan(observed, present, module.params["disruption"], gpus=nvml is not None)


def run(module: AnsibleModule) -> tuple[Plan, Mapping[str, Any]]:
    try:
        plan, wanted = (remove if module.params["state"] == "absent" else share)(module)
    except NvmlUnavailable as error:
        return not_yet(module, error, "the sharing is planned")
    return plan, {"sharing": wanted.as_dict()}


def main() -> None:
    run_module(AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True), "GPU sharing", run, locked=True)


if __name__ == "__main__":
    main()
