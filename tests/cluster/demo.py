# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The demo's three hosts as nodes of a real cluster: kubelets, the charts' own plugin, and what examples/fleet renders for them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.append(str(REPOSITORY / "tests"))

from warm_ansible import run as run_ansible

LAB = REPOSITORY / "tests" / "lab" / "lab"
_DEVICE = re.compile(r"UUID: ((?:GPU|MIG)-[0-9a-f-]+)")


@dataclass(frozen=True)
class Demo:
    """A lab of this name whose hosts are nodes.

    :param folder: for the rendered tree and for logs.
    :param inventory: what the pools should be.
    :param spec: of the lab; None for the demo's.
    :param kubernetes: the version of the cluster; empty for the lab's default.
    :param program: the lab, which may be another checkout's.
    """

    name: str
    folder: Path
    inventory: Path = REPOSITORY / "examples" / "fleet"
    spec: Path | None = None
    kubernetes: str = ""
    program: Path = LAB

    @property
    def tree(self) -> Path:
        return self.folder / "gitops" / "clusters" / "demo"

    def lab(self, action: str, *arguments: str) -> str:
        done = subprocess.run(
            [self.program, action, "--name", self.name, *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"lab {action} {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    @cached_property
    def command(self) -> list[str]:
        """kubectl, with the cluster."""
        kubeconfig = self.lab("kubeconfig").strip()
        programs = json.loads((Path(kubeconfig).parent / "cluster.json").read_text())["programs"]
        return [f"{programs}/kubectl", f"--kubeconfig={kubeconfig}"]

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        # Hundreds of calls: without the lab's own program between.
        command = [*self.command, *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    @property
    def hosts(self) -> str:
        """The inventory that says how to reach the hosts."""
        return self.lab("inventory").strip()

    @property
    def inventories(self) -> list[str]:
        return [str(self.inventory), self.hosts]

    def play(self, playbook: str, *arguments: str) -> str:
        done = self.run(playbook, *arguments)
        assert done.returncode == 0, f"{playbook}: {done.stdout[-4000:]}{done.stderr[-1000:]}"
        return done.stdout

    def run(self, playbook: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a playbook that may fail."""
        inventories = [word for path in self.inventories for word in ("-i", path)]
        program = REPOSITORY / ".venv" / "bin" / "ansible-playbook"
        tree = f"gpu_kubernetes_output_directory={self.folder / 'gitops'}"
        environment = {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "build" / "collections"),
            "ANSIBLE_CONFIG": str(REPOSITORY / "examples" / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
        }
        command = [str(program), *inventories, "-e", tree, f"gpufleet.nvidia.{playbook}", *arguments]
        return run_ansible(command, environment, Path.cwd(), timeout=3600)

    def report(self, playbook: str) -> dict[str, Any]:
        """What a playbook that changes nothing reports of the cluster."""
        path = self.folder / f"{playbook}.json"
        kubeconfig = self.lab("kubeconfig").strip()
        values = {"gpu_cluster_kubeconfig": kubeconfig, f"gpu_{playbook}_report": str(path)}
        self.play(playbook, "-e", json.dumps(values))
        return json.loads(path.read_text())

    def boot(self) -> None:
        """From nothing to nodes with nothing on them."""
        self.lab("down")
        spec = ["--spec", str(self.spec)] if self.spec else []
        version = ["--kubernetes", self.kubernetes] if self.kubernetes else []
        self.lab("up", "--nodes", *version, *spec)

    def install(self) -> None:
        """From nothing to nodes with the releases that the tree names."""
        self.boot()
        self.play("site")
        self.lab("charts", str(self.tree))

    def up(self) -> None:
        """From nothing to nodes that offer what the tree says."""
        self.install()
        wait_for(
            lambda: self.offered() == {name: node["resources"] for name, node in self.capacity["nodes"].items()}, 300
        )

    @property
    def capacity(self) -> dict[str, Any]:
        return json.loads((self.tree / "capacity.json").read_text())

    def node_of(self, pool: str) -> str:
        """The only node of a pool."""
        nodes = self.capacity["nodes"].items()
        (found,) = [name for name, node in nodes if node["configuration"] == pool]
        return found

    def get(self, *arguments: str) -> Any:
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def offered(self) -> dict[str, dict[str, int]]:
        """Node to its extended resources of NVIDIA, as its kubelet reports them."""
        return {
            node["metadata"]["name"]: {
                name: int(count)
                for name, count in node["status"]["allocatable"].items()
                if name.partition("/")[0] == "nvidia.com"
            }
            for node in self.get("nodes")["items"]
        }

    def labels(self, node: str) -> dict[str, str]:
        return self.get("node", node)["metadata"]["labels"]

    def expected_labels(self, node: str) -> dict[str, str]:
        """All that the rendered tree gives a node, and predicts of gpu-feature-discovery."""
        entry = self.capacity["nodes"][node]
        configuration = self.capacity["configurations"][entry["configuration"]]
        labels = entry.get("labels", configuration["labels"])
        return {**configuration["node_labels"], **labels, **configuration["labels_approximate"]}

    def example(self, name: str) -> dict[str, Any]:
        """A rendered example, as the object that it is."""
        return yaml.safe_load((self.tree / "examples" / f"{name}.yaml").read_text())

    def fill(self, example: str, count: int) -> None:
        """Make so many pods of an example that stay: only what they do is another, and that the machine has fewer cores."""
        pods = [self.staying(self.example(example), number) for number in range(count)]
        self.kubectl("create", "-f", "-", text=yaml.safe_dump_all(pods))

    @staticmethod
    def staying(pod: dict[str, Any], number: int = 0) -> dict[str, Any]:
        (container,) = pod["spec"]["containers"]
        pod["metadata"]["labels"] = {"example": pod["metadata"]["name"]}
        pod["metadata"]["name"] += f"-{number}"
        pod["spec"]["terminationGracePeriodSeconds"] = 0
        container["command"] = ["sh", "-c", "nvidia-smi -L && exec sleep 86400"]
        for part in ("requests", "limits"):
            container["resources"][part] = {
                name: value
                for name, value in container["resources"].get(part, {}).items()
                if name.startswith("nvidia.com/")
            }
        return pod

    def pods(self, example: str) -> list[dict[str, Any]]:
        return self.get("pods", "-l", f"example={example}")["items"]


def devices(listing: str) -> list[str]:
    """The devices of C(nvidia-smi -L): MIG devices where there are, whole GPUs where not."""
    found = _DEVICE.findall(listing)
    return sorted(uuid for uuid in found if uuid.startswith("MIG-")) or sorted(found)


def wait_for(what: Callable[[], Any], timeout: float = 300) -> Any:
    """Wait until C(what) returns something that is true, and return it."""
    until = time.monotonic() + timeout
    found = what()
    while not found and time.monotonic() < until:
        time.sleep(0.5)
        found = what()
    assert found, f"waited {timeout:.0f} s in vain"
    return found
