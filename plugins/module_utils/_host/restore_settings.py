# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Set the power limits and clocks of the GPUs again at boot."""

from __future__ import annotations

import os

from .._adapters.lock import LOCK_PATH, exclusive
from .._settings import apply
from .output import fail, say
from .restore_mig import open_when_ready

_DRIVER_SECONDS = 60.0
_LOCK_SECONDS = 60.0


def restore_settings(lock: str = LOCK_PATH, driver_seconds: float = _DRIVER_SECONDS) -> int:
    """Set what is recorded on every GPU that takes it, say what could not be set, and return the exit status."""
    if not os.path.exists(apply.RECORD):
        say(f"{apply.RECORD} is not there: no settings to restore")
        return 0
    wanted = apply.record()
    if wanted is None:
        fail(f"Failed to read {apply.RECORD}. Run gpufleet.nvidia.site (role nvidia_settings) again")
        return 1
    with exclusive(_LOCK_SECONDS, lock), open_when_ready(driver_seconds) as nvml:
        failed = apply.restore(nvml, wanted)
    for text in failed:
        fail(f"Not restored: {text}")
    say(f"settings restored: {wanted.as_dict()}")
    return 1 if failed else 0
