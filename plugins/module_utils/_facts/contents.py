# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the facts document holds, read while NVML, systemd and other programs answer what L(document) asked them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

from .._adapters.cdi_generator import read_cdi
from .._adapters.host_reader import HostReader
from .._adapters.installed_packages import kernel_packages
from .._adapters.pci import read_pci_devices
from .._adapters.processes import EVERY_GPU, add_allocations, process_names, read_allocations
from .._boards.lookup import find_board
from .._printable import LONGEST_OUTPUT, printable
from .._schema import FACTS_SCHEMA
from .driver import read_driver
from .environment import (
    read_dcgm,
    read_fabric,
    read_host_program,
    read_kubelet,
    read_mig_parted,
    read_recorded,
    read_runtimes,
    read_toolkit,
)
from .host import Services, missing_headers, read_host
from .mps import read_mps, read_mps_control

#: Parts that hold texts of many lines.
_WITH_OUTPUT = ("health", "mig_parted")


def shape_pci(device: dict[str, Any]) -> dict[str, Any]:
    """Return one entry of C(pci)."""
    # The id alone works without a driver.
    board = find_board(device["device_id"])
    return {**device, "board": board.key if board else None, "architecture": board.architecture if board else None}


def read_contents(
    source: HostReader,
    subsets: Sequence[str],
    nvml_answer: Callable[[], dict[str, Any]],
    services_answer: Callable[[], Services],
) -> dict[str, Any]:
    """Return the facts document of the host."""
    devices = read_pci_devices(source.files)
    if devices is None:
        source.note("pci", "/sys/bus/pci/devices is not there")
    services = services_answer()
    host = read_host(source)
    driver, packages = read_driver(source, host["package_manager"], services)
    host["kernel_packages"] = None if packages is None else kernel_packages(packages)
    host["headers_not_offered"] += missing_headers(source, host, driver)
    nvml = nvml_answer()
    gpus = nvml["gpus"]
    processes = process_names(source.files)
    allocations = read_allocations(source.files, processes)
    add_allocations(gpus or (), allocations)
    unread = [one["reason"] for one in allocations.get(EVERY_GPU, ())]
    if unread:
        source.note("gpus.allocations", "; ".join(unread))
    runtimes = read_runtimes(source, services, "containers" in subsets)
    folders = [folder for runtime in runtimes.values() for folder in runtime.get("cdi_folders") or ()]
    document: dict[str, Any] = {
        "schema": FACTS_SCHEMA,
        "host": host,
        "pci": None if devices is None else [shape_pci(device) for device in devices if device["kind"] != "other"],
        "driver": driver,
        "nvml": nvml["nvml"],
        "gpus": gpus,
        "fabric": read_fabric(source, devices, services, nvml["fabric_state"], packages),
        "mps": read_mps(source, processes),
        "mps_control": read_mps_control(source),
        "toolkit": read_toolkit(source, packages, driver["holds"]),
        "dcgm": read_dcgm(source, packages, driver["holds"], services),
        "runtimes": runtimes,
        "kubelet": read_kubelet(source, services),
        "cdi": read_cdi(source, gpus, driver["loaded_version"], folders),
        "recorded": read_recorded(source),
        "host_program": read_host_program(source, services),
    }
    # What few callers need is not imported for all of them.
    if "health" in subsets:
        from .health import read_health

        document["health"] = read_health(source, document["pci"])
    if "holders" in subsets:
        document["holders"] = _holders(source)
    if "mig_parted" in subsets:
        document["mig_parted"] = read_mig_parted(source)
    document["unknown"] = dict(sorted(source.unknown.items()))
    # Names of processes, for one, are whatever somebody called them.
    return {
        name: printable(part, lines=True, longest=LONGEST_OUTPUT) if name in _WITH_OUTPUT else printable(part)
        for name, part in document.items()
    }


def _holders(source: HostReader) -> list[dict[str, Any]]:
    from .._adapters.processes import device_holders

    scan = device_holders(source.files)
    if scan.hidden:
        source.note_denied("holders", f"{scan.hidden} processes cannot be inspected")
    return list(scan.holders)
