#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_repair
version_added: "0.1.0"
short_description: Run one step of the repair of a GPU host
description:
  - Resets GPUs, restarts services, reloads the driver, restores what these steps remove, or writes a support bundle. M(gpufleet.nvidia.rollout)
    decides what to do.
  - Refuses to run while a GPU that the step would interrupt is in use, and names the processes.
  - The result of a step is read back. A step that did not help fails and says what is still wrong.
  - Two runs on the same host never overlap.
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.nvml
  - gpufleet.nvidia.internal
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: none
    details:
      - A step runs every time it is requested.
options:
  step:
    description:
      - V(reset_gpu) resets O(gpus) with one C(nvidia-smi --gpu-reset), which destroys their MIG instances.
      - V(drain) only checks that O(gpus) are not in use.
      - V(restart_service) restarts O(services) in order, once O(gpus) are not in use.
      - V(reload_driver) unloads the driver and loads the one on disk.
      - V(bring_back) restores the recorded MIG layout, CDI specification, compute mode and MPS daemons, with the services that do so at boot.
      - V(bundle) writes a support bundle for manual repair to a directory below C(/var/lib/gpufleet/bundles), which only root can read - the facts,
        the driver's lines in the kernel log, serial numbers, what was tried, and the report of C(nvidia-bug-report.sh) if that is installed.
    type: str
    choices: [reset_gpu, drain, restart_service, reload_driver, bring_back, bundle]
    required: true
  gpus: {description: "PCI addresses of GPUs, such as V(0000:18:00.0).", type: list, elements: str, default: []}
  services: {description: systemd units., type: list, elements: str, default: []}
  wait: {description: Seconds to wait for the processes that use O(gpus) to end by themselves., type: int, default: 0}
  reason: {description: "Why the host is handed over, for O(step=bundle).", type: str, default: ""}
  record: {description: "What was tried, for O(step=bundle).", type: dict, default: {}}
  lock_timeout: {description: Seconds to wait for another run that changes the GPUs of this host. V(0) refuses at once., type: int, default: 60}
notes:
  - In check mode, nothing is done, and the processes that use the GPUs are returned.
"""

EXAMPLES = r"""
- name: Reset one GPU
  gpufleet.nvidia.gpu_repair:
    step: reset_gpu
    gpus: ["0000:18:00.0"]
"""

RETURN = r"""
said: {description: "What was done, or the output of the tool.", returned: success, type: str, sample: "GPU 00000000:18:00.0 was successfully reset. All done."}
users: {description: The processes that use O(gpus)., returned: in check mode, type: list, elements: str}
bundle: {description: "The directory of the bundle, for O(step=bundle).", returned: success, type: str}
lacking: {description: "What is missing from the bundle, and why.", returned: with O(step=bundle), type: list, elements: str}
refusals: {description: "Why the request is refused, each with C(thing), C(reason), C(remedy), C(message).", type: list, elements: dict, returned: when refused}
"""

from collections.abc import Callable
from contextlib import nullcontext

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles, exclusive
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.document import pynvml_is_wanted
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.repair_plan import users_of_gpus
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.repair_run import Repair, write_bundle
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure, Refused, refuse

#: Steps that keep others from the GPUs. The services of "bring_back" take the lock themselves.
_LOCKED = ("reset_gpu", "reload_driver")


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "step": {
                "type": "str",
                "choices": ["reset_gpu", "drain", "restart_service", "reload_driver", "bring_back", "bundle"],
                "required": True,
            },
            "gpus": {"type": "list", "elements": "str", "default": []},
            "services": {"type": "list", "elements": "str", "default": []},
            "wait": {"type": "int", "default": 0},
            "reason": {"type": "str", "default": ""},
            "record": {"type": "dict", "default": {}},
            "lock_timeout": {"type": "int", "default": 60},
            "_pynvml_archive": {"type": "path"},
        },
        required_if=[("step", "reset_gpu", ["gpus"]), ("step", "restart_service", ["services"])],
        supports_check_mode=True,
    )
    parameters = module.params
    repair = Repair(parameters["_pynvml_archive"], parameters["wait"])
    try:
        facts = repair.read()
    except Refused as error:
        refuse(module, error)
    if pynvml_is_wanted(HostFiles(), facts.nvml.code) and not parameters["_pynvml_archive"]:
        module.exit_json(changed=False, pynvml_missing=True)
    if module.check_mode:
        module.exit_json(changed=True, said="", users=users_of_gpus(facts, parameters["gpus"]))
    step, gpus = parameters["step"], parameters["gpus"]
    steps: dict[str, Callable[[], str]] = {
        "reset_gpu": lambda: repair.reset(gpus),
        "drain": lambda: repair.drain(gpus),
        "restart_service": lambda: repair.restart(parameters["services"], gpus),
        "reload_driver": repair.reload,
        "bring_back": repair.bring_back,
    }
    try:
        if step == "bundle":
            folder, lacking = write_bundle(parameters["reason"], parameters["record"], parameters["_pynvml_archive"])
            module.exit_json(changed=True, said="written", bundle=folder, lacking=lacking)
        with exclusive(parameters["lock_timeout"]) if step in _LOCKED else nullcontext():
            said = steps[step]()
    except Refused as error:
        refuse(module, error)
    except (Failure, OSError) as error:
        module.fail_json(msg=f"Failed to repair: {str(error).rstrip('.')}.")
    module.exit_json(changed=step != "drain", said=said)


if __name__ == "__main__":
    main()
