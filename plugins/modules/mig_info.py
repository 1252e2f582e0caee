#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: mig_info
version_added: "0.1.0"
author:
  - The gpufleet.nvidia authors (@gpufleet)
short_description: Export the current MIG layout of a host
description:
  - Returns how the GPUs of a host are partitioned, in the format of O(gpufleet.nvidia.mig#module:layout) and of nvidia-mig-parted's configuration
    files (version v1).
  - Also returns the outcome of the last MIG change, from its journal.
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.nvml
  - gpufleet.nvidia.attributes.reads
options:
  label: {description: The label of the configuration in RV(mig_parted)., type: str, default: current}
seealso:
  - module: gpufleet.nvidia.mig
"""

EXAMPLES = r"""
- name: Read the layout
  gpufleet.nvidia.mig_info:
  register: present

- name: Save it as a configuration file of nvidia-mig-parted
  ansible.builtin.copy:
    content: "{{ present.mig_parted | to_nice_yaml }}"
    dest: /etc/nvidia-mig-manager/current.yaml
    mode: "0644"
"""

RETURN = r"""
gpus: {description: The GPUs with their instances and placements., returned: success, type: list, elements: dict}
layout:
  description: The layout, in the format of O(gpufleet.nvidia.mig#module:layout). It does not contain GPUs without MIG.
  returned: success
  type: list
  elements: dict
  sample:
    - devices: [0, 1]
      instances: {1g.10gb: 2, 2g.20gb: 1, 3g.40gb: 1}
    - devices: [2]
      enabled: false
mig_parted:
  description: The same layout as a configuration file of nvidia-mig-parted.
  returned: success
  type: dict
  sample:
    version: v1
    mig-configs:
      current:
        - devices: all
          mig-enabled: true
          mig-devices: {1g.10gb: 7}
last_change: {description: The journal's record of the last MIG change. V(none) if there was none., returned: success, type: dict}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_gpus import open_nvml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.apply_machine import Machine
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.host_plan import export
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.journal import Journal
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "label": {"type": "str", "default": "current"},
            "_pynvml_archive": {"type": "path"},
        },
        supports_check_mode=True,
    )
    journal = Journal()
    try:
        with open_nvml(module.params["_pynvml_archive"]) as nvml:
            gpus = Machine(nvml, journal, {}).read()
        exported = export(gpus, module.params["label"])
    except Failure as failure:
        module.fail_json(msg=str(failure), **failure.more)
    last = journal.last()
    module.exit_json(changed=False, last_change=None if last is None else last.as_dict(), **exported)


if __name__ == "__main__":
    main()
