# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading a host, the verified key, and the CDI specification beside a fresh one."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_library import (
    GpuState,
    NvmlUnavailable,
    PynvmlMissing,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.openpgp import KeyRefused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.cdi_state import CdiState
from ansible_collections.gpufleet.nvidia.plugins.module_utils._packages import package_set
from ansible_collections.gpufleet.nvidia.plugins.module_utils._packages.package_set import DesiredRepository
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure, Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.state import RuntimeConfiguration
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit import apply
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.desired import DesiredToolkit
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.packages import PACKAGES
from ansible_collections.gpufleet.nvidia.tests.unit.package_manager import PackageManager

MIRROR = DesiredRepository("https://mirror/deb")

SPECIFICATION = """---
cdiVersion: 0.5.0
containerEdits:
  hooks:
  - args: [x]
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: "0"
- name: all
kind: nvidia.com/gpu
"""


def manager():
    made = PackageManager({"bash": "5", "nvidia-docker2": "2.13-1", **dict.fromkeys(PACKAGES, "1.20.2-1")}, ["bash"])
    made.needed, made.urls = ("a-plugin",), ["https://mirror/deb/amd64"]
    return made


@pytest.fixture
def host(tmp_path, monkeypatch):
    monkeypatch.setattr(apply, "PATH", str(tmp_path / "config.toml"))
    monkeypatch.setattr(apply.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(apply, "OLD_SOURCES", (str(tmp_path / "nvidia-docker.list"), str(tmp_path / "none.list")))
    monkeypatch.setattr(apply, "_units", lambda: apply.UNITS)
    monkeypatch.setattr(apply, "loaded_version", lambda _files: None)
    monkeypatch.setattr(apply.systemd, "enabled", frozenset)
    return apply.ToolkitSystem(lambda _url, _credentials: b"no key", manager(), {"ID": "ubuntu", "VERSION_ID": "24.04"})


def test_the_low_level_runtime_is_crios(host, monkeypatch):
    found = RuntimeConfiguration(low_level_runtime="/usr/libexec/crio/crun")
    monkeypatch.setattr(apply, "READERS", {"crio": lambda _files, _version: found})
    assert host.read(DesiredToolkit(repository=MIRROR, runtime="crio")).low_level_runtime == "/usr/libexec/crio/crun"
    assert host.read(DesiredToolkit(repository=MIRROR)).low_level_runtime is None


def test_reads_the_host(host, tmp_path):
    (tmp_path / "config.toml").write_text("disable-require = false\n")
    (tmp_path / "nvidia-docker.list").write_text(
        "deb https://nvidia.github.io/libnvidia-container/stable/ubuntu18.04/amd64 /\n"
    )
    state = host.read(DesiredToolkit(repository=MIRROR))
    assert set(state.packages) == {*PACKAGES, "nvidia-docker2"}
    assert state.config == "disable-require = false\n"
    assert state.old_sources == (str(tmp_path / "nvidia-docker.list"),)
    assert state.cdi_unit is True
    assert state.missing_for_holds == ("a-plugin",)
    # The URL is configured, but no key of ours is there.
    assert state.repository is False


def test_writes_the_settings_with_the_mode_they_have(host, tmp_path):
    path = tmp_path / "config.toml"
    host.write_config("a = 1\n")
    assert path.stat().st_mode & 0o777 == 0o644
    path.chmod(0o600)
    host.write_config("a = 2\n")
    assert path.stat().st_mode & 0o777 == 0o600
    host.remove_file(str(path))
    assert not path.exists()


def test_units_are_enabled_and_the_watching_one_started(host, monkeypatch):
    done = []
    monkeypatch.setattr(apply.systemd, "enable", lambda names: done.append(tuple(names)))
    monkeypatch.setattr(apply.systemd, "start", done.append)
    host.enable_refresh()
    assert done == [apply.UNITS, "nvidia-cdi-refresh.path"]


@pytest.mark.parametrize(
    ("repository", "error", "text"),
    [
        ({}, KeyRefused, "Failed to verify the key https://nvidia.github.io/libnvidia-container/gpgkey"),
        ({"key_file": "/nowhere"}, Refused, "/nowhere cannot be read"),
        ({"key_url": "http://example.com/key"}, Failure, "nvidia_toolkit_repository_key_url"),
        ({"url": "http://example.com/deb"}, Failure, "nvidia_toolkit_repository_url"),
        ({"key_fingerprint": "F796ECB0"}, KeyRefused, "not a full fingerprint"),
    ],
)
def test_keys_that_are_refused(host, repository, error, text):
    with pytest.raises(error, match=text):
        host.repository(DesiredToolkit(repository=DesiredRepository(**repository)))


def test_a_key_that_is_right_is_fetched_once(monkeypatch):
    monkeypatch.setattr(package_set, "verified_key", lambda content, _fingerprint, _source: content)
    fetched = []
    host = apply.ToolkitSystem(
        lambda url, _credentials: fetched.append(url) or b"key", manager(), {"ID": "rocky", "VERSION_ID": "9.4"}
    )
    repository = host.repository(DesiredToolkit())
    assert host.repository(DesiredToolkit()) is repository
    assert len(fetched) == 1
    # NVIDIA signs the metadata of the rpm repository and not the packages.
    assert (repository.signed_metadata, repository.signed_packages) == (True, False)


def test_os_release_of_this_machine():
    assert "ID" in apply._os_release()


class TestCdi:
    """What the host finds is judged by the same rule as what its facts say."""

    @pytest.fixture
    def read(self, host, tree, monkeypatch):
        tree.program("/usr/bin/nvidia-ctk")
        tree.link("/var/run", "/run")
        files = tree.source().files
        monkeypatch.setattr(apply, "HostFiles", lambda: files)
        monkeypatch.setattr(apply.cdi_generator, "available", lambda: True)
        monkeypatch.setattr(apply, "loaded_version", lambda _files: "580.178.04")
        monkeypatch.setattr(apply.cdi_generator, "CONTROL_NODES", ())
        gpus = [GpuState({"index": 0, "uuid": "GPU-0", "mig": {"current": False}})]

        def read(error=None, **options):
            @contextmanager
            def opened(_archive):
                if error:
                    raise error
                yield SimpleNamespace(gpus=lambda: gpus)

            monkeypatch.setattr(apply, "open_nvml", opened)
            return host.read(DesiredToolkit(repository=MIRROR, **options)).cdi

        return read

    def test_the_files_of_the_host(self, read, tree):
        assert read() == CdiState("there is none")
        assert read(cdi=False) == CdiState()
        tree.write("/run/cdi/nvidia.yaml", SPECIFICATION)
        assert read() == CdiState()
        tree.write("/etc/cdi/nvidia.yaml", SPECIFICATION.replace('"0"', '"7"'))
        assert read() == CdiState("", ("/etc/cdi/nvidia.yaml",))
        tree.write("/run/cdi/nvidia.yaml", SPECIFICATION + "# /lib/libcuda.so.570.195.03\n")
        assert read().stale == (
            "/var/run/cdi/nvidia.yaml mounts libraries of driver 570.195.03, but 580.178.04 is loaded"
        )

    def test_without_pynvml_nothing_is_touched_and_without_an_answer_nothing_is_compared(self, read):
        with pytest.raises(PynvmlMissing):
            read(PynvmlMissing("/usr/bin/python3"))
        assert read(NvmlUnavailable("driver_not_loaded", "x")) == CdiState()

    def test_a_leftover_gets_a_name_that_no_runtime_reads(self, host, tmp_path):
        path = tmp_path / "nvidia.yaml"
        path.write_text(SPECIFICATION)
        host.move_aside(str(path))
        assert [one.name for one in tmp_path.iterdir()] == ["nvidia.yaml.disabled-by-gpufleet"]
