# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rollout
short_description: Decide which nodes of a fleet are changed or repaired next
version_added: 0.1.0
description:
  - Decides for the hosts of a whole run, with C(run_once), or has one host wait for its turn.
options:
  action:
    description: What is decided.
    type: str
    required: true
    choices:
      heal_plan: >-
        Plans for O(hosts), which were read into C(gpu_facts_host), the least disruptive action that can resolve the faults of each, from NVML's
        recovery action or NVIDIA's catalogue of Xid errors, and from earlier attempts. Fails if more hosts than O(breaker_hosts) need a repair at
        once, or O(breaker_same_xid) of them have the same Xid error. Changes nothing.
      team_quotas: >-
        Before nodes get another layout, lowers the quotas in the host's cluster to the smaller numbers of now and described (C(gpu_kubernetes_result)),
        and raises them afterwards as far as the nodes offer what is described. Changes only objects with the labels of rendered ones, and none that a
        GitOps controller syncs.
      upgrade_lease: >-
        Acquires or releases the Lease C(gpufleet-upgrade) of the cluster, so that only one run at a time changes the fleet. Fails with the name of the
        run that holds it; a run on the same machine that no longer exists does not.
      upgrade_waves: >-
        Plans a rollout, has a host wait until the budget allows another unavailable node, or finishes the rollout. Cordoned nodes and nodes that are
        not ready count as unavailable, and the next node starts as soon as another has ended. Acquires the Lease by itself.
  breaker_hosts: {type: str, description: "How many hosts may need a repair at once - a number, or a percentage of C(gpu_hosts), rounded down."}
  breaker_same_xid: {type: int, description: The number of hosts with the same Xid error at which nothing is repaired.}
  breaker_window: {type: int, description: Seconds for which a repair of another node by another run counts towards the breaker.}
  canary: {type: int, description: How many nodes go first and must succeed before any other starts.}
  condition:
    description: >-
      Type of the node condition that reports whether the GPUs are healthy, which nodes with nothing to repair get with the status C(True). If empty,
      none is written.
    type: str
  duration: {type: int, description: Seconds after which a run that has not renewed its Lease loses it.}
  hosts: {type: list, elements: str, description: "The hosts of the fleet, or those that were read."}
  ignore_breaker: {type: bool, description: Whether to repair even though the breaker has tripped.}
  lease_duration: {type: int, description: Seconds after which a run that has not renewed its Lease may be continued by another.}
  lease_namespace: {type: str, description: Namespace of the Lease.}
  max_failures: {type: int, description: How many failed nodes are tolerated.}
  max_parallel: {type: int, description: How many nodes are changed at a time. V(0) sets no limit.}
  max_unavailable: {type: str, description: "How many nodes may be out of service - a number, or a percentage, rounded down."}
  namespace: {type: str, description: Namespace of the Lease.}
  nvsentinel:
    description: >-
      What is done about nodes that NVSentinel has, as C(gpu_node_nvsentinel) of P(gpufleet.nvidia.gpu_node#role).
    type: str
  proves:
    description: >-
      Whether to fail if a fault is left on O(hosts), which were repaired and read into C(gpu_heal_now), and to do nothing else. Errors that the kernel
      logged before are not faults.
    type: bool
  reboot: {type: bool, description: "Whether hosts may be rebooted. Otherwise, one that needs it is handed over for manual repair."}
  recurrence: {type: int, description: Seconds within which a fault that returns counts as not repaired.}
  retry: {type: bool, description: "Whether nodes that failed earlier, or were handed over for manual repair, are tried again."}
  state:
    description:
      - V(planned) checks and shows what would be lowered, V(lowered) and V(raised) change it (O(action=team_quotas)).
      - V(present) or V(absent), whether this run holds the Lease (O(action=upgrade_lease)).
      - V(planned) acquires the Lease and returns the order of the hosts, and all other options apply to the whole run; V(next) waits until work on the
        host of the task may start, V(ended) reports that it has ended, V(finished) releases the Lease (O(action=upgrade_waves)).
    type: str
  take_over: {type: bool, description: Whether to take over the Lease from its current holder.}
  target: {type: str, description: "What the rollout installs, as readable text. Records with another target belong to an older rollout."}
  wait: {type: int, description: "Seconds to wait for room in the budget, or until a node is ready, while this run works on no node."}
  work: {type: str, description: "What the run does with its nodes, unless their pools are migrated.", choices: [upgrade, migrate, hand_over, change_stack]}
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.internal
  - gpufleet.nvidia.internal.action
  - gpufleet.nvidia.cluster
"""

EXAMPLES = r"""
- name: Plan the rollout
  gpufleet.nvidia.rollout:
    action: upgrade_waves
    target: driver 580.178.04
    hosts: "{{ ansible_play_hosts_all }}"
  run_once: true
"""

RETURN = r"""
breaker: {description: Why nothing may be repaired. Empty if repairs are allowed., type: str, returned: heal_plan}
complete: {description: Whether every host is done., type: bool, returned: "upgrade_waves, finished"}
handed_over: {description: "Hosts that an earlier run handed over for manual repair, and why.", type: dict, returned: heal_plan}
holder: {description: The identity of this run in the Lease., type: str, returned: upgrade_lease}
if_failed:
  description: How the node's turn ends if it fails before anything is recorded of it, as in M(gpufleet.nvidia.node).
  type: dict
  returned: upgrade_waves, next, when RV(start) is true
members: {description: The nodes of the whole fleet., type: list, elements: str, returned: heal_plan}
nodes: {description: The name of each host's node in the cluster., type: dict, returned: heal_plan}
order: {description: The hosts in the order in which they start., type: list, elements: str, returned: "heal_plan, upgrade_waves, planned"}
plans:
  description: >-
    By host, the C(action) (V(nothing), V(restart_service), V(drain), V(reset_gpu), V(reload_driver), V(reboot) or V(hand_over)), its C(faults),
    the affected C(gpus) and C(services), the devices that are C(disturbed), the GPUs that are C(untouched), C(notes), the step or outcome of the
    host's last repair (C(state_before)), and how its turn ends if it fails at once (C(if_failed)).
  type: dict
  returned: heal_plan
record: {description: The progress of an earlier run on the host., type: dict, returned: "upgrade_waves, next, when RV(start) is true"}
refusals:
  description: Why hosts are skipped, each with C(thing), C(reason), C(remedy), the whole C(message), and the C(hosts) that it is about.
  type: list
  elements: dict
  returned: heal_plan
report: {description: The record of every host., type: dict, returned: "upgrade_waves, finished"}
serial: {description: How many hosts are repaired at a time., type: int, returned: heal_plan}
start: {description: Whether work on the host starts now., type: bool, returned: "upgrade_waves, next"}
stopped: {description: "Why no other host starts, or V(none).", type: str, returned: "upgrade_waves, planned and next"}
turn:
  description:
    - What is done with the node now. V(upgrade), V(migrate), V(hand_over) or V(change_stack) as in O(work); V(revert) finishes a rollback after a
      failure, V(rollback) one that was started by hand. Empty where RV(start) is false.
  type: str
  returned: upgrade_waves, next
wait:
  description: Whether the task must be repeated for the host. It then also detects hosts that Ansible can no longer reach.
  type: bool
  returned: upgrade_waves, next
wave: {description: The position of this node in the rollout., type: int, returned: "upgrade_waves, next, when RV(start) is true"}
"""
