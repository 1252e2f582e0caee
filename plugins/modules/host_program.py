#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_program
version_added: "0.1.0"
short_description: Install the program that restores MIG and MPS at boot
description:
  - GPU instances, compute modes and MPS do not survive a reboot, and Ansible does not run at boot. This module installs one small Python program
    (built on the controller from the collection's own code, including pynvml) and the systemd units that run it before the kubelet, the container
    runtimes and other users of GPUs start.
  - The host downloads nothing. The program is sent only if the one on the host differs.
  - An action plugin of the same name builds the program and sets O(sha256), O(version) and O(src).
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.internal
  - gpufleet.nvidia.attributes.changes
options:
  state:
    description:
      - Whether the program and its units are installed.
      - V(absent) keeps what was recorded under C(/etc/gpufleet).
    type: str
    choices: [present, absent]
    default: present
  metrics_directory:
    description:
      - The directory that the textfile collector of node_exporter reads. If set, a timer reads the host every minute and writes C(gpufleet.prom) to
        it; docs/monitoring.md of the collection lists the metrics.
      - An empty string removes the timer, its service and the file. If the option is not set, they stay as they are.
      - The directory is not created, because it belongs to node_exporter. The service fails until it exists.
    type: str
  sha256: {description: SHA-256 of the desired program. Set by the action plugin., type: str}
  version: {description: Version of the collection that the program comes from. Set by the action plugin., type: str}
  src: {description: "File on the host with the program, if it must be installed. Set by the action plugin.", type: path}
notes:
  - systemd reloads its unit files only if one of them changed, because containers that use the systemd cgroup driver without CDI can lose their GPUs
    in a reload. O(metrics_directory) installs and removes its units without a reload.
"""

EXAMPLES = r"""
- name: Restore MIG and MPS at boot
  gpufleet.nvidia.host_program:
"""

RETURN = r"""
sha256: {description: SHA-256 of the desired program. V(none) if it was removed., returned: success, type: str}
version: {description: Version of the collection that the program comes from. V(none) if it was removed., returned: success, type: str}
seconds: {description: "Seconds that it took, by what they were spent on, as RV(gpufleet.nvidia.mig#module:seconds).", type: dict, returned: success}
steps: {description: "What was done, or would be in check mode, each as RV(gpufleet.nvidia.mig#module:steps).", type: list, elements: dict, returned: success}
refusals: {description: "Why the request is refused, each with C(thing), C(reason), C(remedy), C(message).", type: list, elements: dict, returned: when refused}
"""

import os
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.module_run import run_module
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.stopwatch import since_start
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import ProgramFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.metric_units import refused_directory
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host import installation
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.plan import plan as plan_installation
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.plan import plan_removal, unit_texts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure, Plan, Refused, carry_out


def run(module: AnsibleModule) -> tuple[Plan, Mapping[str, Any]]:
    """Read, plan, apply, read back."""
    wanted = module.params
    present = wanted["state"] == "present"
    metrics = wanted["metrics_directory"]
    refused = refused_directory(metrics) if metrics else None
    if refused:
        remedy = "Give the directory that node_exporter is started with (--collector.textfile.directory)."
        raise Refused(f"metrics_directory {metrics}", refused, remedy)
    if present and not (wanted["sha256"] and wanted["version"]):
        raise Failure(
            "Failed to install the host program: the module was called without its action plugin, which builds it. "
            "Call gpufleet.nvidia.host_program as a task"
        )

    def planned(found: ProgramFacts) -> Plan:
        return (
            plan_installation(found, wanted["version"], wanted["sha256"], metrics) if present else plan_removal(found)
        )

    found = installation.read()
    plan = planned(found)
    written = {name: wanted[name] if present else None for name in ("sha256", "version")}
    if metrics and not os.path.isdir(metrics):
        module.warn(
            f"no metrics are written: {metrics} does not exist, and node_exporter has to create it. Install node_exporter, "
            "or name the directory that it reads (nvidia_health_metrics_directory)"
        )
    if module.check_mode or not plan.changes:
        return plan, written
    if installation.needs_program(plan) and not wanted["src"]:
        module.exit_json(changed=False, program_missing=True, seconds=since_start())
    carry_out(
        "install the host program" if present else "remove the host program",
        plan,
        lambda steps: (
            installation.apply(steps, unit_texts(found, metrics), wanted["src"], wanted["version"])
            if present
            else installation.apply_removal(steps)
        ),
        lambda: planned(installation.read()),
    )
    return plan, written


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "metrics_directory": {"type": "str"},
            "sha256": {"type": "str"},
            "version": {"type": "str"},
            "src": {"type": "path"},
        },
        supports_check_mode=True,
    )
    run_module(module, "the host program", run)


if __name__ == "__main__":
    main()
