# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pack the evidence: one archive with everything replaced that names a host or a board, and the report beside it. Made anew after each part."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

from gpu_evidence import report
from gpu_evidence.private import Replacements

#: Of the archive, compressed; files that do not fit are left out, the largest first.
_ROOM = 12 * 1024 * 1024


class Packed:
    """The three files that a run leaves: report.html, report.json, evidence.tar.gz."""

    def __init__(self, target: Path, evidence: Path) -> None:
        self._target, self._evidence = target, evidence
        self._replaced = Replacements()

    def write(self, says: dict[str, Any]) -> None:
        texts = {
            str(path.relative_to(self._evidence)): _text(path)
            for path in sorted(self._evidence.rglob("*"))
            if path.is_file()
        }
        for text in texts.values():
            self._replaced.learn(text)
        cleaned = {name: self._replaced.clean(text).encode() for name, text in texts.items()}
        archive, left_out = _fitting(cleaned)
        says = json.loads(
            self._replaced.clean(json.dumps({**says, "left_out": left_out, "replaced": self._replaced.counts}))
        )
        self._put("evidence.tar.gz", archive)
        self._put("report.json", (json.dumps(says, indent=1) + "\n").encode())
        self._put("report.html", report.html(says, {name: raw.decode() for name, raw in cleaned.items()}).encode())

    def _put(self, name: str, raw: bytes) -> None:
        new = self._target / f"{name}.new"
        new.write_bytes(raw)
        os.replace(new, self._target / name)


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", errors="replace")


def _fitting(files: dict[str, bytes]) -> tuple[bytes, list[str]]:
    left_out: list[str] = []
    kept = dict(files)
    while True:
        made = _archive(kept)
        if len(made) <= _ROOM or not kept:
            return made, left_out
        largest = max(kept, key=lambda name: len(kept[name]))
        left_out.append(f"{largest} ({len(kept.pop(largest))} bytes)")


def _archive(files: dict[str, bytes]) -> bytes:
    raw = io.BytesIO()
    with gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6, mtime=0) as packed, tarfile.open(
        fileobj=packed, mode="w"
    ) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"evidence/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return raw.getvalue()
