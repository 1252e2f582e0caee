# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes that are described as pools, and one cluster of them for all files that need none of their own.

A file begins with nothing of the one before: no release, no object, no pod, and nodes that have just registered. What a host had been, site
changes, as it does on a site.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from demo import Demo, devices, wait_for
from hosts.paths import LabPaths
from hosts.progress import Progress
from nodes.charts import Charts
from nodes.cluster import control_plane_of
from workloads import deployment

#: Devices reach containers by volume mounts on the first, and by CDI on the others; the last has boards without MIG.
MOUNTS, CDI, VARIABLE, SMALL = "node-mounts", "node-cdi", "node-variable", "node-small"
_BOARDS = {MOUNTS: "h100-80gb-sxm", CDI: "h100-80gb-sxm", VARIABLE: "h100-80gb-sxm", SMALL: "l40s-48gb"}
SPEC = {
    "hosts": [
        {"name": name, "group": "gpu_hosts", "boards": [{"board": board, "count": 2}], "driver": "installed"}
        | {"node": "containerd-1.6" if name == MOUNTS else "containerd-2.4"}
        for name, board in _BOARDS.items()
    ]
}
COMMON = {
    "nvidia_driver_branch": "580",
    "nvidia_driver_state": "unmanaged",
    "nvidia_toolkit_version": "1.20.2",
    "gpu_kubernetes_cluster": "demo",
}
_PODS, _CHECKPOINT = "nvidia-gpu", "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
#: What the releases and the rendered objects leave outside of their namespace.
_LEFT = ("runtimeclasses", "deviceclasses", "resourceslices", "nodefeaturerules", "clusterpolicies")
#: What a host keeps of day two: whoever describes it next may go back to a former layout.
_RECORDS = "former-layout.json repartition.json heal.json upgrade.json driver-previous.json"
_OF_DEFAULT = ("deployments", "jobs", "pods", "poddisruptionbudgets", "resourceclaimtemplates", "resourceclaims")


class Pod(NamedTuple):
    """A pod that runs."""

    title: str
    node: str
    devices: tuple[str, ...]


