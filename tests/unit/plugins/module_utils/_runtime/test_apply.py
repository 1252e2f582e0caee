# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writing, restarting, reading back and putting back, with a runtime that is played."""

from __future__ import annotations

import errno
import os
from dataclasses import replace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime import apply as module
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime import containerd
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.desired import DesiredRuntime
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.engines import RuntimeFailure
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.plan import Merged, Service
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import ASIDE, Kind

DESIRED = DesiredRuntime()
TEXT = "version = 2\n# mine\n"


class Played:
    """containerd on one file; what is in force changes with a restart only."""

    name = "containerd"

    def __init__(self, path, active=True):
        self.path = path
        self.active = active
        self.running = path.read_text()
        self.restarts = 0
        self.broken = False

    def files(self):
        return {str(self.path): self.path.read_text()}

    def edit(self, files, desired):
        return containerd.edit((1, 6, 20), files, desired, str(self.path))

    def merged(self, files):
        text = files[str(self.path)]
        return Merged(containerd.effective(text), text)

    def present(self, files):
        return self.merged(files)

    def service(self):
        return Service("containerd.service", active=self.active, containers=1)

    def in_force(self):
        return containerd.effective(self.running)

    def restart(self, unit, **_options):
        self.restarts += 1
        if self.broken and self.restarts == 1:
            raise CommandError(["systemctl", "restart", unit], "the unit is failed")
        self.running = self.path.read_text()


@pytest.fixture
def engine(tmp_path, monkeypatch):
    path = tmp_path / "config.toml"
    path.write_text(TEXT)
    path.chmod(0o600)
    played = Played(path)
    monkeypatch.setattr(module, "PENDING_FOLDER", str(tmp_path / "run"))
    monkeypatch.setattr(module, "_SETTLE", 0.0)
    monkeypatch.setattr(module.systemd, "restart", played.restart)
    return played


def outcome(engine, desired=DESIRED, disruption="refuse"):
    return module.observe_and_plan(engine, desired, "auto", disruption)


def test_writes_restarts_and_reads_back(engine, tmp_path):
    in_force = module.apply(engine, DESIRED, outcome(engine))
    assert in_force.shortfalls(DESIRED) == ()
    assert engine.restarts == 1
    assert engine.path.stat().st_mode & 0o777 == 0o600
    assert not list((tmp_path / "run").iterdir())
    assert not outcome(engine).plan.changes


def test_a_runtime_that_does_not_run_is_only_configured(engine):
    engine.active = False
    made = outcome(engine)
    engine.running = made.changes[0].after
    module.apply(engine, DESIRED, made)
    assert engine.restarts == 0


def test_a_runtime_that_does_not_come_up_gets_its_files_back(engine):
    engine.broken = True
    with pytest.raises(RuntimeFailure, match=r"the unit is failed\. The former files are restored\."):
        module.apply(engine, DESIRED, outcome(engine))
    assert engine.path.read_text() == TEXT
    assert engine.restarts == 2


def test_what_is_not_in_force_afterwards_is_put_back(engine, monkeypatch):
    monkeypatch.setattr(module.systemd, "restart", lambda *_arguments, **_options: None)
    with pytest.raises(RuntimeFailure, match="afterwards the runtime nvidia is not configured"):
        module.apply(engine, DESIRED, outcome(engine))
    assert engine.path.read_text() == TEXT


def test_a_runtime_that_is_beyond_help_says_so(engine, monkeypatch, tmp_path):
    def fail(unit, **_options):
        raise CommandError(["systemctl", "restart", unit], "masked")

    monkeypatch.setattr(module.systemd, "restart", fail)
    with pytest.raises(RuntimeFailure, match="The former files are restored, but Failed to run systemctl"):
        module.apply(engine, DESIRED, outcome(engine))
    # The next run restarts.
    assert list((tmp_path / "run").iterdir())


def test_a_link_stays_a_link(engine, tmp_path):
    link = tmp_path / "link.toml"
    link.symlink_to(engine.path)
    engine.path = link
    module.apply(engine, DESIRED, outcome(engine))
    assert link.is_symlink()
    assert "nvidia" in link.read_text()


def test_removal_gives_the_bytes_back(engine):
    module.apply(engine, DESIRED, outcome(engine))
    absent = DesiredRuntime(present=False)
    module.apply(engine, absent, outcome(engine, absent))
    assert engine.path.read_text() == TEXT


def test_a_file_that_is_no_toml_is_refused(engine):
    engine.path.write_text("[[[")
    with pytest.raises(Refused, match="cannot be read or edited"):
        outcome(engine)


def test_reload(monkeypatch):
    ran = []
    monkeypatch.setattr(module, "run", lambda command, **_options: ran.append(command))
    module._take_over(module.Kind.RELOAD_SERVICE, Service("docker.service"))
    module._take_over(None, Service())
    assert ran == [["systemctl", "reload", "docker.service"]]


def dead(engine):
    """Make it a runtime that does not start with what its file says before it is edited."""
    broken = engine.path.read_text()
    engine.active = False
    merged = engine.merged

    def judged(files):
        if files[str(engine.path)] == broken:
            raise RuntimeFailure("config.toml: unsupported version")
        return merged(files)

    engine.merged = judged


def test_a_runtime_that_its_files_keep_from_starting_is_brought_back(engine, monkeypatch):
    dead(engine)
    calls = []
    monkeypatch.setattr(module, "run", lambda command, **_options: calls.append(command))
    monkeypatch.setattr(module.systemd, "start", engine.restart)
    made = outcome(engine)
    assert made.plan.steps[-1].kind is Kind.START_SERVICE
    assert module.apply(engine, DESIRED, made).shortfalls(DESIRED) == ()
    assert calls == [["systemctl", "reset-failed", "containerd.service"]]


def test_a_runtime_that_the_change_does_not_mend_says_why(engine):
    def refuses(_files):
        raise RuntimeFailure("config.toml: unsupported version")

    engine.merged = refuses
    with pytest.raises(RuntimeFailure, match="unsupported version"):
        outcome(engine)


def refuse():
    raise OSError(errno.EROFS, "Read-only file system")


def test_a_former_toolkit_is_moved_aside_and_comes_back_where_the_runtime_does_not(engine, tmp_path, monkeypatch):
    former = tmp_path / "toolkit"
    former.mkdir()
    (tmp_path / f"toolkit{ASIDE}").mkdir()
    edit = engine.edit
    engine.edit = lambda files, desired: replace(edit(files, desired), moves=(str(former),))
    made = outcome(engine, disruption="force")
    assert [step.target for step in made.plan.steps if step.kind is Kind.MOVE_ASIDE] == [str(former)]
    engine.broken = True
    with pytest.raises(RuntimeFailure, match="former files are restored"):
        module.apply(engine, DESIRED, made)
    assert former.is_dir()
    moving = os.replace
    with monkeypatch.context() as patch:
        patch.setattr(
            os, "replace", lambda old, new: refuse() if new.startswith(str(former) + ASIDE) else moving(old, new)
        )
        with pytest.raises(RuntimeFailure, match=r"Read-only.*former files are restored\."):
            module.apply(engine, DESIRED, made)
    engine.broken = False
    module.apply(engine, DESIRED, outcome(engine, disruption="force"))
    assert not former.exists() and (tmp_path / f"toolkit{ASIDE}2").is_dir()
