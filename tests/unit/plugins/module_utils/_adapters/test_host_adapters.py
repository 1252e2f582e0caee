# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import (
    cdi_generator,
    files,
    gpu_reset,
    processes,
    systemd,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError, Result


def test_the_second_holder_of_the_lock_is_refused_with_the_first_ones_name(tmp_path):
    path = str(tmp_path / "lock" / "gpufleet.lock")
    with files.exclusive(0, path), pytest.raises(files.Locked) as refused, files.exclusive(0.2, path):
        pass
    assert refused.value.holder == os.getpid() and f"process {os.getpid()}" in str(refused.value)
    with files.exclusive(0, path):
        pass


def test_the_lock_ends_with_a_holder_that_is_killed(tmp_path):
    path = tmp_path / "gpufleet.lock"
    code = "import fcntl,sys,time; f=open(sys.argv[1],'w'); fcntl.flock(f, 2); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        with pytest.raises(files.Locked) as refused, files.exclusive(0, str(path)):
            pass
        assert refused.value.holder is None and "another process" in str(refused.value)
        holder.kill()
    with files.exclusive(5, str(path)):
        assert path.read_text() == f"{os.getpid()}\n"


def test_only_its_owner_can_open_the_lock_for_who_can_open_it_can_hold_it(tmp_path):
    path = tmp_path / "gpufleet" / "lock"
    with files.exclusive(0, str(path)):
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o022 == 0


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError), files.exclusive(0, str(tmp_path / "link")):
        pass
    assert not (tmp_path / "target").exists()


class Systemctl:
    """Answers for systemctl; changes what a verb changes unless it is told to lie."""

    def __init__(self):
        self.units = {}
        self.calls = []
        self.lies = False
        self.rc = 0

    def add(self, name, active="inactive", enabled="disabled", load="loaded"):
        self.units[name] = {"LoadState": load, "ActiveState": active, "UnitFileState": enabled}

    def __call__(self, command, **_options):
        self.calls.append(tuple(command))
        verb, names = command[1], [word for word in command[2:] if not word.startswith("--")]
        if verb == "show":
            missing = {"LoadState": "not-found", "ActiveState": "inactive", "UnitFileState": ""}
            text = "\n\n".join(
                "\n".join(f"{key}={value}" for key, value in {"Id": name, **self.units.get(name, missing)}.items())
                for name in names
            )
            return Result(tuple(command), 0, text + "\n", "")
        if verb == "is-enabled":
            # systemctl of systemd 252 ends at the first unit without a file.
            known = list(itertools.takewhile(self.units.__contains__, names))
            return Result(tuple(command), 0, "".join(f"{self.units[name]['UnitFileState']}\n" for name in known), "")
        changes = {
            "start": ("ActiveState", "active"),
            "restart": ("ActiveState", "active"),
            "stop": ("ActiveState", "inactive"),
            "enable": ("UnitFileState", "enabled"),
            "disable": ("UnitFileState", "disabled"),
        }
        for name in names:
            if not self.lies and verb in changes:
                key, value = changes[verb]
                self.units[name][key] = value
        return Result(tuple(command), self.rc, "", "")


@pytest.fixture
def systemctl(monkeypatch):
    fake = Systemctl()
    monkeypatch.setattr(systemd, "run", fake)
    return fake


def test_units_are_read_in_one_call(systemctl):
    systemctl.add("kubelet.service", "active", "enabled")
    found = systemd.units(["kubelet.service", "k3s.service"])
    assert (found["kubelet.service"].exists, found["kubelet.service"].is_active) == (True, True)
    assert (found["k3s.service"].exists, found["k3s.service"].is_active) == (False, False)
    assert len(systemctl.calls) == 1 and systemd.units([]) == {}


@pytest.mark.parametrize(("names", "calls"), [("ab", 1), ("acb", 4), ("c", 1), ("", 0)])
def test_what_starts_at_boot_is_read_in_one_call_where_every_unit_has_a_file(systemctl, names, calls):
    systemctl.add("a", enabled="enabled")
    systemctl.add("b", enabled="disabled")
    assert systemd.enabled(names) == {"a"} & set(names)
    assert len(systemctl.calls) == calls


def test_an_answer_that_misses_a_unit_is_an_error(monkeypatch):
    monkeypatch.setattr(systemd, "run", lambda command, **_: Result(tuple(command), 0, "Id=a\n", ""))
    with pytest.raises(CommandError, match="every unit"):
        systemd.units(["a", "b"])


