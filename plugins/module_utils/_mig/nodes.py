# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All GPUs of one host: their plans, and totals over the host that the planner places on GPUs.

C(distribute) is exact: no other distribution of the totals destroys fewer instances. It deepens the number of
destroyed instances from a lower bound and proves each bound impossible before it tries the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._boards.model import GpuInstanceProfile
from .._plan import Refused
from .geometry import Geometry, Request, bits, geometry
from .gpu_plan import GpuPlan
from .model import GpuInstance, GpuWish, InstanceWish, describe
from .planner import FORCE, IDLE_ONLY, REFUSE, plan_gpu


@dataclass(frozen=True)
class NodeGpu:
    """One GPU of a host.

    :param index: its index.
    :param current: the instances that exist.
    :param profiles: what it offers, with placements.
    :param enabled: whether MIG is on now, or None when unknown.
    :param busy: who uses the whole GPU while MIG is off; such a GPU cannot be partitioned without force.
    """

    index: int
    profiles: tuple[GpuInstanceProfile, ...]
    current: tuple[GpuInstance, ...] = ()
    enabled: bool | None = None
    busy: tuple[str, ...] = ()


@dataclass(frozen=True)
class NodePlan:
    """The plans of the GPUs of a host.

    :param gpus: by index.
    :param left_alone: GPUs that keep what they have because somebody uses it, and why; only with C(idle_only).
    """

    gpus: Mapping[int, GpuPlan] = field(default_factory=dict)
    left_alone: Mapping[int, Refused] = field(default_factory=dict)

    @property
    def changes(self) -> bool:
        return any(plan.changes for plan in self.gpus.values())

    @property
    def destroyed(self) -> int:
        return sum(len(plan.destroy) for plan in self.gpus.values())

    def as_dict(self) -> dict[str, Any]:
        return {
            "gpus": {index: plan.as_dict() for index, plan in self.gpus.items()},
            "left_alone": {index: refused.as_dict() for index, refused in self.left_alone.items()},
        }


def plan_node(gpus: Sequence[NodeGpu], wishes: Mapping[int, GpuWish], disruption: str = REFUSE) -> NodePlan:
    """Return the plans of all GPUs that have a wish.

    :param gpus: the GPUs of the host.
    :param wishes: what they are to be, by index.
    :param disruption: C(refuse): one GPU that cannot reach its wish without touching something busy refuses the host.
        C(idle_only): such a GPU is left alone and reported, the others are planned. C(force): busy instances may go.
    :raises Refused: when a wish cannot be met; before anything is planned for another GPU.
    """
    plans: dict[int, GpuPlan] = {}
    left_alone: dict[int, Refused] = {}
    for gpu in gpus:
        wish = wishes.get(gpu.index)
        if wish is None:
            continue
        thing = f"GPU {gpu.index}"
        try:
            _refuse_busy_whole(gpu, wish, disruption, thing)
            plans[gpu.index] = plan_gpu(gpu.current, wish, gpu.profiles, disruption, thing)
        except Refused as refused:
            if disruption != IDLE_ONLY:
                raise
            # What could not be met even on an idle GPU is refused; only somebody's use is a reason to leave it alone.
            plan_gpu(gpu.current, wish, gpu.profiles, FORCE, thing)
            left_alone[gpu.index] = refused
    return NodePlan(plans, left_alone)


def _refuse_busy_whole(gpu: NodeGpu, wish: GpuWish, disruption: str, thing: str) -> None:
    if gpu.busy and gpu.enabled is False and wish.enabled and disruption != FORCE:
        raise Refused(
            thing,
            f"MIG cannot be switched on while the GPU is in use: {', '.join(gpu.busy)}",
            "Stop its users, or set nvidia_mig_disruption to force.",
        )


@dataclass(frozen=True)
class _Option:
    """A part of the totals that one GPU can take.

    :ivar take: instances of each profile of the totals.
    :ivar destroyed: instances that the GPU loses.
    :ivar order: preference among equals: no change of mode, GPUs that hold instances already, fuller ones first.
    """

    take: Request
    destroyed: int
    order: tuple[int, ...]


def distribute(
    totals: Mapping[str, int], gpus: Sequence[NodeGpu], disruption: str = REFUSE, thing: str = "node"
) -> dict[int, GpuWish]:
    """Place totals over a host on its GPUs, destroying the fewest instances.

    GPUs that are given nothing have MIG off, so that they stay whole GPUs. Among the distributions that destroy the
    fewest, one is preferred that changes few modes and fills GPUs up, which is a preference and not an optimum.

    :param totals: how many instances of each GPU instance profile the host is to have.
    :param gpus: the GPUs that may be used.
    :param disruption: as in C(plan_node); busy instances are untouchable unless it is C(force).
    :param thing: what a refusal names: the path into the user's variables.
    :raises Refused: when the totals do not fit; names what does.
    """
    names = tuple(sorted(name for name, count in totals.items() if count))
    target = tuple(totals[name] for name in names)
    options = [_options(gpu, names, target, disruption, thing) for gpu in gpus]
    found = _deepen(gpus, names, target, options)
    if found is None:
        raise _refuse_totals(gpus, names, target, options, thing)
    wishes = {}
    for gpu, take in zip(gpus, found):
        instances = [
            InstanceWish(name, (_slices(gpu, name),)) for name, count in zip(names, take) for _number in range(count)
        ]
        wishes[gpu.index] = GpuWish(bool(instances), tuple(sorted(instances)))
    return wishes


