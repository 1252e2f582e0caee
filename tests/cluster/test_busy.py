# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A busy fleet: on nodes whose GPUs are in use in every way, each playbook is run with a change that would disturb somebody.

Nothing that runs is hurt unless a run was to do so, and who was announced is who left, to the pod. A node of the device plugin has pods with and without
a process on their MIG devices, one with a debug container, a monitor that asked for no GPU and has NVML open, and a job that Kubernetes does not know; one
of the DRA driver has pods with claims; one has pods on a GPU that the host's MPS daemon shares. There is no CUDA here, so the processes are those of the
virtual GPUs, and what the MPS daemon says of its clients is a stand-in's.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from demo import devices, wait_for
from nodes.programs import KUBERNETES
from pool_nodes import CDI, SMALL, VARIABLE, PoolNodes
from workloads import IMAGE, deployment, holding

POOLS = {"training": [CDI], "claims": [VARIABLE], "shared": [SMALL]}
LAYOUT = [{"devices": "all", "instances": {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}}]
CLAIMED = [{"devices": [1], "instances": {"3g.40gb": 1, "1g.10gb": 2}}]
DESCRIBED: dict[str, dict[str, Any]] = {
    "training": {"nvidia_mig_strategy": "mixed", "nvidia_mig_layout": LAYOUT},
    "claims": {"nvidia_sharing_backend": "dra", "nvidia_mig_strategy": "mixed", "nvidia_mig_layout": CLAIMED},
    "shared": {
        "nvidia_sharing_mode": "mps",
        "nvidia_sharing_memory_slice": "16GiB",
        "nvidia_sharing_mps_manager": "host",
    },
}
#: Rendered example to how many pods of it run.
WORKLOADS = {
    "training-mig-1g-10gb": 2,
    "training-mig-2g-20gb": 2,
    "training-mig-3g-40gb": 1,
    "claims-gpu": 1,
    "claims-mig-1g-10gb": 2,
    "shared-gpu": 2,
}
#: With a process on the device of its first pod.
COMPUTES = "training-mig-3g-40gb"
SHARES = "shared-gpu"
MONITOR, JOB = "monitor", "night-job"
PARTITIONED = [{"devices": "all", "instances": {"7g.80gb": 1}}]
#: What is asked for by mistake while they are at work, and who of them it would hurt.
LAYOUT_CHANGE: dict[str, dict[str, Any]] = {
    "training": {"nvidia_mig_layout": PARTITIONED},
    "claims": {"nvidia_mig_layout": [{"devices": [1], "instances": {"7g.80gb": 1}}]},
    "shared": {"nvidia_sharing_rename": True},
}
DRIVER = {"nvidia_driver_state": "present", "nvidia_driver_branch": "595"}
DRIVER_CHANGE = dict.fromkeys(POOLS, DRIVER)
#: The runtime's configuration changes on every node, and takes a restart.
RUNTIME_CHANGE: dict[str, dict[str, Any]] = {pool: {"nvidia_toolkit_default_runtime": True} for pool in POOLS}
PREVIOUS = "/var/lib/gpufleet/driver-previous.json"
#: From the device plugin to the DRA driver, and back.
MOVED = {"training": {"nvidia_sharing_backend": "dra", "nvidia_sharing_migrate_from": "mps"}}
MOVED_BACK = {"training": {"nvidia_sharing_migrate_from": "dra"}}
#: Only the 2g instances go, and on the other node the 1g ones.
NIGHT = {
    "training": {"nvidia_mig_layout": [{"devices": "all", "instances": {"3g.40gb": 1, "1g.10gb": 4}}]},
    "claims": {"nvidia_mig_layout": [{"devices": [1], "instances": {"3g.40gb": 1, "2g.20gb": 1}}]},
}


