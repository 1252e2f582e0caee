# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Install and remove the host program and its units: read, plan, apply, read back."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .._adapters import systemd
from .._adapters.files import read_bytes, read_text, remove, write_whole
from .._adapters.pynvml_loader import HOST_PROGRAM
from .._plan import Plan, Step
from .._steps import Kind
from .units import UNIT_DIRECTORY, units

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
    """

    sha256: str | None
    version: str | None
    unit_files: Mapping[str, str]
    enabled: frozenset[str]
    systemd: bool


def read() -> Installed:
    """Return what is on the host."""
    program = read_bytes(HOST_PROGRAM)
    names = sorted(units(""))
    files = {name: text for name in names if (text := read_text(f"{UNIT_DIRECTORY}/{name}")) is not None}
    here = systemd.available()
    enabled = {name for name, unit in systemd.units(names).items() if unit.enabled == "enabled"} if here else set()
    return Installed(
        sha256=None if program is None else hashlib.sha256(program).hexdigest(),
        version=read_text(VERSION_FILE),
        unit_files=files,
        enabled=frozenset(enabled),
        systemd=here,
    )


def plan(present: Installed, sha256: str, version: str, python: str) -> Plan:
    """Return the steps that put the program and its units in place.

    :param sha256: of the program as it should be.
    :param python: interpreter that the units call.
    """
    steps = []
    if present.sha256 != sha256:
        why = "it is not there" if present.sha256 is None else f"it is of version {present.version or 'unknown'}"
        steps.append(Step(Kind.INSTALL_HOST_PROGRAM, HOST_PROGRAM, why))
    elif present.version != version:
        steps.append(Step(Kind.WRITE_FILE, VERSION_FILE, "it names another version"))
    warnings = () if present.systemd else ("This host has no systemd: nothing restores MIG and MPS after a reboot.",)
    if present.systemd:
        for name, text in sorted(units(python).items()):
            if present.unit_files.get(name) != text.strip():
                steps.append(Step(Kind.WRITE_FILE, f"{UNIT_DIRECTORY}/{name}", "it differs", data={"unit": name}))
        for name in sorted(set(units(python)) - present.enabled):
            steps.append(Step(Kind.ENABLE_SERVICE, name, "it has to run at boot"))
    return Plan(
        steps=tuple(steps),
        before=_state(present.sha256, present.unit_files, present.enabled),
        after=_state(sha256, units(python) if present.systemd else {}, units(python) if present.systemd else ()),
        warnings=warnings,
    )


def plan_removal(present: Installed) -> Plan:
    """Return the steps that remove the program and its units. What they recorded stays."""
    steps = [Step(Kind.DISABLE_SERVICE, name, "it is not wanted") for name in sorted(present.enabled)]
    steps += [
        Step(Kind.REMOVE_FILE, f"{UNIT_DIRECTORY}/{name}", "it is not wanted", data={"unit": name})
        for name in sorted(present.unit_files)
    ]
    if present.sha256 is not None:
        steps.append(Step(Kind.REMOVE_FILE, HOST_PROGRAM, "it is not wanted"))
    return Plan(
        steps=tuple(steps),
        before=_state(present.sha256, present.unit_files, present.enabled),
        after=_state(None, {}, ()),
    )


def needs_program(steps: Plan) -> bool:
    """Return whether the plan installs the program, so that L(apply) needs a file with it."""
    return any(step.kind is Kind.INSTALL_HOST_PROGRAM for step in steps.steps)


def apply(steps: Plan, source: str | None, version: str, python: str) -> None:
    """Carry out L(plan).

    :param source: file with the program; needed when the plan installs it.
    :raises InstallationError: the plan installs the program and there is no file.
    :raises CommandError: systemd refused.
    """
    texts = units(python)
    unit_changed = False
    for step in steps.steps:
        if step.kind is Kind.INSTALL_HOST_PROGRAM:
            content = read_bytes(source) if source else None
            if content is None:
                raise InstallationError(f"Failed to install {HOST_PROGRAM}: there is no program to install it from")
            write_whole(HOST_PROGRAM, content, mode=0o755)
            write_whole(VERSION_FILE, f"{version}\n")
        elif step.kind is Kind.WRITE_FILE and "unit" in step.data:
            unit_changed = write_whole(step.target, texts[step.data["unit"]]) or unit_changed
        elif step.kind is Kind.WRITE_FILE:
            write_whole(VERSION_FILE, f"{version}\n")
    if unit_changed:
        systemd.daemon_reload()
    systemd.enable(step.target for step in steps.steps if step.kind is Kind.ENABLE_SERVICE)


def apply_removal(steps: Plan) -> None:
    """Carry out L(plan_removal).

    :raises CommandError: systemd refused.
    """
    systemd.disable(step.target for step in steps.steps if step.kind is Kind.DISABLE_SERVICE)
    removed = [remove(step.target) for step in steps.steps if step.kind is Kind.REMOVE_FILE]
    remove(VERSION_FILE)
    if any("unit" in step.data for step in steps.steps) and any(removed):
        systemd.daemon_reload()


def read_back(steps: Plan) -> None:
    """Read the host again and compare.

    :raises InstallationError: it is not as the plan says.
    """
    present = read()
    found = _state(present.sha256, present.unit_files, present.enabled)
    if found != dict(steps.after):
        different = [name for name in found if found[name] != steps.after.get(name)]
        raise InstallationError(
            "Failed to install the host program: after everything was written, "
            f"{', '.join(different)} is not as planned. Look for another tool that manages these files"
        )


def _state(sha256: str | None, unit_files: Mapping[str, str], enabled: Iterable[str]) -> dict[str, object]:
    return {
        "program": sha256,
        "units": {name: text.strip() for name, text in sorted(unit_files.items())},
        "enabled": sorted(enabled),
    }
