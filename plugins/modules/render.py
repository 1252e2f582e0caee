#!/usr/bin/python
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: render
short_description: Render the files that Kubernetes clusters need to match their GPU hosts
version_added: 0.1.0
description:
  - Writes one directory for each cluster of the inventory, with Helm values of NVIDIA's device plugin (a release for each pool) or of the GPU
    Operator, ConfigMaps whose names end in a hash of their content, a runtime class, node labels, Argo CD or Flux objects, example workloads, and
    C(capacity.json), which lists what each node must show.
  - Writes one directory for each Slurm cluster (C(gpu_slurm_cluster)) with what its C(slurm.conf), C(gres.conf) and C(cgroup.conf) include. Pools of the
    same inventory can belong to both, or to one of them.
  - Runs on the controller and contacts neither hosts nor clusters. The hosts are those of the group C(gpu_hosts); their variables are those of the
    roles P(gpufleet.nvidia.gpu_kubernetes#role), P(gpufleet.nvidia.gpu_slurm#role), P(gpufleet.nvidia.nvidia_mig#role),
    P(gpufleet.nvidia.nvidia_sharing#role) and P(gpufleet.nvidia.gpu_facts#role). Facts that P(gpufleet.nvidia.gpu_facts#role) read in the same run
    take precedence over the GPUs in the inventory.
  - The same input renders the same bytes. A file that is up to date is not written; files that are no longer needed are removed; a file that was
    edited after it was rendered stops the run.
  - Each rendered device plugin configuration is checked with P(gpufleet.nvidia.device_plugin_lint#filter), and each key of the Helm values against
    the keys that the pinned chart reads.
  - This is an action plugin; the module only documents it.
options:
  output_directory:
    description:
      - Directory that contains the directory C(clusters), which is created if it does not exist. A directory inside the inventory is refused.
      - If this and the options below are not set, the variables C(gpu_kubernetes_*) of the hosts decide, with the defaults of the role
        P(gpufleet.nvidia.gpu_kubernetes#role). They must be the same for all hosts.
    type: path
  facts_directory:
    description:
      - Directory in which the facts of hosts are kept, so that a later run knows their GPUs without contacting them. If empty, they are not kept.
      - A relative path is relative to O(output_directory).
    type: path
  overwrite: {description: Whether files that were edited after they were rendered may be overwritten or removed., type: bool}
  prune:
    description:
      - Whether to remove files that an earlier run rendered and that are no longer needed, of the clusters of which the inventory has hosts.
    type: bool
  remove_nodes:
    description:
      - Whether to remove a third or more of the nodes from the tree because they are not in the inventory of this run.
      - Otherwise, the run fails and names them, because an inventory with a part of the hosts, such as that of a sliced job of AWX, would remove
        the others. Fewer nodes, or a single one, leave the tree with a warning.
    type: bool
  remove_clusters:
    description:
      - Clusters to remove from the tree, by name; a Slurm cluster also by its directory, such as V(slurm/hpc). Those of which the inventory has
        hosts are refused.
      - No other run removes a cluster, because it may belong to another inventory.
    type: list
    elements: str
  hosts:
    description:
      - The hosts of this run. If set, variables given with C(-e) apply only to them. Every other host is described by the inventory, and by the C(-e)
        variables of the run that last read it, which are kept with its facts.
      - Any other host that was never read, whose GPUs are not in the inventory, and that is in no rendered tree yet, is skipped with a warning. Without
        this option, it is refused.
      - If empty, variables given with C(-e) apply to all hosts of the inventory, and those of earlier runs are ignored.
    type: list
    elements: str
    default: []
  slurm_only: {description: Whether to leave the files of clusters of Kubernetes as they are., type: bool, default: false}
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
output_directory: {description: The absolute path of the output directory., type: str, returned: success}
clusters:
  description: By name of the cluster, its directory, its number of files, and its configurations with their nodes and resources.
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
  description: The files that were created, updated or removed, or in check mode would be.
  type: list
  elements: dict
  returned: success
  sample:
    - action: update
      path: clusters/production/capacity.json
digest: {description: The digest of all rendered files. A saved plan refers to them by it., type: str, returned: success}
of_hosts:
  description: By host, the digest of what the files say of its node. Others do not change it.
  type: dict
  returned: success, if a plan is saved or applied
others:
  description: Clusters that are in the tree and of which the inventory has no host. They are left as they are. Those of Slurm begin with V(slurm/).
  type: list
  elements: str
  returned: success
quotas: {description: "By name of each cluster with C(gpu_kubernetes_quotas), what a new layout has to know of them.", type: dict, returned: success}
served:
  description:
    - By name of the cluster, the C(nodes) on which a pod that requests one of C(resources) may land, those together that are served alike.
    - C(by) is V(device-plugin) or V(dra). While the pool is migrated, C(to) is what serves the node afterwards.
  type: dict
  returned: success
  sample:
    production:
      - pool: training
        by: device-plugin
        to: dra
        resources: [nvidia.com/gpu]
        nodes: [gpu01, gpu02]
slurm:
  description: By name of each Slurm cluster, its C(directory), its C(nodes) with their C(Gres), and why a node is left out for now (C(pending)).
  type: dict
  returned: success
  sample:
    hpc:
      directory: /home/admin/git/gpu-clusters/slurm/hpc
      nodes:
        gpu01: gpu:nvidia_h100_80gb_hbm3_1g.10gb:14
      pending: {}
unread:
  description:
    - By host, why its facts from this run or an earlier one cannot be used. The GPUs in the inventory are used instead.
    - A host without GPUs in the inventory is omitted from the files.
  type: dict
  returned: success
edited: {description: Files that were edited after they were rendered., type: list, elements: str, returned: when there are any and O(overwrite=false)}
of_facts:
  description: Whether the refusal follows from the facts of a host, which reading it, or a change of its driver, may correct.
  type: bool
  returned: when the request is refused
refusals: {description: "Why the request is refused, each with C(thing), C(reason), C(remedy), C(message).", type: list, elements: dict, returned: when refused}
"""