@dataclass
class Busy:
    """The nodes, and everybody who uses them."""

    nodes: PoolNodes
    job: int = 0

    def deploy(self) -> None:
        items: list[dict[str, Any]] = []
        for example, replicas in WORKLOADS.items():
            text = (self.nodes.tree / "examples" / f"{example}.yaml").read_text()
            *templates, pod = yaml.safe_load_all(text)
            container = pod["spec"]["containers"][0]
            claims = container["resources"].get("claims")
            pod = self.nodes.staying(pod)
            if claims:
                container["resources"]["claims"] = claims
            del pod["spec"]["restartPolicy"]
            items += [*templates, deployment(example, replicas, pod["spec"])]
        items.append(deployment(MONITOR, 1, {**monitor(), "nodeSelector": {"kubernetes.io/hostname": CDI}}))
        self.nodes.kubectl("create", "-f", "-", text=yaml.safe_dump_all(items))
        wait_for(
            lambda: all(len(self.running(name)) == count for name, count in {**WORKLOADS, MONITOR: 1}.items()), 180
        )

    def begin(self) -> None:
        """Give the processes to the virtual GPUs, and have somebody look into a pod."""
        pod = self.running(COMPUTES)[0]
        self.occupy(CDI, pod)
        self.occupy(SMALL, self.running(SHARES)[0], "--type M+C")
        self.on(CDI, f"systemd-run --quiet --unit={JOB} virtual-gpu hold")
        self.job = int(self.on(CDI, f"systemctl show --value --property=MainPID {JOB}"))
        # The instance like that of the pod, which nobody was given.
        taken = devices(self.nodes.kubectl("exec", pod["metadata"]["name"], "--", "nvidia-smi", "-L"))
        (free,) = set(self.instances("3g.40gb")) - set(taken)
        self.on(CDI, f"virtual-gpu run {self.place(CDI, free)} --pid {self.job}")
        debug = ("debug", pod["metadata"]["name"], f"--image={IMAGE}", "--container=debugger")
        self.nodes.kubectl(*debug, "--", "sleep", "86400")
        wait_for(lambda: self.containers(self.running(COMPUTES)[0]).get("debugger"), 60)

    def occupy(self, host: str, pod: Mapping[str, Any], more: str = "") -> None:
        """Put the process of a pod on the device that it was given."""
        container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
        uuid = devices(self.nodes.kubectl("exec", pod["metadata"]["name"], "--", "nvidia-smi", "-L"))[0]
        pid = int(self.on(host, f"ctr --namespace k8s.io task ps {container} | awk 'NR == 2 {{print $1}}'"))
        self.on(host, f"virtual-gpu run {self.place(host, uuid)} --pid {pid} {more}")

    def end(self) -> None:
        self.on(CDI, f"systemctl stop {JOB} || true")
        self.nodes.kubectl("delete", "deployments", "--all", "--cascade=foreground", "--grace-period=1")
        self.nodes.kubectl("delete", "resourceclaimtemplates", "--all")
        self.nodes.end({"gpu_kubernetes_version": KUBERNETES}, [CDI, VARIABLE])

    # -- what there is ---------------------------------------------------------------------------------------------

    def on(self, host: str, script: str) -> str:
        return self.nodes.lab("exec", host, "--", "sh", "-c", script)

    def instances(self, profile: str) -> list[str]:
        """The MIG devices of a profile on the node of the device plugin."""
        gpus = json.loads(self.on(CDI, "virtual-gpu show"))["gpus"]
        found = [one for gpu in gpus for one in gpu["gpu_instances"] if one["profile"] == profile]
        return [part["uuid"] for one in found for part in one["compute_instances"]]

    def place(self, host: str, uuid: str) -> str:
        for gpu in json.loads(self.on(host, "virtual-gpu show"))["gpus"]:
            if gpu["uuid"] == uuid:
                return f"--gpu {gpu['index']}"
            for one in gpu["gpu_instances"]:
                for part in one["compute_instances"]:
                    if part["uuid"] == uuid:
                        return f"--gpu {gpu['index']} --gi {one['id']} --ci {part['id']}"
        raise AssertionError(uuid)

    def running(self, name: str) -> list[dict[str, Any]]:
        return [
            pod
            for pod in self.nodes.pods(name)
            if pod["status"]["phase"] == "Running" and not pod["metadata"].get("deletionTimestamp")
        ]

    @staticmethod
    def containers(pod: Mapping[str, Any]) -> dict[str, str]:
        """When each container of the pod that runs has started."""
        status = pod["status"]
        listed = [*status.get("containerStatuses", []), *status.get("ephemeralContainerStatuses", [])]
        return {one["name"]: one["state"]["running"]["startedAt"] for one in listed if "running" in one["state"]}

    def pods(self) -> dict[str, dict[str, str]]:
        """Pod to the starts of its containers."""
        return {
            f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": self.containers(pod)
            for name in (*WORKLOADS, MONITOR)
            for pod in self.running(name)
        }

    def everything(self) -> dict[str, Any]:
        """All that a change could hurt: pods, processes, devices, and that the hosts run what they have installed."""
        shown = "cat /proc/sys/kernel/random/boot_id /sys/module/nvidia/version; dpkg-query -W 'nvidia-kernel-open*'; nvidia-smi -L"
        return {
            "pods": self.pods(),
            "the job": self.on(CDI, f"readlink /proc/{self.job}/exe; true"),
            **{host: self.on(host, f"{shown}; pidof nvidia-cuda-mps-control; true") for hosts in POOLS.values() for host in hosts},
            "cordoned": [node["metadata"]["name"] for node in self.nodes.get("nodes")["items"] if node["spec"].get("unschedulable")],
        }  # fmt: skip

    def of(self, *names: str) -> list[str]:
        """The pods of workloads, as people call them."""
        return [f"default/{pod['metadata']['name']}" for name in names for pod in self.running(name)]

    # -- what is done ----------------------------------------------------------------------------------------------

    def describe(self, of_pools: Mapping[str, Mapping[str, Any]]) -> None:
        """Describe the pools, otherwise than at first where C(of_pools) says so."""
        described = {pool: {**DESCRIBED[pool], **of_pools.get(pool, {})} for pool in POOLS}
        self.nodes.describe({"gpu_kubernetes_version": KUBERNETES}, described)

    def apply(self, of_pools: Mapping[str, Mapping[str, Any]]) -> None:
        """Have the cluster be as it is rendered of pools like this."""
        self.describe(of_pools)
        self.nodes.play("render")
        self.nodes.lab("charts", str(self.nodes.tree))

    def run(
        self, playbook: str, of_pools: Mapping[str, Mapping[str, Any]], *arguments: str, **options: Any
    ) -> tuple[int, str]:
        """Run a playbook with the pools described like this, and describe them again as they were."""
        self.describe(of_pools)
        values = {"gpu_cluster_kubeconfig": self.nodes.lab("kubeconfig").strip(), **options}
        done = self.nodes.run(playbook, *arguments, "-e", json.dumps(values))
        self.describe({})
        return done.returncode, " ".join(f"{done.stdout} {done.stderr}".split())


