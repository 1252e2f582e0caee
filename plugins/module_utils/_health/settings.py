# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the GPUs have the power limit, the clocks and the ECC that were last applied. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._settings.desired import RECORD, recorded
from .._settings.plan import ObservedGpu, differences
from .report import Evidence, Expectation, Outcome, failed, passed, skipped

_ROLE = "Run gpufleet.nvidia.site (role nvidia_settings); after a reboot see journalctl -u gpufleet-settings"


def settings(evidence: Evidence, _expectation: Expectation) -> Outcome:
    """Every GPU has the power limit, the clocks and the ECC that are recorded; all but ECC do not survive a reboot."""
    if (evidence.facts.get("recorded") or {}).get("settings") is None:
        return skipped("no settings are recorded")
    left = setting_differences(evidence.facts)
    if left is None:
        return failed(f"{RECORD} cannot be used", _ROLE)
    return failed("; ".join(left), _ROLE) if left else passed("power limits, clocks and ECC are as recorded")


def setting_differences(facts: Mapping[str, Any]) -> list[str] | None:
    """Return how the GPUs differ from what is recorded; None where the record cannot be used."""
    wanted = recorded((facts.get("recorded") or {}).get("settings"))
    if wanted is None:
        return None
    # Facts of an earlier release have no settings.
    read = [gpu for gpu in facts.get("gpus") or () if not gpu.get("lost") and "settings" in gpu]
    return differences([ObservedGpu(gpu) for gpu in read], wanted)
