# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the driver stage would do on a host, from facts alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._adapters.package_manager import Package
from .._facts_view import Facts
from .._migration import DRIVER, LEFT, is_left
from .._packages.package_set import key_file_refusals
from .._plan import Refused, StagePlan, Step
from .desired import PREFIX, from_variables
from .dkms import with_modules
from .plan import Repositories, plan_absent, plan_present, plan_previous, with_installed_version
from .refusals import board_warnings, refusals, rollout_refusals
from .reload import disruption_refusals, gpu_users, impact
from .running import plan_running, seen_in_facts
from .state import Remains, from_facts

#: The driver is somebody else's, such as an image's: the later stages take it as it is.
UNMANAGED = "unmanaged"
_UNASKED = "whether the repositories still have these packages is known once they are queried"


def stage(facts: Facts, desired: Mapping[str, Any]) -> StagePlan:
    """Return what the driver stage would do. C(desired): the variables of the role, under their full names."""
    left = is_left(facts, desired, DRIVER)
    if desired.get("nvidia_driver_state") == UNMANAGED:
        return StagePlan("driver", False, warnings=_unmanaged_warnings(desired))
    running: tuple[Step, ...] = ()
    try:
        wanted = from_variables(desired)
        host = from_facts(facts)
        noticed = impact(facts, host, wanted)
        if wanted.state == "absent":
            planned, version, unknown = plan_absent(host, Remains(), noticed), "", None
        elif wanted.state == "previous":
            if not facts.recorded.says("driver_previous"):
                why = "the facts are of an earlier release, which did not read which driver there was before"
                return StagePlan("driver", True, unread=why)
            record = facts.recorded.driver_previous
            # As if the repositories had them all: the module asks.
            offered = tuple(Package(name, version) for name, version in (record.packages if record else {}).items())
            planned = plan_previous(host, wanted, record, Repositories(offered=offered))
            version = planned.version
            unknown = _UNASKED if planned.transaction else None
        else:
            if not host.gpus and facts.pci is not None:
                note = "there is no NVIDIA GPU on the PCI bus, so no driver is installed"
                return StagePlan("driver", False, warnings=(note,))
            refused = [*refusals(host, wanted), *rollout_refusals(host, wanted, facts.recorded.rolled_out)]
            if refused:
                return StagePlan("driver", True, refusals=tuple(refused), warnings=tuple(board_warnings(host)))
            if left:
                return StagePlan("driver", False, warnings=(LEFT.format("driver"),))
            planned = plan_present(host, wanted, None, noticed)
            version, unknown = with_installed_version(host, wanted).version, planned.unknown or None
        if wanted.state != "absent":
            users, seen = gpu_users(facts), seen_in_facts(host)
            there = with_modules(host, planned.plan.steps)
            running = plan_running(there, wanted, noticed, users, bool(planned.unknown), seen)
    except Refused as refusal:
        return StagePlan("driver", True, refusals=(refusal,))
    steps = (*planned.plan.steps, *running)
    refused = disruption_refusals(host, wanted, version, steps, noticed)
    # On the way back no repository is configured, so that nobody reads its key.
    if unknown and wanted.state == "present" and wanted.archive_source != "distribution":
        refused = [*refused, *key_file_refusals(facts, wanted.repository, PREFIX)]
    return StagePlan("driver", bool(steps), steps, unknown, tuple(refused), warnings=planned.plan.warnings)


def _unmanaged_warnings(desired: Mapping[str, Any]) -> tuple[str, ...]:
    found = []
    coherent = desired.get("nvidia_driver_coherent_memory") or "default"
    if desired.get("nvidia_driver_module_parameters") or coherent != "default":
        found.append("nvidia_driver_state is unmanaged, so the requested module parameters are not set")
    if desired.get("nvidia_driver_imex") not in (None, "unmanaged"):
        found.append("nvidia_driver_state is unmanaged, so the requested IMEX is not set up")
    return tuple(found)
