# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one GPU that C(run.sh --change) changes, with the collection's own code: who uses it, what it is, a change of it, and the way back."""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Iterator, Mapping, Sequence

from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import gpu_reset, nvml_gpus
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles, read_text, write_whole
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_gpus import Nvml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_library import NvmlError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_settings import (
    lock_clocks,
    reset_application_clocks,
    set_application_clocks,
    set_ecc,
    settings_of,
    unlock_clocks,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.processes import device_holders
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import open_by
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats import utc_time
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.apply import MigOutcome, Planner, apply
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.apply_exact import plan_exact
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.apply_machine import Machine, StepFailed
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.host_plan import plan_host
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.journal import Entry, Journal
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.model import DesiredGpu
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.state import NodeGpu
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._records import GPUS, GpuRecord
from ansible_collections.gpufleet.nvidia.plugins.module_utils._schema import Unfit, check
from ansible_collections.gpufleet.nvidia.plugins.module_utils._users import (
    TOLERATE_RESET,
    holders_of,
    merged,
    named,
    users_of,
)

#: Nothing in use is touched, and no reboot is waited for.
_VARIABLES = {
    "nvidia_mig_disruption": "refuse",
    "nvidia_mig_reset": "auto",
    "nvidia_mig_reboot": False,
    "nvidia_mig_allocations": "read",
}
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_CLOCKS = (gpu_reset.GRAPHICS, gpu_reset.MEMORY)


class NotAsPlanned(Exception):
    """A change ended without an error, and what is read back is not what was planned."""


class OneGpu(Machine):
    """One GPU of this host. The others are neither read nor changed.

    :param uuid: its UUID: an index may become another GPU's when one falls off the bus.
    """

    def __init__(self, nvml: Nvml, journal: Journal, uuid: str) -> None:
        super().__init__(nvml, journal, _VARIABLES, reset=self._reset_this)
        self.uuid = uuid

    @property
    def index(self) -> int:
        """Its index in NVML.

        :raises Refused: this host has no GPU of this UUID.
        """
        there = []
        for index in range(self.nvml.count()):
            try:
                there.append(str(self.nvml.library.call("nvmlDeviceGetUUID", self.nvml.device(index))))
            except NvmlError:
                there.append("")
        if self.uuid not in there:
            names = ", ".join(filter(None, there)) or "none that answers"
            raise Refused(
                self.uuid, f"this host has no such GPU, only {names}", "Name one of these, as nvidia-smi -L lists them."
            )
        return there.index(self.uuid)

    def read(self) -> list[NodeGpu]:
        self.nvml.forget_profiles()
        gpu = self.read_gpu(self.index)
        if gpu.problem is not None:
            raise StepFailed(f"{gpu.title}: {gpu.problem}")
        return [gpu]

    def gpu(self) -> NodeGpu:
        """Return the GPU as it is now."""
        return self.read()[0]

    def _reset_this(self, address: str) -> str:
        """A reset forgets the locked clocks of all GPUs of the host, and loses those of this one."""
        kept = {uuid: locks for uuid, locks in gpu_reset.read_locks().items() if uuid != self.uuid}
        said = gpu_reset.reset_gpu(address)
        for uuid, locks in kept.items():
            for clock, frequencies in locks.items():
                gpu_reset.keep_lock(uuid, clock, frequencies)
        return said


def refuse_users(gpu: NodeGpu) -> None:
    """Refuse a GPU that somebody uses.

    :raises Refused: it says who.
    """
    scan = device_holders(HostFiles(), f"/dev/nvidia{gpu.facts.minor}")
    if scan.hidden:
        raise Refused(
            gpu.title,
            f"{scan.hidden} processes of this host cannot be looked into, so nobody knows whether they use it",
            "Run as root of the host, outside of containers.",
        )
    holders = holders_of(open_by(scan.holders), gpu.facts.minor, TOLERATE_RESET)
    users = merged(users_of(gpu.facts).everybody, holders)
    if users:
        raise Refused(gpu.title, f"it is in use by {named(users)}", "Stop its users, or name a GPU that nobody uses.")


def refuse_pending(gpu: NodeGpu, now: Mapping[str, Any]) -> None:
    """Refuse a GPU of which a change waits for a reset: it would come into effect on the way.

    :param now: its L(snapshot).
    :raises Refused: there is one.
    """
    for name, modes in (("MIG", [now["record"].get("mig"), now["mig_pending"]]), ("ECC", now["ecc"] or [None, None])):
        if modes[0] != modes[1]:
            raise Refused(gpu.title, f"a change of {name} waits for a reset", "Reset the GPU or reboot the host first.")


def planned(desired: DesiredGpu) -> Callable[[OneGpu], Planner]:
    """Return the collection's plan of a GPU for a desired state, at the places that the planner chooses."""
    return lambda machine: lambda gpus, no_reset: plan_host(gpus, {machine.index: desired}, _VARIABLES, no_reset)


def exactly(record: GpuRecord) -> Callable[[OneGpu], Planner]:
    """Return the collection's plan of a GPU for a layout with its places."""
    return lambda _machine: lambda gpus, no_reset: plan_exact(gpus, [record], no_reset)


def carry_out(machine: OneGpu, planner: Callable[[OneGpu], Planner], asked: str) -> MigOutcome:
    """Change the GPU as module M(gpufleet.nvidia.mig) does, with its journal, until the plan of what is read back is empty.

    :param asked: what is asked for, for people who read the journal.
    :raises ApplyFailed: it cannot be reached; says whether what was there before this change is back.
    :raises NotAsPlanned: a part of it cannot be had.
    """
    entry = Entry(utc_time.now(), read_text(_BOOT_ID) or "", "mig", (), {"layout": asked})
    outcome = apply(machine, planner(machine), machine.read(), machine.journal.last(), entry)
    machine.journal.followed()
    lacking = (*outcome.plan.missing, *outcome.plan.deferred.values())
    if lacking:
        raise NotAsPlanned(f"{asked}: {'; '.join(lacking)}")
    return outcome


def snapshot(machine: OneGpu) -> dict[str, Any]:
    """Return everything of the GPU that a run changes, or that a change of MIG or a reset loses, as plain data."""
    gpu, nvml = machine.gpu(), machine.nvml
    locks = gpu_reset.read_locks().get(machine.uuid, {})
    settings = settings_of(nvml, gpu.index, locks)
    found = {
        "uuid": machine.uuid,
        "record": gpu.record.as_dict(),
        "mig_pending": gpu.facts.mig.pending,
        "devices": list(_devices(gpu)),
        "compute_mode": gpu.facts.compute_mode,
        "persistence_mode": gpu.facts.persistence_mode,
        "power_limit_mw": _power_limit(nvml, gpu.index),
        "application_clocks": settings.clocks_mhz.application,
        "ecc": None if settings.ecc.current is None else [settings.ecc.current, settings.ecc.pending],
        "locked_clocks": locks,
    }
    return dict(json.loads(json.dumps(found)))


def _devices(gpu: NodeGpu) -> Iterator[str]:
    for one in gpu.facts.gpu_instances:
        place = f"{one.profile} at {one.start}:{one.size} (id {one.id})"
        yield place
        for inner in one.compute_instances:
            yield f"{place}: {inner.profile} (id {inner.id}), {inner.uuid}"


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return what differs between two L(snapshot)s."""
    return [
        f"{key}: {value} before, {after.get(key)} afterwards"
        for key, value in before.items()
        if value != after.get(key)
    ]


class Kept:
    """What was there before, in OUT/change: on the disk before the first change.

    :param folder: OUT/change.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.journal = Journal(os.path.join(folder, "journal.jsonl"))
        self._path = os.path.join(folder, "state.json")

    def read(self) -> dict[str, Any]:
        """Return it.

        :raises Refused: there is none that can be read.
        """
        try:
            found = json.loads(read_text(self._path, links=False) or "")
            check(GPUS, [found["before"]["record"]])
            return dict(found)
        except (ValueError, KeyError, TypeError, Unfit) as error:
            raise Refused(
                self._path, f"it is not what run.sh --change writes ({error})", "Name the OUT of that run."
            ) from error

    def write(self, before: Mapping[str, Any], **says: bool) -> None:
        """Keep it. It is on the disk on return.

        :param says: C(finished), that it is back and nothing of a run is left; C(clocks), that clocks may be locked.
        """
        text = json.dumps({"format": 1, "before": dict(before), **says}, indent=1, sort_keys=True) + "\n"
        write_whole(self._path, text, 0o600)


def bring_back(machine: OneGpu, before: Mapping[str, Any], clocks: bool) -> None:
    """Bring a GPU back to what it was; what is so already stays.

    :param clocks: whether its clocks may be locked although the host has no record of that.
    :raises ApplyFailed: the instances cannot be brought back.
    :raises NotAsPlanned: a part of them cannot.
    :raises NvmlError: the driver does not take a setting back.
    """
    nvml, ecc = machine.nvml, before["ecc"]
    # Before anything that may reset the GPU, which would activate it.
    if ecc is not None and settings_of(nvml, machine.index).ecc.pending != ecc[1]:
        set_ecc(nvml, machine.index, ecc[1])
    (record,) = check(GPUS, [before["record"]])
    if record.mig is not None:
        carry_out(machine, exactly(record), "what was there before")
    bring_settings_back(machine, before, clocks)


def bring_settings_back(machine: OneGpu, before: Mapping[str, Any], clocks: bool) -> None:
    """Bring the settings back that a change of MIG, a reset or a test of them lost."""
    nvml, index, now = machine.nvml, machine.index, snapshot(machine)
    device, call = nvml.device(index), nvml.library.call
    if before["persistence_mode"] is not None and now["persistence_mode"] != before["persistence_mode"]:
        call("nvmlDeviceSetPersistenceMode", device, int(before["persistence_mode"]))
    if before["compute_mode"] in nvml_gpus.COMPUTE_MODES and now["compute_mode"] != before["compute_mode"]:
        nvml_gpus.set_compute_mode(nvml, index, before["compute_mode"])
    if before["power_limit_mw"] is not None and now["power_limit_mw"] != before["power_limit_mw"]:
        # To the milliwatt, as it was read.
        call("nvmlDeviceSetPowerManagementLimit", device, before["power_limit_mw"])
    _bring_clocks_back(machine, before, now, clocks)


def _bring_clocks_back(machine: OneGpu, before: Mapping[str, Any], now: Mapping[str, Any], clocks: bool) -> None:
    nvml, index = machine.nvml, machine.index
    application = before["application_clocks"]
    if application is not None and now["application_clocks"] != application:
        default = settings_of(nvml, index).clocks_mhz.default
        if default is not None and list(default) == application:
            reset_application_clocks(nvml, index)
        else:
            set_application_clocks(nvml, index, (application[0], application[1]))
    for clock in _CLOCKS:
        former: Sequence[int] | None = before["locked_clocks"].get(clock)
        if former is not None:
            lock_clocks(nvml, index, clock, former[0], former[1])
            gpu_reset.keep_lock(machine.uuid, clock, (former[0], former[1]))
        elif clocks or clock in now["locked_clocks"]:
            _unlock(nvml, index, clock)
            gpu_reset.keep_lock(machine.uuid, clock, None)


def _unlock(nvml: Nvml, index: int, clock: str) -> None:
    try:
        unlock_clocks(nvml, index, clock)
    except NvmlError as error:
        # A board that does not let this clock be locked has not locked it.
        if error.symbol != "NOT_SUPPORTED":
            raise


def _power_limit(nvml: Nvml, index: int) -> int | None:
    try:
        return int(nvml.library.call("nvmlDeviceGetPowerManagementLimit", nvml.device(index)))
    except NvmlError:
        return None
