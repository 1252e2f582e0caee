# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From what a host has of the host program and its units to what it has to have. Pure: for the stage, for the module, and for the drift of a host.

The instances of the MPS daemons are the stage C(sharing)'s; the file that all of them are started from is kept here, as systemd reads it at boot.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

from .._adapters.nvml_library import HOST_PROGRAM
from .._facts_view import BootUnitFacts, ProgramFacts
from .._formats.host_names import BOOT_UNITS
from .._health.metric_units import METRICS_FILE, METRICS_SERVICE, METRICS_TIMER, metric_units
from .._plan import Plan, Step
from .._sharing.mps_instances import UNIT as MPS_UNIT
from .._sharing.mps_instances import is_instance
from .._sharing.mps_units import unit_text
from .._steps import Kind
from .units import UNIT_DIRECTORY, units

VERSION_FILE = os.path.join(os.path.dirname(HOST_PROGRAM), "VERSION")
ENABLED, DISABLED, MASKED = "enabled", "disabled", "masked"
#: What runs the metrics is in the memory of systemd; what restores at boot is read at boot.
OF_METRICS = (METRICS_SERVICE, METRICS_TIMER)


def is_installed(present: ProgramFacts) -> bool:
    """Return whether a host has anything of it."""
    return present.sha256 is not None or any(not is_instance(name) for name in present.units or ())


def unit_texts(present: ProgramFacts, metrics: str | None = None) -> dict[str, str]:
    """Return the text of every unit that the host has to have; none where it runs no systemd. C(metrics): the directory that metrics are written to;
    empty for none, None leaves that as it is.
    """
    if present.units is None:
        return {}
    directory, python = present.metrics_directory if metrics is None else metrics, present.python or ""
    return {
        **units(python),
        **(metric_units(python, directory) if directory else {}),
        **({MPS_UNIT: unit_text(HOST_PROGRAM)} if any(is_instance(name) for name in present.units) else {}),
    }


def plan(present: ProgramFacts, version: str, sha256: str, metrics: str | None = None) -> Plan:
    """Return the steps that put the program and its units in place. None of them disturbs what uses the GPUs. C(metrics): as for L(unit_texts)."""
    steps = []
    # A host without anything is shown one step in place of nine.
    none = present.sha256 is None and present.units is not None and not set(present.units) & set(BOOT_UNITS)
    with_program = BOOT_UNITS if none else ()
    if present.sha256 != sha256:
        why = "neither it nor its units are there" if none else _other_program(present, version)
        data = {"units": list(with_program)}
        steps.append(Step(Kind.INSTALL_HOST_PROGRAM, HOST_PROGRAM, why, data=data))
    elif present.version != version:
        steps.append(Step(Kind.WRITE_FILE, VERSION_FILE, "it names another version"))
    if present.units is None:
        return Plan(tuple(steps), warnings=("This host has no systemd: nothing restores MIG and MPS after a reboot.",))
    texts = unit_texts(present, metrics)
    steps += _metrics_removal(present) if METRICS_TIMER not in texts else []
    if metrics and present.metrics_directory not in (None, "", metrics):
        steps.append(_without_metrics(present, f"metrics are written to {metrics}"))
    changed = set()
    for name, text in sorted(texts.items()):
        if name in with_program:
            continue
        found = _unit_steps(present.units.get(name), name, text)
        changed |= {name} if found else set()
        steps += found
    if METRICS_TIMER in changed or (METRICS_TIMER in texts and present.metrics_active is False):
        steps.append(Step(Kind.START_SERVICE, METRICS_TIMER, "metrics have to be written"))
    kept = {name: unit for name, unit in present.units.items() if name not in OF_METRICS}
    return Plan(tuple(steps), before=_state(present.units), after=_state({**kept, **_wanted(texts)}))


def plan_removal(present: ProgramFacts) -> Plan:
    """Return the steps that remove the program and its units. What they recorded stays."""
    why = "it is no longer needed"
    there = {name: unit for name, unit in (present.units or {}).items() if name in BOOT_UNITS}
    steps = [Step(Kind.DISABLE_SERVICE, name, why) for name, unit in sorted(there.items()) if unit.state != DISABLED]
    steps += _removed_files(there, why)
    steps += _metrics_removal(present)
    if present.sha256 is not None:
        steps.append(Step(Kind.REMOVE_FILE, HOST_PROGRAM, why))
    return Plan(tuple(steps), before=_state(present.units or {}), after={})


def _other_program(present: ProgramFacts, version: str) -> str:
    if present.sha256 is None:
        return "it is missing"
    if present.version == version:
        return f"it is not that of version {version}, although it says so"
    return f"it is of version {present.version or 'unknown'}, not {version}"


def _unit_steps(present: BootUnitFacts | None, name: str, text: str) -> list[Step]:
    data = {"unit": name}
    steps = []
    if present and present.state == MASKED:
        steps.append(Step(Kind.UNMASK_SERVICE, name, "it has to run at boot"))
    if present is None or present.sha256 != hashlib.sha256(text.encode()).hexdigest():
        why = "it differs" if present and present.sha256 else "it is missing"
        steps.append(Step(Kind.WRITE_FILE, f"{UNIT_DIRECTORY}/{name}", why, data=data))
    if name in _AT_BOOT and (present is None or present.state != ENABLED):
        steps.append(Step(Kind.ENABLE_SERVICE, name, "it has to run at boot"))
    return steps


#: The service of the metrics is started by its timer, and of the MPS daemons each instance is enabled.
_AT_BOOT = (*BOOT_UNITS, METRICS_TIMER)


def _removed_files(found: Mapping[str, BootUnitFacts], why: str) -> list[Step]:
    """Return the steps that remove the files of units, or the masks in their place."""
    there = sorted(name for name, unit in found.items() if unit.sha256 is not None or unit.state == MASKED)
    return [Step(Kind.REMOVE_FILE, f"{UNIT_DIRECTORY}/{name}", why, data={"unit": name}) for name in there]


def _without_metrics(present: ProgramFacts, why: str) -> Step:
    """Return the step that removes the file: node_exporter would show its last values for ever."""
    return Step(Kind.REMOVE_FILE, f"{present.metrics_directory}/{METRICS_FILE}", why)


def _metrics_removal(present: ProgramFacts) -> list[Step]:
    why = "it is no longer needed"
    there = {name: unit for name, unit in (present.units or {}).items() if name in OF_METRICS}
    running = present.metrics_active or any(unit.state != DISABLED for unit in there.values())
    steps = [Step(Kind.DISABLE_SERVICE, METRICS_TIMER, why)] if running else []
    steps += _removed_files(there, why)
    return [*steps, _without_metrics(present, why)] if present.metrics_directory else steps


def _wanted(texts: Mapping[str, str]) -> dict[str, BootUnitFacts]:
    return {
        name: BootUnitFacts(ENABLED if name in _AT_BOOT else DISABLED, hashlib.sha256(text.encode()).hexdigest())
        for name, text in texts.items()
    }


def _state(found: Mapping[str, BootUnitFacts]) -> dict[str, object]:
    """Return the units as C(--diff) shows them."""
    return {name: f"{unit.state}, {(unit.sha256 or 'no file')[:12]}" for name, unit in sorted(found.items())}
