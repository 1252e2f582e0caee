# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The package repository of the lab: generated and signed here, with NVIDIA's package names and dependency shapes."""

from __future__ import annotations

from pathlib import Path

from . import cache
from .paths import repositories
from .progress import Progress


def ensure_repository(base: Path, progress: Progress) -> Path:
    """The directory to serve."""

    def build(directory: Path) -> None:
        progress.say("building the package repository")

    directory, _built = cache.build_once(repositories(), "empty", "the package repository", progress, build)
    return directory
