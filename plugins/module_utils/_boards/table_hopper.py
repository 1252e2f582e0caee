# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hopper boards with MIG: H100, H20, H200 and Grace Hopper. Columns of a profile row: L(model.Row)."""

from __future__ import annotations

from functools import partial

from .board import EIGHTHS, Board, profiles_from

_H100_80GB_SXM = profiles_from(
    ("1g.10gb", "1_SLICE", 0, 19, 1, 7, 9984, 16, 1, 1, 0, 1, 0, EIGHTHS),
    ("1g.10gb+me", "1_SLICE_REV1", 7, 20, 1, 1, 9984, 16, 1, 1, 0, 1, 1, EIGHTHS),
    ("1g.20gb", "1_SLICE_REV2", 9, 15, 1, 4, 20096, 26, 1, 1, 0, 1, 0, "{0,2,4,6}:2"),
    ("2g.20gb", "2_SLICE", 1, 14, 2, 3, 20096, 32, 2, 2, 0, 2, 0, "{0,2,4}:2"),
    ("3g.40gb", "3_SLICE", 2, 9, 3, 2, 40448, 60, 3, 3, 0, 3, 0, "{0,4}:4"),
    ("4g.40gb", "4_SLICE", 3, 5, 4, 1, 40448, 64, 4, 4, 0, 4, 0, "{0}:4"),
    ("7g.80gb", "7_SLICE", 4, 0, 7, 1, 81152, 132, 8, 7, 0, 7, 1, "{0}:8"),
    source="S-h100sxm-580",
)

_H100_80GB_PCIE = profiles_from(
    ("1g.10gb", "1_SLICE", 0, 19, 1, 7, 9984, 14, 1, 1, 0, 1, 0, EIGHTHS),
    ("1g.10gb+me", "1_SLICE_REV1", 7, 20, 1, 1, 9984, 14, 1, 1, 0, 1, 1, None),
    ("1g.20gb", "1_SLICE_REV2", 9, 15, 1, 4, 20096, 14, 1, 1, 0, 1, 0, None),
    ("2g.20gb", "2_SLICE", 1, 14, 2, 3, 20096, 30, 2, 2, 0, 2, 0, None),
    ("3g.40gb", "3_SLICE", 2, 9, 3, 2, 40448, 46, 3, 3, 0, 3, 0, None),
    ("4g.40gb", "4_SLICE", 3, 5, 4, 1, 40448, 62, 4, 4, 0, 4, 0, None),
    ("7g.80gb", "7_SLICE", 4, 0, 7, 1, 81152, 114, 8, 7, 0, 7, 1, None),
    source="S-h100pcie",
)

_H100_NVL_94GB = profiles_from(
    ("1g.12gb", "1_SLICE", 0, 19, 1, 7, 11008, 16, 1, 1, 0, 1, 0, EIGHTHS),
    ("1g.12gb+me", "1_SLICE_REV1", 7, 20, 1, 1, 11008, 16, 1, 1, 0, 1, 1, EIGHTHS),
    ("1g.24gb", "1_SLICE_REV2", 9, 15, 1, 4, 22144, 26, 1, 1, 0, 1, 0, "{0,2,4,6}:2"),
    ("2g.24gb", "2_SLICE", 1, 14, 2, 3, 22144, 32, 2, 2, 0, 2, 0, "{0,2,4}:2"),
    ("3g.47gb", "3_SLICE", 2, 9, 3, 2, 47488, 60, 3, 3, 0, 3, 0, "{0,4}:4"),
    ("4g.47gb", "4_SLICE", 3, 5, 4, 1, 47488, 64, 4, 4, 0, 4, 0, "{0}:4"),
    ("7g.94gb", "7_SLICE", 4, 0, 7, 1, 95360, 132, 8, 7, 0, 7, 1, "{0}:8"),
    source="S-h100nvl",
)

