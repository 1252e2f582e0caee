# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings stage of C(site): what of the GPUs' power limits, clocks and ECC has to be set, from facts alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._facts_view import Facts
from .._plan import StagePlan, Step
from .._records import Settings
from .._steps import Kind
from .desired import PREFIX, RECORD, read
from .plan import EccPolicy, plan
from .state import GpuWithSettings

STAGE = "settings"


def stage(facts: Facts, desired: Mapping[str, Any]) -> StagePlan:
    """Plan the settings of a host.

    :param desired: the variables of all host roles; C(nvidia_settings_*) are read.
    :raises Refused: the desired state contradicts itself, or a board of this host cannot meet it.
    """
    wanted = read(desired)
    recorded = facts.recorded.settings
    former = recorded if isinstance(recorded, Settings) else None
    if not wanted.anything and former is None:
        unreadable = recorded is not None
        steps = (Step(Kind.REMOVE_FILE, RECORD, "it cannot be read"),) if unreadable else ()
        return StagePlan(STAGE, unreadable, steps)
    if not facts.gpus:
        return StagePlan(STAGE, needed=True, unknown=facts.nvml.unanswered)
    gpus = [GpuWithSettings(gpu) for gpu in facts.gpus if not gpu.lost]
    if any(gpu.facts.settings is None for gpu in gpus):
        unread = "the facts are of an earlier release, which did not read the settings of GPUs"
        return StagePlan(STAGE, needed=True, unread=unread)
    reset = str(desired.get(f"{PREFIX}reset") or "auto") == "auto"
    found = plan(gpus, wanted, former, EccPolicy(reset, bool(desired.get(f"{PREFIX}reboot"))))
    return StagePlan(STAGE, needed=found.changes, steps=found.steps, warnings=found.warnings)
