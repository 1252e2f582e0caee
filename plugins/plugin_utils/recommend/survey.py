# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet as it is: from the facts of hosts, and who uses which device, to groups of GPUs in the same state. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...module_utils._boards.board import GpuInstanceProfile
from ...module_utils._boards.cards import board_of
from ...module_utils._facts_view import Facts
from ...module_utils._mig.plan import geometry_with, named_as, slot_of
from ...module_utils._mig.state import NodeGpu, node_gpus
from ...module_utils._users import UNREPORTED, users_of
from .problem import GPU, FleetGpu, Group, HeldInstance, Place


@dataclass(frozen=True)
class SurveyedHost:
    """One host of the fleet.

    :param single: its strategy is C(single): all its GPUs are one unit.
    :param fixed: nothing may change on it.
    :param users: who uses which device, by UUID. C(priorities): of the users, by name; 0 where nothing is said.
    """

    name: str
    pool: str
    facts: Facts
    single: bool = False
    fixed: bool = False
    users: Mapping[str, Sequence[str]] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class FleetSurvey:
    """What was found.

    :param users: who uses what of each GPU, by host and index.
    :param left_out: GPUs that are not planned, by name, and why.
    """

    boards: Mapping[str, tuple[GpuInstanceProfile, ...]]
    groups: tuple[Group, ...]
    users: Mapping[tuple[str, int], Mapping[Place, Sequence[str]]]
    left_out: Mapping[str, str]

    @property
    def pools(self) -> dict[str, list[str]]:
        """Return the boards of each pool."""
        found: dict[str, set[str]] = {}
        for group in self.groups:
            for state in group.states:
                found.setdefault(state.pool, set()).add(state.board)
        return {pool: sorted(boards) for pool, boards in sorted(found.items())}


def survey(hosts: Sequence[SurveyedHost]) -> FleetSurvey:
    """Return the fleet. A GPU is left out of which it is not known who uses it, or what can become of it."""
    tables: dict[tuple[str, tuple[GpuInstanceProfile, ...]], str] = {}
    found: dict[tuple[FleetGpu, ...], list[tuple[str, tuple[int, ...]]]] = {}
    users: dict[tuple[str, int], dict[Place, tuple[str, ...]]] = {}
    left_out: dict[str, str] = {}
    for host in sorted(hosts, key=lambda one: one.name):
        states: list[tuple[FleetGpu, int]] = []
        if not host.facts.gpus:
            left_out[host.name] = "no driver reports a GPU of it"
        for gpu in node_gpus(host.facts):
            reason = _unplannable(gpu)
            if reason:
                left_out[f"{host.name}: {gpu.facts.title}"] = reason
            else:
                there = users[host.name, gpu.index] = _users(host, gpu)
                states.append((_state(host, gpu, there, tables), gpu.index))
        if host.single and len(states) < len(host.facts.gpus or ()):
            reason = "its strategy is single, and another GPU of the host is left out"
            left_out.update({f"{host.name}: GPU {index}": reason for _state_of_it, index in states})
            continue
        # GPUs of a node are alike in any order.
        node = sorted(states, key=lambda one: (repr(one[0]), one[1]))
        for unit in ([node] if node else []) if host.single else [[one] for one in states]:
            indices = tuple(index for _state_of_it, index in unit)
            found.setdefault(tuple(state for state, _index in unit), []).append((host.name, indices))
    groups = (Group(states, len(units), *map(tuple, zip(*units))) for states, units in found.items())
    boards = {name: profiles for (_board, profiles), name in tables.items()}
    return FleetSurvey(boards, tuple(groups), users, left_out)


def _users(host: SurveyedHost, gpu: NodeGpu) -> dict[Place, tuple[str, ...]]:
    """Return who uses what can be used of a GPU."""
    devices: list[tuple[Place, list[str | None]]] = [(GPU, [gpu.facts.uuid])]
    if gpu.enabled:
        current = sorted(named_as(gpu.current, gpu.profiles), key=lambda one: one.start)
        devices = [((one.profile, one.start, one.size), [each.uuid for each in one.compute]) for one in current]
    return {place: tuple(who for uuid in uuids for who in host.users.get(str(uuid), ())) for place, uuids in devices}


def _unplannable(gpu: NodeGpu) -> str | None:
    """Return why a GPU is left out, or None."""
    if gpu.problem is not None:
        return gpu.problem
    if gpu.enabled is None and gpu.profiles:
        return "its MIG mode is not known"
    if any(user.kind == UNREPORTED for user in users_of(gpu.facts).everybody):
        return "NVML reports no processes, so the GPU may be in use"
    current = named_as(gpu.current, gpu.profiles)
    shape = geometry_with(gpu.profiles, current) if gpu.enabled else None
    for instance in current if shape is not None else ():
        if shape is not None and not slot_of(shape, instance):
            return f"no table has its instance {instance.place}"
        own = next(profile for profile in gpu.profiles if profile.name == instance.profile)
        if [compute.slices for compute in instance.compute] not in ([own.gpu_slices], []):
            return f"compute instances divide its instance {instance.place}"
    return None


def _state(
    host: SurveyedHost,
    gpu: NodeGpu,
    users: Mapping[Place, Sequence[str]],
    tables: dict[tuple[str, tuple[GpuInstanceProfile, ...]], str],
) -> FleetGpu:
    known = board_of(gpu.facts)
    key = known.key if known is not None else gpu.facts.name or "unknown"
    # Drivers differ in what they offer of a board: such are boards of their own.
    name = tables.get((key, gpu.profiles))
    if name is None:
        number = sum(1 for board, _profiles in tables if board == key)
        name = tables[key, gpu.profiles] = f"{key} ({number + 1})" if number else key

    ranks = {place: tuple(sorted(host.priorities.get(who, 0) for who in names)) for place, names in users.items()}
    if not gpu.enabled:
        return FleetGpu(host.pool, name, False, (), ranks[GPU], host.fixed)
    return FleetGpu(
        host.pool, name, True, tuple(HeldInstance(*place, there) for place, there in ranks.items()), (), host.fixed
    )
