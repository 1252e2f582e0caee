# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Saved plans on two real nodes with pods at work: what a plan announces is what happens, to the pod, or nothing does.

The tests run in order: each begins with what the one before left.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from demo import wait_for
from nodes.programs import KUBERNETES
from pool_nodes import CDI, VARIABLE, PoolNodes

pytestmark = pytest.mark.by_name

POOLS = {"training": [CDI], "batch": [VARIABLE]}
HOSTS = [CDI, VARIABLE]
VERSION = {"gpu_kubernetes_version": KUBERNETES}
MIXED = {
    "nvidia_mig_strategy": "mixed",
    "nvidia_mig_layout": [{"devices": "all", "instances": {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}}],
}
#: The two instances of 2g.20gb go, and four of 1g.10gb come.
NIGHT = {"training": {"nvidia_mig_layout": [{"devices": "all", "instances": {"3g.40gb": 1, "1g.10gb": 4}}]}}
DRIVER = {"batch": {"nvidia_driver_state": "present", "nvidia_driver_branch": "595"}}
#: Workload to its node, and the profile and count of its pods' devices.
WORKLOADS = {
    "leaves": (CDI, "2g.20gb", 1),
    "small": (CDI, "1g.10gb", 2),
    "large": (CDI, "3g.40gb", 1),
    "other-small": (VARIABLE, "1g.10gb", 1),
    "other-medium": (VARIABLE, "2g.20gb", 2),
}
#: Comes between the plan and what is done by it, on the other instance that goes.
ARRIVES = ("arrives", CDI, "2g.20gb", 1)
NOTE = "/var/lib/gpufleet/plan.json"


class HeldRun(NamedTuple):
    """A run of a playbook."""

    status: int
    said: str
    changed: dict[str, int]


@dataclass(frozen=True)
class PlannedNodes:
    """The nodes with their pods, and how their pools are described as long as no run is to change them.

    :param now: pool to what has come to it beside L(MIXED).
    """

    nodes: PoolNodes
    now: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def create(self, name: str, host: str, profile: str, count: int) -> None:
        made = self.nodes.on_instances(name, profile, count, nodeSelector={"kubernetes.io/hostname": host})
        self.nodes.kubectl("create", "-f", "-", text=yaml.safe_dump(made))
        wait_for(lambda: len(self.of(name)) == count, 180)

    def delete(self, *names: str) -> None:
        self.nodes.kubectl("delete", "deployments", *names, "--cascade=foreground", "--grace-period=1")

    def end(self) -> None:
        self.delete("--all")
        if not self.on(VARIABLE, "cat /sys/module/nvidia/version").startswith("580."):
            self.run("rollback", {}, "--limit", VARIABLE)
        self.nodes.end(VERSION, HOSTS)

    def on(self, host: str, script: str) -> str:
        return self.nodes.lab("exec", host, "--", "sh", "-c", script)

    def of(self, *names: str) -> list[str]:
        """The pods of workloads that run."""
        found = self.nodes.of_phase("Running")
        return sorted(
            f"default/{pod['metadata']['name']}" for pod in found if pod["metadata"]["labels"]["example"] in names
        )

    def instances(self) -> dict[str, str]:
        """The MIG devices on the node that is repartitioned, with their profiles."""
        found = re.findall(r"MIG (\S+) .*UUID: (MIG-[0-9a-f-]+)", self.on(CDI, "nvidia-smi -L"))
        return {uuid: profile for profile, uuid in found}

    def everything(self) -> dict[str, Any]:
        """All that a run could change: who runs where and on what, drivers, devices, which nodes are cordoned, and what is noted of plans."""
        shown = f"cat /sys/module/nvidia/version /proc/sys/kernel/random/boot_id; nvidia-smi -L; cat {NOTE}; true"
        nodes = self.nodes.get("nodes")["items"]
        return {
            "pods": self.nodes.at_work(),
            **{host: self.on(host, shown) for host in HOSTS},
            "cordoned": [node["metadata"]["name"] for node in nodes if node["spec"].get("unschedulable")],
        }

    def run(self, playbook: str, change: Mapping[str, Mapping[str, Any]], *arguments: str, **variables: Any) -> HeldRun:
        """Run a playbook with the pools described like this."""
        of_pools = {pool: {**MIXED, **self.now.get(pool, {}), **change.get(pool, {})} for pool in POOLS}
        self.nodes.describe(VERSION, of_pools)
        values = {"gpu_cluster_kubeconfig": self.nodes.lab("kubeconfig").strip(), **variables}
        done = self.nodes.run(playbook, *arguments, "-e", json.dumps(values))
        (self.nodes.folder / f"{playbook}-{variables.get('gpu_plan_for', '')}.log").write_text(done.stdout)
        changed = {host: int(count) for host, count in re.findall(r"^(\S+) +: ok=.* changed=(\d+) ", done.stdout, re.M)}
        return HeldRun(done.returncode, " ".join(f"{done.stdout} {done.stderr}".split()), changed)

    def plan(self, playbook: str, change: Mapping[str, Mapping[str, Any]], *arguments: str) -> Path:
        """Save a plan for a playbook, which changes nothing."""
        before, path = self.everything(), self.nodes.folder / f"{playbook}.json"
        variables = {"gpu_plan_for": playbook, "gpu_plan_out": str(path), "gpu_plan_fail": False}
        done = self.run("plan", change, *arguments, **variables)
        assert done.status == 0 and f"is in {path}" in done.said, done.said[-6000:]
        assert self.everything() == before
        announced = {title for host in hosts_of(path).values() for title in host.get("pods", ())}
        shown = re.sub(r"untouched: [^ ,]+(, [^ ,]+)*", "", done.said)
        assert set(re.findall(r"default/[a-z0-9.-]+", shown)) == announced, "nobody else is shown as disturbed"
        return path

    def noted(self, host: str) -> dict[str, Any]:
        return json.loads(self.on(host, f"cat {NOTE}"))


