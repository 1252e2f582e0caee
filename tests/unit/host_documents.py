# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts of hosts as tests take them: one whole document of a host with two H100, and one of a board that the table does not have."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import CardFacts, Facts, ProgramFacts, view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.host_names import BOOT_UNITS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu_facts import GpuFacts, gpu_view
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.metric_units import METRICS_TIMER
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.plan import unit_texts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import StagePlan
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.mps_instances import instance
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_program import host_program

#: What an entry of a document has at least.
_LEAST = {
    "pci": {"address": "0000:f0:00.0"},
    "mps": {"pid": 900},
    "holders": {"pid": 900, "command": "python3", "devices": []},
    "cdi": {"path": "/etc/cdi/x.yaml"},
}


_PLACE = {"profile": "1g.10gb", "start": 0, "size": 1}


def seen_gpu(gpu: Mapping[str, Any], index: int = 0) -> GpuFacts:
    """Return an entry of C(gpus), completed with what every one has, as planners take it."""
    if isinstance(gpu, GpuFacts):
        return gpu
    instances = [
        {
            **_PLACE,
            "id": number,
            **one,
            "compute_instances": [
                {"profile": "1g.10gb", "id": inner, **part}
                for inner, part in enumerate(one.get("compute_instances") or ())
            ],
        }
        for number, one in enumerate(gpu.get("gpu_instances") or ())
    ]
    return gpu_view({"index": index, **gpu, **({"gpu_instances": instances} if instances else {})})


def seen(document: Mapping[str, Any]) -> Facts:
    """Return a facts document, completed with what every entry has, as planners take it."""
    if isinstance(document, Facts):
        return document
    parts = {name: [{**_LEAST[name], **one} for one in document[name]] for name in _LEAST if document.get(name)}
    found = view_of({**{name: part for name, part in document.items() if name != "gpus"}, **parts})
    if "gpus" not in document:
        return found
    gpus = document["gpus"]
    return found.but(gpus=None if gpus is None else tuple(seen_gpu(gpu, index) for index, gpu in enumerate(gpus)))


def by_document(stage: Callable[[Facts, Any], StagePlan]) -> Callable[[Any, Any], StagePlan]:
    """Return a stage that plans from a facts document, completed with what every entry has. Where it says anything at all, its module has to run."""

    def planned(document: Any, variables: Any) -> StagePlan:
        plan = stage(seen(document), variables)
        assert plan.needed or not (plan.refusals or plan.steps or plan.unknown)
        return plan

    return planned


def card(address: str, device_id: str, architecture: str | None = None, board: str | None = None) -> CardFacts:
    """Return a GPU on the PCI bus."""
    return CardFacts(address, device_id, kind="gpu", board=board, architecture=architecture)


PYTHON = "/usr/bin/python3"


def installed_program(metrics="", daemons=()):
    """Return the part C(host_program) of the facts of a host on which C(site) of this checkout has installed it.

    :param metrics: the directory that it writes metrics to; empty for none.
    :param daemons: names of the MPS daemons of the host.
    """
    program = host_program()
    instances = {instance(name): {"sha256": None, "state": "enabled"} for name in daemons}
    texts = unit_texts(ProgramFacts(python=PYTHON, units=instances), metrics)
    at_boot = (*BOOT_UNITS, METRICS_TIMER)
    return {
        "version": program.version,
        "sha256": program.sha256,
        "python": PYTHON,
        "metrics_directory": metrics or None,
        "metrics_active": bool(metrics),
        "units": {
            name: {
                "sha256": hashlib.sha256(text.encode()).hexdigest(),
                "state": "enabled" if name in at_boot else "disabled",
            }
            for name, text in texts.items()
        }
        | instances,
    }


#: Where the GPUs of a host with eight are on the PCI bus.
ADDRESSES = tuple(f"0000:{bus:02x}:00.0" for bus in (0x18, 0x2A, 0x3A, 0x5D, 0x9A, 0xAB, 0xBA, 0xDB))
MIG_ON = {"supported": True, "current": True, "pending": True}


