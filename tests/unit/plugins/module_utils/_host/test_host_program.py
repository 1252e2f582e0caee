# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The host program: how it is installed, and what it does at boot."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.host_files import HostFiles
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.mps_control import MpsNotRunning
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml import open_nvml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_library import NvmlUnavailable
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.systemd import Unit
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.zip_imports import COMPILED
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.metric_units import METRICS_SERVICE, METRICS_TIMER
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host import (
    installation,
    main,
    restore_mig,
    restore_sharing,
    status,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.units import CDI_UNIT, MIG_UNIT, SHARING_UNIT, units
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig import apply
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.apply_machine import Machine
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.journal import Journal
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.host import HostSharing
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.pynvml_archive import pack
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._mig.virtual_gpus import VirtualHost, build

PYTHON = "/usr/bin/python3.11"
CONTENT = b"#!/usr/bin/env python3\n" + pack({"__main__.py": b"print(1)\n"})
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def section(text, key):
    return [line.split("=", 1)[1] for line in text.splitlines() if line.startswith(f"{key}=")]


def test_the_units_run_in_order_and_before_whoever_uses_a_gpu():
    texts = units(PYTHON)
    after = {name: section(text, "After")[0].split() for name, text in texts.items()}
    before = {name: section(text, "Before")[0].split() for name, text in texts.items()}
    assert MIG_UNIT in after[CDI_UNIT] and CDI_UNIT in after[SHARING_UNIT] and MIG_UNIT in after[SHARING_UNIT]
    for name in texts:
        assert {"kubelet.service", "k3s.service", "containerd.service", "nvidia-dcgm.service"} <= set(before[name])
        assert {"nvidia-persistenced.service", "nvidia-fabricmanager.service"} <= set(after[name])
        assert not set(after[name]) & set(before[name])


def test_the_units_call_verbs_that_exist():
    for text in units(PYTHON).values():
        command = section(text, "ExecStart")[0].split()
        assert command[0] == PYTHON and command[2] in main.VERBS
        assert section(text, "Type") == ["oneshot"] and section(text, "ConditionPathExists")


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host of its own, whose systemd believes everything."""
    enabled = set()
    active = set()
    reloads = []
    monkeypatch.setattr(installation, "HOST_PROGRAM", str(tmp_path / "lib" / "gpufleet-host.pyz"))
    monkeypatch.setattr(installation, "VERSION_FILE", str(tmp_path / "lib" / "VERSION"))
    monkeypatch.setattr(installation, "UNIT_DIRECTORY", str(tmp_path / "units"))
    control = installation.systemd
    monkeypatch.setattr(control, "available", lambda: True)
    monkeypatch.setattr(control, "unit", lambda name: Unit(name, "loaded", "active" if name in active else "inactive"))
    monkeypatch.setattr(control, "enabled", lambda names: frozenset(enabled & set(names)))
    monkeypatch.setattr(control, "enable", enabled.update)
    monkeypatch.setattr(control, "disable", enabled.difference_update)
    # A timer that was started is in systemd's memory, and so is its service.
    known = set()
    monkeypatch.setattr(
        control, "restart", lambda name: (active.add(name), known.update((METRICS_TIMER, METRICS_SERVICE)))
    )
    monkeypatch.setattr(control, "stop", active.discard)
    monkeypatch.setattr(control, "outdated", lambda names, changed: sorted(known & set(changed) & set(names)))
    monkeypatch.setattr(control, "daemon_reload", lambda: reloads.append(1))
    source = tmp_path / "sent.pyz"
    source.write_bytes(CONTENT)
    return tmp_path, str(source), enabled, reloads


def install(source, metrics=None):
    plan = installation.plan(installation.read(), SHA256, "1.2.3", PYTHON, metrics)
    if plan.changes:
        installation.apply(plan, source, "1.2.3", PYTHON, metrics)
        installation.read_back(plan)
    return plan


def test_installing_twice_changes_once_and_never_reloads_systemd(host):
    root, source, enabled, reloads = host
    plan = install(source)
    assert installation.needs_program(plan)
    assert (root / "lib" / "gpufleet-host.pyz").stat().st_mode & 0o777 == 0o755
    assert (root / "lib" / "VERSION").read_text() == "1.2.3\n"
    assert enabled == set(units(PYTHON)) and not reloads
    assert [path.name for path in (root / "lib").glob("compiled-*")] == [Path(COMPILED).name]
    assert not install(source).changes


def test_a_unit_that_was_changed_is_written_again(host):
    root, source, _enabled, reloads = host
    install(source)
    (root / "units" / MIG_UNIT).write_text("[Unit]\n")
    plan = install(None)
    assert [step.target for step in plan.steps] == [str(root / "units" / MIG_UNIT)]
    assert not reloads, "it is read at boot"


def test_another_version_of_the_same_program_is_named(host):
    root, source, _enabled, _reloads = host
    install(source)
    (root / "lib" / "VERSION").write_text("0.9\n")
    assert [step.kind.key for step in install(None).steps] == ["write_file"]


@pytest.mark.usefixtures("host")
def test_a_program_that_has_to_be_installed_is_needed():
    plan = installation.plan(installation.read(), SHA256, "1.2.3", PYTHON)
    with pytest.raises(installation.InstallationError, match="no program"):
        installation.apply(plan, None, "1.2.3", PYTHON)


def test_what_is_not_as_planned_is_an_error(host):
    root, source, _enabled, _reloads = host
    plan = install(source)
    (root / "lib" / "gpufleet-host.pyz").write_bytes(b"other")
    with pytest.raises(installation.InstallationError, match="program"):
        installation.read_back(plan)


def test_removing(host):
    root, source, enabled, _reloads = host
    install(source)
    plan = installation.plan_removal(installation.read())
    installation.apply_removal(plan)
    installation.read_back(plan)
    assert not enabled and not list((root / "units").iterdir()) and not list((root / "lib").iterdir())
    assert not installation.plan_removal(installation.read()).changes


def test_metrics_are_installed_moved_kept_and_removed(host):
    root, source, enabled, reloads = host
    directories = [root / name for name in ("one", "two")]
    for directory in directories:
        directory.mkdir()
    install(source)
    before = len(reloads)
    install(source, str(directories[0]))
    (directories[0] / "gpufleet.prom").write_text("x 1\n")
    assert METRICS_TIMER in enabled and METRICS_SERVICE not in enabled
    assert len(reloads) == before, "a reload can take the GPUs from running containers"
    assert installation.read().metrics_directory == str(directories[0]) and installation.read().timer_active
    assert not install(source, str(directories[0])).changes
    # Who only restores MIG says nothing of them.
    assert not install(source).changes
    moved = install(source, str(directories[1]))
    assert [step.kind.key for step in moved.steps] == ["remove_file", "write_file"]
    assert not list(directories[0].iterdir()) and installation.read().metrics_directory == str(directories[1])
    assert len(reloads) == before + 1, "systemd knows the service that was changed"
    (directories[1] / "gpufleet.prom").write_text("x 1\n")
    install(source, "")
    assert len(reloads) == before + 1
    assert enabled == set(units(PYTHON)) and not installation.read().timer_active
    assert {path.name for path in (root / "units").iterdir()} == set(units(PYTHON))
    assert not list(directories[1].iterdir())
    assert not install(source, "").changes


def test_a_timer_that_somebody_stopped_is_started_again(host):
    root, source, _enabled, reloads = host
    install(source, str(root))
    installation.systemd.stop(METRICS_TIMER)
    assert [(step.kind.key, step.target) for step in install(None, str(root)).steps] == [
        ("start_service", METRICS_TIMER)
    ]
    assert not reloads


def test_removing_everything_takes_the_metrics_along(host):
    root, source, enabled, _reloads = host
    install(source, str(root))
    (root / "gpufleet.prom").write_text("x 1\n")
    plan = installation.plan_removal(installation.read())
    installation.apply_removal(plan)
    installation.read_back(plan)
    assert not enabled and not list((root / "units").iterdir()) and not (root / "gpufleet.prom").exists()


def test_without_systemd_there_is_a_program_and_a_warning(host, monkeypatch):
    _root, source, _enabled, _reloads = host
    monkeypatch.setattr(installation.systemd, "available", lambda: False)
    plan = install(source)
    assert [step.kind.key for step in plan.steps] == ["install_host_program"] and "no systemd" in plan.warnings[0]


@pytest.mark.parametrize(("arguments", "status_code"), [([], 2), (["--help"], 0), (["dance"], 2), (["mps-quit"], 2)])
def test_calls_that_are_wrong_say_how(arguments, status_code, capsys):
    assert main.main(arguments) == status_code
    said = capsys.readouterr()
    assert "restore-mig" in said.out + said.err


def test_a_failure_is_said_and_ends_with_1(monkeypatch, capsys):
    def broken():
        raise CommandError(["nvidia-ctk"], "no answer")

    monkeypatch.setitem(main.VERBS, "refresh-cdi", (broken, ()))
    assert main.main(["refresh-cdi"]) == 1
    assert "Failed to run nvidia-ctk" in capsys.readouterr().err


def test_status_says_what_is_recorded(tmp_path, monkeypatch, capsys):
    (tmp_path / "mig.json").write_text('{"schema": 1}')
    (tmp_path / "sharing.json").write_text("{")
    monkeypatch.setattr(status, "RECORDED_MIG", str(tmp_path / "mig.json"))
    monkeypatch.setattr(status, "RECORDED_SHARING", str(tmp_path / "sharing.json"))
    monkeypatch.setattr(status, "RECORDED_SETTINGS", str(tmp_path / "settings.json"))
    assert status.status(Journal(str(tmp_path / "journal"))) == 0
    assert json.loads(capsys.readouterr().out) == {
        "last_mig_change": None,
        "recorded": {"mig": {"schema": 1}, "sharing": "unreadable", "settings": None},
    }


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with virtual GPUs, and what restores it."""
    build()
    monkeypatch.setattr(apply, "_PAUSE_SECONDS", 0.0)

    def create(board="h100-80gb-sxm"):
        virtual = VirtualHost.create(tmp_path / "host", board)
        monkeypatch.setenv("VIRTUAL_GPU_ROOT", str(virtual.root))

        def gpus(nvml, journal, policy):
            files = HostFiles(str(tmp_path / "nobody"))
            return Machine(nvml, journal, policy, files=files, reset=virtual._reset)

        def restore(seconds=0.0):
            return restore_mig.restore_mig(
                recorded=str(virtual.root / "mig.json"),
                journal=Journal(str(virtual.root / "journal")),
                machine=gpus,
                lock=str(tmp_path / "lock"),
                driver_seconds=seconds,
            )

        return virtual, restore

    return create


@pytest.mark.parametrize("board", ["a100-40gb", "h100-80gb-sxm", "rtx-pro-6000-96gb"])
def test_the_layout_is_back_in_its_places_after_a_reboot(machine, board, capsys):
    virtual, restore = machine(board)
    assert virtual.run("all-balanced").error is None
    before = virtual.layout()
    virtual.control("reboot")
    virtual.control("load", "580.126.09", "open")
    assert virtual.layout() != before
    assert restore() == 0
    assert virtual.layout() == before
    assert "create GPU instance" in capsys.readouterr().out
    last = Journal(str(virtual.root / "journal")).last()
    assert (last.program, last.outcome) == ("boot", "reached")
    assert restore() == 0 and virtual.layout() == before


def test_there_is_nothing_to_restore_without_a_record(machine, capsys):
    _virtual, restore = machine()
    assert restore() == 0 and "no MIG layout" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["{", '{"schema": 7}'])
