# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rest of the repositories: NVIDIA's keyring package, DCGM, and the headers of the running kernel."""

from __future__ import annotations

import platform as machine
from pathlib import Path

from .deb import File, Package

KEYRING = "/usr/share/keyrings/cuda-archive-keyring.gpg"
_PIN = "Package: *\nPin: release l=NVIDIA CUDA\nPin-Priority: 600\n"


def cuda_keyring(key: Path, list_name: str, address: str) -> Package:
    """The keyring package as NVIDIA's: the key, the repository's line and a pin of 600."""
    return Package(
        "cuda-keyring",
        "1.1-1",
        "GPG keyring for the CUDA repository",
        files={
            KEYRING: File(source=key),
            f"/etc/apt/sources.list.d/{list_name}": File(text=f"deb [signed-by={KEYRING}] {address} /\n"),
            "/etc/apt/preferences.d/cuda-repository-pin-600": File(text=_PIN),
        },
        configuration=(f"/etc/apt/sources.list.d/{list_name}", "/etc/apt/preferences.d/cuda-repository-pin-600"),
        architecture="all",
    )


def dcgm() -> Package:
    """DCGM's core package: its name and version; the lab has no DCGM."""
    return Package("datacenter-gpu-manager-4-core", "1:4.6.0-1", "NVIDIA data centre GPU manager 4")


def kernel_headers() -> Package:
    """The headers of the running kernel, as far as DKMS and the lab's modules need them."""
    release = machine.release()
    place = f"/usr/src/linux-headers-{release}"
    return Package(
        f"linux-headers-{release}",
        f"{release.split('-')[0]}-1",
        f"Header files for Linux {release}",
        files={
            f"{place}/include/generated/utsrelease.h": File(text=f'#define UTS_RELEASE "{release}"\n'),
            # DKMS reads the compiler and the options that modules ask for here.
            f"{place}/.config": File(text="CONFIG_MODULES=y\n"),
            f"{place}/include/config/kernel.release": File(text=f"{release}\n"),
            f"/usr/lib/modules/{release}/build": File(link=place),
        },
        note="A stand-in of the lab for the kernel that this machine runs; only what DKMS looks at.",
    )
