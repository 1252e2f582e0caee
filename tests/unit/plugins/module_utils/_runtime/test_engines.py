# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is asked of the real programs, and how their answers are taken."""

from __future__ import annotations

import glob
import json
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError, Result
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime import containerd_keys
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime import engines as module
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.desired import DesiredRuntime

DESIRED = DesiredRuntime()
BINARY = DESIRED.binary


class Programs:
    """Answers by the first words of a command; a callable answer gets the command."""

    def __init__(self, answers):
        self.answers = answers
        self.asked = []

    def __call__(self, command, **_options):
        self.asked.append(tuple(command))
        key = max((key for key in self.answers if tuple(command)[: len(key)] == key), key=len, default=None)
        if key is None:
            raise CommandError(command, "the program is not installed")
        answer = self.answers[key]
        answer = answer(command) if callable(answer) else answer
        if isinstance(answer, int):
            raise CommandError(command, f"exit status {answer}", "it said no")
        return Result(tuple(command), 0, answer, "")


def shown(active="active", kill_mode="process", since="1000"):
    return f"ActiveState={active}\nKillMode={kill_mode}\nActiveEnterTimestampMonotonic={since}\n"


@pytest.fixture(autouse=True)
def pending(tmp_path, monkeypatch):
    folder = tmp_path / "pending"
    folder.mkdir()
    monkeypatch.setattr(module, "PENDING_FOLDER", str(folder))
    return folder


class TestContainerd:
    def engine(self, tmp_path, **answers):
        programs = Programs(
            {
                ("containerd", "--version"): "containerd github.com/containerd/containerd 1.7.20 abc\n",
                ("containerd", "config", "default"): "version = 2\n",
                ("containerd", "--config"): self.dump,
                ("systemctl",): shown(),
                ("ctr",): "TYPE ID PLATFORMS STATUS\nio.containerd.grpc.v1 cri linux/amd64 ok\n",
                **answers,
            }
        )
        return module.Containerd(str(tmp_path / "config.toml"), programs), programs

    @staticmethod
    def dump(command):
        with open(command[2], encoding="utf-8") as handle:
            text = handle.read()
        for path in (
            one for pattern in containerd_keys.imports_of(command[2], text, (2,)) for one in glob.glob(pattern)
        ):
            with open(path, encoding="utf-8") as handle:
                text += "".join(line for line in handle if not line.startswith(("version", "imports")))
        return text

    def test_files_in_the_order_of_imports(self, tmp_path):
        (tmp_path / "conf.d").mkdir()
        (tmp_path / "config.toml").write_text('version = 2\nimports = ["conf.d/*.toml", "missing.toml"]\n')
        (tmp_path / "conf.d" / "b.toml").write_text("version = 2\nimports = ['../config.toml']\n")
        (tmp_path / "conf.d" / "a.toml").write_text("version = 2\r\n")
        engine, _programs = self.engine(tmp_path)
        files = engine.files()
        assert [path.rsplit("/", 1)[1] for path in files] == ["config.toml", "a.toml", "b.toml"]
        assert files[str(tmp_path / "conf.d" / "a.toml")] == "version = 2\r\n"

    def test_the_planned_files_are_judged_aside(self, tmp_path):
        (tmp_path / "conf.d").mkdir()
        main, site = tmp_path / "config.toml", tmp_path / "conf.d" / "site.toml"
        main.write_text('version = 2\nimports = ["conf.d/*.toml"]\n')
        site.write_text(
            "version = 2\nimports = ['x.toml']\n[plugins.'io.containerd.grpc.v1.cri']\nenable_selinux = true\n"
        )
        engine, programs = self.engine(tmp_path)
        files = engine.files()
        planned = {**files, **{c.path: c.after for c in engine.edit(files, DESIRED).changed}}
        merged = engine.merged(planned)
        assert merged.effective.shortfalls(DESIRED) == ()
        assert "enable_selinux" in merged.text
        assert "imports" not in merged.text
        assert str(main) not in programs.asked[-1]
        assert site.read_text() == files[str(site)]

    def test_a_file_that_is_to_go_is_not_judged_although_a_pattern_matches_it(self, tmp_path):
        """As nvidia-ctk leaves its drop-in, which is moved aside."""
        (tmp_path / "conf.d").mkdir()
        main, left = tmp_path / "config.toml", tmp_path / "conf.d" / "99-nvidia.toml"
        main.write_text(f'version = 2\nimports = ["{tmp_path}/conf.d/*.toml"]\n')
        left.write_text(
            "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd]\ndefault_runtime_name = 'nvidia'\n"
        )
        engine, _programs = self.engine(tmp_path)
        assert engine.merged(engine.files()).effective.default_runtime == "nvidia"
        assert engine.merged({str(main): main.read_text()}).effective.default_runtime != "nvidia"

    def test_without_a_main_file_the_defaults_count(self, tmp_path):
        engine, programs = self.engine(tmp_path)
        assert engine.present({}).effective.binary is None
        assert programs.asked[-1] == ("containerd", "config", "default")

    def test_what_containerd_refuses(self, tmp_path):
        engine, _programs = self.engine(tmp_path)
        engine._run.answers[("containerd", "--config")] = 1
        with pytest.raises(module.RuntimeFailure, match="it said no"):
            engine.merged({str(tmp_path / "config.toml"): "version = 9\n"})

    def test_what_containerd_refuses_is_named_by_the_files_of_the_host(self, tmp_path):
        engine, programs = self.engine(tmp_path)

        def refuses(command, **_options):
            if "config" not in command:
                return programs(command)
            (imported,) = containerd_keys.imports_of(command[2], (tmp_path / command[2]).read_text(), (2,))
            raise CommandError(command, f"failed to load {imported}: version 4")

        engine._run = refuses
        main, left = str(tmp_path / "config.toml"), str(tmp_path / "conf.d" / "a.toml")
        with pytest.raises(
            module.RuntimeFailure, match=f"--config {main} config dump.*failed to load {left}: version 4"
        ):
            engine.merged({main: 'version = 2\nimports = ["conf.d/*.toml"]\n', left: "version = 4\n"})

    def test_a_broken_cri_plugin(self, tmp_path, monkeypatch):
        engine, programs = self.engine(tmp_path)
        monkeypatch.setattr(module, "find", lambda name: f"/usr/bin/{name}")
        engine.in_force()
        programs.answers[("ctr",)] = "io.containerd.grpc.v1 cri linux/amd64 error\n"
        with pytest.raises(module.RuntimeFailure, match="CRI plugin"):
            engine.in_force()

    def test_not_utf8(self, tmp_path):
        (tmp_path / "config.toml").write_bytes(b"\xff")
        with pytest.raises(module.RuntimeFailure, match=r"Failed to read the configuration: /\S+ is not UTF-8"):
            self.engine(tmp_path)[0].files()

    def test_service_and_a_pending_restart(self, tmp_path, pending):
        engine, programs = self.engine(tmp_path)
        assert engine.service().active
        assert engine.service().kill_mode == "process"
        assert not engine.service().restart_pending
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        note = pending / "restart-containerd.service"
        note.write_text(f"{boot} 2000\n")
        assert engine.service().restart_pending
        programs.answers[("systemctl",)] = shown(since="3000")
        assert not engine.service().restart_pending
        note.write_text("another-boot 9999999\n")
        programs.answers[("systemctl",)] = shown()
        assert not engine.service().restart_pending
        del programs.answers[("systemctl",)]
        assert engine.service().unit is None


