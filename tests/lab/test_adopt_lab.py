# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that somebody else set up are adopted: one by hand with apt and nvidia-ctk, one partitioned by the real nvidia-mig-parted.

The inventory that is written is planned and run as it is, without the one with which the hosts were read.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.tests.lab import host_files

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]

#: NVIDIA's installation guide, step by step.
HAND = "adopt-hand"
#: Partitioned by nvidia-mig-parted, which its service restores at boot.
PARTED = "adopt-parted"
#: Nothing of NVIDIA's is on it.
BARE = "adopt-bare"
TOOLS = Path(__file__).resolve().parent / "real_tools"
SHOWN = "/opt/with-machine /run/virtual-gpu"
TOOLKIT = """
echo "deb [trusted=yes] file:/srv/gpufleet-lab/repository/libnvidia-container/stable/deb/$(dpkg --print-architecture) /" \
    > /etc/apt/sources.list.d/nvidia-container-toolkit.list
apt-get -qq update
apt-get -y -qq install nvidia-container-toolkit=1.20.2-1 nvidia-container-toolkit-base=1.20.2-1 \
    libnvidia-container-tools=1.20.2-1 libnvidia-container1=1.20.2-1
nvidia-ctk runtime configure --runtime=containerd
systemctl restart containerd
"""
CONFIGURATIONS = {
    "version": "v1",
    "mig-configs": {
        "all-disabled": [{"devices": "all", "mig-enabled": False}],
        "training": [
            {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}}
        ],
    },
}
UNIT = """[Unit]
Description=Configure MIG on NVIDIA GPUs
[Service]
Type=oneshot
ExecStart=/bin/true
[Install]
WantedBy=multi-user.target
"""
#: What docs/migration.md shows; with RECORD_TRANSCRIPTS=1 it is written anew.
TRANSCRIPT = Path(__file__).resolve().parents[2] / "docs" / "transcripts" / "adopt.txt"
OVERRIDE = '[Service]\nEnvironment="MIG_PARTED_SELECTED_CONFIG={}"\n'


@pytest.fixture(scope="module")
def fleet(make_fleet):
    made = make_fleet(
        "faults-adopt",
        {"name": HAND, "group": "shared", "boards": [{"board": "l40s", "count": 2}], "driver": "installed"},
        {
            "name": PARTED,
            "group": "training",
            "boards": [{"board": "h100-80gb-sxm", "count": 2}],
            "driver": "installed",
        },
        {"name": BARE, "group": "shared", "boards": [{"board": "l40s", "count": 2}]},
    )
    made.lab.sh(HAND, TOOLKIT)
    _partition(made)
    made.inventory = made.folder / "hosts.yml"
    hosts = {host: {"ansible_port": made.ports[host]} for host in (HAND, PARTED)}
    reached = {name: value for name, value in made.variables.items() if name.startswith("ansible_")}
    # Variables of DeepOps, which mean something else, or nothing.
    told = {"nvidia_driver_branch": "535", "nvidia_driver_skip_reboot": True, "k8s_gpu_mig_strategy": "mixed"}
    made.inventory.write_text(yaml.safe_dump({"all": {"vars": {**reached, **told}, "hosts": hosts}}), encoding="utf-8")
    return made


def _partition(fleet):
    sys.path.insert(0, str(TOOLS))
    try:
        import install
    finally:
        sys.path.remove(str(TOOLS))
    for file in (TOOLS / "with-machine", install.install(install.TOOLS["nvidia-mig-parted"])):
        fleet.lab.write(PARTED, f"/opt/{file.name}", Path(file).read_bytes())
    fleet.lab.sh(
        PARTED, "chmod +x /opt/*; mkdir -p /etc/nvidia-mig-manager /etc/systemd/system/nvidia-mig-manager.service.d"
    )
    fleet.lab.write(PARTED, "/etc/nvidia-mig-manager/config.yaml", yaml.safe_dump(CONFIGURATIONS))
    fleet.lab.write(PARTED, "/etc/systemd/system/nvidia-mig-manager.service", UNIT)
    _select(fleet, "training")
    fleet.lab.sh(PARTED, "systemctl daemon-reload; systemctl enable nvidia-mig-manager")
    program = next(name for name in fleet.lab.sh(PARTED, "ls /opt").split() if name.startswith("nvidia-mig-parted"))
    arguments = "--config-file /etc/nvidia-mig-manager/config.yaml --selected-config training"
    fleet.lab.sh(PARTED, f"{SHOWN} /opt/{program} apply {arguments}")


