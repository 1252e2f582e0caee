# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: RUF009 (the functions declare fields)

"""The facts document, typed: what planners see of a host. Each field is declared once, with the bounds of real hosts. Pure.

What a field means is in C(docs/facts.md). None is what the host could not tell or does not have, and what an older release did not read. A host's facts
are what the host says: C(_facts/schema.py) makes the view of them, and a host whose facts do not fit is one that was not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ._gpu_facts import ID, GpuFacts
from ._printable import printable
from ._records import OF_FACTS, HostSharing, PreviousDriver, RecordedLayout, Settings, Unusable
from ._runtimes import FileFaultFacts
from ._schema import (
    FACTS_SCHEMA,
    OUTPUT,
    View,
    anything,
    boolean,
    check,
    has,
    items,
    mapping,
    needs,
    not_null,
    number,
    of,
    text,
)

_NAME, _TEXT = text(256), text()
_NAMES, _TEXTS, _FEW_NAMES = items(_NAME), items(_TEXT), items(_NAME, 64)
_VERSIONS = mapping(not_null(_NAME))
_RECORD = mapping(anything)


@dataclass(frozen=True)
class UnitFacts(View):
    """A program and its unit; masked is a unit that nothing can start."""

    installed: bool | None = has(boolean)
    active: bool | None = has(boolean)
    masked: bool = has(boolean, False)
    version: str | None = has(_NAME)


@dataclass(frozen=True)
class NextKernelFacts(View):
    release: str | None = has(_NAME)
    version: str | None = has(_NAME)
    vermagic: str | None = has(_NAME)
    headers: bool | None = has(boolean)
    signer: str | None = has(_TEXT)
    key_enrolled: bool | None = has(boolean)


@dataclass(frozen=True)
class DkmsFacts(View):
    """A DKMS build of the driver's modules, C(name) being what DKMS calls them."""

    name: str | None = has(_NAME)
    version: str | None = has(_NAME)
    kernel: str | None = has(_NAME)
    state: str | None = has(_NAME)


@dataclass(frozen=True)
class DriverFacts(View):
    loaded_version: str | None = has(_NAME)
    on_disk_version: str | None = has(_NAME)
    on_disk_unread: bool = has(boolean, False)
    library_version: str | None = has(_NAME)
    flavour: str | None = has(_NAME)
    source: str | None = has(_NAME)
    vendor: str | None = has(_TEXT)
    packages: Mapping[str, str] | None = has(_VERSIONS)
    holds: tuple[str, ...] | None = has(_TEXTS)
    nouveau_loaded: bool | None = has(boolean)
    modules: tuple[str, ...] | None = has(_NAMES)
    next_kernel: NextKernelFacts | None = has(of(NextKernelFacts))
    configured_parameters: Mapping[str, str] | None = has(mapping(_TEXT, 256))
    loaded_parameters: Mapping[str, str] | None = has(mapping(_TEXT, 256))
    dkms: tuple[DkmsFacts, ...] | None = has(items(of(DkmsFacts)))
    persistence_daemon: UnitFacts = has(of(UnitFacts), UnitFacts())


@dataclass(frozen=True)
class StartedFacts(View):
    """A pod that C(nvidia-container-runtime) started, or a container without one; C(program): which of them it was."""

    program: str = needs(_TEXT)
    name: str = needs(_TEXT)
    pod_uid: str | None = has(_NAME)


@dataclass(frozen=True)
class RuntimeFacts(View):
    version: str | None = has(_NAME)
    default_runtime: str | None = has(_NAME)
    config_path: str | None = has(_TEXT)
    binary: str | None = has(_TEXT)
    low_level_runtime: str | None = has(_TEXT)
    active: bool | None = has(boolean)
    own: bool | None = has(boolean)
    config_version: int | None = has(number(0, 1000))
    nvidia: bool | None = has(boolean)
    has_type: bool | None = has(boolean)
    cdi: bool | None = has(boolean)
    cgroup_drivers: Mapping[str, str] | None = has(_VERSIONS)
    monitors: Mapping[str, str | None] | None = has(mapping(_TEXT))
    leftovers: tuple[str, ...] | None = has(_TEXTS)
    containers: tuple[StartedFacts, ...] = has(items(of(StartedFacts)), ())
    sandboxers: Mapping[str, str] | None = has(_VERSIONS)
    cdi_folders: tuple[str, ...] | None = has(_TEXTS)
    absent: tuple[str, ...] | None = has(_TEXTS)
    fault: FileFaultFacts | None = has(of(FileFaultFacts))


