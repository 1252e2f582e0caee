#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: container_runtime
short_description: Configure containerd, Docker, CRI-O, k3s or RKE2 for NVIDIA GPUs
version_added: 0.1.0
description:
  - Adds the runtime C(nvidia) of the NVIDIA Container Toolkit to a container runtime.
  - Changes only the settings that belong to it. Every other byte of the runtime's files stays, including comments and order; O(state=absent) restores
    the original bytes.
  - The installed runtime validates the planned configuration before any file is changed, also in check mode.
  - The runtime is restarted only when its merged configuration changes, without C(systemctl daemon-reload), and not when running containers would be
    lost. If it does not start with the new files, the previous ones are restored.
  - Drop-ins that C(nvidia-ctk runtime configure) left behind, which hide later changes to the main file, are moved aside.
options:
  runtime:
    description:
      - The container runtime of the host.
      - V(k3s) and V(rke2) detect the NVIDIA runtime by themselves when they start. The files that they generate are read and never edited.
    type: str
    choices: [containerd, docker, crio, k3s, rke2]
    required: true
  state:
    description:
      - V(present) configures the runtime C(nvidia), V(absent) removes it, no matter what configured it.
      - V(absent) leaves CDI enabled in Docker's C(daemon.json).
    type: str
    choices: [present, absent]
    default: present
  config_path:
    description:
      - Path of the main file (containerd, Docker) or the drop-in (CRI-O).
      - Defaults to the runtime's standard path. Not used with k3s and RKE2.
    type: path
  binary: {description: Path of C(nvidia-container-runtime)., type: path, default: /usr/bin/nvidia-container-runtime}
extends_documentation_fragment:
  - gpufleet.nvidia.variables.container_runtime
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.changes
author:
  - The gpufleet.nvidia authors (@gpufleet)
seealso:
  - module: gpufleet.nvidia.container_toolkit
"""

EXAMPLES = r"""
- name: Configure containerd for pods with the RuntimeClass nvidia
  gpufleet.nvidia.container_runtime:
    runtime: containerd

- name: Configure Docker so that every container gets GPUs
  gpufleet.nvidia.container_runtime:
    runtime: docker
    default: true

- name: Restore the original configuration of containerd
  gpufleet.nvidia.container_runtime:
    runtime: containerd
    state: absent
"""

RETURN = r"""
steps:
  description: >-
    What was done, or in check mode would be done, in order. Each step has C(kind) and C(target), identifiers that do not depend on the wording,
    C(data), C(text), and the parts C(why) and C(disturbs) of the text.
  type: list
  elements: dict
  returned: success
seconds:
  description: >-
    Seconds spent on downloads (C(download), with apt), builds of kernel modules (C(build)), other work of the package manager (C(packages)), other
    programs (C(programs)) and the module itself (C(own)). Parts that took no time are omitted.
  type: dict
  returned: success
  sample: {download: 61.0, build: 301.5, packages: 38.2, programs: 6.1, own: 1.9}
effective:
  description: The settings in effect in the runtime; in check mode, the ones that would be.
  type: dict
  returned: always
  contains:
    nvidia: {description: "Path of the runtime C(nvidia), or null if there is none.", type: str}
    default_runtime: {description: The default runtime., type: str}
    cdi: {description: "Whether CDI devices are enabled, or null if the runtime does not report it.", type: bool}
    runtimes: {description: All runtimes., type: list, elements: str}
effective_change: {description: Whether the settings in effect change. Files can change without this., type: bool, returned: always}
restarted: {description: "Whether the runtime was restarted, or in check mode would be.", type: bool, returned: always}
disturbs: {description: What the change disrupts., type: list, elements: str, returned: always}
refusals: {description: "Why the request is refused, each with C(thing), C(reason), C(remedy), C(message).", type: list, elements: dict, returned: when refused}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.module_run import run_module
from ansible_collections.gpufleet.nvidia.plugins.module_utils._options import arguments
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Plan
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.apply import apply, observe_and_plan
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.desired import BINARY, from_options
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.engines import engine_for
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.plan import file_diffs
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes import RUNTIMES
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind

ARGUMENTS = arguments(
    "container_runtime",
    runtime={"type": "str", "choices": list(RUNTIMES), "required": True},
    state={"type": "str", "choices": ["present", "absent"], "default": "present"},
    config_path={"type": "path"},
    binary={"type": "path", "default": BINARY},
)


def run(module: AnsibleModule) -> tuple[Plan, dict[str, Any]]:
    """Read, plan, apply, read back."""
    params = module.params
    desired = from_options(params)
    engine = engine_for(params["runtime"], params["binary"], params["config_path"])
    outcome = observe_and_plan(engine, desired, params["restart"], params["disruption"])
    in_force = outcome.after
    if outcome.plan.changes and not module.check_mode:
        in_force = apply(engine, desired, outcome)
    return outcome.plan, {
        "parts": file_diffs(outcome.changes),
        "effective": dict(in_force.as_dict()),
        "effective_change": outcome.before != outcome.after,
        "restarted": any(step.kind is Kind.RESTART_SERVICE for step in outcome.plan.steps),
        "disturbs": [who for step in outcome.plan.steps for who in step.disturbs],
    }


def main() -> None:
    run_module(AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True), "container runtime", run)


if __name__ == "__main__":
    main()