def _select(fleet, label):
    fleet.lab.write(PARTED, "/etc/systemd/system/nvidia-mig-manager.service.d/override.conf", OVERRIDE.format(label))


@pytest.fixture(scope="module")
def adopted(fleet):
    before = {host: host_files.read(fleet.lab, host) for host in (HAND, PARTED)}
    report = fleet.folder / "adopted.json"
    run = fleet.play("adopt", "-e", f"gpu_adopt_report={report}")
    assert run.rc == 0, run.text
    for host in (HAND, PARTED):
        assert host_files.differences(before[host], host_files.read(fleet.lab, host)) == {}
    return run, json.loads(report.read_text())


def test_what_the_hosts_are_is_written_and_nothing_on_them_is_touched(fleet, adopted):
    run, report = adopted
    assert report["left_out"] == {} and report["differences"] == {}, run.text
    hand, parted = (report["hosts"][host]["variables"] for host in (HAND, PARTED))
    assert hand["nvidia_toolkit_version"] == "1.20.2" and hand["nvidia_toolkit_runtime"] == "containerd"
    # What the toolkit's packages come with, and NVIDIA's guide leaves.
    assert hand["nvidia_toolkit_device_injection"] == "envvar" and hand["nvidia_toolkit_hold"] is False
    assert hand["nvidia_driver_branch"] == "580" and hand["nvidia_driver_hold"] is False
    assert parted["nvidia_toolkit_runtime"] == "none"
    assert parted["nvidia_mig_layout"] == [{"devices": "all", "instances": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}}]
    assert (parted["nvidia_mig_strategy"], parted["nvidia_mig_restore"]) == ("mixed", False)
    assert "nvidia-mig-manager.service restores the MIG layout at boot" in run.text
    assert "DeepOps: nvidia_driver_branch is 535, and the host has branch 580" in run.text
    assert report["pools"] == {"h100_80gb_sxm_mig": [PARTED], "l40s_48gb": [HAND]}
    assert fleet.folder.joinpath("inventory", "adopted", "group_vars", "h100_80gb_sxm_mig.yml").exists()


@pytest.mark.usefixtures("adopted")
def test_the_first_plan_over_it_shows_nothing_to_do_and_site_changes_nothing(fleet):
    read_with, fleet.inventory = fleet.inventory, fleet.folder / "inventory" / "adopted"
    try:
        planned = fleet.play("plan")
        assert planned.rc == 0 and "2 hosts: 2 as described" in planned.text, planned.text
        before = {host: host_files.read(fleet.lab, host) for host in (HAND, PARTED)}
        ran = fleet.play("site")
        assert ran.rc == 0, ran.text
        for host in (HAND, PARTED):
            assert ran.quiet(host)
            assert host_files.differences(before[host], host_files.read(fleet.lab, host)) == {}
    finally:
        fleet.inventory = read_with


def shown(run, command):
    """What a run shows beside Ansible's own lines: from the first table to the recap."""
    lines = run.text.partition("\nPLAY RECAP")[0].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(("POOL", "HOST")))
    own = [line for line in lines[first:] if not re.match(r"(?:ok|changed|skipping): \[|TASK \[", line)]
    return f"$ {command}\n" + "\n".join(own).strip() + "\n"


