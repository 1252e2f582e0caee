# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the lab keeps things: a cache outside of the repository, and one directory per lab in it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

LAB_SOURCE = Path(__file__).resolve().parent.parent
"""The directory tests/lab of this checkout."""

REPOSITORY_IN_HOST = "/srv/gpufleet-lab/repository"
"""Where the hosts see the package repository of the lab as files."""


def cache_root() -> Path:
    """The cache directory; not below /tmp, where systemd-nspawn does not accept the root of a host."""
    named = os.environ.get("GPUFLEET_LAB_CACHE")
    if named:
        return Path(named).resolve()
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home).resolve() / "gpufleet" / "lab"


@dataclass(frozen=True)
class HostPaths:
    """The files of one host."""

    directory: Path

    @property
    def upper(self) -> Path:
        return self.directory / "upper"

    @property
    def work(self) -> Path:
        return self.directory / "work"

    @property
    def root(self) -> Path:
        return self.directory / "root"

    @property
    def containerd(self) -> Path:
        return self.directory / "containerd"

    @property
    def settings(self) -> Path:
        return self.directory / "host.json"

    @property
    def pid(self) -> Path:
        return self.directory / "supervisor.pid"

    @property
    def leader(self) -> Path:
        return self.directory / "leader.pid"

    @property
    def failure(self) -> Path:
        return self.directory / "failure"

    @property
    def supervisor_log(self) -> Path:
        return self.directory / "supervisor.log"

    @property
    def console(self) -> Path:
        return self.directory / "console.log"


@dataclass(frozen=True)
class LabPaths:
    """The files of one lab."""

    name: str

    @property
    def directory(self) -> Path:
        return cache_root() / "labs" / self.name

    @property
    def state(self) -> Path:
        return self.directory / "lab.json"

    @property
    def key(self) -> Path:
        return self.directory / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.directory / "known_hosts"

    @property
    def inventory(self) -> Path:
        return self.directory / "inventory.yml"

    @property
    def ssh_config(self) -> Path:
        return self.directory / "ssh_config"

    @property
    def cluster(self) -> Path:
        """Keys, data and logs of the control plane, where hosts are nodes."""
        return self.directory / "cluster"

    @property
    def server_pid(self) -> Path:
        return self.directory / "repository-server.pid"

    @property
    def server_log(self) -> Path:
        return self.directory / "repository-server.log"

    def host(self, name: str) -> HostPaths:
        return HostPaths(self.directory / "hosts" / name)


def write_whole(path: Path, text: str) -> None:
    """Replace a file so that a reader sees the old text or the new one, never half of it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.rename(path)


def bases() -> Path:
    """Root file systems of Debian, by content hash."""
    return cache_root() / "bases"


def layers() -> Path:
    """What the lab adds to Debian, by content hash."""
    return cache_root() / "layers"


def snapshots() -> Path:
    """Disks of hosts that were kept, by name."""
    return cache_root() / "snapshots"


def repositories() -> Path:
    """Generated package repositories, by content hash."""
    return cache_root() / "repositories"


def labs() -> Path:
    """The directories of the labs."""
    return cache_root() / "labs"
