# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where NVML's library is on a host, and of which driver it is."""

from __future__ import annotations

import re

from .._adapters.files import HostFiles

LIBRARY = "libnvidia-ml.so.1"
_CACHED_LIBRARY = re.compile(rb"\0(/[^\0]*/libnvidia-ml\.so\.1)\0")
_LIBRARY_VERSION = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")
#: The directories of the dynamic linker on the supported systems, and where Debian and Ubuntu put alternatives.
_LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/local/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
)


def library_path(files: HostFiles) -> str | None:
    """Return the file that C(libnvidia-ml.so.1) stands for, or None where it is not installed."""
    for folder in _LIBRARY_FOLDERS:
        target = files.resolve(f"{folder}/{LIBRARY}")
        if target is not None:
            return target
    # Anywhere else that the dynamic linker was told of. Its cache lists names and paths, each ended by a zero.
    cached = _CACHED_LIBRARY.search(files.read_bytes("/etc/ld.so.cache") or b"")
    return files.resolve(cached.group(1).decode("utf-8", "replace")) if cached else None


def library_version(path: str) -> str | None:
    """Return the driver version that the library's file name carries, or None where it carries none."""
    match = _LIBRARY_VERSION.search(path)
    return match.group(1) if match else None
