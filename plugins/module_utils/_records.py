# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: RUF009 (the functions declare fields)

"""The records that a host keeps: what it restores at boot, and the driver that it had. Each is declared once, for its file and for the facts. Pure.

A GPU is recorded as plain data, in the journal of MIG as well::

    {"uuid": "GPU-...", "pci_address": "0000:18:00.0", "name": "NVIDIA H100 80GB HBM3", "mig": true,
     "instances": [{"profile": "3g.40gb", "start": 4, "size": 4, "compute": [3]}]}

Compute instances are their slices, widest first. Places are the GPU's own placement units.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ._gpu_settings import Clocks
from ._schema import (
    SCHEMA,
    Path,
    Record,
    anything,
    boolean,
    encode,
    has,
    if_it_fits,
    items,
    mapping,
    needs,
    not_null,
    number,
    of,
    text,
)

#: What leaves compute mode and time slice as a driver has them after every boot.
DEFAULT = "default"
#: MHz; a value beyond it is a slip, and NVML has no clock that fast.
FASTEST = 20000
_NAME, _PLACE, _CLOCKS = text(256), number(0, 64), items(number(0, FASTEST), 2, least=2)


@dataclass(frozen=True)
class Unusable:
    """Stands for a record that says nothing that is understood."""

    why: str


@dataclass(frozen=True)
class PlacedInstance:
    """A GPU instance at a place, with the slices of its compute instances, widest first."""

    profile: str = needs(text(64))
    start: int = needs(_PLACE)
    size: int = needs(_PLACE)
    compute: tuple[int, ...] = needs(items(_PLACE, 64), ())


def in_order(places: Iterable[PlacedInstance]) -> tuple[PlacedInstance, ...]:
    found = (
        replace(one, compute=tuple(sorted(one.compute, reverse=True))) if len(one.compute) > 1 else one
        for one in places
    )
    return tuple(sorted(found, key=lambda one: one.start))


_PLACED = items(of(PlacedInstance), 64)


def _on_grid(value: Any, path: Path) -> tuple[PlacedInstance, ...]:
    """The instances of a GPU, in their order on the grid."""
    return in_order(_PLACED(value, path) or ())


@dataclass(frozen=True)
class GpuRecord:
    """One GPU as it was. C(mig): MIG mode; None for a board without MIG, which is never changed."""

    uuid: str = needs(_NAME)
    pci_address: str = needs(_NAME)
    name: str = needs(_NAME)
    mig: bool | None = has(boolean)
    instances: tuple[PlacedInstance, ...] = needs(_on_grid, ())

    def as_dict(self) -> dict[str, Any]:
        return dict(encode(self))


GPUS = items(of(GpuRecord), 1024)
#: What somebody asked for, which is shown and not acted on.
REQUEST = if_it_fits(mapping(anything))


@dataclass(frozen=True)
class RecordedLayout(Record):
    """What is kept under C(/etc/gpufleet/mig.json). C(request): the layout and strategy that were asked for, for people who read the file."""

    gpus: tuple[GpuRecord, ...] = needs(GPUS)
    request: Mapping[str, Any] | None = has(REQUEST)


LAYOUT = of(RecordedLayout, SCHEMA)


@dataclass(frozen=True)
class Daemon:
    """One MPS control daemon.

    :param name: the instance of C(gpufleet-mps@.service).
    :param devices: UUIDs of the GPUs or MIG devices that it serves; their position is the ordinal of a limit.
    :param limits_mib: memory of a client on each device, in the order of C(devices); 0 is no limit.
    :param percentage: active thread percentage of a client.
    :param priority: 0 normal, 1 below normal.
    :param protocol: 2 or 3. With 3 the limits are those of a named server, whose directory clients connect to.
    :param shm_directory: what the daemon and its servers have as /dev/shm; empty where that is the host's own.
    """

    name: str = needs(_NAME)
    devices: tuple[str, ...] = needs(items(_NAME, 1024))
    pipe_directory: str = needs(text())
    log_directory: str = needs(text())
    limits_mib: tuple[int, ...] = needs(items(number(), 1024))
    percentage: float = needs(number(0, 100, real=True))
    priority: int = needs(number(0, 100))
    multi_user: bool = needs(boolean)
    protocol: int = has(number(2, 3), 2)
    shm_directory: str = has(text(), "")


DAEMON = of(Daemon)


@dataclass(frozen=True)
class HostSharing(Record):
    """What a host keeps for sharing, and restores after a reboot.

    :param compute_mode: the mode of every GPU, or None to leave it to whoever manages MPS.
    :param time_slice: C(default), C(short), C(medium), C(long), or None to leave it alone.
    """

    compute_mode: str | None = has(text(64))
    time_slice: str | None = has(text(64))
    daemons: tuple[Daemon, ...] = has(items(DAEMON, 4096), ())

    @property
    def content(self) -> tuple[Any, ...]:
        """What two records have to have in common; the order of the daemons means nothing."""
        return self.compute_mode, self.time_slice, frozenset(self.daemons)

    @property
    def is_default(self) -> bool:
        """Whether it is what a driver has after every boot."""
        return not self.daemons and {self.compute_mode, self.time_slice} <= {None, DEFAULT}


SHARING = of(HostSharing, SCHEMA)

#: Stands for a record that cannot be read: it is like none that is wanted, so it is written anew.
UNREADABLE = HostSharing(compute_mode="unreadable")


@dataclass(frozen=True)
class Settings(Record):
    """What is set on every GPU of a host; None is left to the board and its driver.

    :param power_limit: in watts.
    :param graphics_clocks: the lowest and the highest frequency in MHz that the clock is locked to; C(memory_clocks) the same.
    :param application_clocks: the frequency in MHz of the memory and of the graphics engine.
    """

    power_limit: int | None = has(number())
    graphics_clocks: Clocks | None = has(_CLOCKS)
    memory_clocks: Clocks | None = has(_CLOCKS)
    application_clocks: Clocks | None = has(_CLOCKS)
    ecc: bool | None = has(boolean)

    @property
    def anything(self) -> bool:
        return self != Settings()


SETTINGS = of(Settings, SCHEMA)


@dataclass(frozen=True)
class PreviousDriver(Record):
    """A package set that worked.

    :param version: of the driver.
    :param packages: the driver's packages with their package versions.
    :param stream: the enabled dnf module stream, or empty.
    :param pending: the version that the change which wrote this was going to, or empty when it succeeded.
    :param toolkit: the version of the container toolkit that was there with it, or empty; a rollback by hand goes back to both.
    """

    version: str = needs(_NAME)
    packages: Mapping[str, str] = needs(mapping(not_null(_NAME), least=1))
    flavour: str = has(_NAME, "")
    source: str = has(_NAME, "")
    stream: str = has(_NAME, "")
    pending: str = has(_NAME, "")
    toolkit: str = has(_NAME, "")


PREVIOUS_DRIVER = of(PreviousDriver, SCHEMA)

#: By the fields of the facts. The driver stage has nothing to go back to where the record says nothing.
OF_FACTS = {
    "mig": if_it_fits(LAYOUT, Unusable),
    "sharing": if_it_fits(SHARING, lambda _why: UNREADABLE),
    "settings": if_it_fits(SETTINGS, Unusable),
    "driver_previous": if_it_fits(PREVIOUS_DRIVER),
}
