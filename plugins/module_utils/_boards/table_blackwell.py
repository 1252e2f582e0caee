# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Blackwell boards with MIG: those for data centres, and RTX PRO. Columns of a profile row: L(model.Row)."""

from __future__ import annotations

from functools import partial

from .board import EIGHTHS, SWITCHES_IN_HOST, SWITCHES_IN_RACK, Board, profiles_from

_B200_180GB = profiles_from(
    ("1g.23gb", "1_SLICE", 0, 19, 1, 7, 20992, 18, 2, 1, 0, 1, 0, EIGHTHS),
    ("1g.23gb+me", "1_SLICE_REV1", 7, 20, 1, 1, 20992, 18, 2, 1, 0, 1, 1, EIGHTHS),
    ("1g.45gb", "1_SLICE_REV2", 9, 15, 1, 4, 45312, 30, 2, 1, 0, 1, 0, "{0,2,4,6}:2"),
    ("2g.45gb", "2_SLICE", 1, 14, 2, 3, 45312, 36, 4, 2, 0, 2, 0, "{0,2,4}:2"),
    ("3g.90gb", "3_SLICE", 2, None, 3, 2, None, None, 6, None, 0, None, None, "{0,4}:4", "S-guide"),
    ("4g.90gb", "4_SLICE", 3, None, 4, 1, None, None, 8, None, 0, None, None, "{0}:4", "S-guide"),
    ("7g.180gb", "7_SLICE", 4, None, 7, 1, None, None, 16, None, 0, None, 1, "{0}:8", "S-guide"),
    source="S-b200",
    placements_source="S-kti829",
)

_GB200_186GB = profiles_from(
    ("1g.23gb", "1_SLICE", 0, 19, 1, 7, 22528, 18, 2, 1, 0, 1, 0, EIGHTHS),
    ("1g.23gb+me", "1_SLICE_REV1", 7, 20, 1, 1, 22528, 18, 2, 1, 0, 1, 1, EIGHTHS),
    ("1g.47gb", "1_SLICE_REV2", 9, 15, 1, 4, 46592, 32, 2, 1, 0, 1, 0, "{0,2,4,6}:2"),
    ("2g.47gb", "2_SLICE", 1, 14, 2, 3, 46592, 38, 4, 2, 0, 2, 0, "{0,2,4}:2"),
    ("3g.93gb", "3_SLICE", 2, None, 3, 2, None, None, None, None, 0, None, None, "{0,4}:4", "S-cfg"),
    ("4g.93gb", "4_SLICE", 3, None, 4, 1, None, None, None, None, 0, None, None, "{0}:4", "S-cfg"),
    ("7g.186gb", "7_SLICE", 4, None, 7, 1, None, None, None, None, 0, None, None, "{0}:8", "S-cfg"),
    source="S-gb200",
    placements_source="S-kti829",
)

_B300_269GB = profiles_from(
    ("1g.34gb", "1_SLICE", 0, None, 1, 7, None, None, None, None, None, None, None, None),
    ("1g.34gb+me", "1_SLICE_REV1", 7, None, 1, 1, None, None, None, None, None, None, None, None),
    ("1g.67gb", "1_SLICE_REV2", 9, None, 1, 4, None, None, None, None, None, None, None, None),
    ("2g.67gb", "2_SLICE", 1, None, 2, 3, None, None, None, None, None, None, None, None),
    ("3g.135gb", "3_SLICE", 2, None, 3, 2, None, None, None, None, None, None, None, None),
    ("4g.135gb", "4_SLICE", 3, None, 4, 1, None, None, None, None, None, None, None, None),
    ("7g.269gb", "7_SLICE", 4, None, 7, 1, None, None, None, None, None, None, None, None),
    source="S-cfg",
)

