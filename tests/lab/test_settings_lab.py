# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Power limit, clocks, ECC and compute mode on a lab host with real systemd: applied by the role, lost by a boot, and there again.

The GPUs are virtual, and what they are set to is read from them (C(virtual-gpu show)), not from what the module says. The tests run in order:
each begins with what the one before left.
"""

from __future__ import annotations

import json
import os

import pytest

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]

HOST = "settings-host"
BASE = {"nvidia_driver_state": "unmanaged", "nvidia_toolkit_runtime": "none", "nvidia_health_fail": False}
WANTED = {
    "nvidia_settings_power_limit": 500,
    "nvidia_settings_graphics_clocks": [1200, 1410],
    "nvidia_settings_ecc": "enabled",
    "nvidia_sharing_compute_mode": "exclusive_process",
}
PLAYBOOK = """
- hosts: gpu_hosts
  gather_facts: false
  become: true
  roles: [gpufleet.nvidia.nvidia_settings, gpufleet.nvidia.nvidia_sharing]
"""


@pytest.fixture(scope="module")
def fleet(make_fleet):
    made = make_fleet(
        "settings",
        {"name": HOST, "group": "g", "boards": [{"board": "h100-80gb-sxm", "count": 2}], "driver": "installed"},
    )
    (made.folder / "settings.yml").write_text(PLAYBOOK, encoding="utf-8")
    return made


def describe(fleet, **variables):
    fleet.describe({"g": {"hosts": [HOST], "vars": {**BASE, **variables}}})


def play(fleet, *options):
    return fleet.play(fleet.folder / "settings.yml", *options)


def shown(fleet):
    """What the virtual GPUs have: watts, the lock of the graphics clock, whether ECC is on, the compute mode."""
    gpus = json.loads(fleet.lab.sh(HOST, "virtual-gpu show"))["gpus"]
    return [
        (
            gpu["settings"]["power_limit_mw"] // 1000,
            gpu["settings"]["graphics_lock"],
            gpu["settings"]["ecc"],
            gpu["compute_mode"],
        )
        for gpu in gpus
    ]


SET = [(500, [1200, 1410], True, "exclusive_process")] * 2
OWN = [(0, [0, 0], True, "default")] * 2


def test_a_value_that_the_board_does_not_take_is_refused_before_anything_is_touched(fleet):
    describe(fleet, **{**WANTED, "nvidia_settings_power_limit": 900})
    done = play(fleet)
    assert done.recap[HOST]["failed"] == 1
    assert "takes 200 to 700 W, not 900 W" in done.text
    assert shown(fleet) == OWN
    assert fleet.lab.status(HOST, "test -e /etc/gpufleet") != 0


def test_check_mode_shows_it_and_sets_nothing(fleet):
    describe(fleet, **WANTED)
    done = play(fleet, "--check", "--diff")
    assert "set the power limit GPU 0" in done.text and "to 500 W" in done.text
    assert shown(fleet) == OWN
    planned = fleet.play("plan")
    assert planned.rc != 0
    assert "set the power limit" in planned.text and "lock the graphics clock" in planned.text


def test_applied_read_back_and_idempotent(fleet):
    done = play(fleet)
    assert done.recap[HOST]["failed"] == 0, done.text
    assert shown(fleet) == SET
    again = play(fleet)
    assert again.quiet(HOST), again.text
    report = fleet.folder / "verify.json"
    fleet.play("verify", "-e", f"gpu_verify_report={report}", "-e", "gpu_verify_fail=false")
    checked = {one["name"]: one for one in json.loads(report.read_text())[HOST]["checks"]}
    assert checked["stage settings"]["status"] == "passed"
    inspected = fleet.play("inspect")
    assert "500 W" in inspected.text and "1200 to 1410 MHz" in inspected.text


@pytest.mark.parametrize("how", ["reboot", "power-cut"])
def test_they_are_there_again_after_a_boot(fleet, how):
    fleet.lab.run(how, HOST)
    fleet.lab.sh(HOST, "systemctl is-active gpufleet-settings.service || journalctl -b -u gpufleet-settings >&2")
    assert shown(fleet) == SET
    assert play(fleet).quiet(HOST)


@pytest.mark.by_name
def test_a_value_that_somebody_changed_is_seen_and_set_back(fleet):
    fleet.module(HOST, "gpu_settings", {"power_limit": 650, "graphics_clocks": [1200, 1410], "ecc": "enabled"})
    fleet.lab.sh(HOST, "sed -i 's/650/500/' /etc/gpufleet/settings.json")
    verified = fleet.play("verify")
    assert verified.rc != 0 and "to 500 W (it is 650 W)" in verified.text
    assert play(fleet).recap[HOST]["failed"] == 0
    assert shown(fleet) == SET


def test_ecc_is_refused_while_somebody_uses_the_gpu_and_reset_into_effect_after(fleet):
    describe(fleet, **{**WANTED, "nvidia_settings_ecc": "disabled", "nvidia_sharing_compute_mode": "auto"})
    fleet.lab.sh(HOST, "systemd-run --unit=foreign sleep 600")
    pid = fleet.lab.sh(HOST, "systemctl show --value --property=MainPID foreign").strip()
    fleet.lab.sh(HOST, f"virtual-gpu run --gpu 1 --pid {pid} --memory 512 --type C")
    try:
        refused = play(fleet)
        assert refused.recap[HOST]["failed"] == 1
        assert f"in use by sleep (PID {pid})" in refused.text
        assert shown(fleet) == SET
    finally:
        fleet.lab.sh(HOST, f"virtual-gpu stop --pid {pid}; systemctl stop foreign")
    done = play(fleet)
    assert done.recap[HOST]["failed"] == 0, done.text
    assert shown(fleet) == [(500, [1200, 1410], False, "default")] * 2
    assert play(fleet).quiet(HOST)


def test_ecc_by_a_reboot_where_resets_are_not_wanted(fleet):
    again = {**WANTED, "nvidia_settings_reset": "never", "nvidia_sharing_compute_mode": "auto"}
    describe(fleet, **again)
    refused = play(fleet)
    assert "nvidia_settings_reset is never" in refused.text and refused.recap[HOST]["failed"] == 1
    answer = fleet.module(
        HOST,
        "gpu_settings",
        {
            "power_limit": 500,
            "graphics_clocks": [1200, 1410],
            "ecc": "enabled",
            "reset": "never",
            "reboot": "allow",
        },
    )
    assert answer["reboot_required"] and "switch ECC on GPU 0" in answer["reboot_reason"]
    assert {(step["kind"], step["waits_for"]) for step in answer["pending"]} == {("set_ecc", "a reboot of the host")}
    fleet.lab.run("reboot", HOST)
    assert shown(fleet) == [(500, [1200, 1410], True, "default")] * 2
    assert play(fleet).quiet(HOST)


def test_what_is_not_described_any_more_goes_back_to_the_boards_own(fleet):
    describe(fleet)
    done = play(fleet)
    assert done.recap[HOST]["failed"] == 0, done.text
    watts = json.loads(fleet.lab.sh(HOST, "virtual-gpu show"))["gpus"][0]["settings"]["power_limit_mw"]
    assert watts == 700000
    assert fleet.lab.status(HOST, "test -e /etc/gpufleet/settings.json") != 0
    assert play(fleet).quiet(HOST)


REPOSITORY = "/srv/gpufleet-lab/repository/compute/cuda/repos/debian12/x86_64"
FILE = "/etc/modprobe.d/gpufleet-nvidia.conf"


def driver(fleet, *options, **arguments):
    """The module that owns the parameters of the kernel module, on the driver that the host has."""
    repository = {
        "url": f"file://{REPOSITORY}",
        "key_file": f"{REPOSITORY}/cuda-archive-keyring.gpg",
        "key_fingerprint": fleet.variables["nvidia_driver_repository_key_fingerprint"],
    }
    version = fleet.lab.sh(HOST, "cat /sys/module/nvidia/version").strip()
    return fleet.module(
        HOST, "driver", {"repository": repository, "version": version, "allow_vulnerable": True, **arguments}, *options
    )


def parameter(fleet, name):
    return fleet.lab.sh(HOST, f"grep '^{name}:' /proc/driver/nvidia/params").split(":", 1)[1].strip()


@pytest.mark.by_name
def test_parameters_of_the_module_are_refused_where_no_board_or_driver_has_them(fleet):
    refused = driver(fleet, coherent_memory="driver")
    assert "no memory that is coherent" in refused["msg"]
    for wrong in ({"Foo": 1}, {"NVreg_X": "a b"}, {"NVreg_RegistryDwords": "RmConfidentialCompute=0"}):
        assert "refusals" in driver(fleet, module_parameters=wrong), wrong
    assert fleet.lab.status(HOST, f"test -e {FILE}") != 0


def test_parameters_of_the_module_are_loaded_read_back_and_there_after_a_boot(fleet):
    wanted = {"NVreg_EnableStreamMemOPs": True, "NVreg_RegistryDwords": "PeerMappingOverride=1;"}
    checked = driver(fleet, "--check", module_parameters=wanted)
    assert [step["kind"] for step in checked["steps"] if step["kind"] in ("write_file", "reload_driver")] == [
        "write_file",
        "reload_driver",
    ]
    assert parameter(fleet, "EnableStreamMemOPs") == "0"
    done = driver(fleet, module_parameters=wanted)
    assert "reload_driver" in [step["kind"] for step in done["steps"]], done
    assert (parameter(fleet, "EnableStreamMemOPs"), parameter(fleet, "RegistryDwords")) == (
        "1",
        '"PeerMappingOverride=1;"',
    )
    assert not driver(fleet, module_parameters=wanted)["changed"]
    fleet.lab.run("reboot", HOST)
    assert parameter(fleet, "EnableStreamMemOPs") == "1"
    assert not driver(fleet, module_parameters=wanted)["changed"]


def test_parameters_wait_for_a_reboot_while_somebody_uses_the_driver(fleet):
    fleet.lab.sh(HOST, "systemd-run --unit=user-of-gpu sleep 600")
    pid = fleet.lab.sh(HOST, "systemctl show --value --property=MainPID user-of-gpu").strip()
    fleet.lab.sh(HOST, f"virtual-gpu run --gpu 0 --pid {pid} --memory 512 --type C")
    try:
        waits = driver(fleet, module_parameters={"NVreg_EnableStreamMemOPs": 0})
        assert waits["reboot_required"] and waits["reboot_reasons"], waits
        assert parameter(fleet, "EnableStreamMemOPs") == "1"
    finally:
        fleet.lab.sh(HOST, f"virtual-gpu stop --pid {pid}; systemctl stop user-of-gpu")
    assert driver(fleet, module_parameters={"NVreg_EnableStreamMemOPs": 0})["changed"]
    assert parameter(fleet, "EnableStreamMemOPs") == "0"


def test_a_parameter_that_the_driver_does_not_have_is_no_success(fleet):
    failed = driver(fleet, module_parameters={"NVreg_NoSuchThing": 1})
    assert "the loaded driver has no parameter NVreg_NoSuchThing" in failed["msg"]
    assert driver(fleet)["changed"]
    assert fleet.lab.status(HOST, f"test -e {FILE}") != 0


NEXT = "6.99.0-1-amd64"


def test_a_kernel_without_the_driver_is_seen_and_nobody_reboots_into_it(fleet):
    fleet.lab.sh(HOST, f"mkdir -p /lib/modules/{NEXT}; touch /lib/modules/{NEXT}/modules.dep /boot/vmlinuz-{NEXT}")
    verified = fleet.play("verify")
    said = f"the kernel {NEXT} is booted next and has no module of the driver"
    assert verified.rc != 0 and said in verified.text, verified.text
    off = {"nvidia_settings_ecc": "disabled", "nvidia_settings_reset": "never", "nvidia_settings_reboot": True}
    describe(fleet, **off)
    before = fleet.facts(HOST)["host"]["boot_id"]
    refused = play(fleet)
    assert refused.recap[HOST]["failed"] == 1 and said in refused.text
    assert fleet.facts(HOST)["host"]["boot_id"] == before
    fleet.lab.sh(HOST, f"rm -r /lib/modules/{NEXT} /boot/vmlinuz-{NEXT}")
    done = play(fleet)
    assert done.recap[HOST]["failed"] == 0, done.text
    assert fleet.facts(HOST)["host"]["boot_id"] != before
    assert [ecc for _watts, _lock, ecc, _mode in shown(fleet)] == [False, False]
    assert play(fleet).quiet(HOST)
