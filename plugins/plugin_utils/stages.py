# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stages of C(site), each with the pure function that plans it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Callable

from ansible import constants as C
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import cards_on_bus, described_board
from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm.stage import stage as dcgm
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.stage import stage as driver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.stage import PROGRAM
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.stage import stage as boot
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.stage import stage as mig
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused, StagePlan
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.reload_risk import refused_reload
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.stage import stage as runtime
from ansible_collections.gpufleet.nvidia.plugins.module_utils._settings.stage import stage as settings
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.stage import stage as sharing
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.state import sharing_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.stage import stage as toolkit
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.driver_advisories import VARIABLE, read_folder
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_program import program_identity

StageFunction = Callable[[Mapping[str, Any], Mapping[str, Any]], StagePlan]

#: In the order in which they run.
STAGES: dict[str, StageFunction] = {
    "driver": driver,
    "toolkit": toolkit,
    "runtime": runtime,
    # Units of the stages after it call the host program.
    "boot": boot,
    "settings": settings,
    "mig": mig,
    "sharing": sharing,
    "dcgm": dcgm,
}
#: Those that write units of systemd.
_WRITE_UNITS = ("driver", "boot", "sharing")


def plan_stages(facts: Mapping[str, Any], desired: Mapping[str, Any]) -> dict[str, StagePlan]:
    """Return the plan of every stage; a refusal that a stage raises becomes one that it reports.

    :param facts: the facts document of C(gpu_info).
    :param desired: the variables of all host roles.
    :return: plans by stage; of a host that was read without root, or has no GPUs or others than described, only one, that says so.
    """
    for name, refusal in (("privileges", _without_root(facts)), ("hardware", _other_gpus(facts, desired))):
        if refusal:
            return {name: StagePlan(name, needed=True, refusals=(refusal,))}
    plans = {}
    facts, lost = without_lost_gpus(facts)
    try:
        given = {
            **desired,
            VARIABLE: read_folder(str(desired.get(VARIABLE) or "")),
            PROGRAM: program_identity(C.DEFAULT_LOCAL_TMP),
        }
    except Refused as refusal:
        return {"driver": StagePlan("driver", needed=True, refusals=(refusal,))}
    for name, function in STAGES.items():
        try:
            plans[name] = function(facts, given)
        except Refused as refusal:
            plans[name] = StagePlan(name, needed=True, refusals=(refusal,))
    former = former_layout(facts, desired)
    if former is not None and plans["mig"].steps:
        plans["mig"] = replace(plans["mig"], refusals=(*plans["mig"].refusals, former))
    if lost:
        plans = _beside_lost_gpus(plans, lost)
    writing = next((plan for name, plan in plans.items() if name in _WRITE_UNITS and plan.steps), None)
    if writing is not None:
        plans[writing.stage] = replace(writing, warnings=(*writing.warnings, *refused_reload(facts, desired)))
    return plans


def former_layout(facts: Mapping[str, Any], desired: Mapping[str, Any]) -> Refused | None:
    """Return that the described layout is the one whose place C(repartition) took, and would take that back; None where it is not, or may."""
    former = ((facts.get("recorded") or {}).get("rolled_out") or {}).get("former_layout") or {}
    layout, strategy = desired.get("nvidia_mig_layout"), desired.get("nvidia_mig_strategy")
    if not layout or (former.get("layout"), former.get("strategy")) != (layout, strategy):
        return None
    if desired.get("nvidia_mig_disruption") == "force":
        return None
    return Refused(
        "nvidia_mig_layout",
        "it is the layout that repartition replaced on this host, and the inventory did not follow",
        "Write the new layout into the inventory, go back with gpufleet.nvidia.repartition, or set nvidia_mig_disruption to force.",
    )


def _without_root(facts: Mapping[str, Any]) -> Refused | None:
    """Without root a daemon that runs seems dead, and a plan would want to start it: nothing is concluded from such facts."""
    if (facts.get("host") or {}).get("root") is not False:
        return None
    return Refused(
        "become",
        "this host was read without root, which hides its daemons and who uses its GPUs",
        "Let Ansible become root on it: remove ansible_become: false and ansible_become_user from its variables, and give "
        "--ask-become-pass where sudo asks for a password.",
    )


