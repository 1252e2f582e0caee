# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The names of the systemd units that bring GPUs up, of IMEX's files, and of the records that the playbooks of day two keep on a host."""

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


IMEX_NODES_FILE = "/etc/nvidia-imex/nodes_config.cfg"
#: The link by which systemd knows that the unit is masked.
IMEX_MASK = f"/etc/systemd/system/{IMEX_UNIT}"
#: The link by which it starts at boot.
IMEX_WANTS = wants_link(IMEX_UNIT)


UPGRADE_RECORD = "/var/lib/gpufleet/upgrade.json"
#: The steps of one node, in order. A node whose record has one of them was cut off there.
UPGRADE_STEPS = ("started", "waiting-for-jobs", "evicting", "installing", "verifying", "returning", "rolling-back")
#: There as long as a repartition, or an upgrade that stopped services, is not at its end.
REPARTITION_RECORD = "/var/lib/gpufleet/repartition.json"
STOPPED_RECORD = "/var/lib/gpufleet/upgrade-stopped.json"
#: What was tried to repair the host.
HEAL_RECORD = "/var/lib/gpufleet/heal.json"
#: Where bundles for people are put, a folder each; only root can read them.
BUNDLES = "/var/lib/gpufleet/bundles"

#: The library of NVML, and where the GPU Operator's driver container mounts its own root on the host, with its libraries.
LIBRARY = "libnvidia-ml.so.1"
DRIVER_CONTAINER = "/run/nvidia/driver"
CONTAINER_FOLDERS = tuple(
    f"{DRIVER_CONTAINER}/usr/{name}" for name in ("lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64")
)
