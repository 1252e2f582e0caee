# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which slice of a GPU a pod was given, from what its own container printed, and the table of it for a person."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

_GPU = re.compile(r"^GPU (\d+): (.+) \(UUID: (GPU-[0-9a-f-]+)\)", re.MULTILINE)
_MIG = re.compile(r"^\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[0-9a-f-]+)\)", re.MULTILINE)
_USED_AND_ALL = re.compile(r"\d+MiB / +(\d+)MiB")
_MPS = re.compile(r"^(CUDA_MPS_\w+)=(.*)$", re.MULTILINE)
_MEMORY_LIMIT = re.compile(r"^MPS memory limit: (.+)$", re.MULTILINE)
_THREADS = re.compile(r"^MPS active thread percentage: (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class PodSlice:
    """One row: C(asked) is the limit in the pod's specification; the rest is what its container saw."""

    pod: str
    node: str
    asked: str
    device: str
    memory: str
    limit: str


def pod_slice(pod: dict[str, Any], log: str) -> PodSlice:
    """The row of a pod.

    :param log: what its container printed: C(nvidia-smi -L), C(nvidia-smi) and its settings of MPS.
    """
    (container,) = pod["spec"]["containers"]
    asked = [f"{count} {name}" for name, count in container["resources"]["limits"].items() if "/" in name]
    listing, _newline, summary = log.partition("+--")
    mig, gpus = _MIG.findall(listing), _GPU.findall(listing)
    devices = [f"{uuid} ({profile})" for profile, uuid in mig] or [f"{uuid} ({name})" for _index, name, uuid in gpus]
    rows = _USED_AND_ALL.findall(summary.partition("MIG devices:")[2] if mig else summary)
    return PodSlice(
        pod["metadata"]["name"],
        pod["spec"].get("nodeName", "-"),
        ", ".join(asked),
        ", ".join(devices) or "none",
        ", ".join(f"{total} MiB" for total in rows) or "-",
        _limit(log),
    )


def _limit(log: str) -> str:
    if "CUDA_MPS_PIPE_DIRECTORY" not in dict(_MPS.findall(log)):
        return "-"
    found = [("memory", _MEMORY_LIMIT.search(log)), ("threads", _THREADS.search(log))]
    return ", ".join(f"{name} {match.group(1)}" for name, match in found if match) or "MPS"


def table(slices: Sequence[PodSlice]) -> str:
    """All rows below their heads, each column as wide as it has to be."""
    rows = [("pod", "node", "asked for", "given", "memory", "MPS limit"), *map(astuple, slices)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])
