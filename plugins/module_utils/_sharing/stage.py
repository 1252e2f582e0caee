# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The sharing stage of C(site): what a host has to do for its pool's sharing, from facts alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._boards.lookup import BOARDS
from .._plan import Refused, StagePlan, Step
from . import arithmetic, modes, mps_plan
from .host import PRIORITIES, SCOPES, Daemon, HostOptions, HostSharing, host_sharing

STAGE = "sharing"


def stage(facts: Mapping[str, Any], wish: Mapping[str, Any]) -> StagePlan:
    """Plan the sharing of a host.

    :param facts: the facts document of M(gpufleet.nvidia.gpu_info).
    :param wish: the variables of all host roles; C(nvidia_sharing_*) and C(nvidia_mig_strategy) are read.
    :raises Refused: the wish contradicts itself, or can never be met by the GPUs of this host.
    """
    sharing = modes.read(wish)
    options = host_options(wish)
    strategy = str(wish.get("nvidia_mig_strategy") or "none")
    modes.refuse_on_mig(sharing, strategy)
    gpus = [gpu for gpu in facts.get("gpus") or () if isinstance(gpu, Mapping)]
    for gpu in gpus:
        _refuse_on_gpu(sharing, gpu)
    if not gpus:
        steps = _steps_of_boards(sharing, options, strategy, facts)
        reason = (facts.get("nvml") or {}).get("reason") or "no GPU is visible"
        return StagePlan(STAGE, needed=True, steps=steps, unknown=f"the GPUs cannot be asked yet: {reason}")
    if strategy != "none" or any((gpu.get("mig") or {}).get("current") for gpu in gpus):
        return _on_mig(sharing, options, gpus, facts)
    return _planned(host_sharing(sharing, options, gpus), facts, gpus)


def host_options(wish: Mapping[str, Any]) -> HostOptions:
    """Return how the host runs MPS, from the variables C(nvidia_sharing_mps_*).

    :raises Refused: a value that is none of its choices.
    """
    scope = str(wish.get("nvidia_sharing_mps_scope") or "node")
    priority = str(wish.get("nvidia_sharing_mps_priority") or "normal")
    percentage = float(wish.get("nvidia_sharing_mps_active_thread_percentage") or 0)
    for name, value, choices in (("scope", scope, SCOPES), ("priority", priority, tuple(PRIORITIES))):
        if value not in choices:
            raise Refused(
                f"nvidia_sharing_mps_{name}", f"{value!r} is no value of it", f"One of: {', '.join(choices)}."
            )
    if not 0 <= percentage <= 100:
        name = "nvidia_sharing_mps_active_thread_percentage"
        raise Refused(name, f"{percentage:g} is no percentage", "Use 0 to 100; 0 means all threads.")
    limits = {}
    for number, entry in enumerate(wish.get("nvidia_sharing_mps_limits") or ()):
        path = f"nvidia_sharing_mps_limits[{number}]"
        if not isinstance(entry, Mapping) or "gpu" not in entry or "memory" not in entry:
            raise Refused(path, "an entry names a gpu and its memory", "For example: {gpu: 0, memory: 8GiB}.")
        limits[int(entry["gpu"])] = arithmetic.memory_mib(str(entry["memory"]), f"{path}.memory")
    multi_user = bool(wish.get("nvidia_sharing_mps_multi_user", False))
    protocol = int(wish.get("nvidia_sharing_mps_protocol") or 2)
    return HostOptions(scope, percentage, priority, multi_user, limits, protocol)


def _refuse_on_gpu(sharing: modes.Sharing, gpu: Mapping[str, Any]) -> None:
    if sharing.mode != "mps":
        return
    memory = gpu.get("memory_mib")
    mig = (gpu.get("mig") or {}).get("current")
    if mig or (memory is None and not sharing.replicas):
        return
    replicas = sharing.replicas_on(memory)
    thing = "nvidia_sharing_replicas" if sharing.replicas else "nvidia_sharing_memory_slice"
    arithmetic.refuse_too_many_clients(replicas, gpu.get("architecture"), f"{thing} on GPU {gpu.get('index')}")


