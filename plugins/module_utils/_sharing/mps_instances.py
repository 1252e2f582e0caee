# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""By what MPS daemons are known on a host: the systemd unit of its own, and the directory below which those that serve pods are. Pure."""

from __future__ import annotations

UNIT = "gpufleet-mps@.service"
#: The device plugin's C(mps.root): it mounts C(<root>/<resource>/pipe) and C(<root>/shm), as /dev/shm, into pods.
ROOT = "/run/nvidia/mps"


def instance(name: str) -> str:
    """Return the unit of the daemon C(name)."""
    return UNIT.replace("@", f"@{name}")


def is_instance(unit: str | None) -> bool:
    """Whether C(unit) is one of these daemons."""
    before, after = UNIT.split("@")
    return unit is not None and unit.startswith(f"{before}@") and unit.endswith(after)


GPU = "nvidia.com/gpu"


def mig_resource(profile: str) -> str:
    """Return the extended resource of a MIG profile under the strategy mixed."""
    return f"nvidia.com/mig-{profile.replace('+', '.')}"
