# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of a host whose driver does not answer yet: from the PCI bus and the table of boards."""

from __future__ import annotations

from .._adapters.host_files import HostFiles
from .._adapters.pci import read_pci_devices
from .._plan import StagePlan
from .apply_machine import Policy
from .request import Request
from .stage import stage


def plan_offline(files: HostFiles, request: Request, policy: Policy, reason: str) -> StagePlan:
    """Return what is known of the plan.

    :param reason: why the driver does not answer.
    """
    cards = read_pci_devices(files) or ()
    facts = {
        "nvml": {"available": False, "reason": reason},
        "gpus": [],
        "pci": [
            {
                "address": card.address,
                "device_id": card.device_id,
                "subsystem_id": card.subsystem_id,
                "kind": card.kind,
            }
            for card in cards
        ],
    }
    desired = {
        "nvidia_mig_layout": request.layout,
        "nvidia_mig_strategy": request.strategy,
        "nvidia_mig_disruption": policy.disruption,
    }
    return stage(facts, desired)
