# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVML through pynvml: open and close it, one call at a time, with typed errors."""

from __future__ import annotations

from types import ModuleType
from typing import Any

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


class NvmlUnavailable(Exception):
    """NVML cannot be used on this host now.

    :param reason: C(driver_not_loaded), C(library_not_found), C(version_mismatch), C(no_permission) or C(unknown).
    :param message: what that means and what to do.
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        self.message = message
        super().__init__(message)


class NvmlError(Exception):
    """An NVML call that failed.

    :param call: the call, such as C(nvmlDeviceSetMigMode).
    :param code: NVML's error code.
    :param symbol: the code's name without prefix, such as C(IN_USE).
    :param message: NVML's text.
    """

    def __init__(self, call: str, code: int, symbol: str, message: str) -> None:
        self.call = call
        self.code = code
        self.symbol = symbol
        self.message = message
        super().__init__(f"{call} failed: {message} ({symbol})")

    @property
    def reason(self) -> str:
        return str(self)


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
        """Initialise NVML.

        :raises NvmlUnavailable: the driver, the library or the permission is missing.
        """
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
        """Call the function C(name) of pynvml.

        :raises NvmlError: it failed, or this pynvml or this driver does not have it.
        """
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
        """Remember why the value C(key) is missing."""
        self.unknown[key] = error.reason
        self.lost = self.lost or error.code == GPU_IS_LOST
