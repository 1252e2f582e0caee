# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run that dies is continued from another operator's machine, on real nodes."""

from __future__ import annotations

import datetime
import json
import socket
import subprocess

import pytest
from fleet import NEW, NODES, OLD, REPOSITORY, TOOLKIT, Machine

FIRST = NODES[0]
MIG = "nvidia.com/mig-3g.40gb"
#: What a run is started from. Other tests may work in the rest of the checkout meanwhile.
_SHIPPED = ("playbooks", "plugins", "roles", "examples")


@pytest.fixture(autouse=True)
def clean(fleet):
    def files():
        shown = subprocess.run(
            ["git", "-C", str(REPOSITORY), "status", "--porcelain", "--untracked-files=all", "--", *_SHIPPED],
            capture_output=True,
            text=True,
            check=True,
        )
        return shown.stdout

    before = files()
    yield
    fleet.forget()
    assert files() == before, "nothing is left in the working directory of the first operator"


def lease(fleet):
    return json.loads(fleet.plane.kubectl("get", "lease", "gpufleet-upgrade", "-o", "json").stdout)["spec"]


def has_ended(fleet):
    spec = lease(fleet)
    renewed = datetime.datetime.fromisoformat(spec["renewTime"].replace("Z", "+00:00"))
    until = renewed + datetime.timedelta(seconds=spec["leaseDurationSeconds"])
    return datetime.datetime.now(datetime.timezone.utc) > until


def test_a_run_that_died_is_continued_from_another_machine(fleet, tmp_path):
    """Taken over by hand while its lease holds; then a rollback that died, when its lease has ended by itself."""
    there = Machine("operator-2", tmp_path)
    fleet.workloads.workload("train", 2, MIG, max_unavailable=1)
    fleet.wait_for(lambda: fleet.workloads.complete("train"))
    fleet.plane.kubectl("cordon", FIRST)
    first = fleet.start("upgrade", "--limit", FIRST)
    fleet.wait_for(lambda: fleet.reached(first, "installing", FIRST))
    fleet.wait_for(lambda: '"state": "installing"' in fleet.sh(FIRST, "cat /var/lib/gpufleet/upgrade.json"))
    first.kill()
    found, held = fleet.workloads.annotations(FIRST), lease(fleet)
    here = f"@{socket.gethostname()}/{first.process.pid}-"
    assert here in held["holderIdentity"]
    record = fleet.sh(FIRST, "cat /var/lib/gpufleet/upgrade.json")

    refused = fleet.run("upgrade", "--limit", FIRST, machine=there)
    assert refused.status != 0
    assert f"{held['holderIdentity']} has held the fleet lock since" in refused.output, refused.output[-3000:]
    assert "gpu_node_lease_take_over=true" in refused.output
    assert fleet.workloads.annotations(FIRST) == found
    assert lease(fleet) == held
    assert fleet.sh(FIRST, "cat /var/lib/gpufleet/upgrade.json") == record

    taken = fleet.run("upgrade", "--limit", FIRST, machine=there, gpu_node_lease_take_over=True)
    assert taken.status == 0, taken.output[-3000:]
    assert f"1 cut off earlier ({FIRST})" in taken.output
    assert fleet.state(FIRST) == "done"
    assert fleet.versions()[FIRST] == NEW
    annotations = fleet.workloads.annotations(FIRST)
    assert annotations["gpufleet.github.io/upgrade-from"] == OLD, "not the half-installed driver"
    assert annotations["gpufleet.github.io/upgrade-from-toolkit"] == TOOLKIT[OLD]
    assert "@operator-2/" in annotations["gpufleet.github.io/upgrade-operator"]
    assert fleet.cordoned(FIRST), "it was cordoned by hand before the first run, and stays so"
    assert fleet.workloads.fewest["train"] >= 1
    assert not lease(fleet).get("holderIdentity")

    died = fleet.start("rollback", "--limit", FIRST, gpu_node_lease_duration=20)
    fleet.wait_for(lambda: fleet.reached(died, "rolling-back", FIRST))
    died.kill()
    assert here.partition("/")[0] in lease(fleet)["holderIdentity"]
    fleet.wait_for(lambda: has_ended(fleet))
    last = fleet.run("rollback", "--limit", FIRST, machine=there)
    assert last.status == 0, last.output[-3000:]
    assert fleet.versions()[FIRST] == OLD
    assert fleet.toolkits()[FIRST] == TOOLKIT[OLD]
    assert fleet.cordoned(FIRST)
