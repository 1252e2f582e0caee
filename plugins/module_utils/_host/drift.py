# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a host differs from what was recorded on it: the planners of C(site) over the records, for nobody describes the host there. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .._mig import original
from .._mig.record import Unreadable, match, read_recorded_layout
from .._mig.stage import stage as mig_stage
from .._plan import Refused
from .._settings.desired import recorded as recorded_settings
from .._settings.plan import Means, ObservedGpu
from .._settings.plan import plan as plan_settings
from .._sharing.host import UNREADABLE
from .._sharing.plan import plan as plan_sharing
from .._sharing.state import from_facts
from .._steps import Kind
from .plan import Present
from .plan import plan as plan_boot

Gpus = Sequence[Mapping[str, Any]]


def drift(facts: Mapping[str, Any]) -> dict[str, bool]:
    """Return whether there is something to do, by what was recorded: C(mig), C(settings), C(compute_mode), C(sharing); and C(boot), the units
    that restore it.

    What is not recorded, or cannot be compared because NVML does not answer, is missing. A record that cannot be used differs.
    """
    recorded = facts.get("recorded") or {}
    gpus: Gpus | None = facts.get("gpus")
    found: dict[str, bool] = {}
    if recorded.get("mig") is not None and gpus is not None:
        found["mig"] = _mig(facts, gpus)
    if recorded.get("settings") is not None and gpus is not None:
        found["settings"] = _settings(recorded["settings"], gpus)
    if recorded.get("sharing") is not None:
        found.update(_sharing(facts, gpus))
    present = Present.from_facts(facts.get("host_program") or {})
    if present.units is not None and present.sha256 and present.version:
        found["boot"] = plan_boot(present, present.version, present.sha256).changes
    return found


def _mig(facts: Mapping[str, Any], gpus: Gpus) -> bool:
    try:
        records = read_recorded_layout((facts.get("recorded") or {}).get("mig"))
    except Unreadable:
        return True
    matched = [(match(records, gpu.get("uuid"), gpu.get("pci_address"), gpu.get("name")), gpu) for gpu in gpus]
    wanted = [replace(record, uuid=str(gpu["uuid"])) for record, gpu in matched if record and gpu.get("uuid")]
    layout = original.layout(wanted, (), [record.uuid for record in wanted])
    variables = {"nvidia_mig_layout": layout, "nvidia_mig_strategy": "mixed", "nvidia_mig_disruption": "force"}
    return mig_stage(facts, variables).needed


def _settings(record: Any, gpus: Gpus) -> bool:
    wanted = recorded_settings(record)
    if wanted is None:
        return True
    # Facts of an earlier release have no settings.
    read = [ObservedGpu(gpu) for gpu in gpus if not gpu.get("lost") and "settings" in gpu]
    try:
        return plan_settings(read, wanted, wanted, Means(reset=True, reboot=True)).changes
    except Refused:
        return True


def _sharing(facts: Mapping[str, Any], gpus: Gpus | None) -> dict[str, bool]:
    """The compute mode is of the GPUs, which NVML has to show; whether a daemon answers is known without."""
    observed = from_facts(facts, [gpu for gpu in gpus or () if not gpu.get("lost")])
    wanted = observed.recorded
    if wanted is None or wanted is UNREADABLE:
        return {"sharing": True}
    kinds = {step.kind for step in plan_sharing(observed, wanted, "force").steps}
    found = {"sharing": bool(kinds - {Kind.SET_COMPUTE_MODE})}
    if wanted.compute_mode is not None and gpus is not None:
        found["compute_mode"] = Kind.SET_COMPUTE_MODE in kinds
    return found
