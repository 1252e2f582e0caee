# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import kernel
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError, Result


@pytest.fixture
def commands(monkeypatch):
    calls = []
    answers = {}

    def run(command, **_options):
        calls.append(" ".join(command))
        answer = answers.get(command[0], (0, "", ""))
        if isinstance(answer, Exception):
            raise answer
        return Result(tuple(command), *answer)

    monkeypatch.setattr(kernel, "run", run)
    monkeypatch.setattr(kernel, "find", lambda name: None if answers.get(name) == "missing" else f"/sbin/{name}")
    return calls, answers


def test_loading_and_unloading_name_one_module(commands):
    calls, _answers = commands
    kernel.load_module("nvidia")
    kernel.unload_module("nvidia")
    assert kernel.module_exists("ipmi_msghandler", "6.1")
    assert calls == ["modprobe nvidia", "rmmod nvidia", "modprobe --set-version 6.1 --dry-run ipmi_msghandler"]


def test_without_modprobe_nothing_exists_and_nobody_knows_what_is_blocked(commands):
    _calls, answers = commands
    answers["modprobe"] = "missing"
    assert not kernel.module_exists("x", "6.1")
    answers["modprobe"] = CommandError(["modprobe"], "the program is not installed")
    assert kernel.is_blocked("nouveau") is None


@pytest.mark.parametrize(
    ("text", "blocked"),
    [
        ("blacklist nouveau\n", True),
        ("install nouveau /bin/false\n", True),
        ("alias nouveau off\n", True),
        ("blacklist nouveau_x\noptions nouveau modeset=0\n", False),
        ("", False),
    ],
)
def test_what_blocks_a_module(commands, text, blocked):
    _calls, answers = commands
    answers["modprobe"] = (0, text, "")
    assert kernel.is_blocked("nouveau") is blocked


def test_the_initial_file_system_is_only_renewed_where_there_is_a_program_for_it(commands):
    calls, answers = commands
    assert kernel.renew_initramfs(["update-initramfs", "-u"])
    answers["dracut"] = "missing"
    assert not kernel.renew_initramfs(["dracut"])
    assert calls == ["update-initramfs -u"]
