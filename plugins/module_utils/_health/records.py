# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the planners of C(site) would do on a host with its records as the desired state: it does not have its description. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .._facts_view import Facts
from .._formats.cdi_state import cdi_of
from .._gpu_facts import GpuFacts
from .._mig.apply_exact import plan_exact
from .._mig.record import RECORD_PATH, match
from .._mig.state import node_gpus
from .._plan import Refused, Step
from .._records import UNREADABLE, Daemon, RecordedLayout, Settings, Unusable
from .._settings.desired import RECORD as SETTINGS_RECORD
from .._settings.plan import EccPolicy
from .._settings.plan import plan as plan_settings
from .._settings.state import GpuWithSettings
from .._sharing.plan import plan as plan_sharing
from .._sharing.state import from_facts
from .._steps import Kind
from .software import mps_of_host


def record_differences(facts: Facts) -> dict[str, str]:
    """Return what there is to do, in words, by what was recorded: C(mig), C(settings), C(compute_mode), C(sharing); empty for nothing. What is not
    recorded, or cannot be compared because NVML does not answer, is missing. A record that cannot be used differs. Of GPUs that fell off the bus
    nothing is expected.
    """
    recorded = facts.recorded
    gpus = [gpu for gpu in facts.gpus or () if not gpu.lost]
    answering = facts.gpus is not None
    found: dict[str, str] = {}
    if recorded.mig is not None and answering:
        found["mig"] = _mig(recorded.mig, facts.but(gpus=tuple(gpus)), gpus)
    if recorded.settings is not None and answering:
        found["settings"] = _settings(recorded.settings, gpus)
    if recorded.sharing is not None:
        found.update(sharing_differences(facts, gpus, answering))
    return found


def cdi_difference(facts: Facts) -> str | None:
    """Return what is wrong with the CDI specification; None where there is none, or nothing to compare it with."""
    return cdi_of(facts).stale if facts.cdi and facts.gpus is not None else None


def _mig(record: RecordedLayout | Unusable, facts: Facts, gpus: Sequence[GpuFacts]) -> str:
    if isinstance(record, Unusable):
        return f"{RECORD_PATH} cannot be used: {record.why}"
    there = [record for record in record.gpus if any(match([record], gpu) for gpu in gpus)]
    plan = plan_exact(node_gpus(facts), there, {})
    return "; ".join((*map(str, plan.steps()), *plan.missing))


def _settings(wanted: Settings | Unusable, gpus: Sequence[GpuFacts]) -> str:
    if isinstance(wanted, Unusable):
        return f"{SETTINGS_RECORD} cannot be used"
    # Facts of an earlier release have no settings.
    try:
        read = [GpuWithSettings(gpu) for gpu in gpus if gpu.says("settings")]
        return _words(plan_settings(read, wanted, wanted, EccPolicy(reset=True, reboot=True)).steps)
    except Refused as refusal:
        return refusal.message


def sharing_differences(facts: Facts, gpus: Sequence[GpuFacts], answering: bool) -> dict[str, str]:
    """Return what L(record_differences) has of the recorded sharing. C(answering): whether NVML shows the compute modes; whether a daemon answers is
    known without.
    """
    observed = from_facts(facts, gpus)
    wanted = observed.recorded
    if wanted is None or wanted is UNREADABLE:
        return {"sharing": "/etc/gpufleet/sharing.json cannot be used"}
    steps = plan_sharing(observed, wanted, "force").steps
    found = {"sharing": _words(step for step in steps if step.kind is not Kind.SET_COMPUTE_MODE)}
    if wanted.compute_mode is not None and answering:
        found["compute_mode"] = _words(step for step in steps if step.kind is Kind.SET_COMPUTE_MODE)
    return found


def broken_daemons(facts: Facts) -> list[str]:
    """Return the recorded MPS daemons that do not run or do not answer; none where the record cannot be used. One that has other settings is not
    among them: it can be told the recorded ones, and a restart would end its clients.
    """
    answering = {one.pipe_directory for one in mps_of_host(facts) if one.responds is not False}
    return [one.name for one in recorded_daemons(facts) if one.pipe_directory not in answering]


def recorded_daemons(facts: Facts) -> tuple[Daemon, ...]:
    found = facts.recorded.sharing
    return found.daemons if found else ()


def _words(steps: Iterable[Step]) -> str:
    return "; ".join(map(str, steps))
