# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts import health
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import AnswerFacts

XID = "NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus"
SXID = "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
PCI = [{"address": "0000:18:00.0", "kind": "gpu"}, {"address": "0000:05:00.0", "kind": "nvswitch"}]


def test_how_commands_end():
    assert health.answer_of(("/bin/sh", "-c", "echo out; echo err >&2; exit 3"), 10.0) == AnswerFacts(3, "out\n\nerr")
    assert health.answer_of(("/bin/sleep", "30"), 0.2) == AnswerFacts(None, "no answer within 0.2 s")
    assert health.answer_of(("/no/such/vectorAdd",), 1.0).rc is None


def test_the_kernels_log(tmp_path):
    log = tmp_path / "kmsg"
    log.write_text(f"4,1,2,-;{XID}\n4,1,3,-;{SXID}\n")
    assert health.kernel_log(str(log)) == log.read_text()
    assert health.kernel_log(str(tmp_path / "none")) is None


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
    assert health.kernel_log(str(log)) == "4,1,2,-;NVRM: Xid (PCI:0000:18:00): 48, x\n"
    assert answers == []


def test_the_part_of_the_document(tree, monkeypatch):
    monkeypatch.setattr(health, "kernel_log", lambda: f"4,1,2,-;{XID}\n4,1,3,-;{SXID}\n")
    monkeypatch.setattr(health, "answer_of", lambda arguments, _limit: AnswerFacts(0, " ".join(arguments)))
    source = tree.source()
    assert health.read_health(source, PCI) == {
        "nvidia_smi": None,
        "cuda_program": None,
        "xids": [{"number": 79, "pci_address": "0000:18:00", "text": "GPU has fallen off the bus"}],
        "sxids": [{"number": 20034, "pci_address": "0000:05:00.0", "text": "Fatal, Link 30 LTSSM Fault Up"}],
    }
    tree.program("/usr/bin/nvidia-smi")
    assert health.read_health(source, PCI)["nvidia_smi"] == {"rc": 0, "text": "nvidia-smi -L"}
    for path in ("/usr/bin/deviceQuery", f"{health.DEMO_SUITE}/vectorAdd", "/usr/local/bin/vectorAdd"):
        # What computes before what only looks, what somebody put into PATH before NVIDIA's package.
        tree.program(path)
        assert health.read_health(source, PCI)["cuda_program"] == path
    monkeypatch.setattr(health, "kernel_log", lambda: None)
    unread = health.read_health(source, PCI)
    assert "not_initialized" not in unread
    assert unread["xids"] is None and unread["sxids"] is None


def test_another_hosts_files_say_nothing_of_its_health(tree):
    source = tree.source(local=False)
    assert health.read_health(source, PCI) == {"nvidia_smi": None, "cuda_program": None, "xids": None, "sxids": None}
    assert source.unknown["health"] == "only the running host can tell"
