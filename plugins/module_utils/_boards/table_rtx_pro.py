# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Blackwell RTX PRO boards with MIG.

Columns of a profile row: name, NVML profile, NVML enum, profile id, slices, most instances, MiB, SMs, copy engines,
decoders, encoders, JPEG, OFA, placements as nvidia-smi mig -lgipp prints them, source, source of the placements.
Sources: see sources.py.
"""

from __future__ import annotations

from .model import Board, FirstDriver, profiles_from

_RTX_PRO_6000_96GB = profiles_from(
    ("1g.24gb", "1_SLICE", 0, 14, 1, 4, 24192, 46, 1, 1, 1, 1, 0, "{0,3,6,9}:3", "S-rtxpro6000", "S-rtxpro6000"),
    (
        "1g.24gb+me",
        "1_SLICE_REV1",
        7,
        21,
        1,
        1,
        24192,
        46,
        1,
        1,
        1,
        1,
        1,
        "{0,3,6,9}:3",
        "S-rtxpro6000",
        "S-rtxpro6000",
    ),
    (
        "1g.24gb+gfx",
        "1_SLICE_GFX",
        10,
        47,
        1,
        4,
        24192,
        46,
        1,
        1,
        1,
        1,
        0,
        "{0,3,6,9}:3",
        "S-rtxpro6000",
        "S-rtxpro6000",
    ),
    (
        "1g.24gb+me.all",
        "1_SLICE_ALL_ME",
        15,
        65,
        1,
        1,
        24192,
        46,
        1,
        4,
        4,
        4,
        1,
        "{0,3,6,9}:3",
        "S-rtxpro6000",
        "S-rtxpro6000",
    ),
    (
        "1g.24gb-me",
        "1_SLICE_NO_ME",
        13,
        67,
        1,
        4,
        24192,
        46,
        1,
        0,
        0,
        0,
        0,
        "{0,3,6,9}:3",
        "S-rtxpro6000",
        "S-rtxpro6000",
    ),
    ("2g.48gb", "2_SLICE", 1, 5, 2, 2, 48512, 94, 2, 2, 2, 2, 0, "{0,6}:6", "S-rtxpro6000", "S-rtxpro6000"),
    ("2g.48gb+gfx", "2_SLICE_GFX", 11, 35, 2, 2, 48512, 94, 2, 2, 2, 2, 0, "{0,6}:6", "S-rtxpro6000", "S-rtxpro6000"),
    (
        "2g.48gb+me.all",
        "2_SLICE_ALL_ME",
        16,
        64,
        2,
        1,
        48512,
        94,
        2,
        4,
        4,
        4,
        1,
        "{0,6}:6",
        "S-rtxpro6000",
        "S-rtxpro6000",
    ),
    ("2g.48gb-me", "2_SLICE_NO_ME", 14, 66, 2, 2, 48512, 94, 2, 0, 0, 0, 0, "{0,6}:6", "S-rtxpro6000", "S-rtxpro6000"),
    ("4g.96gb", "4_SLICE", 3, 0, 4, 1, 97408, 188, 4, 4, 4, 4, 1, "{0}:12", "S-rtxpro6000", "S-rtxpro6000"),
    ("4g.96gb+gfx", "4_SLICE_GFX", 12, 32, 4, 1, 97408, 188, 4, 4, 4, 4, 1, "{0}:12", "S-rtxpro6000", "S-rtxpro6000"),
)

_RTX_PRO_5000_48GB = profiles_from(
    ("1g.24gb", None, None, None, 1, 2, None, None, 1, 1, 1, 0, 0, None, "S-guide-newer", None),
    ("1g.24gb+me", None, None, None, 1, 1, None, None, 1, 1, 1, 1, 1, None, "S-guide-newer", None),
    ("1g.24gb+gfx", None, None, None, 1, 2, None, None, 1, 1, 1, 0, 0, None, "S-guide-newer", None),
    ("1g.24gb+me.all", None, None, None, 1, 1, None, None, 1, 3, 3, 1, 1, None, "S-guide-newer", None),
    ("1g.24gb-me", None, None, None, 1, 2, None, None, 1, 0, 0, 0, 0, None, "S-guide-newer", None),
    ("2g.48gb", None, None, None, 2, 1, None, None, 4, 3, 3, 1, 1, None, "S-guide-newer", None),
    ("2g.48gb+gfx", None, None, None, 2, 1, None, None, 4, 3, 3, 1, 1, None, "S-guide-newer", None),
)

_RTX_PRO_4500_32GB = profiles_from(
    ("1g.16gb", None, None, None, 1, 2, None, None, 1, 1, 1, 1, 0, None, "S-guide-newer", None),
    ("1g.16gb+gfx", None, None, None, 1, 2, None, None, 1, 1, 1, 1, 0, None, "S-guide-newer", None),
    ("1g.16gb+me.all", None, None, None, 1, 1, None, None, 1, 3, 3, 2, 1, None, "S-guide-newer", None),
    ("1g.16gb-me", None, None, None, 1, 2, None, None, 1, 0, 0, 0, 0, None, "S-guide-newer", None),
    ("2g.32gb", None, None, None, 2, 1, None, None, 2, 3, 3, 2, 1, None, "S-guide-newer", None),
    ("2g.32gb+gfx", None, None, None, 2, 1, None, None, 2, 3, 3, 2, 1, None, "S-guide-newer", None),
)

BOARDS: tuple[Board, ...] = (
    Board(
        key="rtx-pro-6000-96gb",
        product_names=(
            "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
            "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        ),
        pci_device_ids=("0x2BB510DE", "0x2BB110DE", "0x2BB410DE"),
        architecture="blackwell",
        total_memory_mib=97887,
        memory_label="96GB",
        memory_source="S-smi-public",
        compute_slices=4,
        placement_grid_units=12,
        sm_total=188,
        caveat=(
            "12-unit placement grid, sizes 3/6/12 (NOT powers of two). Other driver/mode: "
            "23.12/46.50/93.38 GiB (vGPU host, bigstack cubecos#312). Only 0x2BB5 is in the default "
            "device-filter; 2BB1/2BB4 from pci.ids. Workstation cards need DisplayModeSelector compute "
            "mode + min vBIOS before MIG"
        ),
        profiles=_RTX_PRO_6000_96GB,
        # The Server Edition; nothing was found of the others.
        first_drivers=(FirstDriver("0x2BB510DE", "575.57.08", False, "S-platform"),),
    ),
    Board(
        key="rtx-pro-5000-48gb",
        product_names=("NVIDIA RTX PRO 5000 Blackwell",),
        pci_device_ids=("0x2BB310DE",),
        architecture="blackwell",
        memory_label="48GB",
        placements_note=(
            "not found; older guide and mig-parted test list a different set (1g.12gb/2g.24gb-"
            "me/4g.48gb): the published geometry changed between guide releases"
        ),
        profiles=_RTX_PRO_5000_48GB,
    ),
    Board(
        key="rtx-pro-4500-32gb",
        product_names=("NVIDIA RTX PRO 4500 Blackwell",),
        pci_device_ids=("0x2C3110DE",),
        architecture="blackwell",
        memory_label="32GB",
        compute_slices=2,
        placements_note="not found",
        profiles=_RTX_PRO_4500_32GB,
    ),
)
