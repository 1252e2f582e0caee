#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_info
version_added: "0.1.0"
author:
  - The gpufleet.nvidia authors (@gpufleet)
short_description: Read everything about the NVIDIA GPUs of a host in one call
description:
  - Reads the PCI bus, the driver in its three places (loaded, on disk, library), GPUs with their MIG instances and
    processes, the fabric, MPS daemons, the container toolkit and runtimes, the kubelet and CDI specifications.
  - Has no side effect and works in every state of a host - without a driver, with a driver that is not loaded or does
    not match its library, while a MIG mode is pending, with dead daemons, and without root.
  - What cannot be known is V(none), and RV(gpu.unknown) says why. Nothing is guessed.
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.reads
  - gpufleet.nvidia.nvml
options:
  root:
    description:
      - Where the file system of the host to read is mounted.
      - The GPUs themselves (NVML) are always those of the running host. Services and versions that only a running host
        can tell are unknown when this is not V(/).
    type: path
    default: /
  gather:
    description:
      - Parts to add to RV(gpu) that are long and that few callers need.
      - V(errors) adds to each GPU the errors of its memory, and the recovery action that its driver asks for.
      - V(health) adds how C(nvidia-smi) ended and the Xid and SXid errors of the kernel's log, for O(gpufleet.nvidia.health#module:facts).
      - V(holders) lists every process that has a device file of NVIDIA open, with its pod and container.
      - V(mig_parted) adds what the service of nvidia-mig-parted is set to restore at boot, with its configuration file.
      - V(profiles) adds to each GPU that supports MIG the table of GPU instance profiles that its driver offers.
    type: list
    elements: str
    choices:
      - errors
      - health
      - holders
      - mig_parted
      - profiles
    default: []
  as_text:
    description:
      - Return RV(gpu_text), one text, in place of RV(gpu). Ansible copies every value of a result several times on the controller, which for
        the facts of a large fleet takes more time and memory than everything else.
      - The actions of the collection that take facts from a registered variable read both.
    type: bool
    default: false
seealso:
  - module: gpufleet.nvidia.health
"""

EXAMPLES = r"""
- name: Read the GPUs of the host
  gpufleet.nvidia.gpu_info:
  register: gpus

- name: Say which driver runs
  ansible.builtin.debug:
    var: gpus.gpu.driver.loaded_version

- name: Find out who keeps the driver from being unloaded
  gpufleet.nvidia.gpu_info:
    gather:
      - holders
  register: gpus
"""

RETURN = r"""
gpu_text:
  description: RV(gpu) as JSON.
  returned: when O(as_text) is true
  type: str
gpu:
  description: The facts document.
  returned: when O(as_text) is false
  type: dict
  contains:
    schema:
      description: Version of the document's shape.
      type: int
      returned: always
      sample: 1
    host:
      description: Name, kernel, distribution, package manager, Secure Boot, kernel headers and the packages that bring them.
      type: dict
      returned: always
    pci:
      description: NVIDIA's GPUs and NVSwitches on the PCI bus; needs no driver.
      type: list
      elements: dict
      returned: always
      sample:
        - address: "0000:18:00.0"
          device_id: "0x2330"
          kind: gpu
          kernel_driver: nvidia
          board: h100-80gb-sxm
          architecture: hopper
    driver:
      description: Versions of the driver (loaded, on disk, library), its flavour, source, packages and holds.
      type: dict
      returned: always
      sample:
        loaded_version: 580.126.09
        on_disk_version: 580.126.09
        library_version: 580.126.09
        flavour: open
        source: nvidia
    nvml:
      description: Whether NVML answers, and if not, why (as a sentence and as a code).
      type: dict
      returned: always
    gpus:
      description: The GPUs as NVML sees them; V(none) when NVML does not answer.
      type: list
      elements: dict
      returned: always
    fabric:
      description: NVSwitches and the fabric manager.
      type: dict
      returned: always
    mps:
      description: >-
        The MPS control daemons that run, the device plugin's in its container among them, whether they answer, what they limit clients to, their
        servers and the number of their clients.
      type: list
      elements: dict
      returned: always
    mps_control:
      description: >-
        Whether the control program of MPS is installed, and in C(multi_user) whether its release can let clients of several users share a
        server; V(none) where it is not installed.
      type: dict
      returned: always
    toolkit:
      description: The NVIDIA container toolkit.
      type: dict
      returned: always
    runtimes:
      description: The installed container runtimes by name (containerd, docker, crio, k3s, rke2).
      type: dict
      returned: always
    kubelet:
      description: Whether a kubelet is installed and active.
      type: dict
      returned: always
    cdi:
      description: The CDI specifications, and which devices those of nvidia.com/gpu lack or name in vain.
      type: list
      elements: dict
      returned: always
    recorded:
      description: >-
        The MIG layout and the sharing that are restored at boot, what was tried to repair the host (C(heal)), the step in which an upgrade is
        (C(upgrade_state)), whether a repartition was cut off (C(repartition_unfinished)), and in C(mig_unfinished) whether the last change of MIG
        was cut off before its end.
      type: dict
      returned: always
    host_program:
      description: Version and checksum of the program that restores them, and where it writes metrics, if it does.
      type: dict
      returned: always
    holders:
      description: The processes that have a device file of NVIDIA open.
      type: list
      elements: dict
      returned: when O(gather) has V(holders)
    unknown:
      description: Why a value is unknown, by its path.
      type: dict
      returned: always
      sample:
        driver.library_version: libnvidia-ml.so.1 is not installed
pynvml_missing:
  description:
    - Whether the GPUs are unknown only because the host has no pynvml. The action plugin sends it then, so that users
      do not see V(true).
  returned: always
  type: bool
  sample: false
"""

import json

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.zip_imports import compile_once

# Before the rest is imported, which is what reading a host spends most of its time on.
compile_once()

from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.host_files import HostFiles
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.source import Source
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.document import (
    SUBSETS,
    pynvml_is_wanted,
    read_document,
)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/"},
            "gather": {"type": "list", "elements": "str", "choices": list(SUBSETS), "default": []},
            "as_text": {"type": "bool", "default": False},
            "_pynvml_archive": {"type": "path"},
        },
        supports_check_mode=True,
    )
    files = HostFiles(module.params["root"])
    if not files.is_directory("/"):
        module.fail_json(
            msg=f"Failed to read the host's files: root is {files.root}, which is not a directory. "
            "Give the directory that the host's file system is mounted at."
        )
    document = read_document(Source(files), module.params["_pynvml_archive"], module.params["gather"])
    # Ansible looks at every value of a result, on the host as on the controller: one text is one value.
    facts = {"gpu_text": json.dumps(document)} if module.params["as_text"] else {"gpu": document}
    module.exit_json(changed=False, pynvml_missing=pynvml_is_wanted(files, document), **facts)


if __name__ == "__main__":
    main()
