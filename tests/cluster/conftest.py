# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lab hosts that are nodes of a real cluster."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
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
    "test_gitops": "gitops",
    "test_gpu_operator": "nodes",
    "test_migrate": "upgrade",
    "test_heal": "upgrade",
    "test_nodes": "nodes",
    "test_claims": "nodes",
    "test_shared_claims": "nodes",
    "test_memory_shares": "nodes",
    "test_pods_bypass": "nodes",
    "test_pods": "pods",
    "test_pool_kinds": "nodes",
    "test_pools_by_property": "nodes",
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
    # Another name lets two runs be beside each other.
    name = os.environ.get("GPUFLEET_TEST_LAB", "fleet-tests")
    spec = folder / "lab.json"
    spec.write_text(SPEC % ", ".join(HOST % node for node in NODES))
    found = Fleet(name, folder)
    try:
        found.up(spec, driver=OLD)
        yield found
    finally:
        found.down()


@pytest.fixture(scope="session")
def demo(tmp_path_factory):
    """The demo's hosts as nodes. All files share them, so every test leaves them as they were."""
    from demo import Demo

    found = Demo(f"{os.environ.get('GPUFLEET_TEST_LAB', 'fleet-tests')}-nodes", tmp_path_factory.mktemp("demo"))
    try:
        found.up()
        yield found
    finally:
        found.lab("down")
