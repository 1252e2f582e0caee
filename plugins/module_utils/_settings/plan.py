# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan from the settings that GPUs have to those that they should have. Pure.

A power limit and clocks are set under running work without disturbing it. ECC takes a reset of the GPU or a reboot, so it changes only on a
GPU that nobody uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .._adapters.gpu_reset import GRAPHICS, MEMORY
from .._gpu_facts import gpu_step
from .._gpu_settings import Clocks
from .._plan import REBOOT_NEEDED, Plan, Refused, Step, awaited_reboot
from .._records import Settings
from .._steps import Kind
from .._users import named, users_of
from .desired import PREFIX, RECORD
from .state import GpuWithSettings

#: Two readings of a limit may differ by what a board rounds.
_WATT = 1
#: A board runs at the nearest clock that it has, which may be the next above the limit: steps are 15 MHz or less.
_CLOCK_STEP = 15


@dataclass(frozen=True)
class EccPolicy:
    """How ECC may be brought into effect. C(reboot): whether the host may be rebooted where one cannot be."""

    reset: bool = True
    reboot: bool = False


def plan(gpus: Sequence[GpuWithSettings], wanted: Settings, record: Settings | None, policy: EccPolicy) -> Plan:
    """Return the steps, GPU by GPU, and the record.

    What the record has and is no longer wanted goes back to the board's own value; ECC stays as it is.

    :param record: what the host restores at boot; None where nothing readable is recorded.
    :raises Refused: a board does not take a value, or ECC would change on a GPU that somebody uses.
    """
    former = record or Settings()
    for gpu in gpus:
        _refuse_power(gpu, wanted)
        _refuse_clocks(gpu, wanted)
        _refuse_ecc(gpu, wanted, policy)
    steps: list[Step] = []
    for gpu in gpus:
        steps += _ecc(gpu, wanted, policy)
    for gpu in gpus:
        # A reset would lose what is set before it.
        reset = any(step.kind is Kind.RESET_GPU and step.data["index"] == gpu.facts.index for step in steps)
        steps += [*_power(gpu, wanted, former, reset), *_clocks(gpu, wanted, former, reset)]
    if wanted != former or (record is None and wanted.anything):
        if wanted.anything:
            steps.append(Step(Kind.RECORD_SETTINGS, RECORD, "it is restored from there after a reboot"))
        else:
            steps.append(Step(Kind.REMOVE_FILE, RECORD, "nothing is set any longer"))
    before = {gpu.facts.title: gpu.settings.as_dict() for gpu in gpus}
    return Plan(tuple(steps), before=before, after={"wanted": wanted.as_dict()})


def _refuse_power(gpu: GpuWithSettings, wanted: Settings) -> None:
    if wanted.power_limit is None:
        return
    power = gpu.settings.power_w
    lowest, highest = power.min, power.max
    if lowest is None or highest is None:
        raise Refused(
            f"{PREFIX}power_limit",
            f"the board of {gpu.model} does not let its power limit be set",
            "Remove the variable for this host.",
        )
    if not lowest <= wanted.power_limit <= highest:
        raise Refused(
            f"{PREFIX}power_limit",
            f"{gpu.model} takes {lowest} to {highest} W, not {wanted.power_limit} W",
            f"Give a value between {lowest} and {highest}; 0 leaves the board's own limit of {power.default} W.",
        )


def _refuse_clocks(gpu: GpuWithSettings, wanted: Settings) -> None:
    highest = gpu.settings.clocks_mhz.max
    application = wanted.application_clocks
    asked = (
        ("memory_clocks", 0, wanted.memory_clocks and wanted.memory_clocks[1]),
        ("graphics_clocks", 1, wanted.graphics_clocks and wanted.graphics_clocks[1]),
        ("application_clocks", 0, application and application[0]),
        ("application_clocks", 1, application and application[1]),
    )
    for name, position, frequency in asked:
        if not frequency:
            continue
        clock = ("memory", "graphics")[position]
        if highest is None:
            raise Refused(
                f"{PREFIX}{name}",
                f"the board of {gpu.model} does not report its clocks, so they cannot be set",
                "Remove the variable for this host.",
            )
        if frequency > highest[position]:
            raise Refused(
                f"{PREFIX}{name}",
                f"the {clock} clock of {gpu.model} reaches {highest[position]} MHz, not {frequency} MHz",
                f"Give {highest[position]} or less.",
            )
    if application is not None and gpu.supported is not None:
        _refuse_unsupported(gpu, application)
    if application is not None and gpu.settings.clocks_mhz.application is None:
        raise Refused(
            f"{PREFIX}application_clocks",
            f"the board of {gpu.model} has no application clocks",
            f"Lock its clocks in place of them: {PREFIX}graphics_clocks.",
        )


def _refuse_unsupported(gpu: GpuWithSettings, wanted: Clocks) -> None:
    supported = gpu.supported or {}
    memory, graphics = wanted
    if memory not in supported:
        raise Refused(
            f"{PREFIX}application_clocks",
            f"{gpu.model} has no memory clock of {memory} MHz",
            f"It has {', '.join(map(str, supported))} MHz.",
        )
    if graphics not in supported[memory]:
        near = sorted(supported[memory], key=lambda one: abs(one - graphics))[:2]
        raise Refused(
            f"{PREFIX}application_clocks",
            f"{gpu.model} has no graphics clock of {graphics} MHz with {memory} MHz memory",
            f"The nearest are {', '.join(map(str, sorted(near)))} MHz: nvidia-smi -q -d SUPPORTED_CLOCKS.",
        )


