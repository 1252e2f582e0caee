# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of the host: small reads that answer None instead of failing, and writes that are whole or not at all.

What is read is a regular file: opening a FIFO or a device waits, or does something. A symbolic link is followed to files of the system, many of which
are links; in place of a file that the collection wrote, it is somebody else's.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterable
from typing import BinaryIO

#: Bytes that are compared at a time.
_PART = 1 << 20


def open_regular(path: str, links: bool = True) -> BinaryIO:
    """Open a file to read it.

    :param links: whether C(path) may be a symbolic link.
    :raises OSError: it cannot be opened, or is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if links else os.O_NOFOLLOW))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return os.fdopen(descriptor, "rb")


def read_text(path: str, links: bool = True) -> str | None:
    """Return the stripped content of C(path), or None where it does not exist or cannot be read."""
    content = read_bytes(path, links)
    return None if content is None else content.decode("utf-8", "replace").strip()


def read_bytes(path: str, links: bool = True) -> bytes | None:
    """Return the content of C(path), or None where it does not exist or cannot be read."""
    try:
        with open_regular(path, links) as handle:
            return handle.read()
    except OSError:
        return None


def list_directory(path: str) -> list[str]:
    """Return the sorted names in C(path); empty where it does not exist or cannot be read."""
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def is_mount(path: str) -> bool:
    """Return whether a file system is mounted at C(path)."""
    return os.path.ismount(path)


def same(one: str, other: str) -> bool | None:
    """Return whether two paths lead to the same file or directory; None where the first cannot be looked at."""
    try:
        first = os.stat(one)
    except OSError:
        return None
    try:
        return os.path.samestat(first, os.stat(other))
    except OSError:
        return False


def write_whole(path: str, content: str | bytes, mode: int = 0o644) -> bool:
    """Put C(content) into C(path) atomically and durably; return whether that changed anything.

    The directory is made when it is missing. A reader, or a power loss, sees the old file or the new one. Whatever else is in its place is replaced.
    """
    wanted = content.encode() if isinstance(content, str) else content
    if read_bytes(path, links=False) == wanted and os.lstat(path).st_mode & 0o7777 == mode:
        return False
    return write_parts(path, (wanted,), mode)


def write_parts(path: str, parts: Iterable[bytes], mode: int = 0o644) -> bool:
    """Do as L(write_whole) with what is too long to be in memory as a whole."""
    folder = os.path.dirname(path) or "."
    os.makedirs(folder, mode=0o755, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=".gpufleet-", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            for part in parts:
                handle.write(part)
            handle.flush()
            os.fchmod(handle.fileno(), mode)
            os.fsync(handle.fileno())
        if _same_content(temporary, path) and os.lstat(path).st_mode & 0o7777 == mode:
            os.unlink(temporary)
            return False
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)
    return True


def _same_content(one: str, other: str) -> bool:
    try:
        with open_regular(one) as first, open_regular(other, links=False) as second:
            while (part := first.read(_PART)) == second.read(_PART):
                if not part:
                    return True
    except OSError:
        pass
    return False


def remove(path: str) -> bool:
    """Remove the file C(path); return whether it was there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True
