# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the host program restores at boot: the recorded MIG layout, settings and sharing, each with the code that applied it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from .._adapters import cdi_generator, nvml_gpus
from .._adapters.files import LOCK_PATH, exclusive, read_text
from .._adapters.mps_control import MpsNotRunning
from .._adapters.nvml_gpus import Nvml, open_nvml
from .._adapters.nvml_library import NvmlUnavailable
from .._formats import utc_time
from .._formats.documents import read_json
from .._mig.apply import ApplyFailed, reset_obstacles
from .._mig.apply import apply as apply_mig
from .._mig.apply_exact import plan_exact
from .._mig.apply_machine import Machine
from .._mig.journal import Entry, Journal
from .._records import LAYOUT, GpuRecord
from .._schema import Unfit, check
from .._settings import apply as settings_apply
from .._sharing import apply as sharing_apply
from .units import RECORDED_MIG


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def fail(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


# Modules are loaded by udev while this runs, and the first answer of a driver takes seconds on a host with eight GPUs.
_DRIVER_SECONDS = 60.0
_LOCK_SECONDS = 60.0
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def restore_mig() -> int:
    """Apply the recorded layout to the GPUs, say what was done, and return the exit status."""
    text = read_text(RECORDED_MIG, links=False)
    if text is None:
        say(f"{RECORDED_MIG} is not there: no MIG layout to restore")
        return 0
    try:
        records = check(LAYOUT, read_json(text)).gpus
    except (ValueError, Unfit) as error:
        fail(f"Failed to read {RECORDED_MIG}: {error}. Run gpufleet.nvidia.site (role nvidia_mig) again")
        return 1
    with open_gpus() as nvml:
        return _apply_layout(Machine(nvml, Journal(), {}), records)


def _apply_layout(machine: Machine, records: Sequence[GpuRecord]) -> int:
    gpus = machine.read()
    plan = plan_exact(gpus, records, reset_obstacles(machine, gpus))
    for step in plan.steps():
        say(str(step))
    entry = Entry(
        started=utc_time.now(),
        boot_id=read_text(_BOOT_ID) or "",
        program="boot",
        previous=(),
        request={"recorded": [record.as_dict() for record in records]},
    )
    try:
        # A run that was cut off before this boot has nothing to bring back: its instances are gone.
        outcome = apply_mig(machine, lambda now, no_reset: plan_exact(now, records, no_reset), gpus, None, entry)
    except ApplyFailed as error:
        machine.journal.followed()
        fail(str(error))
        return 1
    # Nothing follows here: the CDI specification and the services come after this unit.
    machine.journal.followed()
    lacking = (*outcome.plan.missing, *outcome.plan.deferred.values())
    for text in lacking:
        fail(f"Not restored: {text}")
    say(f"MIG: {len(machine.done.created)} GPU instances created, {len(machine.done.destroyed)} destroyed")
    return 1 if lacking else 0


def refresh_cdi() -> int:
    """Write the CDI specification anew, as it has to name the MIG devices that exist now."""
    if not cdi_generator.available():
        say("nvidia-ctk is not installed: no CDI specification to write")
        return 0
    say(f"written: {cdi_generator.refresh()}")
    return 0


@contextmanager
def open_gpus() -> Iterator[Nvml]:
    """Hold the lock and open NVML for the block, waiting for a driver that is still being loaded. Raises NvmlUnavailable: the driver is not there in
    time, or cannot be used; Locked: somebody else changes the GPUs.
    """
    with exclusive(_LOCK_SECONDS, LOCK_PATH), ExitStack() as opened:
        end = time.monotonic() + _DRIVER_SECONDS
        while True:
            try:
                nvml = opened.enter_context(open_nvml())
                break
            except NvmlUnavailable as error:
                if error.reason != "driver_not_loaded" or time.monotonic() >= end:
                    raise
                time.sleep(0.5)
        yield nvml


def restore_settings() -> int:
    """Set what is recorded on every GPU that takes it, say what could not be set, and return the exit status."""
    if not os.path.exists(settings_apply.RECORD):
        say(f"{settings_apply.RECORD} is not there: no settings to restore")
        return 0
    wanted = settings_apply.record()
    if wanted is None:
        fail(f"Failed to read {settings_apply.RECORD}. Run gpufleet.nvidia.site (role nvidia_settings) again")
        return 1
    with open_gpus() as nvml:
        failed = settings_apply.restore(nvml, wanted)
    for text in failed:
        fail(f"Not restored: {text}")
    say(f"settings restored: {wanted.as_dict()}")
    return 1 if failed else 0


def restore_sharing() -> int:
    """Set the recorded compute mode and time slice; the MPS daemons are units of their own that start afterwards."""
    wanted = sharing_apply.recorded()
    if wanted is None:
        say(f"{sharing_apply.RECORD} is not there: no sharing to restore")
        return 0
    with open_gpus() as nvml:
        for state in nvml.gpus():
            if (
                wanted.compute_mode is not None
                and state.facts["compute_mode"] != wanted.compute_mode
                and not state.lost
            ):
                nvml_gpus.set_compute_mode(nvml, state.index, wanted.compute_mode)
                say(f"GPU {state.index}: compute mode {wanted.compute_mode}")
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
    daemon = sharing_apply.configured(name)
    if daemon is None:
        return 0
    try:
        sharing_apply.control_of(daemon).quit()
    except MpsNotRunning:
        say(f"the MPS daemon {name} does not run")
    return 0
