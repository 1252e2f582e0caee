# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import time

from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts import gpus
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.nvml import begin_gpus

LIBRARY = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"


def test_the_gpus_are_read_while_the_caller_goes_on(tree, monkeypatch):
    tree.write(LIBRARY)

    def read_gpus(_source, archive, subsets):
        time.sleep(0.3)
        return {"gpus": [os.getpid(), archive, list(subsets)], "unknown": {"gpus[0].name": "why"}}

    monkeypatch.setattr(gpus, "read_gpus", read_gpus)
    source = tree.source()
    started = time.monotonic()
    answer = begin_gpus(source, "archive.zip", ("errors",))
    assert time.monotonic() - started < 0.25
    assert answer()["gpus"][1:] == ["archive.zip", ["errors"]]
    assert source.unknown == {"gpus[0].name": "why"}


def test_a_reader_that_fails_is_no_answer(tree, monkeypatch):
    tree.write(LIBRARY)
    monkeypatch.setattr(gpus, "read_gpus", lambda _source, _archive, _subsets: {}["something else"])
    source = tree.source()
    found = begin_gpus(source, None)()
    assert found["gpus"] is None and found["nvml"]["code"] == "no_answer"
    assert "KeyError: 'something else'" in source.unknown["gpus"]
