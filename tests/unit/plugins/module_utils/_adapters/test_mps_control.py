# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The control of MPS against a daemon that answers as the real one was seen to answer (535, 580): exit status 0 says nothing."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import mps_control
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError, Result
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.mps_control import (
    MpsControl,
    MpsError,
    MpsNotRunning,
)

from .....real import RECORDINGS

PIPE = "/run/nvidia/mps/nvidia.com/gpu/pipe"


class Daemon:
    """Answers on standard input, one command a call; C(stubborn) settings keep their value and say nothing of it."""

    def __init__(self):
        self.values = {
            "get_default_active_thread_percentage": "100.0",
            "get_default_client_priority": "0",
            "get_server_list": "",
        }
        self.stubborn = False
        self.answers = {}
        self.calls = []

    def run(self, command, *, stdin=None, timeout=60.0, environment=None, allowed=None):
        assert allowed is None
        assert environment == {"CUDA_MPS_PIPE_DIRECTORY": PIPE, "CUDA_MPS_PROTOCOL_VERSION": "2"}
        text = stdin.rstrip("\n")
        assert "\n" not in text
        self.calls.append((text, timeout))
        answer = self.answers.get(text)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Result):
            return answer
        return Result(tuple(command), 0, answer if answer is not None else self._answer(text), "")

    def _answer(self, text):
        verb, *rest = text.split()
        if verb.startswith("set_") and not self.stubborn:
            if verb.endswith("percentage"):
                self.values["get_default_active_thread_percentage"] = str(float(rest[0]))
                return f"{float(rest[0])}\n"
            if verb.endswith("limit"):
                mib = int(rest[1].rstrip("M"))
                shown = "" if not mib else f"{mib // 1024}G" if mib >= 1024 else f"{mib}M"
                self.values[f"get_default_device_pinned_mem_limit {rest[0]}"] = shown
            if verb.endswith("priority"):
                self.values["get_default_client_priority"] = rest[0]
            return ""
        return f"{self.values.get(text, '')}\n"


@pytest.fixture
def daemon(monkeypatch):
    made = Daemon()
    monkeypatch.setattr(mps_control.command, "run", made.run)
    return made


@pytest.fixture
def control():
    return MpsControl(PIPE)


def test_a_float_is_the_health_contract(daemon, control):
    assert control.responds()
    daemon.values["get_default_active_thread_percentage"] = 'Unknown command "x"'
    assert not control.responds()
    daemon.values["get_default_active_thread_percentage"] = "no float"
    assert not control.responds()


@pytest.mark.parametrize("on", ["stdout", "stderr"])
def test_without_a_daemon_it_says_so(daemon, control, on):
    words = "Cannot find MPS control daemon process\n"
    answer = Result((), 1, words if on == "stdout" else "", words if on == "stderr" else "")
    daemon.answers = {"get_server_list": answer, "get_client_list 7": answer}
    daemon.answers["get_default_active_thread_percentage"] = answer
    with pytest.raises(MpsNotRunning, match=PIPE):
        control.servers()
    with pytest.raises(MpsNotRunning):
        control.clients(7)
    assert not control.responds()


def test_a_program_that_is_missing_or_hangs_does_not_respond(daemon, control):
    daemon.answers["get_default_active_thread_percentage"] = CommandError(["x"], "no answer within 20 s")
    assert not control.responds()


def test_settings_are_told_and_read_back(daemon, control):
    control.set_thread_percentage(12.5)
    control.set_memory_limit(1, 6144)
    control.set_memory_limit(0, 900)
    control.set_priority(1)
    assert control.thread_percentage() == 12.5
    assert (control.memory_limit(0), control.memory_limit(1), control.priority()) == ("900M", "6G", "1")
    told = [text for text, _timeout in daemon.calls if text.startswith("set_")]
    assert told == [
        "set_default_active_thread_percentage 12.5",
        "set_default_device_pinned_mem_limit 1 6144M",
        "set_default_device_pinned_mem_limit 0 900M",
        "set_default_client_priority 1",
    ]


