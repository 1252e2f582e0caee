# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Restore sharing at boot: compute mode and time slice, and the settings of MPS daemons as they start."""

from __future__ import annotations

from .._adapters import nvml_mig
from .._adapters.lock import LOCK_PATH, exclusive
from .._adapters.mps_control import MpsNotRunning
from .._sharing import apply as sharing_apply
from .output import fail, say
from .restore_mig import open_when_ready

_DRIVER_SECONDS = 60.0
_LOCK_SECONDS = 60.0


def restore_sharing(lock: str = LOCK_PATH, driver_seconds: float = _DRIVER_SECONDS) -> int:
    """Set the recorded compute mode and time slice; the MPS daemons are units of their own that start afterwards."""
    wanted = sharing_apply.recorded()
    if wanted is None:
        say(f"{sharing_apply.RECORD} is not there: no sharing to restore")
        return 0
    with exclusive(_LOCK_SECONDS, lock), open_when_ready(driver_seconds) as nvml:
        for gpu in nvml.gpus():
            if wanted.compute_mode is not None and gpu.facts["compute_mode"] != wanted.compute_mode and not gpu.lost:
                nvml_mig.set_compute_mode(nvml, gpu.index, wanted.compute_mode)
                say(f"GPU {gpu.index}: compute mode {wanted.compute_mode}")
    if wanted.time_slice is not None:
        sharing_apply.set_time_slice(wanted.time_slice)
        say(f"time slice {wanted.time_slice}")
    return 0


def mps_settings(name: str) -> int:
    """Tell the MPS daemon C(name), which has just started, its defaults."""
    daemon = sharing_apply.configured(name)
    if daemon is None:
        fail(f"Failed to set up the MPS daemon {name}: no environment file describes it")
        return 1
    sharing_apply.apply_settings(daemon)
    return 0


def mps_quit(name: str) -> int:
    """End the MPS daemon C(name)."""
    daemon = sharing_apply.configured(name)
    if daemon is None:
        return 0
    try:
        sharing_apply.control_of(daemon).quit()
    except MpsNotRunning:
        say(f"the MPS daemon {name} does not run")
    return 0
