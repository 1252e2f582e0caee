# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The package repository of the lab: generated and signed here, with NVIDIA's package names and dependency shapes."""

from __future__ import annotations

import platform
from pathlib import Path

from packages.build import build_repository
from packages.toolkit import build_all_programs

from . import cache
from .layer import virtual_nvml_sources
from .paths import LAB_SOURCE, repositories
from .progress import Progress


def ensure_repository(base: Path, progress: Progress) -> Path:
    """The directory to serve, built again when the generator, the virtual NVML, the base or the kernel changes."""
    generator = [path for path in (LAB_SOURCE / "packages").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    name = cache.content_hash(
        cache.files_hash(generator), cache.files_hash(virtual_nvml_sources()), base.name, platform.release()
    )

    def build(directory: Path) -> None:
        build_repository(directory, base, LAB_SOURCE / "virtual_nvml", progress)

    directory, _built = cache.build_once(repositories(), name, "the package repository", progress, build)
    return directory


def repository_variables(repository: Path, address: str) -> dict[str, str]:
    """Inventory variables that say where the repository is and what its keys' checksums are."""
    checksums: dict[str, str] = {}
    for line in (repository / "SHA256SUMS").read_text(encoding="ascii").splitlines():
        checksum, path = line.split()
        checksums[path] = checksum
    driver_key = next(path for path in checksums if path.startswith("compute/"))
    return {
        "lab_repository_url": address,
        "lab_driver_repository_url": f"{address}/{driver_key.rpartition('/')[0]}/",
        "lab_driver_keyring_url": f"{address}/{driver_key}",
        "lab_driver_keyring_sha256": checksums[driver_key],
        "lab_toolkit_repository_url": f"{address}/libnvidia-container/stable/deb",
        "lab_toolkit_keyring_url": f"{address}/libnvidia-container/gpgkey",
        "lab_toolkit_keyring_sha256": checksums["libnvidia-container/gpgkey"],
    }


def prepare_programs(progress: Progress) -> None:
    """Compile what needs no base, so that it can happen while the base is built."""
    build_all_programs(progress)
