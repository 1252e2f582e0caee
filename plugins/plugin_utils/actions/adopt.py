# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write the inventory of hosts that somebody else set up, from what they are. Nothing on hosts or in a cluster is changed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansible import constants as C

from ...module_utils._adapters.files import read_text, write_whole
from ...module_utils._boards.cards import cards_of_machines, cards_on_bus
from ...module_utils._driver.refusals import FOREIGN
from ...module_utils._facts_view import Facts
from ...module_utils._formats.driver_versions import branch_of, is_driver_version
from ...module_utils._formats.imex import ADDRESS as IMEX_ADDRESS
from ...module_utils._host.stage import PROGRAM
from ...module_utils._plan import Refused
from ...module_utils._printable import amount
from ..action_options import takes
from ..cluster import if_there
from ..cluster_action import ClusterAction
from ..fleet.adopt import adopt, slurm_node
from ..fleet.adopt_cluster import NAMESPACES, Objects, ServedConfiguration
from ..fleet.adopt_inventory import (
    DEEPOPS_NAMES,
    MARK,
    Adopted,
    DeepOpsVariables,
    RackMember,
    inventory,
    racks,
    read_deepops,
)
from ..fleet.objects import CLUSTER_POLICY, NVIDIA_DRIVER, taken
from ..fleet.text import refuse_operator_version, shortened
from ..host_facts import registered
from ..host_program import program_identity
from ..plain import facts_of, plain, write_report
from ..pools import GPU_HOSTS
from ..render.versions import CHARTS, GPU_OPERATOR
from ..role_variables import collect
from ..stages import PASSTHROUGH, STAGES, plan_stages

#: How a host is reached, as far as it is no secret. What is secret stays where it is.
CONNECTION = (
    "ansible_host",
    "ansible_port",
    "ansible_user",
    "ansible_connection",
    "ansible_python_interpreter",
    "ansible_ssh_private_key_file",
    "ansible_ssh_common_args",
    "ansible_ssh_extra_args",
    "ansible_become_method",
    "ansible_become_user",
)
_SECRET = (
    "ansible_password",
    "ansible_ssh_pass",
    "ansible_become_pass",
    "ansible_become_password",
    "ansible_sudo_pass",
)


