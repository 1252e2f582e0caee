# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the virtual NVML answers beyond the collection's table of boards.

The table leaves out what no source gives. A board that answers has to answer something, so generate_boards.py fills the
rest by the rules and numbers here and marks it as assumed in the header. What a test proves with an assumed value holds
for the code under test, not for the hardware.
"""

from __future__ import annotations

from dataclasses import dataclass

TESLA, GEFORCE, NVIDIA_RTX, NVIDIA = 2, 5, 13, 14


@dataclass(frozen=True)
class Extra:
    """Answers of one board that MIG has no part in, and replacements for what its table leaves out.

    :param subsystem: PCI subsystem device id.
    :param power_w: power limit in W.
    :param least_power_w: the lowest limit; four tenths of C(power_w), which is assumed, where no source says it.
    :param memory_clocks: in MHz, the highest first; those of H100 where no source says others.
    :param bus_width: of the memory, in bits.
    :param nvlinks: NVLinks of the board; 0 for a card without.
    :param capability: CUDA compute capability where it is not the first one of its architecture.
    :param brand: NVML's brand.
    :param pci_class: PCI class code.
    """

    subsystem: int = 0x1000
    power_w: int = 300
    least_power_w: int | None = None
    memory_clocks: tuple[int, int] = (2619, 1593)
    bus_width: int = 5120
    bar1_mib: int = 131072
    nvlinks: int = 0
    capability: tuple[int, int] | None = None
    brand: int = NVIDIA
    pci_class: int = 0x030200
    sm_total: int | None = None
    compute_slices: int | None = None
    placement_grid_units: int | None = None


EXTRAS = {
    "a30-24gb": Extra(subsystem=0x1532, power_w=165),
    "a100-40gb": Extra(subsystem=0x134F, nvlinks=12, power_w=400),
    "a100-80gb": Extra(subsystem=0x1463, nvlinks=12, power_w=400),
    # All of it recorded: tests/real/h100-80gb-sxm-580.159.04.
    "h100-80gb-sxm": Extra(subsystem=0x16C1, nvlinks=18, power_w=700, least_power_w=200),
    "h100-80gb-pcie": Extra(subsystem=0x1626, power_w=350),
    "h100-nvl-94gb": Extra(subsystem=0x1839, nvlinks=12, power_w=400),
    "h100-96gb-gh200": Extra(subsystem=0x16EB, power_w=900),
    "gh200-144gb": Extra(power_w=900, sm_total=132),
    # All of it recorded: tests/real/h200-141gb-580.159.04.
    "h200-141gb": Extra(
        subsystem=0x18BF,
        nvlinks=18,
        power_w=700,
        least_power_w=200,
        memory_clocks=(3201, 2201),
        bus_width=6016,
        bar1_mib=262144,
    ),
    "h20-96gb": Extra(nvlinks=18, power_w=500, sm_total=78),
    "b200-180gb": Extra(subsystem=0x1999, nvlinks=18, power_w=1000, sm_total=148),
    "gb200-186gb": Extra(subsystem=0x2046, nvlinks=18, power_w=1200, sm_total=152),
    "b300-269gb": Extra(nvlinks=18, power_w=1100, sm_total=148, capability=(10, 3)),
    "gb300-278gb": Extra(nvlinks=18, power_w=1400, sm_total=152, capability=(10, 3)),
    "rtx-pro-6000-96gb": Extra(power_w=600, capability=(12, 0), brand=NVIDIA_RTX),
    "rtx-pro-5000-48gb": Extra(
        power_w=300, capability=(12, 0), brand=NVIDIA_RTX, sm_total=110, compute_slices=2, placement_grid_units=12
    ),
    "rtx-pro-4500-32gb": Extra(power_w=200, capability=(12, 0), brand=NVIDIA_RTX, sm_total=82, placement_grid_units=12),
    "t4-16gb": Extra(subsystem=0x12A2, power_w=70, brand=TESLA, sm_total=40),
    "l40s-48gb": Extra(subsystem=0x1851, power_w=350, sm_total=142),
    "v100-16gb": Extra(subsystem=0x1214, power_w=250, brand=TESLA, sm_total=80),
    "rtx-2080-ti": Extra(subsystem=0x12A4, power_w=260, brand=GEFORCE, pci_class=0x030000, sm_total=68),
}

#: Boards without MIG that a lab host can have, with the one device id and product of the table's row that it is.
WITHOUT_MIG = {
    "t4-16gb": ("0x1EB810DE", "Tesla T4"),
    "l40s-48gb": ("0x26B910DE", "NVIDIA L40S"),
    "v100-16gb": ("0x1DB410DE", "Tesla V100-PCIE-16GB"),
    "rtx-2080-ti": ("0x1E0710DE", "NVIDIA GeForce RTX 2080 Ti"),
}

#: In the table for offline look-up only: the same board under a name of mig-parted's filter, with no numbers at all.
LEFT_OUT = {"pg506-96gb"}


@dataclass(frozen=True)
class Variant:
    """The same chip under another driver, with ECC off, or of an early lot: other memory, even other profile names.

    :param profiles: new name and MiB by the name in the table.
    """

    key: str
    of: str
    memory_label: str | None = None
    total_memory_mib: int | None = None
    profiles: tuple[tuple[str, str, int], ...] = ()


VARIANTS = (
    Variant(
        "a100-80gb-later-driver", "a100-80gb",
        profiles=(("1g.10gb", "1g.10gb", 9984), ("1g.10gb+me", "1g.10gb+me", 9984)),
    ),
    Variant(
        "b200-180gb-earlier-driver", "b200-180gb",
        profiles=(("1g.23gb", "1g.23gb", 22528), ("1g.23gb+me", "1g.23gb+me", 22528)),
    ),
    Variant(
        "gb200-189gb-early", "gb200-186gb", memory_label="189GB",
        profiles=(
            ("1g.23gb", "1g.24gb", 20480), ("1g.23gb+me", "1g.24gb+me", 20480), ("1g.47gb", "1g.47gb", 47104),
            ("2g.47gb", "2g.47gb", 47104), ("3g.93gb", "3g.95gb", 94720), ("4g.93gb", "4g.95gb", 94720),
            ("7g.186gb", "7g.189gb", 190464),
        ),
    ),
    # With ECC switched off, cards with GDDR6 report a sixteenth more: as an A40, which has the same memory, does (see the table's sources).
    Variant("l40s-48gb-without-ecc", "l40s-48gb", total_memory_mib=49140),
)  # fmt: skip

#: NVML reports a wrong InstanceCount on A30. That it is wrong is known (mig-parted), how wrong is assumed.
REPORTED_INSTANCE_COUNT = {("a30-24gb", "1g.6gb"): 7, ("a30-24gb", "2g.12gb"): 3}

#: By kind of profile, for boards whose table lacks them: profile id and placements of the usual eight-unit grid, NVML's enum.
PROFILE_IDS = {"1g": 19, "1g+me": 20, "1gx2": 15, "2g": 14, "3g": 9, "4g": 5, "7g": 0}
EIGHTHS = (0, 1, 2, 3, 4, 5, 6)
PLACEMENTS_8 = {
    "1g": (EIGHTHS, 1), "1g+me": (EIGHTHS, 1), "1gx2": ((0, 2, 4, 6), 2), "2g": ((0, 2, 4), 2), "3g": ((0, 4), 4),
    "4g": ((0,), 4), "7g": ((0,), 8),
}  # fmt: skip
NVML_ENUMS = {
    "1g": 0, "2g": 1, "3g": 2, "4g": 3, "7g": 4, "1g+me": 7, "2g+me": 8, "1gx2": 9, "1g+gfx": 10, "2g+gfx": 11,
    "4g+gfx": 12, "1g-me": 13, "2g-me": 14, "1g+me.all": 15, "2g+me.all": 16,
}  # fmt: skip
