# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All GPUs of one host: their plans, and totals over the host that the planner places on GPUs.

C(distribute) is exact: no other distribution of the totals destroys fewer instances. It deepens the number of destroyed instances from a lower bound and
proves each bound impossible before it tries the next, so the first distribution found is an optimum.

Three things keep the search small. What is left to place must be in reach of the GPUs that are left, by each profile and by the memory units of each
group of profiles; what these GPUs hold beyond what is left must go anyway; and by prices of the profiles (Lagrange multipliers) each option has a cost
above the cheapest of its GPU, of which no more can be spent than the budget leaves. Prices are only looked for where a search without them takes long:
they cost milliseconds. All these numbers of a state are the fields of one integer, so that they are compared in one subtraction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from operator import mul
from typing import NamedTuple

from .._plan import Refused
from .geometry import Geometry, Request, geometry
from .model import DesiredGpu, DesiredInstance, describe
from .plan import FORCE, IDLE_ONLY, IN_USE_REMEDY, REFUSE, GpuPlan, geometry_with, plan_gpu, slot_of
from .state import NodeGpu

_WIDTH = 20
_FIELD = (1 << _WIDTH) - 1

# Prices are whole numbers of this part of an instance, so that bounds are exact.
_UNIT = 64
_PRICE_ROUNDS = 40
# A search of this many states takes about as long as looking for prices.
_QUICK_STATES = 300

# Beyond this many profiles not every group of them is bounded, only pairs and all together.
_ALL_GROUPS = 3


class _TakesLong(Exception):
    """The search went through more states than it may."""


class Option(NamedTuple):
    """A part of the totals that one GPU can take; the order of the fields is the order of preference.

    :ivar destroyed: instances that the GPU loses.
    :ivar turns: 1 when its MIG mode changes.
    :ivar emptiness: minus the memory units taken, so that GPUs are filled up before others are used.
    :ivar take: instances of each profile of the totals.
    """

    destroyed: int
    turns: int
    emptiness: int
    take: Request