_GB300_278GB = profiles_from(
    ("1g.35gb", "1_SLICE", 0, None, 1, 7, None, None, None, None, None, None, None, EIGHTHS),
    ("1g.35gb+me", "1_SLICE_REV1", 7, None, 1, 1, None, None, None, None, None, None, None, EIGHTHS),
    ("1g.70gb", "1_SLICE_REV2", 9, None, 1, 4, None, None, None, None, None, None, None, "{0,2,4,6}:2"),
    ("2g.70gb", "2_SLICE", 1, None, 2, 3, None, None, None, None, None, None, None, "{0,2,4}:2"),
    ("3g.139gb", "3_SLICE", 2, None, 3, 2, None, None, None, None, None, None, None, "{0,4}:4"),
    ("4g.139gb", "4_SLICE", 3, None, 4, 1, None, None, None, None, None, None, None, "{0}:4"),
    ("7g.278gb", "7_SLICE", 4, None, 7, 1, None, None, None, None, None, None, None, "{0}:8"),
    source="S-cfg",
    placements_source="S-kti829",
)

_RTX_PRO_6000_96GB = profiles_from(
    ("1g.24gb", "1_SLICE", 0, 14, 1, 4, 24192, 46, 1, 1, 1, 1, 0, "{0,3,6,9}:3"),
    ("1g.24gb+me", "1_SLICE_REV1", 7, 21, 1, 1, 24192, 46, 1, 1, 1, 1, 1, "{0,3,6,9}:3"),
    ("1g.24gb+gfx", "1_SLICE_GFX", 10, 47, 1, 4, 24192, 46, 1, 1, 1, 1, 0, "{0,3,6,9}:3"),
    ("1g.24gb+me.all", "1_SLICE_ALL_ME", 15, 65, 1, 1, 24192, 46, 1, 4, 4, 4, 1, "{0,3,6,9}:3"),
    ("1g.24gb-me", "1_SLICE_NO_ME", 13, 67, 1, 4, 24192, 46, 1, 0, 0, 0, 0, "{0,3,6,9}:3"),
    ("2g.48gb", "2_SLICE", 1, 5, 2, 2, 48512, 94, 2, 2, 2, 2, 0, "{0,6}:6"),
    ("2g.48gb+gfx", "2_SLICE_GFX", 11, 35, 2, 2, 48512, 94, 2, 2, 2, 2, 0, "{0,6}:6"),
    ("2g.48gb+me.all", "2_SLICE_ALL_ME", 16, 64, 2, 1, 48512, 94, 2, 4, 4, 4, 1, "{0,6}:6"),
    ("2g.48gb-me", "2_SLICE_NO_ME", 14, 66, 2, 2, 48512, 94, 2, 0, 0, 0, 0, "{0,6}:6"),
    ("4g.96gb", "4_SLICE", 3, 0, 4, 1, 97408, 188, 4, 4, 4, 4, 1, "{0}:12"),
    ("4g.96gb+gfx", "4_SLICE_GFX", 12, 32, 4, 1, 97408, 188, 4, 4, 4, 4, 1, "{0}:12"),
    source="S-rtxpro6000",
)

_RTX_PRO_5000_48GB = profiles_from(
    ("1g.24gb", None, None, None, 1, 2, None, None, 1, 1, 1, 0, 0, None),
    ("1g.24gb+me", None, None, None, 1, 1, None, None, 1, 1, 1, 1, 1, None),
    ("1g.24gb+gfx", None, None, None, 1, 2, None, None, 1, 1, 1, 0, 0, None),
    ("1g.24gb+me.all", None, None, None, 1, 1, None, None, 1, 3, 3, 1, 1, None),
    ("1g.24gb-me", None, None, None, 1, 2, None, None, 1, 0, 0, 0, 0, None),
    ("2g.48gb", None, None, None, 2, 1, None, None, 4, 3, 3, 1, 1, None),
    ("2g.48gb+gfx", None, None, None, 2, 1, None, None, 4, 3, 3, 1, 1, None),
    source="S-guide-newer",
)

_RTX_PRO_4500_32GB = profiles_from(
    ("1g.16gb", None, None, None, 1, 2, None, None, 1, 1, 1, 1, 0, None),
    ("1g.16gb+gfx", None, None, None, 1, 2, None, None, 1, 1, 1, 1, 0, None),
    ("1g.16gb+me.all", None, None, None, 1, 1, None, None, 1, 3, 3, 2, 1, None),
    ("1g.16gb-me", None, None, None, 1, 2, None, None, 1, 0, 0, 0, 0, None),
    ("2g.32gb", None, None, None, 2, 1, None, None, 2, 3, 3, 2, 1, None),
    ("2g.32gb+gfx", None, None, None, 2, 1, None, None, 2, 3, 3, 2, 1, None),
    source="S-guide-newer",
)

