# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The GPUs of a host while their MIG is changed: read them, take one step, reset one of them, and restart who reads them once.

Every step is in the journal before it is taken. Nothing here decides what is done: that is in the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .._adapters import gpu_reset, nvml_gpus, processes, systemd
from .._adapters.command import CommandError
from .._adapters.files import HostFiles
from .._adapters.nvml_gpus import Nvml
from .._adapters.nvml_library import IN_USE, ComputeInstanceProfile, GpuState, NvmlError
from .._adapters.processes import add_allocations, device_holders, read_allocations
from .._facts_view import HolderFacts, open_by, view_of
from .._gpu_facts import gpu_view
from .._plan import Failure
from .._printable import printable
from .._runtimes import ALL_KUBELETS
from .._users import TOLERATE_RESET, holders_of, named
from .host_plan import OFF, ON, GpuChange
from .journal import Journal
from .model import ComputeInstance, GpuInstance, parse
from .plan import FORCE, Create, GpuPlan
from .state import NodeGpu, instance_title, node_gpus, why_no_reset


class StepFailed(Exception):
    """A step was taken and what is read back is not what it should have done."""


@dataclass
class Done:
    """What was done so far, for the report."""

    steps: list[str] = field(default_factory=list)
    destroyed: list[str] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    reset: list[str] = field(default_factory=list)
    terminated: list[int] = field(default_factory=list)


