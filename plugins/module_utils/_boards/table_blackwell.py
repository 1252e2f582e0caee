# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Blackwell data-centre boards with MIG.

Columns of a profile row: name, NVML profile, NVML enum, profile id, slices, most instances, MiB, SMs, copy engines,
decoders, encoders, JPEG, OFA, placements as nvidia-smi mig -lgipp prints them, source, source of the placements.
Sources: see sources.py.
"""

from __future__ import annotations

from .model import EIGHTHS, SWITCHES_IN_HOST, SWITCHES_IN_RACK, Board, FirstDriver, profiles_from

_B200_180GB = profiles_from(
    ("1g.23gb", "1_SLICE", 0, 19, 1, 7, 20992, 18, 2, 1, 0, 1, 0, EIGHTHS, "S-b200", "S-kti829"),
    ("1g.23gb+me", "1_SLICE_REV1", 7, 20, 1, 1, 20992, 18, 2, 1, 0, 1, 1, EIGHTHS, "S-b200", "S-kti829"),
    ("1g.45gb", "1_SLICE_REV2", 9, 15, 1, 4, 45312, 30, 2, 1, 0, 1, 0, "{0,2,4,6}:2", "S-b200", "S-kti829"),
    ("2g.45gb", "2_SLICE", 1, 14, 2, 3, 45312, 36, 4, 2, 0, 2, 0, "{0,2,4}:2", "S-b200", "S-kti829"),
    ("3g.90gb", "3_SLICE", 2, None, 3, 2, None, None, 6, None, 0, None, None, "{0,4}:4", "S-guide", "S-kti829"),
    ("4g.90gb", "4_SLICE", 3, None, 4, 1, None, None, 8, None, 0, None, None, "{0}:4", "S-guide", "S-kti829"),
    ("7g.180gb", "7_SLICE", 4, None, 7, 1, None, None, 16, None, 0, None, 1, "{0}:8", "S-guide", "S-kti829"),
)

_GB200_186GB = profiles_from(
    ("1g.23gb", "1_SLICE", 0, 19, 1, 7, 22528, 18, 2, 1, 0, 1, 0, EIGHTHS, "S-gb200", "S-kti829"),
    ("1g.23gb+me", "1_SLICE_REV1", 7, 20, 1, 1, 22528, 18, 2, 1, 0, 1, 1, EIGHTHS, "S-gb200", "S-kti829"),
    ("1g.47gb", "1_SLICE_REV2", 9, 15, 1, 4, 46592, 32, 2, 1, 0, 1, 0, "{0,2,4,6}:2", "S-gb200", "S-kti829"),
    ("2g.47gb", "2_SLICE", 1, 14, 2, 3, 46592, 38, 4, 2, 0, 2, 0, "{0,2,4}:2", "S-gb200", "S-kti829"),
    ("3g.93gb", "3_SLICE", 2, None, 3, 2, None, None, None, None, 0, None, None, "{0,4}:4", "S-cfg", "S-kti829"),
    ("4g.93gb", "4_SLICE", 3, None, 4, 1, None, None, None, None, 0, None, None, "{0}:4", "S-cfg", "S-kti829"),
    ("7g.186gb", "7_SLICE", 4, None, 7, 1, None, None, None, None, 0, None, None, "{0}:8", "S-cfg", "S-kti829"),
)

_B300_269GB = profiles_from(
    ("1g.34gb", "1_SLICE", 0, None, 1, 7, None, None, None, None, None, None, None, None, "S-cfg", None),
    ("1g.34gb+me", "1_SLICE_REV1", 7, None, 1, 1, None, None, None, None, None, None, None, None, "S-cfg", None),
    ("1g.67gb", "1_SLICE_REV2", 9, None, 1, 4, None, None, None, None, None, None, None, None, "S-cfg", None),
    ("2g.67gb", "2_SLICE", 1, None, 2, 3, None, None, None, None, None, None, None, None, "S-cfg", None),
    ("3g.135gb", "3_SLICE", 2, None, 3, 2, None, None, None, None, None, None, None, None, "S-cfg", None),
    ("4g.135gb", "4_SLICE", 3, None, 4, 1, None, None, None, None, None, None, None, None, "S-cfg", None),
    ("7g.269gb", "7_SLICE", 4, None, 7, 1, None, None, None, None, None, None, None, None, "S-cfg", None),
)

_GB300_278GB = profiles_from(
    ("1g.35gb", "1_SLICE", 0, None, 1, 7, None, None, None, None, None, None, None, EIGHTHS, "S-cfg", "S-kti829"),
    (
        "1g.35gb+me",
        "1_SLICE_REV1",
        7,
        None,
        1,
        1,
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        EIGHTHS,
        "S-cfg",
        "S-kti829",
    ),
    (
        "1g.70gb",
        "1_SLICE_REV2",
        9,
        None,
        1,
        4,
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        "{0,2,4,6}:2",
        "S-cfg",
        "S-kti829",
    ),
    ("2g.70gb", "2_SLICE", 1, None, 2, 3, None, None, None, None, None, None, None, "{0,2,4}:2", "S-cfg", "S-kti829"),
    ("3g.139gb", "3_SLICE", 2, None, 3, 2, None, None, None, None, None, None, None, "{0,4}:4", "S-cfg", "S-kti829"),
    ("4g.139gb", "4_SLICE", 3, None, 4, 1, None, None, None, None, None, None, None, "{0}:4", "S-cfg", "S-kti829"),
    ("7g.278gb", "7_SLICE", 4, None, 7, 1, None, None, None, None, None, None, None, "{0}:8", "S-cfg", "S-kti829"),
)

BOARDS: tuple[Board, ...] = (
    Board(
        key="b200-180gb",
        product_names=("NVIDIA B200",),
        pci_device_ids=("0x290110DE",),
        architecture="blackwell",
        total_memory_mib=183359,
        memory_label="180GB",
        memory_source="S-smi-b200",
        compute_slices=7,
        placement_grid_units=8,
        caveat=(
            "1g is 22.00 GiB (22528) on the earlier driver. Real ids ARE 19/20/15/14 (k8s-test-infra #829"
            " wrongly says NVIDIA publishes none and uses the enum). Guide CE for 2g is 3, -lgip prints "
            "4. go-nvml b200.go PCI id 0x2B00 and its placements are wrong."
        ),
        profiles=_B200_180GB,
        nvlink5_switches=SWITCHES_IN_HOST,
        first_drivers=(FirstDriver("0x290110DE", "570.133.20", True, "S-platform"),),
    ),
    Board(
        key="gb200-186gb",
        product_names=("NVIDIA GB200",),
        pci_device_ids=("0x294110DE",),
        architecture="blackwell",
        total_memory_mib=189471,
        memory_label="186GB",
        memory_source="S-smi-public",
        compute_slices=7,
        placement_grid_units=8,
        caveat=(
            "early boards/drivers print 1g.24gb, 3g.95gb, 7g.189gb for the same chip: profile NAMES "
            "change with driver (mig-parted#227)"
        ),
        profiles=_GB200_186GB,
        nvlink5_switches=SWITCHES_IN_RACK,
    ),
    Board(
        key="b300-269gb",
        product_names=("NVIDIA B300 SXM6 AC",),
        pci_device_ids=("0x318210DE",),
        architecture="blackwell",
        total_memory_mib=275040,
        memory_label="269GB",
        memory_source="S-smi-public",
        compute_slices=7,
        placement_grid_units=8,
        placements_note="not found (names and counts only; B300 is not in the MIG guide tables)",
        profiles=_B300_269GB,
        nvlink5_switches=SWITCHES_IN_HOST,
    ),
    Board(
        key="gb300-278gb",
        product_names=("NVIDIA GB300",),
        pci_device_ids=("0x31C210DE",),
        architecture="blackwell",
        total_memory_mib=284208,
        memory_label="278GB",
        memory_source="S-smi-public",
        compute_slices=7,
        placement_grid_units=8,
        placements_note="only k8s-test-infra #829, itself a B200 proxy",
        profiles=_GB300_278GB,
        nvlink5_switches=SWITCHES_IN_RACK,
    ),
)
