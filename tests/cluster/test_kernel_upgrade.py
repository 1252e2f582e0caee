# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node of a real cluster takes up Debian's newest kernel by the playbook upgrade, with a pod on its GPU.

Real are kubelet, scheduler and eviction, Debian's kernel packages, headers and DKMS, and GRUB's configuration. The stand-ins are those of
tests/lab/grub_host.py: programs of the host take the kernel that GRUB was told to boot for the running one. The kubelet, which asks the kernel itself, is
none of them, so that nodeInfo.kernelVersion is the machine's. The tests run in order.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fleet import LAB, NEW, Fleet
from grub_host import VERSION, GrubHost, boot_by_grub

NODE, GPU = "kernel-node", "nvidia.com/gpu"
SPEC = {
    "name": NODE,
    "group": "kernels",
    # Without the stand-in headers: what DKMS builds for has to come from Debian.
    "headers": False,
    "boards": [{"board": "t4", "count": 1}],
    "node": "containerd-1.6",
}
POOL = {"nvidia_mig_strategy": "none", "nvidia_mig_layout": None, "gpu_upgrade_kernel": "latest"}


@dataclass(frozen=True)
class Hosts:
    """What grub_host.py asks of a lab."""

    fleet: Fleet

    def sh(self, host: str, script: str) -> str:
        return self.fleet.sh(host, script)

    def write(self, host: str, place: str, content: str | bytes) -> None:
        command = [str(LAB), "exec", "--name", self.fleet.name, host, "--", "tee", place]
        text = content.encode() if isinstance(content, str) else content
        subprocess.run(command, input=text, stdout=subprocess.DEVNULL, check=True)

    def run(self, *arguments: str) -> None:
        self.fleet.lab(*arguments)


@dataclass(frozen=True)
class Place:
    lab: Hosts
    folder: Path


@dataclass(frozen=True)
class Node:
    """The node, and the host that it runs on."""

    fleet: Fleet
    host: GrubHost

    def upgrade(self) -> Any:
        return self.fleet.run("upgrade", gpu_upgrade_retry=True)

    @property
    def boot(self) -> str:
        """When the host's process 1 was started."""
        return self.host.sh("cut -d' ' -f22 /proc/1/stat").strip()


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernel")
    spec = folder / "lab.json"
    spec.write_text(json.dumps({"hosts": [SPEC]}))
    fleet = Fleet(
        f"{os.environ.get('GPUFLEET_TEST_LAB', 'fleet-tests')}-kernel", folder, nodes=(NODE,), variables=dict(POOL)
    )
    assert NEW == VERSION
    try:
        fleet.boot(spec)
        host = GrubHost(Place(Hosts(fleet), folder), NODE)
        (folder / "library").mkdir()
        boot_by_grub(host, folder / "library")
        fleet.site()
        fleet.workloads.workload("train", 1, GPU)
        fleet.wait_for(lambda: fleet.workloads.complete("train"))
        yield Node(fleet, host)
    finally:
        fleet.down()


def test_a_kernel_without_a_module_is_refused_and_the_node_stays_in_service(node):
    broken = f"/etc/dkms/nvidia-{VERSION}-{node.host.new}.conf"
    node.host.sh(f"echo 'MAKE[0]=false' > {broken}")
    before, boot = node.fleet.workloads.running("train"), node.boot
    run = node.upgrade()
    assert run.status != 0
    assert node.fleet.state(NODE) == "refused", run.output[-3000:]
    assert "build/make.log" in node.fleet.reason(NODE)
    assert not node.fleet.cordoned(NODE) and node.fleet.resumed(NODE)
    assert node.fleet.workloads.running("train") == before, "its pod was not touched"
    assert node.boot == boot, "nor was the host"
    node.host.works(node.host.old)
    node.host.sh(f"rm {broken}")


def test_the_node_is_emptied_and_rebooted_into_the_newest_kernel_and_its_pods_come_back(node):
    before, boot = node.fleet.workloads.running("train"), node.boot
    run = node.fleet.start("upgrade", gpu_upgrade_retry=True)
    node.fleet.wait_for(lambda: node.fleet.alive(run) and node.fleet.cordoned(NODE))
    node.fleet.wait_for(lambda: not node.fleet.workloads.running("train"))
    assert run.wait().status == 0, run.output[-3000:]
    node.host.works(node.host.new)
    assert node.boot != boot, "it was rebooted"
    record = node.host.record
    assert (record["state"], record["from_kernel"]) == ("done", node.host.old)
    assert node.fleet.state(NODE) == "done"
    assert not node.fleet.cordoned(NODE) and node.fleet.resumed(NODE)
    assert node.fleet.workloads.offered(NODE) == {GPU: 1}
    after = node.fleet.wait_for(lambda: node.fleet.workloads.running("train"))
    assert not after.keys() & before.keys(), "another pod, on the same node"
    assert node.fleet.held(NODE).keys() & after.keys(), "with the GPU"


def test_a_second_run_changes_nothing_and_evicts_nobody(node):
    before = node.fleet.workloads.running("train")
    run = node.upgrade()
    assert run.status == 0, run.output[-3000:]
    assert node.fleet.workloads.running("train") == before
    node.host.works(node.host.new)
