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
short_description: Divide the GPUs of a host by MIG, destroying as little as possible
description:
  - Brings all GPUs of a host to a MIG layout in one call. Instances that can stay where they are do stay; the plan says
    for every instance that has to go why no layout of the request can keep it.
  - A request that cannot be met is refused before anything is touched, with the resource that runs out and the nearest
    requests that can be met.
  - Instances that are in use are never destroyed unless O(disruption=force).
  - A journal is on the disk before the first destruction. A run that is cut off anywhere can be repeated; a run that
    cannot reach the layout brings the former one back and says so.
  - The layout is recorded on the host, and the program of M(gpufleet.nvidia.host_program) restores it at boot. What was
    recorded of GPUs that O(layout) does not select stays recorded.
  - Two runs on one host never interleave.
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.changes
options:
  state:
    description:
      - V(present) brings the GPUs to O(layout).
      - V(absent) switches MIG off on all GPUs that have it.
      - V(original) brings back what each GPU had before this module changed it for the first time, which it keeps in
        C(/var/lib/gpufleet/mig-original.json), and removes both that and C(/etc/gpufleet/mig.json). MIG is switched off on GPUs of which
        only the latter is there, and GPUs that were never changed are left alone. Profiles and counts are as they were; places and UUIDs
        of instances may be others.
    type: str
    choices: [present, absent, original]
    default: present
  layout:
    description:
      - The name of a ready-made layout - V(all-disabled), V(all-enabled), V(all-balanced) or C(all-<profile>) such as
        V(all-1g.10gb).
      - Or a list of entries. An entry selects GPUs by C(devices) (V(all), or a list of indices, UUIDs and PCI addresses)
        and C(device_filter) (product names or PCI device ids), and says what they are to be by one of C(instances) (counts
        by profile), C(layout) (a ready-made one), C(node) (totals over the selected GPUs, which are placed for you) or
        C(enabled=false). The first entry that selects a GPU decides. GPUs that no entry selects are left alone.
      - Or a configuration file of nvidia-mig-parted (version v1) - C(mig_parted) is its content, and C(label) which of its
        configurations is meant, where it has several.
      - Profile names follow the grammar of the driver, compute instances and attributes included - V(1g.10gb),
        V(1c.3g.40gb), V(1g.10gb+me). A name from another release of the driver finds its profile by slices, memory and
        attributes.
      - Required with O(state=present).
    type: raw
  strategy:
    description:
      - The MIG strategy of the device plugin that serves this host. A layout that the plugin would refuse or hide under
        it is refused here.
    type: str
    choices: [none, single, mixed]
    default: none
  disruption:
    description:
      - What may happen to instances that are in use, by processes or by O(busy_instances).
      - V(refuse) refuses the host when one of them would have to go.
      - V(idle_only) leaves the GPU alone that would lose one, and changes the others.
      - V(force) allows it. The processes on an instance that has to go are ended.
    type: str
    choices: [refuse, idle_only, force]
    default: refuse
  reset:
    description:
      - Whether a GPU may be reset where its MIG mode changes only by that (Ampere). V(auto) resets that GPU alone, and
        only when nobody holds it.
    type: str
    choices: [auto, never]
    default: auto
  reboot:
    description:
      - What happens when a change of mode needs a reset that is not possible.
      - V(allow) leaves the change pending and returns RV(reboot_required). This module never reboots.
      - V(never) refuses the host before anything is touched.
    type: str
    choices: [allow, never]
    default: allow
  busy_instances:
    description:
      - UUIDs of MIG devices that are in use although no process may be on them now, such as those of pods.
    type: list
    elements: str
    default: []
  restart_services:
    description:
      - Services of this host that read the GPUs when they start, such as V(nvidia-dcgm). Those that run are stopped
        before a change of mode and started after it, and restarted after any other change.
    type: list
    elements: str
    default: []
  record:
    description: Whether the layout is recorded in C(/etc/gpufleet/mig.json), to be restored at boot.
    type: bool
    default: true
  lock_timeout:
    description: Seconds to wait for another run that changes the GPUs of this host. V(0) refuses at once.
    type: int
    default: 60
  _pynvml_archive:
    description: File on the host with pynvml, where it has none. Filled in by the action plugin, and not for users.
    type: path
