# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pods wait for devices that no layout has: C(recommend) says whose instances become theirs, and C(repartition) does exactly that, to the pod.

By default on one node, by name on three in two pools, where the evicted pods find their new places between the turns of the hosts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from demo import wait_for
from nodes.programs import KUBERNETES
from pool_nodes import CDI, MOUNTS, VARIABLE, PoolNodes, title_of

MIXED = {
    "nvidia_mig_strategy": "mixed",
    "nvidia_mig_layout": [{"devices": "all", "instances": {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}}],
}
VERSION = {"gpu_kubernetes_version": KUBERNETES}
URGENT = "urgent"
PRIORITY = 1000


@dataclass(frozen=True)
class Scene:
    """Who runs and who waits.

    :param running: profile to pods. They leave no GPU without one on the half that a 4g.40gb would need, so that somebody has to leave.
    :param waiting: the same, of profiles that no layout has; the first of them is urgent.
    """

    pools: Mapping[str, Sequence[str]]
    running: Mapping[str, int]
    waiting: Mapping[str, int]

    @property
    def hosts(self) -> list[str]:
        return [host for hosts in self.pools.values() for host in hosts]


ONE = Scene({"training": [CDI]}, {"1g.10gb": 3, "2g.20gb": 1, "3g.40gb": 1}, {"4g.40gb": 1})
THREE = Scene(
    {"training": [CDI, VARIABLE], "batch": [MOUNTS]},
    {"1g.10gb": 8, "2g.20gb": 3, "3g.40gb": 3},
    {"7g.80gb": 1, "4g.40gb": 2},
)


@dataclass(frozen=True)
class Served:
    """The nodes of a scene with its pods."""

    nodes: PoolNodes
    scene: Scene

    def deploy(self) -> None:
        urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        self.nodes.kubectl(
            "apply", "-f", "-", text=json.dumps({**urgent, "metadata": {"name": URGENT}, "value": PRIORITY})
        )
        self._create(self.scene.running)
        wait_for(lambda: len(self.nodes.of_phase("Running")) == sum(self.scene.running.values()), 180)
        self._create(self.scene.waiting, next(iter(self.scene.waiting)))
        wait_for(lambda: len(self.waiting()) == sum(self.scene.waiting.values()), 60)

    def _create(self, counts: Mapping[str, int], urgent: str = "") -> None:
        items = []
        for profile, count in counts.items():
            more = {"priorityClassName": URGENT} if profile == urgent else {}
            items.append(self.nodes.on_instances(f"mig-{profile.replace('.', '-')}", profile, count, **more))
        self.nodes.kubectl("create", "-f", "-", text=yaml.safe_dump_all(items))

    def end(self) -> None:
        self.nodes.kubectl("delete", "deployments", "--all", "--cascade=foreground", "--grace-period=1")
        self.nodes.kubectl("delete", "priorityclasses", URGENT, "--ignore-not-found")
        self.nodes.end(VERSION, self.scene.hosts)

    def waiting(self) -> list[str]:
        """The pods that the scheduler has tried and given no node."""
        return [
            title_of(pod)
            for pod in self.nodes.of_phase("Pending")
            if any(one.get("reason") == "Unschedulable" for one in pod["status"].get("conditions", []))
        ]

    def run(self, playbook: str, *arguments: str, **variables: Any) -> str:
        """Return what a playbook says, in one line."""
        values = {"gpu_cluster_kubeconfig": self.nodes.lab("kubeconfig").strip(), **variables}
        said = self.nodes.play(playbook, *arguments, "-e", json.dumps(values))
        (self.nodes.folder / f"{playbook}{'-check' if '--check' in arguments else ''}.log").write_text(said)
        return " ".join(said.split())


@pytest.fixture(
    scope="module",
    params=[pytest.param(ONE, id="one node"), pytest.param(THREE, id="three nodes", marks=pytest.mark.by_name)],
)
def served(request, make_pools) -> Iterator[Served]:
    scene = request.param
    nodes = make_pools(scene.pools)
    nodes.describe(VERSION, dict.fromkeys(scene.pools, MIXED))
    nodes.site()
    nodes.offers_what_is_rendered()
    found = Served(nodes, scene)
    try:
        found.deploy()
        yield found
    finally:
        found.end()


def test_whoever_waits_runs_and_exactly_the_pods_leave_that_were_announced(served):
    before, waiting = served.nodes.at_work(), served.waiting()
    file, report = served.nodes.folder / "layouts.yml", served.nodes.folder / "recommended.json"
    said = served.run("recommend", gpu_recommend_file=str(file), gpu_recommend_report=str(report))
    answer = json.loads(report.read_text())
    announced = sorted({title for host in answer["hosts"].values() for title in host["evicts"]})
    assert announced and set(announced) <= {pod.title for pod in before.values()}, said
    assert f"evicted: {', '.join(announced)}; " in said
    first, *others = served.scene.waiting.values()
    asked = {"1000": first, "0": sum(others) + len(before)}
    assert answer["served"] == {priority: {"asked": count, "served": count} for priority, count in asked.items()}, said

    shown = served.run("repartition", "--check", "-e", f"@{file}")
    assert named(shown) == announced, shown[-6000:]
    assert (served.nodes.at_work(), served.waiting()) == (before, waiting), "neither of them has touched anything"

    served.run("repartition", "-e", f"@{file}")
    wait_for(lambda: len(served.nodes.of_phase("Running")) == len(before) + len(waiting), 120)
    after = served.nodes.at_work()
    assert sorted(pod.title for uid, pod in before.items() if uid not in after) == announced
    assert {uid: pod for uid, pod in after.items() if uid in before} == {
        uid: pod for uid, pod in before.items() if pod.title not in announced
    }, "all others are where they were, on the devices that they had"
    assert set(waiting) <= {pod.title for pod in after.values()}
    given = [device for pod in after.values() for device in pod.devices]
    assert len(given) == len(set(given)) == len(after), "one device for each, and none for two"


def named(said: str) -> list[str]:
    """Who C(repartition --check) says has to leave."""
    found = [part.partition(";")[0] for part in said.split("; evicted: ")[1:]]
    return sorted({title for part in found for title in re.findall(r"default/[a-z0-9.-]+", part)})
