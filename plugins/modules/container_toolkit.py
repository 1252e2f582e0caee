#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: container_toolkit
short_description: Install and configure the NVIDIA Container Toolkit
version_added: 0.1.0
description:
  - Installs the four packages of the NVIDIA Container Toolkit at one exact version, in one transaction that is simulated first, and holds them at
    this version.
  - Refuses versions with published vulnerabilities, which allow a container to escape its isolation.
  - Configures C(/etc/nvidia-container-runtime/config.toml) so that unprivileged containers get GPUs in one way only, set by O(device_injection). All
    other settings and comments in that file stay.
  - Keeps the CDI specification in agreement with the installed driver and GPUs. Another specification of C(nvidia.com/gpu) that describes what the host
    does not have, such as an old C(/etc/cdi/nvidia.yaml), is moved to its name with C(.disabled-by-gpufleet), because runtimes read every file.
  - Does not configure a container runtime; use M(gpufleet.nvidia.container_runtime).
options:
  state:
    description:
      - Whether the toolkit is installed or removed.
      - V(absent) removes its packages and their holds, C(/etc/nvidia-container-runtime/config.toml), the CDI specification and the repository
        with its key.
    type: str
    choices: [present, absent]
    default: present
  runtime:
    description: The host's container runtime, which determines O(device_injection=auto).
    type: str
    choices: [containerd, docker, crio, k3s, rke2]
    default: containerd
  hooks:
    description:
      - Whether C(/usr/local/nvidia/toolkit) has links to C(nvidia-cdi-hook) and C(nvidia-ctk) of the host. The GPU Operator's device plugin has
        containers run them there on all nodes as long as the operator brings its toolkit to some. If omitted, none are made; those that are there stay.
      - Programs of the operator's own stay. O(state=absent) removes the links.
    type: str
    choices: [present]
extends_documentation_fragment:
  - gpufleet.nvidia.variables.container_toolkit
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.changes
  - gpufleet.nvidia.repository
  - gpufleet.nvidia.nvml
author:
  - The gpufleet.nvidia authors (@gpufleet)
seealso:
  - module: gpufleet.nvidia.container_runtime
"""

EXAMPLES = r"""
- name: Install the toolkit for shared nodes
  gpufleet.nvidia.container_toolkit:
    version: 1.20.2

- name: Install it from a mirror in an air-gapped site
  gpufleet.nvidia.container_toolkit:
    repository:
      url: https://mirror.example.com/libnvidia-container/stable/deb
      key_file: /usr/share/keyrings/site.gpg
      key_fingerprint: 0123456789ABCDEF0123456789ABCDEF01234567

- name: Install it on a single-user workstation with plain 'docker run --gpus'
  gpufleet.nvidia.container_toolkit:
    device_injection: envvar
"""

RETURN = r"""
version:
  description: The version of the toolkit after the run, or in check mode the one that it would have. Empty if it is not installed.
  type: str
  returned: success
  sample: 1.20.2
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
  returned: success
packages: {description: "The installed packages of the toolkit, by name.", type: dict, returned: success}
refusals: {description: "Why the request is refused, each with C(thing), C(reason), C(remedy), C(message).", type: list, elements: dict, returned: when refused}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import NotUtf8
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.module_run import run_module
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.package_tools import fetching
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.repositories import REPOSITORY_OPTION
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.toml_read import TomlError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._options import arguments
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Plan
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes import RUNTIMES
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.apply import ToolkitSystem, run_stage
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.config import unreadable
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.desired import from_options

ARGUMENTS = arguments(
    "container_toolkit",
    state={"type": "str", "choices": ["present", "absent"], "default": "present"},
    repository=REPOSITORY_OPTION,
    runtime={"type": "str", "choices": list(RUNTIMES), "default": "containerd"},
    hooks={"type": "str", "choices": ["present"]},
    _pynvml_archive={"type": "path"},
)


def run(module: AnsibleModule) -> tuple[Plan, dict[str, Any]]:
    """Read, plan, apply, read back."""
    system = ToolkitSystem(fetching(open_url), archive=module.params["_pynvml_archive"])
    try:
        report = run_stage(system, from_options(module.params), module.check_mode)
    except (TomlError, NotUtf8) as error:
        raise unreadable(str(error)) from error
    return report.plan, {"version": report.version, "packages": dict(report.after.packages)}


def main() -> None:
    run_module(AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True), "container toolkit", run)


if __name__ == "__main__":
    main()