@dataclass(frozen=True)
class CardFacts(View):
    """A device on the PCI bus, seen without a driver. C(architecture), of a GPU: None where it is not in the table of boards."""

    address: str = needs(_NAME)
    device_id: str | None = has(_NAME)
    subsystem_id: str | None = has(_NAME)
    kind: str | None = has(_NAME)
    kernel_driver: str | None = has(_NAME)
    board: str | None = has(_NAME)
    architecture: str | None = has(_NAME)
    numa_node: int | None = has(number(-1, 65535))

    @property
    def title(self) -> str:
        return f"{self.board or self.device_id} ({self.address})"


@dataclass(frozen=True)
class MpsDaemonFacts(View):
    """An MPS control daemon. C(devices): UUIDs that it was started for; empty for all GPUs."""

    pid: int = needs(ID)
    pipe_directory: str | None = has(_TEXT)
    responds: bool | None = has(boolean)
    in_container: bool | None = has(boolean)
    percentage: float | None = has(number(0, 100, real=True))
    limits: tuple[str, ...] | None = has(_FEW_NAMES)
    clients: int | None = has(number(0, 65536))
    servers: tuple[int, ...] | None = has(items(ID))
    devices: tuple[str, ...] | None = has(_FEW_NAMES)

    def serves(self, devices: Sequence[str]) -> bool:
        return not self.devices or bool(set(self.devices) & set(devices))


@dataclass(frozen=True)
class MpsControlFacts(View):
    installed: bool | None = has(boolean)
    multi_user: bool | None = has(boolean)


@dataclass(frozen=True)
class CdiFacts(View):
    path: str = needs(_TEXT)
    kind: str | None = has(_TEXT)
    version: str | None = has(_TEXT)
    devices: int | None = has(number(0, 65536))
    missing: tuple[str, ...] | None = has(_FEW_NAMES)
    stale: tuple[str, ...] | None = has(_FEW_NAMES)
    differs: tuple[str, ...] | None = has(items(_TEXT, 64))
    own: bool | None = has(boolean)
    double: str | None = has(_TEXT)


@dataclass(frozen=True)
class HolderFacts(View):
    pid: int = needs(ID)
    command: str = needs(_TEXT)
    devices: tuple[str, ...] = needs(_TEXTS)
    command_line: str | None = has(_TEXT)
    pod_uid: str | None = has(_TEXT)
    container_id: str | None = has(_TEXT)
    unit: str | None = has(_TEXT)


@dataclass(frozen=True)
class DistributionFacts(View):
    id: str | None = has(_NAME)
    version: str | None = has(_NAME)
    codename: str | None = has(_NAME)
    family: str | None = has(_NAME)


@dataclass(frozen=True)
class HostFacts(View):
    name: str | None = has(_NAME)
    kernel: str | None = has(_NAME)
    architecture: str | None = has(_NAME)
    boot_id: str | None = has(_NAME)
    python: str | None = has(_NAME)
    package_manager: str | None = has(_NAME)
    distribution: DistributionFacts = has(of(DistributionFacts), DistributionFacts())
    kernel_packages: tuple[str, ...] | None = has(_NAMES)
    headers_not_offered: tuple[str, ...] | None = has(_FEW_NAMES)
    root: bool | None = has(boolean)
    secure_boot: bool | None = has(boolean)
    kernel_headers: bool | None = has(boolean)
    container: bool | None = has(boolean)


@dataclass(frozen=True)
class NvmlFacts(View):
    available: bool = has(boolean, False)
    reason: str | None = has(_TEXT)
    code: str | None = has(_TEXT)
    version: str | None = has(_TEXT)
    cuda_version: str | None = has(_TEXT)

    @property
    def unanswered(self) -> str:
        """Why GPUs cannot be planned for."""
        return f"the GPUs cannot be queried yet: {self.reason or 'no GPU is visible'}"


