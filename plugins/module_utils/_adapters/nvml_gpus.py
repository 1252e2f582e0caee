# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a machine's GPUs through NVML, and change their MIG mode, instances and compute mode.

A read that fails gives None and a reason in C(unknown); a GPU that is lost does not hide the others. Every function that changes is one change: what
is changed, and in which order, is in the plan. A return is not a proof: callers read back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from .._boards.board import name_of
from .._boards.lookup import find_board
from .nvml_instances import (
    compute_instance_profiles,
    gpu_instance_profiles,
    gpu_instances,
    mig_device_handles,
    with_places,
)
from .nvml_library import (
    IN_USE,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    ComputeInstanceProfile,
    GpuState,
    Library,
    NvmlError,
    Process,
    Reading,
    load_pynvml,
    processes,
)

_COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
_MIB = 1024 * 1024
_MIG_UNKNOWN: dict[str, bool | None] = {"supported": None, "current": None, "pending": None}


@contextmanager
def open_nvml(archive: str | None = None) -> Iterator[Nvml]:
    """Open NVML for the block, with pynvml of the zip file C(archive) where one was sent for this call. Raises PynvmlMissing or NvmlUnavailable."""
    nvml = Nvml(Library(load_pynvml(archive)))
    nvml.open()
    try:
        yield nvml
    finally:
        nvml.close()


