# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import signal
import time

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts import nvml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.nvml import Isolated, begin_isolated


def test_the_answer_comes_back():
    assert begin_isolated(lambda: {"gpus": [1, None, "x" * 200_000]}, 10.0)()["gpus"][2] == "x" * 200_000


def test_it_runs_elsewhere():
    assert begin_isolated(os.getpid, 10.0)() != os.getpid()


def test_a_hang_is_cut_off_and_leaves_no_process(tmp_path):
    def hang():
        (tmp_path / "pid").write_text(str(os.getpid()))
        time.sleep(60)

    started = time.monotonic()
    with pytest.raises(Isolated, match=r"no answer within 0.5 s"):
        begin_isolated(hang, 0.5)()
    assert time.monotonic() - started < 10
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_library_that_kills_its_caller():
    with pytest.raises(Isolated, match="killed its caller \\(SIGKILL\\)"):
        begin_isolated(lambda: os.kill(os.getpid(), signal.SIGKILL), 10.0)()


def test_a_library_that_ends_its_caller():
    with pytest.raises(Isolated, match="ended its caller"):
        begin_isolated(lambda: os._exit(0), 10.0)()


def test_an_exception_is_told():
    def fail():
        raise KeyError("gpu")

    with pytest.raises(Isolated, match=r"KeyError: 'gpu' \(test_isolated.py:\d+\)"):
        begin_isolated(fail, 10.0)()


class Ended(BaseException):
    """What os._exit does, where the test has to go on."""


@pytest.mark.parametrize(
    ("function", "said", "code"),
    [
        (lambda: [1, None], {"value": [1, None]}, 0),
        (lambda: {}["gpu"], {"error": "KeyError: 'gpu'"}, 0),
        (lambda: object(), None, 1),
    ],
)
def test_what_the_child_writes(monkeypatch, function, said, code):
    def end(status):
        raise Ended(status)

    monkeypatch.setattr(os, "_exit", end)
    reader, writer = os.pipe()
    with pytest.raises(Ended) as ended:
        nvml._answer(function, writer)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    assert ended.value.args == (code,)
    if said is None:
        assert text == ""
    elif "error" in said:
        assert json.loads(text)["error"].startswith(said["error"])
    else:
        assert json.loads(text) == said


def test_a_child_that_does_not_die_is_not_waited_for():
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    assert nvml._reap(child, 0.05) is None
    os.kill(child, signal.SIGKILL)
    assert nvml._reap(child, 5.0) is not None


def test_the_time_runs_from_the_start():
    answer = begin_isolated(lambda: time.sleep(60), 0.2)
    time.sleep(0.3)
    started = time.monotonic()
    with pytest.raises(Isolated, match=r"no answer within 0.2 s"):
        answer()
    assert time.monotonic() - started < 5
