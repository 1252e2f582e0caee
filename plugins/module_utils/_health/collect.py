# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Collect what the health checks look at. Nothing here changes the host; deciding is left to the checks."""

from __future__ import annotations

import os
from collections.abc import Sequence

from .._adapters import command
from .._adapters.command import CommandError
from .._facts.document import read_document
from .._facts.source import Source
from .meanings import parse_xids
from .report import CommandAnswer, Evidence, Xid

#: Seconds. A GPU that hangs keeps nvidia-smi for minutes; eight GPUs without persistence mode take about ten seconds.
NVIDIA_SMI_LIMIT = 60.0
KERNEL_LOG = "/dev/kmsg"
_RECORD = 8192


def collect(source: Source, archive: str | None, cuda_check: Sequence[str], cuda_limit: float) -> Evidence:
    """Return the evidence for all checks.

    :param archive: a zip file with pynvml that was sent for this call.
    :param cuda_check: argument list of the user's CUDA program; empty for none.
    :param cuda_limit: seconds that it may take.
    """
    facts = read_document(source, archive, subsets=("errors",))
    present = source.files.find_program("nvidia-smi") is not None
    return Evidence(
        facts=facts,
        # -L lists the GPUs, which makes it talk to every one of them.
        nvidia_smi=answer_of(("nvidia-smi", "-L"), NVIDIA_SMI_LIMIT) if present else None,
        xids=kernel_log_xids(),
        cuda=answer_of(cuda_check, cuda_limit) if cuda_check else None,
    )


def answer_of(arguments: Sequence[str], limit: float) -> CommandAnswer:
    """Run a command and return how it ended; never fails."""
    try:
        result = command.run(arguments, timeout=limit)
    except CommandError as error:
        return CommandAnswer(None, error.reason)
    return CommandAnswer(result.rc, f"{result.stdout}\n{result.stderr}".strip())


def kernel_log_xids(path: str = KERNEL_LOG) -> list[Xid] | None:
    """Return the Xid errors since the boot, or None where the kernel's log cannot be read.

    Every read of the device gives one record and, without blocking, an error at the end.
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
    return parse_xids(b"".join(records).decode("utf-8", "replace"))
