# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The units of the host program as text, and what its services may not do, as lines of a systemd unit (systemd.exec(5)). Pure.

Not PrivateTmp, because MPS daemons of others have their pipes in /tmp; not ProtectClock, ProtectKernelLogs and what else limits devices, because
that would hide the GPUs; not ProtectKernelModules and ProtectKernelTunables, because the driver's tools load nvidia-uvm and reset GPUs. Not
ProtectControlGroups, which mounts /proc anew: where the host is itself a container, what shows it the driver (/proc/driver) is mounted over /proc.
"""

from __future__ import annotations

from collections.abc import Sequence

#: What neither NVML nor NVIDIA's tools do.
_NEEDLESS = (
    "CAP_AUDIT_CONTROL CAP_AUDIT_READ CAP_AUDIT_WRITE CAP_BLOCK_SUSPEND CAP_LEASE CAP_LINUX_IMMUTABLE CAP_MAC_ADMIN CAP_MAC_OVERRIDE "
    "CAP_NET_ADMIN CAP_NET_BIND_SERVICE CAP_NET_BROADCAST CAP_NET_RAW CAP_SYS_BOOT CAP_SYS_TIME CAP_SYS_TTY_CONFIG CAP_WAKE_ALARM"
)


def unit_text(description: str, more: Sequence[str], *sections: Sequence[str]) -> str:
    """Return the text of a unit. C(more): further lines of its section C([Unit]). C(sections): the lines of the others, each with its heading."""
    lines = [
        "# Written by gpufleet.nvidia; changes are overwritten.",
        "[Unit]",
        f"Description={description}",
        "Documentation=https://github.com/gpufleet/gpufleet.nvidia",
        *more,
    ]
    return "\n".join([*lines, *(line for section in sections for line in ("", *section))]) + "\n"


def sandbox(writes: Sequence[str] = (), system: str = "strict") -> list[str]:
    """Return the lines of the section C([Service]).

    :param writes: directories that it writes to, beside /run/gpufleet (the lock) and /var/lib/gpufleet (journals, counted errors).
    :param system: what of the file system cannot be written: C(strict) all but devices, /proc and /sys; C(true) /usr and the boot loader.
    """
    return [
        f"ProtectSystem={system}",
        "RuntimeDirectory=gpufleet",
        "RuntimeDirectoryPreserve=yes",
        "StateDirectory=gpufleet",
        # One that is not there must not keep the program from saying so.
        *(f"ReadWritePaths=-{directory}" for directory in writes),
        "ProtectHome=yes",
        "NoNewPrivileges=yes",
        "RestrictAddressFamilies=AF_UNIX AF_NETLINK",
        "IPAddressDeny=any",
        "RestrictNamespaces=yes",
        "RestrictSUIDSGID=yes",
        "RestrictRealtime=yes",
        "LockPersonality=yes",
        "ProtectHostname=yes",
        "ReadOnlyPaths=-/sys/fs/cgroup",
        f"CapabilityBoundingSet=~{_NEEDLESS}",
        "SystemCallArchitectures=native",
    ]