class Machine:
    """The GPUs of this host.

    :param variables: of the role: C(nvidia_mig_disruption), C(nvidia_mig_reset), C(nvidia_mig_busy_instances), C(nvidia_mig_allocations) (what the
        kubelet allocated to pods counts only with C(read): at boot its record is of pods that ended) and C(nvidia_mig_restart_services).
    :param files: the files of the host, for who holds a GPU.
    """

    def __init__(
        self,
        nvml: Nvml,
        journal: Journal,
        variables: Mapping[str, Any],
        files: HostFiles | None = None,
        reset: Callable[[str], str] = gpu_reset.reset_gpu,
    ) -> None:
        self.nvml = nvml
        # What NVML did not tell from the beginning, by index: what it stops telling on the way is a failure of that pass.
        self._unknown: dict[int, frozenset[str]] = {}
        self.journal = journal
        self.variables = variables
        self.done = Done()
        self.files = files or HostFiles()
        self._reset = reset
        #: Why GPUs could not be reset in this run, by index.
        self.reset_failed: dict[int, str] = {}

    def read(self) -> list[NodeGpu]:
        """Return every GPU.

        :raises NvmlError: NVML does not tell how many there are, or which profiles one offers.
        :raises StepFailed: NVML does not tell something that it told at the first reading.
        """
        self.nvml.forget_profiles()
        found = []
        for state in self.nvml.gpus():
            gpu = self._node_gpu(state)
            for key in sorted(set(state.unknown) - self._unknown.setdefault(gpu.index, frozenset(state.unknown))):
                raise StepFailed(f"{gpu.title}: {state.unknown[key]}")
            found.append(gpu)
        return found

    def read_gpu(self, index: int) -> NodeGpu:
        """Return one GPU. Raises NvmlError: NVML does not tell which profiles it offers."""
        return self._node_gpu(self.nvml.gpu(index))

    def why_no_reset(self, gpu: NodeGpu) -> str | None:
        """Return why a GPU cannot be reset now, or None when nothing stands against it."""
        if gpu.index in self.reset_failed:
            return self.reset_failed[gpu.index]
        return gpu.problem or why_no_reset(
            gpu.facts, self._holders(gpu), self.variables.get("nvidia_mig_reset") != "never"
        )

    def change_mode(self, change: GpuChange) -> None:
        """Set the MIG mode of a GPU to what the change says, by a reset where that is needed and possible.

        :raises StepFailed: the driver said yes and nothing changed.
        :raises NvmlError: the driver refused.
        :raises NvmlUnavailable: the driver did not come back after the reset.
        """
        gpu, wanted = change.gpu, change.plan.desired.enabled
        if change.toggle.set_mode:
            self._free(gpu, gpu.pids())
            self._step(f"set MIG mode {'on' if wanted else 'off'}: {gpu.title}")
            status = nvml_gpus.set_mig_mode(self.nvml, gpu.index, wanted)
            gpu = self.read_gpu(gpu.index)
            if gpu.problem is not None:
                raise StepFailed(f"{gpu.title}: its new MIG mode cannot be read: {gpu.problem}")
            if wanted not in (gpu.facts.mig.pending, gpu.enabled):
                text = f"{gpu.title}: the driver accepted MIG mode {change.mode} but kept the old one ({status})"
                raise StepFailed(text)
        if change.mode in (ON, OFF) and gpu.enabled != wanted:
            self._reset_gpu(gpu, wanted)

    def change_instances(self, gpu: NodeGpu, plan: GpuPlan) -> None:
        """Destroy, change and create the instances of one GPU as planned.

        :raises NvmlError: the driver refused a step; those before it are done.
        :raises StepFailed: the driver offers no compute instance profile that is needed.
        """
        for gone in plan.destroy:
            self._destroy(gpu, gone.instance)
        for keep in plan.keep:
            for compute in keep.change.destroy:
                self._destroy_compute(gpu, keep.instance, compute)
            if keep.change.create:
                self._create_compute(gpu, keep.instance.id, keep.instance.profile, keep.change.create)
        for made in plan.create:
            self._create(gpu, made)

    def _node_gpu(self, state: GpuState) -> NodeGpu:
        read = {**state.facts, "device_id": state.device_id}
        if read["mig"]["supported"]:
            read["profiles"] = self.nvml.profiles(state.index, remaining=False)
        if self.variables.get("nvidia_mig_allocations") == "read":
            add_allocations([read], read_allocations(self.files))
        gpu = gpu_view(printable(read)).but(subsystem_id=state.subsystem_id)
        facts = view_of({"unknown": printable(state.unknown_facts)}).but(gpus=(gpu,))
        (found,) = node_gpus(facts, self.variables.get("nvidia_mig_busy_instances") or ())
        return found

    def _reset_gpu(self, gpu: NodeGpu, wanted: bool) -> None:
        reason = self.why_no_reset(gpu)
        if reason is not None:
            self.reset_failed[gpu.index] = reason
            return
        self._step(f"reset {gpu.title}")
        address = str(gpu.facts.pci_address)
        with self.nvml.closed():
            said = self._reset(address)
        if self.read_gpu(gpu.index).enabled == wanted:
            self.done.reset.append(gpu.title)
            return
        self.reset_failed[gpu.index] = f"nvidia-smi -r -i {address} left its mode as it was: {said}"

    def _destroy(self, gpu: NodeGpu, instance: GpuInstance) -> None:
        for compute in instance.compute:
            self._destroy_compute(gpu, instance, compute)
        self._step(f"destroy GPU instance {instance.id} ({instance.place}): {gpu.title}")
        with self._in_use(gpu, instance.place):
            nvml_gpus.destroy_gpu_instance(self.nvml, gpu.index, instance.id)
        self.done.destroyed.append(instance_title(gpu.title, instance.as_dict()))

    def _destroy_compute(self, gpu: NodeGpu, instance: GpuInstance, compute: ComputeInstance) -> None:
        self._free(gpu, gpu.pids(instance, compute.id))
        self._step(f"destroy compute instance {compute.id} of GPU instance {instance.id}: {gpu.title}")
        with self._in_use(gpu, instance.place):
            nvml_gpus.destroy_compute_instance(self.nvml, gpu.index, instance.id, compute.id)

    def _create(self, gpu: NodeGpu, made: Create) -> None:
        profile_id = made.profile.profile_id
        if profile_id is None:
            raise StepFailed(f"{gpu.title}: the driver does not offer the profile {made.profile.name}")
        place = f"{made.profile.name} at {made.start}:{made.size}"
        self._step(f"create GPU instance {place}: {gpu.title}")
        with self._in_use(gpu, place):
            new = nvml_gpus.create_gpu_instance(self.nvml, gpu.index, profile_id, made.start, made.size)
        self.done.created.append(instance_title(gpu.title, made.as_dict()))
        self._create_compute(gpu, new, made.profile.name, made.compute)

    def _create_compute(self, gpu: NodeGpu, gpu_instance: int, name: str, slices: Collection[int]) -> None:
        for width in slices:
            # Read again for each: which profiles still fit depends on what was made before.
            offered = self.nvml.compute_profiles(gpu.index, gpu_instance, name, parse(name).gpu_slices)
            profile = widest(offered, width)
            if profile is None:
                raise StepFailed(
                    f"{gpu.title}: the driver offers no compute instance of {width} slices in GPU instance "
                    f"{gpu_instance} ({name})"
                )
            self._step(f"create compute instance {profile.name} in GPU instance {gpu_instance}: {gpu.title}")
            nvml_gpus.create_compute_instance(self.nvml, gpu.index, gpu_instance, profile.id)

    @contextmanager
    def _in_use(self, gpu: NodeGpu, place: str) -> Iterator[None]:
        """Say who is in the way when the driver says that somebody is: the plan spared everybody whom NVML lists."""
        try:
            yield
        except NvmlError as error:
            if error.code != IN_USE:
                raise
            holders = [one for one in self._holders(gpu) if one.pid not in gpu.pids()]
            held = holders_of(holders, excused=TOLERATE_RESET)
            who = f"it may be {named(held)}, with the GPU open" if held else "/proc does not show which"
            raise StepFailed(
                f"{gpu.title}: {place} is in use by a process that NVML does not list ({error.call}: {error.symbol}); "
                f"{who}. End that process, or name the MIG device in nvidia_mig_busy_instances, so that it is kept"
            ) from error

    def _holders(self, gpu: NodeGpu) -> list[HolderFacts]:
        """Return who has the device of a GPU open and is not stopped for a change of it."""
        holders = open_by(device_holders(self.files, f"/dev/nvidia{gpu.facts.minor}").holders)
        return [holder for holder in holders if not self._is_mine(holder.pid)]

    def _free(self, gpu: NodeGpu, pids: Collection[int]) -> None:
        """End the processes on what is about to go. The planner lets it come to that only with disruption C(force)."""
        if not pids or self.variables.get("nvidia_mig_disruption") != FORCE:
            return
        self._step(f"end processes {', '.join(map(str, sorted(pids)))}: {gpu.title}")
        left = processes.terminate(pids)
        # NVML may go on to list one that has ended, until the next pass: it is told once.
        self.done.terminated += [pid for pid in pids if pid not in (*left, *self.done.terminated)]
        if left:
            raise StepFailed(f"{gpu.title}: processes {', '.join(map(str, left))} do not end")

    def _step(self, text: str) -> None:
        self.journal.step(text)
        self.done.steps.append(text)

    def _is_mine(self, pid: int) -> bool:
        """Whether a process belongs to a service that is stopped for the change anyway."""
        cgroup = self.files.read(f"/proc/{pid}/cgroup") or ""
        return any(f"/{service}" in cgroup for service in self.variables.get("nvidia_mig_restart_services") or ())