class TestDocker:
    def engine(self, tmp_path, version="27.5.1", **info):
        answer = {"Runtimes": {"nvidia": {"path": BINARY}}, "DefaultRuntime": "runc", "ContainersRunning": 2, **info}
        programs = Programs(
            {
                ("dockerd", "--version"): f"Docker version {version}, build 1\n",
                ("dockerd", "--validate"): "configuration OK\n",
                ("docker", "info"): json.dumps(answer),
                ("systemctl",): shown(),
            }
        )
        return module.engine_for("docker", BINARY, str(tmp_path / "daemon.json"), programs), programs

    def test_validates_and_merges(self, tmp_path):
        engine, programs = self.engine(tmp_path)
        assert engine.files() == {}
        text = engine.edit({}, DESIRED).changes[0].after
        (tmp_path / "daemon.json").write_text(text)
        assert engine.present(engine.files()).effective.shortfalls(DESIRED) == ()
        assert programs.asked[-1][:2] == ("dockerd", "--validate")
        programs.answers[("dockerd", "--validate")] = 1
        with pytest.raises(module.RuntimeFailure, match="it said no"):
            engine.merged(engine.files())

    def test_docker_before_23_cannot_validate(self, tmp_path):
        engine, programs = self.engine(tmp_path, "20.10.24")
        engine.merged({str(tmp_path / "daemon.json"): "{}"})
        assert not [asked for asked in programs.asked if "--validate" in asked]

    def test_service(self, tmp_path):
        service = self.engine(tmp_path)[0].service()
        assert (service.containers, service.keeps_containers) == (2, False)
        assert self.engine(tmp_path, LiveRestoreEnabled=True)[0].service().keeps_containers

    def test_in_force(self, tmp_path):
        engine, programs = self.engine(tmp_path)
        assert engine.in_force().binary == BINARY
        programs.answers[("docker", "info")] = "no json"
        with pytest.raises(module.RuntimeFailure, match="docker info"):
            engine.in_force()
        programs.answers[("systemctl",)] = shown("inactive")
        assert engine.in_force().binary is None
        assert engine.service().containers is None