def test_a_record_that_cannot_be_read_is_a_failure(machine, text, capsys):
    virtual, restore = machine()
    (virtual.root / "mig.json").write_text(text)
    assert restore() == 1 and "Failed to read" in capsys.readouterr().err


def test_a_gpu_that_is_not_there_any_more_is_said(machine, capsys):
    virtual, restore = machine()
    assert virtual.run("all-balanced").error is None
    document = json.loads((virtual.root / "mig.json").read_text())
    document["gpus"].append({**document["gpus"][0], "uuid": "GPU-gone", "pci_address": "0000:99:00.0"})
    (virtual.root / "mig.json").write_text(json.dumps(document))
    assert restore() == 1 and "GPU-gone" in capsys.readouterr().err


def test_a_driver_that_refuses_is_said(machine, capsys):
    virtual, restore = machine()
    assert virtual.run("all-balanced").error is None
    virtual.control("reboot")
    virtual.control("load", "580.126.09", "open")
    virtual.control("fail", "nvmlDeviceCreateGpuInstanceWithPlacement", "UNKNOWN")
    assert restore() == 1 and "Failed to reach the MIG layout" in capsys.readouterr().err


def test_a_driver_that_is_not_loaded_is_waited_for(machine, monkeypatch):
    virtual, restore = machine()
    assert virtual.run("all-balanced").error is None
    virtual.control("reboot")
    with pytest.raises(NvmlUnavailable):
        restore()
    waits = []

    def wait(_seconds):
        waits.append(1)
        virtual.control("load", "580.126.09", "open")

    clock = {name: getattr(time, name) for name in ("monotonic", "strftime", "gmtime")}
    monkeypatch.setattr(restore_mig, "time", SimpleNamespace(sleep=wait, **clock))
    assert restore(60.0) == 0 and waits == [1]


