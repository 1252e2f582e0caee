# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""IMEX on two lab hosts of one rack: real apt and systemd, virtual GB200 boards, a stand-in for NVIDIA's daemon that refuses what it refuses.

What the service has read is in C(/run/nvidia-imex/nodes), which it writes when it starts. The hosts of a lab have the network of the machine in common:
127.0.0.1 is an address of both. The tests run in order: each begins with what the one before left.
"""

from __future__ import annotations

import os

import pytest

pytestmark = [
    pytest.mark.lab,
    pytest.mark.by_name,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]

HOSTS = ("imex-1", "imex-2")
VERSION = "580.178.04"
OTHER = {"nvidia_driver_version": "580.126.09", "nvidia_driver_allow_vulnerable": True}
#: Of the virtual rack, as gpu-feature-discovery would write it.
CLIQUE = "72727272-7272-7272-7272-727272727272.1"
NODES = "/etc/nvidia-imex/nodes_config.cfg"
RACK = {
    "nvidia_driver_version": VERSION,
    "nvidia_driver_imex": "host",
    "nvidia_driver_imex_group": "rack",
    "nvidia_toolkit_runtime": "none",
    "nvidia_mig_strategy": "none",
}


@pytest.fixture(scope="module")
def fleet(make_fleet):
    boards = [{"board": "gb200-186gb", "count": 4}]
    return make_fleet(
        "imex", *({"name": name, "group": "rack", "boards": boards, "driver": "installed"} for name in HOSTS)
    )


def describe(fleet, *addresses, **variables):
    own = {host: {"nvidia_driver_imex_address": address} for host, address in zip(HOSTS, addresses)}
    fleet.describe({"rack": {"hosts": list(HOSTS), "vars": {**RACK, **variables}}}, own)


def everywhere(fleet, script):
    """What both hosts say to a script, in one set."""
    return {fleet.lab.sh(host, script, check=False).strip() for host in HOSTS}


def test_two_hosts_with_one_address_are_refused_before_any_is_touched(fleet):
    """Both are reached through 127.0.0.1, on different ports."""
    describe(fleet)
    before = everywhere(fleet, "dpkg-query -W | sha256sum")
    refused = fleet.play("site")
    assert "two hosts of the rack have 127.0.0.1" in refused.text and "Nothing was changed" in refused.text, (
        refused.text
    )
    assert everywhere(fleet, "dpkg-query -W | sha256sum") == before


@pytest.mark.proves("fabric", "host", rows=["nvlink5-rack"])
def test_imex_of_the_drivers_version_runs_with_the_racks_nodes(fleet):
    describe(fleet, "127.0.0.1", "127.0.0.2")
    played = fleet.play("site")
    assert played.rc == 0, played.text
    assert (
        everywhere(fleet, f"cat {NODES}") == everywhere(fleet, "cat /run/nvidia-imex/nodes") == {"127.0.0.1\n127.0.0.2"}
    )
    assert everywhere(fleet, "systemctl is-active nvidia-imex; systemctl is-enabled nvidia-imex") == {"active\nenabled"}
    assert everywhere(fleet, "dpkg-query -W -f '${Version}' nvidia-imex") == {f"{VERSION}-1"}
    assert everywhere(fleet, "apt-mark showhold | grep -x nvidia-imex") == {"nvidia-imex"}
    assert everywhere(fleet, "dpkg-query -W -f '${db:Status-Status}' nvidia-fabricmanager 2>/dev/null") <= {
        "",
        "not-installed",
    }
    again = fleet.play("site")
    assert "rack: 2 as described" in again.text, again.text
    inspected = fleet.play("inspect")
    assert "NODES IN ITS FILE" in inspected.text and "runs" in inspected.text


@pytest.mark.proves("fabric", "health", rows=["nvlink5-rack"])
def test_a_service_that_ended_is_seen_by_verify_and_plan_and_started(fleet):
    fleet.lab.sh(HOSTS[0], "systemctl stop nvidia-imex")
    assert "nvidia-imex.service does not run" in fleet.play("verify").text
    assert "start nvidia-imex.service" in fleet.play("plan").text
    assert fleet.play("site").rc == 0
    assert everywhere(fleet, "systemctl is-active nvidia-imex") == {"active"}


@pytest.mark.proves("fabric", "health", rows=["nvlink5-rack"])
def test_a_fabric_that_failed_is_not_healthy(fleet):
    fleet.lab.sh(HOSTS[1], "virtual-gpu fabric completed --status 15")
    assert (
        "GPU 0 is not registered with the fabric: state completed, status 15 (the GPU is lost)"
        in fleet.play("verify").text
    )
    fleet.lab.sh(HOSTS[1], "virtual-gpu fabric completed")


@pytest.mark.proves("fabric", "host", rows=["nvlink5-rack"])
def test_a_restart_that_takes_memory_from_jobs_is_refused_and_done_when_it_is_allowed(fleet):
    fleet.lab.sh(HOSTS[0], "virtual-gpu run --gpu 0 --pid 4242")
    describe(fleet, "127.0.0.1", "127.0.0.3")
    refused = fleet.play("site")
    assert "a process (PID 4242) uses the GPUs" in refused.text, refused.text
    assert everywhere(fleet, f"cat {NODES}") == {"127.0.0.1\n127.0.0.2"}
    describe(fleet, "127.0.0.1", "127.0.0.3", nvidia_driver_imex_restart=True)
    planned = fleet.play("plan")
    assert "disturbs jobs of the rack that have imported memory of this host's GPUs" in planned.text, planned.text
    assert fleet.play("site").rc == 0
    assert everywhere(fleet, "cat /run/nvidia-imex/nodes") == {"127.0.0.1\n127.0.0.3"}
    fleet.lab.sh(HOSTS[0], "virtual-gpu stop --pid 4242")


@pytest.mark.by_name
def test_an_imex_that_does_not_start_is_no_success(fleet):
    """No node has an address of the host: NVIDIA's does not find the interface to listen on."""
    describe(fleet, "198.51.100.1", "198.51.100.2")
    failed = fleet.play("site")
    assert failed.rc != 0 and "nvidia-imex" in failed.text
    assert all(failed.recap[host]["failed"] for host in HOSTS)
    describe(fleet, "127.0.0.1", "127.0.0.2")
    assert fleet.play("site").rc == 0