@pytest.mark.parametrize("verb", ["start", "restart", "stop"])
def test_changes_are_read_back(systemctl, verb):
    systemctl.add("dcgm.service", "active" if verb == "stop" else "failed")
    getattr(systemd, verb)("dcgm.service")
    systemctl.lies = True
    systemctl.add("dcgm.service", "active" if verb == "stop" else "failed")
    with pytest.raises(CommandError, match="the unit is"):
        getattr(systemd, verb)("dcgm.service")


def test_units_are_enabled_and_disabled_without_a_reload(systemctl):
    systemctl.add("a.timer")
    systemd.enable(["a.timer"])
    systemd.disable(["a.timer"])
    assert [call[1:] for call in systemctl.calls if call[1] != "is-enabled"] == [
        ("enable", "--no-reload", "a.timer"),
        ("disable", "--no-reload", "a.timer"),
    ]


def test_what_systemd_has_in_memory_in_an_older_text(monkeypatch):
    """The answers are those of systemd 252."""
    listed = (
        "gpufleet-mps@0.service      loaded    active   running NVIDIA MPS control daemon (0)\n"
        "gpufleet-mps@1.service      loaded    inactive dead    NVIDIA MPS control daemon (1)\n"
        "gpufleet-sharing.service    not-found inactive dead    gpufleet-sharing.service\n"
        "nvidia-persistenced.service masked    inactive dead    nvidia-persistenced.service\n"
        "run-nvidia-mps-shm.mount    loaded    active   mounted Shared memory of MPS servers and their clients in pods\n"
    )
    shown = "Id=gpufleet-mps@1.service\nNeedDaemonReload=no\n\nId=run-nvidia-mps-shm.mount\nNeedDaemonReload=yes\n"
    # What is masked in its memory has no mask on disk any more.
    shown += "\nId=nvidia-persistenced.service\nNeedDaemonReload=yes\n"
    calls = []

    def run(command, **_options):
        calls.append(command)
        return Result(tuple(command), 0, listed if command[1] == "list-units" else shown, "")

    monkeypatch.setattr(systemd, "run", run)
    names = [line.split()[0] for line in listed.splitlines()] + ["gpufleet-mps@2.service"]
    changed = {"gpufleet-mps@0.service", "gpufleet-mps@2.service", "gpufleet-sharing.service"}
    stale = ["gpufleet-mps@0.service", "nvidia-persistenced.service", "run-nvidia-mps-shm.mount"]
    assert systemd.outdated(names, changed) == stale
    assert calls[1][3:] == ["gpufleet-mps@1.service", *stale[1:]]
    monkeypatch.setattr(systemd, "run", lambda command, **_: Result(tuple(command), 0, "", ""))
    assert systemd.outdated(names, changed) == []


def test_the_devices_that_a_scope_may_open(monkeypatch):
    texts = {
        "a.scope": "DevicePolicy=strict\nDeviceAllow=/dev/char/195:0 rwm\nDeviceAllow=char-pts rwm\n",
        "b.scope": "DevicePolicy=auto\nDeviceAllow=\n",
        "c.scope": "DevicePolicy=strict\nDeviceAllow=\n",
        "d.scope": "DevicePolicy=auto\nDeviceAllow=/dev/null rw\n",
    }
    monkeypatch.setattr(systemd, "run", lambda command, **_: Result(tuple(command), 0, texts[command[-1]], ""))
    assert systemd.device_rules(texts) == {
        "a.scope": {"/dev/char/195:0", "char-pts"},
        "b.scope": None,
        "c.scope": set(),
        "d.scope": {"/dev/null"},
    }


def test_enabling_and_disabling_are_read_back(systemctl):
    systemctl.add("a.service")
    systemd.enable(["a.service"])
    assert systemctl.units["a.service"]["UnitFileState"] == "enabled"
    systemctl.lies = True
    with pytest.raises(CommandError, match="enabled"):
        systemd.disable(["a.service"])
    systemctl.lies = False
    systemd.disable(["a.service"])
    systemctl.lies = True
    with pytest.raises(CommandError, match="not enabled"):
        systemd.enable(["a.service"])
    systemd.enable([])
    systemd.disable([])


def test_systemd_that_is_only_installed_does_not_count(tmp_path, monkeypatch):
    monkeypatch.setattr(systemd, "find", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(systemd, "_BOOTED", str(tmp_path / "nowhere"))
    assert not systemd.available()
    monkeypatch.setattr(systemd, "_BOOTED", str(tmp_path))
    assert systemd.available()


def test_daemon_reload(systemctl):
    systemd.daemon_reload()
    assert systemctl.calls == [("systemctl", "daemon-reload")]


def child(code):
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)


