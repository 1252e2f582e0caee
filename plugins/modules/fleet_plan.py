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
  - Prints, for every host, what C(site) would do, whom that disturbs, and what is impossible. Never fails for what it finds;
    C(plan.yml) fails when RV(as_described) is false, so that the exit status tells a pipeline whether there is drift.
  - Uses the facts that M(gpufleet.nvidia.gpu_info) returned into the variable C(gpu_facts_host) of each host in this run, or those that an
    earlier run kept.
  - This is an action; the module is only its documentation.
options:
  hosts:
    description:
      - The hosts to plan.
      - Left out, all of C(gpu_hosts).
    type: list
    elements: str
  facts_directory:
    description:
      - A folder of the controller in which the facts of each host are kept, for O(offline=true).
      - Empty keeps them nowhere.
    type: path
    default: ""
  offline:
    description: Whether to plan from the facts in O(facts_directory), without hosts.
    type: bool
    default: false
  files:
    description: The files of the cluster that would change, as M(gpufleet.nvidia.render) returns them in C(changes).
    type: list
    elements: dict
    default: []
  unrendered:
    description: Why the files of the cluster could not be rendered; empty when they could.
    type: str
    default: ""
  kubeconfig:
    description:
      - A kubeconfig on the controller. The nodes as they are now are compared with what the description predicts, and the GPU pods on them
        are named where a change disturbs users of GPUs.
      - Empty asks no cluster.
    type: path
    default: ""
  context:
    description: The context in it. Empty for its current one.
    type: str
    default: ""
  summary:
    description:
      - Leave out RV(plan), which grow with the fleet. They are in O(report) all the same.
      - Ansible keeps what a task returns for every host, and copies it several times.
    type: bool
    default: false
  report:
    description: A file of the controller to which the plan is written as JSON; empty writes none.
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
- name: Is anything to do?
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
    - C(reboot) of a host is V(needed) when a step cannot do without a reboot as the host is now, V(possible) when nobody has read who has the
      driver open (C(holders) of M(gpufleet.nvidia.gpu_info)), and null when it needs none.
  type: dict
  returned: always
as_described:
  description: Whether there is nothing to do, on no host and in no file, and every host could be read.
  type: bool
  returned: always
msg:
  description: One line for people - how much is to do, or that nothing is.
  type: str
  returned: always
  sample: "The fleet is not as described: 2 hosts: 1 as described, 1 to change. Run gpufleet.nvidia.site to apply the changes."
"""
