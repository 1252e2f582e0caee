# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who uses a GPU, so that it cannot be repaired now. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from .._users import TOLERATE_RESET, holders_of, merged, mps_pids, users_of
from .repair_faults import subject_of


def users_of_gpus(facts: Mapping[str, Any], addresses: Collection[str], mps: bool = False) -> list[str]:
    """Return whose work on one of some GPUs a repair would end, as people name them.

    Who has a GPU open is known even where NVML reports no processes of it. Pods are evicted before, and the kubelet's record still has them then.

    :param facts: with the holders of device files.
    :param addresses: PCI addresses of the GPUs.
    :param mps: whether MPS daemons and their servers are no users: they are what is repaired.
    """
    gpus = [gpu for gpu in facts.get("gpus") or () if subject_of(gpu) in addresses]
    excused = mps_pids(facts) if mps else ()
    running = (users_of(gpu).everybody for gpu in gpus)
    holding = (
        holders_of(facts.get("holders"), gpu["minor"], TOLERATE_RESET) for gpu in gpus if gpu.get("minor") is not None
    )
    return [str(user) for user in merged(*running, *holding) if user.pid is not None and user.pid not in excused]
