# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host's files as a small tree in a temporary directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError, Result
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.host_reader import HostReader
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.systemd import Unit


class Tree:
    """Builds the files, and answers commands from a table. C(calls) holds every command that was asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.answers: dict[str, str | tuple[int, str]] = {}
        self.active: set[str] = set()
        self.daemons: dict[str, object] = {}
        self.calls: list[tuple[str, ...]] = []

    def write(self, path: str, content: str | bytes = "") -> None:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)

    def program(self, path: str) -> None:
        self.write(path, "#!")
        os.chmod(self.root / path.lstrip("/"), 0o755)

    def link(self, path: str, target: str) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)

    def folder(self, path: str) -> None:
        (self.root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def pci(
        self, address: str, device: str, class_id: str, driver: str | None = "nvidia", vendor: str = "0x10de"
    ) -> None:
        folder = f"/sys/bus/pci/devices/{address}"
        for name, value in (
            ("vendor", vendor),
            ("device", device),
            ("class", class_id),
            ("subsystem_device", "0x16c1"),
            ("numa_node", "0"),
        ):
            self.write(f"{folder}/{name}", f"{value}\n")
        if driver:
            self.folder(f"/sys/bus/pci/drivers/{driver}")
            self.link(f"{folder}/driver", f"../../../../bus/pci/drivers/{driver}")

    def process(
        self,
        pid: int,
        arguments: list[str],
        parent: int = 1,
        environment: dict[str, str] | None = None,
        cgroup: str = "0::/",
        devices: tuple[str, ...] = (),
        namespace: str = "mnt:[1]",
    ) -> None:
        folder = f"/proc/{pid}"
        name = os.path.basename(arguments[0])[:15]
        self.write(f"{folder}/comm", f"{name}\n")
        self.write(f"{folder}/cmdline", b"\0".join(word.encode() for word in arguments) + b"\0")
        self.write(f"{folder}/stat", f"{pid} ({name}) S {parent} {pid} 0")
        self.write(f"{folder}/cgroup", cgroup)
        if environment is not None:
            self.write(f"{folder}/environ", b"".join(f"{k}={v}".encode() + b"\0" for k, v in environment.items()))
        self.link(f"{folder}/ns/mnt", namespace)
        self.folder(f"{folder}/fd")
        for number, device in enumerate(devices):
            self.link(f"{folder}/fd/{number}", device)

    @property
    def files(self) -> HostFiles:
        return HostFiles(str(self.root))

    def source(self, local: bool = True) -> HostReader:
        return HostReader(
            HostFiles(str(self.root), local=local), run=self._run, units=self._units, mps=self._mps, mps3=self._mps3
        )

    def _run(self, arguments: tuple[str, ...]) -> Result:
        self.calls.append(tuple(arguments))
        answer = self.answers.get(os.path.basename(arguments[0]))
        if answer is None:
            raise CommandError(arguments, "the program is not installed")
        rc, text = answer if isinstance(answer, tuple) else (0, answer)
        return Result(tuple(arguments), rc, text if rc == 0 else "", "" if rc == 0 else text)

    def _units(self, names: list[str]) -> dict[str, Unit]:
        self.calls.append(("systemctl", "show", *names))
        return {
            name: Unit(name, "loaded", "active") if name in self.active else Unit(name, "not-found", "inactive")
            for name in names
        }

    def _mps(self, pipe: str) -> object:
        return self.daemons[pipe]

    def _mps3(self, pipe: str) -> object:
        return self.daemons[f"3:{pipe}"]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)
