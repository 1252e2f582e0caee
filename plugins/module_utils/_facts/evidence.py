# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Collect what the health checks look at. Nothing here changes the host; deciding is left to the checks."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace

from .._adapters import command
from .._adapters.host_reader import HostReader
from .._facts_view import AnswerFacts, Facts, view_of
from .._health.nvlink import is_forming
from .._health.report import SUBSETS, DcgmRun, Evidence, evidence_of
from .._health.software import is_auto, obstacle, reason_unproven
from .._users import users_of
from .document import pynvml_is_wanted, read_document
from .health import answer_of

_FABRIC_PAUSE = 3.0
#: Where the host engine listens that does not listen on a port; the role's README has its unit.
ENGINE_SOCKET = "/run/nvidia-dcgm/nv-hostengine"


def collect(
    source: HostReader,
    archive: str | None,
    cuda_check: Sequence[str],
    cuda_limit: float,
    dcgm_level: int = 0,
    dcgm_limit: float = 7200,
    fabric_limit: float = 0,
) -> Evidence:
    """Return the evidence for all checks.

    :param cuda_check: argument list of the user's CUDA program, C(auto) alone for what the host has; empty for none.
    :param cuda_limit: seconds that it may take.
    :param dcgm_level: of C(dcgmi diag); 0 for none.
    :param dcgm_limit: seconds that it may take.
    :param fabric_limit: seconds for which GPUs that are being registered with their fabric are waited for.
    """
    until = time.monotonic() + fabric_limit
    facts = view_of(read_document(source, archive, subsets=SUBSETS))
    if not archive and pynvml_is_wanted(source.files, facts.nvml.code):
        # The host is asked again with pynvml: programs that take minutes run then alone.
        return evidence_of(facts)
    while is_forming(facts) and time.monotonic() < until:
        time.sleep(_FABRIC_PAUSE)
        facts = view_of(read_document(source, archive, subsets=SUBSETS))
    diagnosis = _diagnosis(facts, dcgm_level, dcgm_limit) if dcgm_level else None
    found = replace(evidence_of(facts), dcgm=diagnosis)
    if not is_auto(cuda_check):
        return replace(found, cuda=answer_of(cuda_check, cuda_limit)) if cuda_check else found
    program = facts.health and facts.health.cuda_program
    if program and not obstacle(facts):
        return replace(found, cuda=answer_of((program,), cuda_limit))
    if facts.dcgm and facts.dcgm.dcgmi:
        # Level 1 looks at the software alone, and runs beside other programs.
        return replace(found, cuda_by_dcgm=diagnosis or _diagnosis(facts, 1, cuda_limit))
    return replace(found, cuda_unproven=reason_unproven(facts))


def _diagnosis(facts: Facts, level: int, limit: float) -> DcgmRun:
    """Run the diagnostic; from level 2 on it loads the GPUs, which somebody else's program would suffer from."""
    if command.find("dcgmi") is None:
        return DcgmRun(level, AnswerFacts(None, ""), installed=False)
    used = [str(gpu.index) for gpu in facts.gpus or () if users_of(gpu).everybody]
    why = f"level {level} was not run, because GPU {', '.join(used)} is in use" if used and level > 1 else ""
    level = 1 if why else level
    where = ("--host", f"unix://{ENGINE_SOCKET}") if os.path.exists(ENGINE_SOCKET) else ()
    return DcgmRun(level, answer_of(("dcgmi", "diag", "-r", str(level), "-j", *where), limit), why=why)
