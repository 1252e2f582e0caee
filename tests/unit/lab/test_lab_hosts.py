# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parts of the lab's program that need neither root nor a host."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

LAB = Path(__file__).resolve().parents[2] / "lab"
sys.path.insert(0, str(LAB))

from hosts import cache, needs
from hosts.inventory import inventory_text
from hosts.mirror import choose_addresses, machine_sources
from hosts.paths import LabPaths
from hosts.prepare import hardware_command
from hosts.progress import LabError, Progress
from hosts.spec import DEMO, DEMO_NODES, Boards, HostSpec, as_nodes, host_from_json, host_to_json, parse_spec
from packages import driver

# ---- mirror ----

DEB822 = """\
Types: deb deb-src
# a comment between fields
URIs: https://mirror.site/debian/
Suites: bookworm
  bookworm-updates
Components: main

Types: deb
URIs: https://mirror.site/security
Suites: bookworm-security
Components: main

Types: deb
URIs: https://off.site/debian
Suites: bookworm
Enabled: no
"""


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "sources.list.d/site.sources",
            DEB822,
            [
                ("https://mirror.site/debian/", "bookworm"),
                ("https://mirror.site/debian/", "bookworm-updates"),
                ("https://mirror.site/security", "bookworm-security"),
            ],
        ),
        (
            "sources.list",
            "# deb http://no.site x main\ndeb [arch=amd64 signed-by=/k] http://a.site/debian bookworm main\n"
            "deb-src http://s.site/debian bookworm main\n",
            [("http://a.site/debian", "bookworm")],
        ),
        ("sources.list.d/other.disabled", "deb http://a.site/debian bookworm main\n", []),
    ],
)
def test_machine_sources(tmp_path: Path, name: str, text: str, expected: list[tuple[str, str]]) -> None:
    path = tmp_path / "etc/apt" / name
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    assert machine_sources(tmp_path) == expected


@pytest.mark.parametrize(
    ("entries", "codename", "expected"),
    [
        ([], "bookworm", (None, None)),
        ([("http://a/", "bookworm"), ("http://s", "bookworm-security")], "bookworm", ("http://a", "http://s")),
        ([("http://first", "bookworm"), ("http://second", "bookworm")], "bookworm", ("http://first", None)),
        # A machine of another release names the mirror that has this one too.
        ([("http://t", "trixie"), ("http://ts", "trixie-security")], "trixie", ("http://t", "http://ts")),
        # The packages of somebody else are no Debian mirror.
        ([("http://x", "nodistro"), ("http://y", "stable-security")], "bookworm", (None, None)),
    ],
)
def test_choose_addresses(
    entries: list[tuple[str, str]], codename: str, expected: tuple[str | None, str | None]
) -> None:
    assert choose_addresses(entries, codename) == expected


# ---- specification ----


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "'hosts' must be a list"),
        ({"hosts": []}, "'hosts' must be a list"),
        ({"hosts": ["a"]}, r"hosts\[0\]: it must be a mapping"),
        ({"hosts": [{"name": "Upper"}]}, r"hosts\[0\]\.name: 'Upper'"),
        ({"hosts": [{"name": "a"}, {"name": "a"}]}, "two hosts are named 'a'"),
        ({"hosts": [{"name": "a", "bords": []}]}, r"hosts\[0\]\.bords: unknown key"),
        ({"hosts": [{"name": "a", "group": "gpu-hosts"}]}, r"hosts\[0\]\.group"),
        ({"hosts": [{"name": "a", "driver": True}]}, r"hosts\[0\]\.driver: True must be one of none, installed"),
        (
            {"hosts": [{"name": "a", "node": True}]},
            r"hosts\[0\]\.node: True must be one of none, containerd-1.6, containerd-2.4",
        ),
        ({"hosts": [{"name": "a", "headers": "no"}]}, r"hosts\[0\]\.headers: 'no'"),
        ({"hosts": [{"name": "a", "nvswitch": True}]}, r"hosts\[0\]\.nvswitch: True"),
        ({"hosts": [{"name": "a", "boards": [{"board": "t4"}]}]}, r"hosts\[0\]\.boards\[0\]: it must be"),
        ({"hosts": [{"name": "a", "boards": [{"board": "t4", "count": 17}]}]}, r"boards\[0\]\.count: 17"),
    ],
)
def test_a_wrong_specification_is_refused_with_its_path(data: object, message: str) -> None:
    with pytest.raises(LabError, match=message):
        parse_spec(data)


def test_a_specification_survives_the_state_file() -> None:
    for hosts in (DEMO, DEMO_NODES):
        assert [host_from_json(host_to_json(host)) for host in hosts] == list(hosts)


def test_hosts_become_nodes_with_debians_containerd_unless_they_name_another() -> None:
    named = HostSpec("b", "pool", (), node="containerd-2.4")
    assert [host.node for host in as_nodes((HostSpec("a", "pool", ()), named))] == ["containerd-1.6", "containerd-2.4"]


def test_the_boards_of_a_specification_are_built_in() -> None:
    spec = HostSpec("a", "pool", (Boards("h100-80gb-sxm", 4), Boards("t4", 1)), nvswitch=2, headers=False)
    command = hardware_command(spec)
    words = "virtual-gpu create --seed a --board h100-80gb-sxm --count 4 --board t4 --count 1 --nvswitch 2"
    assert " ".join(command) == words


