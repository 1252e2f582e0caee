#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: kubelet_devices
short_description: Let the kubelet forget NVIDIA's device plugin
version_added: 0.1.0
description:
  - A kubelet reports 0 of every resource that a device plugin once registered, for as long as its checkpoint exists. Pods that request
    C(nvidia.com/gpu) then wait forever on a node that the DRA driver serves.
  - Stops the kubelet, removes C(/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint), and starts the kubelet. Running containers are not
    affected, and device plugins of other vendors register again.
  - Refuses to run while a pod in O(pods) holds a device of any device plugin, because the checkpoint is the only record of who holds it.
  - The resource itself is removed from the node's status by M(gpufleet.nvidia.node).
options:
  pods: {description: UIDs of the pods that exist on the node and have not ended., type: list, elements: str, required: true}
  start_only: {description: "Whether only to start the kubelet, if an earlier run that was cut off left it stopped.", type: bool, default: false}
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.internal
  - gpufleet.nvidia.attributes.changes
"""

EXAMPLES = r"""
- name: Let the kubelet forget the device plugin that served the node before
  gpufleet.nvidia.kubelet_devices:
    pods: "{{ node_server.pods }}"
"""

RETURN = r"""
steps: {description: "What was done, or would be in check mode, each as RV(gpufleet.nvidia.mig#module:steps).", type: list, elements: dict, returned: success}
seconds: {description: "Seconds that it took, by what they were spent on, as RV(gpufleet.nvidia.mig#module:seconds).", type: dict, returned: success}
refusals: {description: "Why the request is refused, each with C(thing), C(reason), C(remedy), C(message).", type: list, elements: dict, returned: when refused}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.module_run import run_module
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host import kubelet_resources
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Plan


def run(module: AnsibleModule) -> tuple[Plan, dict[str, Any]]:
    plan = kubelet_resources.plan(kubelet_resources.read(), module.params["pods"], module.params["start_only"])
    if not module.check_mode and plan.changes:
        kubelet_resources.apply(plan)
        kubelet_resources.read_back(plan)
    return plan, {}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "pods": {"type": "list", "elements": "str", "required": True},
            "start_only": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    failed = "Failed to let the kubelet forget the device plugin"
    run_module(module, "what the kubelet remembers of device plugins", run, failed=failed)


if __name__ == "__main__":
    main()
