# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.report import evidence_of


def test_what_could_not_be_read_stays_unknown():
    evidence = evidence_of({"health": {"nvidia_smi": None, "xids": None}})
    assert evidence.nvidia_smi is None and evidence.xids is None
