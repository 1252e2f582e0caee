#!/usr/bin/env python3
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make build/gpu-bundle: everything that run.sh needs on a host with a GPU that has neither network nor package registries.

    build.py [FOLDER]

Wheels come by pip with the hashes of requirements/gpu-bundle.txt, programs by go with those of go.sum. Two builds of one commit with the
same compilers give the same files.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path.insert(0, str(REPOSITORY / "tests" / "lab" / "real_tools"))

import install

PYTHONS = ("3.11", "3.12", "3.13")
#: The oldest glibc of wheels, and the platform tags that pip matches one by one.
_PLATFORMS = (
    "manylinux_2_28_x86_64",
    "manylinux_2_27_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
    "manylinux1_x86_64",
)
_ROOM = 40 * 1024 * 1024
#: With debug data left out and no name of a build in them.
_OPTIONS = ("-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid=")


def wheels(folder: Path) -> None:
    folder.mkdir()
    for version in PYTHONS:
        command = [
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps", "--only-binary=:all:",
            "--implementation", "cp", "--python-version", version, *(f"--platform={one}" for one in _PLATFORMS),
            "-r", str(REPOSITORY / "requirements" / "gpu-bundle.txt"), "-d", str(folder),
        ]  # fmt: skip
        subprocess.run(command, check=True)


def programs(folder: Path) -> dict[str, str]:
    """Build the programs with cgo, as NVIDIA builds them; return the version of each."""
    folder.mkdir()
    versions = {}
    for name in ("nvidia-ctk", "nvidia-device-plugin"):
        tool = install.TOOLS[name]
        module, version = tool.required
        versions[name] = version
        _go(install.MODULES / tool.module, f"{module}/cmd/{name}", folder / name, "1")
    _go(HERE / "kubelet", ".", folder / "stand-in-kubelet", "0")
    return versions


def _go(source: Path, package: str, target: Path, cgo: str) -> None:
    environment = {
        **os.environ,
        "GOWORK": "off",
        "GOFLAGS": "",
        "CGO_ENABLED": cgo,
        "GOOS": "linux",
        "GOARCH": "amd64",
        "GOAMD64": "v1",
    }
    with tempfile.TemporaryDirectory() as work:
        # A copy: go may write to it, and nothing writes to a checkout.
        shutil.copytree(source, work, dirs_exist_ok=True)
        built = Path(work) / ".program"
        command = ["go", "build", "-mod=readonly", *_OPTIONS, "-o", str(built), package]
        done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"Failed to build {target.name}: {done.stderr[-2000:]}")
        shutil.move(built, target)


def oldest_glibc(program: Path) -> str:
    """The newest version of glibc's symbols that a program asks for: an older glibc does not load it."""
    found = {tuple(map(int, one.split(b"."))) for one in re.findall(rb"GLIBC_(\d+\.\d+)", program.read_bytes())}
    return ".".join(map(str, max(found))) if found else ""


def collection(folder: Path) -> str:
    """The collection's tarball with nothing of the moment of its making in it."""
    with tempfile.TemporaryDirectory() as work:
        galaxy = [
            str(Path(sys.executable).parent / "ansible-galaxy"),
            "collection",
            "build",
            "--force",
            "--output-path",
            work,
            str(REPOSITORY),
        ]
        subprocess.run(galaxy, check=True, stdout=subprocess.DEVNULL)
        (made,) = Path(work).glob("*.tar.gz")
        raw = io.BytesIO()
        with tarfile.open(made) as old, tarfile.open(fileobj=raw, mode="w") as new:
            for member in sorted(old.getmembers(), key=lambda one: one.name):
                member.mtime, member.uid, member.gid, member.uname, member.gname = 0, 0, 0, "", ""
                new.addfile(member, old.extractfile(member) if member.isfile() else None)
        (folder / made.name).write_bytes(gzip.compress(raw.getvalue(), 9, mtime=0))
        return made.name


def sources(folder: Path) -> None:
    for path in (HERE / "gpu_evidence").glob("*.py"):
        _copy(path, folder / "gpu_evidence" / path.name)
    for path in (REPOSITORY / "tests" / "gpu").glob("*.py"):
        _copy(path, folder / "tests" / "gpu" / path.name)
    _copy(HERE / "run.sh", folder / "run.sh", 0o755)


def _copy(source: Path, target: Path, mode: int = 0o644) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.read_bytes())
    target.chmod(mode)


def main(target: Path) -> int:
    target.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=".gpu-bundle-", dir=target.parent))
    new.chmod(0o755)
    try:
        wheels(new / "wheels")
        versions = programs(new / "programs")
        glibc = {path.name: oldest_glibc(path) for path in sorted((new / "programs").iterdir())}
        for path in sorted((new / "programs").iterdir()):
            Path(f"{path}.xz").write_bytes(lzma.compress(path.read_bytes(), preset=9))
            path.unlink()
        sources(new)
        name = collection(new)
        says = {"collection": name, "programs": versions, "glibc": glibc, "pythons": list(PYTHONS)}
        (new / "bundle.json").write_text(json.dumps(says, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        files = {str(path.relative_to(new)): path for path in sorted(new.rglob("*")) if path.is_file()}
        size = sum(path.stat().st_size for path in files.values())
        if size > _ROOM:
            sys.exit(f"The bundle has {size / 2**20:.1f} MiB, and may have {_ROOM // 2**20}")
        sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {one}\n" for one, path in files.items())
        (new / "SHA256SUMS").write_text(sums, encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)
        new.rename(target)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    print(
        f"{target}: {len(files)} files, {size / 2**20:.1f} MiB; glibc {max(filter(None, glibc.values()))} or newer for the programs"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY / "build" / "gpu-bundle"))
