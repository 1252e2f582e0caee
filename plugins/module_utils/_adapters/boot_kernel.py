# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which installed kernel a host boots next, from files alone.

A package manager installs kernels beside the running one, and GRUB boots the newest of them, unless its configuration or its environment names
another (GRUB's manual, C(GRUB_DEFAULT), C(saved_entry), C(next_entry)).
"""

from __future__ import annotations

import re

from .host_files import HostFiles

_MODULES = "/lib/modules"
_ENVIRONMENTS = ("/boot/grub2/grubenv", "/boot/grub/grubenv", "/boot/efi/EFI/redhat/grubenv")
_DEFAULTS = "/etc/default/grub"
_ENTRY = re.compile(r"^(next_entry|saved_entry)=(.+?)\s*$", re.MULTILINE)
_DEFAULT = re.compile(r"^GRUB_DEFAULT=[\"']?([^\"'\n]*)", re.MULTILINE)


def installed_kernels(files: HostFiles) -> tuple[str, ...]:
    """Return the releases of the kernels that can be booted, the oldest first."""
    found = [
        release
        for release in files.names(_MODULES)
        if files.exists(f"/boot/vmlinuz-{release}") or files.exists(f"{_MODULES}/{release}/vmlinuz")
    ]
    return tuple(sorted(found, key=_order))


def next_kernel(files: HostFiles) -> tuple[str | None, str | None]:
    """Return the release of the kernel that is booted next, or None and why that is not known; two times None without any kernel."""
    kernels = installed_kernels(files)
    if not kernels:
        return None, None
    environment = next((text for path in _ENVIRONMENTS if (text := files.read(path))), "")
    entries = dict(_ENTRY.findall(environment))
    configured = _DEFAULT.findall(files.read(_DEFAULTS) or "")
    default = configured[-1].strip() if configured else "0"
    # What was chosen for one boot, what was saved, what is configured.
    for entry in (entries.get("next_entry"), entries.get("saved_entry") if default == "saved" else default):
        if not entry or entry in ("0", "saved"):
            continue
        named = [release for release in kernels if _names(entry, release)]
        if named:
            return max(named, key=len), None
        return None, f"GRUB boots the entry {entry!r}, which names none of the installed kernels"
    return kernels[-1], None


def _names(entry: str, release: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(release)}(?![\w.])", entry) is not None


def _order(release: str) -> list[tuple[int, int, str]]:
    """Order releases as people do: numbers by their value."""
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.split(r"(\d+)", release) if part]
