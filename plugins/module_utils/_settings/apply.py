# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read, apply and restore the settings of a host's GPUs: the part that talks to NVML and writes the record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from .._adapters import files, gpu_reset, nvml_settings
from .._adapters.command import CommandError
from .._adapters.files import HostFiles
from .._adapters.gpu_reset import reset_gpu
from .._adapters.nvml_gpus import Nvml
from .._adapters.nvml_library import NvmlError
from .._adapters.processes import add_allocations, device_holders, read_allocations
from .._facts_view import open_by
from .._formats.documents import read_record
from .._gpu_facts import GpuFacts, gpu_view
from .._plan import Failure, NotInEffect, Plan, Refused, Step, carry_out
from .._printable import printable
from .._records import SETTINGS, Settings
from .._steps import Kind
from .._users import reset_obstacle
from .desired import RECORD
from .plan import EccPolicy, plan
from .state import GpuWithSettings


class SettingsError(Failure):
    """A step could not be carried out."""


def observe(nvml: Nvml, wanted: Settings) -> list[GpuWithSettings]:
    """Read what the planner needs to know of every GPU. Raises NvmlError: NVML does not tell how many GPUs there are."""
    locks = gpu_reset.read_locks()
    found = []
    for state in nvml.gpus():
        if state.lost:
            continue
        if wanted.ecc is not None:
            add_allocations([state.facts], read_allocations(HostFiles()))
        # The names of processes are their users' own.
        gpu = gpu_view(printable(state.facts))
        settings = nvml_settings.settings_of(nvml, state.index, locks.get(gpu.uuid or ""))
        found.append(
            GpuWithSettings(
                gpu.but(settings=settings),
                supported=None if wanted.application_clocks is None else _supported(nvml, state.index),
                no_reset=None if wanted.ecc is None else _no_reset(gpu),
            )
        )
    return found


def record(path: str = RECORD) -> Settings | None:
    """Return what this host restores at boot, or None when nothing readable is recorded."""
    found: Settings | None = read_record(SETTINGS, files.read_text(path, links=False))
    return found


def apply(steps: Plan, wanted: Settings, nvml: Nvml, reset: Callable[[str], str] = reset_gpu) -> None:
    """Carry out the steps. Raises SettingsError: a step failed; running again goes on from there."""
    for step in steps.steps:
        try:
            _apply(step, wanted, nvml, reset)
        except (CommandError, NvmlError, OSError) as error:
            raise SettingsError(f"Failed to {step.what}: {error}") from error


def awaits_reboot(step: Step) -> bool:
    """Whether the step is made complete by a reboot alone."""
    return step.kind is Kind.SET_ECC and "reboot" in step.data


def restore(nvml: Nvml, wanted: Settings) -> list[str]:
    """Set again what a boot, a reset of a GPU or a reload of the driver lost, GPU by GPU, and return what could not be set.

    ECC is the board's and needs no restoring. A board that does not take the value, such as one that was exchanged, keeps no other from it.
    """
    lost = replace(wanted, ecc=None)

    def planned(gpus: Sequence[GpuWithSettings]) -> Plan:
        return plan(gpus, lost, lost, EccPolicy())

    def planned_again(index: int) -> Plan:
        return planned([gpu for gpu in observe(nvml, lost) if gpu.facts.index == index])

    failed = []
    for gpu in observe(nvml, lost):
        try:
            found = planned([gpu])
            if found.changes:
                again = partial(planned_again, gpu.facts.index)
                carry_out("restore its settings", found, lambda steps: apply(steps, lost, nvml), again)
        except (Refused, NotInEffect, SettingsError, NvmlError) as error:
            failed.append(f"{gpu.facts.title}: {error}")
    return failed


def _apply(step: Step, wanted: Settings, nvml: Nvml, reset: Callable[[str], str]) -> None:
    if step.kind is Kind.RECORD_SETTINGS:
        files.write_whole(RECORD, wanted.as_text())
        return
    if step.kind is Kind.REMOVE_FILE:
        files.remove(RECORD)
        return
    index, uuid = int(step.data["index"]), str(step.data.get("uuid") or "")
    if step.kind is Kind.SET_POWER_LIMIT:
        nvml_settings.set_power_limit(nvml, index, int(step.data["watts"]))
    elif step.kind is Kind.LOCK_CLOCKS:
        clock, (lowest, highest) = str(step.data["clock"]), map(int, step.data["clocks"])
        nvml_settings.lock_clocks(nvml, index, clock, lowest, highest)
        gpu_reset.keep_lock(uuid, clock, (lowest, highest))
    elif step.kind is Kind.UNLOCK_CLOCKS:
        clock = str(step.data["clock"])
        nvml_settings.unlock_clocks(nvml, index, clock)
        gpu_reset.keep_lock(uuid, clock, None)
    elif step.kind is Kind.SET_APPLICATION_CLOCKS:
        memory, graphics_clock = step.data["clocks"]
        nvml_settings.set_application_clocks(nvml, index, (int(memory), int(graphics_clock)))
    elif step.kind is Kind.RESET_APPLICATION_CLOCKS:
        nvml_settings.reset_application_clocks(nvml, index)
    elif step.kind is Kind.SET_ECC:
        nvml_settings.set_ecc(nvml, index, step.data["ecc"] == "on")
    elif step.kind is Kind.RESET_GPU:
        _reset_gpu(nvml, step, reset)


def _reset_gpu(nvml: Nvml, step: Step, reset: Callable[[str], str]) -> None:
    """Reset one GPU for its ECC; somebody may have come since the plan was made."""
    index = int(step.data["index"])
    obstacle = _no_reset(gpu_view(printable(nvml.gpu(index).facts)))
    if obstacle:
        raise SettingsError(f"Failed to {step.what}: {obstacle} since it was planned")
    with nvml.closed():
        said = reset(str(step.data["pci_address"]))
    found = nvml_settings.settings_of(nvml, index)
    if found.ecc.current is not found.ecc.pending:
        raise SettingsError(f"Failed to {step.what}: its ECC still waits for a reset. nvidia-smi said: {said}")


def _no_reset(gpu: GpuFacts) -> str | None:
    """Return who keeps a GPU from being reset now; None for nobody."""
    if gpu.minor is None:
        return "NVML does not report which device it is"
    holders = open_by(device_holders(HostFiles(), f"/dev/nvidia{gpu.minor}").holders)
    obstacle = reset_obstacle(gpu, holders)
    return f"it {obstacle}" if obstacle else None


def _supported(nvml: Nvml, index: int) -> dict[int, tuple[int, ...]]:
    try:
        return dict(nvml_settings.supported_clocks(nvml, index))
    except NvmlError:
        return {}