_H100_96GB_GH200 = profiles_from(
    ("1g.12gb", "1_SLICE", 0, 19, 1, 7, 11264, 16, 1, 1, 0, 1, 0, None),
    ("1g.12gb+me", "1_SLICE_REV1", 7, 20, 1, 1, 11264, 16, 1, 1, 0, 1, 1, None),
    ("1g.24gb", "1_SLICE_REV2", 9, 15, 1, 4, 23552, 26, 1, 1, 0, 1, 0, None),
    ("2g.24gb", "2_SLICE", 1, 14, 2, 3, 23552, 32, 2, 2, 0, 2, 0, None),
    ("3g.48gb", "3_SLICE", 2, 9, 3, 2, 47616, 60, 3, 3, 0, 3, 0, None),
    ("4g.48gb", "4_SLICE", 3, 5, 4, 1, 47616, 64, 4, 4, 0, 4, 0, None),
    ("7g.96gb", "7_SLICE", 4, 0, 7, 1, 95232, 132, 8, 7, 0, 7, 1, None),
    source="S-gh200-96",
)

_H20_96GB = profiles_from(
    ("1g.12gb", "1_SLICE", 0, 19, 1, 7, 12032, 8, None, 1, 0, None, None, None, "S-h20"),
    ("1g.12gb+me", "1_SLICE_REV1", 7, 20, 1, 1, 12032, 8, None, 1, 0, None, None, None, "S-h20"),
    ("1g.24gb", "1_SLICE_REV2", 9, None, 1, 4, None, None, None, None, 0, None, None, None),
    ("2g.24gb", "2_SLICE", 1, None, 2, 3, None, None, None, None, 0, None, None, None),
    ("3g.48gb", "3_SLICE", 2, None, 3, 2, None, None, None, None, 0, None, None, None),
    ("4g.48gb", "4_SLICE", 3, None, 4, 1, None, None, None, None, 0, None, None, None),
    ("7g.96gb", "7_SLICE", 4, None, 7, 1, None, None, None, None, 0, None, None, None),
    source="S-cfg",
)

_GH200_144GB = profiles_from(
    ("1g.18gb", "1_SLICE", 0, 19, 1, 7, 17920, 16, 1, 1, 0, 1, 0, None),
    ("1g.18gb+me", "1_SLICE_REV1", 7, 20, 1, 1, 17920, 16, 1, 1, 0, 1, 1, None),
    ("1g.36gb", "1_SLICE_REV2", 9, 15, 1, 4, 36096, 26, 1, 1, 0, 1, 0, None),
    ("2g.36gb", "2_SLICE", 1, 14, 2, 3, 36096, 32, 2, 2, 0, 2, 0, None),
    ("3g.72gb", "3_SLICE", 2, None, 3, 2, None, None, None, None, 0, None, None, None, "S-cfg"),
    ("4g.72gb", "4_SLICE", 3, None, 4, 1, None, None, None, None, 0, None, None, None, "S-cfg"),
    ("7g.144gb", "7_SLICE", 4, None, 7, 1, None, None, None, None, 0, None, None, None, "S-cfg"),
    source="S-gh200-144",
)

_H200_141GB = profiles_from(
    ("1g.18gb", "1_SLICE", 0, 19, 1, 7, 16384, 16, 1, 1, 0, 1, 0, EIGHTHS),
    ("1g.18gb+me", "1_SLICE_REV1", 7, 20, 1, 1, 16384, 16, 1, 1, 0, 1, 1, EIGHTHS),
    ("1g.35gb", "1_SLICE_REV2", 9, 15, 1, 4, 33280, 26, 1, 1, 0, 1, 0, "{0,2,4,6}:2"),
    ("2g.35gb", "2_SLICE", 1, 14, 2, 3, 33280, 32, 2, 2, 0, 2, 0, "{0,2,4}:2"),
    ("3g.71gb", "3_SLICE", 2, 9, 3, 2, 71424, 60, 3, 3, 0, 3, 0, "{0,4}:4"),
    ("4g.71gb", "4_SLICE", 3, 5, 4, 1, 71424, 64, 4, 4, 0, 4, 0, "{0}:4"),
    ("7g.141gb", "7_SLICE", 4, 0, 7, 1, 143360, 132, 8, 7, 0, 7, 1, "{0}:8"),
    source="S-h200-580",
)