@dataclass(frozen=True)
class PoolNodes(Demo):
    """The nodes of a cluster, by the pools that a file makes of them.

    :param pools: pool to its hosts.
    """

    pools: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def members(self) -> list[str]:
        return [host for hosts in self.pools.values() for host in hosts]

    @property
    def inventories(self) -> list[str]:
        """What is described names the hosts."""
        return [str(self.inventory)]

    def describe(
        self, variables: Mapping[str, Any], of_pools: Mapping[str, Any] | None = None, without: tuple[str, ...] = ()
    ) -> None:
        """Say what the pools should be.

        :param variables: of all pools, besides those that the hosts need.
        :param of_pools: pool to its own.
        :param without: hosts that the inventory does not know.
        """
        lab = yaml.safe_load(Path(self.hosts).read_text())["all"]
        reached = self._reached()
        children = {
            pool: {
                "hosts": {host: reached[host] for host in hosts if host not in without},
                "vars": dict((of_pools or {}).get(pool, {})),
            }
            for pool, hosts in self.pools.items()
        }
        described = {"vars": {**COMMON, **variables}, "children": children}
        self.inventory.write_text(json.dumps({"all": {"vars": lab["vars"], "children": {"gpu_hosts": described}}}))

    def site(self) -> None:
        """Bring the hosts and the cluster to what is described."""
        self.play("site")
        self.lab("charts", str(self.tree))

    def begin(self) -> None:
        """Take away what was in the cluster, and have the hosts of the pools as its nodes, and no others."""
        for release in self.releases():
            # Its hooks are pods, which would only clean up what is removed here.
            self.helm("uninstall", release, "--no-hooks")
        at_once = ("--all", "--force", "--grace-period=0", "--timeout=120s")
        self.kubectl("delete", ",".join(_OF_DEFAULT), *at_once)
        self.kubectl("delete", "namespace", _PODS, "--ignore-not-found", "--timeout=120s")
        served = self.kubectl("api-resources", "--output=name").split()
        self.kubectl("delete", ",".join(kind for kind in served if kind.partition(".")[0] in _LEFT), *at_once)
        self._on([*self._reached()], "systemctl stop kubelet")
        self.kubectl("delete", "nodes", "--all", "--timeout=60s")
        # Without it a kubelet goes on to offer 0 of what there was.
        self._on(self.members, f"rm -f {_CHECKPOINT} && systemctl start kubelet")
        wait_for(lambda: sorted(self._ready()) == sorted(self.members), 180)
        self._begun.write_text(str(self.inventory))

    def end(self, variables: Mapping[str, Any], hosts: list[str]) -> None:
        """Leave whole GPUs to whoever describes the hosts next, and nobody who uses them.

        :param variables: of all pools. C(hosts): those with MIG.
        """
        self.kubectl("uncordon", *self.members)
        self._on(hosts, f"cd /var/lib/gpufleet && rm -f {_RECORDS}")
        self.begin()
        whole = {"nvidia_mig_layout": "all-disabled"}
        self.describe(variables, {pool: whole for pool, members in self.pools.items() if set(members) & set(hosts)})
        self.site()

    @property
    def _begun(self) -> Path:
        return Path(self.hosts).parent / "begun-by-tests"

    @property
    def current(self) -> bool:
        """Whether nobody else has begun since this one has."""
        return self._begun.exists() and self._begun.read_text() == str(self.inventory)

    def on_instances(self, name: str, profile: str, count: int, **more: Any) -> dict[str, Any]:
        """A Deployment whose pods hold a MIG device each.

        :param more: of the pods' specification.
        """
        spec = self.staying(self.example("training-mig-1g-10gb"))["spec"]
        resources = {f"nvidia.com/mig-{profile}": 1}
        spec["containers"][0]["resources"] = {"limits": resources, "requests": resources}
        del spec["restartPolicy"], spec["nodeSelector"]
        # Where devices are no CDI devices, only the runtime of this class has them.
        return deployment(name, count, {**spec, "runtimeClassName": "nvidia", **more})

    def of_phase(self, phase: str) -> list[dict[str, Any]]:
        """The pods of such workloads that are not on their way out."""
        found = self.get("pods", "-l", "example")["items"]
        return [
            pod for pod in found if pod["status"]["phase"] == phase and not pod["metadata"].get("deletionTimestamp")
        ]

    def at_work(self) -> dict[str, Pod]:
        """UID to which of them runs where, and on which devices."""
        found = self.of_phase("Running")
        with ThreadPoolExecutor(4) as threads:
            names = [pod["metadata"]["name"] for pod in found]
            seen = threads.map(lambda name: self.kubectl("exec", name, "--", "nvidia-smi", "-L"), names)
        return {
            pod["metadata"]["uid"]: Pod(title_of(pod), pod["spec"]["nodeName"], tuple(devices(listing)))
            for pod, listing in zip(found, seen, strict=True)
        }

    def offers_what_is_rendered(self, timeout: float = 180) -> None:
        """A resource that was offered before stays on a node with 0."""
        wait_for(lambda: {name: nonzero(found) for name, found in self.offered().items()} == self.expected(), timeout)

    def expected(self) -> dict[str, dict[str, int]]:
        return {name: node["resources"] for name, node in self.capacity["nodes"].items()}

    def releases(self) -> list[str]:
        return self.helm("list", "--short").split()

    def helm(self, *arguments: str) -> str:
        return Charts(control_plane_of(LabPaths(self.name)), self.tree, Progress()).helm(*arguments)

    def _reached(self) -> dict[str, Any]:
        """How every host of the lab is reached, by its name."""
        return yaml.safe_load(Path(self.hosts).read_text())["all"]["children"]["gpu_hosts"]["hosts"]

    def _on(self, hosts: list[str], script: str) -> None:
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda host: self.lab("exec", host, "--", "sh", "-c", script), hosts))

    def _ready(self) -> list[str]:
        return [
            node["metadata"]["name"]
            for node in self.get("nodes")["items"]
            for condition in node["status"].get("conditions", [])
            if (condition["type"], condition["status"]) == ("Ready", "True")
        ]


def nonzero(resources: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in resources.items() if count}


def title_of(pod: Mapping[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
