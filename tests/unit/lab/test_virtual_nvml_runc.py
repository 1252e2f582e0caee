# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's wrapper of runc: which containers it brings the virtual driver to, and what else it changes."""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any

import pytest

_PATH = Path(__file__).resolve().parents[2] / "lab/hosts/image/usr/lib/gpufleet-lab/runc"
runc = types.ModuleType("lab_runc")
# Not by an import, which would leave a folder with bytecode in the lab's image.
exec(compile(_PATH.read_text(), _PATH, "exec"), runc.__dict__)

CONTROL = {"path": "/dev/nvidiactl", "type": "c", "major": 195, "minor": 255}
DEVICES = [{"allow": False, "access": "rwm"}]


def prepared(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    path = folder / "config.json"
    path.write_text(json.dumps({"root": {"path": "rootfs"}, **config}))
    path.chmod(0o600)
    runc.prepare(str(folder), "c1")
    assert [entry.name for entry in folder.iterdir()] == ["config.json"]
    assert path.stat().st_mode & 0o777 == 0o600
    answer: dict[str, Any] = json.loads(path.read_text())
    return answer


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("--version", ("", ".")),
        ("list", ("list", ".")),
        ("create --bundle /b c1", ("create", "/b")),
        ("--root /r --log=/l --log-format json --systemd-cgroup create -b /b --pid-file /p c1", ("create", "/b")),
        ("--root create run --bundle=/b c1", ("run", "/b")),
        ("--log update exec c1 update", ("exec", ".")),
        ("--root /r update --resources - c1", ("update", ".")),
    ],
)
def test_command_line(words: str, found: tuple[str, str]) -> None:
    assert runc.command_and_bundle(words.split()) == found


@pytest.mark.parametrize(
    "config",
    [
        {"linux": {"devices": [CONTROL]}},
        {"mounts": [{"type": "bind", "source": "/dev/nvidiactl", "destination": "/dev/nvidiactl"}]},
        {"mounts": [{"type": "bind", "source": "/dev", "destination": "/dev"}]},
    ],
    ids=["device", "mounted", "the host's /dev"],
)
def test_a_container_with_the_driver_gets_what_it_shows(tmp_path: Path, config: dict[str, Any]) -> None:
    theirs = {"path": "/usr/bin/nvidia-cdi-hook", "args": ["nvidia-cdi-hook", "disable-device-node-modification"]}
    edited = prepared(tmp_path, {**config, "hooks": {"createContainer": [theirs]}})
    ours, then = edited["hooks"]["createContainer"]
    assert ours["args"] == ["show-hardware", str(tmp_path / "rootfs")]
    assert then == theirs
    before = len(config.get("mounts", []))
    assert edited["mounts"][:before] == config.get("mounts", [])
    assert [mount["destination"] for mount in edited["mounts"][before:]] == [
        "/run/virtual-gpu",
        "/var/lib/virtual-gpu",
        "/.virtual-gpu-container",
    ]


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"linux": {"devices": None}, "mounts": None},
        {"linux": {"devices": [{"path": "/dev/nvidia0"}]}},
        {"mounts": [{"type": "tmpfs", "source": "tmpfs", "destination": "/dev"}]},
        {"linux": {"resources": {"devices": DEVICES}}},
    ],
)
def test_any_other_container_stays_as_it_is(tmp_path: Path, config: dict[str, Any]) -> None:
    assert prepared(tmp_path, config) == {"root": {"path": "rootfs"}, **config}


def test_no_limits_but_on_devices(tmp_path: Path) -> None:
    resources = {"devices": DEVICES, "memory": {"limit": 1}, "cpu": {"shares": 2}, "unified": {"pids.max": "1"}}
    edited = prepared(tmp_path, {"linux": {"resources": resources, "cgroupsPath": "/kubepods/x"}})
    assert edited["linux"] == {"resources": {"devices": DEVICES}, "cgroupsPath": "/kubepods/x"}


def test_everything_that_is_mounted_comes_with_the_lab() -> None:
    assert (_PATH.parent / Path(runc.SHOW_HARDWARE).name).stat().st_mode & 0o100
    assert (_PATH.parent / "container").is_file()
    assert (_PATH.parents[2] / "local/sbin/runc").resolve() == _PATH


def test_a_container_joins_the_group_that_a_kubelet_makes_for_its_pod(tmp_path: Path) -> None:
    uid = "d77d8c47-f96c-4dea-ac4e-f65f50c0cb5e"
    edited = prepared(tmp_path, {"annotations": {"io.kubernetes.cri.sandbox-uid": uid}})
    assert edited["linux"]["cgroupsPath"] == f"/kubepods/pod{uid}/c1"
