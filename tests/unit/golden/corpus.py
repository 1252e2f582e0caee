# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts as they are met, each with what its inventory says: the README's, before and after C(site), and what differs from them elsewhere.

Every host was recorded from a lab host, or is one of these with what the other system, board or runtime has in its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_gpus import lost_gpu
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import BOARDS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.schema import check_facts
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.role_variables import HOST_ROLES, role_interface

from ... import recorded_facts
from ..host_documents import installed_program

ROOT = Path(__file__).resolve().parents[3]
_RECORDED = ROOT / "tests" / "unit" / "readme_fleet"
_README = ROOT / "README.md"
Facts = dict[str, Any]


@dataclass(frozen=True)
class Host:
    """A host.

    :param variables: what its inventory says.
    """

    facts: Facts
    variables: Mapping[str, Any] = field(default_factory=dict)


@cache
def described(name: str) -> dict[str, Any]:
    """Return the README's variables of a host."""
    inventory = yaml.safe_load(re.search(r"```yaml\n(.*?)```", _README.read_text(encoding="utf-8"), re.DOTALL)[1])
    fleet = inventory["gpu_hosts"]
    pool = next(one for one in fleet["children"].values() if name in one["hosts"])
    # The recorded hosts have Debian 12's containerd 1.6.
    return {**fleet["vars"], **pool["vars"], "nvidia_toolkit_device_injection": "volume_mounts"}


def recorded(name: str, state: str) -> Facts:
    """Return the facts of one of the README's hosts, C(bare) or C(ready), as a host would say them that this commit had made so."""
    facts = recorded_facts.read(_RECORDED / f"{name}-{state}.json")
    # Lab hosts run the kernel of the machine, so that they have no packages of one.
    facts["host"]["kernel_packages"] = ["linux-headers-amd64", "linux-image-amd64"]
    return as_of_this_commit(facts)


def as_of_this_commit(facts: Facts) -> Facts:
    """Put into facts what changes with every commit, so that no file has it. No step may have it in its text either."""
    if facts["host_program"]["sha256"]:
        facts["host_program"] = installed_program()
    return facts


def ready(name: str = "gpu-training-1", change: Callable[[Facts], Any] | None = None, **variables: Any) -> Host:
    """Return one of the README's hosts after C(site), or as it is after a change."""
    facts = recorded(name, "ready")
    if change is not None:
        change(facts)
    return Host(facts, {**described(name), **variables})


TRAINING, SHARED = "gpu-training-1", "gpu-shared-1"


def lose(facts: Facts, index: int = 1) -> None:
    """A GPU that fell off the bus: nothing is known of it but that the driver counts it."""
    facts["gpus"][index] = lost_gpu(index)
    facts["unknown"][f"gpus[{index}]"] = "nvmlDeviceGetHandleByIndex failed: GPU is lost (GPU_IS_LOST)"


def _half_broken(facts: Facts) -> None:
    """What an upgrade by hand and a reboot leave: another module than library, holds and units gone, the runtime's block removed."""
    driver = facts["driver"]
    driver |= {"on_disk_version": "580.159.03", "library_version": "580.159.03", "holds": [], "nouveau_loaded": True}
    driver["dkms"][0]["state"] = "added"
    driver["persistence_daemon"]["active"] = False
    facts["toolkit"]["packages"]["nvidia-container-toolkit"] = "1.19.1-1"
    facts["runtimes"]["containerd"] |= {"nvidia": False, "binary": None}
    facts["cdi"] = []
    facts["recorded"]["mig_unfinished"] = True
    for gpu in facts["gpus"][4:]:
        gpu["gpu_instances"] = gpu["gpu_instances"][:2]


def without_driver(facts: Facts) -> None:
    """Make a host one whose packages are there and whose module is not loaded."""
    facts["driver"] |= {"loaded_version": None, "modules": []}
    facts["nvml"] |= {"available": False, "code": "driver_not_loaded", "reason": "the driver is not loaded"}
    facts["gpus"] = None
    facts["unknown"]["gpus"] = "NVML does not answer: the driver is not loaded"


