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
  mode:
    description:
      - How containers and processes share a GPU.
      - V(none) and V(time_slicing) set the compute mode of the GPUs to C(DEFAULT) and stop the MPS daemons of this module.
      - V(mps) with O(manager=host) sets it to C(EXCLUSIVE_PROCESS), but keeps C(DEFAULT) with O(scope=instance), because MIG requires it.
    type: str
    choices: [none, time_slicing, mps]
    default: none
  manager:
    description: What runs the MPS daemon. A GPU never has both daemons.
    type: str
    choices: [device_plugin, host]
    default: device_plugin
  backend:
    description:
      - Who divides the GPUs of a node among its pods. With V(hami) and V(dra) the host runs no daemon, and what O(memory_slice) says is theirs.
    type: str
    choices: [mps, hami, dra]
    default: mps
  replicas:
    description:
      - The number of replicas of a GPU. Each client gets an equal share of the memory, rounded down to whole MiB.
      - MPS supports 48 clients on a GPU (60 with driver branch 590 and later; 16 before Volta), and on a MIG device a number in proportion to its
        compute slices, rounded down, such as 6 on a C(1g.10gb). More are refused.
      - With V(0), O(memory_slice) determines it.
      - With O(mode=time_slicing), a mapping from resource to number is also accepted, which only the cluster's device plugin uses.
    type: raw
    default: 0
  memory_slice:
    description: Memory of one client on each GPU, with a binary unit, such as V(4GiB).
    type: str
    default: ""
  time_slice:
    description: The hardware's time slice with O(mode=time_slicing).
    type: str
    choices: [default, short, medium, long]
    default: default
  compute_mode:
    description:
      - The compute mode of every GPU with O(mode=none). V(exclusive_process) lets one process at a time use a GPU, V(prohibited) none.
      - V(auto) is the one that O(mode) needs, C(DEFAULT) with O(mode=none). Other values are refused with MPS, time slicing and MIG, each of which
        needs a compute mode of its own.
    type: str
    choices: [auto, default, exclusive_process, prohibited]
    default: auto
  scope:
    description:
      - What each daemon serves.
      - With V(node), all GPUs, in the directories C(/run/nvidia/mps/nvidia.com/gpu/pipe) and C(/run/nvidia/mps/shm) that the device plugin mounts into
        pods. The latter is a separate tmpfs, which daemon, servers and pods use as C(/dev/shm). With O(rename=true), the former is
        C(/run/nvidia/mps/nvidia.com/gpu.shared/pipe).
      - With V(gpu), one GPU, in C(/run/nvidia/mps/gpu<index>/pipe).
      - With V(instance), one MIG device, in C(/run/nvidia/mps/mig<gpu>-<gpu instance>-<compute instance>/pipe).
      - Daemons of V(gpu) and V(instance) use the host's C(/dev/shm), as do their clients on the host.
    type: str
    choices: [node, gpu, instance]
    default: node
  rename:
    description:
      - Whether the device plugin offers shared GPUs as C(nvidia.com/gpu.shared). It then looks for the daemon of O(scope=node) in the directory of
        that name.
    type: bool
    default: false
  active_thread_percentage:
    description: The percentage of a GPU's threads that one client can use. V(0) and V(100) mean all.
    type: float
    default: 0
  priority:
    description: Priority of the clients' work.
    type: str
    choices: [normal, below_normal]
    default: normal
  multi_user:
    description:
      - Whether clients of several users share one server, which then runs as root. Otherwise, MPS serves one user ID at a time, and a client of
        another user waits in its first CUDA call, without an error, until the last client of the first user has ended.
      - V(auto) is V(true) with O(scope=node) if the release of C(nvidia-cuda-mps-control) has a multi-user server (555 and later) and every GPU is
        Volta or newer, and with O(protocol=3). Otherwise, it is V(false).
      - V(true) is refused if the release or a GPU does not support it.
    type: str
    choices: [auto, 'true', 'false']
    default: auto
  limits:
    description: Memory of one client on GPUs for which it differs from O(memory_slice) or O(replicas).
    type: list
    elements: dict
    default: []
    suboptions:
      gpu:
        description: The NVML index of the GPU.
        type: int
        required: true
      memory:
        description: Memory of one client on that GPU, with a binary unit, such as V(8GiB).
        type: str
        required: true
  protocol:
    description:
      - The protocol of the control daemon. Every release supports V(2); V(3) needs release 615 or later.
      - With V(3), the limits are those of a server named C(shared), and clients connect to C(<pipe directory>/shared). It needs O(scope=gpu) or
        O(scope=instance), because the device plugin supports only V(2), and is incompatible with O(multi_user=false).
    type: int
    choices: [2, 3]
    default: 2
  disruption:
    description:
      - Whether a daemon with clients may be stopped, which terminates its clients.
      - V(refuse) fails before anything is changed and names the clients.
    type: str
    choices: [refuse, force]
    default: refuse
  lock_timeout:
    description: Seconds to wait for another run that changes the GPUs of the host.
    type: float
    default: 60