class ActionModule(ClusterAction):
    # There is a cluster where a kubeconfig is given.
    COMMON = takes("fleet", "kubeconfig context api_timeout")
    OPTIONS = takes("fleet", "directory overwrite report", needs="hosts", namespaces=[*NAMESPACES])

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        directory = os.path.abspath(arguments["directory"])
        before = _refuse_existing(directory, arguments["overwrite"])
        objects = self._objects(arguments) if arguments["kubeconfig"] else None
        defaults = {**collect({}, lambda value: value), PROGRAM: program_identity(C.DEFAULT_LOCAL_TMP)}
        groups = plain(task_vars.get("groups", {}))
        adopted: list[Adopted] = []
        left_out: dict[str, str] = {}
        of_hosts: dict[str, dict[str, Any]] = {}
        secret: set[str] = set()
        kubelets = False
        read: dict[str, RackMember] = {}
        for host in arguments["hosts"]:
            variables = task_vars["hostvars"][host]
            known, unread = facts_of(registered(variables, "gpu_facts_host"))
            reason = unread if known is None else _reason_to_leave_out(host, known, defaults, groups)
            if known is None or reason:
                left_out[host] = reason
                continue
            read[host] = RackMember(known, _address(variables, host))
        rack_of = racks(read, [*groups, GPU_HOSTS])
        for host in read:
            variables, facts = task_vars["hostvars"][host], read[host].facts
            deepops = _deepops(variables, facts, objects is not None)
            served, node = _served(objects, host, variables, facts, deepops)
            try:
                one = adopt(host, facts, served, STAGES, defaults, deepops.runtime, rack_of[host])
            except Refused as refusal:
                left_out[host] = refusal.message
                continue
            adopted.append(replace(one, notes=(*one.notes, *deepops.notes)))
            copied = (*CONNECTION, *([IMEX_ADDRESS] if one.rack else []))
            of_hosts[host] = {**{name: plain(variables[name]) for name in copied if name in variables}, **node}
            named = slurm_node(facts, host)
            if named not in ("", host.partition(".")[0]):
                of_hosts[host]["gpu_slurm_node_name"] = named
            secret.update(name for name in _SECRET if name in variables)
            kubelets = kubelets or bool(facts.kubelet.active)
        if not adopted:
            lines = "\n".join(f"  {host}: {reason.rstrip('.')}" for host, reason in left_out.items())
            raise Refused("the hosts of this run", f"none of them can be adopted, so nothing is written:\n{lines}", "")
        cluster, notes = _cluster_variables(objects, kubelets)
        if objects and objects.strangers:
            notes.append(
                f"DaemonSets that look like a device plugin, but are in none of the namespaces {', '.join(objects.namespaces)}, decided nothing: "
                f"{shortened(objects.strangers)}. If they are yours, name their namespaces in gpu_node_plugin_namespaces, and run again."
            )
        if secret:
            notes.append(
                f"Not copied, because they are secret: {', '.join(sorted(secret))}. Set them yourself, preferably from a vault."
            )
        found = inventory(adopted, cluster, of_hosts, left_out, notes, [name for name in groups if name != GPU_HOSTS])
        files = found.files()
        changed = {
            path
            for path, text in files.items()
            if read_text(os.path.join(directory, path), links=False) != text.strip()
        }
        stale = sorted(before - set(files))
        if not self._task.check_mode:
            for path in sorted(changed):
                write_whole(os.path.join(directory, path), files[path])
            for path in stale:
                os.unlink(os.path.join(directory, path))
        self._display.display("\n" + found.text())
        written = "would be written to" if self._task.check_mode else "is in"
        shown = shlex.quote(os.path.relpath(directory))
        self._display.display(
            f"\nThe inventory {written} {directory}. Nothing on the hosts or in a cluster was changed. Next:\n"
            f"  ansible-playbook -i {shown} gpufleet.nvidia.plan"
        )
        report = {
            "directory": directory,
            "pools": {pool.name: list(pool.hosts) for pool in found.pools},
            "hosts": {one.host: one.as_dict() for one in adopted},
            "differences": found.differences,
            "left_out": left_out,
        }
        if arguments["report"] and not self._task.check_mode:
            write_report(arguments["report"], report, 0o600)
        count = sum(map(len, found.differences.values()))
        return {
            **report,
            "changed": bool(changed or stale),
            "msg": f"{amount(len(adopted), 'host')} in {amount(len(found.pools), 'pool')}, {len(left_out)} left out, "
            f"{amount(count, 'difference')} not described.",
        }

    def _objects(self, arguments: dict[str, Any]) -> Objects:
        """Read what decides how the GPUs of a cluster are served."""
        api = self.cluster(arguments)

        def items(group: str, kind: str, shape: Mapping[str, Any]) -> list[dict[str, Any]]:
            path = f"/apis/{group}/{kind.lower()}"
            # Where no operator was ever installed the cluster has no such kind.
            answer = if_there(api.call, "GET", path, f"list the {kind}", resourceVersion="0")
            there = answer["items"] if answer else []
            found = taken(there, shape)
            if len(found) != len(there):
                reason = "one has fields of other types than the GPU Operator's definition has"
                raise Refused(f"the {kind} of the cluster", reason, f"Look at them: kubectl get --raw {path}")
            return found

        found = Objects(
            list(api.nodes().values()),
            items("nvidia.com/v1", "ClusterPolicies", CLUSTER_POLICY),
            items("nvidia.com/v1alpha1", "NVIDIADrivers", NVIDIA_DRIVER),
            api.daemon_sets(),
            namespaces=arguments["namespaces"],
        )
        config_maps = {}
        for namespace, name in found.wanted_config_maps():
            path, what = f"/api/v1/namespaces/{namespace}/configmaps/{name}", f"read ConfigMap {namespace}/{name}"
            document = if_there(api.call, "GET", path, what) or {}
            config_maps[namespace, name] = {str(key): str(value) for key, value in (document.get("data") or {}).items()}
        return replace(found, config_maps=config_maps)


def _refuse_existing(directory: str, overwrite: bool) -> set[str]:
    """Return the files of an earlier run, by path inside the folder.

    :raises Refused: there are files, and nobody asked for them to be replaced; or one is somebody else's.
    """
    there = [
        os.path.relpath(os.path.join(folder, name), directory)
        for folder, _folders, names in os.walk(directory)
        for name in names
    ]
    if there and not overwrite:
        remedy = "Name another directory, or replace what an earlier adopt wrote with gpu_adopt_overwrite: true."
        raise Refused("gpu_adopt_directory", f"{directory} has files already, such as {sorted(there)[0]}", remedy)
    ours = {path for path in there if MARK[2:] in (read_text(os.path.join(directory, path), links=False) or "")[:200]}
    foreign = sorted(set(there) - ours)
    if foreign:
        reason = f"{directory} has files that no earlier adopt wrote: {', '.join(foreign[:3])}"
        raise Refused("gpu_adopt_directory", reason, "Name another directory.")
    return ours