def _refuse_ecc(gpu: GpuWithSettings, wanted: Settings, policy: EccPolicy) -> None:
    if wanted.ecc is None:
        return
    present = gpu.settings.ecc.current
    thing, state = f"{PREFIX}ecc", _on(wanted.ecc)
    if present is None:
        raise Refused(thing, f"{gpu.model} has no ECC that can be set", "Remove it for this host.")
    if present is wanted.ecc:
        return
    users = users_of(gpu.facts).everybody
    if users:
        raise Refused(
            thing,
            f"ECC {state} needs a reset of {gpu.facts.title}, which is in use by {named(users)}",
            "Drain the host first (kubectl drain, or end these processes), then run again.",
        )
    reason = _no_reset(gpu, policy)
    if reason and not policy.reboot:
        raise Refused(
            thing,
            f"ECC {state} needs a reset of {gpu.facts.title}, and {reason}",
            f"Set {PREFIX}reboot: true to have the host rebooted while nothing uses its GPUs.",
        )


def _no_reset(gpu: GpuWithSettings, policy: EccPolicy) -> str | None:
    """Return why ECC of a GPU can only change by a reboot; None where a reset can do it, as far as is known."""
    if not policy.reset:
        return f"{PREFIX}reset is never"
    if gpu.facts.gpu_instances:
        return "that would destroy its GPU instances, which only a boot restores"
    return gpu.no_reset


def _ecc(gpu: GpuWithSettings, wanted: Settings, policy: EccPolicy) -> list[Step]:
    ecc = gpu.settings.ecc
    if wanted.ecc is None or ecc.current is wanted.ecc:
        return []
    reason = _no_reset(gpu, policy)
    steps = []
    data = {"ecc": _on(wanted.ecc)}
    if reason:
        data["reboot"] = REBOOT_NEEDED
    disturbs = (awaited_reboot([reason], policy.reboot, f"{PREFIX}reboot"),) if reason else ()
    if ecc.pending is not wanted.ecc or reason:
        why = f"it is {_on(ecc.current)}"
        if ecc.pending is wanted.ecc:
            why += ", and the change waits for a reboot"
        steps.append(gpu_step(Kind.SET_ECC, gpu.facts, why, disturbs, data))
    if not reason:
        why = f"ECC is {_on(wanted.ecc)} only after it"
        steps.append(gpu_step(Kind.RESET_GPU, gpu.facts, why))
    return steps


def _power(gpu: GpuWithSettings, wanted: Settings, former: Settings, reset: bool) -> list[Step]:
    power = gpu.settings.power_w
    target = wanted.power_limit
    if target is None and former.power_limit is not None:
        target = power.default
    same = power.limit is not None and target is not None and abs(power.limit - target) <= _WATT
    if target is None or (same and not reset):
        return []
    own = wanted.power_limit is None
    why = f"it is {power.limit} W" + (", and the board's own has to be restored" if own else "")
    return [gpu_step(Kind.SET_POWER_LIMIT, gpu.facts, why, (), {"watts": target})]


def _clocks(gpu: GpuWithSettings, wanted: Settings, former: Settings, reset: bool) -> list[Step]:
    steps = []
    speeds = gpu.settings.clocks_mhz
    present = speeds.graphics
    for name, clocks, before in (
        (GRAPHICS, wanted.graphics_clocks, former.graphics_clocks),
        (MEMORY, wanted.memory_clocks, former.memory_clocks),
    ):
        data = {"clock": name}
        if clocks is None:
            if before is not None:
                steps.append(gpu_step(Kind.UNLOCK_CLOCKS, gpu.facts, "it is no longer to be locked", (), data))
            continue
        locked = speeds.locked_graphics if name == GRAPHICS else speeds.locked_memory
        faster = name == GRAPHICS and present is not None and present > clocks[1] + _CLOCK_STEP
        if reset or locked != clocks or faster:
            why = (
                f"it runs at {present} MHz" if faster else f"it is locked to {_mhz(locked)}" if locked else "it is not"
            )
            steps.append(
                gpu_step(Kind.LOCK_CLOCKS, gpu.facts, why, (), {**data, "clocks": list(clocks), "range": _mhz(clocks)})
            )
    return steps + _application_clocks(gpu, wanted, former, reset)


def _application_clocks(gpu: GpuWithSettings, wanted: Settings, former: Settings, reset: bool) -> list[Step]:
    present = gpu.settings.clocks_mhz.application
    clocks = wanted.application_clocks
    if clocks is None:
        if former.application_clocks is None or present == gpu.settings.clocks_mhz.default:
            return []
        why = f"they are {_both(present)}, and the board's own have to be restored"
        return [gpu_step(Kind.RESET_APPLICATION_CLOCKS, gpu.facts, why)]
    if present == clocks and not reset:
        return []
    data = {"clocks": list(clocks), "frequencies": _both(clocks)}
    return [gpu_step(Kind.SET_APPLICATION_CLOCKS, gpu.facts, f"they are {_both(present)}", (), data)]


def _on(value: Any) -> str:
    return "unknown" if value is None else "on" if value else "off"


def _mhz(clocks: Clocks) -> str:
    return f"{clocks[0]} MHz" if clocks[0] == clocks[1] else f"{clocks[0]} to {clocks[1]} MHz"


def _both(clocks: Clocks | None) -> str:
    return "unknown" if clocks is None else f"{clocks[0]} MHz memory and {clocks[1]} MHz graphics"
