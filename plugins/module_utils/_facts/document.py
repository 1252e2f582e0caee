# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The facts document: everything about one host that any part of the collection decides on, read in one go.

Reading changes nothing and works in every state of a host. What cannot be known is None, and C(unknown) says why, by
path. The document's shape is described in C(docs/architecture.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._adapters.files import HostFiles
from .._adapters.host_reader import HostReader, begin
from .._runtimes import RUNTIMES
from .host import read_services
from .nvml import begin_gpus, library_path

#: Parts that are long and that few callers need.
SUBSETS = ("containers", "errors", "health", "holders", "mig_parted", "profiles", "slurm")
#: Programs that are asked for their version where they are installed.
_ASKED = (*(runtime.program for runtime in RUNTIMES.values()), "nv-fabricmanager")


def read_document(source: HostReader, archive: str | None = None, subsets: Sequence[str] = ()) -> dict[str, Any]:
    """Return the facts document of the host. C(subsets): of C(SUBSETS), what to add."""
    # Before there are threads: a process that is forked has none but its own.
    nvml_answer = begin_gpus(source, archive, subsets)
    services_answer = begin(lambda: read_services(source))
    for program in _ASKED:
        if source.files.find_program(program):
            source.begin((program, "--version"))
    # Imported while they work, which takes as long.
    from .contents import read_contents

    return read_contents(source, subsets, nvml_answer, services_answer)


def pynvml_is_wanted(files: HostFiles, code: str | None) -> bool:
    """Return whether the GPUs are unknown only because pynvml is missing: sending it would help. C(code): C(nvml.code) of the facts."""
    return code == "pynvml_missing" and library_path(files) is not None