def h100(index=0, **parts):
    """Return the facts of an H100; without C(parts) MIG is off, and nobody uses it."""
    return {
        "index": index,
        "minor": index,
        "uuid": f"GPU-{index}",
        "pci_address": ADDRESSES[index],
        "name": "NVIDIA H100 80GB HBM3",
        "board": "h100-80gb-sxm",
        "architecture": "hopper",
        "memory_mib": 81559,
        "compute_mode": "default",
        "persistence_mode": True,
        "mig": {"supported": True, "current": False, "pending": False},
        "processes": [],
        "gpu_instances": [],
        **parts,
    }


def h100_settings(limit=700, ecc=True, **clocks):
    """Return C(settings) of an H100; without C(clocks) nothing is locked."""
    most = {"graphics": 1980, "max": [2619, 1980], "application": [2619, 1980], "default": [2619, 1980]}
    return {
        "power_w": {"limit": limit, "default": 700, "min": 200, "max": 700},
        "ecc": {"current": ecc, "pending": ecc},
        "clocks_mhz": {**most, **clocks},
    }


def gpu_instance(number, profile, start, size, processes=()):
    """Return the facts of a GPU instance with one compute instance, C(MIG-<number>), on which C(processes) are."""
    compute = {"id": 0, "profile": profile, "profile_id": 2, "uuid": f"MIG-{number}", "processes": list(processes)}
    return {
        "id": number,
        "profile": profile,
        "profile_id": 9,
        "start": start,
        "size": size,
        "memory_mib": None,
        "processes": list(processes),
        "compute_instances": [compute],
    }