extends_documentation_fragment:
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
refusals:
  description: Why the request cannot be met, each with C(thing), C(reason), C(remedy) and the whole C(message).
  type: list
  elements: dict
  returned: when the request is refused, before anything is changed
"""

import traceback
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.lock import exclusive
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_gpus import Nvml, open_nvml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_library import (
    NvmlUnavailable,
    PynvmlMissing,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.stopwatch import Stopwatch
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.driver_versions import (
    branch_of,
    is_driver_version,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import NotInEffect, Plan, Refused, carry_out
from ansible_collections.gpufleet.nvidia.plugins.module_utils._results import refuse, succeed
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import apply as sharing_apply
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import mps_removal
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import plan as sharing_plan
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.desired import read
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.host import (
    HostSharing,
    host_sharing,
    one_user_at_a_time,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.modes import Sharing
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.state import Observed

ARGUMENTS = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "mode": {"type": "str", "choices": ["none", "time_slicing", "mps"], "default": "none"},
    "manager": {"type": "str", "choices": ["device_plugin", "host"], "default": "device_plugin"},
    "backend": {"type": "str", "choices": ["mps", "hami", "dra"], "default": "mps"},
    "replicas": {"type": "raw", "default": 0},
    "memory_slice": {"type": "str", "default": ""},
    "time_slice": {"type": "str", "choices": ["default", "short", "medium", "long"], "default": "default"},
    "compute_mode": {
        "type": "str",
        "choices": ["auto", "default", "exclusive_process", "prohibited"],
        "default": "auto",
    },
    "scope": {"type": "str", "choices": ["node", "gpu", "instance"], "default": "node"},
    "rename": {"type": "bool", "default": False},
    "active_thread_percentage": {"type": "float", "default": 0},
    "priority": {"type": "str", "choices": ["normal", "below_normal"], "default": "normal"},
    "multi_user": {"type": "str", "choices": ["auto", "true", "false"], "default": "auto"},
    "limits": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {"gpu": {"type": "int", "required": True}, "memory": {"type": "str", "required": True}},
    },
    "protocol": {"type": "int", "choices": [2, 3], "default": 2},
    "disruption": {"type": "str", "choices": ["refuse", "force"], "default": "refuse"},
    "lock_timeout": {"type": "float", "default": 60},
    "_pynvml_archive": {"type": "path"},
}

_NAME = "GPU sharing"


def described(params: dict[str, Any]) -> Sharing:
    """Return the sharing that the options describe.

    :raises Refused: they contradict each other.
    """
    return read(
        {
            "nvidia_sharing_mode": params["mode"],
            "nvidia_sharing_mps_manager": params["manager"],
            "nvidia_sharing_backend": params["backend"],
            "nvidia_sharing_replicas": params["replicas"],
            "nvidia_sharing_memory_slice": params["memory_slice"],
            "nvidia_sharing_time_slice": params["time_slice"],
            "nvidia_sharing_compute_mode": params["compute_mode"],
            "nvidia_sharing_rename": params["rename"],
            "nvidia_sharing_mps_scope": params["scope"],
            "nvidia_sharing_mps_active_thread_percentage": params["active_thread_percentage"],
            "nvidia_sharing_mps_priority": params["priority"],
            "nvidia_sharing_mps_multi_user": params["multi_user"],
            "nvidia_sharing_mps_limits": params["limits"],
            "nvidia_sharing_mps_protocol": params["protocol"],
        }
    )


def run(module: AnsibleModule) -> tuple[Plan, HostSharing]:
    """Read, plan, apply, read back."""
    sharing = described(module.params)
    with exclusive(module.params["lock_timeout"]), open_nvml(module.params["_pynvml_archive"]) as nvml:
        version = nvml.system().driver_version
        branch = branch_of(version) if version and is_driver_version(version) else None
        observed = sharing_apply.observe(nvml)
        wanted = host_sharing(sharing, [gpu.facts for gpu in nvml.gpus() if not gpu.lost], branch, observed.multi_user)

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
    with exclusive(module.params["lock_timeout"]), ExitStack() as opened:
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


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    try:
        with Stopwatch() as watch:
            plan, wanted = (remove if module.params["state"] == "absent" else run)(module)
        succeed(module, _NAME, plan, sharing=wanted.as_dict(), seconds=watch.seconds)
    except PynvmlMissing as error:
        module.fail_json(msg=str(error), pynvml_missing=True)
    except Refused as refusal:
        refuse(module, refusal)
    except NvmlUnavailable as error:
        if module.check_mode:
            warning = f"The GPUs cannot be queried yet ({error}); the sharing is planned once the driver is loaded."
            succeed(module, _NAME, Plan(warnings=(warning,)), changed=True)
        module.fail_json(msg=f"{error}. Run gpufleet.nvidia.site (role nvidia_driver) first.")
    except (sharing_apply.SharingError, NotInEffect) as error:
        module.fail_json(msg=str(error), exception=traceback.format_exc())


if __name__ == "__main__":
    main()
