# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of MIG of a host: the instances of each GPU, and the changes of MIG modes around them, in the order in which they are made, and
the GPUs as modules return them. Pure.

The stage plans with it from the facts document, the module and the host program from what NVML tells just now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._boards.board import ARCHITECTURES
from .._gpu_facts import GpuFacts, gpu_step
from .._plan import REBOOT_NEEDED, Failure, Refused, Step, awaited_reboot
from .._records import GpuRecord, PlacedInstance
from .._steps import Kind
from .mig_parted import layout_of, write
from .model import DesiredGpu, parse
from .nodes import plan_node
from .plan import IDLE_ONLY, REFUSE, GpuPlan, Keep
from .state import NodeGpu, devices_of, present, record_of

ON = "on"
OFF = "off"
#: The mode is as wanted, and a change of it is pending that is not.
KEEP = "keep"


@dataclass(frozen=True)
class ModeChange:
    """What happens to the mode of a GPU.

    :param mode: C(on), C(off) or C(keep) where the mode is asked for; None where it is as it should be.
    :param set_mode: whether the driver has to be asked; False when the change is pending already.
    :param needs_reset: whether the mode changes only by a reset of the GPU.
    """

    mode: str | None = None
    set_mode: bool = False
    needs_reset: bool = False


@dataclass(frozen=True)
class GpuChange:
    """What happens to one GPU.

    :param deferred: why the change of mode has to wait for a reboot, and the instances with it; None when it need not.
    :param reboot: whether who applies the plan reboots the host for that.
    """

    gpu: NodeGpu
    plan: GpuPlan
    toggle: ModeChange = field(default_factory=ModeChange)
    deferred: str | None = None
    reboot: bool = False

    @property
    def mode(self) -> str | None:
        return self.toggle.mode

    @property
    def changes_mode_now(self) -> bool:
        """Whether there is something to do about the mode before the instances."""
        return self.toggle.set_mode or (self.mode in (ON, OFF) and self.deferred is None)

    @property
    def changes(self) -> bool:
        if self.changes_mode_now:
            return True
        return self.plan.changes and not (self.deferred and self.mode == ON)

    def steps(self) -> tuple[Step, ...]:
        """Return all that is done, in order; what waits for a reboot is from the reset on."""
        disturbed, data = self.gpu.busy, {}
        if self.deferred is not None and self.reboot:
            disturbed = (*disturbed, awaited_reboot([self.deferred], True, "nvidia_mig_reboot"))
            data = {"reboot": REBOOT_NEEDED}
        return _steps(self.gpu.facts, self.plan, self.toggle, disturbed, data)

    def steps_now(self) -> tuple[Step, ...]:
        """Return what is done before a reboot."""
        found = self.steps()
        if self.deferred is None:
            return found
        return found[: next(number for number, step in enumerate(found) if step.kind is Kind.RESET_GPU)]

    @property
    def after(self) -> GpuRecord:
        """The GPU as it is when the plan is carried out. Where the places are not known before MIG is on, it is recorded without instances: the next
        run fills them in.
        """
        instances = [_kept(keep) for keep in self.plan.keep]
        instances += [PlacedInstance(new.profile.name, new.start, new.size, new.compute) for new in self.plan.create]
        mig = self.plan.desired.enabled if self.gpu.has_mig else None
        return record_of(self.gpu.facts, mig, tuple(sorted(instances, key=lambda instance: instance.start)))


def _kept(keep: Keep) -> PlacedInstance:
    instance, gone = keep.instance, {compute.id for compute in keep.change.destroy}
    slices = [compute.slices for compute in instance.compute if compute.id not in gone] + list(keep.change.create)
    return PlacedInstance(instance.profile, instance.start, instance.size, tuple(sorted(slices, reverse=True)))


