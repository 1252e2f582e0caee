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

from ..module_utils._boards.cards import cards_of_machines, cards_on_bus
from ..module_utils._boards.lookup import MACHINE_DRIVERS, described_board
from ..module_utils._dcgm.stage import stage as dcgm
from ..module_utils._driver.stage import stage as driver
from ..module_utils._facts_view import Facts
from ..module_utils._formats.documents import whole_number
from ..module_utils._host.stage import PROGRAM
from ..module_utils._host.stage import stage as boot
from ..module_utils._mig.stage import stage as mig
from ..module_utils._plan import Refused, StagePlan
from ..module_utils._printable import amount
from ..module_utils._runtime.stage import refused_reload
from ..module_utils._runtime.stage import stage as runtime
from ..module_utils._settings.stage import stage as settings
from ..module_utils._sharing.stage import stage as sharing
from ..module_utils._slurm.stage import DESIRED as SLURM_DESIRED
from ..module_utils._slurm.stage import STAGE as SLURM
from ..module_utils._slurm.stage import stage as slurm
from ..module_utils._toolkit.stage import stage as toolkit
from . import driver_advisories
from .host_program import program_identity

StageFunction = Callable[[Facts, Mapping[str, Any]], StagePlan]

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
    # What is rendered for it follows from the others.
    SLURM: slurm,
}
PASSTHROUGH = "gpu_facts_passthrough"
#: Those that write units of systemd.
_WRITE_UNITS = ("driver", "boot", "sharing")


def plan_stages(facts: Facts, desired: Mapping[str, Any]) -> dict[str, StagePlan]:
    """Return the plan of every stage; a refusal that a stage raises becomes one that it reports.

    :return: plans by stage; of a host that was read without root, or has no GPUs or others than described, only one, that says so.
    """
    hardware = _of_machines(facts, desired) or _other_gpus(facts, desired)
    for name, refusal in (("privileges", _without_root(facts)), ("hardware", hardware)):
        if refusal:
            return {name: StagePlan(name, needed=True, refusals=(refusal,))}
    plans = {}
    lost, facts = facts.lost, _without_lost(facts)
    try:
        given = {
            **desired,
            driver_advisories.ADVISORIES: driver_advisories.read_folder(
                str(desired.get(driver_advisories.ADVISORIES) or "")
            ),
            driver_advisories.RELEASES: driver_advisories.read_releases(
                str(desired.get(driver_advisories.RELEASES) or "")
            ),
            PROGRAM: program_identity(C.DEFAULT_LOCAL_TMP),
        }
    except Refused as refusal:
        return {"driver": StagePlan("driver", needed=True, refusals=(refusal,))}
    for name, function in STAGES.items():
        if name == SLURM and given.get(SLURM_DESIRED) is None:
            # The site brings Slurm its files itself, or has none.
            continue
        try:
            plans[name] = function(facts, given)
        except Refused as refusal:
            plans[name] = StagePlan(name, needed=True, refusals=(refusal,))
    former = former_layout(facts, desired)
    if former is not None and plans["mig"].steps:
        plans["mig"] = replace(plans["mig"], refusals=(*plans["mig"].refusals, former))
    if lost:
        plans = _beside_lost_gpus(plans, f"GPU {', '.join(str(gpu.index) for gpu in lost)}")
    machines = ", ".join(card.address for card in cards_of_machines(facts))
    if machines:
        note = f"virtual machines have the GPUs {machines}: they are left alone"
        plans["driver"] = replace(plans["driver"], warnings=(*plans["driver"].warnings, note))
    writing = next((plan for name, plan in plans.items() if name in _WRITE_UNITS and plan.steps), None)
    if writing is not None:
        plans[writing.stage] = replace(writing, warnings=(*writing.warnings, *refused_reload(facts, desired)))
    return plans


def former_layout(facts: Facts, desired: Mapping[str, Any]) -> Refused | None:
    """Return that the described layout is the one whose place C(repartition) took, and would take that back; None where it is not, or may."""
    former = facts.recorded.rolled_out.former_layout or {}
    layout, strategy = desired.get("nvidia_mig_layout"), desired.get("nvidia_mig_strategy")
    if not layout or (former.get("layout"), former.get("strategy")) != (layout, strategy):
        return None
    if desired.get("nvidia_mig_disruption") == "force":
        return None
    reason = "it is the layout that repartition replaced on this host, and the inventory did not follow"
    remedy = "Write the new layout into the inventory, go back with gpufleet.nvidia.repartition, or set nvidia_mig_disruption to force."
    return Refused("nvidia_mig_layout", reason, remedy)


