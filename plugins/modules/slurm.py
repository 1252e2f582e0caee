#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: slurm
short_description: Bring Slurm the rendered files of a cluster
version_added: 0.1.0
description:
  - Writes the files that C(slurm.conf), C(gres.conf) and C(cgroup.conf) include, and restarts slurmctld, or slurmd where they say something else of its
    node. The site's own files are read, and never changed.
  - Refuses a host whose own files do not include them, or define a node or its GPUs there, too, with file and line.
  - Refuses a restart while jobs run on a node of which the files say something else, unless O(under_jobs) allows it.
options:
  directory: {description: Where the files are on the host., type: path, required: true}
  files: {description: "The texts of the files, by name.", type: dict, required: true}
  node: {description: The name of the host's node. Empty on a controller., type: str, default: ""}
  configuration: {description: The site's own C(slurm.conf). The other files of Slurm are beside it., type: path, default: /etc/slurm/slurm.conf}
  under_jobs: {description: Whether a daemon is restarted while jobs run on what changes., type: bool, default: false}
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.internal
  - gpufleet.nvidia.attributes.changes
"""

EXAMPLES = r"""
- name: Bring the files to the controller
  gpufleet.nvidia.slurm:
    directory: /etc/slurm/gpufleet
    files: "{{ rendered.files }}"
  delegate_to: head
"""

RETURN = r"""
restarts: {description: "Whether the daemon is restarted, or would be in check mode.", type: bool, returned: success}
steps: {description: "What was done, or would be in check mode, each as RV(gpufleet.nvidia.mig#module:steps).", type: list, elements: dict, returned: success}
refusals: {description: "Why the request is refused, each with C(thing), C(reason), C(remedy), C(message).", type: list, elements: dict, returned: when refused}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import exclusive
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import NotInEffect, Refused, refuse, succeed
from ansible_collections.gpufleet.nvidia.plugins.module_utils._slurm.apply import run_stage
from ansible_collections.gpufleet.nvidia.plugins.module_utils._slurm.plan import from_options
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "files": {"type": "dict", "required": True},
            "node": {"type": "str", "default": ""},
            "configuration": {"type": "path", "default": "/etc/slurm/slurm.conf"},
            "under_jobs": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    given = module.params
    try:
        # Several nodes bring the same files to one controller.
        with exclusive(60):
            plan = run_stage(from_options(given), given["configuration"], given["under_jobs"], module.check_mode)
    except Refused as refusal:
        refuse(module, refusal)
    except (NotInEffect, CommandError, OSError) as error:
        module.fail_json(msg=f"Failed to bring Slurm its files: {str(error).rstrip('.')}.")
    restarts = any(step.kind is Kind.RESTART_SERVICE for step in plan.steps)
    succeed(module, "the files of Slurm", plan, restarts=restarts)


if __name__ == "__main__":
    main()