#: Seven slices, on a grid of eight units of memory.
_of_seven = partial(Board, architecture="hopper", compute_slices=7, placement_grid_units=8)

BOARDS: tuple[Board, ...] = (
    _of_seven(
        key="h100-80gb-sxm",
        product_names=("NVIDIA H100 80GB HBM3", "NVIDIA H800"),
        pci_device_ids=("0x233010DE", "0x232410DE"),
        total_memory_mib=81559,
        memory_label="80GB",
        memory_source="S-h100sxm-580",
        sm_total=132,
        profiles=_H100_80GB_SXM,
    ),
    _of_seven(
        key="h100-80gb-pcie",
        product_names=("NVIDIA H100 PCIe", "NVIDIA H800 PCIe"),
        pci_device_ids=("0x233110DE", "0x232210DE"),
        total_memory_mib=81559,
        memory_label="80GB",
        memory_source="S-h100pcie",
        sm_total=114,
        placements_note=(
            "no -lgipp found for the PCIe card; 7x1g observed at 0..6:1 with GI ids 7,8,9 at 4,5,6 and 11..14 at 0..3; k8s-dra-driver-gpu#1018 log "
            "shows 1g.20gb at start 6. H100 SXM and NVL print the usual 8-unit list (1g {0..6}:1, 1g+me {0..6}:1, 1gx2 {0,2,4,6}:2, 2g {0,2,4}:2, 3g "
            "{0,4}:4, 4g {0}:4, 7g {0}:8)"
        ),
        profiles=_H100_80GB_PCIE,
    ),
    _of_seven(
        key="h100-nvl-94gb",
        product_names=("NVIDIA H100 NVL", "NVIDIA H800 NVL"),
        pci_device_ids=("0x232110DE", "0x233A10DE"),
        total_memory_mib=95830,
        memory_label="94GB",
        memory_source="S-smi-public",
        sm_total=132,
        caveat="older driver: 10.62/21.50 GiB. pci.ids also has 0x2339 H100 SXM5 94GB (not in default filter)",
        profiles=_H100_NVL_94GB,
    ),
    _of_seven(
        key="h100-96gb-gh200",
        product_names=("NVIDIA GH200 480GB", "NVIDIA H100 96GB"),
        pci_device_ids=("0x234210DE", "0x233D10DE"),
        total_memory_mib=97871,
        memory_label="96GB",
        memory_source="S-smi-public",
        sm_total=132,
        placements_note="-lgipp not found; GI ids 5,3,4 for three 1g.24gb. CI of a 1g.24gb is compute profile id 7 (1_SLICE_REV1).",
        profiles=_H100_96GB_GH200,
    ),
    _of_seven(
        key="h20-96gb",
        product_names=("NVIDIA H20",),
        pci_device_ids=("0x232910DE",),
        total_memory_mib=97871,
        memory_label="96GB",
        memory_source="S-smi-h20",
        placements_note="not found; GI ids 11..14 seen for 1g. H20 HBM3e (141GB) is 0x232C in pci.ids: no profile data found",
        profiles=_H20_96GB,
    ),
    _of_seven(
        key="gh200-144gb",
        product_names=("NVIDIA GH200 144G HBM3e",),
        pci_device_ids=("0x234810DE",),
        memory_label="144GB",
        placements_note="not found",
        profiles=_GH200_144GB,
    ),
    _of_seven(
        key="h200-141gb",
        product_names=("NVIDIA H200", "NVIDIA H200 NVL"),
        pci_device_ids=("0x233510DE", "0x233B10DE"),
        total_memory_mib=143771,
        memory_label="141GB",
        memory_source="S-smi-public",
        sm_total=132,
        placements_note=(
            "go-nvml h200.go placements ({0,4}:3 for 3g, {0}:7 for 7g, 1-wide for REV2) and its PCI id 0x2333 "
            "contradict real cards: do not use. An earlier driver (S-h200) has 32.25, 69.50 and 139.75 GiB"
        ),
        profiles=_H200_141GB,
    ),
)