GPU = {
    **h100(mig=MIG_ON),
    "processes": [{"pid": 812, "name": "python3", "memory_mib": 1200, "type": "C"}],
    "gpu_instances": [gpu_instance(1, "3g.40gb", 4, 4, [{"pid": 7, "name": "python3", "memory_mib": 5, "type": "C"}])],
    "errors": {"remap_pending": False, "remap_failed": False, "uncorrected": 0},
    "profiles": [
        {
            "name": "3g.40gb",
            "id": 9,
            "memory_mib": 40448,
            "multiprocessors": 60,
            "max_instances": 2,
            "remaining": 1,
            "starts": [0, 4],
            "size": 4,
        }
    ],
}
WHOLE = {
    **{name: value for name, value in GPU.items() if name != "profiles"},
    "index": 1,
    "uuid": "GPU-1",
    "pci_address": "0000:2a:00.0",
    "mig": {"supported": True, "current": False, "pending": False},
    "gpu_instances": [],
}
_CARD = {
    "address": "0000:18:00.0",
    "device_id": "0x2330",
    "subsystem_id": "0x16c1",
    "class": "0x030200",
    "kind": "gpu",
    "numa_node": 0,
    "kernel_driver": "nvidia",
    "board": "h100-80gb-sxm",
    "architecture": "hopper",
}
FACTS = {
    "schema": 1,
    "host": {
        "name": "a",
        "kernel": "6.1.0-50-amd64",
        "architecture": "x86_64",
        "boot_id": "5f",
        "python": "3.11.2",
        "distribution": {"id": "debian", "version": "12", "codename": "bookworm", "family": "debian"},
        "package_manager": "apt",
        "secure_boot": False,
        "kernel_headers": True,
        "container": False,
    },
    "pci": [_CARD, {**_CARD, "address": "0000:2a:00.0"}],
    "driver": {
        "loaded_version": "580.126.09",
        "on_disk_version": "580.126.09",
        "library_version": "580.126.09",
        "flavour": "open",
        "source": "nvidia",
        "packages": {"nvidia-open": "580.126.09-1"},
        "holds": ["nvidia-open"],
        "nouveau_loaded": False,
        "modules": ["nvidia"],
        "dkms": [{"name": "nvidia", "version": "580.126.09", "kernel": "6.1.0-50-amd64", "state": "installed"}],
        "persistence_daemon": {"installed": True, "active": True},
    },
    "nvml": {"available": True, "reason": None, "code": None, "version": "13.580.126.09", "cuda_version": "13.0"},
    "gpus": [GPU, WHOLE],
    "fabric": {"nvswitches": 4, "manager": {"installed": True, "active": True, "version": "1"}, "state": "completed"},
    "mps": [
        {
            "pipe_directory": "/run/nvidia-mps/0",
            "pid": 9,
            "in_container": False,
            "responds": True,
            "percentage": 25.0,
            "limits": ["4G"],
            "clients": 2,
            "servers": [910],
        }
    ],
    "mps_control": {"installed": True, "multi_user": True},
    "toolkit": {
        "version": "1.20.2",
        "packages": {"nvidia-container-toolkit": "1.20.2-1"},
        "holds": ["nvidia-container-toolkit"],
        "accept_envvar_unprivileged": False,
        "accept_volume_mounts": False,
    },
    "runtimes": {
        "containerd": {
            "version": "2.1.5",
            "active": True,
            "config_path": "/etc/containerd/config.toml",
            "config_version": 3,
            "nvidia": True,
            "binary": "/usr/bin/nvidia-container-runtime",
            "default_runtime": "runc",
            "cdi": True,
            "cgroup_drivers": {"nvidia": "systemd", "runc": "systemd"},
        }
    },
    "kubelet": {"installed": True, "active": True},
    "cdi": [
        {
            "path": "/var/run/cdi/nvidia.yaml",
            "kind": "nvidia.com/gpu",
            "devices": 9,
            "version": "0.5.0",
            "missing": [],
            "stale": [],
        }
    ],
    "recorded": {
        "mig": {
            "schema": 1,
            "request": {},
            "gpus": [{"uuid": "GPU-0", "slot": "0000:18:00.0", "name": "x", "mig": True, "instances": []}],
        },
        "sharing": {"mode": "mps", "daemons": [{"name": "0", "limits_mib": [1], "priority": 0}]},
        "mig_unfinished": False,
    },
    "host_program": installed_program("/metrics", ("0",)),
    "health": {
        "nvidia_smi": {"rc": 0, "text": "GPU 0"},
        "xids": [{"number": 79, "pci_address": "0000:18:00.0", "text": "fallen off the bus"}],
    },
    "holders": [
        {
            "pid": 5,
            "command": "python3",
            "command_line": "python3 x",
            "devices": ["/dev/nvidia0"],
            "pod_uid": "u",
            "container_id": None,
        }
    ],
    "unknown": {"gpus[0].minor": "no reason"},
}
#: A board that the table does not have, with what its driver offers of it.
UNLISTED = {
    **WHOLE,
    "index": 0,
    "name": "NVIDIA X1000 96GB",
    "board": None,
    "memory_mib": 98304,
    "mig": MIG_ON,
    "profiles": [
        {
            "name": name,
            "id": size,
            "memory_mib": 24320 * size,
            "multiprocessors": 30 * size,
            "max_instances": 4 // size,
            "remaining": 4 // size,
            "starts": list(range(0, 4, size)),
            "size": size,
        }
        for name, size in (("1g.24gb", 1), ("2g.48gb", 2), ("4g.96gb", 4))
    ],
}
UNLISTED_FACTS = {
    **FACTS,
    "pci": [{**_CARD, "device_id": "0xffff", "board": None}],
    "gpus": [UNLISTED],
    "unknown": {},
    "recorded": None,
}

#: The variables of a pool that is moved from the GPU Operator's containers to its hosts, and of one that is moved back.
FROM_OPERATOR = {"nvidia_driver_migrate_from": "gpu_operator", "nvidia_toolkit_migrate_from": "gpu_operator"}
TO_OPERATOR = {
    "nvidia_driver_state": "unmanaged",
    "nvidia_driver_migrate_from": "host",
    "nvidia_toolkit_runtime": "none",
    "nvidia_toolkit_migrate_from": "host",
}
