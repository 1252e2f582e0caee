# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rendered tree of a cluster, installed by helm and kubectl from the projects' own, unmodified charts.

The charts come with the source of the programs that the images hold, so they are of those programs' versions. The rendered
tree may name a newer chart that Go's module proxy does not give.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hosts.progress import LabError, Progress

from . import programs
from .control_plane import ControlPlane

NAMESPACE = "nvidia-gpu"
_DISCOVERY = "node-feature-discovery"
_PLUGIN = "nvidia-device-plugin"
_CLAIMS = "dra-driver-nvidia-gpu"
#: In place of once a minute: what a node has changes under the eyes of somebody who waits for its labels.
_LOOKS_OFTEN = ("worker.config.core.sleepInterval=3s",)


class Charts:
    """The charts of one cluster.

    :param tree: the directory of the cluster in the rendered tree: objects/, values/ and node-labels/.
    """

    def __init__(self, plane: ControlPlane, tree: Path, progress: Progress) -> None:
        self._plane = plane
        self._tree = tree
        self._progress = progress
        self._helm = programs.helm(progress)

    def install(self, settings: Sequence[str] = ()) -> None:
        """Bring the cluster to what the tree says.

        :param settings: values of the device plugin's chart, KEY=VALUE, above the rendered ones.
        """
        self._plane.kubectl("apply", "--server-side", "-f", str(self._tree / "objects" / "namespace.yaml"))
        self._plane.kubectl("apply", "--server-side", "-f", str(self._tree / "objects"))
        releases = [path.stem for path in sorted((self._tree / "values").glob(f"{_PLUGIN}-*.yaml"))]
        plugin, discovery = programs.chart(_PLUGIN), programs.chart("nfd-master")
        self.release(_DISCOVERY, discovery, _LOOKS_OFTEN)
        if (self._tree / "values" / f"{_CLAIMS}.yaml").exists():
            self.release(_CLAIMS, programs.chart(programs.CLAIMS[0]))
        with ThreadPoolExecutor(max_workers=3) as pool:
            list(pool.map(lambda name: self.release(name, plugin, settings), releases))
        # The rules are of a kind that the chart defines.
        labels = self._tree / "node-labels"
        if labels.is_dir():
            self._plane.kubectl("apply", "--server-side", "-f", str(labels))

    def release(self, name: str, chart: Path, settings: Sequence[str] = ()) -> None:
        """Install or upgrade one release with its rendered values, and these above them."""
        values = self._tree / "values" / f"{name}.yaml"
        words = [word for setting in settings for word in ("--set-string", setting)]
        self.helm("upgrade", "--install", name, str(chart), "--values", str(values), *words)
        self._progress.say(f"installed {name} from the chart {chart.name}")

    def helm(self, *arguments: str) -> str:
        """Run helm in the namespace of the tree; return what it printed."""
        home = self._plane.data / "helm"
        command = [str(self._helm), "--kubeconfig", str(self._plane.kubeconfig), "--namespace", NAMESPACE, *arguments]
        environment = {
            **os.environ,
            "HELM_CACHE_HOME": str(home),
            "HELM_CONFIG_HOME": str(home),
            "HELM_DATA_HOME": str(home),
        }
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)
        if done.returncode:
            raise LabError(f"Failed to run helm {' '.join(arguments[:3])}: {done.stderr.strip()}")
        return done.stdout


def capacity(tree: Path) -> dict[str, dict[str, int]]:
    """Node name to the resources that the rendered tree says it offers."""
    data = json.loads((tree / "capacity.json").read_text(encoding="utf-8"))
    return {name: node["resources"] for name, node in data["nodes"].items()}
