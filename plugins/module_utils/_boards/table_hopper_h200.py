# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hopper boards with MIG: H200 and Grace Hopper with 144 GB.

Columns of a profile row: name, NVML profile, NVML enum, profile id, slices, most instances, MiB, SMs, copy engines,
decoders, encoders, JPEG, OFA, placements as nvidia-smi mig -lgipp prints them, source, source of the placements.
Sources: see sources.py.
"""

from __future__ import annotations

from .model import Board, profiles_from

_GH200_144GB = profiles_from(
    ("1g.18gb", "1_SLICE", 0, 19, 1, 7, 17920, 16, 1, 1, 0, 1, 0, None, "S-gh200-144", None),
    ("1g.18gb+me", "1_SLICE_REV1", 7, 20, 1, 1, 17920, 16, 1, 1, 0, 1, 1, None, "S-gh200-144", None),
    ("1g.36gb", "1_SLICE_REV2", 9, 15, 1, 4, 36096, 26, 1, 1, 0, 1, 0, None, "S-gh200-144", None),
    ("2g.36gb", "2_SLICE", 1, 14, 2, 3, 36096, 32, 2, 2, 0, 2, 0, None, "S-gh200-144", None),
    ("3g.72gb", "3_SLICE", 2, None, 3, 2, None, None, None, None, 0, None, None, None, "S-cfg", None),
    ("4g.72gb", "4_SLICE", 3, None, 4, 1, None, None, None, None, 0, None, None, None, "S-cfg", None),
    ("7g.144gb", "7_SLICE", 4, None, 7, 1, None, None, None, None, 0, None, None, None, "S-cfg", None),
)

_H200_141GB = profiles_from(
    ("1g.18gb", "1_SLICE", 0, 19, 1, 7, 16384, 16, 1, 1, 0, 1, 0, "{0,1,2,3,4,5,6}:1", "S-h200-580", "S-h200-580"),
    (
        "1g.18gb+me",
        "1_SLICE_REV1",
        7,
        20,
        1,
        1,
        16384,
        16,
        1,
        1,
        0,
        1,
        1,
        "{0,1,2,3,4,5,6}:1",
        "S-h200-580",
        "S-h200-580",
    ),
    ("1g.35gb", "1_SLICE_REV2", 9, 15, 1, 4, 33280, 26, 1, 1, 0, 1, 0, "{0,2,4,6}:2", "S-h200-580", "S-h200-580"),
    ("2g.35gb", "2_SLICE", 1, 14, 2, 3, 33280, 32, 2, 2, 0, 2, 0, "{0,2,4}:2", "S-h200-580", "S-h200-580"),
    ("3g.71gb", "3_SLICE", 2, 9, 3, 2, 71424, 60, 3, 3, 0, 3, 0, "{0,4}:4", "S-h200-580", "S-h200-580"),
    ("4g.71gb", "4_SLICE", 3, 5, 4, 1, 71424, 64, 4, 4, 0, 4, 0, "{0}:4", "S-h200-580", "S-h200-580"),
    ("7g.141gb", "7_SLICE", 4, 0, 7, 1, 143360, 132, 8, 7, 0, 7, 1, "{0}:8", "S-h200-580", "S-h200-580"),
)

BOARDS: tuple[Board, ...] = (
    Board(
        key="gh200-144gb",
        product_names=("NVIDIA GH200 144G HBM3e",),
        pci_device_ids=("0x234810DE",),
        architecture="hopper",
        memory_label="144GB",
        compute_slices=7,
        placement_grid_units=8,
        placements_note="not found",
        profiles=_GH200_144GB,
    ),
    Board(
        key="h200-141gb",
        product_names=("NVIDIA H200", "NVIDIA H200 NVL"),
        pci_device_ids=("0x233510DE", "0x233B10DE"),
        architecture="hopper",
        total_memory_mib=143771,
        memory_label="141GB",
        memory_source="S-smi-public",
        compute_slices=7,
        placement_grid_units=8,
        sm_total=132,
        placements_note=(
            "go-nvml h200.go placements ({0,4}:3 for 3g, {0}:7 for 7g, 1-wide for REV2) and its PCI id 0x2333 "
            "contradict real cards: do not use. An earlier driver (S-h200) has 32.25, 69.50 and 139.75 GiB"
        ),
        profiles=_H200_141GB,
    ),
)
