# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A signed flat apt repository, as NVIDIA's are: packages and indexes in one directory."""

from __future__ import annotations

import gzip
from pathlib import Path

from hosts.commands import run

_OWNER = "GPU lab package repository"


class Signer:
    """A signing key that exists for one build of the repository."""

    def __init__(self, home: Path) -> None:
        self._home = home
        home.mkdir(mode=0o700)
        self._gpg("--passphrase", "", "--quick-generate-key", _OWNER, "rsa2048", "sign", "never")

    def export(self, target: Path, *, armoured: bool) -> None:
        """Write the public key."""
        target.parent.mkdir(parents=True, exist_ok=True)
        self._gpg(*(["--armor"] if armoured else []), "--output", str(target), "--export", _OWNER)

    def fingerprint(self) -> str:
        """All hexadecimal digits of the key's fingerprint."""
        listed = self._gpg("--with-colons", "--fingerprint", _OWNER)
        return next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))

    def sign(self, directory: Path) -> None:
        """Sign the Release file in C(directory), inside and beside."""
        release = str(directory / "Release")
        self._gpg("--clearsign", "--output", str(directory / "InRelease"), release)
        self._gpg("--armor", "--detach-sign", "--output", str(directory / "Release.gpg"), release)

    def close(self) -> None:
        """End the key agent, so that nothing stays behind when the key's directory goes."""
        run(["gpgconf", "--homedir", self._home, "--kill", "all"])

    def _gpg(self, *arguments: str) -> str:
        return run(["gpg", "--homedir", self._home, "--batch", "--yes", "--pinentry-mode", "loopback", *arguments])


def write_indexes(directory: Path, origin: str, signer: Signer) -> None:
    """Write Packages and Release for the packages in C(directory) and sign them."""
    packages = run(["apt-ftparchive", "packages", "."], cwd=directory)
    (directory / "Packages").write_text(packages, encoding="utf-8")
    with gzip.GzipFile(directory / "Packages.gz", "wb", compresslevel=6, mtime=0) as stream:
        stream.write(packages.encode())
    options = [f"-oAPT::FTPArchive::Release::{name}={value}" for name, value in (("Origin", origin), ("Label", origin))]
    # The indexes of an earlier run are never there: the directory is new. Release must not list itself.
    release = run(["apt-ftparchive", *options, "release", "."], cwd=directory)
    (directory / "Release").write_text(release, encoding="utf-8")
    signer.sign(directory)
