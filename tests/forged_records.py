# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Texts of a user without root in the real kernel's log, where they stay until the machine boots: all of one device, which no host of a test has."""

from __future__ import annotations

import os
import subprocess

ADDRESS = "ffff:ff:1f.0"
XID = f"NVRM: Xid (PCI:{ADDRESS[:-2]}): 79"
SXID = f"nvidia-nvswitch0: SXid (PCI:{ADDRESS}): 20034"
_NOBODY = 65534
#: The kernel prints the name of an option that a file system does not know.
_MOUNT = 'mount -t tmpfs -o "$1" none /proc 2>&1'


def forge(text: str) -> str:
    """Have the kernel print C(text), and return why that was not possible; empty where the kernel was asked."""
    if os.geteuid() != 0:
        return "only root can read /dev/kmsg afterwards"
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _MOUNT, "sh", text],
        user=_NOBODY,
        group=_NOBODY,
        extra_groups=(),
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if "mount:" in done.stdout else f"no user namespace: {done.stderr}"
