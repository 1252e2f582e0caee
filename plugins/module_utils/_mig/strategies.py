# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What NVIDIA's device plugin (0.20, C(internal/rm)) makes of MIG under its strategies: what it refuses, hides, or offers wrongly. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .._plan import Refused
from .model import DesiredGpu

STRATEGIES = ("none", "single", "mixed")


def check_name(strategy: str) -> None:
    """Refuse what is no strategy."""
    if strategy not in STRATEGIES:
        raise Refused("nvidia_mig_strategy", f"{strategy!r} is not a MIG strategy", f"Use {', '.join(STRATEGIES)}.")


def check_layout(strategy: str, found: Mapping[int, DesiredGpu], others: Sequence[Mapping[str, Any]]) -> None:
    """Refuse what the plugin would refuse, or hide.

    :param found: what the selected GPUs are to be, by index.
    :param others: entries of C(gpus) of the facts that no layout selects.
    """
    enabled = [index for index, desired in found.items() if desired.enabled]
    if not enabled:
        return
    if strategy == "none":
        raise Refused(
            "nvidia_mig_strategy",
            f"with none, the MIG devices of GPU {enabled[0]} would not be offered to any pod",
            "Use single or mixed, or set enabled: false in nvidia_mig_layout.",
        )
    if strategy != "single":
        return
    off = [index for index, desired in found.items() if not desired.enabled]
    off += [int(gpu["index"]) for gpu in others if not (gpu.get("mig") or {}).get("current")]
    if off:
        raise Refused(
            "nvidia_mig_strategy",
            f"single needs MIG on all GPUs of a host or on none; it is on for GPU {enabled[0]} and off for GPU {off[0]}",
            "Use mixed, or select all GPUs.",
        )
    names = {name for desired in found.values() for name in desired.devices}
    if len(names) > 1:
        raise Refused(
            "nvidia_mig_strategy",
            f"single needs one kind of MIG device on a host, and the layout makes {', '.join(sorted(names))}",
            "Use mixed.",
        )
    empty = [index for index in enabled if not found[index].instances]
    if empty and names:
        raise Refused(
            "nvidia_mig_strategy", f"single needs instances on all GPUs, and GPU {empty[0]} has none", "Use mixed."
        )


def offered_whole(indices: Sequence[str]) -> Refused:
    """Return that GPUs in MIG mode are offered as whole ones: under C(none) the plugin takes no notice of MIG."""
    return Refused(
        "nvidia_mig_strategy",
        f"MIG is on for GPU {', '.join(indices)}, and with none a Kubernetes cluster would offer these as whole GPUs, which no CUDA program can use",
        "Set nvidia_mig_layout to [{devices: all, enabled: false}], which turns MIG off, or nvidia_mig_strategy to single or mixed.",
    )


def refuse_parts(desired: DesiredGpu, strategy: str) -> None:
    """Under the strategy mixed the plugin exits on a compute instance that does not fill its GPU instance."""
    for name in desired.devices if strategy == "mixed" else ():
        if re.match(r"[0-9]+c\.", name):
            raise Refused(
                "nvidia_mig_layout",
                f"the device plugin does not offer the compute instance {name} under nvidia_mig_strategy: mixed, and exits",
                "Use GPU instances without the Cc. part, or nvidia_mig_strategy: single with one kind of instance.",
            )
