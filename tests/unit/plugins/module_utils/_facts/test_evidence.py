# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts import evidence as collected
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.report import CommandAnswer, Xid


def test_everything_is_collected(tree, monkeypatch):
    asked = []

    def answer_of(arguments, limit):
        asked.append((tuple(arguments), limit))
        return CommandAnswer(0, "fine")

    def read_document(_source, _archive, subsets):
        smi = {"rc": 0, "text": "fine"}
        return {
            "subsets": subsets,
            "health": {"nvidia_smi": smi, "xids": [{"number": 79, "pci_address": "x", "text": "y"}]},
        }

    monkeypatch.setattr(collected, "answer_of", answer_of)
    monkeypatch.setattr(collected, "read_document", read_document)

    evidence = collected.collect(tree.source(), None, [], 120)
    assert evidence.facts["subsets"] == ("errors", "health")
    assert (evidence.nvidia_smi, evidence.xids) == (CommandAnswer(0, "fine"), [Xid(79, "x", "y")])
    assert evidence.cuda is None and asked == []

    assert collected.collect(tree.source(), None, ["/opt/vectorAdd"], 5).cuda == CommandAnswer(0, "fine")
    assert asked == [(("/opt/vectorAdd",), 5)]
