# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The sharing stage of C(site): what a host has to do for its pool's sharing, from facts alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .._boards.cards import gpus_on_bus
from .._boards.lookup import board
from .._facts_view import Facts
from .._formats.driver_versions import branch_of, is_branch, is_driver_version
from .._gpu_facts import GpuFacts, MigModeFacts
from .._mig.desired import desired_of, may_switch_off
from .._mig.model import DesiredGpu, compute_name, resolve
from .._mig.state import profiles_of
from .._plan import Refused, StagePlan, Step
from .._records import HostSharing
from . import plan as sharing_plan
from .desired import read, refuse_on_mig
from .host import MigDevice, host_sharing, one_user_at_a_time, refuse_clients, refuse_clients_of_devices
from .modes import Sharing
from .mps_instances import DEFAULT_PIPE_DIRECTORY
from .state import Observed, from_facts

STAGE = "sharing"


def stage(facts: Facts, desired: Mapping[str, Any]) -> StagePlan:
    """Plan the sharing of a host.

    :param desired: the variables of all host roles; C(nvidia_sharing_*) and C(nvidia_mig_strategy) are read.
    :raises Refused: the desired state contradicts itself, or can never be met by the GPUs of this host.
    """
    sharing = read(desired)
    strategy = str(desired.get("nvidia_mig_strategy") or "none")
    refuse_on_mig(sharing, strategy)
    gpus = _without_mig(desired, facts.gpus or ())
    branch = _branch(facts, desired)
    for gpu in gpus:
        _refuse_on_gpu(sharing, gpu, branch)
    _refuse_on_layout(sharing, desired, gpus or _boards(facts), branch)
    if not gpus:
        steps = _steps_of_boards(sharing, strategy, facts, branch)
        return StagePlan(STAGE, needed=True, steps=steps, unknown=facts.nvml.unanswered)
    if strategy != "none" or any(gpu.mig.current for gpu in gpus):
        return _on_mig(sharing, desired, gpus, facts, branch)
    return _planned(sharing, desired, _wanted(sharing, facts, gpus, branch), facts, gpus)


def _wanted(sharing: Sharing, facts: Facts, gpus: Sequence[GpuFacts], branch: int | None) -> HostSharing:
    """Return what the host has to keep, with the multi-user server that its control program has. Where it is not installed yet, or was read by a
    release that did not say, the branch of the driver decides.
    """
    return host_sharing(sharing, gpus, branch, facts.mps_control.multi_user)


def _branch(facts: Facts, desired: Mapping[str, Any]) -> int | None:
    """Return the branch of the driver that this host has, or that it is to get; it says what its MPS can do."""
    for version in (facts.driver.loaded_version, facts.driver.on_disk_version, desired.get("nvidia_driver_version")):
        if version and is_driver_version(str(version)):
            return branch_of(str(version))
    described = str(desired.get("nvidia_driver_branch") or "")
    return int(described) if is_branch(described) else None


def _refuse_on_gpu(sharing: Sharing, gpu: GpuFacts, branch: int | None) -> None:
    if sharing.mode == "mps" and not gpu.mig.current:
        refuse_clients(sharing, gpu, branch)


def _refuse_on_layout(
    sharing: Sharing, desired: Mapping[str, Any], gpus: Sequence[GpuFacts], branch: int | None
) -> None:
    """Look at the MIG devices that the layout will make: the stage before this one must not make them in vain."""
    if sharing.mode != "mps" or sharing.host.scope != "instance":
        return
    layout = _layout(desired, gpus) or {}
    for gpu in gpus:
        wanted = layout.get(gpu.index)
        devices = []
        for instance in wanted.instances if wanted else ():
            profile = resolve(instance.profile, profiles_of(gpu))
            memory = profile.memory_mib if profile else None
            devices += [MigDevice(compute_name(instance.profile, width), memory) for width in instance.compute]
        refuse_clients_of_devices(sharing, gpu, branch, devices)


def _layout(desired: Mapping[str, Any], gpus: Sequence[GpuFacts]) -> Mapping[int, DesiredGpu] | None:
    """Return what the stage before this one makes of the GPUs it selects, by index; None where it cannot, which is said there."""
    try:
        return desired_of(desired, gpus).gpus
    except Refused:
        return None


def _without_mig(desired: Mapping[str, Any], gpus: Sequence[GpuFacts]) -> tuple[GpuFacts, ...]:
    """Return the GPUs, whole where the stage before this one switches MIG off."""
    may_be = any(gpu.mig.current for gpu in gpus) and may_switch_off(desired)
    layout = (_layout(desired, gpus) or {}) if may_be else {}
    off = [index for index, one in layout.items() if not one.enabled]
    return tuple(
        gpu.but(mig=MigModeFacts(current=False), gpu_instances=()) if gpu.index in off else gpu for gpu in gpus
    )