@dataclass(frozen=True)
class ImexFacts(View):
    active: bool | None = has(boolean)
    enabled: bool | None = has(boolean)
    masked: bool | None = has(boolean)
    version: str | None = has(_NAME)
    nodes: tuple[str, ...] | None = has(items(_NAME, 1024))


@dataclass(frozen=True)
class FabricFacts(View):
    nvswitches: int | None = has(number(0, 1024))
    switch_ports: int | None = has(number(0, 1024))
    virtual_machine: bool | None = has(boolean)
    manager: UnitFacts = has(of(UnitFacts), UnitFacts())
    state: str | None = has(_NAME)
    lacking_modules: tuple[str, ...] | None = has(_FEW_NAMES)
    imex: ImexFacts | None = has(of(ImexFacts))


@dataclass(frozen=True)
class ToolkitFacts(View):
    version: str | None = has(_NAME)
    packages: Mapping[str, str] | None = has(_VERSIONS)
    holds: tuple[str, ...] | None = has(_TEXTS)
    accept_envvar_unprivileged: bool | None = has(boolean)
    accept_volume_mounts: bool | None = has(boolean)
    low_level_runtimes: tuple[str, ...] | None = has(_TEXTS)
    hooks: Mapping[str, bool] | None = has(mapping(not_null(boolean)))
    settings: Mapping[str, str] | None = has(_VERSIONS)


@dataclass(frozen=True)
class DcgmFacts(View):
    packages: Mapping[str, str] | None = has(_VERSIONS)
    holds: tuple[str, ...] | None = has(_TEXTS)
    dcgmi: str | None = has(_TEXT)
    active: bool | None = has(boolean)
    enabled: bool | None = has(boolean)


@dataclass(frozen=True)
class RolledOutFacts(View):
    """What an upgrade or a rollback left, and the layout that a repartition replaced."""

    driver: str | None = has(_TEXT)
    former: str | None = has(_TEXT)
    operator: str | None = has(_TEXT)
    since: str | None = has(_TEXT)
    former_layout: Mapping[str, Any] | None = has(_RECORD)


@dataclass(frozen=True)
class RecordedFacts(View):
    """The records on a host. C(heal) is read by the playbook that keeps it."""

    mig: RecordedLayout | Unusable | None = has(OF_FACTS["mig"])
    sharing: HostSharing | None = has(OF_FACTS["sharing"])
    settings: Settings | Unusable | None = has(OF_FACTS["settings"])
    heal: Mapping[str, Any] | None = has(_RECORD)
    driver_previous: PreviousDriver | None = has(OF_FACTS["driver_previous"])
    mig_unfinished: bool | None = has(boolean)
    repartition_unfinished: bool | None = has(boolean)
    acceptance_owed: bool | None = has(boolean)
    upgrade_state: str | None = has(_NAME)
    upgrade_to: str | None = has(_TEXT)
    rolled_out: RolledOutFacts = has(of(RolledOutFacts), RolledOutFacts())
    plan_begun: str | None = has(_NAME)
    plan_applied: str | None = has(_NAME)


@dataclass(frozen=True)
class BootUnitFacts(View):
    """A unit of the collection: C(state) is enabled, disabled or masked."""

    state: str = needs(_NAME)
    sha256: str | None = has(_NAME)


@dataclass(frozen=True)
class ProgramFacts(View):
    """The host program. Without C(units) an older release read it; null, systemd does not run."""

    version: str | None = has(_TEXT)
    python: str | None = has(_TEXT)
    metrics_directory: str | None = has(_TEXT)
    sha256: str | None = has(_NAME)
    metrics_active: bool | None = has(boolean)
    units: Mapping[str, BootUnitFacts] | None = has(mapping(not_null(of(BootUnitFacts)), 4096))


@dataclass(frozen=True)
class AnswerFacts(View):
    """How a command ended: its exit status, or None where it did not start or not end, and what it said."""

    rc: int | None = has(number(-255, 255))
    text: str = needs(OUTPUT, "")


@dataclass(frozen=True)
class LoggedFacts(View):
    """An error that a driver wrote to the kernel's log since the host booted."""

    number: int = needs(number(0, 65535))
    pci_address: str = needs(_NAME)
    text: str = needs(OUTPUT)


class Xid(LoggedFacts):
    """Of a GPU."""


