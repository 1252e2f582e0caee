#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: render
short_description: Render what Kubernetes clusters need to agree with their GPU hosts
version_added: 0.1.0
description:
  - Writes one directory for each cluster of the inventory, with Helm values of NVIDIA's device plugin (a release for each pool) or of the
    GPU Operator, ConfigMaps whose names end in a hash of their content, a runtime class, node labels, Argo CD or Flux objects, example
    workloads, and C(capacity.json), which says what each node must show.
  - Runs on the controller and asks neither a host nor a cluster. The hosts are those of the group C(gpu_hosts); their variables are those
    of the roles P(gpufleet.nvidia.gpu_kubernetes#role), P(gpufleet.nvidia.nvidia_mig#role), P(gpufleet.nvidia.nvidia_sharing#role) and
    P(gpufleet.nvidia.gpu_facts#role). Facts that P(gpufleet.nvidia.gpu_facts#role) read in the same run are used before what the
    inventory says of GPUs.
  - The same input gives the same bytes. A file that is as it should be is not touched; files that are no longer needed are removed;
    a file that somebody changed since it was rendered stops the run.
  - Each rendered device plugin configuration is checked with P(gpufleet.nvidia.device_plugin_lint#filter), and each key of Helm values
    against those that the pinned chart reads.
  - This is an action; the module is only its documentation.
options:
  output_directory:
    description: Where the directory C(clusters) is, or is made.
    type: path
    required: true
  facts_directory:
    description:
      - Where facts of hosts are kept, so that a later run knows their GPUs without asking them. Empty keeps none.
      - A relative path starts at O(output_directory).
    type: path
    default: facts
  overwrite:
    description: Whether files that somebody changed since they were rendered may be overwritten or removed.
    type: bool
    default: false
  prune:
    description: Whether files that an earlier run rendered, and that are no longer needed, are removed.
    type: bool
    default: true
  hosts:
    description:
      - The hosts of this run. Variables given with C(-e) are then theirs alone. Every other host is described by the inventory, and by what the
        run that last read it had told it with C(-e), which is kept with its facts.
      - Another host that was never read, of which the inventory does not say which GPUs it has, and that is in no rendered tree yet, is left out
        with a warning. Without this option it is refused.
      - Empty means that C(-e) counts for all hosts of the inventory, and that what earlier runs had told hosts does not.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.attributes.changes
author:
  - The gpufleet.nvidia authors (@gpufleet)
seealso:
  - plugin: gpufleet.nvidia.device_plugin_lint
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Render the clusters of the inventory into a Git checkout
  gpufleet.nvidia.render:
    output_directory: ~/git/gpu-clusters
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
output_directory:
  description: The absolute path of the output directory.
  type: str
  returned: success
clusters:
  description: By name of the cluster, its directory, number of files, and configurations with their nodes and resources.
  type: dict
  returned: success
  sample:
    production:
      directory: /home/admin/git/gpu-clusters/clusters/production
      files: 17
      configurations:
        training:
          nodes: 12
          resources:
            nvidia.com/mig-1g.10gb: 16
changes:
  description: The files that were, or in check mode would be, created, updated or removed.
  type: list
  elements: dict
  returned: success
  sample:
    - action: update
      path: clusters/production/capacity.json
unread:
  description:
    - By host, why its facts of this run or those of an earlier one cannot be taken in. What the inventory says of its GPUs counts then.
    - A host of which the inventory says nothing is left out of the files.
  type: dict
  returned: success
edited:
  description: Files that somebody changed since they were rendered.
  type: list
  elements: str
  returned: when there are any and O(overwrite=false)
refusal:
  description: A desired state that cannot be met, with thing, reason and remedy.
  type: dict
  returned: when a desired state is refused
"""