def deepen(
    target: Request,
    options: Sequence[Sequence[Option]],
    held: Sequence[Request],
    foreign: Sequence[int],
    sizes: Sequence[int],
) -> list[Request] | None:
    """Return what each GPU takes, or None when the totals cannot be placed.

    :param held: what each GPU holds now, by profile of the totals.
    :param foreign: how many instances each GPU holds of profiles that the totals have none of.
    :param sizes: memory units of each profile, to weigh groups of profiles with.
    """
    if any(not choices for choices in options):
        return None
    groups = _groups(len(target))
    guard = _pack([1 << (_WIDTH - 1)] * (len(target) + len(groups)))
    low = (1 << (_WIDTH * len(target))) - 1
    low_guard = guard & low
    # Fields are sums, so the integer of an option is a sum over its instances.
    columns = range(len(target))
    units = [tuple(int(column == other) for other in columns) for column in columns]
    basis = [_pack(_fields(unit, groups, sizes)) for unit in units]
    packed = [[sum(map(mul, option.take, basis)) for option in choices] for choices in options]
    count = len(options)
    most, have = [0] * (count + 1), [0] * (count + 1)
    reaches: dict[frozenset[Request], int] = {}
    for position in range(count - 1, -1, -1):
        takes = frozenset(option.take for option in options[position])
        if takes not in reaches:
            # Most GPUs of a host can take the same.
            fields = [_fields(take, groups, sizes) for take in takes]
            reaches[takes] = _pack([max(column) for column in zip(*fields)])
        most[position] = most[position + 1] + reaches[takes]
        have[position] = have[position + 1] + _pack(held[position])
    # Instances of other profiles go wherever the totals are placed.
    strangers = [sum(foreign[position:]) for position in range(count + 1)]

    def surplus(position: int, left: int) -> int:
        beyond = (have[position] | low_guard) - (left & low)
        over = beyond & low_guard
        return (beyond & (over - (over >> (_WIDTH - 1)))) % _FIELD

    def within(prices: Sequence[int], states: int | None) -> list[Request] | None:
        """Search with prices of the profiles; with no more than so many states."""
        costs = [[option.destroyed * _UNIT - sum(map(mul, prices, option.take)) for option in one] for one in options]
        cheapest = [min(one) for one in costs]
        moves = [
            [
                (move, option.destroyed, cost - least, option.take)
                for move, cost, option in zip(packed[gpu], costs[gpu], options[gpu])
            ]
            for gpu, least in enumerate(cheapest)
        ]
        failed: dict[tuple[int, int], int] = {}

        def search(position: int, left: int, budget: int, spare: int) -> list[Request] | None:
            if position == count:
                return [] if not left else None
            state = (position, left & low)
            if failed.get(state, -1) >= budget:
                return None
            if states is not None and len(failed) > states:
                raise _TakesLong
            after = most[position + 1] | guard
            for move, destroyed, above, take in moves[position]:
                if destroyed > budget:
                    break
                if above > spare:
                    continue
                rest = (left | guard) - move
                if rest & guard != guard:
                    continue
                rest ^= guard
                if (after - rest) & guard != guard:
                    continue
                remaining = budget - destroyed
                if surplus(position + 1, rest) + strangers[position + 1] <= remaining:
                    found = search(position + 1, rest, remaining, spare - above)
                    if found is not None:
                        return [take, *found]
            failed[state] = budget
            return None

        bound = sum(cheapest) + sum(map(mul, prices, target))
        for budget in range(max(surplus(0, start) + strangers[0], -(-bound // _UNIT)), everything + 1):
            found = search(0, start, budget, budget * _UNIT - bound)
            if found is not None:
                return found
        return None

    start = sum(map(mul, target, basis))
    if ((most[0] | guard) - start) & guard != guard:
        return None
    everything = sum(sum(own) for own in held) + strangers[0]
    try:
        return within([0] * len(target), _QUICK_STATES)
    except _TakesLong:
        return within(_prices(target, options), None)


def _prices(target: Request, options: Sequence[Sequence[Option]]) -> list[int]:
    """Return prices of the profiles by which the sum of the cheapest options is a high bound: a subgradient ascent. Any prices give a bound that
    holds; better ones only make the search shorter.
    """
    prices = [0.0] * len(target)
    best, best_bound = prices, float("-inf")
    step = 0.5
    for _round in range(_PRICE_ROUNDS):
        bound, lacking = sum(map(mul, prices, target)), list(target)
        for choices in options:
            cost, take = min((option.destroyed - sum(map(mul, prices, option.take)), option.take) for option in choices)
            bound += cost
            lacking = [wanted - given for wanted, given in zip(lacking, take)]
        if bound > best_bound:
            best, best_bound = prices, bound
        length = sum(one * one for one in lacking)
        if not length:
            break
        prices = [price + step * one / length**0.5 for price, one in zip(prices, lacking)]
        step *= 0.92
    return [round(price * _UNIT) for price in best]


def _groups(columns: int) -> list[tuple[int, ...]]:
    widths = range(2, columns + 1) if columns <= _ALL_GROUPS else (2, columns)
    return [group for width in widths for group in combinations(range(columns), width)]


def _fields(counts: Sequence[int], groups: Sequence[tuple[int, ...]], sizes: Sequence[int]) -> list[int]:
    return [*counts, *(sum(counts[column] * sizes[column] for column in group) for group in groups)]


def _pack(numbers: Sequence[int]) -> int:
    packed = 0
    for number in reversed(numbers):
        packed = packed << _WIDTH | number
    return packed


_PER_GPU = "Write instances per GPU."


@dataclass(frozen=True)
class NodePlan:
    """The plans of the GPUs of a host. C(left_alone): GPUs that keep what they have because somebody uses it, and why; only with C(idle_only)."""

    gpus: Mapping[int, GpuPlan] = field(default_factory=dict)
    left_alone: Mapping[int, Refused] = field(default_factory=dict)


def plan_node(gpus: Sequence[NodeGpu], desired_gpus: Mapping[int, DesiredGpu], disruption: str = REFUSE) -> NodePlan:
    """Return the plans of all GPUs that have a desired state.

    :param desired_gpus: what they are to be, by index.
    :param disruption: C(refuse): one GPU that cannot reach its desired state without touching something busy refuses the host.
        C(idle_only): such a GPU is left alone and reported, the others are planned. C(force): busy instances may go.
    :raises Refused: when a desired state cannot be met; every GPU of which that holds is named, with whoever uses it.
    """
    plans: dict[int, GpuPlan] = {}
    left_alone: dict[int, Refused] = {}
    refusals: list[Refused] = []
    for gpu in gpus:
        desired = desired_gpus.get(gpu.index)
        if desired is None:
            continue
        thing = f"GPU {gpu.index}"
        try:
            _refuse_busy_whole(gpu, desired, disruption, thing)
            plans[gpu.index] = plan_gpu(gpu.current, desired, gpu.profiles, disruption, thing)
        except Refused as refused:
            if disruption != IDLE_ONLY:
                refusals.append(refused)
                continue
            # What could not be met even on an idle GPU is refused; only somebody's use is a reason to leave it alone.
            plan_gpu(gpu.current, desired, gpu.profiles, FORCE, thing)
            left_alone[gpu.index] = refused
    if refusals:
        raise _of_all(refusals)
    return NodePlan(plans, left_alone)


def _of_all(refusals: Sequence[Refused]) -> Refused:
    """Return one refusal for several GPUs; those that are refused for the same reason stand together."""
    things: dict[str, list[str]] = {}
    for refusal in refusals:
        things.setdefault(refusal.reason, []).append(refusal.thing)
    (reason, first), *others = things.items()
    reasons = [reason, *(f"{', '.join(more)}: {text}" for text, more in others)]
    return Refused(", ".join(first), "; ".join(reasons), refusals[0].remedy)


def _refuse_busy_whole(gpu: NodeGpu, desired: DesiredGpu, disruption: str, thing: str) -> None:
    changes = gpu.enabled is not None and gpu.enabled != desired.enabled
    # Users of instances are named with these.
    if changes and gpu.busy and not any(instance.users for instance in gpu.current) and disruption != FORCE:
        mode = "on" if desired.enabled else "off"
        reason = f"MIG cannot be switched {mode} while the GPU is in use: {', '.join(gpu.busy)}"
        raise Refused(thing, reason, IN_USE_REMEDY)


def distribute(
    totals: Mapping[str, int], gpus: Sequence[NodeGpu], disruption: str = REFUSE, thing: str = "node"
) -> dict[int, DesiredGpu]:
    """Place totals over a host on its GPUs, destroying the fewest instances.

    GPUs that are given nothing have MIG off, so that they stay whole GPUs. Among the distributions that destroy the
    fewest, one is preferred that changes few modes and fills GPUs up, which is a preference and not an optimum.

    :param disruption: as in C(plan_node); busy instances are untouchable unless it is C(force).
    :raises Refused: when the totals do not fit; names what does.
    """
    names = tuple(sorted(name for name, count in totals.items() if count))
    target = tuple(totals[name] for name in names)
    parts: dict[Geometry, dict[int, tuple[Request, int]]] = {}
    options = [_options(gpu, names, target, disruption, thing, parts) for gpu in gpus]
    found = _search(gpus, names, target, options)
    if found is None:
        raise _refuse_totals(gpus, names, target, options, thing)
    desired_gpus = {}
    for gpu, take in zip(gpus, found):
        instances = [
            DesiredInstance(name, (_slices(gpu, name),)) for name, count in zip(names, take) for _number in range(count)
        ]
        desired_gpus[gpu.index] = DesiredGpu(bool(instances), tuple(sorted(instances)))
    return desired_gpus


def _slices(gpu: NodeGpu, name: str) -> int:
    return next(profile.gpu_slices for profile in gpu.profiles if profile.name == name)


def _options(
    gpu: NodeGpu,
    names: Sequence[str],
    target: Request,
    disruption: str,
    thing: str,
    parts: dict[Geometry, dict[int, tuple[Request, int]]],
) -> list[Option]:
    shape = geometry_with(gpu.profiles, gpu.current)
    slots = [slot_of(shape, instance) for instance in gpu.current]
    existing = sum(slots)
    pinned = 0
    if disruption != FORCE:
        if any(not slot and instance.users for instance, slot in zip(gpu.current, slots)):
            raise Refused(thing, f"GPU {gpu.index} has a busy instance of a profile that the node's totals cannot keep")
        pinned = sum(slot for instance, slot in zip(gpu.current, slots) if instance.users)
    if not shape.feasible(existing):
        raise Refused(thing, f"the instances of GPU {gpu.index} match no known layout", _PER_GPU)
    if shape not in parts:
        parts[shape] = _parts(shape, names, target)
    allowed = parts[shape]
    untouchable = bool(gpu.busy) and gpu.enabled is False and disruption != FORCE
    total, found = len(gpu.current), []
    for number, kept in shape.kept_by_request(existing, pinned).items():
        if number not in allowed:
            continue
        take, used = allowed[number]
        if used and untouchable:
            continue
        turns = int(gpu.enabled is not None and gpu.enabled != bool(used))
        found.append(Option(total - kept, turns, -used, take))
    return sorted(found)


def _parts(shape: Geometry, names: Sequence[str], target: Request) -> dict[int, tuple[Request, int]]:
    """Return the requests of a GPU that are parts of the totals, by number: the part, and its memory units."""
    columns = [shape.index.get(name) for name in names]
    sizes = [_size(shape, column) for column in columns]
    found = {}
    for number, request in enumerate(shape.requests()):
        take = tuple(0 if column is None else request[column] for column in columns)
        if sum(take) == sum(request) and all(part <= most for part, most in zip(take, target)):
            found[number] = (take, sum(part * size for part, size in zip(take, sizes)))
    return found


def _size(shape: Geometry, column: int | None) -> int:
    placements = None if column is None else shape.profiles[column].placements
    return placements.size if placements else 0


def _search(
    gpus: Sequence[NodeGpu], names: Sequence[str], target: Request, options: Sequence[list[Option]]
) -> list[Request] | None:
    held = [tuple(sum(1 for i in gpu.current if i.profile == name) for name in names) for gpu in gpus]
    foreign = [len(gpu.current) - sum(own) for gpu, own in zip(gpus, held)]
    sizes = [
        max(_size(geometry(gpu.profiles), geometry(gpu.profiles).index.get(name)) for gpu in gpus) for name in names
    ]
    return deepen(target, options, held, foreign, sizes)


def _refuse_totals(
    gpus: Sequence[NodeGpu], names: Sequence[str], target: Request, options: Sequence[list[Option]], thing: str
) -> Refused:
    for column, name in enumerate(names):
        able = sum(max((option.take[column] for option in choices), default=0) for choices in options)
        if able < target[column]:
            reason = f"{name}: {target[column]} requested, the {len(gpus)} GPUs can hold {able} of them"
            return Refused(thing, reason, f"Ask for at most {able}.")
    wanted = describe(dict(zip(names, target)))
    return Refused(thing, f"{wanted} does not fit on {len(gpus)} GPUs together", "Ask for fewer instances.")