class TestCrio:
    def test_the_folder_is_judged_with_the_planned_files(self, tmp_path):
        site = "[crio.runtime]\nlog_level = 'debug'\n[crio.runtime.runtimes.runc]\nmonitor_path = '/usr/libexec/crio/conmon'\n"
        (tmp_path / "10-site.conf").write_text(site)

        def config(command):
            return "\n".join(path.read_text() for path in sorted(Path(command[2]).iterdir()))

        programs = Programs(
            {
                ("crio", "--version"): "crio version 1.30.0\n",
                ("crio", "--config-dir"): config,
                ("crio", "config", "--default"): "[crio.runtime]\ndefault_runtime = 'crun'\n",
                ("systemctl",): shown(kill_mode="mixed"),
            }
        )
        engine = module.engine_for("crio", BINARY, str(tmp_path / "99-own.conf"), programs)
        files = engine.files()
        planned = {c.path: c.after for c in engine.edit(files, DESIRED).changed}
        assert engine.merged(planned).effective.shortfalls(DESIRED) == ()
        assert 'monitor_path = "/usr/libexec/crio/conmon"' in planned[str(tmp_path / "99-own.conf")]
        assert "log_level" in engine.merged(planned).text
        assert engine.present(files).effective.binary is None
        assert engine.in_force().binary is None
        assert engine.service().kill_mode == "process"


class TestRancher:
    @pytest.fixture
    def k3s(self, tmp_path, monkeypatch):
        from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime import rancher

        names = ("generated", "template", "template_v3", "default_runtime")
        where = rancher.Places(*(str(tmp_path / name) for name in names))
        monkeypatch.setattr(module.rancher, "places", lambda _name: where)
        monkeypatch.setattr(module, "find", lambda name: f"/usr/local/bin/{name}")
        programs = Programs({("/usr/local/bin/k3s",): "--default-runtime value\n", ("systemctl",): shown("inactive")})
        return module.engine_for("k3s", BINARY, None, programs), programs, where

    def test_a_restart_is_needed_until_it_is_generated(self, k3s, tmp_path):
        engine, _programs, _where = k3s
        (tmp_path / "generated").write_text("version = 2\n")
        files = engine.files()
        assert engine.edit(files, DESIRED).changed == ()
        assert engine.present(files).text != engine.merged(files).text
        generated = f"version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.nvidia.options]\nBinaryName = '{BINARY}'\n"
        (tmp_path / "generated").write_text(generated)
        files = engine.files()
        assert engine.present(files).text == engine.merged(files).text
        assert engine.in_force().binary == BINARY

    def test_a_former_toolkit_is_refused_or_moved(self, k3s, tmp_path, monkeypatch):
        engine, _programs, _where = k3s
        monkeypatch.setattr(module.rancher, "FORMER", str(tmp_path / "toolkit"))
        assert engine.edit({}, DESIRED).moves == ()
        (tmp_path / "toolkit").mkdir()
        (tmp_path / "toolkit" / "nvidia-container-runtime").write_text("")
        with pytest.raises(Refused, match="set nvidia_toolkit_move_former: true"):
            engine.edit({}, DESIRED)
        assert engine.edit({}, DesiredRuntime(move_former=True)).moves == (str(tmp_path / "toolkit"),)
        assert engine.edit({}, DesiredRuntime(present=False)).moves == ()

    def test_default_runtime_needs_the_option(self, k3s):
        engine, programs, where = k3s
        desired = DesiredRuntime(default=True)
        assert [c.path for c in engine.edit({}, desired).changed] == [where.default_runtime]
        programs.answers[("/usr/local/bin/k3s",)] = "no such option\n"
        with pytest.raises(module.RuntimeFailure, match="has no option --default-runtime"):
            engine.edit({}, desired)

    def test_the_active_unit_counts(self, k3s):
        engine, programs, _where = k3s
        assert engine.service().unit == "k3s.service"
        programs.answers[("systemctl",)] = lambda c: shown("active" if c[-1] == "k3s-agent.service" else "inactive")
        assert engine.service().unit == "k3s-agent.service"

    def test_not_installed(self, monkeypatch):
        monkeypatch.setattr(module, "find", lambda _name: None)
        with pytest.raises(module.RuntimeFailure, match="rke2: the program is not installed"):
            module.engine_for("rke2", BINARY)


def test_a_runtime_that_is_not_installed():
    with pytest.raises(module.RuntimeFailure, match="the program is not installed"):
        module.engine_for("containerd", BINARY, runner=Programs({}))
