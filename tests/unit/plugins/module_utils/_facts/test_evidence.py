# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts import evidence as collected
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import AnswerFacts, Sxid, Xid

PLACE = {"profile": "1g.10gb", "start": 0, "size": 1}


def test_everything_is_collected(tree, monkeypatch):
    asked = []

    def answer_of(arguments, limit):
        asked.append((tuple(arguments), limit))
        return AnswerFacts(0, "fine")

    def read_document(_source, _archive, subsets):
        assert subsets == ("errors", "health")
        smi = {"rc": 0, "text": "fine"}
        return {
            "health": {
                "nvidia_smi": smi,
                "xids": [{"number": 79, "pci_address": "x", "text": "y"}],
                "sxids": [{"number": 20034, "pci_address": "s", "text": "t"}],
            },
        }

    monkeypatch.setattr(collected, "answer_of", answer_of)
    monkeypatch.setattr(collected, "read_document", read_document)

    evidence = collected.collect(tree.source(), None, [], 120)
    assert (evidence.nvidia_smi, evidence.xids) == (AnswerFacts(0, "fine"), (Xid(79, "x", "y"),))
    assert evidence.sxids == (Sxid(20034, "s", "t"),)
    assert evidence.cuda is None and asked == []

    assert collected.collect(tree.source(), None, ["/opt/vectorAdd"], 5).cuda == AnswerFacts(0, "fine")
    assert asked == [(("/opt/vectorAdd",), 5)]


def test_gpus_that_are_being_registered_with_their_fabric_are_waited_for(tree, monkeypatch):
    states, slept = ["in_progress", "in_progress", "completed"], []
    monkeypatch.setattr(
        collected,
        "read_document",
        lambda *_given, **_more: {"health": {}, "fabric": {"state": states[min(len(slept), 2)]}},
    )
    monkeypatch.setattr(collected.time, "sleep", slept.append)
    state = lambda limit: collected.collect(tree.source(), None, [], 1, fabric_limit=limit).facts.fabric.state  # noqa: E731
    assert state(0) == "in_progress" and slept == []
    assert state(60) == "completed" and slept == [collected._FABRIC_PAUSE] * 2


def test_the_diagnostic_does_not_load_gpus_that_are_in_use(tree, monkeypatch):
    asked, facts = [], {"health": {}, "gpus": [{"index": 0, "processes": []}, {"index": 1, "processes": []}]}
    monkeypatch.setattr(
        collected, "answer_of", lambda arguments, limit: asked.append((arguments[3], limit)) or AnswerFacts(0, "")
    )
    monkeypatch.setattr(collected, "read_document", lambda *_given, **_more: facts)
    monkeypatch.setattr(collected.command, "find", lambda name: f"/usr/bin/{name}")

    assert collected.collect(tree.source(), None, [], 120).dcgm is None
    assert collected.collect(tree.source(), None, [], 120, 3, 60).dcgm.why == ""
    facts["gpus"][1]["gpu_instances"] = [
        {
            **PLACE,
            "id": 1,
            "processes": [],
            "compute_instances": [{"id": 0, "profile": "1g.10gb", "processes": [{"pid": 1}]}],
        }
    ]
    lower = collected.collect(tree.source(), None, [], 120, 3, 60).dcgm
    assert (lower.level, lower.why) == (1, "level 3 was not run, because GPU 1 is in use")
    assert collected.collect(tree.source(), None, [], 120, 1, 60).dcgm.why == ""
    facts["gpus"] = [{"index": 0, "processes": None}]
    assert "GPU 0 is in use" in collected.collect(tree.source(), None, [], 120, 2, 60).dcgm.why
    assert asked == [("3", 60), ("1", 60), ("1", 60), ("1", 60)]

    monkeypatch.setattr(collected.command, "find", lambda _name: None)
    assert not collected.collect(tree.source(), None, [], 120, 2, 60).dcgm.installed and len(asked) == 4


def test_auto_takes_what_the_host_has(tree, monkeypatch):
    """A sample where it can run, then dcgmi, then nothing; a diagnostic that is asked for anyway is run once."""
    asked, facts = [], {"health": {"cuda_program": "/opt/vectorAdd"}, "dcgm": {"dcgmi": "/usr/bin/dcgmi"}}
    facts["gpus"] = [{"index": 0, "compute_mode": "default", "processes": []}]
    monkeypatch.setattr(
        collected, "answer_of", lambda arguments, limit: asked.append((*arguments, limit)) or AnswerFacts(0, "fine")
    )
    monkeypatch.setattr(collected, "read_document", lambda *_given, **_more: facts)
    monkeypatch.setattr(collected.command, "find", lambda name: f"/usr/bin/{name}")
    diagnosed = ("dcgmi", "diag", "-r", "1", "-j", 120)

    def collect(*dcgm):
        asked.clear()
        return collected.collect(tree.source(), None, ["auto"], 120, *dcgm)

    assert collect().cuda == AnswerFacts(0, "fine") and asked == [("/opt/vectorAdd", 120)]
    facts["mps"] = [{"pid": 1}]
    found = collect()
    assert found.cuda is None and found.cuda_by_dcgm.level == 1 and asked == [diagnosed]
    found = collect(2, 60)
    assert found.cuda_by_dcgm is found.dcgm and len(asked) == 1 and found.dcgm.level == 2
    facts["dcgm"] = {"dcgmi": None}
    assert "because MPS serves the GPUs" in collect().cuda_unproven and asked == []
    facts["health"] = {"cuda_program": None}
    assert "nor dcgmi" in collect().cuda_unproven and asked == []


def test_a_host_engine_on_a_socket_is_asked_there(tree, monkeypatch, tmp_path):
    asked, facts = [], {"health": {}, "dcgm": {"dcgmi": "/usr/bin/dcgmi"}, "gpus": []}
    monkeypatch.setattr(collected, "answer_of", lambda arguments, _limit: asked.append(arguments) or AnswerFacts(0, ""))
    monkeypatch.setattr(collected, "read_document", lambda *_given, **_more: facts)
    monkeypatch.setattr(collected.command, "find", lambda program: f"/usr/bin/{program}")
    monkeypatch.setattr(collected, "ENGINE_SOCKET", str(tmp_path / "nv-hostengine"))
    collected.collect(tree.source(), None, [], 5, 1)
    (tmp_path / "nv-hostengine").touch()
    collected.collect(tree.source(), None, [], 5, 1)
    diagnosed = ("dcgmi", "diag", "-r", "1", "-j")
    assert asked == [diagnosed, (*diagnosed, "--host", f"unix://{tmp_path}/nv-hostengine")]


def test_no_program_runs_twice_where_pynvml_has_to_be_sent_first(tree, monkeypatch):
    asked = []
    facts = {"health": {}, "nvml": {"code": "pynvml_missing"}, "dcgm": {"dcgmi": "/usr/bin/dcgmi"}, "gpus": None}
    monkeypatch.setattr(collected, "answer_of", lambda arguments, _limit: asked.append(arguments) or AnswerFacts(0, ""))
    monkeypatch.setattr(collected.command, "find", lambda program: f"/usr/bin/{program}")
    monkeypatch.setattr(collected, "pynvml_is_wanted", lambda _files, code: code == "pynvml_missing")
    monkeypatch.setattr(collected, "read_document", lambda *_given, **_more: facts)
    collected.collect(tree.source(), None, ["/opt/vectorAdd"], 5, dcgm_level=2)
    assert asked == []
    collected.collect(tree.source(), "/tmp/pynvml.zip", ["/opt/vectorAdd"], 5, dcgm_level=2)
    assert len(asked) == 2
