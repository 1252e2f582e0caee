#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: driver
short_description: Install, change or remove the NVIDIA driver, and verify the result
version_added: 0.1.0
author:
  - The gpufleet.nvidia authors (@gpufleet)
description:
  - Plans the driver's packages from the host's facts, the desired state and the packages that the repositories offer, has the package manager
    simulate the transaction, runs it, and reads the host back.
  - Success means that the module is built for the running kernel, that the loaded module, the module on disk and the
    library are of one version, that C(nvidia-smi) responds, and that the services run. Exit statuses are not trusted.
  - Reloads the driver without a reboot when it is not in use. Otherwise, it refuses to change it (O(disruption)); where that is allowed,
    RV(reboot_required) is true and RV(reboot_reasons) says what uses it.
  - The package set before a change is recorded in C(/var/lib/gpufleet/driver-previous.json), and
    O(state=previous) restores it in one transaction. The version of the container toolkit is recorded with it, for the playbook
    C(gpufleet.nvidia.rollback).
options:
  state:
    description:
      - V(present) installs the driver, V(absent) removes it with its pins and its repository.
      - V(previous) restores the package set from before the last change.
    type: str
    choices: [present, absent, previous]
    default: present
  reboot: {description: Whether you reboot the host when RV(reboot_required) is true. The module does not reboot it., type: bool, default: false}
  disruption:
    description:
      - V(refuse) changes nothing if another driver would have to be loaded while processes have the loaded one open, or could only be loaded by a reboot
        and O(reboot) is V(false). Pods that were given a GPU and have not opened it are known to the playbooks only.
      - V(force) installs it nevertheless.
    type: str
    choices: [refuse, force]
    default: refuse
  imex:
    description:
      - IMEX on a host of an NVL72 rack (GB200, GB300).
    type: dict
    default: {}
    suboptions:
      mode:
        description:
          - V(host) installs the package at exactly the driver's version and runs the service, V(masked) installs it and masks the service because
            ComputeDomains run their own, V(unmanaged) leaves IMEX as it is. The other values are refused on boards that are not part of a rack.
        type: str
        choices: [unmanaged, host, masked]
        default: unmanaged
      nodes:
        description:
          - IPv4 or IPv6 addresses of all hosts of the rack, including this one. They are written to C(/etc/nvidia-imex/nodes_config.cfg) in sorted
            order.
        type: list
        elements: str
        default: []
      restart:
        description:
          - Whether a running service may be stopped or restarted while processes use the GPUs. Jobs on other hosts that have imported memory from
            these processes lose it.
        type: bool
        default: false
      remove_nodes:
        description:
          - Whether fewer nodes may be written than the file has.
        type: bool
        default: false
  releases:
    description:
      - Driver branches that the collection does not know yet, as returned by the filter P(gpufleet.nvidia.driver_releases#filter).
    type: list
    elements: dict
    default: []
    suboptions:
      branch: {description: The driver branch., type: int, required: true}
      kind:
        description: What NVIDIA calls it, V(long-term support), V(production), V(new-feature) or another word.
        type: str
        required: true
      date:
        description: The date of its newest release, as V(YYYY-MM-DD); empty where the file has none.
        type: str
        required: true
      source: {description: The file or address that it was read from., type: str, required: true}
  advisories:
    description:
      - Security floors that the collection does not know yet, as returned by the filter P(gpufleet.nvidia.driver_advisories#filter).
      - The newest bulletin applies, whether it is one of these or the collection's own.
    type: list
    elements: dict
    default: []
    suboptions:
      branch: {description: The driver branch., type: int, required: true}
      version: {description: The oldest version of the branch with the fixes., type: str, required: true}
      bulletin: {description: The number of the bulletin., type: str, required: true}
      date: {description: "The date of its last revision, as V(YYYY-MM-DD).", type: str, required: true}
      source: {description: The file that it was read from., type: str, required: true}
      reason: {description: The most severe vulnerability in older versions., type: str, required: true}
  lock_timeout: {description: Seconds to wait for another run that changes the GPUs of this host., type: int, default: 60}
notes:
  - In check mode, a repository that is not configured yet is not added, so the versions in the plan are approximate.
extends_documentation_fragment:
  - gpufleet.nvidia.variables.driver
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.changes
  - gpufleet.nvidia.repository
seealso:
  - module: gpufleet.nvidia.gpu_info
"""

EXAMPLES = r"""
- name: Install the newest driver of the long-term branch
  gpufleet.nvidia.driver:
    branch: "580"

- name: Install a specific version from a mirror
  gpufleet.nvidia.driver:
    version: 580.178.04
    repository:
      url: https://mirror.example.com/nvidia/debian12/x86_64
      key_url: https://mirror.example.com/nvidia/key.asc
      key_fingerprint: EB693B3035CD5710E231E123A4B469963BF863CC

- name: Install the newest fixed driver from Debian's own archive (contrib and non-free must be enabled)
  gpufleet.nvidia.driver:
    source: distribution
    branch: "535"
    flavour: proprietary

- name: Return to the driver from before the last change
  gpufleet.nvidia.driver:
    state: previous
"""

RETURN = r"""
version:
  description: The installed driver version after the run, or in check mode the one that would be installed. Empty if there is none.
  returned: success
  type: str
  sample: 580.178.04
seconds:
  description: >-
    Seconds spent on downloads (C(download), with apt), builds of kernel modules (C(build)), other work of the package manager (C(packages)), other
    programs (C(programs)) and the module itself (C(own)). Parts that took no time are omitted.
  type: dict
  returned: success
  sample: {download: 61.0, build: 301.5, packages: 38.2, programs: 6.1, own: 1.9}
steps:
  description: >-
    What was done, or in check mode would be done, in order. Each step has C(kind) and C(target), identifiers that do not depend on the wording,
    C(data), C(text), and the parts C(why) and C(disturbs) of the text.
  type: list
  elements: dict
  returned: success, and when the host read back does not match the desired state
packages: {description: "The installed packages of the driver, by name.", returned: success, type: dict}
reboot_required: {description: Whether a reboot is needed to load the driver on disk., returned: success, type: bool}
reboot_reasons: {description: What prevents the driver from being reloaded., returned: success, type: list, elements: str}
pending:
  description: >-
    The steps that wait for a reboot, each as in RV(steps), with C(waits_for), which is RV(reboot_reasons). Every other step that is still needed when
    the host is read back fails the task.
  returned: success
  type: list
  elements: dict
refusals:
  description:
    - Why the request cannot be met, each with C(thing), C(reason), C(remedy) and the whole C(message).
    - With Secure Boot, why the module stopped before it installed the driver, and what you must do at the console of the host. RV(steps) lists
      what was done.
  type: list
  elements: dict
  returned: when the request is refused, before anything is changed, or the driver needs manual action first
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.module_run import run_module
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_tools import fetching
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.repositories import REPOSITORY_OPTION
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.apply import run_stage
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.desired import DISRUPTIONS, REFUSE, from_options
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.system import DriverSystem
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.imex import MODES, UNMANAGED
from ansible_collections.gpufleet.nvidia.plugins.module_utils._options import arguments
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Plan

ARGUMENTS = arguments(
    "driver",
    state={"type": "str", "choices": ["present", "absent", "previous"], "default": "present"},
    repository=REPOSITORY_OPTION,
    reboot={"type": "bool", "default": False},
    disruption={"type": "str", "choices": list(DISRUPTIONS), "default": REFUSE},
    imex={
        "type": "dict",
        "default": {},
        "options": {
            "mode": {"type": "str", "choices": list(MODES), "default": UNMANAGED},
            "nodes": {"type": "list", "elements": "str", "default": []},
            "restart": {"type": "bool", "default": False},
            "remove_nodes": {"type": "bool", "default": False},
        },
    },
    releases={
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "branch": {"type": "int", "required": True},
            **{name: {"type": "str", "required": True} for name in ("kind", "date", "source")},
        },
    },
    advisories={
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "branch": {"type": "int", "required": True},
            **{name: {"type": "str", "required": True} for name in ("version", "bulletin", "date", "source", "reason")},
        },
    },
    lock_timeout={"type": "int", "default": 60},
)


def run(module: AnsibleModule) -> tuple[Plan, dict[str, Any]]:
    """Read, plan, apply, read back."""
    report = run_stage(DriverSystem(fetching(open_url)), from_options(module.params), module.check_mode)
    if report.reboot:
        module.warn(f"The driver can be reloaded only with a reboot: {'; '.join(report.reboot)}.")
    return Plan(report.steps, warnings=report.warnings), {
        "parts": report.diff_parts(),
        "version": report.version,
        "packages": dict(report.packages),
        "reboot_required": bool(report.reboot),
        "reboot_reasons": list(report.reboot),
        "pending": [{**step.as_dict(), "waits_for": list(report.reboot)} for step in report.pending],
    }


def main() -> None:
    run_module(AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True), "driver", run, locked=True)


if __name__ == "__main__":
    main()