def test_inventory_has_every_host_in_its_pool() -> None:
    hosts = [HostSpec("a", "gpu_hosts", ()), HostSpec("b", "pool", ()), HostSpec("c", "pool", ())]
    text = inventory_text(LabPaths("x"), hosts, {"a": 1, "b": 2, "c": 3}, {"some_url": "file:///x"})
    inventory = yaml.safe_load(text)["all"]
    assert inventory["vars"]["some_url"] == "file:///x"
    assert "StrictHostKeyChecking=yes" in inventory["vars"]["ansible_ssh_common_args"]
    gpu_hosts = inventory["children"]["gpu_hosts"]
    assert gpu_hosts["hosts"] == {"a": {"ansible_port": 1}}
    assert gpu_hosts["children"] == {"pool": {"hosts": {"b": {"ansible_port": 2}, "c": {"ansible_port": 3}}}}


# ---- needs ----


def test_without_root_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs.os, "geteuid", lambda: 1000)
    assert any("sudo" in sentence for sentence in needs.obstacles())


def test_a_cache_below_tmp_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFLEET_LAB_CACHE", "/tmp/lab")
    assert any("/tmp/lab is below /tmp" in sentence for sentence in needs.obstacles())


def test_missing_programs_become_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs.shutil, "which", lambda program, **_: None if program == "gpg" else "/x")
    assert "gnupg" in needs.missing_packages()
    assert "mmdebstrap" not in needs.missing_packages()


# ---- packages ----


def test_a_branch_is_pinned_at_its_newest_version() -> None:
    assert [(package.name, package.version) for package in driver.branch_pinnings()] == [
        ("nvidia-driver-pinning-580", "580.178.04-1"),
        ("nvidia-driver-pinning-595", "595.91.07-1"),
    ]


# ---- kernel tools ----


@pytest.fixture(name="tools")
def fixture_tools(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program that stands in for modprobe; where it would become the real one, the test sees with what."""
    path = LAB / "hosts/image/usr/lib/gpufleet-lab/kernel-tools"
    loader = importlib.machinery.SourceFileLoader("kernel_tools", str(path))
    spec = importlib.util.spec_from_loader("kernel_tools", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)

    def hand_over(tool: str, arguments: list[str]) -> None:
        raise SystemExit(f"{tool} {' '.join(arguments)}")

    module.hand_over = hand_over  # type: ignore[attr-defined]
    return module


@pytest.mark.parametrize(
    ("arguments", "options", "names"),
    [
        (["nvidia"], [], ["nvidia"]),
        (["-rq", "nvidia_uvm", "nvidia"], ["-r", "-q"], ["nvidia_uvm", "nvidia"]),
        (["-d", "/x", "--", "-odd"], ["-d", "/x"], ["-odd"]),
        (["nvidia", "NVreg_X=1"], [], ["nvidia", "NVreg_X=1"]),
    ],
)
def test_options_of_modprobe(tools: ModuleType, arguments: list[str], options: list[str], names: list[str]) -> None:
    assert tools.split_options(tools.expand(arguments)) == (options, names)


@pytest.mark.parametrize(
    "arguments", [["overlay"], ["--show-depends", "nvidia"], ["-n", "nvidia"], ["-r", "br_netfilter"]]
)
def test_everything_else_is_kmods(tools: ModuleType, arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match=f"modprobe {' '.join(arguments)}"):
        tools.modprobe(arguments)


def test_a_missing_module_is_quiet_only_on_request(tools: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    said = "modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.1\n"
    tools.kmod = lambda *_: subprocess.CompletedProcess([], 1, "", said)  # type: ignore[attr-defined]
    assert tools.modprobe(["-q", "nvidia"]) == 1
    assert capsys.readouterr().err == ""
    assert tools.modprobe(["nvidia"]) == 1
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("text", "expected"),
    [("nvidia-uvm", "nvidia_uvm"), ("/lib/modules/6.1/nvidia-drm.ko.xz", "nvidia_drm"), ("nvidia.ko", "nvidia")],
)
def test_module_names(tools: ModuleType, text: str, expected: str) -> None:
    assert tools.module_name(text) == expected


# ---- cache ----


def test_only_what_is_old_and_unused_is_pruned(tmp_path: Path) -> None:
    for name in ("old", "old-in-use", "new"):
        (tmp_path / name).mkdir()
        if name != "new":
            os.utime(tmp_path / name, (1, 1))
    cache.prune(tmp_path, {tmp_path / "old-in-use"})
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["new", "old-in-use"]


def test_a_build_that_fails_leaves_nothing_that_looks_complete(tmp_path: Path) -> None:
    def fail(directory: Path) -> None:
        (directory / "half").touch()
        raise LabError("cut off")

    def build(directory: Path) -> None:
        assert list(directory.iterdir()) == []
        (directory / "whole").touch()

    with pytest.raises(LabError):
        cache.build_once(tmp_path, "name", "a test", Progress(), fail)
    assert not (tmp_path / "name").exists()
    directory, built = cache.build_once(tmp_path, "name", "a test", Progress(), build)
    assert (built, [path.name for path in directory.iterdir()]) == (True, ["whole"])
    assert cache.build_once(tmp_path, "name", "a test", Progress(), fail) == (directory, False)
