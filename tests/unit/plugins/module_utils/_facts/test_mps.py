# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import processes
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.mps_control import MpsError, MpsNotRunning
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts import contents
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.contents import read_mps, read_mps_control
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.schema import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._printable import printable

CONTROL = "nvidia-cuda-mps-control"
SERVER = "nvidia-cuda-mps-server"


class Daemon:
    def __init__(self, percentage=100.0, clients=None, error=None, limits=()):
        self.percentage = percentage
        self.by_server = clients or {}
        self.error = error
        self.limits = limits

    def thread_percentage(self):
        if self.error:
            raise self.error
        return self.percentage

    def clients(self, server):
        return self.by_server[server]

    def memory_limit(self, ordinal):
        limit = self.limits[ordinal]
        if isinstance(limit, Exception):
            raise limit
        return limit


@pytest.fixture
def host(tree):
    tree.link("/proc/self/ns/mnt", "mnt:[1]")
    return tree


def test_no_daemon(host):
    host.process(5, [CONTROL])  # a client of the same name, which is asking
    assert read_mps(host.source()) == []


def test_what_whoever_starts_a_daemon_puts_into_its_environment_fits_the_facts(host):
    names, pipe = f"GPU-{'a' * 300},MIG-b\nc", f"/{'p' * 9000}\n"
    host.daemons[pipe] = Daemon(limits=["4G"] * 2)
    host.process(900, [CONTROL, "-d"], environment={"CUDA_MPS_PIPE_DIRECTORY": pipe, "CUDA_VISIBLE_DEVICES": names})
    (daemon,) = read_mps(host.source())
    view_of({"schema": 1, "mps": printable([daemon])})
    assert len(daemon["devices"]) == 2


def test_a_daemon_with_clients(host):
    host.process(900, [CONTROL, "-d"], environment={"CUDA_MPS_PIPE_DIRECTORY": "/run/nvidia-mps/0"})
    host.process(910, [SERVER], parent=900)
    host.daemons["/run/nvidia-mps/0"] = Daemon(25.0, {910: (1000, 1001)})
    source = host.source()
    assert read_mps(source) == [
        {
            "pipe_directory": "/run/nvidia-mps/0",
            "pid": 900,
            "in_container": False,
            "responds": True,
            "percentage": 25.0,
            "limits": [],
            "clients": 2,
            "servers": [910],
        }
    ]
    assert source.unknown == {}


@pytest.mark.parametrize(
    ("words", "environment", "protocol"),
    [
        (["-d"], {}, 2),
        (["-d", "-p", "3", "-m"], {}, 3),
        (["-d"], {"CUDA_MPS_PROTOCOL_VERSION": "3"}, 3),
        (["-d", "--protocol", "3"], {"CUDA_MPS_PROTOCOL_VERSION": "2"}, 2),
    ],
)
def test_a_daemon_is_asked_in_its_own_protocol(host, words, environment, protocol):
    host.process(900, [CONTROL, *words], environment=environment)
    host.process(910, [SERVER], parent=900)
    host.daemons = {"/tmp/nvidia-mps": Daemon(2.0, {910: ()}), "3:/tmp/nvidia-mps": Daemon(3.0, {910: (1,)})}
    found = read_mps(host.source())[0]
    assert (found["percentage"], found["clients"]) == (float(protocol), protocol - 2)


@pytest.mark.parametrize("option", ["-f", "--foreground", "--daemon"])
def test_the_default_pipe_directory_and_the_foreground(host, option):
    host.process(900, [f"/usr/bin/{CONTROL}", option], environment={})
    host.daemons["/tmp/nvidia-mps"] = Daemon()
    assert read_mps(host.source())[0]["pipe_directory"] == "/tmp/nvidia-mps"


@pytest.mark.parametrize(
    ("daemon", "reason"),
    [
        (Daemon(None), "is not a number"),
        (Daemon(error=MpsNotRunning("No MPS control daemon answers")), "No MPS control daemon answers"),
        (Daemon(error=CommandError([CONTROL], "no answer within 20 s")), "no answer within 20 s"),
    ],
)
def test_a_dead_daemon(host, daemon, reason):
    host.process(900, [CONTROL, "-d"], environment={})
    host.daemons["/tmp/nvidia-mps"] = daemon
    source = host.source()
    found = read_mps(source)[0]
    assert (found["responds"], found["percentage"], found["clients"]) == (False, None, None)
    assert reason in source.unknown["mps[0].percentage"]


def test_a_daemon_that_may_not_be_asked(host, monkeypatch):
    monkeypatch.setattr(contents.os, "geteuid", lambda: 1000)
    host.process(900, [CONTROL, "-d"])
    source = host.source()
    found = read_mps(source)[0]
    assert found["pipe_directory"] is None and found["responds"] is None
    assert "run as root" in source.unknown["mps[0].pipe_directory"]


