# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the cluster is to see of a host: the resources that k8s-device-plugin makes of MIG devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from .._boards.model import Board
from .layouts import wishes
from .model import GpuWish

GPU = "nvidia.com/gpu"


def resource_name(device: str) -> str:
    """Return the resource of a MIG device under the mixed strategy: C(nvidia.com/mig-1g.10gb.me) for C(1g.10gb+me)."""
    return "nvidia.com/mig-" + device.replace("+", ".")


def resources(strategy: str, gpus: Iterable[GpuWish]) -> dict[str, int]:
    """Return how many of each resource a host offers, before any sharing.

    Under C(single) MIG devices are C(nvidia.com/gpu); under C(mixed) each kind has its own resource, and GPUs without
    MIG are C(nvidia.com/gpu); under C(none) every GPU is one C(nvidia.com/gpu). Source: k8s-device-plugin 0.20.

    :param strategy: C(none), C(single) or C(mixed).
    :param gpus: what each GPU of the host is to be, those without MIG as C(GpuWish(False)).
    """
    found: Counter[str] = Counter()
    for wish in gpus:
        if strategy == "none" or not wish.enabled:
            found[GPU] += 1
        elif strategy == "single":
            found[GPU] += sum(wish.devices.values())
        else:
            found.update({resource_name(device): count for device, count in wish.devices.items()})
    return {name: count for name, count in sorted(found.items()) if count}


def for_board(strategy: str, layout: Any, board: Board, count: int) -> dict[str, int]:
    """Return what a host with GPUs of one board offers, from the table alone: nothing is read from the host.

    GPUs that the layout does not select are taken as whole GPUs. Totals over a node are placed as on an empty host.

    :param strategy: the user's C(nvidia_mig_strategy).
    :param layout: the user's C(nvidia_mig_layout).
    :param board: the board of all GPUs.
    :param count: how many GPUs the host has.
    :raises Refused: when the layout cannot be met.
    """
    gpus = [{"index": index, "board": board.key, "name": (board.product_names or (None,))[0]} for index in range(count)]
    found = wishes(layout, strategy, gpus)
    return resources(strategy, [found.gpus.get(index, GpuWish(False)) for index in range(count)])