@dataclass(frozen=True)
class MigPlan:
    """What happens to a host. C(left_alone): GPUs that keep what they have because somebody uses it, and why (disruption C(idle_only))."""

    changes: tuple[GpuChange, ...]
    left_alone: Mapping[int, Refused]
    missing: tuple[str, ...] = ()

    @property
    def active(self) -> tuple[GpuChange, ...]:
        """The GPUs that something is done to before a reboot."""
        return tuple(change for change in self.changes if change.changes)

    @property
    def deferred(self) -> Mapping[int, str]:
        """Why GPUs wait for a reboot, by index."""
        return {change.gpu.index: change.deferred for change in self.changes if change.deferred is not None}

    @property
    def unknown(self) -> tuple[str, ...]:
        """Why the instances of a GPU cannot be planned before its MIG mode is on."""
        return tuple(f"{c.gpu.title}: {c.plan.unknown}" for c in self.changes if c.plan.unknown is not None)

    def records(self, gpus: Sequence[NodeGpu]) -> list[GpuRecord]:
        """Return the selected GPUs as planned, and as they are where they are left alone."""
        return [change.after for change in self.changes] + [gpu.record for gpu in gpus if gpu.index in self.left_alone]

    def steps(self) -> tuple[Step, ...]:
        """Return what is done before a reboot."""
        return tuple(step for change in self.active for step in change.steps_now())

    def waiting(self) -> tuple[tuple[Step, str], ...]:
        """Return what is done after a reboot, and what it waits for."""
        return tuple(
            (step, change.deferred)
            for change in self.changes
            if change.deferred is not None
            for step in change.steps()[len(change.steps_now()) :]
        )


def plan_host(
    gpus: Sequence[NodeGpu],
    desired_gpus: Mapping[int, DesiredGpu],
    variables: Mapping[str, Any],
    no_reset: Mapping[int, str],
) -> MigPlan:
    """Return the plan of a host.

    :param desired_gpus: what the selected ones are to be, by index.
    :param variables: of the role: C(nvidia_mig_disruption), and C(nvidia_mig_reboot), whether a GPU that cannot be reset may wait for a reboot;
        otherwise it refuses the host.
    :raises Refused: the desired state cannot be met; nothing was touched.
    """
    disruption = str(variables.get("nvidia_mig_disruption") or REFUSE)
    node = plan_node(gpus, desired_gpus, disruption)
    left_alone = dict(node.left_alone)
    changes = []
    for gpu in gpus:
        plan = node.gpus.get(gpu.index)
        if plan is None:
            continue
        change = gpu_change(gpu, plan, no_reset, reboot=True)
        if change.deferred is not None and not variables.get("nvidia_mig_reboot"):
            refused = _refuse_reboot(change)
            if disruption != IDLE_ONLY:
                raise refused
            left_alone[gpu.index] = refused
            continue
        changes.append(change)
    return MigPlan(tuple(changes), left_alone)


def gpu_change(gpu: NodeGpu, plan: GpuPlan, no_reset: Mapping[int, str], reboot: bool = False) -> GpuChange:
    """Return what happens to one GPU: its instances as planned, and the mode that they need."""
    toggle = mode_change(gpu.facts, plan.desired.enabled) if gpu.has_mig else ModeChange()
    return GpuChange(gpu, plan, toggle, no_reset.get(gpu.index) if toggle.needs_reset else None, reboot)


def _refuse_reboot(change: GpuChange) -> Refused:
    reason = f"MIG can be switched {change.mode} only by a reset or a reboot, and {change.deferred}"
    remedy = "Stop the processes that hold it, name their services in nvidia_mig_restart_services, or allow a reboot (nvidia_mig_reboot: true)."
    return Refused(change.gpu.title, reason, remedy)


def toggle_needs_reset(architecture: str | None) -> bool:
    """Return whether the MIG mode changes only by a reset; assumed for an architecture that no source tells of."""
    known = ARCHITECTURES.get(architecture or "")
    return known is None or known.mig_toggle_needs_reset is not False