def test_processes_end_politely_or_not():
    polite = child("import time; print(flush=True); time.sleep(60)")
    deaf = child("import signal,time; signal.signal(15, 1); print(flush=True); time.sleep(60)")
    for process in (polite, deaf):
        process.stdout.readline()
    assert processes.terminate([polite.pid, deaf.pid, 2**22 + 1], grace=0.3) == ()
    assert (polite.wait(), deaf.wait()) == (-15, -9)
    for process in (polite, deaf):
        process.stdout.close()


def test_a_reset_is_of_one_gpu_alone(monkeypatch):
    calls = []

    def run(command, **_options):
        calls.append(command)
        if len(calls) == 3:
            raise CommandError(command, "no answer within 180 s")
        return Result(tuple(command), 4, "" if len(calls) == 2 else "in use\n", "")

    monkeypatch.setattr(gpu_reset, "run", run)
    said = [gpu_reset.reset_gpu("0000:18:00.0") for _number in range(3)]
    assert said[:2] == ["in use", "exit status 4"] and "no answer within 180 s" in said[2]
    assert calls == [["nvidia-smi", "-r", "-i", "0000:18:00.0"]] * 3


@pytest.fixture
def spec(tmp_path, monkeypatch):
    target = tmp_path / "nvidia.yaml"
    environment = tmp_path / "refresh.env"
    environment.write_text(f'# a comment\nNVIDIA_CTK_CDI_OUTPUT_FILE_PATH="{target}"\nNVIDIA_CTK_DEBUG=true\nodd\n')
    monkeypatch.setattr(cdi_generator, "_SETTINGS", str(environment))
    monkeypatch.setattr(cdi_generator, "CONTROL_NODES", ())
    monkeypatch.setattr(cdi_generator, "PAUSES", (0.0, 0.0))
    return target


@pytest.fixture
def refresh_with(monkeypatch):
    def refresh(run):
        monkeypatch.setattr(cdi_generator, "run", run)
        return cdi_generator.refresh()

    return refresh


def test_what_the_toolkit_could_not_write_whole_is_not_left(spec, refresh_with, monkeypatch):
    """On a disk that is full it leaves a file of another name for each try, and keeps it full. Others write there meanwhile."""
    other, begun, slow = (spec.with_name(f"spec.{number}.tmp") for number in (1, 2, 3))
    other.write_text("of somebody who was writing before")

    def run(command, **_options):
        spec.with_name(f"spec.{len(list(spec.parent.iterdir()))}0.tmp").write_text("half")
        for path in (begun, slow):
            path.write_text("of somebody who writes just now")
        raise CommandError(command, "exit status 1", "no space left on device")

    def sleep(seconds):
        if seconds and begun.exists():
            begun.rename(spec.with_name("other.yaml"))
            slow.write_text(f"{slow.read_text()}, and more")

    monkeypatch.setattr(cdi_generator.time, "sleep", sleep)
    with pytest.raises(CommandError, match=r"3 times in 0 s: .*no space left on device"):
        refresh_with(run)
    assert sorted(spec.parent.glob("spec.*.tmp")) == [other, slow]
    assert spec.with_name("other.yaml").read_text() == "of somebody who writes just now"


class Toolkit:
    """nvidia-ctk with the nodes that it creates.

    :param creates: the node, and in answer to which of its two calls it appears.
    """

    def __init__(self, spec, node, creates, said=""):
        self.spec, self.node, self.creates, self.said = spec, node, creates, said
        self.calls = []

    def __call__(self, command, **_options):
        self.calls.append(" ".join(command[1:]))
        if command[1] == "cdi":
            self.spec.write_text(f"node: {self.node.exists()}\n")
        elif ("--load-kernel-modules" in command) == (self.creates == "loading") and self.creates:
            self.node.touch()
            return Result(tuple(command), 0, "", "")
        else:
            return Result(tuple(command), 1, "", self.said)
        return Result(tuple(command), 0, "", "")


LOADING = "system create-device-nodes --control-devices --load-kernel-modules"


def test_the_device_nodes_that_every_cuda_process_opens_are_looked_for(monkeypatch):
    """Those of each GPU are there with the driver; nothing but a first user guarantees these."""
    monkeypatch.setattr(cdi_generator.os.path, "exists", lambda _path: False)
    assert cdi_generator.missing_nodes() == ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


