# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One inventory with a pool of Debian 12's Slurm and a pool of nodes of a cluster: one run of site for both, and what is changed in one leaves the other.

The tests run in order: each begins with what the one before left.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from demo import devices
from nodes.programs import KUBERNETES
from pool_nodes import PoolNodes
from slurm_site import INSTALL, SlurmSite

pytestmark = pytest.mark.by_name

BATCH, SERVING = "beside-slurm", "beside-node"
SPEC = {
    "hosts": [
        {"name": BATCH, "boards": [{"board": "a100-40gb", "count": 1}]},
        {"name": SERVING, "boards": [{"board": "h100-80gb-sxm", "count": 1}], "node": "containerd-2.4"},
    ]
}
SPEC["hosts"] = [{**host, "group": "gpu_hosts", "driver": "installed"} for host in SPEC["hosts"]]
SMALL, LARGE = {BATCH: "1g.5gb", SERVING: "1g.10gb"}, {BATCH: "3g.20gb", SERVING: "3g.40gb"}
#: What runs on the larger instance stays where it is when the others become fewer.
FEW, MANY = ({host: {LARGE[host]: 1, SMALL[host]: number} for host in SMALL} for number in (2, 4))


@dataclass(frozen=True)
class BesideNodes(PoolNodes):
    """The node of a cluster, and beside it a host of Slurm."""

    def boot(self) -> None:
        """With --nodes, all hosts of a lab would be nodes."""
        self.lab("down")
        self.lab("up", "--spec", str(self.spec))

    def describe_layouts(self, site: SlurmSite, instances: Mapping[str, Mapping[str, int]]) -> None:
        layouts = {
            host: {"nvidia_mig_strategy": "mixed", "nvidia_mig_layout": [{"devices": "all", "instances": dict(wanted)}]}
            for host, wanted in instances.items()
        }
        of_pools = {"batch": {**site.variables(BATCH), **layouts[BATCH]}, "training": layouts[SERVING]}
        self.describe({"gpu_kubernetes_version": KUBERNETES}, of_pools)

    def instances(self, host: str) -> dict[str, int]:
        (gpu,) = json.loads(self.lab("exec", host, "--", "virtual-gpu", "show"))["gpus"]
        profiles = [one["profile"] for one in gpu["gpu_instances"]]
        return {profile: profiles.count(profile) for profile in profiles}

    def on_cluster(self, playbook: str, *arguments: str) -> str:
        kubeconfig = self.lab("kubeconfig").strip()
        return self.play(playbook, "-e", f"gpu_cluster_kubeconfig={kubeconfig}", *arguments)

    # What SlurmSite asks of a lab.
    def sh(self, host: str, script: str, *, check: bool = True) -> str:
        return self._in(host, "bash", "-euo", "pipefail", "-c", script, check=check)

    def write(self, host: str, path: str, content: str) -> None:
        self._in(host, "sh", "-c", 'cat > "$1"', "sh", path, text=content)

    def _in(self, host: str, *command: str, check: bool = True, text: str | None = None) -> str:
        line = [str(self.program), "exec", "--name", self.name, host, "--", *command]
        done = subprocess.run(line, input=text, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, f"{command} in {host}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def beside(tmp_path_factory) -> Iterator[tuple[BesideNodes, SlurmSite]]:
    folder: Path = tmp_path_factory.mktemp("beside")
    spec = folder / "lab.json"
    spec.write_text(json.dumps(SPEC))
    name = f"{os.environ.get('GPUFLEET_TEST_LAB', 'fleet-tests')}-beside"
    pools = {"batch": [BATCH], "training": [SERVING]}
    nodes = BesideNodes(name, folder, folder / "inventory.json", spec, pools=pools)
    try:
        nodes.boot()
        nodes.sh(BATCH, INSTALL)
        reached = yaml.safe_load(Path(nodes.hosts).read_text())["all"]["children"]["gpu_hosts"]["hosts"]
        ports = {host: reached[host]["ansible_port"] for host in reached}
        site = SlurmSite(SimpleNamespace(lab=nodes, ports=ports, folder=folder), {BATCH: "batch"})
        nodes.describe_layouts(site, FEW)
        nodes.site()
        yield nodes, site
    finally:
        nodes.lab("down")


def agrees(nodes: BesideNodes, site: SlurmSite, instances: Mapping[str, Mapping[str, int]]) -> None:
    """Both hosts, Slurm and the cluster have these instances, and plan and verify have nothing to say of either."""
    assert {host: nodes.instances(host) for host in instances} == instances
    site.wait(lambda: site.states()[BATCH] in ("IDLE", "MIXED", "ALLOCATED"), site.logs)
    assert {kind.rpartition("_")[2]: number for kind, number in site.offered(BATCH).items()} == instances[BATCH]
    assert [*nodes.expected()] == [SERVING], "no host of Slurm is in the tree of the cluster"
    assert json.loads((nodes.folder / "gitops/slurm/hpc/capacity.json").read_text())["nodes"].keys() == {BATCH}
    nodes.offers_what_is_rendered()
    planned = nodes.report("plan")["hosts"]
    assert {host: found["verdict"] for host, found in planned.items()} == dict.fromkeys(instances, "as described")
    assert all(found["healthy"] for found in nodes.report("verify").values())


def test_one_run_of_site_has_set_both_up(beside):
    agrees(*beside, FEW)


def test_a_second_run_of_site_changes_nothing(beside):
    nodes, site = beside
    daemons = site.daemons()
    assert nodes.on_cluster("site").count("changed=0") == 3
    assert site.daemons() == daemons


def test_a_job_sees_its_instance_and_a_pod_its_own(beside):
    nodes, site = beside
    job = site.submit(BATCH, next(kind for kind in site.offered(BATCH) if kind.endswith(LARGE[BATCH])))
    nodes.kubectl("create", "-f", "-", text=yaml.safe_dump(nodes.on_instances("large", LARGE[SERVING], 1)))
    site.wait(lambda: site.seen(BATCH, job) and nodes.of_phase("Running"), site.logs, 180)
    _pid, told, _listed = site.seen(BATCH, job)
    ((_uid, pod),) = nodes.at_work().items()
    gpu = site.show(BATCH)[0]
    given = next(one for one in gpu["gpu_instances"] if one["profile"] == LARGE[BATCH])
    assert told == f"MIG-{gpu['uuid']}/{given['id']}/0"
    on_node = nodes.sh(SERVING, "nvidia-smi -L")
    assert [line for line in on_node.splitlines() if pod.devices[0] in line and LARGE[SERVING] in line], on_node
    assert len(pod.devices) == 1 and pod.devices != devices(nodes.sh(BATCH, "nvidia-smi -L"))


def state(nodes: BesideNodes, site: SlurmSite) -> dict[str, Any]:
    """Who is at work in either pool, by what nobody starts again unseen."""
    job = site.lab.sh(BATCH, "squeue -h -o '%A %T %S'")
    files = nodes.sh(BATCH, "sha256sum /etc/slurm/gpufleet/*")
    node = nodes.get("node", SERVING)
    return {
        BATCH: [job, site.daemons(), files, site.node(BATCH)["State"], nodes.sh(BATCH, "nvidia-smi -L")],
        SERVING: [nodes.at_work(), node["spec"], node["metadata"]["labels"], nodes.sh(SERVING, "nvidia-smi -L")],
    }


def test_repartition_of_the_cluster_pool_leaves_slurm_and_its_job_alone(beside):
    nodes, site = beside
    before = state(nodes, site)
    wanted = {**FEW, SERVING: MANY[SERVING]}
    nodes.describe_layouts(site, wanted)
    nodes.on_cluster("repartition")
    nodes.lab("charts", str(nodes.tree))
    after = state(nodes, site)
    assert after[BATCH] == before[BATCH] and after[SERVING][0] == before[SERVING][0]
    agrees(nodes, site, wanted)


def test_repartition_of_the_pool_of_slurm_leaves_the_cluster_and_its_pod_alone(beside):
    nodes, site = beside
    before, tree = state(nodes, site), written(nodes)
    nodes.describe_layouts(site, MANY)
    nodes.on_cluster("repartition", "-e", "gpu_slurm_jobs=requeue")
    assert state(nodes, site)[SERVING] == before[SERVING] and written(nodes) == tree
    agrees(nodes, site, MANY)
    # The job was returned to the queue, and has a device again.
    site.wait(lambda: site.lab.sh(BATCH, "squeue -h -o '%T'").strip() == "RUNNING", site.logs, 180)


def written(nodes: BesideNodes) -> dict[str, str]:
    """The tree of the cluster."""
    return {str(path): path.read_text() for path in nodes.tree.rglob("*") if path.is_file()}
