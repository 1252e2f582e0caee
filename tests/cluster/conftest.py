# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Three lab hosts that are nodes of a real API server."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lab")]

SPEC = """{"hosts": [%s]}"""
HOST = '{"name": "%s", "group": "training", "boards": [{"board": "h100-80gb-sxm", "count": 2}], "driver": "none"}'


#: Files of any other name are of the tier cluster, which has an API server alone. The kubelets of debian and upgrade are stand-ins.
TIERS = {
    "test_at_work": "upgrade",
    "test_debian": "debian",
    "test_drain": "upgrade",
    "test_operators": "upgrade",
    "test_upgrade": "upgrade",
    "test_gitops": "gitops",
    "test_heal": "upgrade",
    "test_nodes": "nodes",
    "test_pods_bypass": "nodes",
    "test_pods": "pods",
    "test_pool_kinds": "nodes",
}


def pytest_collection_modifyitems(items):
    for item in items:
        path = Path(item.fspath)
        if HERE in path.parents:
            item.add_marker(next((tier for name, tier in TIERS.items() if path.name.startswith(name)), "cluster"))


@pytest.fixture(scope="session")
def fleet(tmp_path_factory):
    from fleet import NODES, OLD, Fleet
    from nodes.control_plane import control_plane
    from stand_ins import StandIns

    folder = tmp_path_factory.mktemp("fleet")
    # Another name lets two runs be beside each other.
    name = os.environ.get("GPUFLEET_TEST_LAB", "fleet-tests")
    spec = folder / "lab.json"
    spec.write_text(SPEC % ", ".join(HOST % node for node in NODES))
    with control_plane(workloads=True) as plane:
        found = Fleet(name, folder, plane, None)
        found.lab("down")
        found.lab("up", "--spec", str(spec))
        try:
            site = found.run("site", "--skip-tags", "cluster", driver=OLD)
            assert site.status == 0, site.output[-4000:]
            found.stand_ins = StandIns(
                str(plane.kubeconfig), {node: lambda script, node=node: found.sh(node, script) for node in NODES}
            )
            found.stand_ins.start()
            yield found
        finally:
            if found.stand_ins:
                found.stand_ins.stop()
            found.lab("down")


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
