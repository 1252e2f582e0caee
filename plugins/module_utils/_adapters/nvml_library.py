# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVML through pynvml: find pynvml, open NVML, one call at a time with typed errors, and what NVML says of a machine.

A value that NVML did not give is None, and the C(unknown) of its owner says why, by the value's name.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from .._formats.host_names import CONTAINER_FOLDERS, LIBRARY
from .._plan import Failure
from .files import read_text

#: Error codes of nvml.h that callers ask for by name.
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
VERSION_MISMATCH = 18
IN_USE = 19

_UNAVAILABLE = {
    DRIVER_NOT_LOADED: (
        "driver_not_loaded",
        "the NVIDIA kernel driver is not loaded",
        "Run gpufleet.nvidia.site (role nvidia_driver), or load the module nvidia",
    ),
    LIBRARY_NOT_FOUND: (
        "library_not_found",
        "libnvidia-ml.so.1 is not installed",
        "Run gpufleet.nvidia.site (role nvidia_driver)",
    ),
    VERSION_MISMATCH: (
        "version_mismatch",
        "the loaded kernel driver and libnvidia-ml.so.1 are of different versions",
        "Run gpufleet.nvidia.upgrade, which empties the host and loads the driver on disk, or reboot it",
    ),
    NO_PERMISSION: (
        "no_permission",
        "NVML refused access",
        "Run as root, and look at the device nodes in /dev/nvidia*",
    ),
}


class NvmlUnavailable(Failure):
    """NVML cannot be used on this host now, for a reason of L(_UNAVAILABLE) or C(unknown)."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        self.message = message
        super().__init__(message, reason=reason)


# Both, since pylint as ansible-test runs it does not see what L(Failure) is.
class NvmlError(Failure, Exception):
    """A call that failed, with NVML's code, its symbol without prefix (C(IN_USE)) and its text."""

    def __init__(self, call: str, code: int, symbol: str, message: str) -> None:
        self.call = call
        self.code = code
        self.symbol = symbol
        self.message = message
        super().__init__(f"{call} failed: {message} ({symbol})")


def _load_of_container() -> None:
    """Load the library of the driver container where the host has none: pynvml then gets the one that is loaded under its name."""
    with suppress(OSError):
        ctypes.CDLL(LIBRARY)
        return
    for folder in CONTAINER_FOLDERS:
        with suppress(OSError):
            ctypes.CDLL(f"{folder}/{LIBRARY}")
            return


class Library:
    """pynvml, initialised. Every call goes through L(call), so that every failure is an L(NvmlError)."""

    def __init__(self, pynvml: ModuleType) -> None:
        self.pynvml = pynvml
        self._symbols = {
            value: name[len("NVML_ERROR_") :]
            for name, value in vars(pynvml).items()
            if name.startswith("NVML_ERROR_") and isinstance(value, int)
        }

    def open(self) -> None:
        _load_of_container()
        try:
            self.call("nvmlInit")
        except NvmlError as error:
            reason, meaning, remedy = _UNAVAILABLE.get(error.code, ("unknown", error.message, ""))
            text = f"Failed to open NVML: {meaning} ({error.symbol})."
            raise NvmlUnavailable(reason, f"{text} {remedy}." if remedy else text) from error

    def close(self) -> None:
        """Shut NVML down. A failure is ignored: nothing of the machine's state depends on it."""
        try:
            self.call("nvmlShutdown")
        except NvmlError:
            return

    def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call the function C(name) of pynvml. Raises NvmlError: it failed, or this pynvml or this driver does not have it."""
        function = getattr(self.pynvml, name, None)
        if function is None:
            raise NvmlError(name, FUNCTION_NOT_FOUND, "FUNCTION_NOT_FOUND", "the installed pynvml does not have it")
        try:
            return function(*arguments, **options)
        except self.pynvml.NVMLError as error:
            code = int(getattr(error, "value", 999))
            raise NvmlError(name, code, self._symbols.get(code, str(code)), str(error)) from error

    def constant(self, name: str, default: int) -> int:
        """Return the constant C(name) of pynvml, or C(default) where this pynvml is older than it."""
        return int(getattr(self.pynvml, name, default))


class Reading:
    """Reads several values of one thing; a value that fails becomes None and its reason is kept."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self.unknown: dict[str, str] = {}
        self.lost = False

    def value(self, key: str, name: str, *arguments: Any, **options: Any) -> Any | None:
        """Return what the call C(name) answers, or None after noting under C(key) why it did not."""
        try:
            return self._library.call(name, *arguments, **options)
        except NvmlError as error:
            self.note(key, error)
            return None

    def note(self, key: str, error: NvmlError) -> None:
        self.unknown[key] = str(error)
        self.lost = self.lost or error.code == GPU_IS_LOST


#: The program that the roles install on a host; a Python zipapp with pynvml inside.
HOST_PROGRAM = "/usr/local/lib/gpufleet/gpufleet-host.pyz"