def _board(key: str, state: str) -> Host:
    """Return a host with boards of another kind than the README's."""
    board = next(one for one in BOARDS if one.key == key)
    facts = recorded(SHARED, state)
    device = f"0x{board.pci_device_ids[0][2:6].lower()}"
    for card in facts["pci"]:
        card |= {"board": key, "architecture": board.architecture, "device_id": device}
    for gpu in facts["gpus"] or ():
        gpu |= {"board": key, "architecture": board.architecture, "memory_mib": board.total_memory_mib}
        gpu["name"] = (board.product_names or (key,))[0]
    return Host(facts, {"nvidia_toolkit_device_injection": "volume_mounts"})


def _runtime(name: str, version: str, state: str, **facts_of_it: Any) -> Host:
    """Return a host with another runtime than containerd 1.6."""
    facts = recorded(SHARED, state)
    was = facts["runtimes"].pop("containerd")
    facts["runtimes"][name] = {**was, "version": version, **facts_of_it}
    return Host(facts, {**described(SHARED), "nvidia_toolkit_runtime": name, "nvidia_toolkit_device_injection": "auto"})


def _system(state: str, architecture: str = "x86_64", **distribution: str) -> Host:
    """Return a host with another distribution or processor than Debian on x86_64."""
    facts = recorded(SHARED, state)
    managers = {"debian": "apt", "redhat": "dnf", "amazon": "dnf", "suse": "zypper"}
    facts["host"] |= {"distribution": distribution, "architecture": architecture, "kernel_packages": []}
    facts["host"]["package_manager"] = managers[distribution["family"]]
    return Host(facts, {**described(SHARED), "nvidia_sharing_mode": "none", "nvidia_sharing_memory_slice": ""})


#: Of each architecture of GPUs.
_ONE_BOARD_EACH = tuple({board.architecture: board.key for board in reversed(BOARDS)}.values())
_SYSTEMS = {
    "Ubuntu 24.04": {"id": "ubuntu", "version": "24.04", "codename": "noble", "family": "debian"},
    "Ubuntu 24.04 on aarch64": {
        "architecture": "aarch64",
        "id": "ubuntu",
        "version": "24.04",
        "codename": "noble",
        "family": "debian",
    },
    "Rocky 9": {"id": "rocky", "version": "9.6", "family": "redhat"},
    "SLES 15": {"id": "sles", "version": "15.7", "family": "suse"},
    "Amazon Linux 2023": {"id": "amzn", "version": "2023", "family": "amazon"},
}
_RUNTIMES = {
    "containerd": {"version": "2.1.5", "config_version": 3, "cdi": True},
    "docker": {"version": "28.3.2", "config_path": "/etc/docker/daemon.json", "cdi": True},
    "crio": {"version": "1.33.1", "config_path": "/etc/crio/crio.conf", "cdi": True},
    "k3s": {"version": "1.34.1+k3s1", "cdi": True},
    "rke2": {"version": "1.34.1+rke2r1", "cdi": True},
}


@cache
def hosts() -> dict[str, Host]:
    """Return the hosts by their names. Those that L(WITH_EVERY_VARIABLE) names are planned with every variable at other values as well."""
    found = {
        "training after site": ready(TRAINING),
        "shared after site": ready(SHARED),
        "training, bare": Host(recorded(TRAINING, "bare"), described(TRAINING)),
        "shared, bare": Host(recorded(SHARED, "bare"), described(SHARED)),
        "training, half broken": ready(TRAINING, _half_broken),
        "training, a GPU lost": ready(TRAINING, lose),
        "shared, a GPU lost": ready(SHARED, lose),
        "training, the driver not loaded": ready(TRAINING, without_driver),
        "training, without a description": Host(recorded(TRAINING, "ready")),
        "shared, without a description": Host(recorded(SHARED, "ready")),
        "nothing known": Host({"schema": 1, "health": {}}),
    }
    for state in ("bare", "ready"):
        found |= {f"{key}, {state}": _board(key, state) for key in _ONE_BOARD_EACH}
        for name, facts in _RUNTIMES.items():
            found[f"{name} {facts['version']}, {state}"] = _runtime(name, state=state, **facts)
        for name, distribution in _SYSTEMS.items():
            found[f"{name}, {state}"] = _system(state, **distribution)
    for host in found.values():
        check_facts(host.facts)
    return found


