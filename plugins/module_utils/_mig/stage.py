# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The MIG stage of C(site), and the planner that it has in common with the module: what a layout makes of the GPUs of a host. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._boards.cards import board_of, gpus_on_bus
from .._boards.lookup import first_driver
from .._facts_view import Facts
from .._formats.driver_versions import is_branch, is_driver_version, may_be_as_new
from .._gpu_facts import GpuFacts, gpu_step
from .._plan import Refused, StagePlan, Step
from .._steps import Kind
from .desired import DesiredLayout, Unread, desired_of, entries
from .host_plan import GpuChange, MigPlan, plan_host
from .model import describe
from .record import record_step, recorded_gpus
from .state import NodeGpu, node_gpus, offered_by, why_no_reset

STAGE = "mig"


@dataclass(frozen=True)
class LayoutPlan:
    """What a layout makes of the GPUs of a host."""

    desired: DesiredLayout
    plan: MigPlan
    warnings: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def plan_layout(gpus: Sequence[NodeGpu], variables: Mapping[str, Any], no_reset: Mapping[int, str]) -> LayoutPlan:
    """Return the plan of a host with a driver. Raises Refused: the layout cannot be met; nothing was touched."""
    desired = desired_of(variables, [gpu.facts for gpu in gpus])
    plan = plan_host(gpus, desired.gpus, variables, no_reset)
    warnings = [refused.message for refused in plan.left_alone.values()]
    if desired.unselected and desired.gpus and variables.get("nvidia_mig_layout"):
        listed = ", ".join(str(index) for index in desired.unselected)
        warnings.append(f"nvidia_mig_layout does not change GPU {listed}")
    empty = [str(index) for index, one in desired.gpus.items() if one.enabled and not one.instances]
    if empty:
        warnings.append(f"MIG is on without instances on GPU {', '.join(empty)}, which is then not offered to any pod")
    warnings += _not_described([change for change in plan.changes if change.gpu.index in desired.left_on])
    unknown = list(plan.unknown)
    if plan.left_alone:
        waiting = ", ".join(map(str, plan.left_alone))
        unknown.append(
            f"GPU {waiting} keeps what it has for as long as it is in use (nvidia_mig_disruption: idle_only)"
        )
    return LayoutPlan(desired, plan, tuple(warnings), tuple(unknown))


def _not_described(changes: Sequence[GpuChange]) -> list[str]:
    """Return what is lost on GPUs that no layout describes, where nobody asked for their instances to go, and how to keep them."""
    lost = Counter(gone.instance.profile for change in changes for gone in change.plan.destroy)
    gpus = ", ".join(str(change.gpu.index) for change in changes if change.plan.destroy)
    why = f"no layout describes GPU {gpus} and nvidia_mig_strategy is none, so MIG is switched off there"
    return [f"{why} and idle instances are destroyed: {describe(lost)}. To keep them set it to mixed"] if lost else []


def stage(facts: Facts, desired: Mapping[str, Any]) -> StagePlan:
    """Return what the stage would do. C(desired): the variables of the role, under their full names."""
    try:
        if not (facts.nvml.available and facts.gpus) or _gets_mig(facts, desired):
            return _without_driver(facts, desired)
        gpus = node_gpus(facts, desired.get("nvidia_mig_busy_instances") or ())
        found = plan_layout(gpus, desired, _reset_obstacles(facts, gpus, desired))
    except Unread as refused:
        return StagePlan(STAGE, needed=True, unread=refused.message)
    except Refused as refused:
        return StagePlan(STAGE, needed=True, refusals=(refused,))
    steps = [step for change in found.plan.changes for step in change.steps()]
    needed = bool(steps or found.unknown)
    if not needed and desired.get("nvidia_mig_layout"):
        left = _not_finished(facts, gpus, found.plan, desired)
        steps += [left] if left is not None else []
    return StagePlan(
        STAGE,
        needed=needed or bool(steps),
        steps=tuple(steps),
        unknown="; ".join(found.unknown) or None,
        warnings=(*found.warnings, *_reset_beside_drm(facts, steps, bool(desired.get("nvidia_mig_reboot")))),
    )


def _reset_beside_drm(facts: Facts, steps: Sequence[Step], reboots: bool) -> tuple[str, ...]:
    """Return what to know of a module that is no process, so that no GPU has it among its users (mig-parted, README, known issues [doc])."""
    if "nvidia_drm" not in (facts.driver.modules or ()) or all(step.kind is not Kind.RESET_GPU for step in steps):
        return ()
    way = "unload it first (modprobe -r nvidia_drm), or let the run reboot the host (nvidia_mig_reboot: true)"
    return (
        "the kernel module nvidia_drm is loaded, which can hold the GPUs, so that nvidia-smi cannot reset them (In use by another client): "
        + ("the run reboots the host then" if reboots else way),
    )


