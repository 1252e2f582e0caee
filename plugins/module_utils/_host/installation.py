# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Install and remove the host program, its units and the bytecode of its sources, as L(plan) says, and read the host before and after."""

from __future__ import annotations

import io
import marshal
import os
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from glob import glob

from .._adapters import systemd
from .._adapters.files import HostFiles, read_bytes, remove, write_whole
from .._adapters.host_reader import HostReader
from .._adapters.nvml_library import HOST_PROGRAM
from .._adapters.zip_imports import COMPILED, entry_name
from .._facts.environment import read_host_program
from .._facts.host import read_services
from .._facts_view import ProgramFacts, view_of
from .._formats.host_names import wants_link
from .._health.metric_units import METRICS_SERVICE, METRICS_TIMER, TIMER_LINK
from .._plan import Failure, Plan, Refused
from .._printable import printable
from .._runtime.unit_reload import reload_units
from .._steps import Kind
from .plan import OF_METRICS, VERSION_FILE
from .units import UNIT_DIRECTORY


def read() -> ProgramFacts:
    """Return what this host has, as its facts say it."""
    reader = HostReader(HostFiles())
    return view_of({"host_program": printable(read_host_program(reader, read_services(reader)))}).host_program


def needs_program(steps: Plan) -> bool:
    return any(step.kind is Kind.INSTALL_HOST_PROGRAM for step in steps.steps)


def apply(steps: Plan, texts: Mapping[str, str], source: str | None, version: str) -> None:
    """Carry out L(plan.plan). C(source): file with the program; needed when the plan installs it."""
    _stop_disabled(steps)
    written, unmasked = set(), []
    for step in steps.steps:
        if step.kind is Kind.INSTALL_HOST_PROGRAM:
            content = read_bytes(source) if source else None
            if content is None:
                raise Failure(f"Failed to install {HOST_PROGRAM}: there is no program to install it from")
            # Before the program, which is looked for to tell whether all is there.
            write_compiled(content, HOST_PROGRAM)
            write_whole(HOST_PROGRAM, content, mode=0o755)
            write_whole(VERSION_FILE, f"{version}\n")
            for name in step.data["units"]:
                write_whole(f"{UNIT_DIRECTORY}/{name}", texts[name])
        elif step.kind is Kind.UNMASK_SERVICE:
            systemd.unmask(step.target)
            unmasked.append(step.target)
        elif step.kind is Kind.WRITE_FILE and "unit" in step.data:
            write_whole(step.target, texts[step.data["unit"]])
            written.add(step.data["unit"])
        elif step.kind is Kind.WRITE_FILE:
            write_whole(VERSION_FILE, f"{version}\n")
        elif step.kind is Kind.REMOVE_FILE:
            remove(step.target)
    program = None if os.path.exists(COMPILED) else read_bytes(HOST_PROGRAM, links=False)
    if program is not None:
        # Of another Python than the one that runs this, or removed.
        write_compiled(program, HOST_PROGRAM)
    if METRICS_TIMER in texts:
        # What restores at boot is read at boot.
        reload_units(OF_METRICS, written & set(OF_METRICS))
    with suppress(Refused):
        # What repairs a host restores its GPUs by these units; at boot they are read anyway.
        reload_units(unmasked, ())
    with_program = [name for step in steps.steps for name in step.data.get("units", ())]
    systemd.enable([*with_program, *(step.target for step in steps.steps if step.kind is Kind.ENABLE_SERVICE)])
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
    for name in names:
        # systemctl leaves the link of a unit that is masked, or whose file is gone.
        remove(TIMER_LINK if name == METRICS_TIMER else wants_link(name))


def apply_removal(steps: Plan) -> None:
    """Carry out L(plan.plan_removal). Raises CommandError: systemd refused."""
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


def write_compiled(program: bytes, path: str) -> None:
    """Compile the sources of a host program with the Python that runs this, and keep nothing that another one made. C(path): where the program is, or
    will be. The bytecode is put beside it.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(program)) as sources, zipfile.ZipFile(buffer, "w") as compiled:
        # Sources that are alike, as empty ones are, have one entry.
        names = {entry_name(sources.read(name)): name for name in sources.namelist() if name.endswith(".py")}
        for entry, name in names.items():
            code = compile(sources.read(name), os.path.join(path, name), "exec", dont_inherit=True)
            compiled.writestr(entry, marshal.dumps(code))
    folder = os.path.dirname(path)
    remove_compiled(folder)
    write_whole(os.path.join(folder, os.path.basename(COMPILED)), buffer.getvalue())


def remove_compiled(folder: str) -> None:
    """Remove the bytecode, that for other Pythons too."""
    for path in glob(os.path.join(folder, "compiled-*.zip")):
        remove(path)
