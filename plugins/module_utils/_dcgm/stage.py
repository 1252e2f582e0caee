# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stage C(dcgm), planned from the facts of a host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .._driver.desired import from_variables as driver_from_variables
from .._facts_view import DcgmFacts, Facts
from .._formats.driver_versions import branch_of, is_driver_version
from .._packages.package_set import attempt
from .._plan import Refused, StagePlan
from .desired import DesiredDcgm, from_variables
from .packages import PREFIX, check_boards, check_host, check_version, cuda_of_branch, names
from .plan import plan
from .state import DcgmState, from_facts

_LEVEL = "nvidia_health_dcgm_level"


def stage(facts: Facts, desired: Mapping[str, Any]) -> StagePlan:
    """Return what the stage would do; see docs/architecture.md."""
    if desired[f"{PREFIX}state"] == "present":
        return _present(facts, desired)
    refusals = _level_without_dcgm(facts.dcgm, desired)
    if desired[f"{PREFIX}state"] == "unmanaged":
        return StagePlan("dcgm", needed=bool(refusals), refusals=refusals)
    return _planned(facts, from_variables(desired), refusals)


def _planned(facts: Facts, wanted: DesiredDcgm, refusals: tuple[Refused, ...] = ()) -> StagePlan:
    state = from_facts(facts, names(wanted.cuda))
    if state is None:
        return StagePlan("dcgm", True, refusals=refusals, unread="the installed packages are not known")
    planned = plan(state, wanted)
    return StagePlan(
        "dcgm", planned.changes or bool(refusals), planned.steps, refusals=refusals, warnings=planned.warnings
    )


def _level_without_dcgm(dcgm: DcgmFacts | None, desired: Mapping[str, Any]) -> tuple[Refused, ...]:
    """Refuse an acceptance that nothing on the host could run, before the host is changed."""
    level = desired[_LEVEL]
    absent = desired[f"{PREFIX}state"] == "absent"
    if not level or dcgm is None or (dcgm.dcgmi and not absent):
        return ()
    why = f"{PREFIX}state is absent" if absent else "the host has no dcgmi"
    return (
        Refused(
            _LEVEL,
            f"it asks for dcgmi diag at level {level}, but {why}",
            f"Set {PREFIX}state: present, which installs DCGM with its host engine, or {_LEVEL}: 0.",
        ),
    )


def _present(facts: Facts, desired: Mapping[str, Any]) -> StagePlan:
    refusals: list[Refused] = []
    wanted = from_variables(desired)
    warning = attempt(refusals, lambda: check_version(wanted.version, wanted.allow_vulnerable)) or ""
    attempt(refusals, lambda: check_host(facts.host))
    cuda: set[str] = attempt(refusals, lambda: _cuda(facts, desired)) or set()
    wanted = replace(wanted, cuda=tuple(sorted(cuda)))
    state = from_facts(facts, names(wanted.cuda))
    source = _source(desired)
    if source and (state or DcgmState()).differing(names(wanted.cuda), wanted.version):
        refusals.append(source)
    warnings = (warning,) if warning else ()
    if refusals:
        return StagePlan("dcgm", True, refusals=tuple(refusals), warnings=warnings)
    if state is not None and not cuda:
        return StagePlan("dcgm", True, unknown="no driver is installed, and none is described", warnings=warnings)
    return _planned(facts, wanted)


def _cuda(facts: Facts, desired: Mapping[str, Any]) -> set[str]:
    """Return the CUDA versions of the driver that is described and of the one that is there: after a rollback that is another one."""
    given = set(desired[f"{PREFIX}cuda"])
    if given:
        return given
    branches = []
    if desired["nvidia_driver_state"] == "present":
        branches.append(driver_from_variables(desired).branch_number)
    there = facts.driver.on_disk_version
    if there and is_driver_version(there):
        branches.append(branch_of(there))
    found = {cuda_of_branch(branch) for branch in branches}
    check_boards(facts.pci or (), sorted(found))
    return found


def _source(desired: Mapping[str, Any]) -> Refused | None:
    """Return why a described host would find no packages: only NVIDIA's CUDA repository has them."""
    other = desired["nvidia_driver_source"]
    if (
        desired["nvidia_driver_state"] != "present"
        or other == "nvidia"
        or not desired["nvidia_driver_manage_repository"]
    ):
        return None
    return Refused(
        f"{PREFIX}state",
        f"DCGM is only in NVIDIA's CUDA repository, which is not configured with nvidia_driver_source: {other}",
        "Set nvidia_driver_source: nvidia; or configure that repository, or a mirror of it, on the hosts and set "
        "nvidia_driver_manage_repository: false.",
    )