#: What people, packages and faults do to a host after C(site), one thing each.
EDITS: dict[str, Callable[[Facts], Any]] = {
    "the toolkit accepts NVIDIA_VISIBLE_DEVICES from unprivileged containers": lambda facts: facts["toolkit"].update(
        accept_envvar_unprivileged=True
    ),
    "the toolkit does not accept volume mounts": lambda facts: facts["toolkit"].update(accept_volume_mounts=False),
    "a release candidate of the toolkit": lambda facts: with_toolkit(facts, "1.20.0~rc.1"),
    "an older toolkit": lambda facts: with_toolkit(facts, "1.19.1"),
    "toolkit packages of two versions": lambda facts: facts["toolkit"]["packages"].update(
        {"libnvidia-container1": "1.19.1-1"}
    ),
    "the toolkit's packages are not held": lambda facts: facts["toolkit"].update(holds=[]),
    "the driver's packages are not held": lambda facts: facts["driver"].update(holds=[]),
    "the driver on disk is another one": lambda facts: facts["driver"].update(
        on_disk_version="580.159.03", library_version="580.159.03"
    ),
    "the driver is of another branch": lambda facts: _driver(facts, "570.195.03"),
    "the modules are the proprietary ones": lambda facts: facts["driver"].update(flavour="proprietary"),
    "the driver came from the .run installer": lambda facts: facts["driver"].update(source="runfile", packages={}),
    "nouveau is loaded": lambda facts: facts["driver"].update(nouveau_loaded=True),
    "the persistence daemon is down": lambda facts: facts["driver"]["persistence_daemon"].update(active=False),
    "the fabric manager is down": lambda facts: facts["fabric"]["manager"].update(active=False),
    "the driver is not loaded": without_driver,
    "a GPU is lost": lose,
    "a GPU is not on the bus": lambda facts: (facts["pci"].pop(), facts["gpus"].pop()),
    "compute mode prohibited": lambda facts: facts["gpus"][0].update(compute_mode="prohibited"),
    "compute mode exclusive": lambda facts: [gpu.update(compute_mode="exclusive_process") for gpu in facts["gpus"]],
    "persistence mode is off": lambda facts: facts["gpus"][0].update(persistence_mode=False),
    "a lower power limit": lambda facts: facts["gpus"][0]["settings"]["power_w"].update(limit=300),
    "settings are recorded that nobody describes": lambda facts: facts["recorded"].update(
        settings={"schema": 1, "power_limit": 300, "ecc": None, "application_clocks": None}
        | {"graphics_clocks": None, "memory_clocks": None}
    ),
    "the runtime is down": lambda facts: facts["runtimes"]["containerd"].update(active=False),
    "the runtime's block is removed": lambda facts: facts["runtimes"]["containerd"].update(nvidia=False, binary=None),
    "the runtime nvidia has another cgroup driver": lambda facts: facts["runtimes"]["containerd"].update(
        cgroup_drivers={"nvidia": "cgroupfs", "runc": "systemd"}
    ),
    "the runtime nvidia is the default": lambda facts: facts["runtimes"]["containerd"].update(default_runtime="nvidia"),
    "there is no CDI specification": lambda facts: facts.update(cdi=[]),
    "the CDI specification lacks a device": lambda facts: facts["cdi"][0].update(missing=["0"]),
    "a second, broken CDI file": lambda facts: facts["cdi"].append(
        {**facts["cdi"][0], "path": "/etc/cdi/nvidia.yaml", "stale": ["/usr/lib/libcuda.so.570.195.03"]}
    ),
    "the CDI specification is of another driver": lambda facts: facts["cdi"][0].update(
        differs=["mounts libraries of driver 570.195.03, but 580.178.04 is loaded"]
    ),
    "an MPS daemon of somebody else": lambda facts: facts["mps"].append(
        {"pid": 77, "pipe_directory": "/tmp/nvidia-mps", "responds": True, "in_container": False, "percentage": 100.0}
        | {"limits": [], "clients": 0, "servers": []}
    ),
    "an unfinished change of MIG": lambda facts: facts["recorded"].update(mig_unfinished=True),
    "metrics are written that nobody asked for": lambda facts: facts.update(host_program=installed_program("/srv")),
    "the host program is gone": lambda facts: facts["host_program"].update(version=None, sha256=None),
    "the host program is of an older release": lambda facts: facts["host_program"].update(
        version="0.9.0", sha256="0" * 64
    ),
    "a unit is not enabled": lambda facts: facts["host_program"]["units"]["gpufleet-mig.service"].update(
        state="disabled"
    ),
    "a unit is masked": lambda facts: facts["host_program"]["units"]["gpufleet-mig.service"].update(state="masked"),
    "an Xid": lambda facts: facts["health"].update(
        xids=[{"number": 79, "pci_address": facts["pci"][0]["address"], "text": "GPU has fallen off the bus"}]
    ),
    "nvidia-smi fails": lambda facts: facts["health"].update(nvidia_smi={"rc": 9, "text": "no devices"}),
}
#: The same of hosts that are divided by MIG.
MIG_EDITS: dict[str, Callable[[Facts], Any]] = {
    "an instance is destroyed": lambda facts: facts["gpus"][0]["gpu_instances"].pop(),
    "MIG is off on a GPU": lambda facts: facts["gpus"][0].update(
        gpu_instances=[], mig={"supported": True, "current": False, "pending": False}
    ),
    "MIG is off after the next reset": lambda facts: facts["gpus"][0]["mig"].update(pending=False),
    "the record of MIG is gone": lambda facts: facts["recorded"].update(mig=None),
    "the record of MIG cannot be read": lambda facts: facts["recorded"].update(mig={"schema": 99}),
    "the record has the instances in another order": lambda facts: [
        (gpu["instances"].reverse(), [one["compute"].reverse() for one in gpu["instances"]])
        for gpu in facts["recorded"]["mig"]["gpus"]
    ],
    "the record of MIG is another one": lambda facts: facts["recorded"]["mig"]["gpus"][0]["instances"].pop(),
}


