# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host whose files are below a folder, and whose systemd keeps what starts at boot in links, as the real one does."""

from __future__ import annotations

import hashlib
from glob import glob
from pathlib import Path

from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.host_reader import HostReader
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.systemd import Unit
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.environment import read_host_program
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.host import Services
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import ProgramFacts, view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.host_names import wants_link
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.metric_units import (
    METRICS_SERVICE,
    METRICS_TIMER,
    TIMER_LINK,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host import installation
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.plan import plan, plan_removal, unit_texts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.units import UNIT_DIRECTORY
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import carry_out
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_program import pack

PYTHON = "/usr/bin/python3.11"
VERSION = "1.2.3"
CONTENT = b"#!/usr/bin/env python3\n" + pack({"__main__.py": b"print(1)\n"})
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class FakeHost:
    """:ivar restarted: units that were started or restarted; C(reloads) counts those of systemd."""

    def __init__(self, folder: Path, patch, systemd: bool = True) -> None:
        self.root = folder / "root"
        self.source = folder / "sent.pyz"
        self.source.parent.mkdir(parents=True, exist_ok=True)
        self.source.write_bytes(CONTENT)
        self.path("/run/systemd/system" if systemd else "/run").mkdir(parents=True)
        self.active: set[str] = set()
        self.known: set[str] = set()
        self.restarted: list[str] = []
        self.reloads = 0
        patch.setattr(installation, "read", self.read)
        patch.setattr(installation, "COMPILED", str(self.path(installation.COMPILED)))
        patch.setattr(
            installation,
            "write_whole",
            lambda path, *rest, **named: files.write_whole(str(self.path(path)), *rest, **named),
        )
        patch.setattr(installation, "remove", lambda path: files.remove(str(self.path(path))))
        patch.setattr(
            installation, "read_bytes", lambda path, links=True: files.read_bytes(str(self.path(path)), links)
        )
        root = str(self.path("/")).rstrip("/")
        patch.setattr(installation, "glob", lambda pattern: [found[len(root) :] for found in glob(root + pattern)])
        control = installation.systemd
        for name in ("enable", "disable", "unmask", "restart", "stop"):
            patch.setattr(control, name, getattr(self, name))
        patch.setattr(control, "outdated", lambda names, changed: sorted(self.known & set(changed) & set(names)))
        patch.setattr(control, "daemon_reload", self.reload)

    def path(self, path: str) -> Path:
        return Path(path) if path == str(self.source) else self.root / path.lstrip("/")

    def unit(self, name: str) -> Path:
        return self.path(f"{UNIT_DIRECTORY}/{name}")

    def link(self, name: str) -> Path:
        return self.path(TIMER_LINK if name == METRICS_TIMER else wants_link(name))

    @property
    def enabled(self) -> set[str]:
        return {path.name for path in self.path(UNIT_DIRECTORY).glob("*.wants/*")}

    def facts(self):
        active = "active" if METRICS_TIMER in self.active else "inactive"
        services = Services({METRICS_TIMER: Unit(METRICS_TIMER, "loaded", active)})
        return {"host_program": read_host_program(HostReader(HostFiles(str(self.root))), services, PYTHON)}

    def read(self) -> ProgramFacts:
        return view_of(self.facts()).host_program

    def enable(self, names) -> None:
        for name in names:
            if not self.unit(name).is_file():
                raise CommandError(["systemctl", "enable", name], "it is masked, or has no file")
            self.link(name).parent.mkdir(parents=True, exist_ok=True)
            files.remove(str(self.link(name)))
            self.link(name).symlink_to(f"{UNIT_DIRECTORY}/{name}")

    def disable(self, names) -> None:
        for name in names:
            if self.unit(name).is_file():
                files.remove(str(self.link(name)))

    def mask(self, name: str) -> None:
        files.remove(str(self.unit(name)))
        self.unit(name).parent.mkdir(parents=True, exist_ok=True)
        self.unit(name).symlink_to("/dev/null")

    def unmask(self, name: str) -> None:
        if self.unit(name).is_symlink():
            self.unit(name).unlink()

    def restart(self, name: str) -> None:
        if not self.unit(name).is_file():
            raise CommandError(["systemctl", "restart", name], "it is masked, or has no file")
        self.active.add(name)
        # A timer that was started is in systemd's memory, and so is its service.
        self.known |= {METRICS_TIMER, METRICS_SERVICE}
        self.restarted.append(name)

    def stop(self, name: str) -> None:
        self.active.discard(name)

    def reload(self) -> None:
        self.reloads += 1

    def plan(self, metrics=None):
        return plan(self.read(), VERSION, SHA256, metrics)

    def install(self, metrics=None):
        """Do what the module does."""
        found, steps = self.read(), self.plan(metrics)
        if steps.changes:
            texts = unit_texts(found, metrics)
            carry_out(
                "install the host program",
                steps,
                lambda plan: installation.apply(plan, texts, str(self.source), VERSION),
                lambda: self.plan(metrics),
            )
        return steps

    def remove(self):
        steps = plan_removal(self.read())
        carry_out("remove the host program", steps, installation.apply_removal, lambda: plan_removal(self.read()))
        return steps
