# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build small, signed package repositories from stand-ins, with the tools of the distributions themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from stand_ins import StandIn


def call(*command: str | Path, **options: object) -> str:
    """Run a tool that has to succeed."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


@dataclass(frozen=True)
class Signer:
    """A signing key in a directory of its own."""

    home: Path
    fingerprint: str

    @classmethod
    def create(cls, home: Path) -> Signer:
        home.mkdir(mode=0o700, parents=True)
        parameters = home / "parameters"
        parameters.write_text(
            "Key-Type: RSA\nKey-Length: 2048\nKey-Usage: sign\nName-Real: stand-in\nName-Email: stand-in@invalid\n"
            "Expire-Date: 0\n%no-protection\n%commit\n"
        )
        call("gpg", "--homedir", home, "--batch", "--gen-key", parameters)
        listed = call("gpg", "--homedir", home, "--batch", "--with-colons", "--list-keys")
        return cls(home, next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr")))

    def public_key(self, armoured: bool = True) -> bytes:
        command = ["gpg", "--homedir", str(self.home), "--batch", "--export", *(["--armor"] if armoured else [])]
        return subprocess.run(command, capture_output=True, check=True).stdout

    def close(self) -> None:
        subprocess.run(["gpgconf", "--homedir", str(self.home), "--kill", "all"], check=False, capture_output=True)


def build_deb_repository(folder: Path, packages: list[StandIn], signer: Signer, architecture: str = "amd64") -> str:
    """Build a flat, signed deb repository as NVIDIA's are, and return its address."""
    folder.mkdir(parents=True)
    for package in packages:
        build_deb(folder, package, architecture)
    index = call("apt-ftparchive", "packages", ".", cwd=folder)
    (folder / "Packages").write_text(index)
    (folder / "Release").write_text(call("apt-ftparchive", "release", ".", cwd=folder))
    call(
        "gpg",
        "--homedir",
        signer.home,
        "--batch",
        "--yes",
        "--clearsign",
        "-o",
        folder / "InRelease",
        folder / "Release",
    )
    return f"file://{folder}"


def build_deb(folder: Path, package: StandIn, architecture: str = "amd64") -> Path:
    """Build one package, and return its file."""
    tree = folder / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    fields = {
        "Package": package.name,
        "Version": package.version,
        "Architecture": architecture,
        "Maintainer": "stand-in <cudatools@nvidia.com>",
        "Depends": ", ".join(package.requires),
        "Provides": ", ".join(package.provides),
        "Conflicts": ", ".join(package.conflicts),
        "Description": "stand-in",
    }
    (tree / "DEBIAN" / "control").write_text("".join(f"{name}: {value}\n" for name, value in fields.items() if value))
    for path, text in package.files:
        target = tree / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    built = folder / f"{package.name}_{package.version.replace(':', '%3a')}_{architecture}.deb"
    call("dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, built)
    shutil.rmtree(tree)
    return built


def build_rpm_repository(
    folder: Path,
    packages: list[StandIn],
    signer: Signer,
    modules: str = "",
    *,
    machine: str = "x86_64",
    signs: str = "packages",
) -> str:
    """Build a repository of rpms, with module metadata where there are any, and return its address.

    :param signs: what is signed: the C(packages), as in the repositories of the driver, or the C(metadata), as in that of the
        container toolkit.
    """
    folder.mkdir(parents=True)
    spec = folder / "stand-ins.spec"
    # One spec file builds all packages: a main package that is thrown away, and one subpackage each.
    by_version: dict[str, list[StandIn]] = {}
    for package in packages:
        by_version.setdefault(package.name, []).append(package)
    rounds = max(len(found) for found in by_version.values())
    for number in range(rounds):
        chosen = [found[number] for found in by_version.values() if number < len(found)]
        spec.write_text(_spec(chosen))
        call(
            "rpmbuild",
            "-bb",
            "--target",
            machine,
            "--define",
            f"_topdir {folder}/build",
            "--define",
            f"_rpmdir {folder}",
            spec,
        )
    shutil.rmtree(folder / "build", ignore_errors=True)
    built = [path for path in folder.rglob("*.rpm") if not path.name.startswith("stand-ins-")]
    for path in folder.rglob("stand-ins-*.rpm"):
        path.unlink()
    if signs == "packages":
        environment = {**os.environ, "GNUPGHOME": str(signer.home)}
        names = ("--define", "_gpg_name stand-in", "--define", f"__gpg {shutil.which('gpg')}")
        call("rpmsign", *names, "--addsign", *built, env=environment)
    call("createrepo_c", "--quiet", folder)
    if modules:
        (folder / "modules.yaml").write_text(modules)
        call("modifyrepo_c", "--mdtype=modules", folder / "modules.yaml", folder / "repodata")
    if signs == "metadata":
        sign_metadata(folder, signer)
    return f"file://{folder}"


def build_rpm(folder: Path, package: StandIn, machine: str = "x86_64") -> Path:
    """Build one unsigned package, and return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    spec = folder / f"{package.name}.spec"
    spec.write_text(_spec([package]))
    names = ("--define", f"_topdir {folder}/build-{package.name}", "--define", f"_rpmdir {folder}")
    call("rpmbuild", "-bb", "--target", machine, *names, spec)
    return next(folder.rglob(f"{package.name}-*.rpm"))


def sign_metadata(folder: Path, signer: Signer) -> None:
    """Sign the index of an rpm repository, with the key beside it as repositories have it."""
    index = folder / "repodata" / "repomd.xml"
    call("gpg", "--homedir", signer.home, "--batch", "--yes", "--armor", "--detach-sign", index)
    index.with_name("repomd.xml.key").write_bytes(signer.public_key())


def _spec(packages: list[StandIn]) -> str:
    head = (
        "Name: stand-ins\nVersion: 1\nRelease: 1\nSummary: stand-in\nLicense: MIT\n"
        "%global debug_package %{nil}\n%description\nstand-in\n"
    )
    parts = [head]
    for package in packages:
        version, _dash, release = package.version.rpartition("-")
        lines = [f"%package -n {package.name}", "Summary: stand-in", f"Version: {version}", f"Release: {release}"]
        lines += [f"Epoch: {package.epoch}"] if package.epoch else []
        for tag, values in (
            ("Requires", package.requires),
            ("Provides", package.provides),
            ("Conflicts", package.conflicts),
            ("Obsoletes", package.obsoletes),
        ):
            lines += [f"{tag}: {value}" for value in values]
        files = "".join(f"{path}\n" for path, _text in package.files)
        parts.append(
            "\n".join(lines) + f"\n%description -n {package.name}\nstand-in\n%files -n {package.name}\n{files}"
        )
    written = []
    for path, text in (entry for package in packages for entry in package.files):
        written.append(
            f"mkdir -p %{{buildroot}}{path.rpartition('/')[0]}\ncat > %{{buildroot}}{path} <<'END'\n{text}END\n"
        )
    return "\n".join([*parts, "%install", *written, ""])
