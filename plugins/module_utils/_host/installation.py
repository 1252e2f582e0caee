# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Install and remove the host program and its units: read, plan, apply, read back."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from .._adapters import systemd
from .._adapters.files import read_bytes, read_text, remove, write_whole
from .._adapters.pynvml_loader import HOST_PROGRAM
from .._health.metric_units import METRICS_FILE, METRICS_SERVICE, METRICS_TIMER, directory_of, metric_units
from .._plan import Plan, Refused, Step
from .._runtime.unit_reload import reload_units
from .._steps import Kind
from .compiled import remove_compiled, write_compiled
from .units import UNIT_DIRECTORY, units

_OF_METRICS = (METRICS_SERVICE, METRICS_TIMER)

VERSION_FILE = os.path.join(os.path.dirname(HOST_PROGRAM), "VERSION")


class InstallationError(Exception):
    """The program or its units are not as they should be after they were installed."""


@dataclass(frozen=True)
class Installed:
    """What is on the host.

    :param sha256: of the program, or None where there is none.
    :param unit_files: text of the unit files that are there, by unit.
    :param enabled: the units that start at boot.
    :param systemd: whether this host runs systemd.
    :param timer_active: whether the timer of the metrics runs.
    """

    sha256: str | None
    version: str | None
    unit_files: Mapping[str, str]
    enabled: frozenset[str]
    systemd: bool
    timer_active: bool = False

    @property
    def metrics_directory(self) -> str:
        """Where metrics are written; empty where they are not."""
        return directory_of(self.unit_files.get(METRICS_SERVICE)) or ""


def read() -> Installed:
    program = read_bytes(HOST_PROGRAM)
    names = sorted([*units(""), *_OF_METRICS])
    files = {name: text for name in names if (text := read_text(f"{UNIT_DIRECTORY}/{name}")) is not None}
    here = systemd.available()
    return Installed(
        sha256=None if program is None else hashlib.sha256(program).hexdigest(),
        version=read_text(VERSION_FILE),
        unit_files=files,
        enabled=systemd.enabled(files) if here else frozenset(),
        systemd=here,
        timer_active=here and systemd.unit(METRICS_TIMER).is_active,
    )


def plan(present: Installed, sha256: str, version: str, python: str, metrics: str | None = None) -> Plan:
    """Return the steps that put the program and its units in place.

    :param sha256: of the program as it should be.
    :param python: interpreter that the units call.
    :param metrics: the directory that metrics are written to; empty removes what writes them, None leaves that as it is.
    """
    steps = []
    if present.sha256 != sha256:
        why = "it is not there" if present.sha256 is None else f"it is of version {present.version or 'unknown'}"
        steps.append(Step(Kind.INSTALL_HOST_PROGRAM, HOST_PROGRAM, why))
    elif present.version != version:
        steps.append(Step(Kind.WRITE_FILE, VERSION_FILE, "it names another version"))
    warnings = () if present.systemd else ("This host has no systemd: nothing restores MIG and MPS after a reboot.",)
    directory = present.metrics_directory if metrics is None else metrics
    texts = _texts(python, directory) if present.systemd else {}
    enabled = _enabled(texts)
    steps += _unit_steps(present, texts, enabled) if present.systemd else []
    return Plan(
        steps=tuple(steps),
        before=_state(present.sha256, present.unit_files, present.enabled, present.timer_active),
        after=_state(sha256, texts, enabled, METRICS_TIMER in texts),
        warnings=warnings,
    )


def _texts(python: str, directory: str) -> Mapping[str, str]:
    """Return the text of every unit that the host has to have."""
    return {**units(python), **(metric_units(python, directory) if directory else {})}


def _enabled(texts: Iterable[str]) -> frozenset[str]:
    """Return which units start at boot: all but the service that its timer starts."""
    return frozenset(texts) - {METRICS_SERVICE}


def _unit_steps(present: Installed, texts: Mapping[str, str], enabled: frozenset[str]) -> list[Step]:
    steps = _metrics_removal(present) if METRICS_TIMER not in texts else []
    directory = directory_of(texts.get(METRICS_SERVICE))
    if directory and present.metrics_directory not in ("", directory):
        steps.append(_without_metrics(present, f"metrics are written to {directory}"))
    written = [name for name, text in sorted(texts.items()) if present.unit_files.get(name) != text.strip()]
    steps += [Step(Kind.WRITE_FILE, f"{UNIT_DIRECTORY}/{name}", "it differs", data={"unit": name}) for name in written]
    steps += [Step(Kind.ENABLE_SERVICE, name, "it has to run at boot") for name in sorted(enabled - present.enabled)]
    if METRICS_TIMER in texts and (METRICS_TIMER in written or not present.timer_active):
        steps.append(Step(Kind.START_SERVICE, METRICS_TIMER, "metrics have to be written"))
    return steps


def _without_metrics(present: Installed, why: str) -> Step:
    """Return the step that removes the file: node_exporter would show its last values for ever."""
    return Step(Kind.REMOVE_FILE, f"{present.metrics_directory}/{METRICS_FILE}", why)


