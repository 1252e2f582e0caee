# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: node
short_description: Change, empty and verify a node of the cluster
version_added: 0.1.0
description:
  - Does one thing with one node, through the API server.
options:
  action:
    description: What is done with the node.
    type: str
    default: node_state
    choices:
      evict_gpu_pods: >-
        Evicts the pods that request C(nvidia.com/gpu) or C(nvidia.com/mig-*) or have a resource claim, through the eviction API. Disruption budgets
        are respected, and pods of DaemonSets stay. If one of them must not be evicted, none is.
      gpu_clients: >-
        Has the cluster's own GPU pods (device plugin, gpu-feature-discovery, metrics exporter) leave the node or return, by the labels
        C(gpufleet.github.io/gpu-clients=paused) and C(nvidia.com/gpu.deploy.*), and waits for them. A DaemonSet that excludes neither label stays.
      heal_node: >-
        Returns the record of the host for the next step of its repair, and annotates its node. The first step cordons the node, unless that exceeds
        O(max_unavailable), and the last one returns it to service, unless somebody else had cordoned it.
      node_operands: >-
        Has the host of a node bring O(operands) in place of the GPU Operator's containers, or these again, by the labels C(nvidia.com/gpu.deploy.*) of
        the node, and waits until the operator's pods have left or are ready.
      node_server: >-
        Chooses whether the device plugin or the DRA driver serves a node of a pool that is migrated, by the label C(gpufleet.github.io/migrated-to),
        and waits until the other one has left. Refused if no DaemonSet would serve the node.
      node_stack: >-
        Has the device plugin of one O(stack) leave the node, and then that of the other one come, by the labels C(gpufleet.github.io/stack) and
        C(nvidia.com/gpu.deploy.*), and waits for both. Pods that run on the node stay.
      node_state: >-
        Waits until no pod of O(without_pods) runs on a node, and reads it. With O(work) refuses a host on which a run was cut off that this one does not
        continue.
      repartition_node: >-
        Cordons a node whose MIG layout changes (O(state=started)), also before its turn (V(ahead)), and returns it to service as it was found (V(done)).
        V(failed) returns it, too, unless O(layout_changed).
      upgrade_node: >-
        Records the progress of a rollout in annotations of the node; the first step cordons it, the last uncordons it, unless somebody else had
        cordoned it.
      verify_node: >-
        Compares allocatable, the labels of gpu-feature-discovery and the state of the GPU Operator's MIG manager with what O(facts) and the variables
        of the roles predict.
  node: {type: str, description: Name of the node., required: true}
  brought_by: {type: str, description: What brings the O(operands) to the node., choices: [host, gpu_operator]}
  bundle: {type: str, description: The directory on the host with the support bundle.}
  capacity:
    description: >-
      The C(capacity.json) of the node's cluster on the controller, as written by M(gpufleet.nvidia.render), whose entry for the node, or for the pool
      that it joined, the node must show. If empty, it must show what its GPUs and variables predict.
    type: path
  checkpoint: {type: str, description: Content of the kubelet's device checkpoint., default: ""}
  condition: {type: str, description: "Type of the node condition that reports whether the GPUs are healthy. If empty, none is written."}
  delete_empty_dir: {type: bool, description: Whether pods with emptyDir volumes are evicted.}
  device_holders:
    description: All processes that have a device file open, as in RV(gpufleet.nvidia.gpu_info#module:gpu.holders), for O(device_nodes).
    type: list
    elements: dict
  device_nodes: {type: list, elements: str, description: Device files. The pods of the O(device_holders) that have one open are evicted too.}
  devices: {type: list, elements: str, description: "UUIDs of the only devices whose pods are evicted. If empty, none is. Not used with O(mig_plan)."}
  disruption: {type: str, description: "Whether a container toolkit is taken from pods that stay on the node.", choices: [refuse, force]}
  driver: {type: str, description: The driver version of the host now. Empty if none is loaded.}
  every_pod: {type: bool, description: "Whether the node is drained, including pods that use no GPU. Static pods and those of DaemonSets stay."}
  facts: {type: dict, description: The facts document of M(gpufleet.nvidia.gpu_info).}
  fail: {type: bool, description: Whether the action fails if the node does not match.}
  force: {type: bool, description: Whether pods without a controller are evicted.}
  forget: {type: bool, description: Whether to discard the record of earlier attempts.}
  gpus:
    description: >-
      The GPUs as in RV(gpufleet.nvidia.gpu_info#module:gpu.gpus), for O(mig_plan) and O(devices). Their C(allocations) say which pods were given what by
      a ResourceClaim, which O(checkpoint) does not have. If the kubelet's records could not be read, the action fails and evicts nothing.
    type: list
    elements: dict
  holders: {type: list, elements: str, description: "UIDs of pods with a process that holds a GPU. They are evicted too, whatever they requested."}
  kernel: {type: str, description: The release of the running kernel before a rollout that changes it.}
  labels: {type: bool, description: "Whether labels are compared, too."}
  layout_changed: {type: bool, description: "Whether the MIG layout may be another one than before, by this run or by one that was cut off."}
  lease_duration: {type: int, description: Seconds after which a run that has not renewed its Lease loses it.}
  lease_namespace: {type: str, description: "Namespace of the Lease that this run must hold. If empty, none is needed."}
  max_unavailable: {type: str, description: "How many of O(members) may be out of service - a number, or a percentage, rounded down."}
  members: {type: list, elements: str, description: The nodes of the whole fleet.}
  mig_plan: {type: dict, description: The result of M(gpufleet.nvidia.mig) in check mode. Only pods on MIG devices that are destroyed are evicted.}
  nvsentinel:
    description: >-
      What the steps do that take a node out of service where NVSentinel is seen, as C(gpu_node_nvsentinel) of P(gpufleet.nvidia.gpu_node#role).
    type: str
  operands:
    description: What the GPU Operator can bring in place of the host.
    type: list
    elements: str
    choices: [driver, container-toolkit]
  origin: {type: str, description: The driver version before the rollout.}
  pauses: {type: bool, description: "Whether the cluster's own GPU pods leave the node before it changes."}
  plan: {type: dict, description: "The plan of the host, as the action V(heal_plan) of M(gpufleet.nvidia.rollout) returned it."}
  poll: {type: float, description: Seconds between two checks.}
  reason: {type: str, description: "Why the node failed, or was handed over for manual repair."}
  record: {type: dict, description: The record so far.}
  restart:
    description: >-
      Label selectors of the pods that are deleted first, not in check mode. What the node offers counts only when pods of the same controllers have
      replaced them and are ready; pods without a controller are not expected to return.
    type: list
    elements: str
  server: {type: str, description: What serves the node's GPUs., choices: [device-plugin, dra]}
  settle: {type: int, description: "Seconds for which the node must match, or removed resources stay away, without interruption."}
  stack: {type: str, description: "What serves the GPUs of the cluster, as C(gpu_kubernetes_stack)."}
  state:
    description:
      - V(paused) or V(resumed) of the pods (O(action=gpu_clients)).
      - V(surveyed) only reads which of them serves the node, V(chosen) has O(server) serve it, V(cleared) removes the device plugin's resources
        from its status (O(action=node_server)). V(surveyed) and V(chosen) of what O(brought_by) brings (O(action=node_operands)),
        and of O(stack) (O(action=node_stack)).
      - The step that begins, or the outcome (O(action=upgrade_node), O(action=heal_node), O(action=repartition_node)). V(done) means finished and
        verified, V(failed) out of service, V(handed-over) out of service until it is repaired manually, V(refused) in service as before, because
        nothing was changed.
    type: str
  target: {type: str, description: What the rollout installs.}
  timeout: {type: int, description: Seconds to wait.}
  toolkit: {type: str, description: The version of the container toolkit before the rollout. Empty if there was none.}
  wave: {type: int, description: The position of this node in its rollout.}
  without_pods: {type: str, description: "Label selector of the pods to wait for. Pods that have ended do not count. If empty, none."}
  work: {type: str, description: "What the run is for (V(rollback), V(repartition)). If empty, the node is read only."}
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.internal
  - gpufleet.nvidia.internal.action
  - gpufleet.nvidia.cluster
  - gpufleet.nvidia.cluster.namespaces
"""

EXAMPLES = r"""
- name: Evict the pods that hold GPUs
  gpufleet.nvidia.node:
    action: evict_gpu_pods
    node: gpu-node-1
"""

RETURN = r"""
annotations: {description: The annotations of the node. Empty if there is no such node., type: dict, returned: node_state}
checks: {description: "The checks, in the format of M(gpufleet.nvidia.health).", type: list, elements: dict, returned: verify_node}
clients: {description: The DaemonSets that the labels affect., type: list, elements: str, returned: "gpu_clients, node_operands, node_stack"}
evicted: {description: "The pods that were evicted, or in check mode would be.", type: list, elements: str, returned: evict_gpu_pods}
gone_devices: {description: UUIDs of the devices that are destroyed or repaired., type: list, elements: str, returned: evict_gpu_pods of devices}
healthy: {description: Whether no check failed., type: bool, returned: verify_node}
if_failed: {description: How the node's turn ends if it fails now., type: dict, returned: "heal_node, upgrade_node"}
in_use: {description: "Every device that pods hold, with the UIDs of these pods.", type: dict, returned: evict_gpu_pods of devices}
labels: {description: "The labels of the node, or those that were changed.", type: dict, returned: "node_state, gpu_clients, node_operands, node_stack"}
leave: {description: Pods that hold one of RV(gone_devices)., type: list, elements: str, returned: evict_gpu_pods of devices}
not_evicted: {description: "Why pods could not be evicted, by pod. Draining the node can resolve only this.", type: dict, returned: when there are any}
moved: {description: "Whether O(server) serves the node already, O(brought_by) brings the O(operands), or it has the O(stack).", type: bool, returned: surveyed}
pods: {description: UIDs of the pods on the node that have not ended., type: list, elements: str, returned: node_server}
record: {description: The new record., type: dict, returned: "heal_node, upgrade_node"}
resources: {description: The resources that would be removed., type: list, elements: str, returned: node_server in check mode}
returned: {description: Whether the node was returned to service., type: bool, returned: repartition_node}
stay: {description: Pods that hold other devices., type: list, elements: str, returned: evict_gpu_pods of devices}
taken: {description: Whether a repartition has taken the node out of service., type: bool, returned: node_state of O(work=repartition)}
text: {description: The record as the content of its file on the host., type: str, returned: "heal_node, upgrade_node"}
"""
