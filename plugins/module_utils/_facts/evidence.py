# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Collect what the health checks look at. Nothing here changes the host; deciding is left to the checks."""

from __future__ import annotations

from collections.abc import Sequence

from .._adapters.source import Source
from .._health.evidence import SUBSETS, evidence_of
from .._health.report import Evidence
from .document import read_document
from .health import answer_of


def collect(source: Source, archive: str | None, cuda_check: Sequence[str], cuda_limit: float) -> Evidence:
    """Return the evidence for all checks.

    :param archive: a zip file with pynvml that was sent for this call.
    :param cuda_check: argument list of the user's CUDA program; empty for none.
    :param cuda_limit: seconds that it may take.
    """
    facts = read_document(source, archive, subsets=SUBSETS)
    return evidence_of(facts, answer_of(cuda_check, cuda_limit) if cuda_check else None)
