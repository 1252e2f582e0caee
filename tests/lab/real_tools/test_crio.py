# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unmodified CRI-O starts with the drop-in that the collection writes, and not with what it replaces.

Stand-ins: conmon, crun, pinns and nvidia-container-runtime, of which CRI-O asks no more than a version before it runs a container.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import install
import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.toml_read import loads
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime import crio
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.desired import DesiredRuntime

pytestmark = pytest.mark.lab

OURS = "99-gpufleet-nvidia.conf"
#: 10-crio.conf of upstream's packages (cri-o/packaging), which keep conmon and crun outside of PATH.
PACKAGED = """
[crio.runtime]
default_runtime = "crun"

[crio.runtime.runtimes.crun]
runtime_path = "{libexec}/crun"
runtime_root = "/run/crun"
monitor_path = "{libexec}/conmon"
"""
#: What it is without the default handler's fields, as a handler of nvidia-ctk before 1.19 is (nvidia-container-toolkit#681).
BARE = """
[crio.runtime.runtimes.nvidia]
runtime_path = "{program}"
runtime_type = "oci"
"""


class Crio:
    """CRI-O, with everything that it reads or writes below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.drop_ins = folder / "crio.conf.d"
        self.libexec = folder / "libexec"
        self.socket = folder / "crio.sock"
        try:
            self.program = install.install(install.TOOLS["crio"])
        except install.NotInstalled as error:
            pytest.fail(str(error), pytrace=False)
        (folder / "crio.conf").touch()
        for name in ("libexec", "bin", "crio.conf.d", "cni", "hooks"):
            (folder / name).mkdir()
        for name in ("libexec/crun", "libexec/conmon", "libexec/pinns", "bin/nvidia-container-runtime"):
            program = folder / name
            program.write_text("#!/bin/sh\necho conmon version 2.1.12; echo commit: 0\n", encoding="utf-8")
            program.chmod(0o755)
        self.write("10-crio.conf", PACKAGED.format(libexec=self.libexec))

    @property
    def runtime(self) -> str:
        return f"{self.folder}/bin/nvidia-container-runtime"

    def write(self, name: str, text: str) -> None:
        (self.drop_ins / name).write_text(text, encoding="utf-8")

    def ours(self, runtime: str) -> str:
        """The drop-in that the collection writes on this host."""
        handler = crio.handler_of(self.run("config", "--default"), self.run("config"))
        text = crio.edit({}, DesiredRuntime(binary=runtime), handler).changed[0].after
        assert text is not None
        return text

    def command(self, *arguments: str) -> list[str]:
        return [
            *(str(self.program), "--config", f"{self.folder}/crio.conf", "--config-dir", str(self.drop_ins)),
            *arguments,
        ]

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments), env=self.environment, capture_output=True, text=True, check=False
        )

    def run(self, *arguments: str) -> str:
        done = self.ask(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": f"{self.folder}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.folder)}

    def start(self) -> str:
        """Start the service; what it holds for its configuration once it is up, or what it said when it ended."""
        places = {
            "root": "root",
            "runroot": "run",
            "listen": "crio.sock",
            "log-dir": "log",
            "cni-config-dir": "cni",
            "hooks-dir": "hooks",
            "namespaces-dir": "ns",
            "container-exits-dir": "exits",
            "container-attach-socket-dir": "attach",
            "version-file": "version",
            "clean-shutdown-file": "clean",
            "pinns-path": "libexec/pinns",
        }
        options = [f"--{name}={self.folder}/{place}" for name, place in places.items()]
        options += [
            "--cgroup-manager=cgroupfs",
            "--storage-driver=vfs",
            "--enable-nri=false",
            "--disable-hostport-mapping",
            "--version-file-persist=",
        ]
        log = self.folder / "crio.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                self.command(*options), env=self.environment, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            until = time.monotonic() + 120
            while process.poll() is None and time.monotonic() < until:
                asked = self.ask("status", "--socket", str(self.socket), "config")
                if asked.returncode == 0:
                    return asked.stdout
                time.sleep(0.2)
            return log.read_text(encoding="utf-8")
        finally:
            process.terminate()
            process.wait(timeout=60)


@pytest.fixture
def service(tmp_path: Path) -> Crio:
    return Crio(tmp_path)


@pytest.mark.proves("runtime", "", rows=["crio"], level="real", note="1.34; conmon and crun are stand-ins")
def test_crio_starts_with_our_drop_in_and_has_its_handler_in_force(service: Crio) -> None:
    service.write(OURS, service.ours(service.runtime))
    in_force = loads(service.start())["crio"]["runtime"]["runtimes"]
    assert set(in_force) == {"crun", "nvidia"}
    assert in_force["nvidia"]["runtime_path"] == service.runtime
    shared = [{**table, "runtime_path": "", "runtime_type": ""} for table in in_force.values()]
    assert shared[0] == shared[1] and shared[0]["monitor_path"] == f"{service.libexec}/conmon"


def test_without_the_default_handlers_fields_it_does_not_start(service: Crio) -> None:
    service.write(OURS, BARE.format(program=service.runtime))
    said = service.start()
    assert "monitor fields translation" in said and "nvidia" in said, said


def test_a_relative_path_leaves_crio_without_the_handler(service: Crio) -> None:
    service.write(OURS, service.ours("nvidia-container-runtime"))
    said = service.start()
    assert "nvidia" not in loads(said)["crio"]["runtime"]["runtimes"], said


def test_what_crio_prints_is_what_the_collection_takes_for_in_force(service: Crio) -> None:
    service.write(OURS, service.ours(service.runtime))
    found = crio.effective(service.run("config"))
    assert (found.binary, found.runtimes) == (service.runtime, ("crun", "nvidia"))