def _without_root(facts: Facts) -> Refused | None:
    """Without root a daemon that runs seems dead, and a plan would want to start it: nothing is concluded from such facts."""
    if facts.host.root is not False:
        return None
    return Refused(
        "become",
        "this host was read without root, which hides its daemons and who uses its GPUs",
        "Let Ansible become root on it: remove ansible_become: false and ansible_become_user from its variables, and give "
        "--ask-become-pass where sudo asks for a password.",
    )


def _without_lost(facts: Facts) -> Facts:
    """Return the facts as if GPUs that fell off the bus were not there, and daemons of the host served the others alone.

    That they fell off is a matter of function. What the host records of them stays for when they are back.
    """
    gpus = tuple(gpu for gpu in facts.gpus or () if not gpu.lost)
    if not facts.lost:
        return facts
    record = facts.recorded.sharing
    if record is None or not record.daemons:
        return facts.but(gpus=gpus)
    there = {gpu.uuid for gpu in gpus} | {part.uuid for gpu in gpus for part in gpu.devices}
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
    running = tuple(
        one.but(limits=_at(one.limits, kept[one.pipe_directory])) if one.limits and one.pipe_directory in kept else one
        for one in facts.mps or ()
    )
    recorded = facts.recorded.but(sharing=replace(record, daemons=daemons))
    return facts.but(gpus=gpus, mps=running, recorded=recorded)


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


def _of_machines(facts: Facts, desired: Mapping[str, Any]) -> Refused | None:
    """Return that virtual machines have other GPUs than the description gives them: by PCI address, or so many."""
    if facts.pci is None:
        return None
    cards, given = cards_of_machines(facts), desired.get(PASSTHROUGH)
    addresses, count = given_to_machines(given)
    there = [card.address for card in cards]
    drivers = {str(card.kernel_driver) for card in cards} or MACHINE_DRIVERS
    if count == len(there) if addresses is None else addresses == there:
        return None
    described = f"{given} GPUs" if addresses is None else ", ".join(addresses) or "none"
    return Refused(
        PASSTHROUGH,
        f"the description gives {described[:300]} to virtual machines, and their kernel drivers ({', '.join(sorted(drivers))}) have "
        f"{', '.join(there) or 'none'}",
        "Correct the variable, or bind the GPUs to the other driver and reboot.",
    )


def given_to_machines(given: Any) -> tuple[list[str] | None, int | None]:
    """Return the PCI addresses of the GPUs that a description gives to virtual machines, None where it only counts them, and how many; None where it
    does not say that.
    """
    if isinstance(given or [], (list, tuple)):
        addresses = sorted(_address(str(one)) for one in given or ())
        return addresses, len(addresses)
    return None, None if isinstance(given, bool) else whole_number(str(given))


def _address(text: str) -> str:
    """Return a PCI address as the kernel writes it; lspci leaves the domain out."""
    return f"0000:{text.lower()}" if text.count(":") == 1 else text.lower()


def _other_gpus(facts: Facts, desired: Mapping[str, Any]) -> Refused | None:
    """Nothing is installed for GPUs that are not there. What could not be read is not taken for absent."""
    if facts.pci is None:
        return None
    boards = [card.board for card in cards_on_bus(facts)]
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
        reason = f"the host is described with {amount(count, 'GPU')}, and its PCI bus shows {there}"
        return Refused("gpu_facts_gpus", reason, "Correct the variable, or look for the missing board: lspci -d 10de:")
    # A board that the table does not have may be any.
    others = Counter(board for board in boards if board is not None) - described
    if count and others:
        reason = f"the host is described with {_counted(described)}, and its PCI bus shows {_counted(Counter(boards))}"
        remedy = "Correct the variable, or see which boards are in the host: lspci -d 10de:"
        return Refused("gpu_facts_gpus", reason, remedy)
    if there or facts.gpus:
        return None
    remedy = "Take it out of the group, or see whether the board is seated and powered: lspci -d 10de:"
    return Refused("the group gpu_hosts", "this host has no NVIDIA GPU on its PCI bus", remedy)


def _counted(boards: Mapping[Any, int]) -> str:
    return ", ".join(f"{count} x {board or 'an unlisted board'}" for board, count in sorted(boards.items(), key=str))
