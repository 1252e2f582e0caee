# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Render the GitOps tree of every cluster of the inventory, on the controller."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any

from ansible import context
from ansible.utils.vars import load_extra_vars
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._printable import amount
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import plan_file
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.action_options import takes
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import served
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.text import shortened
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_facts import ControllerAction
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.plain import plain
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.pools import GPU_HOSTS
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render import team_quotas, writer
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.capacity_document import Former, digests_of_hosts
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.clusters import servers
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.fleet import Fleet, GpusUnknown, OfFacts
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.recorded import HostVariables, KeptFacts
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.slurm_tree import slurm_tree
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.tree import cluster_tree


class ActionModule(ControllerAction):
    OPTIONS = takes(
        "render", "output_directory facts_directory overwrite prune remove_nodes remove_clusters slurm_only hosts"
    )

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        groups = plain(task_vars.get("groups", {}))
        hosts = [str(host) for host in arguments["hosts"]]
        extra = load_extra_vars(self._loader)

        def earlier(host: str) -> Any:
            # Where recorded facts are is one of the variables that are read first.
            return recorded.earlier(host)

        known = HostVariables(task_vars["hostvars"], extra, hosts, earlier)
        try:
            of_run = known.of_run(task_vars, groups.get(GPU_HOSTS, []), self._template)
            of_run.update({name: arguments[name] for name in of_run if arguments[name] is not None})
            root = os.path.abspath(of_run["output_directory"])
            facts = os.path.join(root, of_run["facts_directory"]) if of_run["facts_directory"] else ""
            for variable, path in ((writer.VARIABLE, root), ("gpu_kubernetes_facts_directory", facts)):
                if path:
                    writer.refuse_in_inventory(path, variable, context.CLIARGS.get("inventory") or ())
            writer.refuse_unwritable(root)
            if facts and not os.path.isabs(of_run["facts_directory"]):
                writer.refuse_foreign(root, os.path.join(of_run["facts_directory"], writer.MANIFEST))
            recorded = KeptFacts(facts)
            fleet = self._fleet(groups, known, recorded, hosts, root)
            clusters = fleet.clusters()
            trees = {f"clusters/{cluster.name}": cluster_tree(cluster) for cluster in clusters}
            slurm_before = cache(partial(writer.slurm_nodes, root))
            slurm = fleet.slurm_clusters(slurm_before, writer.site_files)
            trees.update({f"{writer.SLURM}/{one.name}": slurm_tree(one) for one in slurm})
            described = [*(cluster.name for cluster in clusters), *(f"{writer.SLURM}/{one.name}" for one in slurm)]
            others = writer.other_clusters(root, trees)
            removed = writer.removed_clusters(of_run["remove_clusters"], described, others)
            nodes = {node for cluster in clusters for item in cluster.configurations for node in item.nodes}
            in_inventory = set(fleet.hosts)
            of_clusters = [path for path in trees if path.startswith("clusters/")]
            gone = writer.leaving(
                root, writer.nodes_of_tree(root, of_clusters), nodes | in_inventory, of_run["remove_nodes"]
            )
            for one in slurm:
                before = slurm_before(one.name)
                # A host that waits, or is in another cluster now, is in the inventory.
                known_nodes = {name for name, node in before.items() if node.host in in_inventory}
                known_nodes.update(node.name for node in one.nodes)
                gone += writer.leaving(root, before, known_nodes, of_run["remove_nodes"])
            if arguments["slurm_only"]:
                trees = {path: tree for path, tree in trees.items() if path.startswith(f"{writer.SLURM}/")}
                removed = []
            digest = writer.digest(trees)
            shown, verify = (
                self._templar.template(task_vars.get(name) or "") for name in (plan_file.SHOWN, plan_file.VERIFY)
            )
            of_plan = f", those of the plan {plan_file.refuse_tree(shown, verify, digest)}" if shown else ""
            changes = writer.plan(root, trees, of_run["prune"], map(writer.directory_of, removed))
        except Refused as refusal:
            return {
                "failed": True,
                "refusals": [refusal.as_dict()],
                "of_facts": isinstance(refusal, OfFacts),
                "msg": f"{refusal.message}\nNothing was written.",
            }
        edited = [change for change in changes if change.edited]
        if edited and not of_run["overwrite"]:
            lines = "\n".join(f"  {change.path}: {change.edited}" for change in edited)
            return {
                "failed": True,
                "edited": [change.path for change in edited],
                "msg": f"Rendering would overwrite changes that others made below {root}:\n{lines}\n"
                "Move the changes into the inventory, or allow it with gpu_kubernetes_overwrite: true. Nothing was written.",
            }
        if gone:
            self._display.warning(
                f"{root}: nodes leave the tree, because they are not in the inventory: {shortened(gone)}"
            )
        if fleet.in_both:
            self._display.warning(
                f"hosts of a Slurm cluster are in the Kubernetes cluster of the default of gpu_kubernetes_cluster, too: {shortened(fleet.in_both)}. "
                "Set it for them, empty for hosts of Slurm alone."
            )
        for one in slurm:
            for node, why in one.pending.items():
                self._display.warning(f"Slurm cluster {one.name}: {node} is left out: {why}")
            for node, why in one.behind.items():
                self._display.warning(f"Slurm cluster {one.name}: {node} is rendered as it is now: {why}")
        left = [name for name in others if name not in removed]
        for name in left:
            moved: list[str] = []
            with suppress(Refused):
                # What is wrong with the files of another inventory's cluster is no business of this run.
                moved = writer.still_there(root, name, nodes, in_inventory)
            if moved:
                self._display.warning(
                    f"{root}: nodes that do not belong to it any more are still in cluster {name}: {shortened(moved)}. No host of "
                    f"this inventory is in it. To remove it, set {writer.REMOVE_CLUSTERS}: [{name}]."
                )
        newer = any(True for _file in recorded.outdated())
        if not self._task.check_mode:
            writer.apply(root, changes)
            recorded.keep()
        done = "to change" if self._task.check_mode else "changed"
        text = f"; {', '.join(left)} left as they are, because no host of this inventory is in them" if left else ""
        self._display.display(
            f"  {root}: {amount(len(clusters) + len(slurm), 'cluster')}, {amount(len(changes), 'file')} {done}{text}"
        )
        say = self._display.display if of_plan else self._display.v
        say(f"  {root}: the files have the digest {digest}{of_plan}")
        result: dict[str, Any] = {
            "changed": bool(changes) or newer,
            "output_directory": root,
            "clusters": {
                cluster.name: {
                    "directory": os.path.join(root, "clusters", cluster.name),
                    "files": len(trees.get(f"clusters/{cluster.name}", ())) + 1,
                    "configurations": {
                        item.name: {"nodes": len(item.nodes), "resources": dict(item.capacity.resources)}
                        for item in cluster.configurations
                    },
                }
                for cluster in clusters
            },
            "slurm": {
                one.name: {
                    "directory": os.path.join(root, writer.SLURM, one.name),
                    "nodes": {node.name: node.gres for node in one.nodes},
                    "pending": dict(one.pending),
                }
                for one in slurm
            },
            "others": left,
            "served": {cluster.name: served.entries(servers(cluster)) for cluster in clusters},
            "quotas": {item.name: team_quotas.described(item) for item in clusters if item.options["quotas"]},
            "unread": recorded.unread,
            "digest": digest,
            # Of a run that saves or applies a plan.
            **(
                {"of_hosts": digests_of_hosts(clusters, slurm)}
                if task_vars.get(plan_file.APPLY) or task_vars.get(plan_file.OUT)
                else {}
            ),
            "to_write": bool(changes) or newer,
            "changes": [{"action": change.action, "path": change.path} for change in changes],
        }
        if self._task.diff:
            result["diff"] = [
                {
                    "before_header": change.path,
                    "after_header": change.path,
                    "before": change.before,
                    "after": change.after,
                }
                for change in changes
            ]
        return result

    def _fleet(
        self,
        groups: Mapping[str, list[str]],
        known: HostVariables,
        recorded: KeptFacts,
        hosts: list[str],
        root: str,
    ) -> Fleet:
        """Read the hosts of the inventory; only hosts whose variables hold templates are templated."""

        def before(cluster: str) -> dict[str, Former]:
            return writer.configurations_of_tree(root, f"clusters/{cluster}")

        @cache
        def rendered() -> set[str]:
            of_slurm = [
                writer.slurm_nodes(root, name) for name in glob.glob("*", root_dir=os.path.join(root, writer.SLURM))
            ]
            hosts_of_slurm = {node.host for nodes in of_slurm for node in nodes.values()}
            return writer.nodes_of_tree(root, glob.glob("clusters/*", root_dir=root)) | hosts_of_slurm

        left_out: dict[str, str] = {}
        fleet = Fleet(groups, recorded.gpus, before)
        for host in fleet.hosts:
            variables = known.of(host)
            known.refuse_other_run(host, variables, self._template)
            try:
                fleet.add(host, variables, partial(self._template, variables=variables))
            except Refused as refusal:
                # The first hosts of a fleet are brought up with --limit. A node that is in the tree is never dropped from it for that.
                if (
                    isinstance(refusal, GpusUnknown)
                    and hosts
                    and host not in hosts
                    and not rendered() & set(_names(host, variables))
                ):
                    recorded.leave_out(host, "this run is limited to other hosts, and no earlier run has read it")
                if host not in recorded.unread:
                    raise
                left_out[host] = f"; it is left out: {refusal.message.splitlines()[0]}"
                continue
            if recorded.is_fresh(host):
                recorded.note_overrides(host, known.overrides(host, self._template))
        for host, reason in recorded.unread.items():
            self._display.warning(f"{host} was not read: {reason.rstrip('.')}{left_out.get(host, '')}")
        if not fleet.hosts:
            raise Refused(
                "the group gpu_hosts",
                "it has no hosts, so there is nothing to render",
                "Make the pools its child groups.",
            )
        return fleet


def _names(host: str, variables: Mapping[str, Any]) -> list[str]:
    """Return what the node of a host may be called."""
    named = variables.get("gpu_node_name")
    return [host, str(named)] if named else [host]