def widest(profiles: Collection[ComputeInstanceProfile], slices: int) -> ComputeInstanceProfile | None:
    """Return the profile with the most SMs among those of C(slices) slices that still fit, or None. A 1g.20gb of an H100 offers two of one slice: 16
    SMs (index 0) and 26 SMs (1_SLICE_REV1, index 7).
    """
    fitting = [profile for profile in profiles if profile.slices == slices and profile.remaining != 0]
    return max(fitting, key=lambda profile: (profile.multiprocessors, -profile.enum), default=None)


#: Services that read the GPUs once, when they start.
_SERVICES = ("nvidia-dcgm.service", "dcgm.service", "dcgm-exporter.service", "nvidia-dcgm-exporter.service")
#: Pods that read the GPUs once, when they start.
_PODS = ("pod nvidia-device-plugin", "pod gpu-feature-discovery", "pod dcgm-exporter")


# Both, since pylint as ansible-test runs it does not see what L(Failure) is.
class ServicesFailed(Failure, Exception):
    """A service did not stop or did not come back."""


def to_notify(restarted: Sequence[str]) -> tuple[str, ...]:
    """Return the clients on this host that have to notice a change and that nobody restarts here."""
    if not systemd.available():
        return ()
    try:
        units = systemd.units((*_SERVICES, *ALL_KUBELETS))
    except CommandError:
        return ()
    services = tuple(name for name in _SERVICES if units[name].is_active and name not in restarted)
    return services + (_PODS if any(units[name].is_active for name in ALL_KUBELETS) else ())


class Clients:
    """The services of a run that read the GPUs when they start.

    :param running: those that are active before the run, as the journal has them.
    :param owed: those that a run before had stopped, or had still to restart, when it was cut off.
    """

    def __init__(self, running: Sequence[str] = (), owed: Sequence[str] = ()) -> None:
        self.running = tuple(running)
        self.owed = tuple(owed)
        self._stopped: list[str] = []

    @property
    def concerned(self) -> tuple[str, ...]:
        """All of them, for the journal."""
        return tuple(dict.fromkeys((*self.running, *self.owed)))

    def stop(self) -> None:
        """Stop them for a change of mode. Raises ServicesFailed: one does not stop."""
        for service in self.running:
            self._stopped.append(service)
            try:
                systemd.stop(service)
            except CommandError as error:
                raise ServicesFailed(str(error)) from error

    def start_again(self, changed: bool) -> tuple[str, ...]:
        """Start those again that were stopped, and restart the others when the GPUs changed; return which. Raises ServicesFailed: one does not come
        back; all others are.
        """
        done, failed = [], []
        for service in self.concerned:
            stopped = service in self._stopped
            if not (stopped or changed or service in self.owed):
                continue
            try:
                (systemd.start if stopped else systemd.restart)(service)
                done.append(service)
            except CommandError as error:
                failed.append(str(error))
        self._stopped.clear()
        if failed:
            raise ServicesFailed("; ".join(failed))
        return tuple(done)


def active(services: Sequence[str]) -> tuple[str, ...]:
    """Return those services that run. Raises ServicesFailed: systemd does not answer."""
    try:
        return tuple(name for name, unit in systemd.units(services).items() if unit.is_active)
    except CommandError as error:
        raise ServicesFailed(str(error)) from error
