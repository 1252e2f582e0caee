# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Three lab hosts that are nodes of a real cluster, and the playbooks run against them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.clients import LABEL
from hosts.paths import LabPaths
from nodes.cluster import control_plane_of
from nodes.control_plane import ControlPlane
from workloads import CHECKPOINT, EXPORTER_LABEL, Workloads

REPOSITORY = Path(__file__).resolve().parents[2]
LAB = REPOSITORY / "tests" / "lab" / "lab"
OLD, NEW = "580.126.09", "580.178.04"
#: The container toolkit that belongs to each of them here.
TOOLKIT = {OLD: "1.19.1", NEW: "1.20.2"}
NODES = ("gpu-node-1", "gpu-node-2", "gpu-node-3")
LAYOUT = [{"devices": "all", "instances": {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}}]


@dataclass
class Run:
    """A playbook that runs, or has run."""

    process: subprocess.Popen[str]
    log: Path

    def wait(self, timeout: float = 1800) -> Run:
        self.process.wait(timeout=timeout)
        return self

    @property
    def status(self) -> int | None:
        return self.process.returncode

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """End the run and its workers at once, as a power cut of the controller does."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@dataclass(frozen=True)
class Machine:
    """Another machine from which playbooks are run: a name of its own, and its own copy of the collection.

    :param folder: where that copy is, and where runs are started.
    """

    name: str
    folder: Path

    def __post_init__(self) -> None:
        copy = self.folder / "collections" / "ansible_collections" / "gpufleet" / "nvidia"
        copy.mkdir(parents=True)
        for part in ("galaxy.yml", "meta", "playbooks", "plugins", "roles"):
            subprocess.run(["cp", "-a", str(REPOSITORY / part), str(copy / part)], check=True)

    @property
    def environment(self) -> dict[str, str]:
        return {"ANSIBLE_COLLECTIONS_PATH": str(self.folder / "collections")}

    @property
    def command(self) -> list[str]:
        return ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', self.name]


@dataclass
class Fleet:
    """Three nodes, all at the old driver.

    :param variables: those of every run, above the ones that are set here.
    """

    name: str
    folder: Path
    runs: int = 0
    nodes: tuple[str, ...] = NODES
    variables: dict[str, Any] = field(default_factory=dict)
    at_work: list[Run] = field(default_factory=list)

    def up(self, spec: Path, **variables: Any) -> None:
        """From nothing to nodes that offer what the rendered tree says."""
        self.boot(spec)
        self.site(**variables)

    def boot(self, spec: Path) -> None:
        self.lab("down")
        self.lab("up", "--nodes", "--spec", str(spec))

    def site(self, **variables: Any) -> None:
        """Set the hosts up, and the cluster as it is rendered for them; its workloads can begin."""
        run = self.run("site", **variables)
        assert run.status == 0, run.output[-4000:]
        self.lab("charts", str(self.tree))
        capacity = json.loads((self.tree / "capacity.json").read_text())["nodes"]
        self.wait_for(
            lambda: all(self.workloads.offered(node) == capacity[node]["resources"] for node in self.nodes), 300
        )
        self.workloads.start()

    def down(self) -> None:
        if "workloads" in self.__dict__:
            self.workloads.stop()
        self.lab("down")

    @cached_property
    def plane(self) -> ControlPlane:
        return control_plane_of(LabPaths(self.name))

    @cached_property
    def workloads(self) -> Workloads:
        return Workloads(str(self.plane.kubeconfig))

    @property
    def tree(self) -> Path:
        """Of the one cluster in the rendered tree."""
        (found,) = self.folder.glob("gitops/clusters/*")
        return found

    def lab(self, *arguments: str) -> str:
        action, *rest = arguments
        done = subprocess.run([LAB, action, "--name", self.name, *rest], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"lab {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def sh(self, host: str, script: str) -> str:
        return self.lab("exec", host, "--", "bash", "-c", script)

    def start(
        self, playbook: str, *arguments: str, driver: str = NEW, machine: Machine | None = None, **variables: Any
    ) -> Run:
        self.runs += 1
        inventory = self.lab("inventory").strip()
        given = {
            "nvidia_driver_version": driver,
            "nvidia_driver_allow_vulnerable": driver == OLD,
            "nvidia_toolkit_version": TOOLKIT.get(driver, TOOLKIT[NEW]),
            "nvidia_mig_strategy": "mixed",
            "nvidia_mig_layout": LAYOUT,
            "gpu_cluster_kubeconfig": str(self.plane.kubeconfig),
            "gpu_node_api_timeout": 300,
            "gpu_node_ready_timeout": 300,
            "gpu_node_settle_time": 3,
            "gpu_upgrade_budget_timeout": 5,
            "gpu_kubernetes_output_directory": str(self.folder / "gitops"),
            **self.variables,
            **variables,
        }
        # None leaves a variable to the inventory.
        given = {variable: value for variable, value in given.items() if value is not None}
        extra = self.folder / f"vars-{self.runs}.json"
        extra.write_text(json.dumps(given))
        log = self.folder / f"{self.runs:02d}-{playbook}.log"
        command = [
            str(REPOSITORY / ".venv" / "bin" / "ansible-playbook"),
            *("-i", inventory, "-e", f"@{extra}", f"gpufleet.nvidia.{playbook}", *arguments),
        ]
        environment = {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "build" / "collections"),
            "ANSIBLE_CONFIG": str(REPOSITORY / "examples" / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            **(machine.environment if machine else {}),
        }
        if machine:
            command = [*machine.command, *command]
        with open(log, "w") as output:
            process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                env=environment,
                start_new_session=True,
                cwd=machine.folder if machine else None,
            )
        self.at_work.append(Run(process, log))
        return self.at_work[-1]

    def run(self, playbook: str, *arguments: str, **variables: Any) -> Run:
        return self.start(playbook, *arguments, **variables).wait()

    def versions(self) -> dict[str, str]:
        return {host: self.sh(host, "cat /sys/module/nvidia/version").strip() for host in self.nodes}

    def toolkits(self) -> dict[str, str]:
        query = "dpkg-query -W -f '${Version}' nvidia-container-toolkit"
        return {host: self.sh(host, query).partition("-")[0] for host in self.nodes}

    def state(self, host: str) -> str | None:
        return self.workloads.annotations(host).get("gpufleet.github.io/upgrade-state")

    def reason(self, host: str) -> str:
        return self.workloads.annotations(host).get("gpufleet.github.io/upgrade-failed-reason", "")

    def held(self, host: str) -> dict[str, set[str]]:
        """UID of each pod to the devices that it was given, as the kubelet has written it down."""
        found: dict[str, set[str]] = {}
        for entry in json.loads(self.sh(host, f"cat {CHECKPOINT}"))["Data"]["PodDeviceEntries"]:
            given = entry["DeviceIDs"]
            for listed in given.values() if isinstance(given, dict) else [given]:
                found.setdefault(entry["PodUID"], set()).update(listed)
        return found

    def cordoned(self, host: str) -> bool:
        return bool(self.workloads.node(host)["spec"].get("unschedulable"))

    def resumed(self, host: str) -> bool:
        """Whether nothing of the cluster is kept away from the node."""
        labels = self.workloads.labels(host)
        return LABEL not in labels and labels[EXPORTER_LABEL] == "true"

    @staticmethod
    def alive(run: Run) -> bool:
        """Fail the test when the run has ended."""
        assert run.process.poll() is None, run.output[-3000:]
        return True

    def reached(self, run: Run, step: str, host: str) -> bool:
        """Whether this run, and none before it, has come to the step; fails the test when it has ended."""
        self.alive(run)
        found = self.workloads.annotations(host)
        mine = f"/{run.process.pid}-" in found.get("gpufleet.github.io/upgrade-operator", "")
        return mine and _ORDER.index(found["gpufleet.github.io/upgrade-state"]) >= _ORDER.index(step)

    def wait_for(self, what: Callable[[], Any], timeout: float = 600) -> Any:
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            found = what()
            if found:
                return found
            time.sleep(0.3)
        raise AssertionError(f"waited {timeout} s in vain")

    def forget(self) -> None:
        """Remove workloads and every record, as if no rollout had ever come; end the runs that a failed test left."""
        for run in self.at_work:
            if run.process.poll() is None:
                run.kill()
        self.at_work.clear()
        # The plugin's and the exporter's are of another namespace, and stay.
        for kind in ("replicasets", "poddisruptionbudgets", "daemonsets"):
            self.plane.kubectl("delete", kind, "--all", "--cascade=orphan")
        # Until their kubelets have ended them, their devices are nobody else's.
        self.plane.kubectl("delete", "pods", "--all", "--grace-period=1", "--timeout=120s")
        keys = [f"gpufleet.github.io/upgrade-{key}-" for key in _KEYS]
        for host in self.nodes:
            self.plane.kubectl("annotate", "node", host, *keys)
            labels = [f"{LABEL}-", f"{EXPORTER_LABEL}=true"]
            self.plane.kubectl("label", "node", host, "--overwrite", *labels)
            self.plane.kubectl("uncordon", host)
            self.sh(
                host,
                "rm -f /var/lib/gpufleet/upgrade.json /var/lib/gpufleet/upgrade-stopped.json /var/lib/gpufleet/repartition.json",
            )
        self.workloads.fewest.clear()


def documented_role() -> str:
    """Return the ClusterRole and the Roles that docs/upgrade.md asks for."""
    text = (REPOSITORY / "docs" / "upgrade.md").read_text(encoding="utf-8")
    (role,) = re.findall(r"```yaml\n(apiVersion: rbac.*?)```", text, re.DOTALL)
    return str(role)


def documented_condition_role() -> str:
    """Return the ClusterRole that docs/heal.md asks for where nodes get a condition."""
    text = (REPOSITORY / "docs" / "heal.md").read_text(encoding="utf-8")
    (role,) = re.findall(r"```yaml\n(apiVersion: rbac.*?)```", text, re.DOTALL)
    return str(role)


#: What a record says, from a run's beginning to its end.
_ORDER = (
    "started",
    "waiting-for-jobs",
    "evicting",
    "installing",
    "verifying",
    "returning",
    "failed",
    "rolling-back",
    "done",
)
_KEYS = ("state", "from", "from-toolkit", "to", "wave", "initial-unschedulable", "failed-reason", "operator", "since")
