# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""No answer of a host ends the run of the others."""

from __future__ import annotations

from .hostile_results import outcome


def test_whatever_a_host_answers_the_others_go_on(tmp_path):
    status, went_on, text = outcome(tmp_path)
    assert status == 2, text[-3000:]
    assert {name for name, on in went_on.items() if not on} == {name for name in went_on if name.startswith("refused")}
    assert "refused-0: changed of a module's answer is 5, and must be bool" in " ".join(text.split())
