# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The facts document: everything about one host that any part of the collection decides on, read in one go.

Reading changes nothing and works in every state of a host. What cannot be known is None, and C(unknown) says why, by
path. The document's shape is described in C(docs/architecture.md).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from .._adapters.cdi_specifications import read_cdi
from .._adapters.host_files import HostFiles
from .._adapters.installed_packages import kernel_packages
from .._adapters.pci import PciDevice, read_pci_devices
from .._adapters.processes import device_holders
from .._adapters.pynvml_loader import PynvmlMissing, load_pynvml
from .._adapters.source import Source
from .._printable import LONGEST_OUTPUT, printable
from .boards import board_of_pci
from .driver import library_path, read_driver
from .environment import read_dcgm, read_fabric, read_host_program, read_kubelet, read_recorded, read_toolkit
from .gpus import read_gpus, unavailable
from .health import read_health
from .host import read_host
from .mig_parted import read_mig_parted
from .mps import read_mps, read_mps_control
from .runtimes import read_runtimes
from .schema_version import SCHEMA
from .services import read_services

#: Parts that are long and that few callers need.
SUBSETS = ("errors", "health", "holders", "mig_parted", "profiles")
#: Parts that hold texts of many lines.
_WITH_OUTPUT = ("health", "mig_parted")


def shape_pci(device: PciDevice) -> dict[str, Any]:
    """Return one entry of C(pci)."""
    board, architecture = board_of_pci(device.device_id)
    return {
        "address": device.address,
        "device_id": device.device_id,
        "subsystem_id": device.subsystem_id,
        "class": device.class_id,
        "kind": device.kind,
        "numa_node": device.numa_node,
        "kernel_driver": device.kernel_driver,
        "board": board,
        "architecture": architecture,
    }


def read_document(source: Source, archive: str | None = None, subsets: Sequence[str] = ()) -> dict[str, Any]:
    """Return the facts document of the host.

    :param archive: a zip file with pynvml that was sent for this call.
    :param subsets: of C(SUBSETS), what to add.
    """
    files = source.files
    devices = read_pci_devices(files)
    if devices is None:
        source.note("pci", "/sys/bus/pci/devices is not there")
    services = read_services(source)
    host = read_host(source)
    driver, packages = read_driver(source, host["package_manager"], services)
    host["kernel_packages"] = None if packages is None else kernel_packages(packages)
    nvml = _read_nvml(source, archive, subsets)
    gpus = nvml["gpus"]
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "host": host,
        "pci": None if devices is None else [shape_pci(device) for device in devices if device.kind != "other"],
        "driver": driver,
        "nvml": nvml["nvml"],
        "gpus": gpus,
        "fabric": read_fabric(source, devices, services, nvml["fabric_state"]),
        "mps": read_mps(source),
        "mps_control": read_mps_control(source),
        "toolkit": read_toolkit(source, packages, driver["holds"]),
        "dcgm": read_dcgm(source, packages, driver["holds"], services),
        "runtimes": read_runtimes(source, services),
        "kubelet": read_kubelet(source, services),
        "cdi": read_cdi(source, gpus),
        "recorded": read_recorded(source),
        "host_program": read_host_program(source),
    }
    if "health" in subsets:
        document["health"] = read_health(source)
    if "holders" in subsets:
        document["holders"] = _holders(source)
    if "mig_parted" in subsets:
        document["mig_parted"] = read_mig_parted(source)
    document["unknown"] = dict(sorted(source.unknown.items()))
    # Names of processes, for one, are whatever somebody called them.
    return {name: _shown(name, part) for name, part in document.items()}


def _shown(name: str, part: Any) -> Any:
    return printable(part, lines=True, longest=LONGEST_OUTPUT) if name in _WITH_OUTPUT else printable(part)


def pynvml_is_wanted(files: HostFiles, document: Mapping[str, Any]) -> bool:
    """Return whether the GPUs are unknown only because pynvml is missing: sending it would help."""
    return document["nvml"]["code"] == "pynvml_missing" and library_path(files) is not None


def _read_nvml(source: Source, archive: str | None, subsets: Sequence[str]) -> dict[str, Any]:
    running = source.files if source.files.local else HostFiles()
    if library_path(running) is None and not os.environ.get("LD_LIBRARY_PATH"):
        # Without the library NVML cannot answer, and looking for pynvml would only cost time.
        answer = unavailable("library_not_found", "libnvidia-ml.so.1 is not installed")
    else:
        try:
            load_pynvml(archive)
            return dict(read_gpus(source, archive, subsets))
        except PynvmlMissing as error:
            answer = unavailable("pynvml_missing", str(error))
    for path, reason in answer.pop("unknown").items():
        source.note(path, reason)
    return answer


def _holders(source: Source) -> list[dict[str, Any]]:
    scan = device_holders(source.files)
    if scan.hidden:
        source.note("holders", f"{scan.hidden} processes of other users cannot be looked into; run as root")
    return [
        {
            "pid": holder.pid,
            "command": holder.command,
            "command_line": holder.command_line[:200],
            "devices": list(holder.devices),
            "pod_uid": holder.pod_uid,
            "container_id": holder.container_id,
        }
        for holder in scan.holders
    ]
