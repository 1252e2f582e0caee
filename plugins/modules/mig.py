#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: mig
version_added: "0.1.0"
author:
  - The gpufleet.nvidia authors (@gpufleet)
short_description: Partition the GPUs of a host with MIG, destroying as little as possible
description:
  - Applies a MIG layout to all GPUs of a host in one call. Instances that can stay in place do; for every instance that must be destroyed, the plan
    says why no layout that satisfies the request can keep it.
  - A request that cannot be met is refused before anything is changed, with the resource that is exhausted and the nearest requests that can be met.
  - Instances that are in use are never destroyed unless O(disruption=force).
  - A journal is written to disk before anything is destroyed. You can repeat a run that was interrupted at any point; a run that cannot reach the
    layout restores the previous one and says so.
  - The layout is recorded on the host, and the program of M(gpufleet.nvidia.host_program) restores it at boot. The records of GPUs that O(layout)
    does not select are kept.
  - Two runs on the same host never overlap.
extends_documentation_fragment:
  - gpufleet.nvidia.variables.mig
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.nvml
  - gpufleet.nvidia.attributes.changes
options:
  state:
    description:
      - V(present) applies O(layout) to the GPUs.
      - V(absent) disables MIG on all GPUs that support it.
      - V(original) restores the layout that each GPU had before this module first changed it, from C(/var/lib/gpufleet/mig-original.json), and removes
        this file and C(/etc/gpufleet/mig.json). MIG is disabled on GPUs that only the latter lists, and GPUs that were never changed are left alone.
        Profiles and counts are the original ones; placements and UUIDs of instances may differ.
    type: str
    choices: [present, absent, original]
    default: present
  layout:
    description:
      - The name of a predefined layout - V(all-disabled), V(all-enabled), V(all-balanced) or C(all-<profile>) such as V(all-1g.10gb).
      - Or a list of entries. An entry selects GPUs with C(devices) (V(all), or a list of indices, UUIDs and PCI addresses) and C(device_filter)
        (product names or PCI device IDs), and sets their layout with one of C(instances) (counts by profile), C(layout) (a predefined one), C(node)
        (totals over the selected GPUs, placed automatically) or C(enabled=false). The first entry that selects a GPU applies. O(unselected) says
        what happens to the others.
      - Or a configuration file of nvidia-mig-parted (version v1) - C(mig_parted) is its content, and C(label) selects one of its configurations if it
        has several.
      - Profile names follow the driver's syntax, including compute instances and attributes - V(1g.10gb), V(1c.3g.40gb), V(1g.10gb+me). A name from
        another release of the driver is matched by slices, memory and attributes.
      - Required with O(state=present).
    type: raw
  unselected:
    description:
      - What happens to GPUs that no entry of O(layout) selects, with O(state=present).
      - V(leave) leaves them alone. V(disable) disables MIG on those that have it on, under the same rules as for the others.
    type: str
    choices: [leave, disable]
    default: leave
  reboot:
    description:
      - What happens if a change of the MIG mode needs a reset that is not possible.
      - V(allow) leaves the change pending and returns RV(reboot_required). This module never reboots.
      - V(never) refuses the host before anything is changed.
    type: str
    choices: [allow, never]
    default: allow
  restart_services:
    description:
      - Services of this host that read the GPUs when they start, such as V(nvidia-dcgm). Running services are stopped before a change of the MIG mode
        and before an instance is destroyed, which DCGM may hold, and started after it; they are restarted after any other change.
    type: list
    elements: str
    default: []
notes:
  - In check mode on a host without a driver, the plan is based on the PCI bus and the collection's table of boards.
seealso:
  - module: gpufleet.nvidia.mig_info
  - module: gpufleet.nvidia.host_program
"""

EXAMPLES = r"""
- name: Seven instances on every GPU
  gpufleet.nvidia.mig:
    layout: all-1g.10gb
    strategy: single

