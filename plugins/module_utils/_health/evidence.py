# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the health checks look at, out of a facts document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .report import CommandAnswer, Diagnosis, Evidence, Sxid, Xid

#: The parts of the facts document that only the health checks need.
SUBSETS = ("errors", "health")


def evidence_of(
    facts: Mapping[str, Any],
    cuda: CommandAnswer | None = None,
    dcgm: Diagnosis | None = None,
    cuda_by_dcgm: Diagnosis | None = None,
    cuda_unproven: str = "",
    owed: bool = False,
) -> Evidence:
    """Return the evidence that is in a facts document with the parts of C(SUBSETS)."""
    health = facts["health"]
    smi, xids, sxids = health.get("nvidia_smi"), health.get("xids"), health.get("sxids")
    return Evidence(
        facts=facts,
        nvidia_smi=None if smi is None else CommandAnswer(smi.get("rc"), smi["text"]),
        xids=None if xids is None else [Xid(xid["number"], xid["pci_address"], xid["text"]) for xid in xids],
        sxids=None if sxids is None else [Sxid(sxid["number"], sxid["pci_address"], sxid["text"]) for sxid in sxids],
        cuda=cuda,
        cuda_by_dcgm=cuda_by_dcgm,
        cuda_unproven=cuda_unproven,
        dcgm=dcgm,
        owed=owed,
    )
