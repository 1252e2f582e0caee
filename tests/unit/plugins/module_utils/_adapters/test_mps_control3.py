# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The control of MPS, protocol 3, against a daemon that answers as NVIDIA documents it (release 615). No real one is at hand."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import command, mps_control
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError, Result
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.mps_control import (
    MpsControl3,
    MpsError,
    MpsNotRunning,
)

PIPE = "/run/nvidia/mps/gpu0/pipe"
GET = ("namespace", "get", "default", "shared")
SERVERS = "server list --format=csv,noheader"
CLIENTS = "client list --all --format=csv,noheader"


class Daemon:
    """Named servers with settings; C(stubborn) says nothing and keeps what it has."""

    def __init__(self):
        self.servers = {}
        self.pids = {}
        self.clients = []
        self.stubborn = False
        self.answers = {}
        self.calls = []

    def run(self, command, *, stdin=None, timeout=60.0, environment=None, allowed=None):  # noqa: ARG002
        assert stdin is None and allowed is None
        assert environment == {"CUDA_MPS_PIPE_DIRECTORY": PIPE, "CUDA_MPS_PROTOCOL_VERSION": "3"}
        text = " ".join(command[1:])
        self.calls.append(text)
        answer = self.answers.get(text)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Result):
            return answer
        return Result(tuple(command), 0, answer if answer is not None else self._answer(command[1:]), "")

    def _answer(self, words):
        if words[:2] == ["server", "list"]:
            return "".join(f"{name},0,{self.pids.get(name, '-')},Ready,{PIPE}/{name},-,-\n" for name in self.servers)
        if words[:2] == ["client", "list"]:
            return "".join(f"{row}\n" for row in self.clients)
        if words[:2] == ["server", "create"]:
            assert words[3:] == ["--uid=0"], "in multi-user mode servers are root's"
            if not self.stubborn:
                self.servers[words[2]] = {}
            return ""
        if words[:2] == ["server", "set"]:
            name, _equals, value = words[3].lstrip("-").partition("=")
            if not self.stubborn:
                self.servers[words[2]][name] = value
            return ""
        if tuple(words[:4]) == GET:
            if "shared" not in self.servers:
                return "Error: Server 'shared' not found\n"
            return f"{self.servers['shared'].get(words[4], '-')}\n"
        return "Error: Verb is not allowed\n"


@pytest.fixture
def daemon(monkeypatch):
    made = Daemon()
    monkeypatch.setattr(command, "run", made.run)
    return made


@pytest.fixture
def control():
    return MpsControl3(PIPE)


def test_the_server_is_made_once(daemon, control):
    control.ensure_server()
    control.ensure_server()
    assert daemon.calls.count("server create shared --uid=0") == 1
    daemon.servers.clear()
    daemon.stubborn = True
    with pytest.raises(MpsError, match="the daemon does not list it"):
        control.ensure_server()


def test_settings_are_told_and_read_back(daemon, control):
    control.ensure_server()
    control.set_thread_percentage(25.0)
    control.set_memory_limit(0, 4188)
    control.set_priority(1)
    assert daemon.servers["shared"] == {
        "active-thread-percentage": "25",
        "pinned-memory-limit": "4188M",
        "client-priority": "1",
    }
    assert (control.thread_percentage(), control.memory_limit(0), control.priority()) == (25.0, "4G", "1")
    assert control.responds()


@pytest.mark.parametrize(
    ("printed", "shown"), [("4G", "4G"), ("4188M", "4G"), ("900M", "900M"), ("1048576K", "1G"), ("-", ""), ("x", None)]
)
def test_limits_as_the_daemon_may_print_them(daemon, control, printed, shown):
    daemon.servers["shared"] = {"pinned-memory-limit": printed}
    assert control.memory_limit(0) == shown


def test_a_new_server_has_no_limit_and_needs_none(daemon, control):
    control.ensure_server()
    control.set_memory_limit(0, 0)
    assert not [call for call in daemon.calls if call.startswith("server set")]
    daemon.servers["shared"]["pinned-memory-limit"] = "4G"
    with pytest.raises(MpsError, match="to 0 MiB: reading back gives 4G"):
        control.set_memory_limit(0, 0)


def test_values_that_were_not_taken_are_found_by_reading_back(daemon, control):
    control.ensure_server()
    daemon.stubborn = True
    with pytest.raises(MpsError, match=r"thread percentage .* to 25: it is None"):
        control.set_thread_percentage(25)
    with pytest.raises(MpsError, match="to 4096 MiB: reading back gives no limit"):
        control.set_memory_limit(0, 4096)
    with pytest.raises(MpsError, match=r"client priority .* to 1: it is -"):
        control.set_priority(1)


def test_without_the_limited_server_it_does_not_respond(daemon, control):
    assert not control.responds()
    daemon.servers["shared"] = {"active-thread-percentage": "50%"}
    assert control.responds()


@pytest.mark.parametrize("on", ["stdout", "stderr"])
def test_without_a_daemon_it_says_so(daemon, control, on):
    words = "Cannot find MPS control daemon process\n"
    daemon.answers[SERVERS] = Result((), 1, words if on == "stdout" else "", words if on == "stderr" else "")
    with pytest.raises(MpsNotRunning, match=PIPE):
        control.servers()


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (Result((), 0, "Error: Verb 'lst' is not allowed\n", ""), "is not allowed"),
        (Result((), 1, "", "Invalid arguments\n"), "Invalid arguments"),
        (Result((), 1, "", ""), "exit status 1"),
        (Result((), 0, "", "Insufficient privileges for UID 1000.\n"), "Insufficient privileges"),
    ],
)
def test_a_refusal_is_an_error_in_the_daemons_words(daemon, control, answer, match):
    daemon.answers[SERVERS] = answer
    with pytest.raises(MpsError, match=match):
        control.servers()


def test_a_program_that_hangs_does_not_respond(daemon, control):
    daemon.answers[" ".join((*GET, "active-thread-percentage"))] = CommandError(["x"], "no answer within 20 s")
    assert not control.responds()


def test_servers_and_their_clients(daemon, control):
    daemon.servers = {"shared": {}, "uid_1000": {}, "idle": {}}
    daemon.pids = {"shared": 910, "uid_1000": 920}
    daemon.clients = [
        "1001,shared,0,default,python train.py",
        "1001,shared,1,default,python train.py",
        "1002,shared,0,default,python a,b.py",
        "1003,uid_1000,0,default,x",
        "a line that is no row",
    ]
    assert control.servers() == (910, 920)
    assert control.clients(910) == (1001, 1002)
    assert control.clients(920) == (1003,)
    assert control.clients(930) == ()


def test_ending(daemon, control):
    daemon.answers["-q"] = ""
    control.quit()
    assert daemon.calls == ["-q"]


@pytest.mark.parametrize(
    ("program", "speaks"), [(None, False), (b"-M\0--multiuser-server\0", False), (b"CUDA_MPS_PROTOCOL_VERSION\0", True)]
)
def test_what_the_release_speaks(monkeypatch, tree, program, speaks):
    if program is not None:
        tree.program("/usr/bin/nvidia-cuda-mps-control")
        tree.write("/usr/bin/nvidia-cuda-mps-control", program)
    monkeypatch.setattr(mps_control, "HostFiles", lambda: tree.files)
    assert mps_control.has_protocol_3() is speaks
