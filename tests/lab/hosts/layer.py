# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the lab adds to Debian: the virtual hardware, and the kernel tools that answer for its modules.

A directory of files that lies between the base and what a host writes; building it takes a second, so a change of it
never builds the base again.
"""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

from . import cache
from .base import DIVERTED
from .commands import run
from .paths import LAB_SOURCE, REPOSITORY_IN_HOST, layers
from .progress import Progress

_IMAGE = Path(__file__).resolve().parent / "image"
_VIRTUAL_NVML = LAB_SOURCE / "virtual_nvml"
_PROGRAMS = {"virtual-gpu": "usr/bin/virtual-gpu"}
"""What of the virtual NVML belongs to the hardware; the library and nvidia-smi belong to the driver's packages."""

_MODULE_SOURCE = LAB_SOURCE / "packages/sources/kernel-modules/module.c"
_MODULES = {
    "mlx5_core": "net/ethernet/mellanox/mlx5/core",
    "mlx5_ib": "infiniband/hw/mlx5",
    "ib_umad": "infiniband/core",
}
"""Modules of a kernel by which NVLink 5 switches are managed, and where its package has them."""


def virtual_nvml_sources() -> list[Path]:
    """The source files of the virtual NVML, sorted."""
    return sorted(path for path in _VIRTUAL_NVML.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def ensure_layer(progress: Progress) -> Path:
    """The directory of the layer, a root file system without Debian in it."""
    image = sorted(path for path in _IMAGE.rglob("*") if path.is_file())
    name = cache.content_hash(
        cache.files_hash(image), [str(path.relative_to(_IMAGE)) for path in image],
        cache.files_hash(virtual_nvml_sources()), cache.files_hash([Path(__file__), _MODULE_SOURCE]), platform.release(),
    )  # fmt: skip

    def build(directory: Path) -> None:
        progress.say("building the virtual GPU hardware")
        _build(directory)

    directory, _built = cache.build_once(layers(), name, "the lab's layer", progress, build)
    return directory


def _build(directory: Path) -> None:
    shutil.copytree(_IMAGE, directory, dirs_exist_ok=True)
    units = directory / "usr/lib/systemd/system"
    wants = directory / "etc/systemd/system/sysinit.target.wants"
    wants.mkdir(parents=True)
    for unit in sorted(units.glob("*.service")):
        (wants / unit.name).symlink_to(f"/usr/lib/systemd/system/{unit.name}")
    for tool in DIVERTED:
        for place in ("usr/sbin", "usr/bin") if tool == "lsmod" else ("usr/sbin",):
            (directory / place).mkdir(parents=True, exist_ok=True)
            (directory / place / tool).symlink_to("/usr/lib/gpufleet-lab/kernel-tools")
    _add_kernel(directory)
    _install_virtual_gpu(directory)
    # A layer below the upper one decides owner and mode of the directories it names.
    for path in [directory, *directory.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)


def _add_kernel(directory: Path) -> None:
    """What the package of the running kernel would have: its module directory, and where its headers come from."""
    modules = directory / "usr/lib/modules" / platform.release()
    modules.mkdir(parents=True)
    for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        (modules / name).touch()
    for name, folder in _MODULES.items():
        target = modules / "kernel/drivers" / folder / f"{name}.ko"
        target.parent.mkdir(parents=True)
        told = {"UTS_RELEASE": platform.release(), "NAME": name, "LICENSE": "Dual BSD/GPL"}
        defined = [f'-D{key}="{value}"' for key, value in told.items()]
        run(
            [
                "gcc",
                "-c",
                "-O1",
                "-ffreestanding",
                "-fno-pic",
                *defined,
                f"-DMODULE_{name}",
                "-o",
                target,
                _MODULE_SOURCE,
            ]
        )
    address = f"file:{REPOSITORY_IN_HOST}/kernel"
    line = f"deb [signed-by={REPOSITORY_IN_HOST}/kernel/kernel-keyring.gpg] {address} /\n"
    sources = directory / "etc/apt/sources.list.d"
    sources.mkdir(parents=True)
    (sources / "lab-kernel.list").write_text(line, encoding="utf-8")


def _install_virtual_gpu(directory: Path) -> None:
    build = directory.with_suffix(".build")
    shutil.rmtree(build, ignore_errors=True)
    build.mkdir()
    try:
        run(["make", "-j2", "-C", _VIRTUAL_NVML, f"BUILD={build}", build / "virtual-gpu"], log=build / "make.log")
        for program, target in _PROGRAMS.items():
            place = directory / target
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(build / program, place)
    finally:
        shutil.rmtree(build, ignore_errors=True)