def _steps_of_boards(
    sharing: modes.Sharing, options: HostOptions, strategy: str, facts: Mapping[str, Any]
) -> tuple[Step, ...]:
    """Plan for the boards on the PCI bus, before there is a driver to ask. What depends on MIG devices is left open.

    With ECC switched off a driver reports more memory than the table of boards has, up to what the label says: only what is refused with
    either is refused, for the driver would refuse it as well.

    :raises Refused: what these boards can never do.
    """
    try:
        return _steps_of_cards(sharing, options, strategy, facts, most=False)
    except Refused:
        return _steps_of_cards(sharing, options, strategy, facts, most=True)


def _steps_of_cards(
    sharing: modes.Sharing, options: HostOptions, strategy: str, facts: Mapping[str, Any], most: bool
) -> tuple[Step, ...]:
    """Plan for boards with the memory of the table or, with C(most), with the most that a driver can report of them."""
    boards = {board.key: board for board in BOARDS}
    cards = [card for card in facts.get("pci") or () if card.get("kind") == "gpu"]
    gpus = []
    for index, card in enumerate(sorted(cards, key=lambda one: str(one.get("address")))):
        board = boards.get(str(card.get("board")))
        if board is None or board.total_memory_mib is None:
            return ()
        memory = board.most_memory_mib if most else board.total_memory_mib
        gpus.append({"index": index, "memory_mib": memory, "architecture": board.architecture})
        _refuse_on_gpu(sharing, gpus[-1])
    if not gpus or strategy != "none" or options.scope == "instance":
        return ()
    wanted = host_sharing(sharing, options, [{**gpu, "uuid": ""} for gpu in gpus])
    steps = [Step("set compute mode", f"GPU {gpu['index']}", f"the wish is {wanted.compute_mode}") for gpu in gpus]
    plan = mps_plan.plan(mps_plan.Observed(recorded=_recorded(facts)), wanted, "force")
    return (*(steps if wanted.compute_mode not in (None, "default") else ()), *plan.steps)


def _on_mig(
    sharing: modes.Sharing, options: HostOptions, gpus: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]
) -> StagePlan:
    """With MIG the devices to share are those that the stage before this one makes; when it changes nothing, those that are there."""
    there = any(gpu.get("gpu_instances") for gpu in gpus)
    if sharing.mode == "mps" and sharing.mps_manager == "host" and not (options.scope == "instance" and there):
        return StagePlan(
            STAGE, needed=True, unknown="MIG devices are made by the stage before; the daemons follow from them"
        )
    return _planned(host_sharing(sharing, options, gpus), facts, gpus)


def _planned(wanted: HostSharing, facts: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]]) -> StagePlan:
    plan = mps_plan.plan(_observed(facts, gpus), wanted, "force")
    return StagePlan(STAGE, needed=plan.changes, steps=plan.steps, warnings=plan.warnings)


def _observed(facts: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]]) -> mps_plan.Observed:
    """What facts tell of the present sharing. Who the clients of a daemon are, only the module on the host sees."""
    recorded = _recorded(facts)
    answering = {
        str(daemon.get("pipe_directory")): daemon for daemon in facts.get("mps") or () if daemon.get("responds")
    }
    return mps_plan.Observed(
        gpus=tuple(
            mps_plan.ObservedGpu(int(gpu["index"]), str(gpu.get("uuid")), gpu.get("compute_mode")) for gpu in gpus
        ),
        daemons=tuple(_daemon(daemon, daemon.pipe_directory in answering) for daemon in recorded.daemons)
        if recorded
        else (),
        recorded=recorded,
    )


def _recorded(facts: Mapping[str, Any]) -> HostSharing | None:
    record = (facts.get("recorded") or {}).get("sharing")
    try:
        return HostSharing.from_dict(record) if record else None
    except (AttributeError, KeyError, TypeError, ValueError):
        # What cannot be read is written anew.
        return None


def _daemon(daemon: Daemon, responds: bool) -> mps_plan.ObservedDaemon:
    """A recorded daemon is taken for configured as recorded: its unit and its record are written together."""
    return mps_plan.ObservedDaemon(
        name=daemon.name,
        configured=daemon,
        responds=responds,
        enabled=True,
        percentage=daemon.percentage,
        limits=tuple(mps_plan.limit_text(mib) for mib in daemon.limits_mib),
        priority=str(daemon.priority),
    )
