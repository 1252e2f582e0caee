# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find a board by PCI device id, by product name, or by its key."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from .._plan import Refused
from . import table_ampere, table_blackwell, table_hopper, table_without_mig
from .board import Board

BOARDS: tuple[Board, ...] = (
    *table_ampere.BOARDS,
    *table_hopper.BOARDS,
    *table_blackwell.BOARDS,
    *table_without_mig.BOARDS,
)

_BY_KEY = {board.key: board for board in BOARDS}
_BY_DEVICE = {device: board for board in BOARDS for device in board.pci_device_ids}
_DEVICE = re.compile(r"^(?:0x)?([0-9a-f]{4})(?:10de)?$", re.IGNORECASE)

# A driver reports a few percent less than the nominal memory: ECC and reserved memory are taken off.
_MEMORY_TOLERANCE = 0.08


def board(key: str) -> Board:
    return _BY_KEY[key]


def keyed(key: str | None) -> Board | None:
    return _BY_KEY.get(key or "")


def described_board(key: str, thing: str) -> Board:
    """Return the board that a person means: the one with this key, or the only one whose key begins with it. C(l40s) is C(l40s-48gb). Raises Refused:
    the table has no such board, or several.
    """
    begins = [_BY_KEY[key]] if key in _BY_KEY else [one for one in BOARDS if one.key.startswith(f"{key}-")]
    if len(begins) == 1:
        return begins[0]
    near = [one.key for one in begins] or _called(key)
    near = near or difflib.get_close_matches(key.lower(), list(_BY_KEY), n=3, cutoff=0.4)
    remedy = f"Did you mean {' or '.join(near)}?" if near else f"For example {BOARDS[0].key}."
    raise Refused(thing, f"the table of boards has no {key!r}", remedy)


def _called(key: str) -> list[str]:
    """Return the boards with a product that has every word of C(key) in its name, and which: boards of one key may differ in form."""
    words = set(re.split(r"[\s_-]+", key.lower()))
    names = [(one.key, name) for one in BOARDS for name in one.product_names]
    return [f"{found} ({name})" for found, name in names if words <= set(re.split(r"[\s-]+", name.lower()))]


def is_complete(key: str | None) -> bool:
    """Return whether the table has the board, with every place of its MIG profiles: then no driver has to be asked for them."""
    found = keyed(key)
    return found is not None and all(profile.placements is not None for profile in found.profiles)


def nvlink5_switches(key: str | None) -> str | None:
    """Return where the NVLink 5 switches of a board are (L(Board)), or None also for one that the table does not have."""
    found = keyed(key)
    return found.nvlink5_switches if found else None


def normalize_device_id(device_id: str) -> str | None:
    """Return a PCI device id as C(0xDDDD10DE), or None when the text is not an id of one of NVIDIA's devices. C(device_id): C(0x2330), C(2330) or
    C(0x233010DE), in any case.
    """
    match = _DEVICE.match(device_id.strip())
    return f"0x{match.group(1).upper()}10DE" if match else None


#: Of each device the first driver, and the first one with which it has MIG; None where no source names one. The first: NVIDIA's list of supported
#: platforms [doc] for HGX B200 and the RTX PRO 6000 Server; for the others the first branch with their architecture, C(.00) (release notes).
#: With MIG: MIG user guide of branch 620, deployment considerations [doc], which has no H100 NVL, H200 NVL and Grace Hopper. Its GB300 is the DGX
#: Station's, and not that of racks.
FIRST_DRIVERS: Mapping[str, tuple[str | None, str | None]] = {
    **dict.fromkeys(
        ("0x20B010DE", "0x20B110DE", "0x20F110DE", "0x20B210DE", "0x20B510DE"), ("450.00", "450.80.02")
    ),  # A100
    "0x20B710DE": ("450.00", "460.73.01"),  # A30
    **dict.fromkeys(("0x233010DE", "0x233110DE"), ("525.00", "525.85.12")),  # H100
    "0x232910DE": ("525.00", "535.161.07"),  # H20
    "0x233510DE": ("525.00", "550.90.07"),  # H200
    "0x290110DE": ("570.133.20", "570.133.20"),  # B200
    "0x294110DE": ("570.00", "570.133.20"),  # GB200
    "0x318210DE": ("570.00", "580.82.07"),  # B300
    "0x31C210DE": ("570.00", None),  # GB300
    "0x2BB510DE": (
        "575.57.08",
        "575.57.08",
    ),  # RTX PRO 6000 Server: the guide has it from 575.51.03 on, which is older than its first
    **dict.fromkeys(("0x2BB110DE", "0x2BB410DE"), ("570.00", "575.51.03")),  # RTX PRO 6000 Workstation and Max-Q
    "0x2BB310DE": ("570.00", "575.57.08"),  # RTX PRO 5000
    "0x2C3110DE": ("570.00", "575.64"),  # RTX PRO 4500
}


def first_driver(device_id: str, mig: bool = False) -> str | None:
    """Return the first driver version of a device, or None where no source names one. C(device_id): in any form that L(normalize_device_id) takes.

    :param mig: whether the one with which it has MIG is asked for.
    """
    return FIRST_DRIVERS.get(normalize_device_id(device_id) or "", (None, None))[mig]


def find_board(
    device_id: str | None = None, product_name: str | None = None, memory_mib: int | None = None
) -> Board | None:
    """Return the board that a GPU is, or None when the table does not have it. The PCI device id decides where the table knows it. A product name is
    compared without case and without the words NVIDIA and Tesla, which drivers of different ages add or leave out.

    :param memory_mib: memory as NVML reports it, in MiB; a board found by name only must agree with it.
    """
    if device_id:
        found = _BY_DEVICE.get(normalize_device_id(device_id) or "")
        if found is not None:
            return found
    if product_name:
        wanted = _plain_name(product_name)
        for candidate in BOARDS:
            names = {_plain_name(name) for name in candidate.product_names}
            if wanted in names and _memory_agrees(candidate, memory_mib):
                return candidate
    return None


#: Kernel drivers by which a host gives devices to virtual machines, as sysfs names them (C(pci_driver.name) in Linux: drivers/vfio/pci/nvgrace-gpu/main.c
#: has KBUILD_MODNAME, drivers/xen/xen-pciback/pci_stub.c has PCISTUB_DRIVER_NAME).
MACHINE_DRIVERS = frozenset(("vfio-pci", "pci-stub", "nvgrace_gpu_vfio_pci", "pciback"))


def _plain_name(name: str) -> str:
    words = [word for word in re.split(r"[\s-]+", name.lower()) if word not in ("nvidia", "tesla")]
    return " ".join(words)


def _memory_agrees(candidate: Board, memory_mib: int | None) -> bool:
    if memory_mib is None or candidate.total_memory_mib is None:
        return True
    return abs(candidate.total_memory_mib - memory_mib) <= _MEMORY_TOLERANCE * candidate.total_memory_mib