notes:
  - In check mode on a host without a driver the plan is made from the PCI bus and the collection's table of boards.
seealso:
  - module: gpufleet.nvidia.mig_info
  - module: gpufleet.nvidia.host_program
"""

EXAMPLES = r"""
- name: Seven instances on every GPU
  gpufleet.nvidia.mig:
    layout: all-1g.10gb
    strategy: single

- name: A layout of its own for each kind of GPU
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

- name: A configuration that nvidia-mig-parted was used with before
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

- name: Leave the host as it was before its GPUs were partitioned
  gpufleet.nvidia.mig:
    state: original

- name: Switch MIG off, and wait for a reboot where a GPU cannot be reset
  gpufleet.nvidia.mig:
    state: absent
    restart_services: [nvidia-dcgm]
"""

RETURN = r"""
plan:
  description: What was, or in check mode would be, done, step by step.
  returned: always
  type: dict
  contains:
    changes:
      description: Whether there is anything to do.
      type: bool
    steps:
      description: >-
        In order; each with C(kind) and C(target) (the PCI address of the GPU, a unit, a path), which are keys that do not change with
        the words, C(data), C(text), and of the text C(why) and C(disturbs). A step that destroys a GPU instance carries its C(certificate)
        in C(data); C(data.gone) has the UUIDs of the GPUs and MIG devices that the step does away with.
      type: list
      elements: dict
    warnings:
      description: What stops nothing and should be known.
      type: list
      elements: str
before:
  description: The GPUs with their instances as they were.
  returned: when the driver answers
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
  description: The same, read back; V(none) in check mode.
  returned: when the driver answers
  type: list
  elements: dict
kept:
  description: GPU instances that stayed.
  returned: when the driver answers
  type: list
  elements: str
  sample: ["GPU 0 (0000:18:00.0): 3g.40gb at 4:4"]
destroyed:
  description: GPU instances that went.
  returned: when the driver answers
  type: list
  elements: str
created:
  description: GPU instances that were made.
  returned: when the driver answers
  type: list
  elements: str
reset:
  description: GPUs that were reset.
  returned: when the driver answers
  type: list
  elements: str
terminated:
  description: Processes that were ended, with O(disruption=force).
  returned: when the driver answers
  type: list
  elements: int
reboot_required:
  description: Whether a part of the layout waits for a reboot.
  returned: when the driver answers
  type: bool
reboot_reason:
  description: Which GPUs wait for a reboot, and why they could not be reset.
  returned: when the driver answers
  type: str
unselected:
  description: Indices of the GPUs that the layout does not select, or that have no MIG. They are left alone.
  returned: when the driver answers
  type: list
  elements: int
left_alone:
  description: GPUs that keep what they have because somebody uses it, by index, with O(disruption=idle_only).
  returned: when the driver answers
  type: dict
stale_uuids:
  description: UUIDs of MIG devices that were there and are not any more.
  returned: when the driver answers
  type: list
  elements: str
clients_to_notify:
  description: Users of the GPUs on this host that read them once, and that the caller has to restart.
  returned: when the driver answers
  type: list
  elements: str
restarted_services:
  description: >-
    Services that were restarted: those of O(restart_services), and those that a run before had stopped when it was cut
    off.
  returned: when something was changed
  type: list
  elements: str
setbacks:
  description: What failed on the way and was overcome.
  returned: when the driver answers
  type: list
  elements: str
interrupted_run:
  description: The journal of a run before that was cut off; V(none) when there was none.
  returned: when the driver answers
  type: dict
outcome:
  description: V(restored) when the former layout is back, V(not_restored) when it is not.
  returned: when the layout could not be reached
  type: str
refused:
  description: Why the request cannot be met, as C(thing), C(reason) and C(remedy).
  returned: when it was refused
  type: dict
pynvml_missing:
  description: The host has no pynvml; the action plugin sends the controller's and calls again.
  returned: when it is so
  type: bool
