# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run external commands: argument lists, absolute paths, the C locale, a time limit, typed exceptions.

The exit status is returned, never trusted: callers read the state back (exit codes lie in this domain).
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Callable

from .._plan import Failure
from .files import PROGRAM_FOLDERS


# Both, since pylint as ansible-test runs it does not see what L(Failure) is.
class CommandError(Failure, Exception):
    """A command could not be run, ran out of time, or ended in a way that its caller did not allow."""

    def __init__(self, command: Sequence[str], reason: str, output: str = "") -> None:
        self.command = tuple(command)
        self.reason = reason
        self.output = output
        text, said = f"Failed to run {' '.join(command)}: {reason}", output.strip()[-2000:]
        # Some show only the first line of a message, and tools warn before they say why they fail.
        whole = f"{cause(output)}\n{said}" if "\n" in said else said
        super().__init__(f"{text}: {whole}" if said else text)


#: How tools mark a line that says why they failed, and one that does not: logrus (NVIDIA's and the container tools), apt, and most others.
_ERROR = re.compile(r"level=(error|fatal|panic)|^(E:|error|fatal|failed)", re.IGNORECASE)
_ASIDE = re.compile(r"level=(warning|info|debug|trace)|^(W:|N:|warning|note|info)", re.IGNORECASE)


def cause(output: str) -> str:
    """Return the line of a tool's output that says why it failed: the last that is marked as an error, or the last that is no warning."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    marked = [line for line in lines if _ERROR.search(line)] or [line for line in lines if not _ASIDE.search(line)]
    return (marked or lines or [""])[-1]


@dataclass(frozen=True)
class Result:
    command: tuple[str, ...]
    rc: int
    stdout: str
    stderr: str


#: What runs a command as L(run) does.
Runner = Callable[..., Result]


def find(name: str) -> str | None:
    """Return the absolute path of program C(name), or None. An absolute C(name) is returned when it is executable."""
    candidates = [name] if name.startswith("/") else [f"{folder}/{name}" for folder in PROGRAM_FOLDERS]
    return next((path for path in candidates if os.path.isfile(path) and os.access(path, os.X_OK)), None)


def run(
    command: Sequence[str],
    *,
    stdin: str | None = None,
    timeout: float = 60.0,
    environment: Mapping[str, str] | None = None,
    allowed: Sequence[int] | None = None,
) -> Result:
    """Run C(command) and return its result.

    :param environment: variables added to the caller's environment; the locale is always C.
    :param allowed: exit statuses that are accepted, or None to accept every one.
    :raises CommandError: the program is missing, it ran out of time, or its status is not in C(allowed).
    """
    program = find(command[0])
    if program is None:
        raise CommandError(command, "the program is not installed")
    merged = {**os.environ, **(environment or {}), "LC_ALL": "C", "LANGUAGE": "C"}
    try:
        done = subprocess.run(
            [program, *command[1:]],
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=merged,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        output = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else (error.stdout or "")
        raise CommandError(command, f"no answer within {timeout:g} s", output) from error
    except OSError as error:
        raise CommandError(command, str(error)) from error
    result = Result(tuple(command), done.returncode, done.stdout, done.stderr)
    if allowed is not None and result.rc not in allowed:
        raise CommandError(command, f"exit status {result.rc}", result.stderr or result.stdout)
    return result
