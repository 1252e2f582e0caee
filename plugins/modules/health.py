#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: health
version_added: "0.1.0"
author:
  - The gpufleet.nvidia authors (@gpufleet)
short_description: Verify that a GPU host works, or say what to fix first
description:
  - Checks a GPU host from the PCI bus upwards - driver, C(nvidia-smi), NVML, the recovery action that the driver reports, Xid errors, fabric,
    persistence, memory errors, container runtime, MPS and, with O(cuda_check) or O(dcgm_level), a CUDA program or NVIDIA's diagnostic.
  - Whether the host is as its inventory describes it, the playbooks C(plan) and C(verify) say.
  - Each check says what it found and what to do next. A check is skipped if a check that it depends on has failed, so the first failure is the one to
    fix.
  - Never changes anything on the host.
extends_documentation_fragment:
  - gpufleet.nvidia.variables.health
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.reads
  - gpufleet.nvidia.nvml
options:
  facts:
    description:
      - RV(gpufleet.nvidia.gpu_info#module:gpu) of M(gpufleet.nvidia.gpu_info), with V(errors) and V(health) in
        O(gpufleet.nvidia.gpu_info#module:gather). If given, these facts are checked on the controller, and the host is not read again.
      - Not used with a program in O(cuda_check) or with O(dcgm_level), which must run on the host.
    type: dict
    default: {}
  checks:
    description:
      - The checks to report. Defaults to all checks. A check that one of these depends on is reported if it fails.
    type: list
    elements: str
    choices:
      - pci
      - driver
      - next_kernel
      - nvidia_smi
      - nvml
      - recovery
      - xid
      - fabric
      - persistence
      - memory
      - runtime
      - mps
      - cuda
      - dcgm
  dcgm_level:
    description:
      - The level of C(dcgmi diag), NVIDIA's diagnostic, that must pass - V(1) takes seconds and checks only the software, V(2) takes minutes, V(3)
        about half an hour and V(4) hours. V(0) runs none.
      - It runs on the host, also in check mode. It needs DCGM with C(nvidia-dcgm.service).
      - V(2) and higher put load on the GPUs. While a program uses a GPU of the host, level 1 runs instead, with a warning.
      - Findings that NVIDIA classifies as configuration, such as persistence mode that is off, are warnings.
    type: int
    choices: [0, 1, 2, 3, 4]
    default: 0
  fabric_timeout:
    description:
      - How many seconds to wait for GPUs that are being registered with their NVLink fabric, which takes a while after the driver is loaded. Not used
        with O(facts).
    type: int
    default: 0
seealso:
  - module: gpufleet.nvidia.gpu_info
"""

EXAMPLES = r"""
- name: Verify that the host works
  gpufleet.nvidia.health:

- name: Verify that CUDA works on it
  gpufleet.nvidia.health:
    cuda_check:
      - /usr/local/cuda/extras/demo_suite/vectorAdd

- name: Read the host once for several checks
  gpufleet.nvidia.gpu_info:
    gather:
      - errors
      - health
  register: gpus

- name: Verify that it works from these facts
  gpufleet.nvidia.health:
    facts: "{{ gpus.gpu }}"

- name: Report without failing
  gpufleet.nvidia.health:
    fail: false
  register: health
"""

RETURN = r"""
healthy: {description: Whether no check failed., returned: always, type: bool, sample: true}
accepted:
  description:
    - Whether the host is healthy and C(dcgmi diag) passed at O(dcgm_level). V(false) if it ran at level 1 because a program uses a GPU.
  returned: always
  type: bool
  sample: false
checks:
  description: The checks in the order in which they ran.
  returned: always
  type: list
  elements: dict
  contains:
    name: {description: Name of the check., type: str, returned: always, sample: driver}
    status:
      description: V(passed), V(failed), V(warning), V(skipped), or V(unproven) if nothing on the host could prove it.
      type: str
      returned: always
      sample: passed
    evidence:
      description: The evidence for the status, or why the check was skipped.
      type: str
      returned: always
      sample: 580.126.09, open modules
    next_step: {description: What to do. Empty if there is nothing to do., type: str, returned: always, sample: ""}
failed_check: {description: "Name of the first check that failed, or V(none).", returned: always, type: str, sample: driver}
seconds:
  description: >-
    Seconds spent waiting for the driver (C(nvml)) and for programs (C(programs)), and by the module itself, with Python's start (C(own)). Parts
    that took no time are omitted.
  type: dict
  returned: when the host is asked
  sample: {nvml: 0.2, programs: 12.5, own: 0.4}
refusals:
  description: What of the host's own reading cannot be used, each with C(thing), C(reason), C(remedy), C(message).
  type: list
  elements: dict
  returned: when refused
msg:
  description: A one-line summary - the first failure with its next step, or that there is none.
  returned: always
  type: str
  sample: Every check passed.
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.host_reader import HostReader
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.stopwatch import Stopwatch
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.document import pynvml_is_wanted
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.evidence import collect
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.checks import ARGUMENTS, answer
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused, refuse


def main() -> None:
    module = AnsibleModule(
        argument_spec={**ARGUMENTS, "_pynvml_archive": {"type": "path"}},
        supports_check_mode=True,
    )
    parameters = module.params
    files = HostFiles()
    try:
        with Stopwatch() as watch:
            evidence = collect(
                HostReader(files),
                parameters["_pynvml_archive"],
                parameters["cuda_check"],
                parameters["cuda_timeout"],
                parameters["dcgm_level"],
                parameters["dcgm_timeout"],
                parameters["fabric_timeout"],
            )
    except Refused as refusal:
        refuse(module, refusal)
    if pynvml_is_wanted(files, evidence.facts.nvml.code) and not parameters["_pynvml_archive"]:
        module.exit_json(changed=False, pynvml_missing=True)
    result = {**answer(evidence, parameters, module.check_mode), "seconds": watch.seconds}
    if result.get("failed"):
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