def mode_change(gpu: GpuFacts, wanted: bool) -> ModeChange:
    """Return what happens to the mode of a GPU."""
    mode = gpu.mig
    current, pending = mode.current, mode.pending
    if current == wanted:
        return ModeChange() if pending in (None, wanted) else ModeChange(KEEP, True)
    needs_reset = toggle_needs_reset(gpu.architecture) or pending == wanted
    return ModeChange(ON if wanted else OFF, pending != wanted, needs_reset)


def _steps(
    gpu: GpuFacts,
    plan: GpuPlan,
    change: ModeChange,
    disturbs: Sequence[str] = (),
    data: Mapping[str, Any] | None = None,
) -> tuple[Step, ...]:
    """Return what is done to a GPU, in order."""
    mode, details = [], {"gone": devices_of(gpu), **(data or {})}
    if change.set_mode and change.mode == KEEP:
        mode.append(gpu_step(Kind.CANCEL_MIG_CHANGE, gpu, "the mode is as wanted"))
    elif change.set_mode:
        kind = Kind.ENABLE_MIG if change.mode == ON else Kind.DISABLE_MIG
        mode.append(gpu_step(kind, gpu, f"wanted: {plan.desired}", disturbs, details))
    if change.mode in (ON, OFF) and change.needs_reset:
        why = "on this architecture the MIG mode changes by a reset"
        mode.append(gpu_step(Kind.RESET_GPU, gpu, why, disturbs, details))
    if change.mode == ON:
        return (*mode, *plan.steps(gpu))
    return (*plan.steps(gpu), *mode)


def describe_gpus(gpus: Sequence[NodeGpu]) -> list[dict[str, Any]]:
    """Return GPUs with their instances; GPUs without MIG are in it, with C(mig) null."""
    return [
        {
            **{key: getattr(gpu.facts, key) for key in ("index", "uuid", "pci_address", "name")},
            "mig": gpu.enabled,
            "mig_pending": gpu.facts.mig.pending,
            "instances": [
                {
                    **{key: getattr(instance, key) for key in ("id", "profile", "start", "size")},
                    "compute_instances": [
                        {key: getattr(compute, key) for key in ("id", "profile", "multiprocessors", "uuid")}
                        for compute in instance.compute_instances
                    ],
                }
                for instance in gpu.facts.gpu_instances
            ],
        }
        for gpu in gpus
    ]


def states(gpus: Sequence[NodeGpu], plan: MigPlan | None = None) -> dict[str, Any]:
    """Return the MIG state of the GPUs for people, as it is or as a plan makes it."""
    changes = {change.gpu.index: change for change in plan.changes} if plan is not None else {}
    found: dict[str, Any] = {}
    for gpu in gpus:
        change = changes.get(gpu.index)
        if change is not None and change.plan.unknown is not None:
            found[gpu.title] = {"mig": True, "instances": f"not known before MIG is on: {change.plan.desired}"}
        elif gpu.has_mig:
            found[gpu.title] = _state(gpu.record if change is None else change.after)
    return found


def _state(record: GpuRecord) -> Mapping[str, object]:
    return {
        "mig": record.mig,
        "instances": [
            f"{instance.profile} at {instance.start}:{instance.size}"
            + ("" if instance.compute == (parse(instance.profile).gpu_slices,) else f" {list(instance.compute)}")
            for instance in record.instances
        ],
    }


def stale_uuids(before: Sequence[NodeGpu], after: Sequence[NodeGpu]) -> list[str]:
    """Return the UUIDs of MIG devices that were there and are not any more, in order."""
    there = {uuid for gpu in after for uuid in devices_of(gpu.facts)}
    return [uuid for gpu in before for uuid in devices_of(gpu.facts) if uuid not in there]


def export(gpus: Sequence[NodeGpu], label: str) -> dict[str, Any]:
    """Return the GPUs, the layout in our form, and mig-parted's file. Raises Failure: a GPU does not tell its layout; what is exported without
    it would be wrong.
    """
    layouts: dict[int, DesiredGpu] = {}
    for gpu in gpus:
        if gpu.problem is not None:
            raise Failure(
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
