# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read what facts are made of, the host's files and its commands, and keep why anything could not be found out."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Callable, TypeVar

from . import command, systemd
from .command import CommandError, Result
from .files import HostFiles
from .mps_control import MpsControl, MpsControl3

#: Seconds that one command may take. A host whose tools hang still has facts.
COMMAND_LIMIT = 15.0

_Result = TypeVar("_Result")


def run_command(arguments: Sequence[str]) -> Result:
    """Run a command that only reads; see L(command.run)."""
    return command.run(arguments, timeout=COMMAND_LIMIT)


def begin(function: Callable[[], _Result]) -> Callable[[], _Result]:
    """Start a function in a thread, and return what waits for its result, or raises what it raised."""
    results: list[_Result] = []
    errors: list[Exception] = []

    def work() -> None:
        try:
            results.append(function())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()

    def wait() -> _Result:
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    return wait


@dataclass
class HostReader:
    """Everything that reading facts needs from outside. With another host's root only commands that take files are run."""

    files: HostFiles
    run: Callable[[Sequence[str]], Result] = run_command
    units: Callable[[Sequence[str]], Mapping[str, systemd.Unit]] = systemd.states
    mps: Callable[[str], MpsControl] = MpsControl
    mps3: Callable[[str], MpsControl3] = MpsControl3
    unknown: dict[str, str] = field(default_factory=dict)
    _begun: dict[tuple[str, ...], Callable[[], Result]] = field(default_factory=dict)

    def note(self, path: str, reason: str | None) -> None:
        """Remember why the value at C(path) is unknown; nothing is noted without a reason."""
        if reason:
            self.unknown[path] = reason

    def note_denied(self, path: str, reason: str) -> None:
        """Remember that the value at C(path) is unknown because this user may not read it, which root may not everywhere either."""
        self.note(path, f"{reason}; {'run as root' if os.geteuid() else 'root itself may not here, as in a container'}")

    def begin(self, arguments: Sequence[str]) -> None:
        """Start a command of the running host whose L(output) is asked for later, so that programs run side by side."""
        if self.files.local:
            self._begun[tuple(arguments)] = begin(lambda: self.run(arguments))

    def output(self, path: str, arguments: Sequence[str]) -> str | None:
        """Return what a command of the running host prints, or None after noting why it does not at C(path)."""
        if not self.files.local:
            self.note(path, f"{arguments[0]} cannot be queried about the host at {self.files.root}")
            return None
        try:
            begun = self._begun.pop(tuple(arguments), None)
            answer = begun() if begun else self.run(arguments)
        except CommandError as error:
            self.note(path, str(error))
            return None
        if answer.rc != 0:
            said = (answer.stderr or answer.stdout).strip().splitlines()
            self.note(path, f"{' '.join(arguments)} ended with {answer.rc}: {said[-1] if said else 'no output'}")
            return None
        return answer.stdout
