# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import threading

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError, Result
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.host_reader import HostReader, begin


def test_programs_that_are_begun_run_side_by_side_and_once():
    both, calls = threading.Barrier(2, timeout=5), []

    def run(arguments):
        calls.append(arguments)
        both.wait()
        return Result(tuple(arguments), 0, f"version of {arguments[0]}", "")

    source = HostReader(HostFiles(), run=run)
    source.begin(("containerd", "--version"))
    source.begin(("crio", "--version"))
    assert source.output("a", ("containerd", "--version")) == "version of containerd"
    assert source.output("b", ("crio", "--version")) == "version of crio"
    assert len(calls) == 2 and not source.unknown


def test_a_begun_program_that_fails_is_unknown():
    def run(arguments):
        raise CommandError(arguments, "no answer within 15 s")

    source = HostReader(HostFiles(), run=run)
    source.begin(("containerd", "--version"))
    assert source.output("runtimes.containerd.version", ("containerd", "--version")) is None
    assert "no answer within 15 s" in source.unknown["runtimes.containerd.version"]


def test_programs_of_this_host_are_not_begun_for_another(tmp_path):
    HostReader(HostFiles(str(tmp_path)), run=lambda _arguments: pytest.fail("not of that host")).begin(("crio",))


def test_what_a_function_raises_is_raised_where_it_is_waited_for():
    wait = begin(lambda: {}["missing"])
    with pytest.raises(KeyError):
        wait()
