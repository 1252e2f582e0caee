# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lab hosts that are nodes of a real cluster."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).parent
#: Another name lets two runs be beside each other.
LAB_NAME = os.environ.get("GPUFLEET_TEST_LAB", "fleet-tests")
sys.path[:0] = [str(HERE), str(HERE.parent / "lab")]

SPEC = """{"hosts": [%s]}"""
HOST = '{"name": "%s", "group": "training", "boards": [{"board": "h100-80gb-sxm", "count": 2}], "driver": "none", "node": "containerd-1.6"}'


#: Files of any other name are of the tier cluster, which has an API server alone.
TIERS = {
    "test_at_work": "upgrade",
    "test_debian": "debian",
    "test_drain": "upgrade",
    "test_kernel": "dkms",
    "test_operators": "upgrade",
    "test_upgrade": "upgrade",
    "test_from_operator": "nodes",
    "test_gitops": "gitops",
    "test_gpu_operator": "nodes",
    "test_migrate": "upgrade",
    "test_heal": "upgrade",
    "test_hostile_tenant": "nodes",
    "test_busy": "nodes",
    "test_nodes": "nodes",
    "test_saved_plans_on_nodes": "nodes",
    "test_claims": "nodes",
    "test_shared_claims": "nodes",
    "test_slurm_beside": "nodes",
    "test_memory_shares": "nodes",
    "test_pods_bypass": "nodes",
    "test_pods": "pods",
    "test_pool_kinds": "nodes",
    "test_pools_by_property": "nodes",
    "test_recommend": "nodes",
}


def pytest_collection_modifyitems(items):
    for item in items:
        path = Path(item.fspath)
        if HERE in path.parents:
            item.add_marker(next((tier for name, tier in TIERS.items() if path.name.startswith(name)), "cluster"))


@pytest.fixture(scope="session")
def fleet(tmp_path_factory):
    from fleet import NODES, OLD, Fleet

    folder = tmp_path_factory.mktemp("fleet")
    spec = folder / "lab.json"
    spec.write_text(SPEC % ", ".join(HOST % node for node in NODES))
    found = Fleet(LAB_NAME, folder)
    try:
        found.up(spec, driver=OLD)
        yield found
    finally:
        found.down()


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """The cluster of nodes that one file after the other describes as its pools."""
    from pool_nodes import SPEC as HOSTS
    from pool_nodes import PoolNodes

    folder = tmp_path_factory.mktemp("shared")
    spec = folder / "lab.json"
    spec.write_text(json.dumps(HOSTS))
    found = PoolNodes(f"{LAB_NAME}-shared", folder, folder / "inventory.json", spec)
    try:
        found.boot()
        yield found
    finally:
        found.lab("down")


@pytest.fixture(scope="module")
def make_pools(request, tmp_path_factory):
    """Return a function that makes nodes of the shared cluster the nodes of some pools; an older Kubernetes has a cluster of its own for them."""
    from nodes.programs import KUBERNETES
    from pool_nodes import SPEC as HOSTS
    from pool_nodes import PoolNodes

    own = []

    def make(pools, kubernetes=KUBERNETES, kind=PoolNodes, **fields):
        folder = tmp_path_factory.mktemp("pools")
        of_file = {"folder": folder, "inventory": folder / "inventory.json", "pools": pools, **fields}
        if kubernetes == KUBERNETES:
            there = request.getfixturevalue("shared")
            found = kind(there.name, spec=there.spec, **of_file)
            found.begin()
            return found
        spec = folder / "lab.json"
        members = [host for hosts in pools.values() for host in hosts]
        spec.write_text(json.dumps({"hosts": [host for host in HOSTS["hosts"] if host["name"] in members]}))
        found = kind(f"{LAB_NAME}-oldest", spec=spec, kubernetes=kubernetes, **of_file)
        own.append(found)
        found.boot()
        return found

    yield make
    for found in own:
        found.lab("down")


@pytest.fixture(scope="session")
def small_fleet(shared, tmp_path_factory):
    """Pools as examples/fleet describes them, of nodes with two GPUs."""
    from pool_nodes import CDI, MOUNTS, SMALL, PoolNodes

    folder = tmp_path_factory.mktemp("fleet")
    pools = {"training": [CDI], "batch": [MOUNTS], "shared": [SMALL]}
    return PoolNodes(shared.name, folder, folder / "inventory.json", shared.spec, pools=pools)


@pytest.fixture(scope="module", params=["small", pytest.param("demo", marks=pytest.mark.by_name)])
def example_fleet(request):
    """Nodes that offer what is rendered of examples/fleet; a whole run has as many GPUs as it says. Every test leaves them as they were."""
    from demo import REPOSITORY

    if request.param == "demo":
        return request.getfixturevalue("demo")
    found = request.getfixturevalue("small_fleet")
    if not found.current:
        found.begin()
        variables = {
            path.stem: yaml.safe_load(path.read_text())
            for path in (REPOSITORY / "examples" / "fleet" / "group_vars").glob("*.yml")
        }
        for name, board in (("training", "h100-80gb-sxm"), ("batch", "h100-80gb-sxm"), ("shared", "l40s-48gb")):
            variables[name]["gpu_facts_gpus"] = [{"board": board, "count": 2}]
        # Equal instances as in the example, of the boards that there are.
        variables["batch"]["nvidia_mig_layout"] = [{"devices": "all", "instances": {"1g.10gb": 7}}]
        found.describe(variables.pop("gpu_hosts"), variables)
        found.site()
        found.offers_what_is_rendered(300)
    return found


@pytest.fixture(scope="session")
def demo(tmp_path_factory):
    """The demo's hosts as nodes. All files share them, so every test leaves them as they were."""
    from demo import Demo

    found = Demo(f"{LAB_NAME}-nodes", tmp_path_factory.mktemp("demo"))
    try:
        found.up()
        yield found
    finally:
        found.lab("down")
