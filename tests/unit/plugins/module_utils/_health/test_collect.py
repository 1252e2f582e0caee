# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

from ansible_collections.gpufleet.nvidia.plugins.module_utils._health import collect
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.report import CommandAnswer, Xid


def test_how_commands_end():
    assert collect.answer_of(("/bin/sh", "-c", "echo out; echo err >&2; exit 3"), 10.0) == CommandAnswer(
        3, "out\n\nerr"
    )
    assert collect.answer_of(("/bin/sleep", "30"), 0.2) == CommandAnswer(None, "no answer within 0.2 s")
    assert collect.answer_of(("/no/such/vectorAdd",), 1.0).rc is None


def test_the_kernels_log(tmp_path):
    log = tmp_path / "kmsg"
    log.write_text("4,1,2,-;NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus\n")
    assert collect.kernel_log_xids(str(log)) == [Xid(79, "0000:18:00", "GPU has fallen off the bus")]
    assert collect.kernel_log_xids(str(tmp_path / "none")) is None


def test_records_that_are_overwritten_while_reading(tmp_path, monkeypatch):
    log = tmp_path / "kmsg"
    log.write_text("")
    answers = [b"4,1,2,-;NVRM: Xid (PCI:0000:18:00): 48, x\n", BrokenPipeError(), BlockingIOError()]

    def read(_descriptor, _size):
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    monkeypatch.setattr(os, "read", read)
    assert [xid.number for xid in collect.kernel_log_xids(str(log))] == [48]
    assert answers == []


def test_everything_is_collected(tree, monkeypatch):
    asked = []

    def answer_of(arguments, limit):
        asked.append((tuple(arguments), limit))
        return CommandAnswer(0, "fine")

    monkeypatch.setattr(collect, "answer_of", answer_of)
    monkeypatch.setattr(collect, "kernel_log_xids", list)
    monkeypatch.setattr(collect, "read_document", lambda _source, _archive, subsets: {"subsets": subsets})

    evidence = collect.collect(tree.source(), None, [], 120)
    assert (evidence.facts, evidence.nvidia_smi, evidence.cuda, asked) == ({"subsets": ("errors",)}, None, None, [])

    tree.program("/usr/bin/nvidia-smi")
    evidence = collect.collect(tree.source(), None, ["/opt/vectorAdd"], 5)
    assert evidence.nvidia_smi == evidence.cuda == CommandAnswer(0, "fine")
    assert asked == [(("nvidia-smi", "-L"), 60.0), (("/opt/vectorAdd",), 5)]