@pytest.mark.usefixtures("daemon")
def test_zero_lifts_a_limit(control):
    control.set_memory_limit(0, 1024)
    control.set_memory_limit(0, 0)
    assert control.memory_limit(0) == ""


def test_values_that_were_not_taken_are_found_by_reading_back(daemon, control):
    daemon.stubborn = True
    with pytest.raises(MpsError, match=r"thread percentage .* to 25: it is 100\.0"):
        control.set_thread_percentage(25)
    with pytest.raises(MpsError, match=r"limit device 1 .* to 4096 MiB: reading back gives no limit"):
        control.set_memory_limit(1, 4096)
    with pytest.raises(MpsError, match=r"client priority .* to 1: it is 0"):
        control.set_priority(1)


def test_a_refusal_with_status_0_is_an_error_in_the_daemons_words(daemon, control):
    words = "Insufficient privileges for UID 1000. Control deamon settings can only be modified by root"
    daemon.answers["set_default_client_priority 1"] = f"{words}\n"
    with pytest.raises(MpsError, match="Insufficient privileges for UID 1000"):
        control.set_priority(1)


def test_a_status_that_is_not_0_is_an_error_with_what_was_said(daemon, control):
    daemon.answers["get_server_list"] = Result((), 1, "", "something broke\n")
    with pytest.raises(MpsError, match="something broke"):
        control.servers()


def test_servers_and_their_clients(daemon, control):
    daemon.values["get_server_list"] = "910\n920"
    daemon.values["get_client_list 910"] = "1001\n1002"
    assert control.servers() == (910, 920)
    assert control.clients(910) == (1001, 1002)
    assert control.clients(920) == ()


def test_a_server_that_ended_meanwhile_has_no_clients(daemon, control):
    daemon.answers["get_client_list 910"] = "Server 910 not found\n"
    assert control.clients(910) == ()
    daemon.values["get_server_list"] = "910"
    with pytest.raises(MpsError, match="Server 910 not found"):
        control.clients(910)


def test_ending(daemon, control):
    control.stop_idle_server(910)
    control.quit(15)
    assert daemon.calls == [("shutdown_server 910", 20.0), ("quit -t 15", 35.0)]


@pytest.mark.parametrize(
    ("program", "installed", "option"),
    [
        (None, False, None),
        # Strings of Debian's programs 535.261.03 and 550.163.01, which differ in nothing that matters here, and of 555.58.02.
        (b"enabled\0disabled\0nvidia-cuda-mps-server\0", True, None),
        (
            b"disabled\0-multiuser-server\0nvidia\0Only root user may enable -multiuser-server!\0",
            True,
            "-multiuser-server",
        ),
        (b"\0-M\0--multiuser-server\0", True, "-M"),
    ],
)
def test_what_the_release_can(monkeypatch, tree, program, installed, option):
    if program is not None:
        tree.program(f"/usr/bin/{mps_control.PROGRAM}")
        tree.write(f"/usr/bin/{mps_control.PROGRAM}", program)
    monkeypatch.setattr(mps_control, "HostFiles", lambda: tree.files)
    monkeypatch.setattr(mps_control.command, "find", tree.files.find_program)
    assert (mps_control.installed(), mps_control.multi_user_option()) == (installed, option)


@pytest.mark.parametrize(
    "recording", [one for one in RECORDINGS if "files/programs.json" in one.files], ids=lambda one: one.name
)
def test_what_a_release_can_that_is_mounted_behind_a_script(tree, recording):
    """The strings of real programs: what is in /usr/bin starts the program that the driver was mounted with."""
    found = {
        path: one for path, one in recording.json("files/programs.json").items() if path.endswith(mps_control.PROGRAM)
    }
    for path, one in found.items():
        tree.program(path)
        if one["size"] > 4096:
            tree.write(path, "\0".join(["\x7fELF", *one["words"], ""]))
    program = mps_control.program_in(tree.files)
    assert program is not None
    assert mps_control.multi_user_option_of(program) == "-multiuser-server"
    assert "multiuser-start" in {
        one["name"] for one in recording.json_lines("mps/commands.jsonl") if one["status"] == 0
    }
