# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading a host, the verified key, and the CDI specification beside a fresh one."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError, Result
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.openpgp import KeyRefused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.repositories import UrlRefused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.state import Configuration
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit import cdi, system
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.desired import PACKAGES, DesiredToolkit

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


class Manager:
    name = "apt"

    def installed(self):
        return {"bash": "5", "nvidia-docker2": "2.13-1", **dict.fromkeys(PACKAGES, "1.20.0-1")}

    def holds(self):
        return ("bash",)

    def missing_for_holds(self):
        return ("a-plugin",)

    def interrupted(self):
        return ()

    def has_credentials(self, _identifier, _url, credentials):
        return credentials is None

    def repositories(self):
        return ("https://mirror/deb/amd64",)


@pytest.fixture
def host(tmp_path, monkeypatch):
    monkeypatch.setattr(system, "PATH", str(tmp_path / "config.toml"))
    monkeypatch.setattr(system.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(system, "OLD_SOURCES", (str(tmp_path / "nvidia-docker.list"), str(tmp_path / "none.list")))
    monkeypatch.setattr(system.cdi, "unit_names", lambda: cdi.UNITS)
    monkeypatch.setattr(system.cdi, "possible", lambda: False)
    monkeypatch.setattr(system.systemd, "enabled", frozenset)
    return system.ToolkitSystem(
        lambda _url, _credentials: b"no key", Manager(), {"ID": "ubuntu", "VERSION_ID": "24.04"}
    )


def test_the_low_level_runtime_is_crios(host, monkeypatch):
    found = Configuration(low_level_runtime="/usr/libexec/crio/crun")
    monkeypatch.setattr(system, "crio_configuration", lambda _files: found)
    url = "https://mirror/deb"
    assert host.read(DesiredToolkit(repository_url=url, runtime="crio")).low_level_runtime == "/usr/libexec/crio/crun"
    assert host.read(DesiredToolkit(repository_url=url)).low_level_runtime is None


def test_reads_the_host(host, tmp_path):
    (tmp_path / "config.toml").write_text("disable-require = false\n")
    (tmp_path / "nvidia-docker.list").write_text(
        "deb https://nvidia.github.io/libnvidia-container/stable/ubuntu18.04/amd64 /\n"
    )
    state = host.read(DesiredToolkit(repository_url="https://mirror/deb"))
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
    monkeypatch.setattr(system.systemd, "enable", lambda names: done.append(tuple(names)))
    monkeypatch.setattr(system.systemd, "start", done.append)
    host.enable_refresh()
    assert done == [cdi.UNITS, "nvidia-cdi-refresh.path"]


@pytest.mark.parametrize(
    ("desired", "error", "text"),
    [
        (DesiredToolkit(), KeyRefused, "Failed to verify the key https://nvidia.github.io/libnvidia-container/gpgkey"),
        (DesiredToolkit(key_file="/nowhere"), Refused, "/nowhere cannot be read"),
        (DesiredToolkit(key_url="http://example.com/key"), UrlRefused, "nvidia_toolkit_repository_key_url"),
        (DesiredToolkit(repository_url="http://example.com/deb"), UrlRefused, "nvidia_toolkit_repository_url"),
        (DesiredToolkit(key_fingerprint="F796ECB0"), KeyRefused, "not a full fingerprint"),
    ],
)
def test_keys_that_are_refused(host, desired, error, text):
    with pytest.raises(error, match=text):
        host.repository(desired)


def test_a_key_that_is_right_is_fetched_once(monkeypatch):
    monkeypatch.setattr(system, "verified_key", lambda content, _fingerprint, _source: content)
    fetched = []
    host = system.ToolkitSystem(
        lambda url, _credentials: fetched.append(url) or b"key", Manager(), {"ID": "rocky", "VERSION_ID": "9.4"}
    )
    repository = host.repository(DesiredToolkit())
    assert host.repository(DesiredToolkit()) is repository
    assert len(fetched) == 1
    # NVIDIA signs the metadata of the rpm repository and not the packages.
    assert (repository.signed_metadata, repository.signed_packages) == (True, False)


def test_os_release_of_this_machine():
    assert "ID" in system._os_release()


class TestCdi:
    @pytest.fixture
    def place(self, tmp_path, monkeypatch):
        path = tmp_path / "cdi" / "nvidia.yaml"
        monkeypatch.setattr(cdi.adapter, "path", lambda: str(path))
        monkeypatch.setattr(cdi.adapter, "settings", lambda: {"NVIDIA_CTK_DEBUG": "true"})
        monkeypatch.setattr(cdi, "possible", lambda: True)
        monkeypatch.setattr(cdi.adapter, "CONTROL_NODES", ())
        return path

    @staticmethod
    def generator(text):
        def run(command, **options):
            assert options["environment"] == {"NVIDIA_CTK_DEBUG": "true"}
            Path(command[3].partition("=")[2]).write_text(text)
            return Result(tuple(command), 0, "", "it said")

        return run

    def test_made_and_then_right(self, place):
        assert cdi.refresh(self.generator(SPECIFICATION)) == "there is none"
        assert place.read_text() == SPECIFICATION
        assert cdi.refresh(self.generator(SPECIFICATION)) == ""

    @pytest.mark.parametrize(
        ("now", "why"),
        [
            (SPECIFICATION.replace('"0"', '"0:0"'), "0:0 missing; 0 gone"),
            (SPECIFICATION.replace("args: [x]", "args: [y]"), "it is for another driver or toolkit"),
        ],
    )
    def test_stale(self, place, now, why):
        cdi.refresh(self.generator(SPECIFICATION))
        assert cdi.refresh(self.generator(now)) == why
        assert place.read_text() == now

    def test_missing_device_nodes_are_created_before_it_is_compared(self, place, tmp_path, monkeypatch):
        node = tmp_path / "nvidia-uvm"
        cdi.refresh(self.generator(SPECIFICATION))
        monkeypatch.setattr(cdi.adapter, "CONTROL_NODES", (str(node),))
        monkeypatch.setattr(cdi.adapter, "_OTHER_NODES", ())

        def toolkit(command, **options):
            if command[1] == "system":
                node.touch()
                return Result(tuple(command), 0, "", "")
            text = SPECIFICATION if node.exists() else SPECIFICATION.replace("args: [x]", "args: []")
            return self.generator(text)(command, **options)

        # In check mode nothing is created, and the plan says what is missing.
        assert cdi.compare(toolkit).stale == f"the device nodes {node} are missing"
        assert not node.exists()
        assert cdi.refresh(toolkit) == f"the device nodes {node} were missing"
        assert place.read_text() == SPECIFICATION
        assert cdi.compare(toolkit).stale == cdi.refresh(toolkit) == ""

    def test_one_that_cannot_be_read_is_replaced(self, place):
        place.parent.mkdir()
        place.write_text("nonsense")
        assert cdi.refresh(self.generator(SPECIFICATION)).startswith("it cannot be read")

    @pytest.mark.parametrize("text", ["", "nonsense"])
    def test_a_generator_that_lies(self, place, text):
        with pytest.raises(CommandError, match=r"wrote nothing|cannot be read"):
            cdi.refresh(self.generator(text))
        assert not place.exists()

    def test_nothing_to_describe(self, monkeypatch):
        monkeypatch.setattr(cdi, "possible", lambda: False)
        assert cdi.refresh() == ""

    def test_what_is_possible(self, monkeypatch):
        monkeypatch.setattr(cdi.adapter, "available", lambda: True)
        monkeypatch.setattr(cdi, "_DRIVER", "/nowhere")
        assert not cdi.possible()
        assert cdi.unit_names() in ((), cdi.UNITS)
