# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The part C(health) of the facts document: what the health checks look at beside the other facts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from .._adapters import command
from .._adapters.command import CommandError
from .._adapters.host_reader import HostReader
from .._facts_view import AnswerFacts, Xid
from .._health.software import DEMO_SUITE, PROGRAMS
from .._health.xid import distinct, errors_in, not_initialized

#: Seconds. A GPU that hangs keeps nvidia-smi for minutes; eight GPUs without persistence mode take about ten seconds.
NVIDIA_SMI_LIMIT = 60.0
KERNEL_LOG = "/dev/kmsg"
_RECORD = 8192


def read_health(source: HostReader, devices: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
    """Return how C(nvidia-smi) ended (None where it is not installed), a program of the CUDA samples, and the Xid and SXid errors of the kernel's log."""
    if not source.files.local:
        source.note("health", "only the running host can tell")
        return {"nvidia_smi": None, "cuda_program": None, "xids": None, "sxids": None}
    present = source.files.find_program("nvidia-smi") is not None
    log = kernel_log()
    known = [(device["kind"], str(device["address"])) for device in devices or ()]
    failed = not_initialized(log or "", known)
    errors = distinct(error for _number, error in errors_in(log or "", known))
    return {
        # -L lists the GPUs, which makes it talk to every one of them.
        "nvidia_smi": asdict(answer_of(("nvidia-smi", "-L"), NVIDIA_SMI_LIMIT)) if present else None,
        "cuda_program": _cuda_program(source),
        **({"not_initialized": failed} if failed else {}),
        "xids": None if log is None else [asdict(error) for error in errors if isinstance(error, Xid)],
        "sxids": None if log is None else [asdict(error) for error in errors if not isinstance(error, Xid)],
    }


def _cuda_program(source: HostReader) -> str | None:
    for name in PROGRAMS:
        path = f"{DEMO_SUITE}/{name}"
        found = source.files.find_program(name) or (path if source.files.exists(path) else None)
        if found is not None:
            return found
    return None


def answer_of(arguments: Sequence[str], limit: float) -> AnswerFacts:
    """Run a command and return how it ended; never fails."""
    try:
        result = command.run(arguments, timeout=limit)
    except CommandError as error:
        return AnswerFacts(None, error.reason)
    return AnswerFacts(result.rc, f"{result.stdout}\n{result.stderr}".strip())


def kernel_log(path: str = KERNEL_LOG) -> str | None:
    """Return what the kernel logged since the boot, or None where that cannot be read. Every read of the device gives one record and, without
    blocking, an error at the end.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    records = []
    try:
        while True:
            try:
                data = os.read(descriptor, _RECORD)
            except BrokenPipeError:
                # The record was overwritten while we read; the next read goes on with the oldest that is left.
                continue
            except OSError:
                break
            if not data:
                break
            records.append(data)
    finally:
        os.close(descriptor)
    return b"".join(records).decode("utf-8", "replace")
