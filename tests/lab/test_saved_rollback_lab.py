# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An upgrade and a rollback of a lab host by saved plans: exactly what each of them says, or nothing. The GPUs are virtual, the packages are real.

The tests run in order: each begins with what the one before left.
"""

from __future__ import annotations

import json
import os

import pytest

pytestmark = [
    pytest.mark.lab,
    # The host gets a driver three times.
    pytest.mark.upgrade,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]

HOST = "saved-back-1"
OLD, NEW = "580.126.09", "580.178.04"
LAYOUT = [{"devices": "all", "instances": {"3g.40gb": 2}}]
WANTED = {
    "nvidia_driver_allow_vulnerable": True,
    "nvidia_mig_strategy": "mixed",
    "nvidia_mig_layout": LAYOUT,
    "gpu_node_kubernetes": False,
}
PREVIOUS = "/var/lib/gpufleet/driver-previous.json"


@pytest.fixture(scope="module")
def fleet(make_fleet):
    boards = [{"board": "h100-80gb-sxm", "count": 1}]
    made = make_fleet("saved-back", {"name": HOST, "group": "pool", "boards": boards, "driver": "none"})
    made.describe({"pool": {"hosts": [HOST], "vars": {**WANTED, "nvidia_driver_version": OLD}}})
    site = made.play("site", "--skip-tags", "cluster")
    assert site.rc == 0, site.text[-4000:]
    made.describe({"pool": {"hosts": [HOST], "vars": {**WANTED, "nvidia_driver_version": NEW}}})
    return made


def there(fleet):
    """The driver that is loaded, and how many GPU instances there are."""
    (gpu,) = json.loads(fleet.lab.sh(HOST, "virtual-gpu show"))["gpus"]
    return fleet.lab.sh(HOST, "cat /sys/module/nvidia/version").strip(), len(gpu["gpu_instances"])


def plan(fleet, playbook):
    path = fleet.folder / f"{playbook}.json"
    given = ("-e", f"gpu_plan_for={playbook}", "-e", f"gpu_plan_out={path}", "-e", "gpu_plan_fail=false")
    done = fleet.play("plan", "--skip-tags", "cluster", *given)
    (fleet.folder / f"{playbook}.log").write_text(done.text)
    assert done.rc == 0 and f"is in {path}" in done.text, done.text
    return path


def apply(fleet, playbook, path):
    return fleet.play(playbook, "--skip-tags", "cluster", "-e", f"gpu_plan_apply={path}")


def test_upgrade_does_what_its_plan_says_and_what_the_driver_takes_comes_back(fleet):
    assert there(fleet) == (OLD, 2)
    done = apply(fleet, "upgrade", plan(fleet, "upgrade"))
    assert done.rc == 0 and there(fleet) == (NEW, 2), done.text[-4000:]


def test_a_rollback_to_another_driver_than_the_plans_is_refused_before_the_first_change(fleet):
    path = plan(fleet, "rollback")
    work = json.loads(path.read_text())["hosts"][HOST]["work"]
    (driver,) = [one["data"] for one in work if one.get("kind") == "downgrade_driver"]
    assert (driver["before"], driver["version"]) == (NEW, OLD) and {one["stage"] for one in work if "kind" in one} == {
        "driver"
    }, work
    assert {"mig", "settings", "sharing"} <= {one["stage"] for one in work if one.get("after") == "driver"}, work
    fleet.lab.sh(HOST, f"cp -a {PREVIOUS} /root/kept && sed -i 's/{OLD}/580.126.08/g' {PREVIOUS}")
    done = apply(fleet, "rollback", path)
    fleet.lab.sh(HOST, f"cp -a /root/kept {PREVIOUS}")
    assert done.rc != 0 and f"{HOST}: the plan: " in done.text and done.recap[HOST]["changed"] == 0, done.text[-4000:]
    # Nor is a plan for another playbook taken.
    other = apply(fleet, "rollback", fleet.folder / "upgrade.json")
    assert other.rc != 0 and "it is for upgrade, and this is rollback" in other.text, other.text[-4000:]
    assert there(fleet) == (NEW, 2)


def test_a_rollback_does_what_its_plan_says_once(fleet):
    path = fleet.folder / "rollback.json"
    done = apply(fleet, "rollback", path)
    assert done.rc == 0 and there(fleet) == (OLD, 2), done.text[-4000:]
    again = apply(fleet, "rollback", path)
    assert again.rc != 0 and "it was applied to the host already" in again.text, again.text[-4000:]
    assert there(fleet) == (OLD, 2)