class PynvmlMissing(Failure):
    """No pynvml on this host. The action plugin answers this by sending the controller's."""


def load_pynvml(archive: str | None = None) -> ModuleType:
    """Return the module pynvml, of the zip file C(archive) where one was sent for this call. Raises PynvmlMissing: it is nowhere."""
    for place in (archive, HOST_PROGRAM):
        if place and os.path.isfile(place) and place not in sys.path:
            sys.path.insert(0, place)
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise PynvmlMissing(
            "The Python module pynvml (nvidia-ml-py) is not on this host. Run gpufleet.nvidia.site (role nvidia_driver), "
            "which installs the host program that carries it, or install nvidia-ml-py",
            pynvml_missing=True,
        ) from error


#: C(nvmlDeviceGpuRecoveryAction_t) of nvml.h, in the order of its values; 5 came with branch 595, 6 and 7 with 615.
RECOVERY_ACTIONS = (
    "none",
    "gpu_reset",
    "node_reboot",
    "drain_p2p",
    "drain_and_reset",
    "recover_imex_domain",
    "bus_reset",
    "system_reboot",
)


@dataclass(frozen=True)
class Process:
    """A process that holds a GPU or an instance.

    :param type: C(C) compute, C(G) graphics, C(M+C) a client or server of MPS: the letters of nvidia-smi.
    :param gpu_instance: id of the GPU instance that it runs on; None on a GPU without MIG.
    :param name: from procfs; None when the process has ended since, or runs in another PID namespace.
    """

    pid: int
    name: str | None
    memory_mib: int | None
    type: str
    gpu_instance: int | None = None
    compute_instance: int | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """It as an entry of C(processes) of the facts."""
        found = {"pid": self.pid, "name": self.name, "memory_mib": self.memory_mib, "type": self.type}
        return found if self.gpu_instance is None else {**found, "gpu_instance": self.gpu_instance}


@dataclass(frozen=True)
class GpuState:
    """One GPU: an entry of C(gpus) of the facts document, and its ids in the form of mig-parted's device-filter, C(0x233010DE)."""

    facts: dict[str, Any]
    device_id: str | None = None
    subsystem_id: str | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)

    @property
    def index(self) -> int:
        return int(self.facts["index"])

    @property
    def lost(self) -> bool:
        """Whether NVML knows the GPU but cannot talk to it any more."""
        return bool(self.facts.get("lost"))

    @property
    def unknown_facts(self) -> dict[str, str]:
        """The part of C(unknown) of the facts that is about it: without a handle nothing of it is known but that the driver counts it."""
        path = f"gpus[{self.index}]"
        return {path if name == "handle" else f"{path}.{name}": reason for name, reason in self.unknown.items()}


@dataclass(frozen=True)
class ComputeInstanceProfile:
    """A compute instance profile as the driver offers it inside one GPU instance. C(enum): its index in NVML. C(id): the driver's."""

    enum: int
    id: int
    name: str
    slices: int
    max_instances: int
    multiprocessors: int
    remaining: int | None = None


#: What NVML says where a process is on no instance.
_NO_INSTANCE = 0xFFFFFFFF
_MIB = 1024 * 1024

# A client of MPS is in the list of compute processes as well: the later kind wins.
_KINDS = (
    ("C", "nvmlDeviceGetComputeRunningProcesses"),
    ("G", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("M+C", "nvmlDeviceGetMPSComputeRunningProcesses"),
)


def processes(library: Library, device: Any) -> tuple[Process, ...]:
    """Return the processes on C(device), a GPU (with those on its instances) or a MIG device, by process id. Raises NvmlError: NVML does not tell of
    compute processes.
    """
    found: dict[tuple[int, int | None, int | None], Process] = {}
    for kind, name in _KINDS:
        for raw in _running(library, name, device, required=kind == "C"):
            gpu_instance = _instance(getattr(raw, "gpuInstanceId", None))
            compute_instance = _instance(getattr(raw, "computeInstanceId", None))
            memory = raw.usedGpuMemory
            found[(raw.pid, gpu_instance, compute_instance)] = Process(
                pid=raw.pid,
                name=read_text(f"/proc/{raw.pid}/comm"),
                memory_mib=None if memory is None else memory // _MIB,
                type=kind,
                gpu_instance=gpu_instance,
                compute_instance=compute_instance,
            )
    return tuple(sorted(found.values(), key=lambda p: (p.pid, p.gpu_instance or 0, p.compute_instance or 0)))


def _running(library: Library, name: str, device: Any, required: bool) -> list[Any]:
    for version in ("_v3", "_v2"):
        try:
            return list(library.call(name + version, device))
        except NvmlError as error:
            if error.code == FUNCTION_NOT_FOUND and version == "_v3":
                continue
            if required:
                raise
            if error.code in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
                return []
            raise
    return []


def _instance(number: int | None) -> int | None:
    return None if number is None or number == _NO_INSTANCE else number
