# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""No answer of a host ends the run of the others."""

from __future__ import annotations

import re

import pytest

from .hostile_results import WRITTEN, outcome


@pytest.mark.slow
def test_whatever_a_host_answers_the_others_go_on(tmp_path):
    status, went_on, text = outcome(tmp_path)
    assert status == 2, text[-3000:]
    stopped = {name for name in went_on if name.startswith("refused")} | {
        name for name, (_written, goes_on) in WRITTEN.items() if not goes_on
    }
    assert {name for name, on in went_on.items() if not on} == stopped
    said = " ".join(text.split())
    assert "refused-0: changed of a module's answer is 5, and must be bool" in said
    assert "deep: a module's answer is nested too deeply. The host may be compromised" in said
    for host in ("long", "long-junk"):
        assert (
            f"{host}: it wrote more than 8388608 bytes as the answer of one module. The host may be compromised" in said
        )
    assert "junk" in said and "Permission denied" in said, "what a host writes beside its answer is shown"
    assert re.findall(r"[^\n\t\x20-\x7e\xa0-\u2029\u2030-\uffff]", text) == []