def monitor() -> dict[str, Any]:
    """A pod like C(holding), whose process stays where its runtime put it: containerd ends the container that it finds empty when it starts again."""
    spec = holding()
    spec["containers"][0]["command"] = ["busybox", "chroot", "/host", "virtual-gpu", "hold"]
    return spec


@pytest.fixture(scope="module")
def busy(make_pools) -> Iterator[Busy]:
    nodes = make_pools(POOLS)
    nodes.describe({"gpu_kubernetes_version": KUBERNETES}, DESCRIBED)
    nodes.site()
    found = Busy(nodes)
    try:
        found.deploy()
        found.begin()
        yield found
    finally:
        found.end()


def words(busy: Busy, *workloads: str) -> list[str]:
    """How the pods of workloads are named where they are users."""
    return [f"pod {title} (" for title in busy.of(*workloads)]


def missing(busy: Busy, change: Mapping[str, Any], said: str) -> list[str]:
    """Who should have been named for a change, and was not; and who was, and should not have been."""
    if change is LAYOUT_CHANGE:
        partitioned = words(busy, *(name for name in WORKLOADS if name.startswith(("training", "claims-mig"))))
        none = [user for user in (f"(PID {busy.job})", *partitioned) if user not in said]
        none += [] if any(user in said for user in words(busy, SHARES)) else ["nobody who shares a GPU"]
        return [*none, *(user for user in words(busy, "claims-gpu") if user in said)]
    return [user for user in (*words(busy, *WORKLOADS), f"(PID {busy.job})") if user not in said]


