# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether CUDA works, by a program of the user's, or by what the host has: a program of the CUDA samples, or DCGM. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._users import users_of
from .dcgm import Unreadable, judge, parse
from .report import FAILED, CommandAnswer, Evidence, Outcome, failed, passed, skipped, unproven

#: The value of nvidia_health_cuda_check that takes what is there.
AUTO = "auto"
#: Programs of the CUDA samples that end with 0 where CUDA works; the first one also computes. NVIDIA's packages cuda-demo-suite have them for x86_64
#: (docs.nvidia.com/cuda/demo-suite [doc]), the others are where people build or put them.
PROGRAMS = ("vectorAdd", "deviceQuery")
DEMO_SUITE = "/usr/local/cuda/extras/demo_suite"

_NEXT = "Give a program (nvidia_health_cuda_check), or set nvidia_dcgm_state: present"
_BY_HAND = "Run it by hand on the host; 802 means that the fabric is not ready"


def is_auto(command: Sequence[str]) -> bool:
    """Return whether C(nvidia_health_cuda_check) asks for what the host has."""
    return list(command) == [AUTO]


def obstacle(facts: Mapping[str, Any]) -> str:
    """Return why a CUDA program that knows nothing of the host would fail on it or disturb somebody, though CUDA works; empty for nothing.

    Samples take the first GPU as a whole: they find none that is exclusive or MPS's, and no device where MIG is on without an instance.
    """
    gpus = facts.get("gpus") or ()
    if not gpus:
        return "NVML shows no GPU"
    if facts.get("mps"):
        return "MPS serves the GPUs"
    for gpu in gpus:
        if gpu.get("compute_mode") != "default":
            return f"GPU {gpu.get('index')} is in compute mode {gpu.get('compute_mode')}"
        if (gpu.get("mig") or {}).get("current") and not gpu.get("gpu_instances"):
            return f"GPU {gpu.get('index')} has MIG on and no instance"
        if users_of(gpu).everybody:
            return f"GPU {gpu.get('index')} is in use"
    return ""


def reason_unproven(facts: Mapping[str, Any]) -> str:
    """Return why nothing shows that CUDA works, by facts alone."""
    program = (facts.get("health") or {}).get("cuda_program")
    there = program or (facts.get("dcgm") or {}).get("dcgmi")
    if there:
        why = obstacle(facts) if program else ""
        return f"{there} was not run" + (f", because {why}" if why else " for this check")
    return f"the host has neither {' nor '.join(PROGRAMS)} of the CUDA samples (in PATH or {DEMO_SUITE}) nor dcgmi"


def cuda(evidence: Evidence) -> Outcome:
    """A CUDA program ends with 0, or DCGM finds CUDA's software right. nvidia-smi works where CUDA does not (fabric, MPS)."""
    if evidence.cuda is not None:
        return _by_program(evidence.cuda)
    asked = evidence.cuda_by_dcgm
    if asked is not None:
        try:
            parse(asked.answer.text)
        except Unreadable as error:
            # Somebody installed DCGM and does not run its host engine: no fault of CUDA's.
            return unproven(f"CUDA is not proven: dcgmi could not say: {error}", _NEXT)
        found = judge(asked, evidence.facts)
        if found.status == FAILED and asked is evidence.dcgm:
            # Said once, by the check that was asked for it: what it found need not be CUDA's.
            return unproven("CUDA is not proven: dcgmi found a failure", "See the check dcgm")
        return Outcome(found.status, f"by dcgmi: {found.evidence}", found.next_step)
    if evidence.cuda_unproven:
        return unproven(f"CUDA is not proven: {evidence.cuda_unproven}", _NEXT)
    return skipped("CUDA is not proven: no command was given (nvidia_health_cuda_check)")


def _by_program(answer: CommandAnswer) -> Outcome:
    last = next((line.strip() for line in reversed(answer.text.splitlines()) if line.strip()), "no output")
    if answer.rc == 0:
        return passed(last)
    how = "did not end" if answer.rc is None else f"ended with {answer.rc}"
    return failed(f"the CUDA command {how}: {last}", _BY_HAND)
