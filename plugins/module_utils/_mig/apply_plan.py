# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From GPUs and desired states to what is applied: the instances by the planner, and the MIG modes around them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .._plan import Refused, Step
from .current import HostGpu
from .mode import OFF, ON, ModeChange, mode_change, steps
from .model import DesiredGpu
from .nodes import plan_node
from .plan import IDLE_ONLY, GpuPlan


@dataclass(frozen=True)
class GpuChange:
    """What happens to one GPU.

    :param plan: its instances.
    :param toggle: its mode.
    :param deferred: why the change of mode has to wait for a reboot, and the instances with it; None when it need not.
    """

    gpu: HostGpu
    plan: GpuPlan
    toggle: ModeChange = field(default_factory=ModeChange)
    deferred: str | None = None

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
        """Return what is done, in order."""
        return steps(self.gpu.facts, self.plan, self.toggle, self.deferred is not None)


@dataclass(frozen=True)
class MigPlan:
    """What happens to a host.

    :param changes: one for every selected GPU, by index.
    :param left_alone: GPUs that keep what they have because somebody uses it, and why (disruption C(idle_only)).
    :param missing: what the desired state wants and no plan can give, because something in use is in its place.
    """

    changes: tuple[GpuChange, ...]
    left_alone: Mapping[int, Refused]
    missing: tuple[str, ...] = ()

    @property
    def active(self) -> tuple[GpuChange, ...]:
        """The GPUs that something is done to."""
        return tuple(change for change in self.changes if change.changes)

    @property
    def deferred(self) -> Mapping[int, str]:
        """Why GPUs wait for a reboot, by index."""
        return {change.gpu.index: change.deferred for change in self.changes if change.deferred is not None}

    @property
    def unknown(self) -> tuple[str, ...]:
        """Why the instances of a GPU cannot be planned before its MIG mode is on."""
        return tuple(f"{c.gpu.title}: {c.plan.unknown}" for c in self.changes if c.plan.unknown is not None)

    def steps(self) -> tuple[Step, ...]:
        return tuple(step for change in self.active for step in change.steps())


def plan_host(
    gpus: Sequence[HostGpu],
    desired_gpus: Mapping[int, DesiredGpu],
    disruption: str,
    reboot_allowed: bool,
    no_reset: Mapping[int, str],
) -> MigPlan:
    """Return the plan of a host.

    :param gpus: all GPUs of the host.
    :param desired_gpus: what the selected ones are to be, by index.
    :param disruption: see C(planner).
    :param reboot_allowed: whether a GPU that cannot be reset may wait for a reboot; otherwise it refuses the host.
    :param no_reset: why GPUs cannot be reset now, by index.
    :raises Refused: the desired state cannot be met; nothing was touched.
    """
    for gpu in gpus:
        if gpu.index in desired_gpus and gpu.problem is not None:
            raise Refused(
                gpu.title,
                f"its MIG state cannot be read: {gpu.problem}",
                "Check it with the module gpufleet.nvidia.health, or select other GPUs in nvidia_mig_layout.",
            )
    node = plan_node([gpu.node for gpu in gpus], desired_gpus, disruption)
    left_alone = dict(node.left_alone)
    changes = []
    for gpu in gpus:
        plan = node.gpus.get(gpu.index)
        if plan is None:
            continue
        change = gpu_change(gpu, plan, no_reset)
        if change.deferred is not None and not reboot_allowed:
            refused = _refuse_reboot(change)
            if disruption != IDLE_ONLY:
                raise refused
            left_alone[gpu.index] = refused
            continue
        changes.append(change)
    return MigPlan(tuple(changes), left_alone)


def gpu_change(gpu: HostGpu, plan: GpuPlan, no_reset: Mapping[int, str]) -> GpuChange:
    """Return what happens to one GPU: its instances as planned, and the mode that they need."""
    toggle = mode_change(gpu.facts, plan.desired.enabled) if gpu.has_mig else ModeChange()
    return GpuChange(gpu, plan, toggle, no_reset.get(gpu.index) if toggle.needs_reset else None)


def _refuse_reboot(change: GpuChange) -> Refused:
    return Refused(
        change.gpu.title,
        f"MIG can be switched {change.mode} only by a reset or a reboot, and the GPU cannot be reset: {change.deferred}",
        "Stop the processes that hold it, name their services in nvidia_mig_restart_services, or allow a reboot (nvidia_mig_reboot: true).",
    )
