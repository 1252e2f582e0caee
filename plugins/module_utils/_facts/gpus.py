# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The GPUs as NVML sees them, in the shape of the facts document."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from .._adapters import gpu_reset
from .._adapters.host_reader import HostReader
from .._adapters.nvml_gpus import Nvml, open_nvml
from .._adapters.nvml_health import fabric_of, memory_errors, recovery_action
from .._adapters.nvml_library import NvmlError, NvmlUnavailable, PynvmlMissing
from .._adapters.nvml_settings import settings_of
from .._boards.lookup import is_complete
from .nvml import unavailable


def _read(nvml: Nvml, subsets: Sequence[str], locks: gpu_reset.Locks) -> dict[str, Any]:
    versions, untold = nvml.versions()
    unknown = {f"nvml.{name}": reason for name, reason in untold.items()}
    gpus = []
    fabric = set()
    for state in nvml.gpus():
        gpu = state.facts
        unknown.update(state.unknown_facts)
        # Where the table does not say what a plan needs, the driver is asked, and its answer is a part of the facts.
        if gpu["mig"]["supported"] and ("profiles" in subsets or not is_complete(gpu["board"])):
            try:
                gpu["profiles"] = nvml.profiles(state.index)
            except NvmlError as error:
                gpu["profiles"] = None
                unknown[f"gpus[{state.index}].profiles"] = str(error)
        if not state.lost:
            gpu["settings"] = settings_of(nvml, state.index, locks.get(gpu["uuid"] or "")).as_dict()
            found = fabric_of(nvml, state.index)
            fabric.add(found["state"] if found else None)
            if found:
                gpu["fabric"] = found
            if "errors" in subsets:
                gpu["errors"] = memory_errors(nvml, state.index)
                gpu["recovery_action"] = recovery_action(nvml, state.index)
        gpus.append(gpu)
    facts = {"available": True, "reason": None, "code": None, **versions}
    return {"nvml": facts, "gpus": gpus, "fabric_state": slowest(fabric), "unknown": unknown}


def slowest(states: Collection[str | None]) -> str | None:
    """Return the state that the whole fabric is in: that of the GPU which is least far."""
    return next((state for state in ("not_started", "in_progress", "completed") if state in states), None)


def read_gpus(source: HostReader, archive: str | None, subsets: Sequence[str] = ()) -> dict[str, Any]:
    """Return the parts C(nvml) and C(gpus) of the facts, C(fabric_state), and why anything of it is C(unknown). C(subsets): C(profiles) adds the
    table of profiles of each GPU, C(errors) the errors of its memory and its recovery action.
    """
    try:
        with open_nvml(archive) as nvml:
            return _read(nvml, subsets, gpu_reset.parse_locks(source.files.read(gpu_reset.LOCKS_PATH)))
    except PynvmlMissing as error:
        return unavailable("pynvml_missing", str(error))
    except NvmlUnavailable as error:
        return unavailable(error.reason, error.message)
    except NvmlError as error:
        return unavailable("unknown", str(error))