_blackwell = partial(Board, architecture="blackwell")
#: Seven slices, on a grid of eight units of memory.
_of_seven = partial(_blackwell, compute_slices=7, placement_grid_units=8)

BOARDS: tuple[Board, ...] = (
    _of_seven(
        key="b200-180gb",
        product_names=("NVIDIA B200",),
        pci_device_ids=("0x290110DE",),
        total_memory_mib=183359,
        memory_label="180GB",
        memory_source="S-smi-b200",
        caveat=(
            "1g is 22.00 GiB (22528) on the earlier driver. Real ids ARE 19/20/15/14 (k8s-test-infra #829 wrongly says NVIDIA publishes none and "
            "uses the enum). Guide CE for 2g is 3, -lgip prints 4. go-nvml b200.go PCI id 0x2B00 and its placements are wrong."
        ),
        profiles=_B200_180GB,
        nvlink5_switches=SWITCHES_IN_HOST,
    ),
    _of_seven(
        key="gb200-186gb",
        product_names=("NVIDIA GB200",),
        pci_device_ids=("0x294110DE",),
        total_memory_mib=189471,
        memory_label="186GB",
        memory_source="S-smi-public",
        caveat="early boards/drivers print 1g.24gb, 3g.95gb, 7g.189gb for the same chip: profile NAMES change with driver (mig-parted#227)",
        profiles=_GB200_186GB,
        nvlink5_switches=SWITCHES_IN_RACK,
    ),
    _of_seven(
        key="b300-269gb",
        product_names=("NVIDIA B300 SXM6 AC",),
        pci_device_ids=("0x318210DE",),
        total_memory_mib=275040,
        memory_label="269GB",
        memory_source="S-smi-public",
        placements_note="not found (names and counts only; B300 is not in the MIG guide tables)",
        profiles=_B300_269GB,
        nvlink5_switches=SWITCHES_IN_HOST,
    ),
    _of_seven(
        key="gb300-278gb",
        product_names=("NVIDIA GB300",),
        pci_device_ids=("0x31C210DE",),
        total_memory_mib=284208,
        memory_label="278GB",
        memory_source="S-smi-public",
        placements_note="only k8s-test-infra #829, itself a B200 proxy",
        profiles=_GB300_278GB,
        nvlink5_switches=SWITCHES_IN_RACK,
    ),
    _blackwell(
        key="rtx-pro-6000-96gb",
        product_names=(
            "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
            "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        ),
        pci_device_ids=("0x2BB510DE", "0x2BB110DE", "0x2BB410DE"),
        total_memory_mib=97887,
        memory_label="96GB",
        memory_source="S-smi-public",
        compute_slices=4,
        placement_grid_units=12,
        sm_total=188,
        caveat=(
            "12-unit placement grid, sizes 3/6/12 (NOT powers of two). Other driver/mode: 23.12/46.50/93.38 GiB (vGPU host, bigstack cubecos#312). "
            "Only 0x2BB5 is in the default device-filter; 2BB1/2BB4 from pci.ids. Workstation cards need DisplayModeSelector compute mode + min "
            "vBIOS before MIG"
        ),
        profiles=_RTX_PRO_6000_96GB,
    ),
    _blackwell(
        key="rtx-pro-5000-48gb",
        product_names=("NVIDIA RTX PRO 5000 Blackwell",),
        pci_device_ids=("0x2BB310DE",),
        memory_label="48GB",
        placements_note=(
            "not found; older guide and mig-parted test list a different set (1g.12gb/2g.24gb-"
            "me/4g.48gb): the published geometry changed between guide releases"
        ),
        profiles=_RTX_PRO_5000_48GB,
    ),
    _blackwell(
        key="rtx-pro-4500-32gb",
        product_names=("NVIDIA RTX PRO 4500 Blackwell",),
        pci_device_ids=("0x2C3110DE",),
        memory_label="32GB",
        compute_slices=2,
        placements_note="not found",
        profiles=_RTX_PRO_4500_32GB,
    ),
)
