# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""By what MPS daemons and shared devices are known: the unit of a host's own daemon, the directory of those that serve pods, names of resources. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

#: The name under which the device plugin offers a GPU.
GPU = "nvidia.com/gpu"
UNIT = "gpufleet-mps@.service"
#: The device plugin's C(mps.root): it mounts C(<root>/<resource>/pipe) and C(<root>/shm), as /dev/shm, into pods.
ROOT = "/run/nvidia/mps"
#: Where a daemon is that nobody told where.
DEFAULT_PIPE_DIRECTORY = "/tmp/nvidia-mps"


def folder_of_gpu(index: int) -> str:
    """Return where the daemon of a GPU has its directories."""
    return f"{ROOT}/gpu{index}"


def pipe_in(folder: str) -> str:
    """Return the directory by which clients find the daemon of a folder."""
    return f"{folder}/pipe"


def instance(name: str) -> str:
    """Return the unit of the daemon C(name)."""
    return UNIT.replace("@", f"@{name}")


def is_instance(unit: str | None) -> bool:
    """Whether C(unit) is one of these daemons."""
    before, after = UNIT.split("@")
    return unit is not None and unit.startswith(f"{before}@") and unit.endswith(after)


def mig_resource(profile: str) -> str:
    """Return the extended resource of a MIG profile under the strategy mixed."""
    return f"nvidia.com/mig-{profile.replace('+', '.')}"


def is_daemon(command_line: Sequence[str]) -> bool:
    """Tell a control daemon from the client of the same name, which has no such option."""
    return any(word in ("-d", "-f", "--daemon", "--foreground") for word in command_line[1:])


def named_devices(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the UUIDs that a daemon was started for; empty for all GPUs. Indices depend on the order of devices: they leave no GPU alone for sure."""
    named = [item.strip() for item in environment.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return tuple(named) if all(item.startswith(("GPU-", "MIG-")) for item in named) else ()
