#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: fleet_plan
short_description: Plan a whole fleet on the controller
version_added: 0.1.0
description:
  - Prints, for every host, what C(site) would do, what that disrupts, and what is impossible. Never fails because of its findings; C(plan.yml) fails
    when RV(as_described) is false, so that the exit status shows a pipeline whether there is drift.
  - Uses the result of M(gpufleet.nvidia.gpu_info) registered as C(gpu_facts_host) of each host in this run, or the facts that an earlier run kept.
  - This is an action plugin; the module only documents it.
options:
  hosts:
    description:
      - The hosts to plan.
      - Defaults to all of C(gpu_hosts).
    type: list
    elements: str
  facts_directory:
    description:
      - Directory on the controller in which the facts of each host are kept, for O(offline=true).
      - If empty, they are not kept.
    type: path
    default: ""
  offline:
    description: Whether to plan from the facts in O(facts_directory), without contacting hosts.
    type: bool
    default: false
  files:
    description: The files of the cluster that would change, as in RV(gpufleet.nvidia.render#module:changes).
    type: list
    elements: dict
    default: []
  served:
    description:
      - The nodes on which pods that request GPUs or MIG devices by name may land, as in RV(gpufleet.nvidia.render#module:served).
      - With O(kubeconfig), the version of the cluster and its DeviceClasses are compared with it.
    type: dict
    default: {}
  unrendered:
    description: Why the files of the cluster could not be rendered. Empty if they could.
    type: str
    default: ""
  kubeconfig:
    description:
      - A kubeconfig on the controller. If set, the current nodes are compared with what their description predicts, and the GPU pods on them are
        named if a change disrupts users of GPUs.
      - If empty, no cluster is read.
    type: path
    default: ""
  context:
    description: The context in that kubeconfig. If empty, its current context.
    type: str
    default: ""
  summary:
    description:
      - Whether to omit RV(plan), which grows with the fleet. O(report) still contains it.
      - Ansible keeps the result of a task for every host, and copies it several times.
    type: bool
    default: false
  report:
    description: File on the controller to which the plan is written as JSON. If empty, none is written.
    type: path
    default: ""
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.reads
author:
  - The gpufleet.nvidia authors (@gpufleet)
seealso:
  - module: gpufleet.nvidia.host_plan
"""

EXAMPLES = r"""
- name: Plan the whole fleet
  gpufleet.nvidia.fleet_plan:
    facts_directory: facts
    report: plan.json
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
drift:
  description: Whether any host or file is not as described.
  type: bool
  returned: always
plan:
  description:
    - The plan of every host, by name, and the files of the cluster that would change.
    - C(reboot) of a host is V(needed) if a step requires a reboot in the host's current state, V(possible) if the processes that have the driver open
      are unknown (C(holders) of M(gpufleet.nvidia.gpu_info)), and null if no reboot is needed.
  type: dict
  returned: always
as_described:
  description: Whether there is nothing to do on any host and in any file, and every host could be read.
  type: bool
  returned: always
msg:
  description: A one-line summary - how much there is to do, if anything.
  type: str
  returned: always
  sample: "The fleet is not as described: 2 hosts: 1 as described, 1 to change. Run gpufleet.nvidia.site to apply the changes."
"""