@pytest.mark.parametrize(
    ("limits", "found", "reason"),
    [
        (["4G", "900M"], ["4G", "900M"], ""),
        (["", "4G"], ["", "4G"], ""),
        (["4G", None], None, "the daemon's answer for device 1 is not a limit"),
        (["4G", MpsError("Unknown command")], None, "Unknown command"),
    ],
)
def test_the_limits_of_the_devices_that_a_daemon_was_started_for(host, limits, found, reason):
    environment = {"CUDA_MPS_PIPE_DIRECTORY": "/run/nvidia-mps/0", "CUDA_VISIBLE_DEVICES": "GPU-1,GPU-0"}
    host.process(900, [CONTROL, "-d"], environment=environment)
    host.daemons["/run/nvidia-mps/0"] = Daemon(limits=limits)
    source = host.source()
    daemon = read_mps(source)[0]
    assert (daemon["responds"], daemon["limits"]) == (True, found)
    assert source.unknown.get("mps[0].limits", "") == reason


PLUGINS = "/run/nvidia/mps/nvidia.com/gpu/pipe"


def plugins_daemon(host, pipe="/mps/nvidia.com/gpu/pipe"):
    host.process(900, [CONTROL, "-d"], environment={"CUDA_MPS_PIPE_DIRECTORY": pipe}, namespace="mnt:[2]")


def test_the_device_plugins_daemon_is_asked_where_the_host_has_its_pipe(host):
    plugins_daemon(host)
    host.write(f"{PLUGINS}/control", "")
    for bus in ("0000:18:00.0", "0000:2a:00.0"):
        host.write(f"/proc/driver/nvidia/gpus/{bus}/information", "")
    host.daemons[PLUGINS] = Daemon(10.0, limits=["8G", "8G"])
    (found,) = read_mps(host.source())
    assert (found["pipe_directory"], found["in_container"], found["responds"]) == (PLUGINS, True, True)
    assert (found["percentage"], found["limits"]) == (10.0, ["8G", "8G"])


@pytest.mark.parametrize("pipe", ["/mps/nvidia.com/gpu/pipe", "/mps/../../../home/eve", "/home/eve"])
def test_a_container_does_not_say_which_pipe_of_the_host_is_opened(host, pipe):
    """There is none, or it is a link, or it is elsewhere."""
    plugins_daemon(host, pipe)
    host.write("/home/eve/control", "")
    host.link(PLUGINS, "/home/eve")
    source = host.source()
    (found,) = read_mps(source)
    assert (found["responds"], found["in_container"]) == (None, True)
    assert "container" in source.unknown["mps[0].responds"]


def test_a_daemon_of_a_user_is_not_asked_for_its_pipe_is_where_the_user_wants_it(host, monkeypatch):
    host.process(900, [CONTROL, "-d"], environment={"CUDA_MPS_PIPE_DIRECTORY": "/home/eve/pipe"})
    user = os.getuid() or 1000
    monkeypatch.setattr(processes, "_user", lambda _files, _pid: user)
    monkeypatch.setattr(contents.os, "geteuid", lambda: 0)
    source = host.source()
    assert read_mps(source)[0]["responds"] is None
    assert source.unknown["mps[0].responds"] == f"the daemon belongs to the user {user}, so it is not queried"


def test_our_daemon_is_asked_although_it_has_shared_memory_of_its_own(host):
    pipe = "/run/nvidia/mps/nvidia.com/gpu/pipe"
    host.process(900, [CONTROL, "-d"], environment={"CUDA_MPS_PIPE_DIRECTORY": pipe}, namespace="mnt:[2]")
    host.write("/proc/900/cgroup", "0::/system.slice/gpufleet-mps@node.service\n")
    host.daemons[pipe] = Daemon(25.0)
    assert read_mps(host.source())[0]["responds"] is True


def test_another_hosts_daemon(host):
    host.process(900, [CONTROL, "-d"], environment={})
    source = host.source(local=False)
    assert read_mps(source)[0]["responds"] is None
    assert "another host" in source.unknown["mps[0].responds"]


@pytest.mark.parametrize(
    ("program", "facts"),
    [
        (None, {"installed": False, "multi_user": None}),
        ("nvidia-cuda-mps-server\0", {"installed": True, "multi_user": False}),
        ("\0-M\0--multiuser-server\0", {"installed": True, "multi_user": True}),
    ],
)
def test_what_the_installed_program_can_do(host, program, facts):
    if program is not None:
        host.program(f"/usr/bin/{CONTROL}")
        host.write(f"/usr/bin/{CONTROL}", program)
    source = host.source()
    assert read_mps_control(source) == facts
    assert source.unknown == {}


def test_what_the_program_behind_a_script_can_do(host):
    host.program(f"/usr/bin/{CONTROL}")
    source = host.source()
    assert read_mps_control(source) == {"installed": True, "multi_user": None}
    assert (
        source.unknown["mps_control.multi_user"]
        == f"/usr/bin/{CONTROL} cannot be read, or is a script that starts another program"
    )
    host.program(f"/usr/local/nvidia/bin/{CONTROL}")
    host.write(f"/usr/local/nvidia/bin/{CONTROL}", "\0-multiuser-server\0")
    assert read_mps_control(host.source()) == {"installed": True, "multi_user": True}
