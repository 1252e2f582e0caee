# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""DCGM on a Debian 12 lab host: real apt, dpkg and systemd; a bare host is given to nobody before dcgmi has accepted it.

The packages are stand-ins of the lab, and dcgmi writes what it wrote on real machines (dcgm_outputs.py). The tests run in order: each begins with
what the one before left.
"""

from __future__ import annotations

import os

import pytest

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]

HOST = "dcgm-1"
PLACE = "/var/lib/lab-dcgm"
WANTED = {
    "datacenter-gpu-manager-4-core",
    "datacenter-gpu-manager-4-cuda13",
    "datacenter-gpu-manager-4-proprietary",
    "datacenter-gpu-manager-4-proprietary-cuda13",
}
BASE = {"nvidia_toolkit_runtime": "none", "nvidia_health_dcgm_level": 2}
MIG = {
    "nvidia_mig_strategy": "mixed",
    "nvidia_mig_layout": [{"devices": "all", "instances": {"3g.40gb": 2}}],
}


@pytest.fixture(scope="module")
def fleet(make_fleet):
    return make_fleet("dcgm-tests", {"name": HOST, "group": "g", "boards": [{"board": "h100-80gb-sxm", "count": 2}]})


def site(fleet, *options, playbook="site", **variables):
    fleet.describe({"g": {"hosts": [HOST], "vars": {**BASE, "nvidia_dcgm_state": "present", **variables}}})
    return fleet.play(playbook, *options)


def diagnosed(fleet, text):
    """Have dcgmi write a recorded text from now on, and forget how it was called."""
    fleet.lab.sh(HOST, f"mkdir -p {PLACE}; rm -f {PLACE}/*")
    if text:
        fleet.lab.write(HOST, f"{PLACE}/answer", text)


def calls(fleet):
    return fleet.lab.sh(HOST, f"cat {PLACE}/calls 2>/dev/null || true").splitlines()


def installed(fleet):
    shown = fleet.lab.sh(
        HOST, "dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\\n' 'datacenter-gpu-manager*' || true"
    )
    return {line.split()[1]: line.split()[2] for line in shown.splitlines() if line.startswith("installed ")}


def engine(fleet):
    return fleet.lab.sh(HOST, "systemctl is-active nvidia-dcgm.service || true").strip()


def checks(fleet, **variables):
    played = site(fleet, playbook="verify", **variables)
    shown = [line.split(maxsplit=2) for line in played.text.splitlines() if line.startswith("    ")]
    return played, {words[1]: words[0] for words in shown if len(words) > 1}


def test_a_level_without_dcgm_and_a_version_with_holes_are_refused_before_anything_is_touched(fleet):
    for variables, text in (
        ({"nvidia_dcgm_state": "unmanaged"}, "asks for dcgmi diag at level 2, but the host has no dcgmi"),
        ({"nvidia_dcgm_version": "4.5.2"}, "below the security floor 4.5.3"),
        ({"nvidia_health_dcgm_level": 5}, "nvidia_health_dcgm_level"),
    ):
        refused = site(fleet, **variables)
        assert refused.rc != 0 and text in refused.text, refused.text[-3000:]
    assert fleet.lab.status(HOST, "test -e /var/lib/gpufleet || test -e /sys/module/nvidia/version") == 1


@pytest.mark.by_name
def test_check_mode_shows_it_on_a_bare_host(fleet):
    shown = site(fleet, "--check")
    assert shown.rc == 0, shown.text[-3000:]
    assert "install DCGM 4.6.0 for CUDA 13" in shown.text and "start nvidia-dcgm.service" in shown.text
    assert installed(fleet) == {} and fleet.lab.status(HOST, "test -e /var/lib/gpufleet") == 1


@pytest.mark.by_name
def test_a_host_that_dcgm_does_not_accept_owes_it_over_runs(fleet, recorded):
    """The second run finds nothing to change, and does not give the host away all the same."""
    broken = recorded.spoiled(recorded.LEVEL_2, status="Fail", warnings=[{"warning": "bad", "error_severity": 2}])
    diagnosed(fleet, broken)
    first = site(fleet)
    assert first.rc != 0 and "The check dcgm failed" in first.text, first.text[-3000:]
    assert set(installed(fleet)) == WANTED and engine(fleet) == "active"
    assert calls(fleet)[-1] == "diag -r 2 -j"
    diagnosed(fleet, broken)
    again = site(fleet)
    assert again.rc != 0 and "The check dcgm failed" in again.text and calls(fleet)[-1] == "diag -r 2 -j"
    verified, statuses = checks(fleet)
    assert verified.rc != 0 and statuses["dcgm"] == "failed" and "has not accepted it since" in verified.text


def test_accepted_once_and_not_asked_again(fleet, recorded):
    diagnosed(fleet, recorded.HEALTHY)
    accepted = site(fleet)
    assert accepted.rc == 0, accepted.text[-3000:]
    assert calls(fleet) == ["diag -r 2 -j"]
    assert fleet.lab.status(HOST, "test -e /var/lib/gpufleet/acceptance.json") == 1
    diagnosed(fleet, recorded.HEALTHY)
    again = site(fleet)
    assert again.rc == 0 and again.quiet(HOST) and calls(fleet) == []
    verified, statuses = checks(fleet)
    assert verified.rc == 0 and statuses["dcgm"] == "skipped" and statuses["cuda"] == "unproven"
    assert "CUDA is not proven: /usr/bin/dcgmi was not run for this check" in verified.text


@pytest.mark.by_name
def test_unattended_upgrades_do_not_move_it(fleet):
    assert set(fleet.lab.sh(HOST, "apt-mark showhold").split()) >= WANTED
    site(fleet, nvidia_dcgm_version="4.5.3", nvidia_health_dcgm_level=0)
    assert installed(fleet) == dict.fromkeys(WANTED, "1:4.5.3-1") and engine(fleet) == "active"
    fleet.lab.sh(HOST, "apt-get -y -qq upgrade")
    assert installed(fleet) == dict.fromkeys(WANTED, "1:4.5.3-1")


@pytest.mark.by_name
def test_a_sample_of_cuda_proves_it_and_fails_where_it_fails(fleet):
    """It is run where something was changed: here the version of DCGM."""
    sample = "/usr/local/cuda/extras/demo_suite/vectorAdd"
    fleet.lab.sh(HOST, f"mkdir -p $(dirname {sample})")
    for version, rc, status in (("4.6.0", 1, "failed"), ("4.5.3", 0, "passed")):
        script = f"#!/bin/sh\necho Test {status} >> /run/sample\necho Test {status}\nexit {rc}\n"
        fleet.lab.write(HOST, sample, script)
        fleet.lab.sh(HOST, f"chmod 755 {sample}")
        done = site(fleet, nvidia_dcgm_version=version, nvidia_health_dcgm_level=0)
        assert (done.rc == 0) is (rc == 0), done.text[-3000:]
        assert (f"the CUDA command ended with 1: Test {status}" in done.text) is (rc != 0)
    assert fleet.lab.sh(HOST, "cat /run/sample").splitlines() == ["Test failed", "Test passed"]
    fleet.lab.sh(HOST, f"rm {sample}")


@pytest.mark.by_name
def test_the_host_engine_makes_way_for_mig_and_comes_back(fleet, recorded):
    """It has the first GPU open, so that the mode could not be changed under it."""
    diagnosed(fleet, recorded.HEALTHY)
    since = fleet.lab.sh(HOST, "systemctl show -p MainPID --value nvidia-dcgm.service")
    done = site(fleet, **MIG, nvidia_dcgm_version="4.5.3")
    assert done.rc == 0, done.text[-4000:]
    assert engine(fleet) == "active"
    assert fleet.lab.sh(HOST, "systemctl show -p MainPID --value nvidia-dcgm.service") != since
    assert calls(fleet) == ["diag -r 2 -j"]


@pytest.mark.by_name
def test_an_upgrade_of_the_driver_stops_it_and_accepts_the_host(fleet, recorded):
    diagnosed(fleet, recorded.HEALTHY)
    variables = {**MIG, "nvidia_dcgm_version": "4.5.3", "nvidia_driver_branch": "595", "gpu_node_kubernetes": False}
    done = site(fleet, playbook="upgrade", **variables)
    assert done.rc == 0, done.text[-4000:]
    assert fleet.lab.sh(HOST, "cat /sys/module/nvidia/version").strip() == "595.91.07"
    assert engine(fleet) == "active" and calls(fleet)[-1:] == ["diag -r 2 -j"]
    assert site(fleet, **variables).quiet(HOST)


def test_the_engine_is_there_after_a_reboot(fleet):
    fleet.lab.run("reboot", HOST)
    assert engine(fleet) == "active"


@pytest.mark.by_name
def test_removed(fleet):
    variables = {**MIG, "nvidia_driver_branch": "595", "gpu_remove_dcgm": True}
    done = site(fleet, playbook="remove", **variables)
    assert done.rc == 0, done.text[-4000:]
    assert installed(fleet) == {} and engine(fleet) == "inactive"
    assert not WANTED & set(fleet.lab.sh(HOST, "apt-mark showhold").split())
    link = "/etc/systemd/system/multi-user.target.wants/nvidia-dcgm.service"
    assert fleet.lab.status(HOST, f"test -e {link} -o -L {link}") == 1
