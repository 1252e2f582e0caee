# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The checks of whether a GPU host works, in the order in which a person would look for a fault, and what C(health) is asked and answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .._facts_view import Facts
from .._options import arguments
from . import hardware, software
from .nvlink import fabric
from .report import Evidence, HealthCheck, HealthReport, evaluate, evidence_of
from .software import accepts, cuda, dcgm, is_auto, reason_unproven
from .xid import xid

CHECKS = (
    HealthCheck("pci", hardware.pci),
    HealthCheck("driver", hardware.driver, needs=("pci",)),
    HealthCheck("next_kernel", hardware.next_kernel, needs=("driver",)),
    HealthCheck("nvidia_smi", hardware.nvidia_smi, needs=("driver",)),
    HealthCheck("nvml", hardware.nvml, needs=("driver",)),
    HealthCheck("recovery", hardware.recovery, needs=("nvml",)),
    HealthCheck("xid", xid),
    HealthCheck("fabric", fabric, needs=("driver",)),
    HealthCheck("persistence", hardware.persistence, needs=("nvml",)),
    HealthCheck("memory", hardware.memory, needs=("nvml",)),
    HealthCheck("runtime", software.runtime),
    HealthCheck("mps", software.mps, needs=("nvml",)),
    HealthCheck("cuda", cuda, needs=("nvml", "fabric")),
    HealthCheck("dcgm", dcgm, needs=("nvml", "fabric")),
)

NAMES = tuple(check.name for check in CHECKS)

ARGUMENTS = arguments(
    "health",
    facts={"type": "dict", "default": {}},
    checks={"type": "list", "elements": "str", "choices": list(NAMES)},
    dcgm_level={"type": "int", "choices": [0, 1, 2, 3, 4], "default": 0},
    fabric_timeout={"type": "int", "default": 0},
)


def judged(
    facts: Facts, checks: Sequence[str] = (), cuda_check: Sequence[str] = (), dcgm_level: int = 0
) -> HealthReport:
    """Return what facts say about whether a host works. Nothing is run, so that of CUDA they can only say why it is not proven. C(dcgm_level): its
    C(nvidia_health_dcgm_level): one that is not asked for any more leaves nothing owed.
    """
    unproven = reason_unproven(facts) if is_auto(cuda_check) else ""
    owed = bool(dcgm_level and facts.recorded.acceptance_owed)
    return evaluate(CHECKS, replace(evidence_of(facts), cuda_unproven=unproven, owed=owed), checks)


def answer(evidence: Evidence, parameters: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Evaluate the checks and return the module's result. C(check_mode): in check mode the stages before this one were not applied, so a host may
    well not be healthy yet.
    """
    report = evaluate(CHECKS, evidence, parameters["checks"])
    failure = report.first_failure
    result = {
        "changed": False,
        "healthy": report.healthy,
        "accepted": report.healthy and accepts(evidence.dcgm, evidence.facts),
        "checks": [check.as_dict() for check in report.checks],
        "failed_check": failure[0] if failure else None,
        "msg": report.message,
    }
    if failure and parameters["fail"] and not check_mode:
        result["failed"] = True
        result["msg"] = f"Failed to prove that {evidence.facts.host.name or 'the host'} is healthy: {report.message}"
    return result