def _metrics_removal(present: Installed) -> list[Step]:
    why = "it is not wanted"
    steps = [Step(Kind.DISABLE_SERVICE, METRICS_TIMER, why)] if METRICS_TIMER in present.enabled else []
    steps += [
        Step(Kind.REMOVE_FILE, f"{UNIT_DIRECTORY}/{name}", why, data={"unit": name})
        for name in _OF_METRICS
        if name in present.unit_files
    ]
    return [*steps, _without_metrics(present, why)] if present.metrics_directory else steps


def plan_removal(present: Installed) -> Plan:
    """Return the steps that remove the program and its units. What they recorded stays."""
    why = "it is not wanted"
    steps = [Step(Kind.DISABLE_SERVICE, name, why) for name in sorted(present.enabled - {METRICS_TIMER})]
    steps += [
        Step(Kind.REMOVE_FILE, f"{UNIT_DIRECTORY}/{name}", why, data={"unit": name})
        for name in sorted(set(present.unit_files) - set(_OF_METRICS))
    ]
    steps += _metrics_removal(present)
    if present.sha256 is not None:
        steps.append(Step(Kind.REMOVE_FILE, HOST_PROGRAM, "it is not wanted"))
    return Plan(
        steps=tuple(steps),
        before=_state(present.sha256, present.unit_files, present.enabled, present.timer_active),
        after=_state(None, {}, (), False),
    )


def needs_program(steps: Plan) -> bool:
    """Return whether the plan installs the program, so that L(apply) needs a file with it."""
    return any(step.kind is Kind.INSTALL_HOST_PROGRAM for step in steps.steps)


def apply(steps: Plan, source: str | None, version: str, python: str, metrics: str | None = None) -> None:
    """Carry out L(plan).

    :param source: file with the program; needed when the plan installs it.
    :param metrics: as L(plan) was given it.
    :raises InstallationError: the plan installs the program and there is no file.
    :raises CommandError: systemd refused.
    :raises Refused: systemd would have to be reloaded, and containers would lose their GPUs.
    """
    present = read()
    texts = _texts(python, present.metrics_directory if metrics is None else metrics)
    _stop_disabled(steps)
    written = set()
    for step in steps.steps:
        if step.kind is Kind.INSTALL_HOST_PROGRAM:
            content = read_bytes(source) if source else None
            if content is None:
                raise InstallationError(f"Failed to install {HOST_PROGRAM}: there is no program to install it from")
            # Before the program, which is looked for to tell whether all is there.
            write_compiled(content, HOST_PROGRAM)
            write_whole(HOST_PROGRAM, content, mode=0o755)
            write_whole(VERSION_FILE, f"{version}\n")
        elif step.kind is Kind.WRITE_FILE and "unit" in step.data:
            if write_whole(step.target, texts[step.data["unit"]]):
                written.add(step.data["unit"])
        elif step.kind is Kind.WRITE_FILE:
            write_whole(VERSION_FILE, f"{version}\n")
        elif step.kind is Kind.REMOVE_FILE:
            remove(step.target)
    if METRICS_TIMER in texts:
        # What restores at boot is read at boot.
        reload_units(_OF_METRICS, written)
    systemd.enable(step.target for step in steps.steps if step.kind is Kind.ENABLE_SERVICE)
    for step in steps.steps:
        if step.kind is Kind.START_SERVICE:
            # A timer that runs already has its new times only after a restart.
            systemd.restart(step.target)


def _stop_disabled(steps: Plan) -> None:
    """Disable what the plan disables. A timer is stopped too, with what it started: what is in memory outlives the files."""
    names = [step.target for step in steps.steps if step.kind is Kind.DISABLE_SERVICE]
    if METRICS_TIMER in names:
        systemd.stop(METRICS_TIMER)
        systemd.stop(METRICS_SERVICE)
    systemd.disable(names)


def apply_removal(steps: Plan) -> None:
    """Carry out L(plan_removal).

    :raises CommandError: systemd refused.
    """
    _stop_disabled(steps)
    removed = set()
    for step in steps.steps:
        if step.kind is Kind.REMOVE_FILE and remove(step.target) and "unit" in step.data:
            removed.add(step.data["unit"])
    remove(VERSION_FILE)
    remove_compiled(os.path.dirname(HOST_PROGRAM))
    # Where containers would lose their GPUs by it, systemd forgets the units at the next boot.
    with suppress(Refused):
        reload_units(sorted(removed), removed)


def read_back(steps: Plan) -> None:
    """Read the host again and compare.

    :raises InstallationError: it is not as the plan says.
    """
    present = read()
    found = _state(present.sha256, present.unit_files, present.enabled, present.timer_active)
    if found != dict(steps.after):
        different = [name for name in found if found[name] != steps.after.get(name)]
        raise InstallationError(
            "Failed to install the host program: after everything was written, "
            f"{', '.join(different)} is not as planned. Look for another tool that manages these files"
        )


def _state(sha256: str | None, unit_files: Mapping[str, str], enabled: Iterable[str], timer: bool) -> dict[str, object]:
    return {
        "program": sha256,
        "units": {name: text.strip() for name, text in sorted(unit_files.items())},
        "enabled": sorted(enabled),
        "timer": "active" if timer else "inactive",
    }