def _reset_obstacles(facts: Facts, gpus: Sequence[NodeGpu], variables: Mapping[str, Any]) -> dict[int, str]:
    stopped = bool(variables.get("nvidia_mig_restart_services")) or variables.get("nvidia_dcgm_state") == "present"
    # Which service a process belongs to is not in the facts: one of the host may be among those that are stopped.
    holders = [one for one in facts.holders or () if one.container_id or not stopped]
    allowed = variables.get("nvidia_mig_reset") != "never"
    reasons = {gpu.index: why_no_reset(gpu.facts, holders, allowed) for gpu in gpus}
    return {index: reason for index, reason in reasons.items() if reason is not None}


def _not_finished(facts: Facts, gpus: Sequence[NodeGpu], plan: MigPlan, variables: Mapping[str, Any]) -> Step | None:
    """Return what is left to do where the GPUs are as described."""
    if variables.get("nvidia_mig_restore", True):
        step = record_step(recorded_gpus(facts.recorded.mig), plan.records(gpus), offered_by(gpus))
        if step is not None:
            return step
    cut_off = Step(Kind.FINISH_MIG_CHANGE, "mig", "it was cut off before its end")
    return cut_off if facts.recorded.mig_unfinished else None


def _gets_mig(facts: Facts, variables: Mapping[str, Any]) -> bool:
    """Whether a driver is loaded that is older than MIG on one of the boards, so that only the wanted one counts."""
    loaded = facts.driver.loaded_version or ""
    without = [gpu for gpu in facts.gpus or () if gpu.mig.supported is False]
    firsts = [first_driver(str(gpu.device_id), mig=True) for gpu in without]
    wanted = variables.get("nvidia_driver_state") == "present" and is_driver_version(loaded)
    return wanted and any(first is not None and not may_be_as_new(loaded, 0, first) for first in firsts)


def _without_driver(facts: Facts, variables: Mapping[str, Any]) -> StagePlan:
    if facts.pci is None and entries(variables.get("nvidia_mig_layout")):
        # Which of them the layout selects, and whether they can be so, only a host says that was read.
        return StagePlan(STAGE, needed=True, unread="which GPUs the host has is not known")
    gpus = gpus_on_bus(facts)
    found = desired_of(variables, gpus).gpus
    strangers = [gpu.title for gpu in gpus if board_of(gpu) is None]
    if not variables.get("nvidia_mig_layout") or not (found or strangers):
        return StagePlan(STAGE, needed=False)
    if not found:
        why = f"{', '.join(strangers)}: not in the table of boards; only its driver can say whether it has MIG"
        return StagePlan(STAGE, needed=True, unknown=why)
    refused = [_too_old(gpu, variables) for gpu in gpus if gpu.index in found and found[gpu.index].enabled]
    if any(refused):
        return StagePlan(STAGE, needed=True, refusals=tuple(filter(None, refused)))
    loaded = f"driver {facts.driver.loaded_version} has no MIG for the board"
    reason = facts.nvml.reason or (loaded if facts.nvml.available else "no driver is loaded")
    steps = tuple(
        gpu_step(Kind.PARTITION_GPU, gpu, f"wanted: {found[gpu.index]}", (), found[gpu.index].as_dict())
        for gpu in gpus
        if gpu.index in found
    )
    return StagePlan(STAGE, needed=True, steps=steps, unknown=f"the present instances are not known: {reason}")


def _too_old(gpu: GpuFacts, variables: Mapping[str, Any]) -> Refused | None:
    """Return that the driver which is to be installed has no MIG for the board yet."""
    first = first_driver(str(gpu.device_id), mig=True)
    branch, version = (str(variables.get(f"nvidia_driver_{name}") or "") for name in ("branch", "version"))
    given = is_driver_version(version) if version else is_branch(branch)
    if variables.get("nvidia_driver_state") != "present" or first is None or not given:
        return None
    if may_be_as_new(version, 0 if version else int(branch), first):
        return None
    enough = first if version else f"branch {first.partition('.')[0]}"
    return Refused(
        f"nvidia_driver_{'version' if version else 'branch'}",
        f"{gpu.title} has MIG from driver {first} on, and {version or f'branch {branch}'} is older",
        f"Use {enough} or newer, or take the GPU out of nvidia_mig_layout.",
    )