"""

from contextlib import nullcontext

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.host_files import HostFiles
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.lock import Locked, exclusive
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml import (
    NvmlError,
    NvmlUnavailable,
    PynvmlMissing,
    open_nvml,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig import apply_run
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.apply import ApplyFailed
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.apply_clients import ServicesFailed
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.apply_machine import Machine, Policy
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.apply_offline import plan_offline
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.journal import Journal
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Plan, Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._settings import apply as settings_apply


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent", "original"], "default": "present"},
            "layout": {"type": "raw"},
            "strategy": {"type": "str", "choices": ["none", "single", "mixed"], "default": "none"},
            "disruption": {"type": "str", "choices": ["refuse", "idle_only", "force"], "default": "refuse"},
            "reset": {"type": "str", "choices": ["auto", "never"], "default": "auto"},
            "reboot": {"type": "str", "choices": ["allow", "never"], "default": "allow"},
            "busy_instances": {"type": "list", "elements": "str", "default": []},
            "restart_services": {"type": "list", "elements": "str", "default": []},
            "record": {"type": "bool", "default": True},
            "lock_timeout": {"type": "int", "default": 60},
            "_pynvml_archive": {"type": "path"},
        },
        supports_check_mode=True,
    )
    parameters = module.params
    policy = Policy(
        disruption=parameters["disruption"],
        reset=parameters["reset"] == "auto",
        reboot_allowed=parameters["reboot"] == "allow",
        restart_services=tuple(parameters["restart_services"]),
        busy_instances=frozenset(parameters["busy_instances"]),
    )
    try:
        request = apply_run.request_of(parameters)
        if request.original and apply_run.nothing_kept(Journal()):
            # Also where there is no driver any more to ask.
            module.exit_json(changed=False, plan=Plan().as_dict(), reboot_required=False, reboot_reason=None)
        lock = nullcontext() if module.check_mode else exclusive(parameters["lock_timeout"])
        with lock, open_nvml(parameters["_pynvml_archive"]) as nvml:
            machine = Machine(nvml, Journal(), policy)
            gpus = apply_run.read(machine)
            prepared = apply_run.plan(machine, request, gpus)
            if module.check_mode or not (prepared.changes or prepared.interrupted):
                result = apply_run.report(prepared)
            else:
                result = apply_run.carry_out(machine, prepared)
                settings = settings_apply.record() if machine.done.reset else None
                if settings is not None:
                    for text in settings_apply.restore(nvml, settings):
                        module.warn(f"A GPU was reset for its MIG mode, and its settings are not back: {text}")
    except Refused as error:
        module.fail_json(msg=error.message + " Nothing was touched.", refused=error.as_dict())
    except PynvmlMissing as error:
        module.fail_json(msg=str(error), pynvml_missing=True)
    except NvmlUnavailable as error:
        if not module.check_mode or error.reason not in ("driver_not_loaded", "library_not_found"):
            module.fail_json(msg=error.message, reason=error.reason)
        _exit_offline(module, request, policy, error)
    except ApplyFailed as error:
        module.fail_json(msg=str(error), outcome=error.outcome, steps=error.done.steps)
    except (Locked, NvmlError, ServicesFailed, apply_run.AfterChangeFailed, OSError) as error:
        module.fail_json(msg=str(error))
    for warning in prepared.steps.warnings:
        module.warn(warning)
    if module._diff:
        result["diff"] = prepared.steps.diff("MIG")
    module.exit_json(**result)


def _exit_offline(module: AnsibleModule, request: apply_run.Request, policy: Policy, error: NvmlUnavailable) -> None:
    """End a check-mode run on a host whose driver does not answer yet with what the PCI bus lets us plan."""
    plan = plan_offline(HostFiles(), request, policy, error.message)
    if plan.refusals:
        refused = plan.refusals[0]
        module.fail_json(msg=refused.message + " Nothing was touched.", refused=refused.as_dict())
    module.exit_json(changed=plan.needed, plan=plan.as_dict())


if __name__ == "__main__":
    main()