class Sxid(LoggedFacts):
    """Of an NVSwitch."""


@dataclass(frozen=True)
class HealthFacts(View):
    nvidia_smi: AnswerFacts | None = has(of(AnswerFacts))
    cuda_program: str | None = has(_TEXT)
    not_initialized: Mapping[str, str] | None = has(_VERSIONS)
    xids: tuple[Xid, ...] | None = has(items(of(Xid)))
    sxids: tuple[Sxid, ...] | None = has(items(of(Sxid)))


@dataclass(frozen=True)
class MigPartedFacts(View):
    config_path: str | None = has(_TEXT)
    config: str | None = has(OUTPUT)
    selected: str | None = has(_TEXT)
    enabled: bool | None = has(boolean)


@dataclass(frozen=True)
class SlurmFacts(View):
    """The rendered files of Slurm on a node, by name the digest of each, and by daemon what it was last started with; what both programs print; and by
    path the texts of the site's own files.
    """

    files: Mapping[str, str] | None = has(_VERSIONS)
    applied: Mapping[str, str] | None = has(_VERSIONS)
    slurmd: str | None = has(OUTPUT)
    scontrol: str | None = has(OUTPUT)
    site: Mapping[str, str] | None = has(mapping(OUTPUT, 64))


@dataclass(frozen=True)
class Facts(View):
    """All of a host. C(pci) and C(gpus) are None where the bus or NVML could not be read, and empty where there is nothing."""

    schema: int = has(number(FACTS_SCHEMA, FACTS_SCHEMA), FACTS_SCHEMA)
    host: HostFacts = has(of(HostFacts), HostFacts())
    pci: tuple[CardFacts, ...] | None = has(items(of(CardFacts), 1024))
    driver: DriverFacts = has(of(DriverFacts), DriverFacts())
    nvml: NvmlFacts = has(of(NvmlFacts), NvmlFacts())
    gpus: tuple[GpuFacts, ...] | None = has(items(of(GpuFacts), 64))
    fabric: FabricFacts = has(of(FabricFacts), FabricFacts())
    mps: tuple[MpsDaemonFacts, ...] | None = has(items(of(MpsDaemonFacts), 4096))
    mps_control: MpsControlFacts = has(of(MpsControlFacts), MpsControlFacts())
    toolkit: ToolkitFacts = has(of(ToolkitFacts), ToolkitFacts())
    dcgm: DcgmFacts | None = has(of(DcgmFacts))
    runtimes: Mapping[str, RuntimeFacts] | None = has(mapping(not_null(of(RuntimeFacts)), 64))
    kubelet: UnitFacts = has(of(UnitFacts), UnitFacts())
    cdi: tuple[CdiFacts, ...] | None = has(items(of(CdiFacts), 1024))
    recorded: RecordedFacts = has(of(RecordedFacts), RecordedFacts())
    host_program: ProgramFacts = has(of(ProgramFacts), ProgramFacts())
    health: HealthFacts | None = has(of(HealthFacts))
    holders: tuple[HolderFacts, ...] | None = has(items(of(HolderFacts), 65536))
    mig_parted: MigPartedFacts | None = has(of(MigPartedFacts))
    slurm: SlurmFacts | None = has(of(SlurmFacts))
    key_files: Mapping[str, str | None] | None = has(mapping(_TEXT, 8))
    unknown: Mapping[str, str | None] | None = has(mapping(_TEXT))

    @property
    def lost(self) -> tuple[GpuFacts, ...]:
        """The GPUs that fell off the bus."""
        return tuple(gpu for gpu in self.gpus or () if gpu.lost)


_FACTS, _HOLDERS = of(Facts), items(of(HolderFacts), 65536)


def open_by(read: Sequence[Mapping[str, Any]]) -> Sequence[HolderFacts]:
    """Return who has device files open, as it was read just now. Raises Unfit: it is no part C(holders) of the facts."""
    found: Sequence[HolderFacts] = check(_HOLDERS, printable(read))
    return found


def view_of(document: Mapping[str, Any]) -> Facts:
    """Return the view of a facts document, of which only what one field says is checked. Raises Unfit: it does not fit; the message has the path and
    the reason.
    """
    found: Facts = check(_FACTS, document)
    return found