def _driver(facts: Facts, version: str) -> None:
    driver = facts["driver"]
    driver |= dict.fromkeys(("on_disk_version", "library_version", "loaded_version"), version)
    driver |= {"packages": dict.fromkeys(driver["packages"], f"{version}-1")}
    facts["fabric"]["manager"]["version"] = facts["fabric"]["manager"]["version"] and version


def with_toolkit(facts: Facts, version: str) -> None:
    toolkit = facts["toolkit"]
    toolkit |= {"version": version, "packages": dict.fromkeys(toolkit["packages"], f"{version}-1")}


@cache
def edited() -> dict[str, Host]:
    """Return the README's hosts after C(site) and after one thing that was done to them since."""
    found = {}
    for name, edits in ((TRAINING, {**EDITS, **MIG_EDITS}), (SHARED, EDITS)):
        found |= {f"{name}, {what}": ready(name, edit) for what, edit in edits.items()}
    left = {"supported": True, "current": True, "pending": True}
    found["gpu-training-1, a GPU is left in MIG mode"] = ready(
        TRAINING,
        lambda facts: [
            *(gpu.update(gpu_instances=[], mig=left) for gpu in facts["gpus"][:1]),
            *(
                gpu.update(gpu_instances=[], mig={**left, "current": False, "pending": False})
                for gpu in facts["gpus"][1:]
            ),
            facts["recorded"].update(mig=None),
            facts["kubelet"].update(installed=True, active=True),
        ],
        nvidia_mig_strategy="none",
        nvidia_mig_layout=[],
    )
    for host in found.values():
        check_facts(host.facts)
    return found


