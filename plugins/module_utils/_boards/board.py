# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The shape of the board table: boards, their MIG profiles and where instances of a profile can be placed.

None always means that no source gives the value. It never means zero and is never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Placements:
    """Where instances of a profile can start, on the board's grid of units, as C(nvidia-smi mig -lgipp) prints it, and how many units each takes."""

    starts: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class GpuInstanceProfile:
    """One kind of GPU instance that a board (or a live driver) offers.

    :param nvml_profile: the part of the NVML constant after C(NVML_GPU_INSTANCE_PROFILE_).
    :param nvml_enum: the index passed to C(nvmlDeviceGetGpuInstanceProfileInfo).
    :param profile_id: the ID column of C(nvidia-smi mig -lgip), unlike C(nvml_enum).
    :param memory_mib: memory of an instance in MiB; differs a little between drivers.
    :param source: key of C(SOURCES) for the numbers; C(live) for a profile read from NVML.
    """

    name: str
    gpu_slices: int
    max_instances: int
    placements: Placements | None = None
    memory_mib: int | None = None
    multiprocessors: int | None = None
    copy_engines: int | None = None
    decoders: int | None = None
    encoders: int | None = None
    jpeg: int | None = None
    ofa: int | None = None
    nvml_profile: str | None = None
    nvml_enum: int | None = None
    profile_id: int | None = None
    source: str = "live"
    placements_source: str | None = None
    note: str | None = None


#: NVLink 5 with the switches in the GPU's own host (HGX): its fabric manager and subnet manager have to run there.
SWITCHES_IN_HOST = "host"
#: NVLink 5 with the switches outside of it (NVL72): a GPU host has no fabric manager of its own (aks-gpu#170).
SWITCHES_IN_RACK = "rack"

#: Which switches a fabric manager serves: NVSwitches of before NVLink 5, which the PCI bus shows as such, or those of NVLink 5.
NVSWITCH, NVLINK5 = "nvswitch", "nvlink5"

#: What the fabric manager's check before its start asks for with NVLink 5 (570 and newer): it speaks to the switches through a ConnectX
#: function (gpu-driver-container, nvidia-driver; canvos#700). In Ubuntu mlx5_ib is in linux-modules-extra.
NVLINK5_MODULES = ("mlx5_core", "mlx5_ib", "ib_umad")


@dataclass(frozen=True)
class Board:
    """One kind of GPU board.

    :param pci_device_ids: C(0xDDDDVVVV), device id followed by NVIDIA's vendor id 10DE, upper case.
    :param total_memory_mib: memory in MiB as a driver reports it, with ECC as the board is delivered; on boards with GDDR6 that is less than the
        label says. Drivers before 510 report a little less.
    :param memory_label: the size in the vendor's name of the product, such as C(80GB); a label, not a measure.
    :param placement_grid_units: how many memory units MIG divides the board into; not always a power of two.
    :param nvlink5_switches: L(SWITCHES_IN_HOST) or L(SWITCHES_IN_RACK) for boards with NVLink 5. Their switches are not found on the PCI bus as
        NVSwitches are: the GPU decides (gpu-operator#2781). None for all other boards, whether they have NVLink or not.
    """

    key: str
    product_names: tuple[str, ...]
    pci_device_ids: tuple[str, ...]
    architecture: str
    total_memory_mib: int | None = None
    memory_label: str | None = None
    memory_source: str | None = None
    compute_slices: int | None = None
    placement_grid_units: int | None = None
    sm_total: int | None = None
    profiles: tuple[GpuInstanceProfile, ...] = ()
    caveat: str | None = None
    placements_note: str | None = None
    source: str | None = None
    nvlink5_switches: str | None = None

    @property
    def mig(self) -> bool:
        return bool(self.profiles)

    @property
    def most_memory_mib(self) -> int | None:
        """The most that a driver can report, which it does where ECC was switched off: what the label says."""
        return int(self.memory_label[:-2]) * 1024 if self.memory_label else self.total_memory_mib


#: A row of the tables, read like a line of nvidia-smi mig -lgip: what stands in L(_COLUMNS), and the source where it is not the table's.
Row = tuple[Any, ...]
_COLUMNS = (
    *("name", "nvml_profile", "nvml_enum", "profile_id", "gpu_slices", "max_instances", "memory_mib"),
    *("multiprocessors", "copy_engines", "decoders", "encoders", "jpeg", "ofa", "placements"),
)

# Where one-unit instances go on the boards with seven slices: never on the last of the eight units.
EIGHTHS = "{0,1,2,3,4,5,6}:1"


def parse_placements(text: str) -> Placements:
    """Read placements as C(nvidia-smi mig -lgipp) prints them: C({0,2,4}:2). Raises ValueError: when the text has another form."""
    starts, separator, size = text.partition("}:")
    if not separator or not starts.startswith("{"):
        raise ValueError(f"placements are written {{starts}}:size, got {text!r}")
    return Placements(tuple(int(start) for start in starts[1:].split(",")), int(size))


def profiles_from(
    *rows: Row, source: str, placements_source: str | None = None, notes: Mapping[str, str] | None = None
) -> tuple[GpuInstanceProfile, ...]:
    """Turn table rows into profiles. C(source) and C(placements_source): keys of C(SOURCES) for rows that name none of their own."""
    profiles = []
    for row in rows:
        values = dict(zip(_COLUMNS, row))
        placed = values.pop("placements")
        profiles.append(
            GpuInstanceProfile(
                **values,
                placements=None if placed is None else parse_placements(placed),
                source=row[len(_COLUMNS)] if len(row) > len(_COLUMNS) else source,
                placements_source=None if placed is None else placements_source,
                note=(notes or {}).get(values["name"]),
            )
        )
    return tuple(profiles)
