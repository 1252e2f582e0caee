# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rest of the repositories: NVIDIA's keyring package, DCGM, the NVLink subnet manager, and the headers of the running kernel."""

from __future__ import annotations

import platform as machine
from pathlib import Path

from .deb import File, Package
from .scripts import service

KEYRING = "/usr/share/keyrings/cuda-archive-keyring.gpg"
_PIN = "Package: *\nPin: release l=NVIDIA CUDA\nPin-Priority: 600\n"

_DCGM_CORE = "datacenter-gpu-manager-4-core"
#: Where the stand-in of dcgmi finds what it writes, and where it notes how it was called.
ANSWER, CALLS = "/var/lib/lab-dcgm/answer", "/var/lib/lab-dcgm/calls"
_DCGMI = f"""#!/bin/sh
mkdir -p /var/lib/lab-dcgm
echo "$@" >> {CALLS}
if ! systemctl --quiet is-active nvidia-dcgm.service || ! [ -e {ANSWER} ]; then
    echo "Error: unable to establish a connection to the specified host: localhost"
    exit 1
fi
cat {ANSWER}
"""
#: No driver answers an open of the lab's device files.
_HOST_ENGINE = """#!/usr/bin/python3
import os, signal
held = [os.open(path, os.O_PATH) for path in ("/dev/nvidiactl", "/dev/nvidia0") if os.path.exists(path)]
signal.pause()
"""
_DCGM_UNIT = """[Unit]
Description=NVIDIA DCGM service

[Service]
ExecStart=/usr/bin/nv-hostengine

[Install]
WantedBy=multi-user.target
"""


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


def dcgm() -> list[Package]:
    """DCGM's packages for CUDA 12 and 13, by the names and versions that Azure/azhpc-images installs, and DCGM 3.

    Each depends on the core of exactly its version, as those scripts say of the packages multinode; the engine does not start by itself: NVIDIA's guide
    enables it. It has the GPUs open, and dcgmi writes what a test put into C(ANSWER): no GPU is here that it could diagnose.
    """
    found = [Package("datacenter-gpu-manager", "1:3.3.9", "NVIDIA data centre GPU manager", {"Conflicts": _DCGM_CORE})]
    for version in ("1:4.5.3-1", "1:4.6.0-1"):
        core = Package(
            _DCGM_CORE,
            version,
            "NVIDIA data centre GPU manager 4",
            {"Conflicts": "datacenter-gpu-manager"},
            files={
                "/usr/bin/nv-hostengine": File(text=_HOST_ENGINE, executable=True),
                "/usr/bin/dcgmi": File(text=_DCGMI, executable=True),
                "/usr/lib/systemd/system/nvidia-dcgm.service": File(text=_DCGM_UNIT),
            },
            scripts=service("nvidia-dcgm.service", enable=False),
        )
        names = ("proprietary", *(f"{kind}cuda{cuda}" for cuda in (12, 13) for kind in ("", "proprietary-")))
        same = {"Depends": f"{_DCGM_CORE} (= {version})"}
        found += [
            core,
            *(Package(f"datacenter-gpu-manager-4-{name}", version, "part of DCGM 4", same) for name in names),
        ]
    return found


def subnet_manager() -> Package:
    """NVIDIA's subnet manager of NVLink 5, whose versions are not the driver's; its paths are those of siderolabs/extensions#893."""
    return Package(
        "nvlsm",
        "2025.10.11-1",
        "NVIDIA NVLink subnet manager",
        files={
            "/opt/nvidia/nvlsm/sbin/nvlsm": File(
                text="#!/usr/bin/python3\nimport signal\n\nsignal.pause()\n", executable=True
            ),
            "/usr/share/nvidia/nvlsm/nvlsm.conf": File(text="log_file /var/log/nvlsm.log\n"),
        },
    )


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