def _reason_to_leave_out(host: str, facts: Facts, defaults: Mapping[str, Any], groups: Mapping[str, Any]) -> str:
    """Return why a host cannot be adopted, or an empty text."""
    if host in (groups.get(GPU_HOSTS) or ()):
        return f"it is already in the group {GPU_HOSTS}: gpufleet.nvidia.plan shows how it differs"
    plans = plan_stages(facts, {**defaults, PASSTHROUGH: len(cards_of_machines(facts))})
    for name in ("privileges", "hardware"):
        if name in plans:
            return "; ".join(refusal.message for refusal in plans[name].refusals)
    nvml, driver = facts.nvml, facts.driver
    if not driver.loaded_version and driver.source not in FOREIGN and cards_on_bus(facts):
        # Nobody has set it up, or not to the end: it becomes what the roles make of it.
        return ""
    if nvml.available is False or not facts.gpus:
        reason = nvml.reason or "no GPU is visible"
        return f"its driver does not answer ({reason}), so there is nothing to adopt: gpufleet.nvidia.doctor says what is wrong"
    return ""


def _address(variables: Any, host: str) -> str:
    """Return at which address the hosts of its rack reach a host, as C(nvidia_driver_imex_address) says it."""
    given = [plain(variables[name]) for name in (IMEX_ADDRESS, "ansible_host") if name in variables]
    return str(next((value for value in given if value), host))


def _deepops(variables: Any, facts: Facts, cluster_read: bool) -> DeepOpsVariables:
    version = facts.driver.loaded_version or ""
    branch = str(branch_of(version)) if is_driver_version(version) else ""
    given = {name: plain(variables[name]) for name in DEEPOPS_NAMES if name in variables}
    return read_deepops(given, branch, cluster_read)


def _served(
    objects: Objects | None,
    host: str,
    variables: Any,
    facts: Facts,
    deepops: DeepOpsVariables,
) -> tuple[ServedConfiguration, dict[str, Any]]:
    """Return how a host is served, and the variables with its name in the cluster where that is another one."""
    if objects is None:
        return ServedConfiguration(strategy=deepops.strategy), {}
    address = str(plain(variables.get("ansible_host")) or "") if "ansible_host" in variables else ""
    node = objects.node_named(host, facts.host.name or "", address)
    if node is None:
        return ServedConfiguration(
            strategy=deepops.strategy, differences=("the cluster has no node of this name or address",)
        ), {}
    found = objects.served(node)
    return found, {"gpu_node_name": found.node} if found.node != host else {}


def _other_charts(objects: Objects) -> list[str]:
    """Say where the tree would install another version of a chart than the cluster has."""
    found = []
    for chart, version in objects.charts.items():
        pinned = CHARTS[chart].version if chart in CHARTS else version
        if pinned.lstrip("v") == version.lstrip("v"):
            continue
        if chart == GPU_OPERATOR and _operator_version(objects):
            found.append(
                f"The cluster has chart {chart} {version}, and the tree keeps it (gpu_kubernetes_operator_version). Render writes values for {pinned}; "
                "remove the variable to upgrade."
            )
        else:
            found.append(
                f"The cluster has chart {chart} {version}, and render writes values for {pinned}: the tree would upgrade it."
            )
    driver = objects.policy.get("spec", {}).get("driver") or {} if objects.policy else {}
    if driver.get("version") and driver.get("enabled") is not False:
        found.append(
            f"The GPU Operator installs driver {driver['version']}. The tree has the driver of its chart, unless you set gpu_kubernetes_values: "
            f'{{gpu-operator: {{driver: {{version: "{driver["version"]}"}}}}}}.'
        )
    return found


def _operator_version(objects: Objects) -> dict[str, Any]:
    """Return the variable that keeps the operator's chart as it is, also when a later release of the collection pins another one."""
    version = objects.charts.get(GPU_OPERATOR, "") if objects.policy else ""
    try:
        refuse_operator_version(version)
    except Refused:
        return {}
    return {"gpu_kubernetes_operator_version": version} if version else {}


def _cluster_variables(objects: Objects | None, kubelets: bool) -> tuple[dict[str, Any], list[str]]:
    if objects is not None:
        _named, left = objects.named_configurations
        return {**objects.variables(), **_operator_version(objects)}, [
            *left,
            *_other_charts(objects),
            "Nothing is rendered yet, so the plan adds all files of the cluster. Compare what gpufleet.nvidia.render writes with what "
            "serves the cluster now before you apply it (docs/migration.md).",
        ]
    if kubelets:
        return {}, [
            "The hosts are nodes of a cluster that was not read. Set gpu_cluster_kubeconfig to adopt how pods share GPUs. "
            "Nothing is rendered yet, so the plan adds all files of the cluster."
        ]
    return {"gpu_kubernetes_cluster": ""}, [
        "No kubelet runs on the hosts, so gpu_kubernetes_cluster is empty: nothing is rendered."
    ]
