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
  - Reads the PCI bus, the three versions of the driver (loaded, on disk, library), GPUs with their MIG instances and processes, the fabric, MPS
    daemons, the container toolkit and runtimes, the kubelet and CDI specifications.
  - Has no side effects and works in every state of a host - without a driver, with a driver that is not loaded or does not match its library, while a
    MIG mode is pending, with dead daemons, and without root.
  - Values that cannot be determined are V(none), and RV(gpu.unknown) says why. Nothing is guessed.
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.reads
  - gpufleet.nvidia.nvml
options:
  root:
    description:
      - Where the file system of the host to read is mounted.
      - The GPUs themselves (NVML) are always those of the running host. Services and versions that only a running host can report are unknown if this
        is not V(/).
    type: path
    default: /
  gather:
    description:
      - Additional parts of RV(gpu), which are long and which few callers need.
      - V(containers) adds the pods that a program of the container toolkit started, to RV(gpu.runtimes). Where the GPU Operator's toolkit is left over,
        they are there anyway.
      - V(errors) adds the memory errors of each GPU, and the recovery action that the driver reports for it.
      - V(health) adds the result of C(nvidia-smi) and the Xid and SXid errors in the kernel log, for O(gpufleet.nvidia.health#module:facts).
      - V(holders) lists every process that has an NVIDIA device file open, with its pod and container, or its service.
      - V(mig_parted) adds the layout that the service of nvidia-mig-parted is configured to restore at boot, with its configuration file.
      - V(profiles) adds to each GPU that supports MIG the table of GPU instance profiles that its driver offers.
      - V(slurm) adds the site's own C(slurm.conf) and C(gres.conf), with what they include.
    type: list
    elements: str
    choices:
      - containers
      - errors
      - health
      - holders
      - mig_parted
      - profiles
      - slurm
    default: []
  as_text:
    description:
      - Whether to return RV(gpu_text), a single string, instead of RV(gpu). Ansible copies every value of a result several times on the controller,
        which takes more time and memory than everything else for the facts of a large fleet.
      - The action plugins of the collection that read facts from a registered variable accept both, and hold the string against the schema of facts.
    type: bool
    default: false
  _key_files:
    description:
      - What the host is to say of files with keys of repositories that the inventory names, by variable. Set by the action plugin; a value set in a
        task is ignored.
    type: dict
  _slurm_directory:
    description: Where the rendered files of Slurm are on a node to which they are brought. Set by the action plugin; a value set in a task is ignored.
    type: path
  _slurm_node:
    description: The name of the node in Slurm, whose programs are asked with the subset C(health). Set by the action plugin; a value set in a task is ignored.
    type: str
seealso:
  - module: gpufleet.nvidia.health
"""

EXAMPLES = r"""
- name: Read the GPUs of the host
  gpufleet.nvidia.gpu_info:
  register: gpus

- name: Show the version of the loaded driver
  ansible.builtin.debug:
    var: gpus.gpu.driver.loaded_version

- name: Find the processes that keep the driver from being unloaded
  gpufleet.nvidia.gpu_info:
    gather:
      - holders
  register: gpus
"""

RETURN = r"""
gpu_text: {description: RV(gpu) as JSON., returned: when O(as_text) is true, type: str}
gpu:
  description: The facts document.
  returned: when O(as_text) is false
  type: dict
  contains:
    schema:
      description: Version of the document's schema.
      type: int
      returned: always
      sample: 1
    host:
      description: Name, kernel, distribution, package manager, Secure Boot, kernel headers and the packages that provide them.
      type: dict
      returned: always
    pci:
      description: NVIDIA GPUs and NVSwitches on the PCI bus. Needs no driver.
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
      description: Whether NVML responds, and if not, why (as a sentence and as a code).
      type: dict
      returned: always
    gpus:
      description: >-
        The GPUs as NVML reports them. V(none) if NVML does not respond. C(allocations) of a GPU or a compute instance lists the pods that the kubelet
        allocated it to, with C(pod) (namespace and name, V(none) if the host does not know it), C(pod_uid), C(container) and C(resource). For a
        ResourceClaim, C(container) is V(none) and C(resource) names the claim. An entry with C(reason) says why the kubelet's record could not be read.
        A running job of Slurm has C(job), C(user) and C(resource) instead, and C(sees) where C(CUDA_VISIBLE_DEVICES) names other devices only, or is a
        number, of which CUDA makes the first MIG device.
      type: list
      elements: dict
      returned: always
    fabric:
      description: NVSwitches and the fabric manager.
      type: dict
      returned: always
    mps:
      description: >-
        The running MPS control daemons, including the device plugin's in its container; whether they respond, the limits of their clients, their
        servers and the number of their clients.
      type: list
      elements: dict
      returned: always
    mps_control:
      description: >-
        Whether the control program of MPS is installed, and in C(multi_user) whether clients of several users can share a server in its release.
        V(none) if it is not installed.
      type: dict
      returned: always
    toolkit:
      description: The NVIDIA container toolkit.
      type: dict
      returned: always
    runtimes:
      description: The installed container runtimes by name (containerd, docker, crio, k3s, rke2), and k0s, which is only seen.
      type: dict
      returned: always
    kubelet:
      description: Whether a kubelet is installed and active.
      type: dict
      returned: always
    cdi:
      description: >-
        The CDI specifications, which of them the collection writes, and for those of C(nvidia.com/gpu) which devices are missing or no longer exist, and
        how they differ from the loaded driver and its device nodes.
      type: list
      elements: dict
      returned: always
    recorded:
      description: >-
        The MIG layout and the sharing that are restored at boot, the attempts to repair the host (C(heal)), the current step of an upgrade
        (C(upgrade_state)) and what it installs (C(upgrade_to)), what upgrade, rollback and repartition left (C(rolled_out)), the digest of the saved
        plan that was begun last (C(plan_begun), or C(plan_applied) when its end was reached), and whether a repartition
        (C(repartition_unfinished)) or the last change of MIG (C(mig_unfinished)) was interrupted.
      type: dict
      returned: always
    host_program:
      description: >-
        C(version) and C(sha256) of the program that restores them, the interpreter (C(python)) that its units have to call, where it writes metrics
        (C(metrics_directory), null for nowhere) and whether their timer runs (C(metrics_active)), and the collection's C(units) by name, each with the
        C(sha256) of its file and its C(state), V(enabled), V(disabled) or V(masked). C(units) is null where systemd does not run.
      type: dict
      returned: always
    slurm:
      description: >-
        C(files) has the rendered files of Slurm on the node, each with its digest, and C(applied) by daemon what that was last started with, where
        C(gpu_slurm_controllers) has hosts. C(slurmd) and C(scontrol) have what C(slurmd -G) and C(scontrol show node) printed, with the subset C(health).
        C(site) has the texts of the site's own files by path, with the subset C(slurm).
      type: dict
      returned: where C(gpu_slurm_cluster) is set, or with the subset C(slurm)
    holders:
      description: The processes that have an NVIDIA device file open.
      type: list
      elements: dict
      returned: when O(gather) has V(holders)
    unknown:
      description: Why a value is unknown, by its path.
      type: dict
      returned: always
      sample:
        driver.library_version: libnvidia-ml.so.1 is not installed
seconds:
  description: Duration of the module on the host, in seconds, as C(own). Waits for programs and for the driver are part of it.
  returned: always
  type: dict
  sample:
    own: 0.4
"""

import json

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.zip_imports import compile_once

# Before the rest is imported, which is what reading a host spends most of its time on.
compile_once()

from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.host_reader import HostReader
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.stopwatch import since_start
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.document import (
    SUBSETS,
    pynvml_is_wanted,
    read_document,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._packages.key_file import key_file_fault
from ansible_collections.gpufleet.nvidia.plugins.module_utils._slurm.apply import ask_daemons, read_files, read_site


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/"},
            "gather": {"type": "list", "elements": "str", "choices": list(SUBSETS), "default": []},
            "as_text": {"type": "bool", "default": False},
            "_pynvml_archive": {"type": "path"},
            "_slurm_directory": {"type": "path"},
            "_slurm_node": {"type": "str"},
            "_key_files": {"type": "dict", "no_log": False},
        },
        supports_check_mode=True,
    )
    files = HostFiles(module.params["root"])
    if not files.is_directory("/"):
        module.fail_json(
            msg=f"Failed to read the host's files: root is {files.root}, which is not a directory. "
            "Give the directory that the host's file system is mounted at."
        )
    document = read_document(HostReader(files), module.params["_pynvml_archive"], module.params["gather"])
    if module.params["_key_files"]:
        document["key_files"] = {name: key_file_fault(*key) for name, key in module.params["_key_files"].items()}
    if module.params["_slurm_directory"]:
        document["slurm"] = read_files(module.params["_slurm_directory"])
    if module.params["_slurm_node"] and "health" in module.params["gather"]:
        document["slurm"] = {**document.get("slurm", {}), **ask_daemons(module.params["_slurm_node"])}
    if "slurm" in module.params["gather"]:
        document["slurm"] = {**document.get("slurm", {}), "site": read_site()}
    # Ansible looks at every value of a result, on the host as on the controller: one text is one value.
    facts = {"gpu_text": json.dumps(document)} if module.params["as_text"] else {"gpu": document}
    module.exit_json(
        changed=False, pynvml_missing=pynvml_is_wanted(files, document["nvml"]["code"]), seconds=since_start(), **facts
    )


if __name__ == "__main__":
    main()