def test_the_documentation_shows_what_is_printed(fleet, adopted):
    run, _report = adopted
    folder = str(fleet.folder.resolve())
    told = shown(run, "ansible-playbook -i hosts.yml gpufleet.nvidia.adopt").replace(folder, "/srv/gpu")
    if os.environ.get("RECORD_TRANSCRIPTS"):
        TRANSCRIPT.write_text(told, encoding="utf-8")
    assert TRANSCRIPT.read_text(encoding="utf-8") == told


@pytest.mark.by_name
@pytest.mark.usefixtures("adopted")
def test_what_is_there_is_not_overwritten_unless_that_is_asked_for(fleet):
    hosts = fleet.folder / "inventory" / "adopted" / "hosts.yml"
    mine = hosts.read_text() + "# mine\n"
    hosts.write_text(mine)
    refused = fleet.play("adopt")
    assert refused.rc != 0 and "has files already" in refused.text and hosts.read_text() == mine
    assert fleet.play("adopt", "-e", "gpu_adopt_overwrite=true").rc == 0
    assert "# mine" not in hosts.read_text()


@pytest.mark.usefixtures("adopted")
def test_what_the_next_boot_would_change_and_what_nobody_can_describe_are_named(fleet):
    _select(fleet, "all-disabled")
    # Nothing is shared, and no variable says that the GPUs are for one process each.
    fleet.lab.sh(HAND, "nvidia-smi --compute-mode=EXCLUSIVE_PROCESS")
    run = fleet.play("adopt", "-e", "gpu_adopt_overwrite=true")
    text = " ".join(run.text.split())
    assert run.rc == 0, run.text
    assert "configuration all-disabled, which nvidia-mig-manager.service applies at boot, makes GPU 0 MIG off" in text
    assert "sharing: site would: set compute mode" in text


@pytest.mark.by_name
def test_a_bare_host_and_one_without_a_module_are_written_as_what_they_become(fleet):
    module = "nvidia/$(modinfo -F version nvidia)"
    unload = "systemctl stop nvidia-persistenced; modprobe -r nvidia_uvm nvidia_modeset nvidia"
    fleet.lab.sh(HAND, f"dkms remove {module} --all; {unload}")
    read_with = yaml.safe_load(fleet.inventory.read_text(encoding="utf-8"))["all"]
    hosts = {host: {"ansible_port": fleet.ports[host]} for host in (HAND, BARE)}
    reached = {name: value for name, value in read_with["vars"].items() if name.startswith("ansible_")}
    fleet.inventory = fleet.folder / "half.yml"
    fleet.inventory.write_text(yaml.safe_dump({"all": {"vars": reached, "hosts": hosts}}), encoding="utf-8")
    before = {host: host_files.read(fleet.lab, host) for host in hosts}
    report, written = fleet.folder / "half.json", fleet.folder / "half"
    run = fleet.play("adopt", "-e", f"gpu_adopt_report={report}", "-e", f"gpu_adopt_directory={written}")
    assert run.rc == 0, run.text
    found = json.loads(report.read_text(encoding="utf-8"))
    bare, half = (found["differences"][host][0] for host in (BARE, HAND))
    assert bare.startswith("driver: none is installed. Site would: install driver branch 580"), run.text
    # What site cannot build again is left alone, with what is missing.
    assert half.startswith("driver: 580.") and "has no module of driver 580." in half, run.text
    states = {host: found["hosts"][host]["variables"].get("nvidia_driver_state") for host in hosts}
    assert states == {HAND: "unmanaged", BARE: None}
    for host in hosts:
        assert host_files.differences(before[host], host_files.read(fleet.lab, host)) == {}
    # What is described of the bare one is what a plan can reach from there, though not without work.
    fleet.inventory = written
    planned = fleet.play("plan", "--limit", BARE)
    assert planned.rc == 2 and "0 as described, 1 to change, 0 impossible" in planned.text, planned.text