def without_lost_gpus(facts: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Return the facts as if GPUs that fell off the bus were not there, and which these are; empty where all GPUs answer.

    That they fell off is a matter of function. What the host records of them stays for when they are back.
    """
    gpus = [gpu for gpu in facts.get("gpus") or () if not gpu.get("lost")]
    lost = [str(gpu["index"]) for gpu in facts.get("gpus") or () if gpu.get("lost")]
    if not lost:
        return facts, ""
    return {**facts, "gpus": gpus, **_daemons_of(gpus, facts)}, f"GPU {', '.join(lost)}"


def _daemons_of(gpus: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of the facts about MPS daemons of the host as if they served these GPUs alone."""
    record = sharing_of(facts)
    if record is None or not record.daemons:
        return {}
    instances = [one for gpu in gpus for one in gpu.get("gpu_instances") or ()]
    there = {part.get("uuid") for one in instances for part in one.get("compute_instances") or ()}
    there |= {gpu.get("uuid") for gpu in gpus}
    kept = {
        daemon.pipe_directory: [number for number, device in enumerate(daemon.devices) if device in there]
        for daemon in record.daemons
    }
    daemons = tuple(
        replace(
            daemon,
            devices=_at(daemon.devices, kept[daemon.pipe_directory]),
            limits_mib=_at(daemon.limits_mib, kept[daemon.pipe_directory]),
        )
        for daemon in record.daemons
        if kept[daemon.pipe_directory]
    )
    running = [
        {**one, "limits": list(_at(one["limits"], kept[one["pipe_directory"]]))}
        if one.get("limits") and one.get("pipe_directory") in kept
        else one
        for one in facts.get("mps") or ()
    ]
    recorded = {**(facts.get("recorded") or {}), "sharing": replace(record, daemons=daemons).as_dict()}
    return {"mps": running, "recorded": recorded}


def _at(values: Sequence[Any], positions: Sequence[int]) -> tuple[Any, ...]:
    return tuple(values[number] for number in positions if number < len(values))


def _beside_lost_gpus(plans: Mapping[str, StagePlan], lost: str) -> dict[str, StagePlan]:
    """Name the GPUs that nothing is planned for. What the description says of single ones cannot be judged without them."""
    driver = plans["driver"]
    found = {
        **plans,
        "driver": replace(driver, warnings=(*driver.warnings, f"{lost} fell off the bus: nothing is planned for it")),
    }
    for name in ("mig", "sharing"):
        if plans[name].refusals:
            reasons = "; ".join(refusal.reason for refusal in plans[name].refusals)
            found[name] = replace(plans[name], refusals=(), unread=f"{lost} fell off the bus, and without it {reasons}")
    return found


def _other_gpus(facts: Mapping[str, Any], desired: Mapping[str, Any]) -> Refused | None:
    """Nothing is installed for GPUs that are not there. What could not be read is not taken for absent."""
    if facts.get("pci") is None:
        return None
    boards = [card.get("board") for card in cards_on_bus(facts)]
    there = len(boards)
    described: Counter[Any] = Counter()
    try:
        for number, entry in enumerate(desired.get("gpu_facts_gpus") or ()):
            board = described_board(entry["board"], f"gpu_facts_gpus[{number}].board")
            described[board.key] += int(entry["count"])
    except Refused as refusal:
        return refusal
    count = sum(described.values())
    if there and count and there != count:
        return Refused(
            "gpu_facts_gpus",
            f"the host is described with {count} GPUs, and its PCI bus shows {there}",
            "Correct the variable, or look for the missing board: lspci -d 10de:",
        )
    # A board that the table does not have may be any.
    others = Counter(board for board in boards if board is not None) - described
    if count and others:
        return Refused(
            "gpu_facts_gpus",
            f"the host is described with {_counted(described)}, and its PCI bus shows {_counted(Counter(boards))}",
            "Correct the variable, or see which boards are in the host: lspci -d 10de:",
        )
    if there or facts.get("gpus"):
        return None
    return Refused(
        "the group gpu_hosts",
        "this host has no NVIDIA GPU on its PCI bus",
        "Take it out of the group, or see whether the board is seated and powered: lspci -d 10de:",
    )


def _counted(boards: Mapping[Any, int]) -> str:
    return ", ".join(f"{count} x {board or 'an unlisted board'}" for board, count in sorted(boards.items(), key=str))
