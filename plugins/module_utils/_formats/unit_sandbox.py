# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the services of the host program may not do, as lines of a systemd unit (systemd.exec(5)). Pure.

Not PrivateTmp, because MPS daemons of others have their pipes in /tmp; not ProtectClock, ProtectKernelLogs and what else limits devices, because
that would hide the GPUs; not ProtectKernelModules and ProtectKernelTunables, because the driver's tools load nvidia-uvm and reset GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence


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
        "ProtectControlGroups=yes",
        "SystemCallArchitectures=native",
    ]