def _boards(facts: Facts, most: bool = False) -> list[GpuFacts]:
    """Return the boards on the PCI bus as GPUs, for a host without a driver to ask; empty when one is not known. C(most): with the most memory that a
    driver can report of them, instead of that of the table of boards.
    """
    gpus = [gpu.but(uuid="") for gpu in gpus_on_bus(facts)]
    if any(gpu.memory_mib is None for gpu in gpus):
        return []
    return [gpu.but(memory_mib=board(str(gpu.board)).most_memory_mib) for gpu in gpus] if most else gpus


def _steps_of_boards(sharing: Sharing, strategy: str, facts: Facts, branch: int | None) -> tuple[Step, ...]:
    """Plan for the boards on the PCI bus, before there is a driver to ask. What depends on MIG devices is left open. With ECC switched off a driver
    reports more memory than the table of boards has, up to what the label says: only what is refused with either is refused, for the driver would
    refuse it as well. Raises Refused: what these boards can never do.
    """
    try:
        return _steps_of_cards(sharing, strategy, facts, branch, _boards(facts))
    except Refused:
        return _steps_of_cards(sharing, strategy, facts, branch, _boards(facts, most=True))


def _steps_of_cards(
    sharing: Sharing, strategy: str, facts: Facts, branch: int | None, gpus: Sequence[GpuFacts]
) -> tuple[Step, ...]:
    if not gpus or strategy != "none" or sharing.host.scope == "instance":
        return ()
    for gpu in gpus:
        _refuse_on_gpu(sharing, gpu, branch)
    wanted = _wanted(sharing, facts, gpus, branch)
    plan = sharing_plan.plan(Observed(recorded=facts.recorded.sharing), wanted, "force")
    mode = wanted.compute_mode
    if mode in (None, "default"):
        return plan.steps
    modes_of = [
        sharing_plan.compute_mode_step(gpu.index, "", str(mode), f"the desired state is {mode}") for gpu in gpus
    ]
    return (*modes_of, *plan.steps)


def _on_mig(
    sharing: Sharing, desired: Mapping[str, Any], gpus: Sequence[GpuFacts], facts: Facts, branch: int | None
) -> StagePlan:
    """With MIG the devices to share are those that the stage before this one makes; when it changes nothing, those that are there. Raises Refused:
    they cannot be shared so, or there are none and none are made.
    """
    if sharing.mode == "mps" and sharing.mps_manager == "host":
        layout = _layout(desired, gpus)
        there = any(gpu.gpu_instances for gpu in gpus)
        if layout is None or (
            sharing.host.scope == "instance" and not there and any(one.instances for one in layout.values())
        ):
            return StagePlan(
                STAGE,
                needed=True,
                unknown="MIG devices are created by the stage before this one; the daemons depend on them",
            )
        modes = {index: MigModeFacts(current=one.enabled) for index, one in layout.items()}
        gpus = [gpu.but(mig=modes.get(gpu.index, gpu.mig)) for gpu in gpus]
    return _planned(sharing, desired, _wanted(sharing, facts, gpus, branch), facts, gpus)


def _planned(
    sharing: Sharing, desired: Mapping[str, Any], wanted: HostSharing, facts: Facts, gpus: Sequence[GpuFacts]
) -> StagePlan:
    disruption = str(desired.get("nvidia_sharing_mps_disruption") or "refuse")
    # A driver that the collection installs brings its control program.
    lacking = facts.mps_control.installed is False and desired.get("nvidia_driver_state") == "unmanaged"
    observed = replace(from_facts(facts, gpus, wanted), installed=not lacking)
    plan = sharing_plan.plan(observed, wanted, disruption)
    uuids = [str(gpu.uuid) for gpu in gpus]
    second = next((one for one in observed.foreign_daemons if one.serves(uuids)), None)
    if sharing.mps_of_plugin and second is not None:
        # The device plugin's own is in a container.
        raise sharing_plan.second_daemon(second)
    by_hand = _in_every_container(sharing, observed)
    alone = one_user_at_a_time(sharing, wanted)
    return StagePlan(
        STAGE, needed=plan.changes, steps=plan.steps, warnings=(*plan.warnings, *by_hand, *([alone] if alone else []))
    )


def _in_every_container(sharing: Sharing, observed: Observed) -> tuple[str, ...]:
    """Return what to know of an MPS daemon that somebody started where NVIDIA's runtime looks for one (nvidia-container-toolkit,
    internal/discover/ipc.go). Raises Refused: the pool shares its GPUs by time slices.
    """
    found = next((one for one in observed.foreign_daemons if one.pipe_directory == DEFAULT_PIPE_DIRECTORY), None)
    if found is None or sharing.mode == "mps":
        return ()
    reason = (
        f"process {found.pid} is an MPS control daemon at {DEFAULT_PIPE_DIRECTORY}, which NVIDIA's runtime mounts into every container with a GPU: "
        "they are its clients"
    )
    if sharing.mode != "time_slicing":
        return (reason,)
    remedy = "Drain the host and end the daemon (echo quit | nvidia-cuda-mps-control), or describe MPS: nvidia_sharing_mode: mps."
    raise Refused("nvidia_sharing_mode", f"it is time_slicing, but {reason}", remedy)
