# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which installed kernel a host boots next, from files alone, and GRUB's own programs, which choose another one.

A package manager installs kernels beside the running one, and GRUB boots the newest of them, unless its configuration or its environment names
another (GRUB's manual, C(GRUB_DEFAULT), C(saved_entry), C(next_entry)).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .._formats.documents import whole_number
from .command import run
from .files import HostFiles

_MODULES = "/lib/modules"
_ENVIRONMENTS = ("/boot/grub2/grubenv", "/boot/grub/grubenv", "/boot/efi/EFI/redhat/grubenv")
_DEFAULTS = "/etc/default/grub"
_CONFIGURATIONS = ("/boot/grub2/grub.cfg", "/boot/grub/grub.cfg")
_OPENS = re.compile(
    r"\s*(?P<kind>menuentry|submenu)\s+(?P<quote>['\"])(?P<title>.*?)(?P=quote)"
    r"(?:.*?(?:--id|\$\{?menuentry_id_option\}?)\s+(?P<quoted>['\"])(?P<id>.*?)(?P=quoted))?"
)
_LINUX = re.compile(r"\s*linux(?:16|efi)?\s+\S*vmlinuz-(?P<release>\S+)(?P<options>.*)")
_ENTRY = re.compile(r"^(next_entry|saved_entry)=(.+?)\s*$", re.MULTILINE)
_DEFAULT = re.compile(r"^GRUB_DEFAULT=[\"']?([^\"'\n]*)", re.MULTILINE)


def installed_kernels(files: HostFiles) -> tuple[str, ...]:
    """Return the releases of the kernels that can be booted, the oldest first."""
    found = [
        release
        for release in files.names(_MODULES)
        if files.exists(f"/boot/vmlinuz-{release}") or files.exists(f"{_MODULES}/{release}/vmlinuz")
    ]
    return tuple(sorted(found, key=release_order))


def next_kernel(files: HostFiles) -> tuple[str | None, str | None]:
    """Return the release of the kernel that is booted next, or None and why that is not known; two times None without any kernel."""
    kernels = installed_kernels(files)
    if not kernels:
        return None, None
    environment = next((text for path in _ENVIRONMENTS if (text := files.read(path))), "")
    entries = dict(_ENTRY.findall(environment))
    default = _default(files)
    # What was chosen for one boot, what was saved, what is configured.
    for entry in (entries.get("next_entry"), entries.get("saved_entry") if default == "saved" else default):
        if not entry or entry in ("0", "saved"):
            continue
        named = [release for release in kernels if _names(entry, release)]
        if named:
            return max(named, key=len), None
        return None, f"GRUB boots the entry {entry!r}, which names none of the installed kernels"
    return kernels[-1], None


@dataclass(frozen=True)
class Grub:
    """What decides which kernel is booted.

    :param boots_once: whether the configuration takes an entry that was chosen for one boot (C(next_entry)).
    :param entries: what GRUB calls the menu entry of a kernel, by release; recovery entries are not among them.
    :param program: what the names of GRUB's programs begin with; None where the host has none.
    """

    kernels: tuple[str, ...]
    following: str | None
    default: str
    boots_once: bool
    entries: Mapping[str, str]
    grubby: bool
    program: str | None


def read_grub(files: HostFiles) -> Grub:
    configuration = next((text for path in _CONFIGURATIONS if (text := files.read(path))), "")
    return Grub(
        kernels=installed_kernels(files),
        following=next_kernel(files)[0],
        default=_default(files),
        boots_once="next_entry" in configuration,
        entries=parse_entries(configuration),
        grubby=files.find_program("grubby") is not None,
        program=next((name for name in ("grub", "grub2") if files.find_program(f"{name}-reboot")), None),
    )


def parse_entries(text: str) -> dict[str, str]:
    """Return what C(grub.cfg) calls the entries of kernels: identifiers, those of submenus first, as C(grub-reboot) takes them."""
    found: dict[str, str] = {}
    opened: list[str] = []
    for line in text.splitlines():
        entry = _OPENS.match(line)
        if line.rstrip().endswith("{"):
            opened.append((entry.group("id") or entry.group("title")) if entry else "")
        elif line.strip() == "}" and opened:
            opened.pop()
        kernel = _LINUX.match(line)
        if kernel is None or not opened or re.search(r"\s(?:single|recovery)\b", kernel.group("options")):
            continue
        # The first entry of the menu boots whichever kernel is the newest: it does not name one.
        if _names(opened[-1], kernel.group("release")):
            found.setdefault(kernel.group("release"), ">".join(opened))
    return found


def set_default(grub: Grub, release: str) -> None:
    """Have GRUB boot a kernel from now on. The answer proves nothing: callers read L(next_kernel). Raises CommandError: it failed."""
    if grub.grubby:
        run(["grubby", "--set-default", f"/boot/vmlinuz-{release}"], allowed=(0,))
    else:
        run([f"{grub.program}-set-default", grub.entries[release]], allowed=(0,))


def set_once(grub: Grub, release: str) -> None:
    """Have GRUB boot a kernel the next time only. Raises CommandError: it failed."""
    run([f"{grub.program}-reboot", grub.entries[release]], allowed=(0,))


def _default(files: HostFiles) -> str:
    configured = _DEFAULT.findall(files.read(_DEFAULTS) or "")
    return configured[-1].strip() if configured else "0"


def _names(entry: str, release: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(release)}(?![\w.])", entry) is not None


def release_order(release: str) -> list[tuple[int, int, str]]:
    """Order releases as people do: numbers by their value."""
    parts = ((whole_number(part), part) for part in re.split("([0-9]+)", release) if part)
    return [(0, 0, part) if number is None else (1, number, "") for number, part in parts]