class Nvml:
    """An open NVML. GPUs are named by their index in NVML, which is their rank by PCI address."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self._devices: dict[int, Any] = {}
        self._profiles: dict[int, tuple[dict[str, Any], ...]] = {}

    def open(self) -> None:
        self.library.open()

    def close(self) -> None:
        """Shut NVML down and forget every handle."""
        self._devices.clear()
        self._profiles.clear()
        self.library.close()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Close NVML for the block: a GPU cannot be reset while anybody, this process included, has it open. Raises NvmlUnavailable: it cannot be
        opened again.
        """
        self.close()
        try:
            yield
        finally:
            self.open()

    def driver_version(self) -> str | None:
        return Reading(self.library).value("driver_version", "nvmlSystemGetDriverVersion")

    def versions(self) -> tuple[dict[str, str | None], dict[str, str]]:
        """Return C(version) of NVML and C(cuda_version), such as C(13.0), that the driver supports, as in the facts, and why one is not known."""
        reading = Reading(self.library)
        version = reading.value("version", "nvmlSystemGetNVMLVersion")
        cuda = reading.value("cuda_version", "nvmlSystemGetCudaDriverVersion")
        supported = None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}"
        return {"version": version, "cuda_version": supported}, reading.unknown

    def count(self) -> int:
        return int(self.library.call("nvmlDeviceGetCount"))

    def gpus(self) -> list[GpuState]:
        """Return every GPU with its instances and processes, by index. Raises NvmlError: NVML does not tell how many GPUs there are."""
        return [self.gpu(index) for index in range(self.count())]

    def gpu(self, index: int) -> GpuState:
        """Return one GPU; a GPU that cannot be reached has C(lost) set and everything else unknown."""
        reading = Reading(self.library)
        try:
            device = self.device(index)
        except NvmlError as error:
            reading.note("handle", error)
            return GpuState(lost_gpu(index), unknown=reading.unknown)
        pci = reading.value("pci_address", "nvmlDeviceGetPciInfo_v3", device)
        memory = reading.value("memory_mib", "nvmlDeviceGetMemoryInfo", device)
        memory_mib = None if memory is None else memory.total // _MIB
        device_id = None if pci is None else f"0x{pci.pciDeviceId:08X}"
        name = reading.value("name", "nvmlDeviceGetName", device)
        board = find_board(device_id, name, memory_mib)
        architecture = reading.value("architecture", "nvmlDeviceGetArchitecture", device)
        compute_mode = reading.value("compute_mode", "nvmlDeviceGetComputeMode", device)
        persistence = reading.value("persistence_mode", "nvmlDeviceGetPersistenceMode", device)
        mode = self._mig_mode(reading, device)
        running = self._processes(reading, device, mode)
        known = name_of(architecture) if architecture is not None else None
        facts = {
            "index": index,
            "minor": reading.value("minor", "nvmlDeviceGetMinorNumber", device),
            "uuid": reading.value("uuid", "nvmlDeviceGetUUID", device),
            "pci_address": None if pci is None else pci_address(_text(pci.busId)),
            "name": name,
            "board": board.key if board else None,
            "architecture": known or (board.architecture if board else None),
            "memory_mib": memory_mib,
            "compute_mode": None if compute_mode is None else _COMPUTE_MODES.get(compute_mode, str(compute_mode)),
            "persistence_mode": None if persistence is None else bool(persistence),
            "mig": mode,
            "processes": None if running is None else [process.facts for process in running],
            "gpu_instances": self._instances(reading, index, mode, memory_mib, running),
            **({"lost": True} if reading.lost else {}),
        }
        subsystem_id = None if pci is None else f"0x{pci.pciSubSystemId:08X}"
        return GpuState(facts, device_id, subsystem_id, reading.unknown)

    def profiles(self, index: int, remaining: bool = True) -> list[dict[str, Any]]:
        """Return the live table of GPU instance profiles of one GPU, as C(profiles) of the facts; empty on a board without MIG. Places and remaining
        capacity are None where the driver does not tell them: while MIG is off, branch 580 does.
        """
        device = self.device(index)
        if index not in self._profiles:
            memory = Reading(self.library).value("memory_mib", "nvmlDeviceGetMemoryInfo", device)
            self._offered(index, device, None if memory is None else memory.total // _MIB)
        return with_places(self.library, device, self._profiles[index], remaining)

    def forget_profiles(self) -> None:
        """Ask for the tables of profiles anew when they are needed next."""
        self._profiles.clear()

    def compute_profiles(
        self, index: int, gpu_instance_id: int, name: str, slices: int
    ) -> tuple[ComputeInstanceProfile, ...]:
        """Return the compute instance profiles that the driver offers inside one existing GPU instance, which is of the profile C(name) with C(slices)."""
        handle = self.gpu_instance_handle(index, gpu_instance_id)
        return compute_instance_profiles(self.library, handle, name, slices, remaining=True)

    def device(self, index: int) -> Any:
        """Return NVML's handle of one GPU. Raises NvmlError: the GPU is lost or there is none of that index."""
        if index not in self._devices:
            self._devices[index] = self.library.call("nvmlDeviceGetHandleByIndex", index)
        return self._devices[index]

    def call(self, name: str, index: int, *arguments: Any) -> Any:
        """Call a function of NVML that is about one GPU. Raises NvmlError: it failed, or the GPU cannot be reached."""
        return self.library.call(name, self.device(index), *arguments)

    def told(self, name: str, index: int, *arguments: Any) -> Any | None:
        """Return what L(call) returns, or None where it fails: boards and drivers differ in what they tell."""
        try:
            return self.call(name, index, *arguments)
        except NvmlError:
            return None

    def gpu_instance_handle(self, index: int, gpu_instance_id: int) -> Any:
        return self.call("nvmlDeviceGetGpuInstanceById", index, gpu_instance_id)

    def _mig_mode(self, reading: Reading, device: Any) -> dict[str, bool | None]:
        try:
            current, pending = self.library.call("nvmlDeviceGetMigMode", device)
        except NvmlError as error:
            if error.code == NOT_SUPPORTED:
                return {**_MIG_UNKNOWN, "supported": False}
            reading.note("mig", error)
            return dict(_MIG_UNKNOWN)
        return {"supported": True, "current": bool(current), "pending": bool(pending)}

    def _processes(self, reading: Reading, device: Any, mode: Mapping[str, bool | None]) -> tuple[Process, ...] | None:
        """Return the processes of a GPU; on a GPU in MIG mode each one with its instance."""
        try:
            running = processes(self.library, device)
            if mode["current"] and any(process.gpu_instance is None for process in running):
                running = self._placed(device, running)
            return running
        except NvmlError as error:
            if not mode["current"]:
                reading.note("processes", error)
                return None
        try:
            # Some drivers answer for MIG devices only, and not for the GPU they are on.
            return self._placed(device, ())
        except NvmlError as error:
            reading.note("processes", error)
            return None

    def _placed(self, device: Any, running: tuple[Process, ...]) -> tuple[Process, ...]:
        """Ask every MIG device for its processes, and keep of C(running) those that none of them names."""
        placed: list[Process] = []
        for _index, handle in mig_device_handles(self.library, device):
            gpu_instance = self.library.call("nvmlDeviceGetGpuInstanceId", handle)
            compute_instance = self.library.call("nvmlDeviceGetComputeInstanceId", handle)
            found = processes(self.library, handle)
            placed += [replace(one, gpu_instance=gpu_instance, compute_instance=compute_instance) for one in found]
        known = {process.pid for process in placed}
        placed.extend(process for process in running if process.pid not in known)
        return tuple(sorted(placed, key=lambda process: process.pid))

    def _instances(
        self,
        reading: Reading,
        index: int,
        mode: Mapping[str, bool | None],
        memory_mib: int | None,
        running: tuple[Process, ...] | None,
    ) -> list[dict[str, Any]]:
        if not mode["current"]:
            return []
        device = self.device(index)
        try:
            return gpu_instances(self.library, device, self._offered(index, device, memory_mib), running or ())
        except NvmlError as error:
            reading.note("gpu_instances", error)
            return []

    def _offered(self, index: int, device: Any, memory_mib: int | None) -> tuple[dict[str, Any], ...]:
        """Return the table of profiles without places, which does not change while the driver is loaded."""
        if index not in self._profiles:
            self._profiles[index] = gpu_instance_profiles(self.library, device, memory_mib)
        return self._profiles[index]


def lost_gpu(index: int) -> dict[str, Any]:
    """Return the entry of C(gpus) of a GPU that cannot be reached: nothing of it is known."""
    values = (
        "minor",
        "uuid",
        "pci_address",
        "name",
        "board",
        "architecture",
        "memory_mib",
        "compute_mode",
        "persistence_mode",
    )
    found: dict[str, Any] = {"index": index, **dict.fromkeys(values)}
    return {**found, "mig": dict(_MIG_UNKNOWN), "processes": None, "gpu_instances": [], "lost": True}


def pci_address(text: str) -> str:
    """Return a PCI address as sysfs writes it: C(00000000:18:00.0) becomes C(0000:18:00.0)."""
    domain, rest = text.strip().lower().split(":", 1)
    return f"{int(domain, 16):04x}:{rest}"


def _text(raw: Any) -> str:
    return raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)