@pytest.fixture(scope="module")
def planned(make_pools) -> Iterator[PlannedNodes]:
    nodes = make_pools(POOLS)
    nodes.describe(VERSION, dict.fromkeys(POOLS, MIXED))
    nodes.site()
    nodes.offers_what_is_rendered()
    found = PlannedNodes(nodes)
    try:
        for name, (host, profile, count) in WORKLOADS.items():
            found.create(name, host, profile, count)
        yield found
    finally:
        found.end()


@pytest.fixture(scope="module")
def night(planned) -> Path:
    """The plan of another layout for one of the nodes."""
    return planned.plan("repartition", NIGHT)


def hosts_of(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())["hosts"]


def applied(path: Path) -> dict[str, Any]:
    """What is noted on a host where a plan came to its end."""
    return {"plan": json.loads(path.read_text())["digest"], "applied": True}


def leaves_as_announced(before: Mapping[str, Any], after: Mapping[str, Any], announced: list[str]) -> None:
    """Exactly the announced pods are gone, and all others are the same, where they were and on the devices that they had."""
    gone = [pod.title for uid, pod in before["pods"].items() if uid not in after["pods"]]
    assert sorted(gone) == sorted(announced)
    stayed = {uid: pod for uid, pod in before["pods"].items() if pod.title not in announced}
    assert {uid: pod for uid, pod in after["pods"].items() if uid in before["pods"]} == stayed
    assert after["cordoned"] == []


def test_a_repartition_is_refused_by_its_plan_because_a_pod_arrived_and_nobody_is_evicted(planned, night):
    hosts = hosts_of(night)
    assert hosts[CDI]["pods"] == planned.of("leaves") and {one["stage"] for one in hosts[CDI]["work"]} == {"mig"}
    assert not {"pods", "work"} & hosts[VARIABLE].keys()
    planned.create(*ARRIVES)
    (arrived,) = planned.of("arrives")
    before = planned.everything()
    done = planned.run("repartition", NIGHT, gpu_plan_apply=str(night))
    assert done.status != 0 and f"{CDI}: the plan: " in done.said and arrived in done.said, done.said[-6000:]
    assert "No host is changed" in done.said and f"{VARIABLE}: the plan: " not in done.said
    assert {host: done.changed[host] for host in HOSTS} == dict.fromkeys(HOSTS, 0)
    assert planned.everything() == before


def test_without_that_pod_the_same_plan_has_exactly_the_announced_pods_leave(planned, night):
    planned.nodes.kubectl("delete", "deployments", "arrives", "--ignore-not-found", "--cascade=foreground")
    before, announced = planned.everything(), hosts_of(night)[CDI]["pods"]
    there = planned.instances()
    stay = {uuid: profile for uuid, profile in there.items() if profile != "2g.20gb"}
    assert announced == planned.of("leaves") and len(there) - len(stay) == 2
    done = planned.run("repartition", NIGHT, gpu_plan_apply=str(night))
    assert done.status == 0, done.said[-6000:]
    planned.now.update(NIGHT)
    after = planned.everything()
    leaves_as_announced(before, after, announced)
    assert after[VARIABLE] == before[VARIABLE] and planned.noted(CDI) == applied(night)
    now = planned.instances()
    assert now.items() >= stay.items(), "whoever stays keeps the instance, and those that nobody uses stay, too"
    assert Counter(now.values()) == {"3g.40gb": 2, "1g.10gb": 8}


def test_an_upgrade_and_the_way_back_by_their_plans_have_exactly_the_announced_pods_leave(planned):
    """On the other node everything stays as it is."""
    former = planned.on(VARIABLE, "cat /sys/module/nvidia/version")
    workloads = ("other-small", "other-medium")
    # Only that node has a driver to go back to.
    for playbook, change, limit in (("upgrade", DRIVER, ()), ("rollback", {}, ("--limit", VARIABLE))):
        leaving = planned.of(*workloads)
        path = planned.plan(playbook, change, *limit)
        hosts = hosts_of(path)
        assert hosts[VARIABLE]["pods"] == leaving
        assert playbook == "rollback" or not {"pods", "work"} & hosts[CDI].keys()
        before = planned.everything()
        done = planned.run(playbook, change, *limit, gpu_plan_apply=str(path))
        assert done.status == 0, done.said[-6000:]
        wait_for(lambda leaving=leaving: len(planned.of(*workloads)) == len(leaving), 180)
        after = planned.everything()
        leaves_as_announced(before, after, leaving)
        assert after[CDI] == before[CDI] and planned.noted(VARIABLE) == applied(path)
        version = planned.on(VARIABLE, "cat /sys/module/nvidia/version")
        assert version.startswith("595.") if playbook == "upgrade" else version == former
