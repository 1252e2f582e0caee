# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run other programs: argument lists, C locale, and an error that says what was tried and what the tool answered."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from .progress import LabError

_LAST_LINES = 12


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The caller's environment (it may hold proxies and certificates) in the C locale.

    Where the caller keeps what Python compiles is no place of a host's disk, on which packages compile their own.
    """
    caller = {name: value for name, value in os.environ.items() if name != "PYTHONPYCACHEPREFIX"}
    return {**caller, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", **(extra or {})}


def run(
    arguments: Sequence[str | Path],
    *,
    remedy: str = "",
    log: Path | None = None,
    cwd: Path | None = None,
    extra_environment: Mapping[str, str] | None = None,
    stdin: str | None = None,
) -> str:
    """Run a program to its end and return what it wrote to standard output.

    With C(log) both outputs go there (for long builds a person can follow it) and the returned text is empty.

    :raises LabError: it could not be started or ended with another status than 0.
    """
    words = [str(word) for word in arguments]
    try:
        if log is not None:
            with log.open("ab") as stream:
                done = subprocess.run(
                    words,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    cwd=cwd,
                    env=environment(extra_environment),
                    input=None if stdin is None else stdin.encode(),
                    check=False,
                )
            output, errors = "", ""
        else:
            text = subprocess.run(
                words,
                capture_output=True,
                text=True,
                cwd=cwd,
                env=environment(extra_environment),
                input=stdin,
                check=False,
            )
            output, errors = text.stdout, text.stderr
            if text.returncode == 0:
                return output
            done = subprocess.CompletedProcess(words, text.returncode)
    except OSError as error:
        raise LabError(_sentence(words, str(error), remedy)) from error
    if done.returncode == 0:
        return output
    said = _tail(log.read_text(errors="replace")) if log is not None else _tail(errors or output)
    where = f" (all of it: {log})" if log is not None else ""
    raise LabError(_sentence(words, f"exit status {done.returncode}: {said}{where}", remedy))


def _tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-_LAST_LINES:]) or "no output"


def _sentence(words: Sequence[str], reason: str, remedy: str) -> str:
    return f"Failed to run {' '.join(words[:6])}: {reason}." + (f" {remedy}" if remedy else "")