def _slices(gpu: NodeGpu, name: str) -> int:
    return next(profile.gpu_slices for profile in gpu.profiles if profile.name == name)


def _options(gpu: NodeGpu, names: Sequence[str], target: Request, disruption: str, thing: str) -> list[_Option]:
    shape = geometry(gpu.profiles)
    columns = [shape.index.get(name) for name in names]
    slots = [
        shape.slot_bit.get((shape.index.get(instance.profile, -1), instance.start, instance.size), 0)
        for instance in gpu.current
    ]
    existing = sum(slots)
    pinned = 0
    if disruption != FORCE:
        if any(not slot and instance.users for instance, slot in zip(gpu.current, slots)):
            raise Refused(thing, f"GPU {gpu.index} has a busy instance of a profile that the node's totals cannot keep")
        pinned = sum(slot for instance, slot in zip(gpu.current, slots) if instance.users)
    found = []
    untouchable = bool(gpu.busy) and gpu.enabled is False and disruption != FORCE
    for take, request in _takes(shape, columns, target):
        if untouchable and any(take):
            continue
        kept = [bits(layout & existing) for layout in shape.layouts_of(request) if layout & pinned == pinned]
        if kept:
            used = sum(count * (_size(shape, column)) for count, column in zip(take, columns))
            turns = int(gpu.enabled is not None and gpu.enabled != any(take))
            found.append(_Option(take, len(gpu.current) - max(kept), (turns, -used)))
    return sorted(found, key=lambda option: (option.destroyed, option.order, option.take))


def _size(shape: Geometry, column: int | None) -> int:
    placements = None if column is None else shape.profiles[column].placements
    return placements.size if placements else 0


def _takes(shape: Geometry, columns: Sequence[int | None], target: Request) -> list[tuple[Request, Request]]:
    """Return every feasible part of the totals, as a part and as the GPU's own request."""
    width = len(shape.profiles)
    found: list[tuple[Request, Request]] = [((), (0,) * width)]
    for column, most in zip(columns, target):
        grown = []
        for take, request in found:
            grown.append((take + (0,), request))
            if column is None:
                continue
            for count in range(1, most + 1):
                more = request[:column] + (count,) + request[column + 1 :]
                if not shape.layouts_of(more):
                    break
                grown.append((take + (count,), more))
        found = grown
    return found


def _deepen(
    gpus: Sequence[NodeGpu], names: Sequence[str], target: Request, options: Sequence[list[_Option]]
) -> list[Request] | None:
    if any(not choices for choices in options):
        return None
    count = len(gpus)
    # What the GPUs from a position on can take at most, and have now, by profile and in units.
    most = [[0] * len(names) for _ in range(count + 1)]
    have = [[0] * len(names) for _ in range(count + 1)]
    foreign = [0] * (count + 1)
    for position in range(count - 1, -1, -1):
        held = [sum(1 for i in gpus[position].current if i.profile == name) for name in names]
        foreign[position] = foreign[position + 1] + len(gpus[position].current) - sum(held)
        for column in range(len(names)):
            best = max(option.take[column] for option in options[position])
            most[position][column] = most[position + 1][column] + best
            have[position][column] = have[position + 1][column] + held[column]

    def bound(position: int, left: Request) -> int:
        surplus = sum(max(0, held - wanted) for held, wanted in zip(have[position], left))
        return foreign[position] + surplus

    failed: dict[tuple[int, Request], int] = {}

    def search(position: int, left: Request, budget: int) -> list[Request] | None:
        if position == count:
            return [] if not any(left) else None
        if any(wanted > able for wanted, able in zip(left, most[position])):
            return None
        state = (position, left)
        if failed.get(state, -1) >= budget:
            return None
        for option in options[position]:
            if option.destroyed > budget:
                break
            if any(take > wanted for take, wanted in zip(option.take, left)):
                continue
            rest = tuple(wanted - take for take, wanted in zip(option.take, left))
            remaining = budget - option.destroyed
            if bound(position + 1, rest) <= remaining:
                found = search(position + 1, rest, remaining)
                if found is not None:
                    return [option.take, *found]
        failed[state] = max(budget, failed.get(state, -1))
        return None

    for budget in range(bound(0, target), sum(len(gpu.current) for gpu in gpus) + 1):
        found = search(0, target, budget)
        if found is not None:
            return found
    return None


def _refuse_totals(
    gpus: Sequence[NodeGpu], names: Sequence[str], target: Request, options: Sequence[list[_Option]], thing: str
) -> Refused:
    for column, name in enumerate(names):
        able = sum(max((option.take[column] for option in choices), default=0) for choices in options)
        if able < target[column]:
            return Refused(
                thing,
                f"{name}: {target[column]} asked, the {len(gpus)} GPUs can hold {able} of them",
                f"Ask for at most {able}.",
            )
    wanted = describe(dict(zip(names, target)))
    return Refused(thing, f"{wanted} does not fit on {len(gpus)} GPUs together", "Ask for fewer instances.")
