# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which GPUs have to be reset together. Pure.

Source: manual of nvidia-smi, option -r (--gpu-reset): from Ampere on, GPUs with NVLink can be reset one by one; on Ampere systems with
NVSwitches that needs a running fabric manager, from Hopper on it does not. "If Fabric Manager is not running, or if any of the GPUs being
reset are based on an architecture preceding the NVIDIA Ampere architecture, any GPUs with NVLink connections to a GPU being reset must also
be reset in the same command."
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._boards.architectures import ARCHITECTURES, is_at_least

_SINCE_SINGLE, _SINCE_WITHOUT_MANAGER = "ampere", "hopper"
#: Boards of before Ampere that have no NVLink: their GPUs are reset one by one. Source: product brief of the T4, which has PCI Express only.
_WITHOUT_NVLINK = ("Tesla T4", "NVIDIA T4")


def reset_together(facts: Mapping[str, Any], wanted: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return the PCI addresses of the GPUs that are reset in one command, and why there are more than were wanted.

    :param wanted: PCI addresses of the GPUs that have to be reset.
    """
    gpus = {str(gpu.get("pci_address")): gpu for gpu in facts.get("gpus") or () if not gpu.get("lost")}
    reasons = [reason for address in wanted if (reason := _why_not_alone(facts, gpus.get(address, {}), len(gpus)))]
    if not reasons:
        return tuple(address for address in gpus if address in wanted), ""
    others = set(gpus) - set(wanted)
    return tuple(gpus), reasons[0] if others else ""


def _why_not_alone(facts: Mapping[str, Any], gpu: Mapping[str, Any], count: int) -> str:
    """Return why a GPU cannot be reset by itself; which GPUs its NVLinks lead to is not in the facts, so that means all of the host."""
    if count < 2:
        return ""
    architecture = str(gpu.get("architecture") or "")
    if architecture not in ARCHITECTURES:
        return f"whether a GPU of the architecture {architecture or 'unknown'} can be reset by itself is not known"
    if not is_at_least(architecture, _SINCE_SINGLE):
        if gpu.get("name") in _WITHOUT_NVLINK:
            return ""
        return f"GPUs of the architecture {architecture} are reset together with those that NVLink connects them to"
    fabric = facts.get("fabric") or {}
    running = (fabric.get("manager") or {}).get("active") is True
    if fabric.get("nvswitches") and not running and not is_at_least(architecture, _SINCE_WITHOUT_MANAGER):
        return (
            "the fabric manager does not run, and without it GPUs of this architecture on NVSwitches are reset together"
        )
    return ""
