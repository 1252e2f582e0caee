# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The names of the systemd units that bring GPUs up: those of NVIDIA's packages, and those of the host program."""

from __future__ import annotations

PERSISTENCE_UNIT = "nvidia-persistenced.service"
FABRIC_UNIT = "nvidia-fabricmanager.service"
#: DCGM's host engine (config-files/systemd/nvidia-dcgm.service of NVIDIA/DCGM, and its user guide).
DCGM_UNIT = "nvidia-dcgm.service"
IMEX_UNIT = "nvidia-imex.service"

MIG_UNIT = "gpufleet-mig.service"
CDI_UNIT = "gpufleet-cdi.service"
SETTINGS_UNIT = "gpufleet-settings.service"
SHARING_UNIT = "gpufleet-sharing.service"
#: Those that restore at boot.
BOOT_UNITS = (MIG_UNIT, CDI_UNIT, SETTINGS_UNIT, SHARING_UNIT)


def wants_link(unit: str) -> str:
    """Return the link by which multi-user.target starts C(unit), which is left behind where a package's unit has no [Install] section."""
    return f"/etc/systemd/system/multi-user.target.wants/{unit}"