#: The hosts that are planned with every variable at other values.
WITH_EVERY_VARIABLE = ("training after site", "shared after site", "training, bare", "training, half broken")
_LAYOUT = [{"devices": "all", "instances": {"7g.80gb": 1}}]
_HOST_MPS = {"nvidia_sharing_mode": "mps", "nvidia_sharing_memory_slice": "8GiB", "nvidia_sharing_mps_manager": "host"}
_SLICED = {"nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 4, "nvidia_sharing_memory_slice": ""}
_DCGM = {"nvidia_dcgm_state": "present"}
_IMEX = {"nvidia_driver_imex": "host"}
_METRICS = {"nvidia_health_metrics": True}
_OWN_MIRROR = {
    "nvidia_driver_repository_url": "https://mirror.example/cuda",
    "nvidia_driver_repository_key_file": "/etc/keys/nvidia.asc",
    "nvidia_driver_repository_key_fingerprint": "A" * 40,
}
_OWN_TOOLKIT_MIRROR = {
    "nvidia_toolkit_repository_url": "https://mirror.example/toolkit",
    "nvidia_toolkit_repository_key_file": "/etc/keys/nvidia.asc",
    "nvidia_toolkit_repository_key_fingerprint": "A" * 40,
}
#: Other values than the default of the variables whose types do not give any: each alone, or with the others that it needs.
VALUES: dict[str, tuple[Any, ...]] = {
    "gpu_facts_pool": ("other",),
    "gpu_facts_gpus": ([{"board": "h100-80gb-sxm", "count": 8}], [{"board": "l40s-48gb", "count": 4}]),
    "gpu_facts_passthrough": (2,),
    "nvidia_driver_branch": ("575", "590"),
    "nvidia_driver_version": ("580.178.04", "580.159.03"),
    "nvidia_driver_repository_url": (_OWN_MIRROR,),
    "nvidia_driver_repository_username": ({**_OWN_MIRROR, "nvidia_driver_repository_username": "reader"},),
    "nvidia_driver_repository_password": ("secret",),
    "nvidia_driver_repository_key_url": ("https://mirror.example/key.asc",),
    "nvidia_driver_repository_key_file": ("/etc/keys/nvidia.asc",),
    "nvidia_driver_repository_key_fingerprint": ("A" * 40,),
    "nvidia_driver_imex_group": ({**_IMEX, "nvidia_driver_imex_group": "rack_1"},),
    "nvidia_driver_imex_address": ({**_IMEX, "nvidia_driver_imex_address": "10.0.0.1"},),
    "nvidia_driver_module_parameters": ({"nvidia_driver_module_parameters": {"NVreg_EnableStreamMemOPs": 1}},),
    "nvidia_driver_advisories": ("/nowhere",),
    "nvidia_driver_releases": ("/nowhere",),
    "nvidia_driver_lock_timeout": (60,),
    "nvidia_toolkit_version": ("1.19.1", "1.18.0"),
    "nvidia_toolkit_repository_url": (_OWN_TOOLKIT_MIRROR,),
    "nvidia_toolkit_repository_username": ({**_OWN_TOOLKIT_MIRROR, "nvidia_toolkit_repository_username": "reader"},),
    "nvidia_toolkit_repository_password": ("secret",),
    "nvidia_toolkit_repository_key_url": ("https://mirror.example/key.asc",),
    "nvidia_toolkit_repository_key_file": ("/etc/keys/nvidia.asc",),
    "nvidia_toolkit_repository_key_fingerprint": ("A" * 40,),
    "nvidia_settings_power_limit": (300, 5000),
    "nvidia_settings_graphics_clocks": ([1410, 1410],),
    "nvidia_settings_memory_clocks": ([2619, 2619],),
    "nvidia_settings_application_clocks": ([2619, 1410],),
    "nvidia_settings_reboot_timeout": (60,),
    "nvidia_settings_lock_timeout": (5,),
    "nvidia_mig_layout": ([], _LAYOUT, "all-balanced", [{"devices": "all", "enabled": False}]),
    "nvidia_mig_busy_instances": (["GPU-0"],),
    "nvidia_mig_restart_services": (["dcgm-exporter"],),
    "nvidia_mig_reboot_timeout": (60,),
    "nvidia_mig_lock_timeout": (5,),
    "nvidia_sharing_mode": (_SLICED, {**_HOST_MPS, "nvidia_sharing_mps_manager": "device_plugin"}),
    "nvidia_sharing_replicas": ({**_SLICED, "nvidia_sharing_replicas": 8}, -1),
    "nvidia_sharing_memory_slice": ("8GiB", "400GiB", "wide"),
    "nvidia_sharing_gpus_per_pod": (2,),
    "nvidia_sharing_time_slice": ({**_SLICED, "nvidia_sharing_time_slice": "short"},),
    "nvidia_sharing_mps_manager": (_HOST_MPS,),
    "nvidia_sharing_mps_scope": tuple({**_HOST_MPS, "nvidia_sharing_mps_scope": one} for one in ("gpu", "instance")),
    "nvidia_sharing_mps_active_thread_percentage": (
        {**_HOST_MPS, "nvidia_sharing_mps_active_thread_percentage": 25.0},
    ),
    "nvidia_sharing_mps_priority": ({**_HOST_MPS, "nvidia_sharing_mps_priority": "below_normal"},),
    "nvidia_sharing_mps_multi_user": ({**_HOST_MPS, "nvidia_sharing_mps_multi_user": "true"},),
    "nvidia_sharing_mps_limits": ({**_HOST_MPS, "nvidia_sharing_mps_limits": [{"gpu": 0, "memory": "16GiB"}]},),
    "nvidia_sharing_mps_protocol": (
        {**_HOST_MPS, "nvidia_sharing_mps_scope": "gpu", "nvidia_sharing_mps_protocol": 3},
    ),
    "nvidia_sharing_mps_disruption": ({**_HOST_MPS, "nvidia_sharing_mps_disruption": "force"},),
    "nvidia_dcgm_version": ({**_DCGM, "nvidia_dcgm_version": "4.5.2"},),
    "nvidia_dcgm_cuda": ({**_DCGM, "nvidia_dcgm_cuda": ["12"]},),
    "nvidia_dcgm_hold": ({**_DCGM, "nvidia_dcgm_hold": False},),
    "nvidia_dcgm_lock_timeout": (5,),
    "nvidia_health_expect": ({"nvidia_health_expect": {"persistence": True}},),
    "nvidia_health_checks": (["pci"],),
    "nvidia_health_cuda_check": ([], ["/usr/bin/vectorAdd"]),
    "nvidia_health_cuda_timeout": (5,),
    "nvidia_health_dcgm_level": ({**_DCGM, "nvidia_health_dcgm_level": 2}, 1),
    "nvidia_health_dcgm_timeout": (5,),
    "nvidia_health_fabric_timeout": (5,),
    "nvidia_health_metrics_directory": (
        {**_METRICS, "nvidia_health_metrics_directory": "/srv/metrics"},
        {**_METRICS, "nvidia_health_metrics_directory": "metrics"},
    ),
}


@cache
def settings() -> dict[str, tuple[dict[str, Any], ...]]:
    """Return of every variable of a host what is set to have it at other values than its default; without any where nobody gave some.

    Of truth values and choices all others are taken.
    """
    found = {}
    for role in HOST_ROLES:
        interface = role_interface(role)
        for name in sorted({*interface.defaults, *interface.options}):
            option, default = interface.options.get(name, {}), interface.defaults.get(name)
            if name in VALUES:
                values = VALUES[name]
            elif option.get("type") == "bool":
                values = (not default,)
            else:
                values = tuple(one for one in option.get("choices", ()) if one != default)
            found[name] = tuple(one if _is_whole(one) else {name: one} for one in values)
    return found


def _is_whole(value: Any) -> bool:
    """Whether a value is several variables with theirs."""
    return isinstance(value, dict) and all(str(one).startswith(HOST_ROLES) for one in value)