- name: A different layout for each type of GPU
  gpufleet.nvidia.mig:
    strategy: mixed
    layout:
      - device_filter: NVIDIA A30
        layout: all-balanced
      - devices: [0, "0000:3b:00.0"]
        enabled: false
      - devices: all
        instances:
          3g.40gb: 1
          2g.20gb: 1
          1g.10gb: 2

- name: An existing configuration of nvidia-mig-parted
  gpufleet.nvidia.mig:
    strategy: mixed
    layout:
      mig_parted: "{{ lookup('ansible.builtin.file', 'mig-parted.yaml') | from_yaml }}"
      label: all-balanced

- name: Totals over the host, placed so that the fewest instances are destroyed
  gpufleet.nvidia.mig:
    strategy: mixed
    layout:
      - node:
          3g.40gb: 3
          1g.10gb: 10

- name: Restore the layout from before the first change
  gpufleet.nvidia.mig:
    state: original

- name: Disable MIG, after a reboot if a GPU cannot be reset
  gpufleet.nvidia.mig:
    state: absent
    restart_services: [nvidia-dcgm]
"""

RETURN = r"""
steps:
  description:
    - >-
      What was done, or in check mode would be done, in order. Each step has C(kind) and C(target), identifiers that do not depend on the wording,
      C(data), C(text), and the parts C(why) and C(disturbs) of the text.
    - The C(data) of a step that destroys a GPU instance contains its C(certificate). C(data.gone) lists the UUIDs of the GPUs and MIG devices that
      the step removes.
  type: list
  elements: dict
  returned: success
before:
  description: The GPUs with their instances before the change.
  returned: when the driver responds
  type: list
  elements: dict
  sample:
    - index: 0
      uuid: GPU-e696dbe1-2a37-4ed5-a88a-f2a6db88df6f
      pci_address: "0000:18:00.0"
      name: NVIDIA H100 80GB HBM3
      mig: true
      mig_pending: true
      instances:
        - id: 1
          profile: 3g.40gb
          start: 4
          size: 4
          compute_instances:
            - {id: 0, profile: 3g.40gb, multiprocessors: 60, uuid: MIG-1bb0d6ca-6c5d-5766-8d77-5478c92d3909}
after:
  description: The GPUs with their instances after the change, read back. V(none) in check mode.
  returned: when the driver responds
  type: list
  elements: dict
kept:
  description: GPU instances that were kept.
  returned: when the driver responds
  type: list
  elements: str
  sample: ["GPU 0 (0000:18:00.0): 3g.40gb at 4:4"]
destroyed: {description: GPU instances that were destroyed., returned: when the driver responds, type: list, elements: str}
created: {description: GPU instances that were created., returned: when the driver responds, type: list, elements: str}
reset: {description: GPUs that were reset., returned: when the driver responds, type: list, elements: str}
terminated: {description: "Processes that were terminated, with O(disruption=force).", returned: when the driver responds, type: list, elements: int}
seconds:
  description: >-
    Seconds spent waiting for the driver (C(nvml)) and for programs (C(programs)), and by the module itself, with Python's start (C(own)). Parts
    that took no time are omitted.
  type: dict
  returned: when the driver responds
  sample: {nvml: 7.4, own: 0.6}
pending:
  description: >-
    Steps that wait for a reboot, each like one of RV(steps), with what it waits for in C(waits_for). Every other step is carried out, or the task
    fails.
  returned: when the driver responds
  type: list
  elements: dict
reboot_required: {description: Whether part of the layout needs a reboot to take effect., returned: when the driver responds, type: bool}
reboot_reason: {description: "Which GPUs need a reboot, and why they could not be reset.", returned: when the driver responds, type: str}
unselected:
  description: Indices of the GPUs that the layout does not select, or that do not support MIG. They are left alone.
  returned: when the driver responds
  type: list
  elements: int
left_alone:
  description: GPUs that are left unchanged because they are in use, by index, with O(disruption=idle_only).
  returned: when the driver responds
  type: dict
