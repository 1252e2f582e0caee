# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The present layout of a host as something to write down: in our form, and in nvidia-mig-parted's. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .apply_report import describe_gpus
from .current import NodeGpu
from .mig_parted import layout_of, write
from .model import DesiredGpu
from .state import present


class Unexportable(Exception):
    """The layout of a GPU cannot be read."""


def export(gpus: Sequence[NodeGpu], label: str) -> dict[str, Any]:
    """Return the GPUs, the layout in our form, and mig-parted's file.

    :param label: of the configuration in mig-parted's file.
    :raises Unexportable: a GPU does not tell its layout; what is exported without it would be wrong.
    """
    layouts: dict[int, DesiredGpu] = {}
    for gpu in gpus:
        if gpu.problem is not None:
            raise Unexportable(
                f"Failed to export the MIG layout: {gpu.title} cannot be read: {gpu.problem}. "
                "Check it with the module gpufleet.nvidia.health"
            )
        now = present(gpu.facts)
        if now is not None:
            layouts[gpu.index] = now
    return {
        "gpus": describe_gpus(gpus),
        "layout": layout_of(layouts, len(gpus)),
        "mig_parted": write(label, layouts, len(gpus)),
    }