@pytest.mark.proves("fabric", "host", rows=["nvlink5-rack"])
def test_masked_for_compute_domains_and_back(fleet):
    """Without the cluster's files: ComputeDomains need CDI, which the containerd of these hosts does not inject (tests/charts has the files)."""
    describe(fleet, nvidia_driver_imex="masked")
    masked = fleet.play("site", "--skip-tags", "cluster")
    assert masked.rc == 0, masked.text
    assert everywhere(fleet, "systemctl is-enabled nvidia-imex || true; systemctl is-active nvidia-imex || true") == {
        "masked\ninactive"
    }
    assert everywhere(fleet, "dpkg-query -W -f '${Version}' nvidia-imex") == {f"{VERSION}-1"}
    again = fleet.play("site", "--skip-tags", "cluster")
    assert again.rc == 0 and all(again.quiet(host) for host in HOSTS), again.text
    # No group names the rack: its fabric does.
    describe(fleet, nvidia_driver_imex="masked", nvidia_driver_imex_group="", **OTHER)
    rollout = fleet.play("upgrade", "--check", "-e", "gpu_node_kubernetes=false")
    assert f"clique {CLIQUE}: 2 of its 2 hosts get a new driver, one after another" in " ".join(rollout.text.split()), (
        rollout.text
    )
    describe(fleet, "127.0.0.1", "127.0.0.2")
    played = fleet.play("site")
    assert played.rc == 0, played.text
    assert everywhere(fleet, "systemctl is-active nvidia-imex") == {"active"}


def test_the_removal_of_the_driver_leaves_nothing_of_imex(fleet):
    for host in HOSTS:
        repository = "/srv/gpufleet-lab/repository/compute/cuda/repos/debian12/x86_64"
        arguments = {
            "state": "absent",
            "imex": {"mode": "host"},
            "repository": {"url": f"file://{repository}", "key_file": f"{repository}/cuda-archive-keyring.gpg"},
        }
        assert "packages" in fleet.module(host, "driver", arguments)
    assert everywhere(fleet, f"ls {NODES} /etc/systemd/system/nvidia-imex.service 2>/dev/null") == {""}
    assert everywhere(fleet, "find /etc/systemd/system -name nvidia-imex.service") == {""}
