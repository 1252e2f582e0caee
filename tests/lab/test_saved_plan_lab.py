# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plan that is saved, drifts between it and C(site) on lab hosts, and C(site) that does exactly what it says. The GPUs are virtual.

The tests run in order: each begins with what the one before left.
"""

from __future__ import annotations

import hashlib
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
#: Of the second host, so that its plan has packages.
WITHOUT_TOOLKIT = (
    "DEBIAN_FRONTEND=noninteractive apt-get remove --yes --allow-change-held-packages nvidia-container-toolkit"
)
RUNS = (
    "nohup sleep 3600 >/dev/null 2>&1 & virtual-gpu run --gpu {gpu} --pid $! --name train.py; echo $! > /run/user.pid"
)
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
    "a program uses the GPU that is partitioned": (RUNS.format(gpu=0), "kill $(cat /run/user.pid)", "sleep (PID "),
}


def signed(text):
    """Return a file with the digest of what is in it, as whoever writes one can."""
    body = text.partition(' "digest": ')[0]
    return f'{body} "digest": "{hashlib.sha256(body.encode()).hexdigest()}"\n}}\n'


#: What happens to the file, with which variables the run has it, and what is said.
FILES = {
    "truncated": (lambda text: text[:-300], {}, "it is no whole JSON document"),
    "edited": (lambda text: text.replace('"watts": 500', '"watts": 400'), {}, "somebody changed it"),
    "foreign": (lambda _text: '{"drift": false, "hosts": {}}', {}, "it is no plan that gpufleet.nvidia.plan wrote"),
    "of another release": (
        lambda text: signed(text.replace('"release": "', '"release": "0.', 1)),
        {},
        "made the plan, and this is ",
    ),
    "expired": (lambda text: text, {"gpu_plan_valid_for": 0}, "may be 0 hours old"),
    "of before a newer package": (
        lambda text: signed(text.replace("1.20.2", "1.19.1")),
        {},
        f'{HOSTS[1]}: the plan: toolkit: install nvidia-container-toolkit 1.20.2: version is "1.19.1" in the plan',
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
    fleet.lab.sh(HOSTS[1], WITHOUT_TOOLKIT)
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
    assert done.rc != 0 and f"{HOSTS[0]}: " in done.text and said in done.text, done.text
    assert f"{HOSTS[1]}: the plan: " not in done.text and shown(fleet)[1] == before[1]
    assert all(done.recap[host]["changed"] == 0 for host in HOSTS)


@pytest.mark.parametrize("wrong", FILES)
def test_a_file_that_is_not_the_plan_any_more_is_refused_with_the_reason(fleet, plan, wrong):
    change, variables, said = FILES[wrong]
    before, text = shown(fleet), plan.read_text()
    other = plan.with_name("other.json")
    other.write_text(change(text))
    assert variables or other.read_text() != text
    done = fleet.play(*SITE, "-e", f"gpu_plan_apply={other}", "-e", json.dumps(variables))
    assert done.rc != 0 and said in " ".join(done.text.split()), done.text
    assert shown(fleet) == before and all(done.recap[host]["changed"] == 0 for host in HOSTS)


def test_site_does_what_the_plan_says_and_the_next_plan_has_nothing_to_do(fleet, plan):
    # Who uses a GPU of which nothing changes is none of what was recorded.
    fleet.lab.sh(HOSTS[0], RUNS.format(gpu=1))
    done = fleet.play(*SITE, "-e", f"gpu_plan_apply={plan}")
    fleet.lab.sh(HOSTS[0], "kill $(cat /run/user.pid)")
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
