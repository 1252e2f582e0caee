# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import systemd
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import Result
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.systemd import Unit

#: What systemd 252 of Debian 12 lists of the units below.
LISTED = """\
containerd.service           loaded    active   running containerd container runtime
nvidia-cdi-refresh.service   loaded    inactive dead    Refresh NVIDIA CDI specification file
docker.service               not-found inactive dead    docker.service
kubelet.service              not-found inactive dead    kubelet.service
"""


@pytest.fixture
def control(tmp_path, monkeypatch):
    """A systemd with the units of L(LISTED) in memory, and a folder for files of units."""
    calls = []

    def run(command, **_options):
        calls.append(command[1])
        if command[1] == "list-units":
            return Result(tuple(command), 0, LISTED, "")
        shown = [f"Id={name}\nLoadState=masked\nActiveState=inactive\n" for name in command[3:]]
        return Result(tuple(command), 0, "\n".join(shown), "")

    monkeypatch.setattr(systemd, "run", run)
    monkeypatch.setattr(systemd, "_LOAD_PATH", ("/nowhere", str(tmp_path)))
    return tmp_path, calls


def test_units_in_memory_and_on_the_disk_are_told_by_one_question(control):
    folder, calls = control
    for name in ("containerd", "crio"):
        (folder / f"{name}.service").write_text("[Unit]\n")
    names = [f"{name}.service" for name in ("containerd", "nvidia-cdi-refresh", "crio", "docker", "k3s")]
    assert systemd.states(names) == {
        "containerd.service": Unit("containerd.service", "loaded", "active"),
        "nvidia-cdi-refresh.service": Unit("nvidia-cdi-refresh.service", "loaded", "inactive"),
        "crio.service": Unit("crio.service", "loaded", "inactive"),
        "docker.service": Unit("docker.service", "not-found", "inactive"),
        "k3s.service": Unit("k3s.service", "not-found", "inactive"),
    }
    assert calls == ["list-units"]


def test_systemd_is_asked_about_a_file_that_it_has_not_read_and_about_links(control):
    folder, calls = control
    (folder / "kubelet.service").write_text("[Unit]\n")
    os.symlink("/dev/null", folder / "k3s.service")
    found = systemd.states(["kubelet.service", "k3s.service"])
    assert {unit.load for unit in found.values()} == {"masked"} and calls == ["list-units", "show"]


def test_no_unit_is_no_question(control):
    assert systemd.states([]) == {} and control[1] == []


@pytest.mark.parametrize(
    ("active", "stamp", "began"),
    [("active", "12000000", 512.0), ("failed", "12000000", None), ("active", "", None)],
)
def test_a_main_process_began_by_the_clock_as_it_goes_now(monkeypatch, active, stamp, began):
    shown = f"ExecMainStartTimestampMonotonic={stamp}\nActiveState={active}\n"
    monkeypatch.setattr(systemd, "run", lambda command: Result(tuple(command), 0, shown, ""))
    monkeypatch.setattr(systemd.time, "time", lambda: 1500.0)
    monkeypatch.setattr(systemd.time, "monotonic", lambda: 1000.0)
    assert systemd.main_process("slurmd.service") == (None if began is None else (stamp, began))