def test_cdi_is_written_where_the_toolkit_is(monkeypatch, capsys):
    monkeypatch.setattr(restore_mig.cdi, "available", lambda: False)
    assert restore_mig.refresh_cdi() == 0 and "not installed" in capsys.readouterr().out
    monkeypatch.setattr(restore_mig.cdi, "available", lambda: True)
    monkeypatch.setattr(restore_mig.cdi, "refresh", lambda: "/run/cdi/nvidia.yaml")
    assert restore_mig.refresh_cdi() == 0 and "/run/cdi/nvidia.yaml" in capsys.readouterr().out


def test_compute_mode_and_time_slice_come_back(machine, monkeypatch, tmp_path, capsys):
    machine()
    slices = []
    sharing = restore_sharing.sharing_apply
    monkeypatch.setattr(sharing, "recorded", lambda: None)
    assert restore_sharing.restore_sharing(str(tmp_path / "l"), 0.0) == 0
    monkeypatch.setattr(sharing, "recorded", lambda: HostSharing("exclusive_process", "short"))
    monkeypatch.setattr(sharing, "set_time_slice", slices.append)
    assert restore_sharing.restore_sharing(str(tmp_path / "l"), 0.0) == 0
    with open_nvml() as nvml:
        assert nvml.gpu(0).compute_mode == "exclusive_process"
    assert slices == ["short"] and "compute mode exclusive_process" in capsys.readouterr().out


class Control:
    runs = True

    def __init__(self, pipe):
        assert pipe == "/run/mps"

    def quit(self):
        if not self.runs:
            raise MpsNotRunning("no daemon")


def test_settings_and_end_of_an_mps_daemon(monkeypatch, capsys):
    sharing, told = restore_sharing.sharing_apply, []
    monkeypatch.setattr(sharing, "configured", lambda _name: None)
    assert (restore_sharing.mps_settings("a"), restore_sharing.mps_quit("a")) == (1, 0)
    daemon = type("Daemon", (), {"pipe_directory": "/run/mps"})
    monkeypatch.setattr(sharing, "configured", lambda _name: daemon)
    monkeypatch.setattr(sharing, "apply_settings", told.append)
    monkeypatch.setattr(sharing, "control_of", lambda daemon: Control(daemon.pipe_directory))
    assert (restore_sharing.mps_settings("a"), restore_sharing.mps_quit("a")) == (0, 0) and told == [daemon]
    monkeypatch.setattr(Control, "runs", False)
    assert restore_sharing.mps_quit("a") == 0 and "does not run" in capsys.readouterr().out
