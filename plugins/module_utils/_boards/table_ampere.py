# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ampere boards with MIG. Columns of a profile row: L(model.Row)."""

from __future__ import annotations

from functools import partial

from .board import EIGHTHS, Board, profiles_from

_A30_24GB = profiles_from(
    ("1g.6gb", "1_SLICE", 0, 14, 1, 4, 5952, 14, 1, 1, 0, 0, 0, "{0,1,2,3}:1"),
    ("1g.6gb+me", "1_SLICE_REV1", 7, 21, 1, 1, 5952, 14, 1, 1, 0, 1, 1, "{0,1,2,3}:1"),
    ("2g.12gb", "2_SLICE", 1, 5, 2, 2, 11968, 28, 2, 2, 0, 0, 0, "{0,2}:2"),
    ("2g.12gb+me", "2_SLICE_REV1", 8, 6, 2, 1, 11968, 28, 2, 2, 0, 1, 1, "{0,2}:2"),
    ("4g.24gb", "4_SLICE", 3, 0, 4, 1, 24000, 56, 4, 4, 0, 1, 1, "{0}:4"),
    source="S-a30",
    notes={"1g.6gb": "guide and go-nvml mock say 0 decoders; real -lgip says 1"},
)

_A100_40GB = profiles_from(
    ("1g.5gb", "1_SLICE", 0, 19, 1, 7, 4864, 14, 1, 0, 0, 0, 0, EIGHTHS),
    ("1g.5gb+me", "1_SLICE_REV1", 7, 20, 1, 1, 4864, 14, 1, 1, 0, 1, 1, EIGHTHS),
    ("1g.10gb", "1_SLICE_REV2", 9, 15, 1, 4, 9856, 14, 1, 1, 0, 0, 0, "{0,2,4,6}:2"),
    ("2g.10gb", "2_SLICE", 1, 14, 2, 3, 9856, 28, 2, 1, 0, 0, 0, "{0,2,4}:2"),
    ("3g.20gb", "3_SLICE", 2, 9, 3, 2, 19968, 42, 3, 2, 0, 0, 0, "{0,4}:4"),
    ("4g.20gb", "4_SLICE", 3, 5, 4, 1, 19968, 56, 4, 2, 0, 0, 0, "{0}:4"),
    ("7g.40gb", "7_SLICE", 4, 0, 7, 1, 40192, 98, 7, 5, 0, 1, 1, "{0}:8"),
    source="S-gonvml-a100",
    placements_source="S-guide-lgipp",
)

_A100_80GB = profiles_from(
    ("1g.10gb", "1_SLICE", 0, 19, 1, 7, 9728, 14, 1, 0, 0, 0, 0, EIGHTHS),
    ("1g.10gb+me", "1_SLICE_REV1", 7, 20, 1, 1, 9728, 14, 1, 1, 0, 1, 1, EIGHTHS),
    ("1g.20gb", "1_SLICE_REV2", 9, 15, 1, 4, 19968, 14, 1, 1, 0, 0, 0, "{0,2,4,6}:2"),
    ("2g.20gb", "2_SLICE", 1, 14, 2, 3, 19968, 28, 2, 1, 0, 0, 0, "{0,2,4}:2"),
    ("3g.40gb", "3_SLICE", 2, 9, 3, 2, 40192, 42, 3, 2, 0, 0, 0, "{0,4}:4"),
    ("4g.40gb", "4_SLICE", 3, 5, 4, 1, 40192, 56, 4, 2, 0, 0, 0, "{0}:4"),
    ("7g.80gb", "7_SLICE", 4, 0, 7, 1, 80896, 98, 7, 5, 0, 1, 1, "{0}:8"),
    source="S-a100-80",
    placements_source="S-guide-lgipp",
)

_PG506_96GB = profiles_from(
    ("1g.12gb", "1_SLICE", 0, None, 1, 7, None, None, None, None, None, None, None, None),
    ("1g.24gb", "1_SLICE_REV2", 9, None, 1, 4, None, None, None, None, None, None, None, None),
    ("2g.24gb", "2_SLICE", 1, None, 2, 3, None, None, None, None, None, None, None, None),
    ("3g.48gb", "3_SLICE", 2, None, 3, 2, None, None, None, None, None, None, None, None),
    ("4g.48gb", "4_SLICE", 3, None, 4, 1, None, None, None, None, None, None, None, None),
    ("7g.96gb", "7_SLICE", 4, None, 7, 1, None, None, None, None, None, None, None, None),
    source="S-cfg",
)

_ampere = partial(Board, architecture="ampere")
#: Seven slices, on a grid of eight units of memory.
_of_seven = partial(_ampere, compute_slices=7, placement_grid_units=8)

BOARDS: tuple[Board, ...] = (
    _ampere(
        key="a30-24gb",
        product_names=("NVIDIA A30",),
        pci_device_ids=("0x20B710DE",),
        total_memory_mib=24576,
        memory_label="24GB",
        memory_source="S-a30",
        compute_slices=4,
        placement_grid_units=4,
        sm_total=56,
        caveat="NVML reports a wrong InstanceCount on A30 (mig-parted pkg/mig/discovery/discovery.go hard-codes the A30 rows)",
        profiles=_A30_24GB,
    ),
    _of_seven(
        key="a100-40gb",
        product_names=("NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB", "NVIDIA A800 40GB"),
        pci_device_ids=("0x20B010DE", "0x20B110DE", "0x20F110DE", "0x20F610DE"),
        total_memory_mib=40960,
        memory_label="40GB",
        memory_source="S-smi-modal",
        sm_total=108,
        caveat=(
            "7g memory seen as 39.25, 39.38 and 39.50 GiB depending on driver; 4g as 19.50/19.62. 0x20BD "
            "(A800 SXM4 40GB) is in pci.ids but in no default device-filter"
        ),
        profiles=_A100_40GB,
    ),
    _of_seven(
        key="a100-80gb",
        product_names=(
            "NVIDIA A100-SXM4-80GB",
            "NVIDIA A100 80GB PCIe",
            "NVIDIA A800-SXM4-80GB",
            "NVIDIA A800 80GB PCIe",
        ),
        pci_device_ids=("0x20B210DE", "0x20B510DE", "0x20F310DE", "0x20F510DE"),
        total_memory_mib=81920,
        memory_label="80GB",
        memory_source="S-smi-modal",
        sm_total=108,
        caveat=(
            "go-nvml mock: 9856/19968/40192/80384 MiB; another driver 9.75 GiB (9984). Placements: the guide's -lgipp is of the 40GB card; one of "
            "the S-a100-80 transcripts prints the same list for an 80GB card"
        ),
        profiles=_A100_80GB,
    ),
    _of_seven(
        key="pg506-96gb",
        product_names=("PG506-232",),
        pci_device_ids=("0x20B610DE",),
        memory_label="96GB",
        caveat=(
            "An Ampere chip (GA100GL in pci.ids) that mig-parted's default device filter groups with the "
            "96 GB Hopper boards; only the names and counts of that group are known to be meant for it"
        ),
        placements_note="not found",
        profiles=_PG506_96GB,
    ),
)