@pytest.mark.parametrize("creates", ["loading", "as it is"])
def test_the_device_nodes_come_before_the_specification_that_names_them(
    spec, tmp_path, monkeypatch, creates, refresh_with
):
    toolkit = Toolkit(spec, tmp_path / "nvidia-uvm", creates)
    monkeypatch.setattr(cdi_generator, "CONTROL_NODES", (str(toolkit.node),))
    monkeypatch.setattr(cdi_generator, "_OTHER_NODES", ())
    refresh_with(toolkit)
    generating = f"cdi generate --output={spec}"
    without = [] if creates == "loading" else ["system create-device-nodes --control-devices"]
    assert toolkit.calls == [LOADING, *without, generating]
    assert spec.read_text() == "node: True\n"
    refresh_with(toolkit)
    assert toolkit.calls[-2:] == [generating, generating]


def test_nodes_that_cannot_be_created_are_told_of_when_the_specification_is_written(
    spec, tmp_path, monkeypatch, refresh_with
):
    toolkit = Toolkit(spec, tmp_path / "nvidia-uvm", "", "failed to load module nvidia-uvm: exit status 1")
    monkeypatch.setattr(cdi_generator, "CONTROL_NODES", (str(toolkit.node),))
    monkeypatch.setattr(cdi_generator, "_OTHER_NODES", ())
    with pytest.raises(CommandError, match=r"nvidia-uvm is still missing.*modprobe nvidia-uvm.*failed to load module"):
        refresh_with(toolkit)
    assert spec.read_text() == "node: False\n"


@pytest.mark.parametrize("other", ["WSL", "an old toolkit"])
def test_where_there_are_no_such_nodes_or_no_such_command_nothing_fails(
    spec, tmp_path, monkeypatch, other, refresh_with
):
    toolkit = Toolkit(spec, tmp_path / "nvidia-uvm", "", "No help topic for 'create-device-nodes'")
    monkeypatch.setattr(cdi_generator, "CONTROL_NODES", (str(toolkit.node),))
    monkeypatch.setattr(cdi_generator, "_OTHER_NODES", (str(tmp_path),) if other == "WSL" else ())
    refresh_with(toolkit)
    assert toolkit.calls == [*([] if other == "WSL" else [LOADING]), f"cdi generate --output={spec}"]


def test_the_sites_settings_decide_where_the_specification_is(spec, monkeypatch):
    assert cdi_generator.path() == str(spec)
    assert cdi_generator.settings()["NVIDIA_CTK_DEBUG"] == "true"
    monkeypatch.setattr(cdi_generator, "_SETTINGS", "/nowhere")
    assert cdi_generator.path() == cdi_generator.DEFAULT_PATH


def test_the_specification_is_written_with_the_sites_settings_and_read_back(spec, refresh_with):
    calls = []

    def run(command, environment=None, **_options):
        calls.append((command, environment))
        return Result(tuple(command), 0, "", "")

    with pytest.raises(CommandError, match="wrote nothing to"):
        refresh_with(run)
    assert len(calls) == 3
    spec.write_text("cdiVersion: 0.5.0\n")
    assert refresh_with(run) == str(spec)
    assert calls[-1] == (["nvidia-ctk", "cdi", "generate", f"--output={spec}"], {"NVIDIA_CTK_DEBUG": "true"})


def test_the_toolkit_is_asked_again_where_the_driver_has_just_been_loaded(spec, tmp_path, monkeypatch, refresh_with):
    calls, failing = [], 2

    def run(command, **_options):
        calls.append(command)
        if len(calls) > failing:
            spec.write_text("cdiVersion: 0.5.0\n")
            return Result(tuple(command), 0, "", "")
        raise CommandError(command, "exit status 1", "level=error msg=no devices")

    assert refresh_with(run) == str(spec) and len(calls) == 3
    # In the end it says what the driver's files show to be missing.
    information = tmp_path / "gpus" / "0000:18:00.0" / "information"
    information.parent.mkdir(parents=True)
    information.write_text("Model: NVIDIA H100\nDevice Minor: \t 77\n")
    monkeypatch.setattr(cdi_generator, "_GPUS", str(tmp_path / "gpus"))
    failing = 99
    with pytest.raises(CommandError, match=r"3 times in 0 s; still missing: /dev/nvidia77: .*no devices"):
        refresh_with(run)
