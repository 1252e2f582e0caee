# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The host program: how it is installed, and what it does at boot."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.mps_control import MpsNotRunning
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_gpus import open_nvml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_library import (
    HOST_PROGRAM,
    NvmlUnavailable,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.zip_imports import COMPILED
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.host_names import (
    CDI_UNIT,
    MIG_UNIT,
    SHARING_UNIT,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.metric_units import METRICS_SERVICE, METRICS_TIMER
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host import installation, main, restore
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host import stage as stage_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.plan import VERSION_FILE, is_installed, plan_removal
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.stage import PROGRAM
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.units import UNIT_DIRECTORY, units
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig import apply
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.apply_machine import Machine
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.journal import Journal
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure, NotInEffect, StagePlan
from ansible_collections.gpufleet.nvidia.plugins.module_utils._records import HostSharing
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import mps_units
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.mps_instances import UNIT as MPS_UNIT
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import by_document
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._host.fake_host import (
    CONTENT,
    PYTHON,
    SHA256,
    VERSION,
    FakeHost,
)
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._mig.virtual_gpus import VirtualHost, build
from hypothesis import given, settings, strategies

stage = by_document(stage_of.stage)


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


def test_the_texts_of_units_name_only_kubelets_that_are_set_up_from_here():
    """With another name systemd reads them again, on every host."""
    assert "k0s" not in "".join((*units(PYTHON).values(), mps_units.unit_text("/program"), mps_units.SHM_UNIT_TEXT))


def test_the_units_call_verbs_that_exist():
    for text in units(PYTHON).values():
        command = section(text, "ExecStart")[0].split()
        assert command[0] == PYTHON and command[2] in main.VERBS
        assert section(text, "Type") == ["oneshot"] and section(text, "ConditionPathExists")


@pytest.fixture
def host(tmp_path, monkeypatch):
    return FakeHost(tmp_path, monkeypatch)


def kinds(steps):
    return [step.kind.key for step in steps.steps]


def test_installing_twice_changes_once_and_never_reloads_systemd(host):
    assert installation.needs_program(host.install())
    program = host.path(HOST_PROGRAM)
    assert program.stat().st_mode & 0o777 == 0o755 and program.read_bytes() == CONTENT
    assert host.path(VERSION_FILE).read_text() == "1.2.3\n"
    assert host.enabled == set(units("")) and not host.reloads and not host.restarted
    assert [path.name for path in program.parent.glob("compiled-*")] == [Path(COMPILED).name]
    assert not host.install().changes


def test_a_unit_that_was_changed_is_written_again(host):
    host.install()
    host.unit(MIG_UNIT).write_text("[Unit]\n")
    steps = host.install()
    assert [step.target for step in steps.steps] == [f"{UNIT_DIRECTORY}/{MIG_UNIT}"]
    assert not host.reloads, "it is read at boot"


def test_units_that_would_not_run_at_boot_are_named_and_mended(host):
    host.install("/metrics")
    host.disable([MIG_UNIT])
    host.mask(SHARING_UNIT)
    host.unit(CDI_UNIT).unlink()
    host.mask(METRICS_TIMER)
    assert [str(step) for step in host.install("/metrics").steps] == [
        f"write {UNIT_DIRECTORY}/{CDI_UNIT} (it is missing)",
        f"unmask {METRICS_TIMER} (it has to run at boot)",
        f"write {UNIT_DIRECTORY}/{METRICS_TIMER} (it is missing)",
        f"enable {METRICS_TIMER} (it has to run at boot)",
        f"enable {MIG_UNIT} (it has to run at boot)",
        f"unmask {SHARING_UNIT} (it has to run at boot)",
        f"write {UNIT_DIRECTORY}/{SHARING_UNIT} (it is missing)",
        f"enable {SHARING_UNIT} (it has to run at boot)",
        f"start {METRICS_TIMER} (metrics have to be written)",
    ]
    assert host.enabled == {*units(""), METRICS_TIMER} and host.reloads == 1


@pytest.mark.parametrize(
    ("version", "content", "why"),
    [
        ("1.2.3", b"#!\n", "it is not that of version 1.2.3, although it says so"),
        ("0.9", b"#!\n", "it is of version 0.9, not 1.2.3"),
        (None, b"#!\n", "it is of version unknown, not 1.2.3"),
        ("1.2.3", None, "it is missing"),
    ],
)
def test_a_program_that_is_not_that_of_the_release_is_replaced(host, version, content, why):
    host.install("/metrics")
    host.restarted.clear()
    write = {HOST_PROGRAM: content, VERSION_FILE: None if version is None else f"{version}\n".encode()}
    for path, data in write.items():
        host.path(path).unlink()
        if data is not None:
            host.path(path).write_bytes(data)
    steps = host.install("/metrics")
    assert [(step.kind.key, step.why) for step in steps.steps] == [("install_host_program", why)]
    assert not any(step.disturbs for step in steps.steps) and not host.restarted
    assert SHA256 not in " ".join(map(str, steps.steps))


def test_another_version_of_the_same_program_is_named(host):
    host.install()
    host.path(VERSION_FILE).write_text("0.9\n")
    assert kinds(host.install()) == ["write_file"]


def test_bytecode_that_is_not_there_is_made_with_the_next_change(host):
    host.install()
    for path in host.path(HOST_PROGRAM).parent.glob("compiled-*"):
        path.unlink()
    assert not host.plan().changes
    host.disable([MIG_UNIT])
    host.install()
    assert list(host.path(HOST_PROGRAM).parent.glob("compiled-*"))


def test_a_program_that_has_to_be_installed_is_needed(host):
    with pytest.raises(Failure, match="no program"):
        installation.apply(host.plan(), {}, None, "1.2.3")


def test_what_is_not_as_planned_is_an_error(host, monkeypatch):
    """Another tool that manages the same files."""
    monkeypatch.setattr(installation.systemd, "enable", lambda names: list(names))
    with pytest.raises(NotInEffect, match=f"these are still needed: enable {CDI_UNIT}"):
        host.install()


def test_the_file_of_the_mps_daemons_is_kept_where_there_are_some(host):
    host.install()
    assert not host.unit(MPS_UNIT).exists()
    host.link(mps_units.instance("node")).symlink_to(f"{UNIT_DIRECTORY}/{MPS_UNIT}")
    host.unit(MPS_UNIT).write_text("[Unit]\n")
    assert [step.target for step in host.install().steps] == [f"{UNIT_DIRECTORY}/{MPS_UNIT}"]
    assert host.unit(MPS_UNIT).read_text() == mps_units.unit_text(HOST_PROGRAM)
    assert not host.restarted and not host.reloads
    host.remove()
    assert host.unit(MPS_UNIT).exists(), "it goes with the daemons"


def test_removing(host):
    host.install()
    host.remove()
    assert not host.enabled and not list(host.path(UNIT_DIRECTORY).glob("*.service"))
    assert not list(host.path(HOST_PROGRAM).parent.iterdir())
    assert not plan_removal(host.read()).changes


def test_a_host_whose_program_is_gone_and_whose_units_are_masked_can_be_removed(host):
    host.install("/metrics")
    host.path(HOST_PROGRAM).unlink()
    host.mask(MIG_UNIT)
    host.mask(METRICS_TIMER)
    host.unit(CDI_UNIT).unlink()
    host.remove()
    assert not host.enabled and [path for path in host.path(UNIT_DIRECTORY).iterdir() if not path.is_dir()] == []


def test_metrics_are_installed_moved_kept_and_removed(host):
    one, two = "/srv/one", "/srv/two"
    for directory in (one, two):
        host.path(directory).mkdir(parents=True)
    host.install()
    host.install(one)
    host.path(f"{one}/gpufleet.prom").write_text("x 1\n")
    assert METRICS_TIMER in host.enabled and METRICS_SERVICE not in host.enabled
    assert not host.reloads, "a reload can take the GPUs from running containers"
    assert host.read().metrics_directory == one and host.read().metrics_active
    assert not host.install(one).changes
    # Who only restores MIG says nothing of them.
    assert not host.install().changes
    assert kinds(host.install(two)) == ["remove_file", "write_file"]
    assert not list(host.path(one).iterdir()) and host.read().metrics_directory == two
    assert host.reloads == 1, "systemd knows the service that was changed"
    host.path(f"{two}/gpufleet.prom").write_text("x 1\n")
    host.install("")
    assert host.reloads == 1
    assert host.enabled == set(units("")) and not host.read().metrics_active
    assert not list(host.path(two).iterdir())
    assert not host.install("").changes


def test_a_timer_that_somebody_stopped_is_started_again(host):
    host.install("/metrics")
    host.stop(METRICS_TIMER)
    assert [(step.kind.key, step.target) for step in host.install("/metrics").steps] == [
        ("start_service", METRICS_TIMER)
    ]
    assert not host.reloads


def test_removing_everything_takes_the_metrics_along(host):
    host.install("/metrics")
    host.path("/metrics").mkdir()
    host.path("/metrics/gpufleet.prom").write_text("x 1\n")
    host.remove()
    assert not host.enabled and not host.path("/metrics/gpufleet.prom").exists()


def test_without_systemd_there_is_a_program_and_a_warning(tmp_path, monkeypatch):
    host = FakeHost(tmp_path, monkeypatch, systemd=False)
    steps = host.install()
    assert kinds(steps) == ["install_host_program"] and "no systemd" in steps.warnings[0]
    assert not host.install("/metrics").changes


@settings(max_examples=20, deadline=None)
@given(data=strategies.data())
def test_whatever_was_done_to_a_host_it_is_mended_in_one_run(tmp_path_factory, data):
    with pytest.MonkeyPatch.context() as patch:
        host = FakeHost(tmp_path_factory.mktemp("host"), patch)
        directories = ["", "/one", "/two"]
        if data.draw(strategies.booleans()):
            host.install(data.draw(strategies.sampled_from(directories)))
        for name in (*units(""), METRICS_SERVICE, METRICS_TIMER):
            {
                "nothing": lambda _name: None,
                "disable": lambda name: files.remove(str(host.link(name))),
                "mask": host.mask,
                "remove": lambda name: files.remove(str(host.unit(name))),
                "change": lambda name: files.write_whole(str(host.unit(name)), "[Unit]\n"),
            }[data.draw(strategies.sampled_from(["nothing", "disable", "mask", "remove", "change"]))](name)
        if data.draw(strategies.booleans()):
            host.stop(METRICS_TIMER)
        for path in (HOST_PROGRAM, VERSION_FILE):
            content = data.draw(strategies.sampled_from([None, b"0.9\n", ...]))
            if content is None:
                files.remove(str(host.path(path)))
            elif content is not ...:
                files.write_whole(str(host.path(path)), content)
        wanted = data.draw(strategies.sampled_from(directories))
        variables = {
            "nvidia_mig_layout": "all-balanced",
            "nvidia_health_metrics": bool(wanted),
            "nvidia_health_metrics_directory": wanted,
            PROGRAM: {"version": VERSION, "sha256": SHA256},
        }
        # The stage, which decides whether the module runs, and the module agree.
        planned = stage(host.facts(), variables)
        assert list(planned.steps) == list(host.install(wanted).steps)
        assert stage(host.facts(), variables) == StagePlan("boot", needed=False)
        assert host.enabled == {*units(""), *([METRICS_TIMER] if wanted else [])}
        assert set(host.restarted) <= {METRICS_TIMER}
        host.remove()
        assert not host.enabled and not is_installed(host.read())


BARE = {
    "version": None,
    "sha256": None,
    "python": PYTHON,
    "metrics_directory": None,
    "metrics_active": False,
    "units": {},
}
LOADED = {"driver": {"loaded_version": "580.126.09"}}


@pytest.mark.parametrize(
    ("facts", "variables", "needed"),
    [
        # Whether its driver is loaded is another question: a host without it gets what it restores, and nothing that is not wanted once it is.
        ({}, {}, False),
        ({}, {"nvidia_mig_layout": "all-balanced"}, True),
        (LOADED, {}, False),
        (LOADED, {"nvidia_mig_layout": "all-balanced"}, True),
        (LOADED, {"nvidia_mig_layout": "all-balanced", "nvidia_mig_restore": False}, False),
        (LOADED, {"nvidia_settings_power_limit": 300}, True),
        (LOADED, {"nvidia_settings_power_limit": -1}, False),
        (LOADED, {"nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 4}, False),
        (
            LOADED,
            {"nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 4, "nvidia_sharing_time_slice": "long"},
            True,
        ),
        (LOADED, {"nvidia_sharing_mode": "mps", "nvidia_sharing_memory_slice": "4GiB"}, False),
        (
            LOADED,
            {
                "nvidia_sharing_mode": "mps",
                "nvidia_sharing_memory_slice": "4GiB",
                "nvidia_sharing_mps_manager": "host",
            },
            True,
        ),
        (LOADED, {"nvidia_sharing_compute_mode": "exclusive_process"}, True),
        (LOADED, {"nvidia_health_metrics": True, "nvidia_health_metrics_directory": "/metrics"}, True),
        ({**LOADED, "recorded": {"mig": {"schema": 1}}}, {}, True),
        ({**LOADED, "recorded": {"sharing": {"schema": 1, "compute_mode": "default", "daemons": []}}}, {}, False),
        ({**LOADED, "recorded": {"sharing": {"schema": 1, "compute_mode": "exclusive_process"}}}, {}, True),
        ({**LOADED, "recorded": {"sharing": {"daemons": [{}]}}}, {}, True),
        ({**LOADED, "host_program": {**BARE, "sha256": "0"}}, {}, True),
        ({**LOADED, "host_program": {**BARE, "units": {MIG_UNIT: {"sha256": None, "state": "masked"}}}}, {}, True),
    ],
)
def test_which_hosts_need_the_program(facts, variables, needed):
    given = {"host_program": BARE, **facts}
    found = stage(given, {PROGRAM: {"version": VERSION, "sha256": SHA256}, **variables})
    assert found.needed is needed
    assert ("install_host_program" in [step.kind.key for step in found.steps]) is needed


@pytest.mark.parametrize(
    ("part", "program", "why"),
    [
        ({"sha256": "0"}, {"version": VERSION, "sha256": SHA256}, "earlier release"),
        (BARE, "Failed to send pynvml to the host", "Failed to send pynvml"),
    ],
)
def test_what_is_not_known_is_not_taken_for_done(part, program, why):
    found = stage({"host_program": part}, {PROGRAM: program, "nvidia_mig_layout": "all-balanced"})
    assert found.needed and not found.steps and why in found.unread


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
    monkeypatch.setattr(main, "RECORDED_MIG", str(tmp_path / "mig.json"))
    monkeypatch.setattr(main, "RECORDED_SHARING", str(tmp_path / "sharing.json"))
    monkeypatch.setattr(main, "RECORDED_SETTINGS", str(tmp_path / "settings.json"))
    monkeypatch.setattr(main, "Journal", lambda: Journal(str(tmp_path / "journal")))
    assert main.status() == 0
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

        monkeypatch.setattr(restore, "RECORDED_MIG", str(virtual.root / "mig.json"))
        monkeypatch.setattr(restore, "LOCK_PATH", str(tmp_path / "lock"))
        monkeypatch.setattr(restore, "Journal", lambda: Journal(str(virtual.root / "journal")))
        monkeypatch.setattr(restore, "Machine", gpus)

        def back(seconds=0.0):
            monkeypatch.setattr(restore, "_DRIVER_SECONDS", seconds)
            return restore.restore_mig()

        return virtual, back

    return create


@pytest.mark.parametrize("board", ["a100-40gb", "h100-80gb-sxm", "rtx-pro-6000-96gb"])
def test_the_layout_is_back_in_its_places_after_a_reboot(machine, board, capsys):
    virtual, back = machine(board)
    assert virtual.run("all-balanced").error is None
    before = virtual.layout()
    virtual.control("reboot")
    virtual.control("load", "580.126.09", "open")
    assert virtual.layout() != before
    assert back() == 0
    assert virtual.layout() == before
    assert "create GPU instance" in capsys.readouterr().out
    last = Journal(str(virtual.root / "journal")).last()
    assert (last.program, last.outcome) == ("boot", "reached")
    assert back() == 0 and virtual.layout() == before


def test_there_is_nothing_to_restore_without_a_record(machine, capsys):
    _virtual, back = machine()
    assert back() == 0 and "no MIG layout" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["{", '{"schema": 7}'])
def test_a_record_that_cannot_be_read_is_a_failure(machine, text, capsys):
    virtual, back = machine()
    (virtual.root / "mig.json").write_text(text)
    assert back() == 1 and "Failed to read" in capsys.readouterr().err


def test_a_gpu_that_is_not_there_any_more_is_said(machine, capsys):
    virtual, back = machine()
    assert virtual.run("all-balanced").error is None
    document = json.loads((virtual.root / "mig.json").read_text())
    document["gpus"].append({**document["gpus"][0], "uuid": "GPU-gone", "pci_address": "0000:99:00.0"})
    (virtual.root / "mig.json").write_text(json.dumps(document))
    assert back() == 1 and "GPU-gone" in capsys.readouterr().err


def test_a_driver_that_refuses_is_said(machine, capsys):
    virtual, back = machine()
    assert virtual.run("all-balanced").error is None
    virtual.control("reboot")
    virtual.control("load", "580.126.09", "open")
    virtual.control("fail", "nvmlDeviceCreateGpuInstanceWithPlacement", "UNKNOWN")
    assert back() == 1 and "Failed to reach the MIG layout" in capsys.readouterr().err


def test_a_driver_that_is_not_loaded_is_waited_for(machine, monkeypatch):
    virtual, back = machine()
    assert virtual.run("all-balanced").error is None
    virtual.control("reboot")
    with pytest.raises(NvmlUnavailable):
        back()
    waits = []

    def wait(_seconds):
        waits.append(1)
        virtual.control("load", "580.126.09", "open")

    clock = {name: getattr(time, name) for name in ("monotonic", "strftime", "gmtime")}
    monkeypatch.setattr(restore, "time", SimpleNamespace(sleep=wait, **clock))
    assert back(60.0) == 0 and waits == [1]


def test_cdi_is_written_where_the_toolkit_is(monkeypatch, capsys):
    monkeypatch.setattr(restore.cdi_generator, "available", lambda: False)
    assert restore.refresh_cdi() == 0 and "not installed" in capsys.readouterr().out
    monkeypatch.setattr(restore.cdi_generator, "available", lambda: True)
    monkeypatch.setattr(restore.cdi_generator, "refresh", lambda: "/run/cdi/nvidia.yaml")
    assert restore.refresh_cdi() == 0 and "/run/cdi/nvidia.yaml" in capsys.readouterr().out


def test_compute_mode_and_time_slice_come_back(machine, monkeypatch, capsys):
    machine()
    slices = []
    sharing = restore.sharing_apply
    monkeypatch.setattr(sharing, "recorded", lambda: None)
    assert restore.restore_sharing() == 0
    monkeypatch.setattr(sharing, "recorded", lambda: HostSharing("exclusive_process", "short"))
    monkeypatch.setattr(sharing, "set_time_slice", slices.append)
    assert restore.restore_sharing() == 0
    with open_nvml() as nvml:
        assert nvml.gpu(0).facts["compute_mode"] == "exclusive_process"
    assert slices == ["short"] and "compute mode exclusive_process" in capsys.readouterr().out


class Control:
    runs = True

    def __init__(self, pipe):
        assert pipe == "/run/mps"

    def quit(self):
        if not self.runs:
            raise MpsNotRunning("no daemon")


def test_settings_and_end_of_an_mps_daemon(monkeypatch, capsys):
    sharing, told = restore.sharing_apply, []
    monkeypatch.setattr(sharing, "configured", lambda _name: None)
    assert (restore.mps_settings("a"), restore.mps_quit("a")) == (1, 0)
    daemon = type("Daemon", (), {"pipe_directory": "/run/mps"})
    monkeypatch.setattr(sharing, "configured", lambda _name: daemon)
    monkeypatch.setattr(sharing, "apply_settings", told.append)
    monkeypatch.setattr(sharing, "control_of", lambda daemon: Control(daemon.pipe_directory))
    assert (restore.mps_settings("a"), restore.mps_quit("a")) == (0, 0) and told == [daemon]
    monkeypatch.setattr(Control, "runs", False)
    assert restore.mps_quit("a") == 0 and "does not run" in capsys.readouterr().out