@pytest.mark.parametrize(
    ("playbook", "change"),
    [
        pytest.param(("plan",), LAYOUT_CHANGE, id="plan, layouts and MPS"),
        pytest.param(("site",), LAYOUT_CHANGE, id="site, layouts and MPS"),
        pytest.param(("site", "--check"), LAYOUT_CHANGE, id="site --check, layouts and MPS", marks=pytest.mark.by_name),
        pytest.param(("plan",), DRIVER_CHANGE, id="plan, driver"),
        pytest.param(("site",), DRIVER_CHANGE, id="site, driver"),
        pytest.param(("site", "--check"), DRIVER_CHANGE, id="site --check, driver", marks=pytest.mark.by_name),
    ],
)
def test_what_would_hurt_somebody_is_refused_on_every_node_before_the_first_is_changed(busy, playbook, change):
    """And it names who it would hurt, and nobody else."""
    before = busy.everything()
    status, said = busy.run(playbook[0], change, *playbook[1:])
    assert status != 0
    assert missing(busy, change, said) == [], said[-6000:]
    assert busy.everything() == before


def test_the_collection_is_removed_from_no_node_that_is_in_use(busy):
    before = busy.everything()
    status, said = busy.run("remove", {})
    assert status != 0
    assert missing(busy, DRIVER_CHANGE, said) == [], said[-6000:]
    assert busy.everything() == before


def test_a_node_is_not_upgraded_under_a_job_that_is_no_pod(busy):
    """Its pods would leave. Nothing takes away a job of the host itself, which the reboot would end."""
    before = busy.everything()
    for arguments in (("--check",), ()):
        status, said = busy.run("upgrade", {"training": DRIVER}, "--limit", CDI, *arguments)
        assert status != 0
        assert f"(PID {busy.job}): they are no pods" in said, said[-6000:]
        assert busy.everything() == before


@pytest.mark.by_name
def test_a_runtime_that_is_configured_anew_is_restarted_and_hurts_nobody(busy):
    shown = "systemctl show --value --property=MainPID containerd"
    for change in (RUNTIME_CHANGE, {}):
        before = busy.everything()
        restarted = {host: busy.on(host, shown) for hosts in POOLS.values() for host in hosts}
        _differs, planned = busy.run("plan", change)
        assert planned.count("; disturbs starting containers while containerd restarts (running pods go on)") > 0
        status, said = busy.run("site", change)
        assert status == 0, said[-6000:]
        assert [host for host, former in restarted.items() if busy.on(host, shown) == former] == []
        # The kubelet looks at its containers every second, and reports every ten.
        time.sleep(20)
        assert busy.everything() == before


def empties(busy: Busy, host: str, *workloads: str, playbook: str, change: Mapping[str, Any]) -> None:
    """A playbook has the pods of these workloads leave a node for a while: those, and no others, and those that it has announced."""
    before, leaving = busy.everything(), busy.of(*workloads)
    status, said = busy.run(playbook, change, "--limit", host, "--check")
    assert status == 0, said[-6000:]
    announced = said.partition(f"{host}: would evict ")[2].partition(" TASK [")[0]
    assert sorted(re.findall(r"default/[a-z0-9.-]+", announced)) == sorted(leaving), said[-6000:]
    assert busy.everything() == before, "check mode touches nothing"
    status, said = busy.run(playbook, change, "--limit", host)
    assert status == 0, said[-6000:]
    wait_for(lambda: len(busy.of(*workloads)) == len(leaving), 120)
    after = busy.everything()
    again = busy.of(*workloads)
    assert set(again).isdisjoint(leaving)
    for found, moved in ((before, leaving), (after, again)):
        found["pods"] = {title: starts for title, starts in found["pods"].items() if title not in moved}
        if playbook != "migrate":
            del found[host]
    assert after == before


