# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plan that is saved, drifts between it and C(site) on lab hosts, and C(site) that does exactly what it says. The GPUs are virtual.

The tests run in order: each begins with what the one before left.
"""

from __future__ import annotations

import json
import os

import pytest

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]

HOSTS = ("converged-1", "converged-2")
LAYOUT = [{"devices": [0], "instances": {"3g.40gb": 2}}]
WANTED = {"nvidia_mig_strategy": "mixed", "nvidia_mig_layout": LAYOUT, "nvidia_settings_power_limit": 500}
SITE = ("site", "--skip-tags", "cluster")
CONFIG = "/etc/nvidia-container-runtime/config.toml"
#: What happens on the first host after the plan, how it ends, and what is said of it.
DRIFTS = {
    "a GPU is set to another power limit": (
        "nvidia-smi -i 0 -pl 600",
        "nvidia-smi -i 0 -pl 700",
        "facts that the plan was made from",
    ),
    "the toolkit is told another mode": (
        f'cp -a {CONFIG} /root/kept && sed -i \'s/mode = ".*"/mode = "legacy"/\' {CONFIG} && ! cmp -s {CONFIG} /root/kept',
        f"cp -a /root/kept {CONFIG}",
        "facts that the plan was made from",
    ),
}


@pytest.fixture(scope="module")
def fleet(converged_fleet):
    boards = [{"board": "h100-80gb-sxm", "count": 2}]
    return converged_fleet("converged", *({"name": name, "group": "pool", "boards": boards} for name in HOSTS))


def describe(fleet, **variables):
    fleet.describe({"pool": {"hosts": list(HOSTS), "vars": {"gpu_node_kubernetes": False, **WANTED, **variables}}})


def shown(fleet):
    """What the first GPU of each host has: watts, and how many instances."""
    gpus = [json.loads(fleet.lab.sh(host, "virtual-gpu show"))["gpus"][0] for host in HOSTS]
    return [(gpu["settings"]["power_limit_mw"] // 1000, len(gpu["gpu_instances"])) for gpu in gpus]


@pytest.fixture(scope="module")
def plan(fleet):
    describe(fleet)
    path = fleet.folder / "plan.json"
    done = fleet.play("plan", "--skip-tags", "cluster", "-e", f"gpu_plan_out={path}", "-e", "gpu_plan_fail=false")
    assert done.rc == 0 and f"is in {path}" in done.text, done.text
    return path


def test_other_variables_are_refused_before_the_first_change(fleet, plan):
    before = shown(fleet)
    describe(fleet, nvidia_settings_power_limit=450)
    done = fleet.play(*SITE, "-e", f"gpu_plan_apply={plan}")
    describe(fleet)
    assert done.rc != 0 and "variables have other values: nvidia_settings_power_limit" in done.text, done.text
    assert shown(fleet) == before and all(done.recap[host]["changed"] == 0 for host in HOSTS)


@pytest.mark.parametrize("drift", DRIFTS)
def test_a_drift_on_one_host_refuses_the_run_before_the_first_change_and_is_named(fleet, plan, drift):
    before = shown(fleet)
    change, back, said = DRIFTS[drift]
    fleet.lab.sh(HOSTS[0], change)
    done = fleet.play(*SITE, "-e", f"gpu_plan_apply={plan}")
    fleet.lab.sh(HOSTS[0], back)
    assert done.rc != 0 and f"{HOSTS[0]}: the plan: " in done.text and said in done.text, done.text
    assert f"{HOSTS[1]}: the plan: " not in done.text and shown(fleet)[1] == before[1]


def test_site_does_what_the_plan_says_and_the_next_plan_has_nothing_to_do(fleet, plan):
    done = fleet.play(*SITE, "-e", f"gpu_plan_apply={plan}")
    assert done.rc == 0, done.text
    assert shown(fleet) == [(500, 2)] * 2
    assert "2 hosts: 2 as described, 0 to change" in fleet.play("plan", "--skip-tags", "cluster").text


def test_a_plan_that_was_applied_does_nothing_more_and_is_refused_where_a_host_was_changed_since(fleet, plan):
    again = fleet.play(*SITE, "-e", f"gpu_plan_apply={plan}")
    assert again.rc == 0 and all(again.quiet(host) for host in HOSTS), again.text
    fleet.lab.sh(HOSTS[0], "nvidia-smi -i 0 -pl 600")
    refused = fleet.play(*SITE, "-e", f"gpu_plan_apply={plan}")
    assert refused.rc != 0 and f"{HOSTS[0]}: the plan: it was applied to the host already" in refused.text, refused.text
    assert f"{HOSTS[1]}: the plan: " not in refused.text and shown(fleet) == [(600, 2), (500, 2)]
