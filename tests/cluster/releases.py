# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Releases of charts in the cluster of a lab, with other values than the rendered ones, by the lab's own helm."""

from __future__ import annotations

from pathlib import Path

from demo import REPOSITORY, Demo, wait_for
from hosts.paths import LabPaths
from hosts.progress import Progress
from nodes import programs
from nodes.charts import NAMESPACE, Charts
from nodes.cluster import control_plane_of

PLUGIN = "nvidia-device-plugin"
POLICIES = "gpufleet-nvidia"


class Releases:
    """The releases of the demo's cluster."""

    def __init__(self, demo: Demo) -> None:
        self._demo = demo
        self._charts = Charts(control_plane_of(LabPaths(demo.name)), demo.tree, Progress())

    def plugin(self, pool: str, *settings: str, tree: Path | None = None) -> None:
        """Bring the device plugin of a pool to the values of a tree, and these above them; its pods are made anew."""
        values = (tree or self._demo.tree) / "values" / f"{PLUGIN}-{pool}.yaml"
        chart = programs.chart(PLUGIN)
        words = [word for setting in settings for word in ("--set", setting)]
        release = f"{PLUGIN}-{pool}"
        self._charts.helm("upgrade", release, str(chart), "--values", str(values), *words)
        # Also where the rendered strategy of updates is to wait for somebody who deletes them.
        selector = f"app.kubernetes.io/instance={release},app.kubernetes.io/name={PLUGIN}"
        old = {pod["metadata"]["uid"] for pod in self._demo.get("pods", "-n", NAMESPACE, "-l", selector)["items"]}
        self._demo.kubectl("delete", "pods", "-n", NAMESPACE, "-l", selector, "--grace-period=1")

        def replaced() -> bool:
            there = self._demo.get("pods", "-n", NAMESPACE, "-l", selector)["items"]
            return bool(there) and not old & {pod["metadata"]["uid"] for pod in there}

        wait_for(replaced, 120)

    def policies(self, mode: str) -> None:
        """Install our own chart with the tree's values and this mode of its policies."""
        values = self._demo.tree / "values" / f"{POLICIES}.yaml"
        chart = REPOSITORY / "charts" / POLICIES
        words = ("--values", str(values), "--set", f"policies.mode={mode}")
        self._charts.helm("upgrade", "--install", POLICIES, str(chart), *words)

    def remove_policies(self) -> None:
        self._charts.helm("uninstall", POLICIES, "--wait")
