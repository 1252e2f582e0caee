# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What real GPUs answered: one folder for each board and driver, kept by tools/gpu-bundle/keep.py from what run.sh of the bundle brought back."""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Recording:
    """One recording, read when it is needed.

    :param folder: BOARD-DRIVER, with about.json and evidence.tar.xz.
    """

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def about(self) -> dict[str, Any]:
        return json.loads((self.folder / "about.json").read_text(encoding="utf-8"))

    @cached_property
    def files(self) -> dict[str, str]:
        with tarfile.open(self.folder / "evidence.tar.xz") as packed:
            return {one.name: packed.extractfile(one).read().decode() for one in packed if one.isfile()}

    def text(self, path: str) -> str:
        return self.files[path]

    def json(self, path: str) -> Any:
        return json.loads(self.text(path))

    def json_lines(self, path: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text(path).splitlines()]


RECORDINGS = tuple(Recording(path.parent) for path in sorted(Path(__file__).parent.glob("*/about.json")))
