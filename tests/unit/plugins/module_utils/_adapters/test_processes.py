# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import stat
import subprocess

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import processes
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.processes import (
    device_holders,
    parse_cgroup,
    program_processes,
    unit_of,
)

POD = "8e0f1c0e-2f5a-4a53-9c0b-1b0f6f7f8a91"
CONTAINER = "a3" * 32


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"0::/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/cri-containerd-{CONTAINER}.scope",
            (POD, CONTAINER),
        ),
        (f"0::/kubepods/besteffort/pod{POD}/{CONTAINER}", (POD, CONTAINER)),
        (f"0::/system.slice/docker-{CONTAINER}.scope", (None, CONTAINER)),
        (f"12:devices:/kubepods/pod{POD}/{CONTAINER}\n1:name=systemd:/x", (POD, CONTAINER)),
        ("0::/system.slice/nvidia-persistenced.service", (None, None)),
        ("", (None, None)),
    ],
)
def test_cgroup(text, expected):
    assert parse_cgroup(text) == expected


def test_holders_of_device_files(tree):
    tree.process(812, ["/usr/bin/python3", "train.py"], devices=("/dev/nvidia0", "/dev/nvidiactl", "/dev/null"))
    tree.process(900, ["/bin/sh"], devices=("/dev/pts/0", "socket:[1]"))
    tree.process(901, ["dcgm"], devices=("/dev/nvidia1",), cgroup=f"0::/kubepods/pod{POD}/{CONTAINER}")
    tree.write("/proc/sys/x", "no process")

    scan = device_holders(tree.files)

    assert [(holder.pid, holder.devices) for holder in scan.holders] == [
        (812, ("/dev/nvidia0", "/dev/nvidiactl")),
        (901, ("/dev/nvidia1",)),
    ]
    assert scan.holders[0].command == "python3"
    assert scan.holders[0].command_line == "/usr/bin/python3 train.py"
    assert (scan.holders[1].pod_uid, scan.holders[1].container_id) == (POD, CONTAINER)
    assert scan.hidden == 0
    assert [holder.pid for holder in device_holders(tree.files, "/dev/nvidia1").holders] == [901]


def test_holders_of_one_of_many_gpus(tree):
    tree.process(812, ["a"], devices=("/dev/nvidia1", "/dev/nvidiactl"))
    tree.process(813, ["b"], devices=("/dev/nvidia10", "/dev/nvidiactl"))
    assert [holder.pid for holder in device_holders(tree.files, "/dev/nvidia1").holders] == [812]


def test_devices_that_a_container_has_below_another_directory(tree, monkeypatch):
    """As a monitor's that mounts the host's / at /host: seen on a real node. A file of such a name is no device."""
    tree.process(812, ["monitor"], devices=("/host/dev/nvidia0",))
    tree.process(813, ["backup"], devices=("/srv/dev/nvidia0",))
    real = os.stat

    def status(path):
        character = "812" in str(path)
        return os.stat_result(((stat.S_IFCHR if character else stat.S_IFREG) | 0o666, *real("/")[1:]))

    monkeypatch.setattr(os, "stat", status)
    assert [(holder.pid, holder.devices) for holder in device_holders(tree.files).holders] == [(812, ("/dev/nvidia0",))]


def test_processes_that_end_while_they_are_read(tree, monkeypatch):
    tree.process(812, ["a"], devices=("/dev/nvidia0",))
    tree.process(813, ["b"], devices=("/dev/nvidia0",))
    real = os.listdir

    def listdir(path):
        if path.endswith("812/fd"):
            raise FileNotFoundError(path)
        return ["0", "77"] if path.endswith("813/fd") else real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    assert [holder.pid for holder in device_holders(tree.files).holders] == [813]


def test_processes_of_others_are_counted(tree, monkeypatch):
    tree.process(812, ["a"], devices=("/dev/nvidia0",))
    real = os.listdir

    def listdir(path):
        if path.endswith("/fd"):
            raise PermissionError(path)
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    scan = device_holders(tree.files)
    assert (scan.holders, scan.hidden) == ((), 1)


def test_a_device_that_another_process_holds_and_this_one(monkeypatch):
    # The real /proc. NVML opens devices in this process too, which is no user of them.
    monkeypatch.setattr(processes, "_DEVICE", "/dev/null")
    with open("/dev/null", "rb") as opened, subprocess.Popen(["sleep", "60"], stdin=opened) as sleeping:
        found = [holder.pid for holder in device_holders(HostFiles()).holders]
        sleeping.kill()
    assert sleeping.pid in found and os.getpid() not in found


def test_programs_are_found_by_their_file(tree):
    tree.process(1, ["/sbin/init"])
    tree.link("/proc/self/ns/mnt", "mnt:[1]")
    tree.process(900, ["nvidia-cuda-mps-control", "-d"], environment={"A": "b=c"})
    tree.process(910, ["/usr/bin/nvidia-cuda-mps-server"], parent=900, namespace="mnt:[2]")
    tree.process(911, ["/usr/bin/nvidia-cuda-mps-something"])  # the same first 15 characters
    tree.write("/proc/912/comm", "nvidia-cuda-mps\n")  # a zombie: no command line

    found = program_processes(tree.files, "nvidia-cuda-mps-control", "nvidia-cuda-mps-server")

    assert [(process.pid, process.parent, process.foreign) for process in found] == [(900, 1, False), (910, 900, True)]
    assert found[0].environment == {"A": "b=c"}
    assert found[1].environment is None
    assert found[0].unit is None
    assert found[0].user == os.getuid()


@pytest.mark.parametrize(
    ("cgroup", "service"),
    [
        # Version 2, with the slice of a template; version 1; both, in a systemd-nspawn container; a container of systemd's driver, of
        # cgroupfs, and a user's session.
        ("9:name=systemd:/../..\n8:pids:/\n0::/system.slice/gpufleet-mps@node.service\n", "gpufleet-mps@node.service"),
        ("0::/system.slice/system-gpufleet\\x2dmps.slice/gpufleet-mps@node.service\n", "gpufleet-mps@node.service"),
        (
            "4:memory:/kubepods/x.service\n1:name=systemd:/system.slice/gpufleet-mps@node.service\n",
            "gpufleet-mps@node.service",
        ),
        ("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-4711.scope\n", None),
        ("0::/system.slice/containerd.service/kubepods/pod1/4711\n", None),
        ("0::/user.slice/user-1000.slice/session-1.scope\n", None),
        ("", None),
    ],
)
def test_the_service_of_a_process(cgroup, service):
    assert unit_of(cgroup, ".service") == service


@pytest.mark.parametrize(("stat", "parent"), [("9 (a) b) S 7 9", 7), ("", 0), ("9 (a) S", 0)])
def test_a_name_with_parentheses(tree, stat, parent):
    tree.process(9, ["nvidia-cuda-mps-server"])
    tree.write("/proc/9/stat", stat)
    assert program_processes(tree.files, "nvidia-cuda-mps-server")[0].parent == parent
