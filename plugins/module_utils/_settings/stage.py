# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings stage of C(site): what of the GPUs' power limits, clocks and ECC has to be set, from facts alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._plan import StagePlan, Step
from .._steps import Kind
from .desired import PREFIX, RECORD, read, recorded
from .plan import EccPolicy, plan
from .state import observed

STAGE = "settings"


def stage(facts: Mapping[str, Any], desired: Mapping[str, Any]) -> StagePlan:
    """Plan the settings of a host.

    :param facts: the facts document of M(gpufleet.nvidia.gpu_info).
    :param desired: the variables of all host roles; C(nvidia_settings_*) are read.
    :raises Refused: the desired state contradicts itself, or a board of this host cannot meet it.
    """
    wanted = read(desired)
    record = (facts.get("recorded") or {}).get("settings")
    former = recorded(record)
    if not wanted.anything and former is None:
        unreadable = () if record is None else (Step(Kind.REMOVE_FILE, RECORD, "it cannot be read"),)
        return StagePlan(STAGE, bool(unreadable), unreadable)
    gpus = facts.get("gpus")
    if not gpus:
        reason = (facts.get("nvml") or {}).get("reason") or "no GPU is visible"
        return StagePlan(STAGE, needed=True, unknown=f"the GPUs cannot be queried yet: {reason}")
    if any("settings" not in gpu for gpu in gpus if not gpu.get("lost")):
        unread = "the facts are of an earlier release, which did not read the settings of GPUs"
        return StagePlan(STAGE, needed=True, unread=unread)
    policy = ecc_policy_of(desired)
    found = plan([observed(gpu) for gpu in gpus if not gpu.get("lost")], wanted, former, policy)
    return StagePlan(STAGE, needed=found.changes, steps=found.steps, warnings=found.warnings)


def ecc_policy_of(desired: Mapping[str, Any]) -> EccPolicy:
    """Return how ECC may be brought into effect."""
    return EccPolicy(str(desired.get(f"{PREFIX}reset") or "auto") == "auto", bool(desired.get(f"{PREFIX}reboot")))
