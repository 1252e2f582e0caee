# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: fleet
short_description: Plan, check and report all hosts of a play
version_added: 0.1.0
description:
  - Hosts have the result of M(gpufleet.nvidia.gpu_info) registered as C(gpu_facts_host). What grows with every host is decided for all of them in one
    task, with C(run_once).
  - Never fails because of what a report says; its playbook does.
options:
  action:
    description: What is done.
    type: str
    required: true
    choices:
      adopt: >-
        Writes an inventory from the state of hosts, and with O(kubeconfig) of the cluster, so that the first C(plan) with it shows nothing to do, or
        names what no variable can describe. Hosts with equal boards and settings become a pool. Connection variables are copied, secrets are not.
      check_variables: >-
        Checks names, types and values of the variables that O(playbook) reads, and, as far as no host is needed for it, the description of each host.
        A name that is similar to that of a variable is refused. Playbooks that change hosts by their description are refused, others print what is
        wrong and continue.
      doctor_report: >-
        Reports what hosts are, which of their health checks fail, and what C(site) would do with the variables that they have, or with the defaults.
      fleet_plan: >-
        Prints for every host what C(site) would do, what that disrupts, and what is impossible. Uses the facts that an earlier run kept, too.
      fleet_recommend: >-
        Prints which MIG layouts serve a demand with the fewest evictions, whom these evict, and what is proven of it. Writes the layouts as variables that
        the playbooks C(plan), C(repartition) and C(render) take.
      host_plan: >-
        Checks the variables of the host roles and plans the stages of the task's host from O(facts). Fails if it can never reach the desired state.
      inspect: >-
        Prints the share of every GPU that is allocated to pods (without O(kubeconfig), to processes), how each GPU is partitioned, and the extended
        resources that nodes offer beside the expected ones.
      plan_gate: >-
        Compares all hosts, and what their modules would do, with the saved plan O(plan). Fails if they are not as it says, and then no host may be changed.
      rack_drivers: Warns of each NVL72 rack whose hosts have more than one driver version, and says how to make it whole.
      remove_gate: >-
        Fails if the GPUs of a host are in use by processes, MPS clients, pods with a device file open, or pods to which the kubelet allocated a device,
        and C(nvidia_mig_disruption=force) or C(nvidia_sharing_mps_disruption=force) does not allow it.
      site_gate: >-
        Plans the stages of every host and checks its health. Fails if the description of a host is refused and its C(gpu_facts_skip_refused_hosts) is
        not true. Prints a line for each pool.
      site_times: >-
        Prints for each stage that ran the seconds of its slowest host, and how much of that was spent on downloads, builds of kernel modules, other work
        of the package manager, other programs, calls of the driver, Ansible, and the collection itself.
      slurm_drained: Fails if another run, by the reason that O(scontrol) shows, has drained the node of the task's host and is still at work.
      slurm_files: Returns what the rendered files of Slurm have for the task's host. Fails if they do not have it.
      slurm_report: >-
        Compares what O(slurmd) and O(scontrol) printed of the task's host with the rendered files of O(cluster), or what O(jobs) printed with the devices
        of the host. Fails where they differ.
      verify_report: >-
        Checks whether each host is as its variables describe it, which the plan of its stages says, and whether it works. Checks of
        M(gpufleet.nvidia.health) registered as C(gpu_verify_on_host) replace its own. With O(kubeconfig), nodes must show what is predicted.
  ask:
    description: >-
      Whether to print and save nothing where modules of hosts have to be asked in check mode before the plan is saved to O(out), and to return these hosts.
    type: bool
  author: {type: str, description: The name that the saved plan carries.}
  api_timeout: {type: int, description: Seconds to wait for an API server that does not answer.}
  capacity: {type: path, description: "A rendered C(capacity.json) that the nodes must show. If empty, they must show what the variables predict."}
  cluster: {type: str, description: The Slurm cluster of the host.}
  constrained: {type: bool, description: Whether Slurm's cgroups leave a job its own device alone.}
  context: {type: str, description: "The context in that kubeconfig. If empty, its current context."}
  demand: {type: raw, description: "What is wanted, as in C(gpu_recommend_demand)."}
  details: {type: bool, description: Whether to also print what each pod holds.}
  directory: {type: path, description: Directory on the controller for the inventory.}
  facts: {type: dict, description: RV(gpufleet.nvidia.gpu_info#module:gpu) of M(gpufleet.nvidia.gpu_info).}
  facts_directory: {type: path, description: "Directory on the controller in which the facts of each host are kept. If empty, they are not."}
  files: {type: list, elements: dict, description: "The files of the cluster that would change, as in RV(gpufleet.nvidia.render#module:changes)."}
  format: {type: str, description: The output format., choices: [table, json]}
  free: {type: dict, description: How many slots of each profile are to stay free.}
  headroom: {type: int, description: How many percent more than O(demand) and O(requests) is wanted.}
  hosts: {type: list, elements: str, description: "The hosts, including those that could not be read."}
  html: {type: path, description: "File on the controller for an HTML page with a diagram of every GPU. If empty, none is written."}
  jobs: {type: list, elements: dict, description: "The results of a loop over types, in which a job of each printed C(CUDA_VISIBLE_DEVICES)."}
  kubeconfig: {type: path, description: "A kubeconfig on the controller. If empty, no cluster is read."}
  larger: {type: bool, description: Whether a larger profile may serve a request.}
  mode: {type: str, description: "What is recommended, as in C(gpu_recommend_mode).", choices: [consolidate, grow, serve]}
  namespaces: {type: list, elements: str, description: Namespaces of the cluster's own plugins and GPU Operator.}
  note: {type: str, description: A line to print below the table.}
  offline: {type: bool, description: "Whether to plan from the facts in O(facts_directory), without contacting hosts."}
  out: {type: path, description: "File on the controller to which the plan is saved, so that a later run can be held to it."}
  output_directory: {type: path, description: The directory into which M(gpufleet.nvidia.render) wrote.}
  overwrite: {type: bool, description: "Whether to replace what an earlier run wrote. Otherwise, a directory that contains files is refused."}
  partial: {type: bool, description: Whether a demand that cannot be served as a whole is served as far as possible.}
  plan: {type: path, description: "The saved plan that the run is held to."}
  playbook:
    description: The playbook whose variables are checked, which is held to O(plan), or for which the saved plan O(out) is made.
    type: str
    choices: [adopt, doctor, heal, inspect, migrate, plan, recommend, remove, render, repartition, rollback, site, upgrade, verify]
  prices: {type: dict, description: "The price of a GPU by board, where O(mode=grow)."}
  racks: {type: list, elements: str, description: The inventory groups of the racks.}
  read:
    description: >-
      The results of a loop over the hosts of the racks that reads C(/sys/module/nvidia/version). Hosts that were not reached, or have no driver
      loaded, are not compared.
    type: list
    elements: dict
  report: {type: path, description: "File on the controller to which all of it is written as JSON. If empty, none is written."}
  requests: {type: path, description: "A file on the controller with requests over time, CSV or the JSON of Prometheus."}
  rolled_back: {type: list, elements: str, description: The hosts that were rolled back in this run.}
  saved: {type: path, description: "A saved plan to print, in place of one of the hosts."}
  scontrol: {type: str, description: What C(scontrol show node) printed of the node of the host.}
  seconds: {type: int, description: Seconds after which a search ends with what it has.}
  served: {type: dict, description: "The nodes on which GPU pods may land, as in RV(gpufleet.nvidia.render#module:served)."}
  show: {type: bool, description: "Whether to print the plan. Defaults to V(true) in check mode, and to V(false) otherwise."}
  sign: {type: list, elements: str, description: "The command that signs the saved plan, in whose arguments C({file}) stands for it."}
  slurmd: {type: str, description: What C(slurmd -G) printed on the host.}
  stays: {type: str, description: What to say besides where they differ.}
  summary: {type: bool, description: "Whether the result omits what grows with the fleet, as Ansible copies it for every host. O(report) contains it."}
  tree: {type: str, description: "The digest of the rendered files (RV(gpufleet.nvidia.render#module:digest)). If not given, none are compared with O(plan)."}
  unit: {type: str, description: "What the table counts, GiB of memory, or instances and replicas.", choices: [memory, units]}
  unrendered: {type: str, description: Why the files of the cluster could not be rendered. Empty if they could.}
  valid_for: {type: float, description: "Hours for which O(plan) is valid after it was made."}
  variables_file: {type: path, description: "File on the controller for the layouts as variables. If empty, none is written."}
  verify: {type: list, elements: str, description: "The command that verifies the signature of a saved plan, like O(sign)."}
  weights: {type: dict, description: What evicting a user of a priority weighs.}
  wide: {type: bool, description: Whether tables are printed in full width even if the terminal is narrower.}
extends_documentation_fragment:
  - gpufleet.nvidia.attributes
  - gpufleet.nvidia.internal
  - gpufleet.nvidia.internal.action
"""

EXAMPLES = r"""
- name: Decide which hosts have something to do
  gpufleet.nvidia.fleet:
    action: site_gate
    hosts: "{{ ansible_play_hosts }}"
  register: gpu_site_gate
  run_once: true
"""

RETURN = r"""
as_described: {description: "Whether all is as described, or how many hosts are.", type: raw, returned: "fleet_plan, site_gate"}
begun: {description: "Whether O(plan) was begun on any host before.", type: bool, returned: plan_gate}
checks: {description: "Every check of the node, with C(name), C(status), C(evidence) and C(next_step).", type: list, elements: dict, returned: slurm_report}
differences: {description: "By host, what no variable can describe.", type: dict, returned: adopt}
digest: {description: The digest of the plan that was saved or printed., type: str, returned: "fleet_plan with O(out) or O(saved), plan_gate"}
directory: {description: Where the inventory is., type: str, returned: adopt}
drift: {description: Whether any host or file is not as described., type: bool, returned: fleet_plan}
evicted: {description: Who would be evicted., type: list, elements: str, returned: fleet_recommend}
expected: {description: "For every host, its pool and what the cluster must show of it.", type: dict, returned: inspect}
files: {description: "The texts of the files, by name.", type: dict, returned: slurm_files}
healthy: {description: Whether no check of any host failed., type: bool, returned: "doctor_report, verify_report"}
hosts: {description: "What the action says of every host, by its name.", type: dict, returned: "adopt, doctor_report, inspect, remove_gate, verify_report"}
hooks: {description: "Whether C(container_toolkit) makes links to its hooks (V(present))", type: str, returned: host_plan}
imex_nodes: {description: The addresses of the hosts of its rack., type: list, elements: str, returned: host_plan}
ledger: {description: "For every node and GPU, what is offered and which pods hold it. Memory is in MiB.", type: dict, returned: inspect}
left: {description: "What you must still do manually, one line each.", type: list, elements: str, returned: remove_gate}
left_out: {description: "The hosts that are not in the inventory, with the reason.", type: dict, returned: adopt}
metrics_directory: {description: The directory that the host writes metrics to. Empty if it writes none., type: str, returned: host_plan}
mismatches: {description: The differences of every host whose node does not offer what is expected., type: dict, returned: inspect}
mixed_racks: {description: "For each rack with more than one driver version, how to make it whole.", type: dict, returned: rack_drivers}
msg: {description: A one-line summary., type: str, returned: "adopt, doctor_report, fleet_plan, fleet_recommend, site_gate, verify_report"}
needed: {description: "The stages that must run, in order.", type: list, elements: str, returned: host_plan}
node: {description: The name of the host's node in Slurm., type: str, returned: slurm_files}
not_in_inventory: {description: "Nodes with GPUs that match no host in the inventory, with what they offer.", type: dict, returned: inspect}
offered: {description: "For every host, the GPU resources that its node offers, or null.", type: dict, returned: inspect}
pending: {description: The pods that wait for GPUs and are not scheduled to a node., type: list, elements: dict, returned: inspect}
plan:
  description: >-
    The plan of every host, by name, and the files of the cluster that would change. C(reboot) of a host is V(needed) if a step requires a reboot in
    the host's current state, V(possible) if the processes that have the driver open are unknown, and null if no reboot is needed.
  type: dict
  returned: fleet_plan
plan_begins: {description: "The digest of the saved plan that the run is held to, if it was not begun on the host before.", type: str, returned: host_plan}
playbook: {description: The playbook., type: str, returned: check_variables}
pool: {description: The pool of the host., type: str, returned: host_plan}
pools: {description: The hosts of each pool., type: dict, returned: adopt}
recommended:
  description: >-
    If C(recommend) changes the layout of the host, C(state), how its GPUs were partitioned, C(evicts), the pods that it announced, and C(keeps), the MIG
    devices in use that stay.
  type: dict
  returned: host_plan
refusals:
  description: Why the request cannot be met, each with C(thing), C(reason), C(remedy), the whole C(message), and the C(hosts) that it is about.
  type: list
  elements: dict
  returned: check_variables, fleet_recommend, host_plan, plan_gate, remove_gate, site_gate, slurm_files, slurm_report
run: {description: "Who runs the playbook, as in its lease.", type: str, returned: check_variables}
seconds: {description: "By host and stage, the seconds that it took, and the part of each kind of work.", type: dict, returned: site_times}
stages:
  description: >-
    The plan of every stage, by name. V(as described), V(to change), V(impossible) or V(unread) is its C(verdict); C(needed) is false only if the facts
    prove that there is nothing to do; C(steps), C(unknown) and C(warnings) say more.
  type: dict
  returned: host_plan
of_slurm: {description: The hosts to which files of Slurm are brought., type: list, elements: str, returned: site_gate}
to_accept: {description: Those of RV(to_change) that DCGM has to accept afterwards., type: list, elements: str, returned: site_gate}
to_change: {description: "The hosts with a stage that must run, or with another layout.", type: list, elements: str, returned: "fleet_recommend, site_gate"}
todo:
  description: Hosts that have something to do, or could not be read or planned; with O(ask), those whose modules have to be asked.
  type: list
  elements: str
  returned: "site_gate, fleet_plan with O(ask)"
total: {description: "The totals of all nodes, with memory in MiB.", type: dict, returned: inspect}
types: {description: "The types of the node's generic resources, such as V(gpu:a100).", type: list, elements: str, returned: slurm_report}
unread: {description: "Why hosts could not be read, by host.", type: dict, returned: inspect}
"""
