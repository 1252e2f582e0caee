# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cluster of a lab whose specification has nodes: made, started and removed with the lab."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from hosts import paths
from hosts.host import live_process
from hosts.progress import LabError, Progress
from hosts.spec import HostSpec

from . import programs
from .argocd import ArgoCD, stop_argocd
from .control_plane import FEATURE_GATES, ControlPlane, Endpoints
from .layer import ensure_node_layer
from .network import Network
from .node_files import node_files, write_node_files

_READY_WITHIN = 180.0
_WATCHES = Path("/proc/sys/fs/inotify/max_user_instances")
_ENOUGH_WATCHES = 4096


def control_plane_of(lab: paths.LabPaths) -> ControlPlane:
    """The control plane of a lab that exists."""
    data = json.loads((lab.cluster / "cluster.json").read_text(encoding="utf-8"))
    return ControlPlane(
        lab.cluster, Path(data["programs"]), _endpoints(Network(data["network"])), gates=data["feature_gates"]
    )


def argocd_of(lab: paths.LabPaths, progress: Progress) -> ArgoCD:
    """Argo CD beside the cluster of a lab that exists, whether it runs or not."""
    number = json.loads((lab.cluster / "cluster.json").read_text(encoding="utf-8"))["network"]
    return ArgoCD(lab, number, control_plane_of(lab), progress)


class Cluster:
    """The cluster of one lab.

    :param specs: the lab's hosts in order; those that are nodes have a place in it.
    """

    def __init__(self, lab: paths.LabPaths, number: int, specs: Sequence[HostSpec], progress: Progress) -> None:
        self._lab = lab
        self._network = Network(number)
        self._nodes = {spec.name: (index, spec.node) for index, spec in enumerate(specs) if spec.node != "none"}
        self._progress = progress

    @property
    def number(self) -> int:
        return self._network.number

    @property
    def plane(self) -> ControlPlane:
        return control_plane_of(self._lab)

    @property
    def argocd(self) -> ArgoCD:
        return argocd_of(self._lab, self._progress)

    def create(self, kubernetes: str) -> None:
        """Write the keys of control plane and nodes.

        :param kubernetes: the version of both.
        """
        self._lab.cluster.mkdir(parents=True)
        data = {
            "network": self._network.number,
            "programs": str(programs.kubernetes(self._progress, kubernetes)),
            "feature_gates": FEATURE_GATES[kubernetes],
        }
        (self._lab.cluster / "cluster.json").write_text(json.dumps(data), encoding="utf-8")
        self.plane.prepare(list(self._nodes))

    def configure(self, host: str, root: Path) -> None:
        """Write what makes a host its node below the directory C(root)."""
        index, runtime = self._nodes[host]
        write_node_files(root, node_files(runtime, host, index, self._network, self.plane))

    def start(self) -> None:
        """Make the network and start the control plane, unless it is there."""
        self._allow_watches()
        self._network.up(1 + max(index for index, _runtime in self._nodes.values()))
        if _supervisor(self._lab) is None:
            environment = {**os.environ, "PYTHONPATH": str(paths.LAB_SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
            with (self._lab.cluster / "supervisor.log").open("ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", "nodes.supervisor", str(self._lab.directory)],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd="/", env=environment,
                    start_new_session=True,
                )  # fmt: skip
            paths.write_whole(_pid(self._lab), f"{process.pid}\n")

    def _allow_watches(self) -> None:
        """A kernel's default lets one user watch files in 128 places; a node with its pods takes thirty of them."""
        if int(_WATCHES.read_text(encoding="ascii")) < _ENOUGH_WATCHES:
            _WATCHES.write_text(f"{_ENOUGH_WATCHES}\n", encoding="ascii")
            self._progress.say(f"raised {_WATCHES} of this machine to {_ENOUGH_WATCHES}; it stays so until it reboots")

    def wait_until_ready(self) -> None:
        """Wait until every node is ready.

        :raises LabError: one is not; with what its kubelet said last.
        """
        plane, until = self.plane, time.monotonic() + _READY_WITHIN
        if not plane.ready(_READY_WITHIN):
            raise LabError(f"Failed to start the control plane of '{self._lab.name}'. See {self._lab.cluster}/*.log.")
        missing = set(self._nodes)
        while missing and time.monotonic() < until:
            time.sleep(0.3)
            found = json.loads(plane.kubectl("get", "nodes", "-o", "json").stdout)["items"]
            ready = {node["metadata"]["name"] for node in found if _is_ready(node)}
            for name in sorted(missing & ready):
                self._progress.say(f"{name}: node is ready")
            missing -= ready
        if missing:
            raise LabError(
                f"Failed to bring up the cluster of '{self._lab.name}': not ready after {_READY_WITHIN:.0f} s: "
                f"{', '.join(sorted(missing))}. See 'lab exec <host> -- journalctl -u kubelet -u containerd'."
            )
        self._progress.say(f"the cluster is up; kubeconfig: {plane.kubeconfig}, kubectl: {plane.folder / 'kubectl'}")


def ensure_node_layers(
    specs: Sequence[HostSpec], base: Path, kubernetes: str, progress: Progress
) -> Mapping[str, tuple[Path, ...]]:
    """Container runtime to the directories that its nodes have above the lab's layer."""
    runtimes = sorted({spec.node for spec in specs if spec.node != "none"})
    return {runtime: (ensure_node_layer(runtime, base, kubernetes, progress),) for runtime in runtimes}


def stop_control_plane(lab: paths.LabPaths) -> None:
    """End the control plane of a lab, if it has one, and Argo CD beside it."""
    stop_argocd(lab)
    for attempt in range(600):
        supervisor = _supervisor(lab)
        if supervisor is None:
            break
        # Its programs end with it, also when it is killed.
        os.kill(supervisor, signal.SIGTERM if attempt < 400 else signal.SIGKILL)
        time.sleep(0.05)


def remove_network(lab: paths.LabPaths) -> None:
    """Remove the addresses and the bridge of a lab's cluster, if it has one."""
    with contextlib.suppress(FileNotFoundError):
        Network(json.loads((lab.cluster / "cluster.json").read_text(encoding="utf-8"))["network"]).down()


def _supervisor(lab: paths.LabPaths) -> int | None:
    """The process id of the control plane's supervisor while it runs."""
    return live_process(_pid(lab), str(lab.directory))


def _pid(lab: paths.LabPaths) -> Path:
    return lab.cluster / "supervisor.pid"


def _is_ready(node: Mapping[str, Mapping[str, list[Mapping[str, str]]]]) -> bool:
    conditions = node["status"].get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _endpoints(network: Network) -> Endpoints:
    return Endpoints(network.api, 443, 2379, 2380, network.services)