#: What L(set_mig_mode) answers.
ACTIVE = "active"
PENDING_IN_USE = "in_use"
PENDING_RESET = "reset_required"

COMPUTE_MODES = {"default": 0, "prohibited": 2, "exclusive_process": 3}


def set_mig_mode(nvml: Nvml, index: int, enabled: bool) -> str:
    """Ask for MIG mode C(enabled) on one GPU. The call succeeds even when the mode does not change yet: the activation status tells the truth.
    Returns C(active), C(in_use) (somebody holds the GPU) or C(reset_required), or the error's name.
    """
    status = int(nvml.call("nvmlDeviceSetMigMode", index, int(enabled)))
    return {0: ACTIVE, IN_USE: PENDING_IN_USE, RESET_REQUIRED: PENDING_RESET}.get(status, f"status {status}")


def create_gpu_instance(nvml: Nvml, index: int, profile_id: int, start: int, size: int) -> int:
    """Make a GPU instance at a place and return its id. Raises NvmlError: the place is taken (INSUFFICIENT_RESOURCES), or the driver refused otherwise."""
    place = nvml.library.pynvml.c_nvmlGpuInstancePlacement_t()
    place.start, place.size = start, size
    handle = nvml.call("nvmlDeviceCreateGpuInstanceWithPlacement", index, profile_id, ctypes.byref(place))
    return int(nvml.library.call("nvmlGpuInstanceGetInfo", handle).id)


def create_compute_instance(nvml: Nvml, index: int, gpu_instance_id: int, profile_id: int) -> int:
    """Make a compute instance inside a GPU instance, where the driver puts it, and return its id. Raises NvmlError: the driver refused."""
    parent = nvml.gpu_instance_handle(index, gpu_instance_id)
    handle = nvml.library.call("nvmlGpuInstanceCreateComputeInstance", parent, profile_id)
    return int(nvml.library.call("nvmlComputeInstanceGetInfo", handle).id)


def destroy_compute_instance(nvml: Nvml, index: int, gpu_instance_id: int, compute_instance_id: int) -> None:
    """Destroy one compute instance. Raises NvmlError: a process is on it (IN_USE), it is gone (NOT_FOUND), or the driver refused otherwise."""
    parent = nvml.gpu_instance_handle(index, gpu_instance_id)
    handle = nvml.library.call("nvmlGpuInstanceGetComputeInstanceById", parent, compute_instance_id)
    nvml.library.call("nvmlComputeInstanceDestroy", handle)


def destroy_gpu_instance(nvml: Nvml, index: int, gpu_instance_id: int) -> None:
    """Destroy one GPU instance, which must hold no compute instance. Raises NvmlError: it holds one (IN_USE), it is gone (NOT_FOUND), or the driver
    refused otherwise.
    """
    nvml.library.call("nvmlGpuInstanceDestroy", nvml.gpu_instance_handle(index, gpu_instance_id))


def set_compute_mode(nvml: Nvml, index: int, mode: str) -> None:
    """Set the compute mode: C(default), C(prohibited) or C(exclusive_process). Raises NvmlError: the driver refused."""
    nvml.call("nvmlDeviceSetComputeMode", index, COMPUTE_MODES[mode])
