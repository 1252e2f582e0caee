# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Take sharing off a host: its daemons, what it set on the GPUs, and every file that it wrote."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress

from .._adapters import files, systemd
from .._adapters.nvml_gpus import Nvml
from .._plan import Plan, Refused, Step
from .._records import HostSharing
from .._runtime.unit_reload import reload_units
from .._steps import Kind
from . import apply as sharing_apply
from . import mps_instances, mps_units
from . import plan as sharing_plan
from .host import LOGS
from .state import Observed

#: The names that daemons of ours have (C(_sharing/host.py)); beside their logs there may be those of somebody else's daemon.
_NAME = re.compile(r"node|gpu\d+|mig\d+-\d+-\d+")
_WHY = "state is absent"


def wanted(observed: Observed) -> HostSharing:
    """Return the sharing of a host that shares nothing: what the collection set is set back, and nothing else."""
    recorded = observed.recorded
    if recorded is None and not observed.daemons:
        return HostSharing()
    # A record that cannot be read any more leaves daemons, which made their GPUs exclusive.
    mode = "default" if recorded is None or recorded.compute_mode is not None else None
    sliced = recorded is not None and recorded.time_slice not in (None, "default")
    return HostSharing(compute_mode=mode, time_slice="default" if sliced else None)


def leftovers() -> tuple[str, ...]:
    """Return the files that there are of those which sharing writes, in the order in which they can go."""
    drop_ins = [
        f"{sharing_apply.UNITS}/{name}/shm.conf"
        for name in files.list_directory(sharing_apply.UNITS)
        if mps_instances.is_instance(name[: -len(".d")])
    ]
    environments = [f"{mps_units.FOLDER}/{name}" for name in files.list_directory(mps_units.FOLDER)]
    units = [f"{sharing_apply.UNITS}/{name}" for name in (mps_instances.UNIT, mps_units.SHM_UNIT)]
    logs = [
        f"{LOGS}/{daemon}/{name}"
        for daemon in files.list_directory(LOGS)
        if _NAME.fullmatch(daemon)
        for name in files.list_directory(f"{LOGS}/{daemon}")
    ]
    # The record is the last: a run that was cut off finds in it what it still has to set back.
    found = [*environments, *drop_ins, *units, *logs, sharing_apply.RECORD]
    return tuple(path for path in found if os.path.lexists(path))


def plan(observed: Observed, present: Sequence[str], disruption: str, gpus: bool) -> Plan:
    """Return the steps that take sharing off the host.

    :param gpus: whether the GPUs can be asked: without a driver they have nothing that was set.
    :raises Refused: a daemon with clients would have to end.
    """
    target = wanted(observed) if gpus else HostSharing()
    found = sharing_plan.plan(observed, target, disruption)
    steps = [step for step in found.steps if step.kind is not Kind.RECORD_SHARING]
    # The environment file of a daemon goes with the daemon.
    going = {mps_units.environment_path(step.target) for step in steps if step.kind is Kind.STOP_MPS_DAEMON}
    steps += [Step(Kind.REMOVE_FILE, path, _WHY) for path in present if path not in going]
    return Plan(tuple(steps), before=found.before, after=target.as_dict(), warnings=found.warnings)


def apply(steps: Plan, nvml: Nvml | None) -> None:
    """Carry out C(steps). Raises Failure: a step failed; running again goes on from there."""
    removals = tuple(step for step in steps.steps if step.kind is Kind.REMOVE_FILE)
    others = tuple(step for step in steps.steps if step.kind is not Kind.REMOVE_FILE)
    sharing_apply.apply(Plan(others), HostSharing(), nvml)
    removed = [step.target for step in removals if files.remove(step.target)]
    for folder in sorted(
        {os.path.dirname(path) for path in (*removed, f"{mps_units.FOLDER}/x", f"{LOGS}/x")}, reverse=True
    ):
        _remove_empty(folder)
    if systemd.available() and any(os.path.dirname(path) == sharing_apply.UNITS for path in removed):
        # Where containers would lose their GPUs by it, systemd forgets the units at the next boot.
        with suppress(Refused):
            reload_units([mps_units.instance("*"), mps_units.SHM_UNIT], ())


def _remove_empty(folder: str) -> None:
    if (
        folder not in (sharing_apply.UNITS, os.path.dirname(sharing_apply.RECORD))
        and os.path.isdir(folder)
        and not os.listdir(folder)
    ):
        os.rmdir(folder)
