# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the lab needs of the machine: root, Linux features and a few Debian packages, which it installs when it may."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .commands import run
from .paths import cache_root
from .progress import LabError, Progress

PROGRAMS = {
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "ssh-keygen": "openssh-client",
    "gcc": "gcc",
    "make": "make",
    "gpg": "gnupg",
    "dpkg-deb": "dpkg",
    "dpkg-scanpackages": "dpkg-dev",
    "apt-ftparchive": "apt-utils",
}
"""Program to the Debian package that has it."""

_FILES = {
    "/usr/include/stdio.h": "libc6-dev",
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
}


def found(program: str) -> str | None:
    """Where a program is, also one for administrators; None where it is not installed."""
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def missing_packages() -> list[str]:
    """The Debian packages that have to be installed before a lab can be built, sorted."""
    wanted = {package for program, package in PROGRAMS.items() if not found(program)}
    wanted |= {package for path, package in _FILES.items() if not Path(path).exists()}
    return sorted(wanted)


def obstacles() -> list[str]:
    """Why a lab cannot run here at all, one sentence with the remedy each; empty if it can."""
    there: list[str] = []
    if platform.system() != "Linux":
        return [f"The lab needs Linux, this is {platform.system()}. Use a Debian 12 machine or virtual machine."]
    if os.geteuid() != 0:
        there.append("The lab boots containers and needs root. Run it with sudo, or as root in a virtual machine.")
    if not _has_filesystem("overlay") and shutil.which("modprobe"):
        subprocess.run(["modprobe", "overlay"], capture_output=True, check=False)
    for name, why in (("overlay", "to give every host its own copy of Debian"), ("cgroup2", "for systemd")):
        if not _has_filesystem(name):
            there.append(f"This kernel has no {name} file system, needed {why}. Load the module or use another kernel.")
    if not shutil.which("apt-get"):
        there.append("apt-get is missing: the lab builds Debian hosts. Use a Debian or Ubuntu machine.")
    there.extend(_cache_obstacles(cache_root()))
    return there


def _cache_obstacles(cache: Path) -> list[str]:
    """Why hosts cannot live in the directory C(cache)."""
    remedy = "Name another directory in GPUFLEET_LAB_CACHE."
    if cache.is_relative_to("/tmp"):
        return [f"The lab's cache {cache} is below /tmp, where systemd-nspawn boots no host. {remedy}"]
    present = next(path for path in (cache, *cache.parents) if path.is_dir())
    done = subprocess.run(["stat", "-f", "-c", "%T", present], capture_output=True, text=True, check=False)
    kind = done.stdout.strip()
    if kind in ("overlayfs", "overlay", "nfs", "fuseblk"):
        return [f"The lab's cache {cache} is on {kind}, which cannot be the writable layer of a host. {remedy}"]
    return []


def _has_filesystem(name: str) -> bool:
    lines = Path("/proc/filesystems").read_text(encoding="ascii").splitlines()
    return any(line.split()[-1:] == [name] for line in lines)


def ensure(progress: Progress, packages: Sequence[str] | None = None) -> None:
    """Refuse where a lab cannot run, and install what is missing where it can.

    :raises LabError: one sentence per missing thing, with the remedy.
    """
    in_the_way = obstacles()
    if in_the_way:
        raise LabError("\n".join(in_the_way))
    wanted = list(missing_packages() if packages is None else packages)
    if not wanted:
        return
    progress.say(f"installing {', '.join(wanted)} from the machine's package archive")
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *wanted]
    try:
        run(install)
    except LabError:
        # The package lists may be missing or too old: fetch them once and try again.
        remedy = f"Give the machine a reachable Debian mirror, or install by hand: {', '.join(wanted)}."
        run(["apt-get", "update"], remedy=remedy)
        run(install, remedy=remedy)
