# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of the host: small reads that answer None instead of failing, writes that are whole or not at all, the files of a host that is mounted,
and the lock of what changes GPUs.

What is read is a regular file: opening a FIFO or a device waits, or does something. A symbolic link is followed to files of the system, many of which
are links; in place of a file that the collection wrote, it is somebody else's.
"""

from __future__ import annotations

import errno
import fcntl
import fnmatch
import os
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

from .._formats.documents import whole_number
from .._plan import Refused

#: Bytes that are compared at a time.
_PART = 1 << 20


class NotUtf8(ValueError):
    """A file that is read to be edited has bytes that no character stands for, which it would lose."""


def utf8(path: str, data: bytes) -> str:
    """Return the text of a file that is to be edited. Raises NotUtf8: it is another text than the bytes of the file."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        where = f"byte {error.start}, 0x{data[error.start]:02x}, in line {data.count(10, 0, error.start) + 1}"
        tool = "'iconv -f ISO-8859-1 -t UTF-8' converts a file that was written as Latin-1"
        raise NotUtf8(f"{path} is not UTF-8 (at {where}; {tool})") from error


def open_regular(path: str, links: bool = True) -> BinaryIO:
    """Open a file to read it. C(links): whether C(path) may be a symbolic link. Raises OSError: it cannot be opened, or is no regular file."""
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
    """Put C(content) into C(path) atomically and durably; return whether that changed anything. The directory is made when it is missing. A reader,
    or a power loss, sees the old file or the new one. Whatever else is in its place is replaced.
    """
    wanted = content.encode() if isinstance(content, str) else content
    if read_bytes(path, links=False) == wanted and os.lstat(path).st_mode & 0o7777 == mode:
        return False
    return write_parts(path, (wanted,), mode)


def write_parts(path: str, parts: Iterable[bytes], mode: int = 0o644) -> bool:
    """Do as L(write_whole) with what is too long to be in memory as a whole."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        os.makedirs(folder, exist_ok=True)
        if mode & 0o004:
            # Whoever may read the file has to get to it, whatever the umask is.
            os.chmod(folder, 0o755)
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


def write_link(path: str, target: str) -> None:
    """Make C(path) a symbolic link to C(target), which need not be there. The directory is made when it is missing."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    remove(path)
    os.symlink(target, path)


def remove(path: str) -> bool:
    """Remove the file C(path); return whether it was there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


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
    """The files of one host, whose C(/) is mounted at C(root). C(local): whether its programs can be asked too; by default, where the root is C(/)."""

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
        data = self.read_bytes(path)
        return None if data is None else data.decode("utf-8", "replace").strip()

    def text(self, path: str) -> str | None:
        """Return a whole file that is to be edited. Raises NotUtf8."""
        data = self.read_bytes(path)
        return None if data is None else utf8(path, data)

    def read_bytes(self, path: str) -> bytes | None:
        real = self.real(path)
        return None if real is None else read_bytes(real)

    def names(self, path: str) -> list[str]:
        real = self.real(path)
        return [] if real is None else list_directory(real)

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
        status = self._status(path)
        return status.st_size if status else None

    def modified(self, path: str) -> float | None:
        status = self._status(path)
        return status.st_mtime if status else None

    def device_major(self, path: str) -> int | None:
        status = self._status(path)
        return os.major(status.st_rdev) if status and stat.S_ISCHR(status.st_mode) else None

    def _status(self, path: str) -> os.stat_result | None:
        try:
            return os.stat(self.real(path) or "")
        except OSError:
            return None

    def link_name(self, path: str) -> str | None:
        """Return the last part of what the symbolic link C(path) points to, or None where it is no link."""
        target = self.link_target(path)
        return None if target is None else os.path.basename(target)

    def link_target(self, path: str) -> str | None:
        """Return what the symbolic link C(path) points to, as it is written there, or None where it is no link."""
        try:
            return os.readlink(self._inside(path))
        except OSError:
            return None

    def find_program(self, name: str) -> str | None:
        return next(self.find_programs(name), None)

    def find_programs(self, name: str) -> Iterator[str]:
        """Yield the host's paths of all programs C(name), the one that runs first."""
        for folder in PROGRAM_FOLDERS:
            real = self.real(f"{folder}/{name}")
            if real is not None and os.path.isfile(real) and os.access(real, os.X_OK):
                yield f"{folder}/{name}"

    def _inside(self, path: str) -> str:
        return path if self.root == "/" else os.path.join(self.root, path.lstrip("/"))


# The lock that everything which changes GPUs of a host holds, so that two runs never interleave.
# It is a lock of the kernel on an open file: it ends with its holder, however that ends. Whoever can open a file can lock it, so only root
# can open this one.

LOCK_PATH = "/run/gpufleet/lock"
_POLL_SECONDS = 0.1


class Locked(Refused):
    """Somebody else is changing the GPUs of this host. C(holder): process id of who holds the lock; None when it does not say."""

    def __init__(self, path: str, holder: int | None, program: str | None, waited: float) -> None:
        self.path = path
        self.holder = holder
        who = "another process" if holder is None else f"process {holder}"
        name = f" ({program})" if program else ""
        super().__init__(
            f"the lock {path}",
            f"{who}{name} is changing the GPUs of this host and did not finish within {waited:g} s",
            "Wait for it and run again, or raise lock_timeout.",
        )


@contextmanager
def exclusive(timeout: float, path: str = LOCK_PATH) -> Iterator[None]:
    """Hold the lock for the block. Raises Locked: another process still holds it after C(timeout)."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _wait(descriptor, path, timeout)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _wait(descriptor: int, path: str, timeout: float) -> None:
    end = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= end:
                holder = whole_number(read_text(path))
                program = read_text(f"/proc/{holder}/comm") if holder else None
                raise Locked(path, holder, program, timeout) from None
        time.sleep(min(_POLL_SECONDS, max(0.0, end - time.monotonic())))
