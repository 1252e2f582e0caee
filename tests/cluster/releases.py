# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Releases of charts in the cluster of a lab, with other values than the rendered ones, by the lab's own helm."""

from __future__ import annotations

import re
from pathlib import Path

from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.versions import OWN_CHART
from demo import REPOSITORY, Demo, wait_for
from hosts.paths import LabPaths
from hosts.progress import Progress
from nodes import programs
from nodes.charts import NAMESPACE, Charts
from nodes.cluster import control_plane_of

PLUGIN = "nvidia-device-plugin"


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

    def own_chart(self, *settings: str) -> None:
        """Install our own chart with the tree's values, and these above them."""
        values = self._demo.tree / "values" / f"{OWN_CHART}.yaml"
        words = [word for setting in settings for word in ("--set", setting)]
        chart = REPOSITORY / "charts" / OWN_CHART
        self._charts.helm("upgrade", "--install", OWN_CHART, str(chart), "--values", str(values), *words)

    def helm_test(self, check: str = "") -> list[str]:
        """Run the checks of our own chart, or one of them, and return the jobs of those that succeeded.

        :raises LabError: one did not.
        """
        filters = ("--filter", f"name={OWN_CHART}-{check}") if check else ()
        suites = self._charts.helm("test", OWN_CHART, *filters).split("TEST SUITE:")[1:]
        # After the last one come the chart's notes.
        jobs = {suite.split()[0] for suite in suites if re.search(r"^Phase:\s+Succeeded$", suite, re.MULTILINE)}
        return sorted(name.removeprefix(f"{OWN_CHART}-") for name in jobs)

    def remove_own_chart(self) -> None:
        self._charts.helm("uninstall", OWN_CHART, "--wait")
