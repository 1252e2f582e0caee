# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What restores at boot is taken away from hosts that C(site) set up: C(plan) names it, C(site) mends it under running GPUs, a reboot restores all.

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

MIG, MPS = "boot-mig", "boot-mps"
WITHOUT = {"nvidia_driver_state": "unmanaged", "nvidia_toolkit_runtime": "none"}
POOLS = {
    "divided": {
        "hosts": [MIG],
        "vars": {
            **WITHOUT,
            "nvidia_mig_strategy": "mixed",
            "nvidia_mig_layout": [{"devices": "all", "instances": {"1g.10gb": 2, "3g.40gb": 1}}],
        },
    },
    "shared": {
        "hosts": [MPS],
        "vars": {
            **WITHOUT,
            "nvidia_sharing_mode": "mps",
            "nvidia_sharing_memory_slice": "4GiB",
            "nvidia_sharing_mps_manager": "host",
        },
    },
}
PROGRAM = "/usr/local/lib/gpufleet/gpufleet-host.pyz"
DAEMON = "gpufleet-mps@node.service"


@pytest.fixture(scope="module")
def fleet(make_fleet):
    made = make_fleet(
        "boot",
        {"name": MIG, "group": "g", "boards": [{"board": "h100-80gb-sxm", "count": 1}], "driver": "installed"},
        {"name": MPS, "group": "g", "boards": [{"board": "l40s", "count": 1}], "driver": "installed"},
    )
    made.describe(POOLS)
    ran = made.play("site")
    assert ran.rc == 0, ran.text
    again = made.play("site")
    assert again.rc == 0 and again.quiet(MIG) and again.quiet(MPS), again.text
    assert made.play("plan").rc == 0
    return made


def devices(fleet):
    """The MIG devices with their UUIDs, and the process of the MPS daemon: nobody may take them away from their users."""
    pid = fleet.lab.sh(MPS, f"systemctl show --property=MainPID --value {DAEMON}").strip()
    assert int(pid) > 0
    return fleet.lab.sh(MIG, "nvidia-smi -L"), pid


#: What is done to the host, and the steps that mend it.
SPOILT = [
    (
        MIG,
        "rm -rf /usr/local/lib/gpufleet; ln -sf /dev/null /etc/systemd/system/gpufleet-mig.service; systemctl disable gpufleet-cdi; "
        "rm -r /etc/systemd/system/gpufleet-settings.service /etc/gpufleet/mig.json",
        [
            f"install {PROGRAM} (it is missing)",
            "unmask gpufleet-mig.service",
            "write /etc/systemd/system/gpufleet-mig.service",
            "enable gpufleet-mig.service",
            "enable gpufleet-cdi.service",
            "write /etc/systemd/system/gpufleet-settings.service (it is missing)",
            "record layout /etc/gpufleet/mig.json",
        ],
    ),
    (
        MPS,
        f"echo 0.0.1 >/usr/local/lib/gpufleet/VERSION; echo '# older' >>{PROGRAM}; systemctl disable --no-reload gpufleet-sharing {DAEMON}; "
        "echo '# mine' >>/etc/systemd/system/gpufleet-mps@.service; rm /usr/local/lib/gpufleet/compiled-*",
        [
            f"install {PROGRAM} (it is of version 0.0.1, not ",
            "enable gpufleet-sharing.service",
            "write /etc/systemd/system/gpufleet-mps@.service (it differs)",
            "enable MPS daemon node",
        ],
    ),
]


@pytest.mark.by_name
def test_what_was_taken_away_is_named_and_mended_and_nobody_is_disturbed(fleet):
    before = devices(fleet)
    for host, command, _steps in SPOILT:
        fleet.lab.sh(host, command)
    planned = fleet.play("plan")
    assert planned.rc != 0
    assert [step for _host, _command, steps in SPOILT for step in steps if step not in planned.text] == [], planned.text
    assert "; disturbs" not in planned.text
    ran = fleet.play("site")
    assert ran.rc == 0, ran.text
    assert devices(fleet) == before
    again = fleet.play("site")
    assert again.rc == 0 and again.quiet(MIG) and again.quiet(MPS), again.text
    assert fleet.play("plan").rc == 0


@pytest.mark.by_name
def test_a_new_release_changes_the_program_alone(fleet):
    before = devices(fleet)
    for host in (MIG, MPS):
        fleet.lab.sh(host, f"echo '# of another release' >>{PROGRAM}")
    ran = fleet.play("site", "--check")
    assert ran.rc == 0 and "although it says so" in ran.text, ran.text
    ran = fleet.play("site")
    assert ran.rc == 0, ran.text
    assert {host: ran.recap[host]["changed"] for host in (MIG, MPS)} == {MIG: 1, MPS: 1}, ran.text
    assert devices(fleet) == before
    assert fleet.play("site").quiet(MIG)


def test_a_reboot_restores_all_of_it(fleet):
    before, _pid = devices(fleet)
    for host in (MIG, MPS):
        fleet.lab.run("reboot", host)
    after, _pid = devices(fleet)
    assert after.count("MIG ") == before.count("MIG ") == 3
    # It answers, or this fails.
    ask = "echo get_server_list | CUDA_MPS_PIPE_DIRECTORY=/run/nvidia/mps/nvidia.com/gpu/pipe nvidia-cuda-mps-control"
    fleet.lab.sh(MPS, ask)
    (gpu,) = json.loads(fleet.lab.sh(MPS, "virtual-gpu show"))["gpus"]
    assert gpu["compute_mode"] == "exclusive_process"
    assert fleet.play("plan").rc == 0


@pytest.mark.by_name
def test_a_host_whose_program_is_gone_can_be_removed(fleet):
    for host in (MIG, MPS):
        fleet.lab.sh(host, "rm -rf /usr/local/lib/gpufleet; ln -sf /dev/null /etc/systemd/system/gpufleet-mig.service")
    ran = fleet.play("remove")
    assert ran.rc == 0, ran.text
    for host in (MIG, MPS):
        assert (
            fleet.lab.sh(
                host, "find /etc /usr/local/lib /var/lib -path /var/lib/apt -prune -o -name '*gpufleet*' -print"
            ).strip()
            == ""
        )
