# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A Debian package as data, and how it becomes a file."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hosts.commands import run

#: NVIDIA's own: who a driver is from is read from it.
_MAINTAINER = "NVIDIA Corporation <cudatools@nvidia.com>"
STAND_IN_NOTE = "A stand-in of the lab with the name, version and dependencies of NVIDIA's package; not made by NVIDIA."


@dataclass(frozen=True)
class File:
    """What a package puts at one path: text, a copy of a file, or a symbolic link."""

    text: str = ""
    source: Path | None = None
    link: str = ""
    executable: bool = False
    set_user_id: bool = False


@dataclass(frozen=True)
class Package:
    """A binary package; C(fields) are the further fields of its control file, such as Depends."""

    name: str
    version: str
    summary: str
    fields: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, File] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)
    configuration: tuple[str, ...] = ()
    architecture: str = ""
    note: str = STAND_IN_NOTE

    def file_name(self, architecture: str) -> str:
        """The name in the pool; an epoch is left out, as everywhere."""
        return f"{self.name}_{self.version.split(':')[-1]}_{self.architecture or architecture}.deb"


def build(package: Package, architecture: str, pool: Path, work: Path) -> Path:
    """Write C(package) into the directory C(pool) and return the file."""
    tree = work / f"{package.name}_{package.version.replace(':', '_')}"
    control = tree / "DEBIAN"
    control.mkdir(parents=True)
    lines = [
        f"Package: {package.name}",
        f"Version: {package.version}",
        f"Architecture: {package.architecture or architecture}",
        f"Maintainer: {_MAINTAINER}",
        "Section: utils",
        "Priority: optional",
        *(f"{name}: {value}" for name, value in package.fields.items() if value),
        f"Description: {package.summary}",
        f" {package.note}",
    ]
    (control / "control").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, script in package.scripts.items():
        target = control / name
        target.write_text(script, encoding="utf-8")
        target.chmod(0o644 if name == "triggers" else 0o755)
    if package.configuration:
        (control / "conffiles").write_text("\n".join(package.configuration) + "\n", encoding="utf-8")
    for path, entry in package.files.items():
        _write(tree / path.lstrip("/"), entry)
    for directory in [tree, *(path for path in tree.rglob("*") if path.is_dir() and not path.is_symlink())]:
        directory.chmod(0o755)
    target = pool / package.file_name(architecture)
    # Fast to build and to unpack; nobody downloads these over a network.
    run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", tree, target])
    shutil.rmtree(tree)
    return target


def _write(target: Path, entry: File) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if entry.link:
        target.symlink_to(entry.link)
        return
    if entry.source is not None:
        shutil.copyfile(entry.source, target)
    else:
        target.write_text(entry.text, encoding="utf-8")
    target.chmod((0o755 if entry.executable else 0o644) | (0o4000 if entry.set_user_id else 0))


def extracted(deb: Path, target: Path, prefixes: tuple[str, ...]) -> dict[str, File]:
    """The regular files and links of an existing package below C(prefixes), unpacked to C(target)."""
    target.mkdir(parents=True)
    run(["dpkg-deb", "--extract", deb, target])
    found: dict[str, File] = {}
    for path in sorted(target.rglob("*")):
        name = f"/{path.relative_to(target)}"
        if not name.startswith(prefixes):
            continue
        if path.is_symlink():
            found[name] = File(link=str(path.readlink()))
        elif path.is_file():
            mode = path.stat().st_mode
            found[name] = File(source=path, executable=bool(mode & 0o100), set_user_id=bool(mode & 0o4000))
    return found