stale_uuids: {description: UUIDs of MIG devices that no longer exist., returned: when the driver responds, type: list, elements: str}
clients_to_notify:
  description: Users of the GPUs on this host that read them only once, and that the caller must restart.
  returned: when the driver responds
  type: list
  elements: str
restarted_services:
  description: >-
    Services that were restarted: those in O(restart_services), and those that an earlier, interrupted run had stopped.
  returned: when something was changed
  type: list
  elements: str
setbacks: {description: Failures from which the run recovered., returned: when the driver responds, type: list, elements: str}
interrupted_run: {description: The journal of an earlier run that was interrupted. V(none) if there was none., returned: when the driver responds, type: dict}
carried_out:
  description: The changes of GPUs that were carried out before the failure, in words.
  returned: when the layout could not be reached
  type: list
  elements: str
outcome: {description: "V(restored) if the previous layout was restored, V(not_restored) if not.", returned: when the layout could not be reached, type: str}
refusals: {description: "Why the request is refused, each with C(thing), C(reason), C(remedy), C(message).", type: list, elements: dict, returned: when refused}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.module_run import run_module
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_gpus import open_nvml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_library import NvmlUnavailable
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig import apply_run
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.apply_machine import Machine
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.desired import variables_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.journal import Journal
from ansible_collections.gpufleet.nvidia.plugins.module_utils._options import arguments
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Plan, refuse
from ansible_collections.gpufleet.nvidia.plugins.module_utils._settings import apply as settings_apply


def run(module: AnsibleModule) -> tuple[Plan, dict[str, Any]]:
    """Read, plan, apply, read back."""
    variables = variables_of(module.params)
    to_original = module.params["state"] == "original"
    if to_original and apply_run.nothing_kept(Journal()):
        # Also where there is no driver any more to ask.
        return Plan(), {"reboot_required": False, "reboot_reason": None}
    try:
        with open_nvml(module.params["_pynvml_archive"]) as nvml:
            machine = Machine(nvml, Journal(), variables)
            prepared = apply_run.plan(machine, machine.read(), to_original)
            if module.check_mode or not (prepared.steps.changes or prepared.interrupted):
                return prepared.steps, apply_run.report(prepared)
            result = apply_run.carry_out(machine, prepared)
            settings = settings_apply.record() if machine.done.reset else None
            if settings is not None:
                for text in settings_apply.restore(nvml, settings):
                    module.warn(f"A GPU was reset for its MIG mode, but its settings are not restored: {text}")
            return prepared.steps, result
    except NvmlUnavailable as error:
        if not module.check_mode or error.reason not in ("driver_not_loaded", "library_not_found"):
            raise
        return _offline(module, variables, error)


def _offline(module: AnsibleModule, variables: dict[str, Any], error: NvmlUnavailable) -> tuple[Plan, dict[str, Any]]:
    """Return what the PCI bus lets us plan in check mode on a host whose driver does not answer yet."""
    plan = apply_run.plan_offline(HostFiles(), variables, error.message)
    if plan.refusals:
        refuse(module, *plan.refusals)
    notes = (*plan.warnings, *([plan.unknown] if plan.unknown else []))
    return Plan(plan.steps, warnings=notes), {"changed": plan.needed}


def main() -> None:
    module = AnsibleModule(
        argument_spec=arguments(
            "mig",
            state={"type": "str", "choices": ["present", "absent", "original"], "default": "present"},
            layout={"type": "raw"},
            unselected={"type": "str", "choices": ["leave", "disable"], "default": "leave"},
            reboot={"type": "str", "choices": ["allow", "never"], "default": "allow"},
            restart_services={"type": "list", "elements": "str", "default": []},
            _pynvml_archive={"type": "path"},
        ),
        supports_check_mode=True,
    )
    # Check mode changes nothing that anybody else changes.
    run_module(module, "MIG", run, locked=not module.check_mode)


if __name__ == "__main__":
    main()
