# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Have systemd read changed unit files again, unless that takes GPUs from containers.

On a reload systemd writes the device rules of every container again that it knows of. NVIDIA's hook gives a container its GPUs without telling
systemd, where the runtime's cgroup driver is systemd; those containers lose them ("Failed to initialize NVML: Unknown Error", host.md section 8).
Containers that get their GPUs by CDI, or by the kubelet's list of devices, have them in systemd's own rules.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from .._adapters import systemd
from .._adapters.files import HostFiles
from .._adapters.processes import device_holders, unit_of
from .._facts_view import HolderFacts, open_by
from .._plan import Refused
from .._users import holders_of, names


def reload_units(names: Sequence[str], changed: Collection[str], files: HostFiles | None = None) -> bool:
    """Have systemd read the unit files of C(names) again, where it has an older text of one in memory.

    :param names: units whose files are the caller's.
    :param changed: those of them whose files, or drop-ins, the caller has just written or removed.
    :return: whether systemd was reloaded.
    :raises Refused: containers would lose their GPUs.
    :raises CommandError: systemd refused.
    """
    stale = systemd.outdated(names, changed)
    if not stale:
        return False
    _refuse_loss(stale, files)
    systemd.daemon_reload()
    return True


def _refuse_loss(stale: Sequence[str], files: HostFiles | None = None) -> None:
    losing = losing_containers(files or HostFiles())
    if losing:
        raise Refused(
            "systemd on this host",
            f"it has to read {', '.join(stale)} again (systemctl daemon-reload), which would take the GPUs from containers that NVIDIA's hook gave "
            f"them to: {'; '.join(losing)}",
            "Stop these containers, or run systemctl daemon-reload when they may lose their GPUs, and run this again. Containers that get GPUs by "
            "CDI keep them (nvidia_toolkit_device_injection: cdi).",
        )


def unmask(name: str) -> None:
    """Let a unit be started again, which systemd does not as long as it has the mask in memory.

    :raises Refused: containers would lose their GPUs; the unit is still masked, so that the next run sees it.
    :raises CommandError: systemd refused.
    """
    known = systemd.outdated([name], [name])
    if known:
        _refuse_loss(known)
    systemd.unmask(name)
    reload_units([name], ())


def losing_containers(files: HostFiles) -> tuple[str, ...]:
    """Return the containers whose GPUs systemd does not know of, as people name them.

    A container without a process that has a GPU open right now is not seen.
    """
    scopes: dict[str, list[HolderFacts]] = {}
    for holder in open_by(device_holders(files).holders):
        scope = unit_of(files.read(f"/proc/{holder.pid}/cgroup") or "", ".scope")
        # systemd does not have the containers of the cgroup driver cgroupfs.
        if holder.container_id and scope:
            scopes.setdefault(scope, []).append(holder)
    allowed = systemd.device_rules(scopes)
    losing = [
        holders[0]
        for scope, holders in scopes.items()
        if not all(_is_allowed(device, allowed[scope]) for holder in holders for device in holder.devices)
    ]
    return names(holders_of(losing))


def _is_allowed(device: str, rules: Collection[str] | None) -> bool:
    """Return whether a scope's rules have a device file; None for rules that forbid nothing."""
    if rules is None or device in rules:
        return True
    try:
        number = os.stat(device).st_rdev
    except OSError:
        # Of a device file that is not there any more nothing can be taken.
        return True
    # runc names devices by their numbers, and all minors of one driver by the driver's name (libcontainer/cgroups/devices/systemd.go).
    return f"/dev/char/{os.major(number)}:{os.minor(number)}" in rules or any(
        rule.startswith("char-nvidia") for rule in rules
    )
