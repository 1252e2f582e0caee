# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Directories that are built once per content: named by a hash, built aside, moved into place when complete."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .progress import Progress

_KEPT_SECONDS = 14 * 24 * 3600


def content_hash(*parts: Any) -> str:
    """A short name for what a directory is built from; C(parts) are plain data."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def files_hash(files: Iterable[Path]) -> str:
    """A hash of the names and contents of C(files)."""
    digest = hashlib.sha256()
    for path in sorted(files):
        data = path.read_bytes()
        digest.update(f"{path.name}\0{os.access(path, os.X_OK)}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()[:16]


@contextmanager
def locked(path: Path, progress: Progress, what: str) -> Iterator[None]:
    """Hold the lock file C(path); says so when another lab holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        waiting = time.monotonic()
        told = False
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told and time.monotonic() - waiting > 1:
                    progress.say(f"waiting for another lab that is building {what}")
                    told = True
                time.sleep(0.2)
        try:
            yield
        finally:
            fcntl.flock(stream, fcntl.LOCK_UN)


def build_once(
    parent: Path, name: str, what: str, progress: Progress, build: Callable[[Path], None]
) -> tuple[Path, bool]:
    """The directory C(parent/name), built by C(build) if it is not there yet; and whether it was built now.

    A build that is cut off leaves nothing that a later run could take for complete.
    """
    target = parent / name
    if target.is_dir():
        # The time of the last use, for prune().
        os.utime(target)
        return target, False
    with locked(parent / ".lock", progress, what):
        if target.is_dir():
            return target, False
        partial = parent / f"{name}.partial"
        # Left by a build that was cut off; the lock says that nobody is in it.
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        build(partial)
        partial.rename(target)
    return target, True


def prune(parent: Path, in_use: Collection[Path], seconds: int = _KEPT_SECONDS) -> None:
    """Remove what no lab uses and nobody has used for so long; old bases are a gigabyte each."""
    if not parent.is_dir():
        return
    oldest = time.time() - seconds
    with (parent / ".lock").open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # Somebody builds in there: the next one who takes a lab down will look again.
            return
        for entry in parent.iterdir():
            if entry.is_dir() and entry not in in_use and entry.stat().st_mtime < oldest:
                shutil.rmtree(entry)
