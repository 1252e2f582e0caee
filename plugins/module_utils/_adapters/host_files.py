# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read files of a host whose file system may be mounted elsewhere.

All paths are the host's own (absolute, as the host sees them). Symbolic links, also absolute ones such as those of
Debian's alternatives, are followed inside the host's root. Nothing here fails: what cannot be read is None.
"""

from __future__ import annotations

import fnmatch
import os
import stat
from collections.abc import Iterator

from .files import open_regular

PROGRAM_FOLDERS = (
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    # Where a driver is that is mounted from outside.
    "/usr/local/nvidia/bin",
)
_LINK_LIMIT = 40


class HostFiles:
    """The files of one host.

    :param root: where the host's C(/) is mounted; C(/) for the host that this code runs on.
    :param local: whether these are the files of the running host, so that its programs can be asked too; by default
        they are when the root is C(/).
    """

    def __init__(self, root: str = "/", local: bool | None = None) -> None:
        self.root = os.path.normpath(root or "/")
        self.local = self.root == "/" if local is None else local

    def resolve(self, path: str) -> str | None:
        """Return C(path) with every symbolic link followed inside the root, or None where nothing is there."""
        if self.root == "/":
            real = os.path.realpath(path)
            return real if os.path.lexists(real) else None
        pending = [part for part in path.split("/") if part]
        done = "/"
        links = 0
        while pending:
            part = pending.pop(0)
            if part == ".":
                continue
            if part == "..":
                done = os.path.dirname(done)
                continue
            candidate = os.path.join(done, part)
            inside = self._inside(candidate)
            if os.path.islink(inside):
                links += 1
                if links > _LINK_LIMIT:
                    return None
                target = os.readlink(inside)
                if target.startswith("/"):
                    done = "/"
                pending = [piece for piece in target.split("/") if piece] + pending
            else:
                done = candidate
        return done if os.path.lexists(self._inside(done)) else None

    def real(self, path: str) -> str | None:
        """Return where the content of C(path) lies for this process, or None where nothing is there."""
        resolved = self.resolve(path)
        return None if resolved is None else self._inside(resolved)

    def read(self, path: str) -> str | None:
        """Return the stripped text of C(path), or None where it is missing or not readable."""
        data = self.read_bytes(path)
        return None if data is None else data.decode("utf-8", "replace").strip()

    def read_bytes(self, path: str) -> bytes | None:
        """Return the content of C(path), or None where it is missing or not readable."""
        real = self.real(path)
        if real is None:
            return None
        try:
            with open_regular(real) as handle:
                return handle.read()
        except OSError:
            return None

    def names(self, path: str) -> list[str]:
        """Return the sorted names in the directory C(path); empty where it is missing or not readable."""
        real = self.real(path)
        if real is None:
            return []
        try:
            return sorted(os.listdir(real))
        except OSError:
            return []

    def glob(self, pattern: str) -> list[str]:
        """Return the sorted paths that match C(pattern), whose last part only may hold wildcards."""
        folder, name = os.path.split(pattern)
        return [os.path.join(folder, found) for found in self.names(folder) if fnmatch.fnmatchcase(found, name)]

    def exists(self, path: str) -> bool:
        return self.resolve(path) is not None

    def is_directory(self, path: str) -> bool:
        real = self.real(path)
        return real is not None and os.path.isdir(real)

    def size(self, path: str) -> int | None:
        """Return the size of C(path) in bytes, or None where it is missing."""
        real = self.real(path)
        try:
            return None if real is None else os.stat(real).st_size
        except OSError:
            return None

    def device_major(self, path: str) -> int | None:
        """Return the major number of the character device C(path), or None where there is none."""
        real = self.real(path)
        try:
            status = os.stat(real or "")
        except OSError:
            return None
        return os.major(status.st_rdev) if stat.S_ISCHR(status.st_mode) else None

    def link_name(self, path: str) -> str | None:
        """Return the last part of what the symbolic link C(path) points to, or None where it is no link."""
        try:
            return os.path.basename(os.readlink(self._inside(path)))
        except OSError:
            return None

    def find_program(self, name: str) -> str | None:
        """Return the host's path of program C(name), or None."""
        return next(self.find_programs(name), None)

    def find_programs(self, name: str) -> Iterator[str]:
        """Yield the host's paths of all programs C(name), the one that runs first."""
        for folder in PROGRAM_FOLDERS:
            real = self.real(f"{folder}/{name}")
            if real is not None and os.path.isfile(real) and os.access(real, os.X_OK):
                yield f"{folder}/{name}"

    def _inside(self, path: str) -> str:
        return path if self.root == "/" else os.path.join(self.root, path.lstrip("/"))
