# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
import os

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.installed_packages import InstalledPackage
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.pci import read_pci_devices
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.systemd import Unit
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts import environment
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.host import Services, read_services
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.host_names import (
    IMEX_NODES_FILE,
    MIG_UNIT,
    SETTINGS_UNIT,
    SHARING_UNIT,
    wants_link,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.metric_units import (
    METRICS_SERVICE,
    METRICS_TIMER,
    metric_units,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.mps_instances import UNIT as MPS_UNIT
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.mps_instances import instance


def test_no_fabric(tree):
    assert environment.read_fabric(tree.source(), None, Services(), None) == {
        "nvswitches": 0,
        "manager": {"installed": False, "active": None, "version": None},
        "state": None,
    }
    assert tree.calls == []


def test_fabric(tree):
    for number in range(4):
        tree.pci(f"0000:0{number}:00.0", "0x22a3", "0x068000")
    tree.program("/usr/bin/nv-fabricmanager")
    tree.answers["nv-fabricmanager"] = "Fabric Manager version is : 580.178.04\n"
    tree.folder("/run/systemd/system")
    tree.active = {"nvidia-fabricmanager.service"}
    source = tree.source()
    fabric = environment.read_fabric(source, read_pci_devices(tree.files), read_services(source), "completed")
    assert fabric == {
        "nvswitches": 4,
        "manager": {"installed": True, "active": True, "version": "580.178.04"},
        "state": "completed",
    }


@pytest.mark.parametrize(
    ("device", "lacking"),
    [("0x2901", ["mlx5_ib", "ib_umad"]), ("0x3182", ["mlx5_ib", "ib_umad"]), ("0x2941", None), ("0x2330", None)],
)
def test_the_modules_that_nvlink5_lacks(tree, device, lacking):
    """HGX B200 and B300 are known by the GPU; a GB200's switches are the rack's, and an H100's are NVSwitches."""
    tree.pci("0000:18:00.0", device, "0x030200")
    tree.folder("/sys/module/mlx5_core")
    fabric = environment.read_fabric(tree.source(), read_pci_devices(tree.files), Services(), None)
    assert fabric.get("lacking_modules") == lacking


@pytest.mark.parametrize(
    ("driver", "data", "processor", "found"),
    [
        (
            "mlx5_core",
            "NVIDIA NVSwitch SW_MNG V3",
            "flags\t: fpu hypervisor lm",
            {"switch_ports": 1, "virtual_machine": True},
        ),
        # Without mlx5_core too, for the bus has the data.
        (None, "NVIDIA NVSwitch SW_MNG V3", "", {"switch_ports": 1, "virtual_machine": False}),
        ("mlx5_core", "ConnectX-7", "flags\t: fpu hypervisor lm", {"switch_ports": 0, "virtual_machine": True}),
        ("mlx5_core", "ConnectX-7", "flags\t: fpu lm", {"switch_ports": 0, "virtual_machine": False}),
        # Given to a virtual machine, as NVSwitches are.
        ("vfio-pci", "NVIDIA NVSwitch SW_MNG V3", "flags\t: fpu lm", {"switch_ports": 0, "virtual_machine": False}),
        ("mlx5_core", None, "", {"switch_ports": None, "virtual_machine": False}),
    ],
)
def test_what_manages_the_switches_of_nvlink5(tree, driver, data, processor, found):
    tree.pci("0000:18:00.0", "0x2901", "0x030200")
    tree.pci("0000:05:00.0", "0x1021", "0x020700", driver, vendor="0x15b3")
    tree.pci("0000:06:00.0", "0x22a3", "0x068000", driver)
    if data is None:
        tree.folder("/sys/bus/pci/devices/0000:05:00.0/vpd")
    else:
        tree.write("/sys/bus/pci/devices/0000:05:00.0/vpd", data)
    tree.write("/proc/cpuinfo", processor)
    fabric = environment.read_fabric(tree.source(), read_pci_devices(tree.files), Services(), None)
    assert {name: fabric[name] for name in ("switch_ports", "virtual_machine") if name in fabric} == found
    assert fabric["nvswitches"] == (driver != "vfio-pci")


@pytest.mark.parametrize("device", ["0x2941", "0x2330"])
def test_imex_of_a_racks_host(tree, device):
    tree.pci("0000:18:00.0", device, "0x030200")
    tree.folder("/run/systemd/system")
    tree.active = {"nvidia-imex.service"}
    tree.write(IMEX_NODES_FILE, "10.0.0.1\n\n 10.0.0.2\n")
    tree.link(
        "/etc/systemd/system/multi-user.target.wants/nvidia-imex.service", "/lib/systemd/system/nvidia-imex.service"
    )
    source = tree.source()
    packages = [InstalledPackage("nvidia-imex-580", "580.178.04-1", "NVIDIA")]
    found = environment.read_fabric(source, read_pci_devices(tree.files), read_services(source), "completed", packages)
    shown = {
        "version": "580.178.04",
        "active": True,
        "enabled": True,
        "masked": False,
        "nodes": ["10.0.0.1", "10.0.0.2"],
    }
    assert found.get("imex") == (shown if device == "0x2941" else None)


def test_a_masked_imex_and_none(tree):
    tree.pci("0000:18:00.0", "0x2941", "0x030200")
    bare = environment.read_fabric(tree.source(), read_pci_devices(tree.files), Services(), None)["imex"]
    assert bare == {"version": None, "active": None, "enabled": False, "masked": False, "nodes": None}
    tree.link("/etc/systemd/system/nvidia-imex.service", "/dev/null")
    assert environment.read_fabric(tree.source(), read_pci_devices(tree.files), Services(), None)["imex"]["masked"]


def test_switches_that_only_the_driver_shows(tree):
    for number in range(6):
        tree.folder(f"/proc/driver/nvidia-nvswitch/devices/0000:0{number}:00.0")
    assert environment.read_fabric(tree.source(), (), Services(), None)["nvswitches"] == 6


def test_a_fabric_manager_that_does_not_answer(tree):
    tree.program("/usr/bin/nv-fabricmanager")
    source = tree.source()
    assert environment.read_fabric(source, (), Services(), None)["manager"]["version"] is None
    assert "fabric.manager.version" in source.unknown


TOOLKIT = [
    InstalledPackage("nvidia-container-toolkit", "1.20.2-1", "NVIDIA CORPORATION <cudatools@nvidia.com>"),
    InstalledPackage("nvidia-open", "580.126.09-1", "NVIDIA"),
]


@pytest.mark.parametrize(
    ("config", "envvar", "volume_mounts"),
    [
        (None, True, False),
        ("#accept-nvidia-visible-devices-envvar-when-unprivileged = false\n", True, False),
        ("accept-nvidia-visible-devices-envvar-when-unprivileged = false\n[nvidia-container-cli]\n", False, False),
        ("accept-nvidia-visible-devices-as-volume-mounts = true\n", True, True),
    ],
)
def test_toolkit(tree, config, envvar, volume_mounts):
    tree.program("/usr/bin/nvidia-ctk")
    if config:
        tree.write("/etc/nvidia-container-runtime/config.toml", config)
    assert environment.read_toolkit(tree.source(), TOOLKIT, ["libcuda1"]) == {
        "version": "1.20.2",
        "packages": {"nvidia-container-toolkit": "1.20.2-1"},
        "holds": [],
        "accept_envvar_unprivileged": envvar,
        "accept_volume_mounts": volume_mounts,
        "low_level_runtimes": ["runc", "crun"],
    }
    assert tree.calls == []


@pytest.mark.parametrize(
    ("locks", "held"),
    [
        ([], []),
        (["libnvidia-container1", "nvidia-open"], ["libnvidia-container1"]),
        (["libnvidia-container1-0:1.20.2-1.*"], ["libnvidia-container1"]),
        (["libnvidia-container1-0:1.19.1-1.*"], []),
        (["libnvidia-container*-0:1.20.2-1.*"], ["libnvidia-container-tools", "libnvidia-container1"]),
    ],
)
def test_holds_of_the_toolkit(locks, held):
    packages = dict.fromkeys(("libnvidia-container1", "libnvidia-container-tools"), "1.20.2-1")
    assert environment.held_names(packages, locks) == held


def test_settings_of_the_toolkit_that_decide_for_all_containers(tree):
    tree.program("/usr/bin/nvidia-ctk")
    path, cli = "/etc/nvidia-container-runtime/config.toml", "[nvidia-container-cli]\n"
    tree.write(
        path, f'{cli}root = "/run/nvidia/driver"\nno-cgroups = true\n[nvidia-container-runtime]\nmode = "auto"\n'
    )
    assert environment.read_toolkit(tree.source(), TOOLKIT, [])["settings"] == {
        "nvidia-container-cli.root": "/run/nvidia/driver",
        "nvidia-container-cli.no-cgroups": "True",
        "nvidia-container-runtime.mode": "auto",
    }
    tree.write(path, f"{cli}no-cgroups = false\n")
    assert "settings" not in environment.read_toolkit(tree.source(), TOOLKIT, [])


@pytest.mark.parametrize("content", ["= x", "# gerät\n".encode("latin-1")])
def test_a_broken_toolkit_configuration_is_unknown(tree, content):
    tree.program("/usr/bin/nvidia-ctk")
    tree.write("/etc/nvidia-container-runtime/config.toml", content)
    source = tree.source()
    found = environment.read_toolkit(source, TOOLKIT, [])
    assert found["accept_envvar_unprivileged"] is None and [*found["settings"]] == ["unreadable"]
    assert "toolkit.accept_envvar_unprivileged" in source.unknown


def test_a_toolkit_without_packages_is_asked(tree):
    tree.program("/usr/bin/nvidia-ctk")
    tree.answers["nvidia-ctk"] = "NVIDIA Container Toolkit CLI version 1.20.2\ncommit: d34b3046"
    assert environment.read_toolkit(tree.source(), [], [])["version"] == "1.20.2"
    source = tree.source(local=False)
    assert environment.read_toolkit(source, None, None) == {
        "version": None,
        "packages": None,
        "holds": None,
        "accept_envvar_unprivileged": True,
        "accept_volume_mounts": False,
        "low_level_runtimes": ["runc", "crun"],
    }
    assert {"toolkit.version", "toolkit.packages"} <= set(source.unknown)


@pytest.mark.parametrize(
    ("name", "package", "version"),
    [
        ("nvidia-container-toolkit-base", "1.19.1-1", "1.19.1"),
        ("nvidia-container-toolkit", "1:1.18.0~rc.1-1", "1.18.0~rc.1"),
        ("libnvidia-container1", "1.20.2-1", None),
    ],
)
def test_toolkit_version(tree, name, package, version):
    packages = [InstalledPackage(name, package, "", "amd64")]
    assert environment.read_toolkit(tree.source(local=False), packages, [])["version"] == version


@pytest.mark.parametrize("program", ["kubelet", "k3s", "rke2", "k0s"])
def test_kubelet(tree, program):
    assert environment.read_kubelet(tree.source(), Services()) == {"installed": False, "active": None}
    tree.program(f"/usr/local/bin/{program}")
    assert environment.read_kubelet(tree.source(), Services())["installed"] is True


def test_a_node_of_k0s(tree):
    """gpu-operator#1323: its containerd has its files and its socket elsewhere."""
    tree.program("/usr/local/bin/k0s")
    for states, active in ({"k0sworker": "active"}, True), ({"k0sworker": "inactive"}, False):
        services = Services({name: Unit(name, "loaded", state) for name, state in states.items()})
        assert environment.read_runtimes(tree.source(), services) == {"k0s": {"active": active, "own": False}}
        assert environment.read_kubelet(tree.source(), services) == {"installed": True, "active": active}
    tree.write("/run/k0s/containerd.sock", "")
    assert environment.read_runtimes(tree.source(), Services())["k0s"]["own"] is True


NOTHING_RECORDED = {
    "mig": None,
    "sharing": None,
    "settings": None,
    "heal": None,
    "driver_previous": None,
    "mig_unfinished": False,
    "upgrade_state": None,
    "upgrade_to": None,
    "rolled_out": None,
    "acceptance_owed": False,
    "repartition_unfinished": False,
}


def test_an_acceptance_that_is_owed(tree):
    tree.write("/var/lib/gpufleet/acceptance.json", '{"level": 2}')
    assert environment.read_recorded(tree.source())["acceptance_owed"] is True


@pytest.mark.parametrize(("applied", "fact"), [("", "plan_begun"), (', "applied": false', "plan_begun"), (', "applied": true', "plan_applied")])  # fmt: skip
def test_how_far_a_saved_plan_came(tree, applied, fact):
    tree.write("/var/lib/gpufleet/plan.json", f'{{"plan": "1234"{applied}}}')
    found = environment.read_recorded(tree.source())
    assert {name: value for name, value in found.items() if name.startswith("plan_")} == {fact: "1234"}


def test_no_dcgm(tree):
    nothing = {"packages": {}, "holds": [], "dcgmi": None, "active": None, "enabled": False}
    assert environment.read_dcgm(tree.source(), [], [], Services()) == nothing
    unknown = {**nothing, "packages": None, "holds": None}
    assert environment.read_dcgm(tree.source(), None, None, Services()) == unknown


def test_dcgm(tree):
    core, cuda = "datacenter-gpu-manager-4-core", "datacenter-gpu-manager-4-cuda13"
    packages = [InstalledPackage(name, "1:4.6.0-1", "NVIDIA") for name in (core, cuda, "nvidia-open", "vim")]
    tree.program("/usr/bin/dcgmi")
    tree.folder("/run/systemd/system")
    tree.active = {"nvidia-dcgm.service"}
    tree.link("/etc/systemd/system/multi-user.target.wants/nvidia-dcgm.service", "/usr/lib/systemd/system/x")
    tree.write("/usr/lib/systemd/system/x")
    source = tree.source()
    # The lock as dnf 4 writes it.
    locks = [f"{core}-1:4.6.0-1.*"]
    assert environment.read_dcgm(source, packages, locks, read_services(source)) == {
        "packages": {core: "1:4.6.0-1", cuda: "1:4.6.0-1"},
        "holds": [core],
        "dcgmi": "/usr/bin/dcgmi",
        "active": True,
        "enabled": True,
    }


def test_recorded(tree):
    assert environment.read_recorded(tree.source()) == NOTHING_RECORDED
    tree.write("/etc/gpufleet/mig.json", '{"schema": 1}')
    tree.write("/etc/gpufleet/sharing.json", "{")
    source = tree.source()
    assert environment.read_recorded(source) == {**NOTHING_RECORDED, "mig": {"schema": 1}}
    assert list(source.unknown) == ["recorded.sharing"]


@pytest.mark.parametrize(
    ("lines", "unfinished"),
    [
        ([], True),
        (['{"outcome": "reached"}'], True),
        (['{"outcome": "not_restored"}', '{"followed": true}'], True),
        (['{"outcome": "reached"}', '{"followed": true}'], False),
    ],
)
def test_a_change_of_mig_that_was_cut_off(tree, lines, unfinished):
    tree.write("/var/lib/gpufleet/mig-journal.jsonl", "\n".join(['{"previous": []}', *lines]))
    assert environment.read_recorded(tree.source())["mig_unfinished"] is unfinished


@pytest.mark.parametrize("text", ["[]", "3", '"x"', "null"])
def test_a_record_that_is_something_else(tree, text):
    tree.write("/etc/gpufleet/sharing.json", text)
    source = tree.source()
    assert environment.read_recorded(source)["sharing"] is None
    assert source.unknown["recorded.sharing"] == "/etc/gpufleet/sharing.json is not a JSON object"


@pytest.mark.parametrize(("user", "remedy"), [(1000, "run as root"), (0, "root itself may not here")])
def test_a_record_that_may_not_be_read(tree, monkeypatch, user, remedy):
    monkeypatch.setattr(os, "geteuid", lambda: user)
    tree.folder("/etc/gpufleet/mig.json")
    source = tree.source()
    assert environment.read_recorded(source)["mig"] is None
    assert remedy in source.unknown["recorded.mig"]


def test_a_host_without_the_program(tree):
    nothing = dict.fromkeys(("version", "sha256", "metrics_directory", "metrics_active", "units"))
    assert environment.read_host_program(tree.source(), Services(), "/usr/bin/python3") == {
        **nothing,
        "python": "/usr/bin/python3",
    }


def test_the_program_and_what_systemd_starts_of_it_at_boot(tree):
    tree.folder("/run/systemd/system")
    tree.write("/usr/local/lib/gpufleet/gpufleet-host.pyz", "program")
    tree.write("/usr/local/lib/gpufleet/VERSION", "1.2.3\n")
    folder = "/etc/systemd/system"
    for name in (MIG_UNIT, METRICS_TIMER, MPS_UNIT):
        tree.write(f"{folder}/{name}", name)
    tree.write(f"{folder}/{METRICS_SERVICE}", metric_units("/usr/bin/python3", "/metrics")[METRICS_SERVICE])
    tree.link(f"{folder}/{SETTINGS_UNIT}", "/dev/null")
    for name in (MIG_UNIT, SETTINGS_UNIT, SHARING_UNIT, instance("node")):
        tree.link(wants_link(name), f"{folder}/{name}")
    tree.link(f"{folder}/{instance('gpu0')}", "/dev/null")
    services = Services({METRICS_TIMER: Unit(METRICS_TIMER, "loaded", "active")})
    found = environment.read_host_program(tree.source(), services)
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in (MIG_UNIT, METRICS_TIMER, MPS_UNIT)}
    assert found["sha256"] == hashlib.sha256(b"program").hexdigest() and found["version"] == "1.2.3"
    assert (found["metrics_directory"], found["metrics_active"]) == ("/metrics", True)
    assert found["units"].pop(METRICS_SERVICE)["state"] == "disabled"
    assert found["units"] == {
        MIG_UNIT: {"sha256": digests[MIG_UNIT], "state": "enabled"},
        # Without a file, and masked.
        SHARING_UNIT: {"sha256": None, "state": "enabled"},
        SETTINGS_UNIT: {"sha256": None, "state": "masked"},
        METRICS_TIMER: {"sha256": digests[METRICS_TIMER], "state": "disabled"},
        MPS_UNIT: {"sha256": digests[MPS_UNIT], "state": "disabled"},
        instance("gpu0"): {"sha256": None, "state": "masked"},
        instance("node"): {"sha256": None, "state": "enabled"},
    }


def test_how_far_other_runs_came(tree):
    tree.write(environment.UPGRADE_RECORD, '{"state": "installing"}')
    tree.write(environment.REPARTITION_RECORD, '{"state": "started"}')
    tree.write(environment.HEAL_RECORD, '{"schema": 1, "state": "repairing"}')
    found = environment.read_recorded(tree.source())
    assert (found["upgrade_state"], found["repartition_unfinished"], found["heal"]["state"]) == (
        "installing",
        True,
        "repairing",
    )


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (
            '{"state": "done", "driver": "580.178.04", "former": "575.57.08"}',
            {"driver": "580.178.04", "former": "575.57.08"},
        ),
        ('{"state": "done", "from": "575.57.08"}', None),
        ('{"former_layout": {"layout": []}}', None),
        ("[]", None),
        ("{", None),
    ],
)
def test_what_other_runs_left(tree, written, expected):
    tree.write(environment.UPGRADE_RECORD, written)
    found = environment.read_recorded(tree.source())["rolled_out"]
    assert found is None if expected is None else {name: found[name] for name in expected} == expected


@pytest.mark.parametrize("upgraded", [None, '{"state": "done", "driver": "580.178.04"}', "{"])
@pytest.mark.parametrize("written", ['{"layout": [], "strategy": "none"}', "{}", "[1]", "{"])
def test_the_layout_that_a_repartition_replaced_stands_beside_what_an_upgrade_left(tree, upgraded, written):
    if upgraded:
        tree.write(environment.UPGRADE_RECORD, upgraded)
    tree.write(environment.FORMER_LAYOUT, written)
    found = environment.read_recorded(tree.source())["rolled_out"] or {}
    assert found.get("driver", "") == ("580.178.04" if "driver" in str(upgraded) else "")
    assert found.get("former_layout") == ({"layout": [], "strategy": "none"} if "layout" in written else None)
