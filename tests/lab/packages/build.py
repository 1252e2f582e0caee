# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build the whole repository: the same layout below one address that NVIDIA's have on their two servers.

C(compute/cuda/repos/debian12/x86_64/) is the driver's flat repository, C(libnvidia-container/) the toolkit's, and
C(kernel/) stands in for the part of Debian's archive that has the headers of the running kernel.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from hosts.commands import run
from hosts.paths import REPOSITORY_IN_HOST
from hosts.progress import Progress

from . import driver, extras, toolkit
from .archive import Signer, write_indexes
from .deb import Package, build, extracted
from .platform import Platform, this_platform

_DEBIAN_PROGRAMS = {"nvidia-cuda-mps": ("/usr/bin/", "/usr/sbin/"), "nvidia-modprobe": ("/usr/bin/",)}


@dataclass(frozen=True)
class _Work:
    platform: Platform
    base: Path
    scratch: Path
    progress: Progress

    def directory(self, name: str) -> Path:
        path = self.scratch / name
        path.mkdir(parents=True)
        return path


def build_repository(target: Path, base: Path, virtual_nvml: Path, progress: Progress) -> None:
    """Fill the empty directory C(target).

    :param base: of the hosts: programs that are built here are tried in it, and it has the fetched Debian packages.
    """
    scratch = target / "scratch"
    scratch.mkdir()
    platform = this_platform()
    work = _Work(platform, base, scratch, progress)
    signer = Signer(scratch / "gnupg")
    try:
        cuda = target / "compute/cuda/repos/debian12" / platform.nvidia
        container = target / "libnvidia-container/stable/deb" / platform.debian
        kernel = target / "kernel"
        key = cuda / "cuda-archive-keyring.gpg"
        signer.export(key, armoured=False)
        signer.export(target / "libnvidia-container/gpgkey", armoured=True)
        signer.export(kernel / "kernel-keyring.gpg", armoured=False)
        list_file = f"deb file:{REPOSITORY_IN_HOST}/libnvidia-container/stable/deb/$(ARCH) /\n"
        (container.parent / "nvidia-container-toolkit.list").parent.mkdir(parents=True, exist_ok=True)
        (container.parent / "nvidia-container-toolkit.list").write_text(list_file, encoding="utf-8")
        address = f"file:{REPOSITORY_IN_HOST}/{cuda.relative_to(target)}"
        keyring = extras.cuda_keyring(key, f"cuda-debian12-{platform.nvidia}.list", address)
        _write(
            cuda,
            [*_driver_packages(work, virtual_nvml), keyring, *extras.dcgm(), extras.subnet_manager()],
            "NVIDIA CUDA",
            work,
            signer,
        )
        _write(container, _toolkit_packages(work), "NVIDIA Container Toolkit", work, signer)
        _write(kernel, [extras.kernel_headers()], "Lab kernel", work, signer)
        (target / "fingerprint").write_text(f"{signer.fingerprint()}\n", encoding="ascii")
    finally:
        signer.close()
        shutil.rmtree(scratch)


def _driver_packages(work: _Work, virtual_nvml: Path) -> list[Package]:
    debs = {path.name.split("_")[0]: path for path in (work.base / "debs").glob("*.deb")}
    debian_programs = {
        name: extracted(debs[name], work.scratch / "debian" / name, prefixes)
        for name, prefixes in _DEBIAN_PROGRAMS.items()
    }
    found: list[Package] = driver.branch_pinnings()
    compiled = work.directory("driver")
    for version in driver.VERSIONS:
        work.progress.say(f"compiling the stand-in driver {version}")
        programs = driver.compile_programs(version, virtual_nvml, compiled)
        found.extend(driver.driver_packages(version, work.platform, programs, debian_programs))
    return found


def _toolkit_packages(work: _Work) -> list[Package]:
    stub = work.scratch / "libnvidia-container.so.1"
    empty = "int lab_stand_in = 1;\n"
    run(["gcc", "-shared", "-fPIC", "-x", "c", f"-Wl,-soname,{stub.name}", "-o", stub, "-"], stdin=empty)
    found: list[Package] = []
    for version in toolkit.VERSIONS:
        programs = toolkit.build_programs(version, work.progress)
        if programs and not toolkit.runs_in(work.base, programs, work.progress):
            programs = None
        found.extend(toolkit.toolkit_packages(version, work.platform, programs, stub))
    return found


def _write(directory: Path, packages: list[Package], origin: str, work: _Work, signer: Signer) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    trees = work.directory(f"trees-{directory.name}")
    with ThreadPoolExecutor(max_workers=4) as pool:
        results = [pool.submit(build, package, work.platform.debian, directory, trees) for package in packages]
    for result in results:
        result.result()
    write_indexes(directory, origin, signer)
    work.progress.say(f"signed {len(packages)} packages of {origin}")
