# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What C(health) is asked and what it answers, on the host and on the controller alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._runtimes import RUNTIMES
from .checks import CHECKS, NAMES
from .cuda import AUTO
from .dcgm import accepts
from .report import Evidence, Expectation, evaluate

EXPECT: dict[str, Any] = {
    "gpus": {"type": "int"},
    "driver_version": {"type": "str"},
    "driver_branch": {"type": "str"},
    "driver_flavour": {"type": "str", "choices": ["open", "proprietary"]},
    "persistence": {"type": "bool"},
    "toolkit_version": {"type": "str"},
    "runtime": {"type": "str", "choices": list(RUNTIMES)},
    "cdi": {"type": "bool"},
    "mig": {"type": "bool"},
    "compute_mode": {"type": "str", "choices": ["default", "exclusive_process", "prohibited"]},
    "accepted": {"type": "bool"},
    "imex": {"type": "str", "choices": ["host", "masked"]},
    "imex_nodes": {"type": "list", "elements": "str"},
}

ARGUMENTS: dict[str, Any] = {
    "expect": {"type": "dict", "default": {}, "options": EXPECT},
    "as_described": {"type": "bool", "default": False},
    "facts": {"type": "dict", "default": {}},
    "checks": {"type": "list", "elements": "str", "choices": list(NAMES)},
    "cuda_check": {"type": "list", "elements": "str", "default": [AUTO]},
    "cuda_timeout": {"type": "int", "default": 120},
    "dcgm_level": {"type": "int", "choices": [0, 1, 2, 3, 4], "default": 0},
    "dcgm_timeout": {"type": "int", "default": 7200},
    "fabric_timeout": {"type": "int", "default": 0},
    "fail": {"type": "bool", "default": True},
}


def answer(evidence: Evidence, parameters: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Evaluate the checks and return the module's result.

    :param parameters: the options of C(health), validated.
    :param check_mode: in check mode the stages before this one were not applied, so a host may well not be healthy yet.
    """
    report = evaluate(CHECKS, evidence, Expectation(**parameters["expect"]), parameters["checks"])
    failure = report.first_failure
    result = {
        "changed": False,
        "healthy": report.healthy,
        "accepted": report.healthy and accepts(evidence.dcgm, evidence.facts),
        "checks": report.as_list(),
        "failed_check": failure[0] if failure else None,
        "msg": report.message,
    }
    if failure and parameters["fail"] and not check_mode:
        result["failed"] = True
        result["msg"] = (
            f"Failed to prove that {(evidence.facts.get('host') or {}).get('name') or 'the host'} is healthy: {report.message}"
        )
    return result