@pytest.mark.by_name
def test_another_driver_and_the_way_back_evict_the_pods_that_were_announced_and_no_others(busy):
    """And not on the node of a job that is no pod, which has a way back, too, and stays as it is."""
    before = busy.on(VARIABLE, "cat /sys/module/nvidia/version")
    claims = ("claims-gpu", "claims-mig-1g-10gb")
    empties(busy, VARIABLE, *claims, playbook="upgrade", change={"claims": DRIVER})
    assert busy.on(VARIABLE, "cat /sys/module/nvidia/version").startswith("595.")
    busy.nodes.lab("exec", CDI, "--", "sh", "-c", f"echo '{busy.on(VARIABLE, f'cat {PREVIOUS}').strip()}' > {PREVIOUS}")
    unchanged = busy.everything()
    for arguments in (("--check",), ()):
        status, said = busy.run("rollback", {}, "--limit", CDI, *arguments)
        assert status != 0
        assert f"(PID {busy.job}): they are no pods" in said, said[-6000:]
        assert busy.everything() == unchanged
    busy.on(CDI, f"rm {PREVIOUS}")
    empties(busy, VARIABLE, *claims, playbook="rollback", change={})
    assert busy.on(VARIABLE, "cat /sys/module/nvidia/version") == before


@pytest.mark.by_name
def test_a_repair_evicts_the_pods_whose_claims_are_on_that_gpu_and_no_others(busy):
    busy.on(VARIABLE, "virtual-gpu recovery --gpu 1 --action 1 --until reset")
    before, leaving = busy.pods(), busy.of("claims-mig-1g-10gb")
    status, said = busy.run("heal", {}, "--limit", VARIABLE, "--check")
    assert status == 0, said[-4000:]
    announced = said.partition("Pods that leave: ")[2].partition(";")[0]
    assert sorted(announced.split(", ")) == sorted(leaving)
    assert busy.pods() == before, "check mode touches nothing"
    status, said = busy.run("heal", {}, "--limit", VARIABLE)
    assert status == 0, said[-6000:]
    wait_for(lambda: len(busy.running("claims-mig-1g-10gb")) == len(leaving), 120)
    after = busy.pods()
    assert sorted(before.keys() - after.keys()) == sorted(leaving)
    assert {title: starts for title, starts in after.items() if title in before} == {
        title: starts for title, starts in before.items() if title not in leaving
    }


@pytest.mark.by_name
def test_a_migration_evicts_the_pods_that_were_announced_and_no_others(busy):
    """There and back. The job that is no pod works on, for neither the driver nor an instance is touched."""
    leaving = (*(name for name in WORKLOADS if name.startswith("training")), MONITOR)
    for change in (MOVED, MOVED_BACK):
        before = busy.everything()
        busy.apply(change)
        # The plugin's pods are restarted once, because their affinity changed.
        time.sleep(20)
        assert busy.everything() == before, "the tree alone moves nothing"
        empties(busy, CDI, *leaving, playbook="migrate", change=change)
    busy.apply({})


def until_offered(busy: Busy, profile: str, count: int) -> float:
    """Return how many seconds after the host had so many instances the node of the device plugin offers them."""
    wait_for(lambda: len(busy.instances(profile)) == count, 600)
    begun = time.monotonic()
    wait_for(lambda: busy.nodes.offered()[CDI].get(f"nvidia.com/mig-{profile}") == count, 300)
    return time.monotonic() - begun


@pytest.mark.by_name
def test_a_new_layout_evicts_the_pods_that_were_announced_and_no_others(busy):
    """Those that the device plugin gave what goes, and those that claims gave it. The last test: the nodes stay so."""
    before, leaving = busy.pods(), busy.of("training-mig-2g-20gb", "claims-mig-1g-10gb")
    limit = ("--limit", f"{CDI},{VARIABLE}")
    status, said = busy.run("repartition", NIGHT, *limit, "--check")
    assert status == 0, said[-4000:]
    announced = [title for part in said.split("evicted: ")[1:] for title in part.partition(";")[0].split(", ")]
    assert sorted(set(announced)) == sorted(leaving)
    assert busy.pods() == before, "check mode touches nothing"
    with ThreadPoolExecutor(1) as beside:
        waited = beside.submit(until_offered, busy, "1g.10gb", 8)
        status, said = busy.run("repartition", NIGHT, *limit)
        assert status == 0, said[-6000:]
    print(f"the device plugin offered the new instances {waited.result():.0f} s after they were there")
    assert waited.result() < 60
    assert {title: starts for title, starts in before.items() if title not in leaving} == busy.pods()
