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
from .paths import LAB_SOURCE, REPOSITORY_IN_HOST, repositories
from .progress import Progress


def ensure_repository(base: Path, progress: Progress) -> Path:
    """The directory to serve, built again when the generator, the virtual NVML, nvidia-smi, the base or the kernel changes."""
    folders = ("packages", "nvidia_smi")
    files = [path for name in folders for path in (LAB_SOURCE / name).rglob("*") if path.is_file()]
    generator = [path for path in files if path.suffix != ".pyc"]
    name = cache.content_hash(
        cache.files_hash(generator), cache.files_hash(virtual_nvml_sources()), base.name, platform.release()
    )

    def build(directory: Path) -> None:
        build_repository(directory, base, LAB_SOURCE / "virtual_nvml", progress)

    directory, _built = cache.build_once(repositories(), name, "the package repository", progress, build)
    return directory


def repository_variables(repository: Path, address: str) -> dict[str, str]:
    """Inventory variables that send the hosts to this repository, as a site's do that has mirrors of NVIDIA's.

    :param address: of the HTTP server, for what wants to fetch over a network.
    """
    fingerprint = (repository / "fingerprint").read_text(encoding="ascii").strip()
    key = next(iter(sorted(repository.glob("compute/cuda/repos/*/*/cuda-archive-keyring.gpg")))).relative_to(repository)
    return {
        "lab_repository_url": address,
        "nvidia_driver_repository_url": f"file://{REPOSITORY_IN_HOST}/{key.parent}",
        "nvidia_driver_repository_key_file": f"{REPOSITORY_IN_HOST}/{key}",
        "nvidia_driver_repository_key_fingerprint": fingerprint,
        "nvidia_toolkit_repository_url": f"file://{REPOSITORY_IN_HOST}/libnvidia-container/stable/deb",
        "nvidia_toolkit_repository_key_file": f"{REPOSITORY_IN_HOST}/libnvidia-container/gpgkey",
        "nvidia_toolkit_repository_key_fingerprint": fingerprint,
    }


def prepare_programs(progress: Progress) -> None:
    """Compile what needs no base, so that it can happen while the base is built."""
    build_all_programs(progress)
