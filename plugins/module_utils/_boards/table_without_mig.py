# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Common boards without MIG: identity from pci.ids, memory as drivers report it and only where a source gives it.

ECC takes a sixteenth of GDDR6 and nothing of HBM. It is on where the boards for data centres are delivered, and off on those for workstations;
facts of the driver win over these numbers.

Columns: key, product names as NVML reports them, PCI device ids, architecture, MiB, label, source of the MiB.
"""

from __future__ import annotations

from .board import Board

_ROWS: tuple[tuple[str, tuple[str, ...], tuple[str, ...], str, int | None, str | None, str | None], ...] = (
    ("m60", ("Tesla M60",), ("0x13F210DE",), "maxwell", None, None, None),
    ("p100-12gb", ("Tesla P100-PCIE-12GB",), ("0x15F710DE",), "pascal", 12288, "12GB", "S-label"),
    (
        "p100-16gb",
        ("Tesla P100-PCIE-16GB", "Tesla P100-SXM2-16GB"),
        ("0x15F810DE", "0x15F910DE"),
        "pascal",
        16384,
        "16GB",
        "S-smi-p100",
    ),
    ("p40", ("Tesla P40",), ("0x1B3810DE",), "pascal", None, None, None),
    ("p4", ("Tesla P4",), ("0x1BB310DE",), "pascal", None, None, None),
    (
        "v100-16gb",
        ("Tesla V100-SXM2-16GB", "Tesla V100-PCIE-16GB", "Tesla V100-FHHL-16GB"),
        ("0x1DB110DE", "0x1DB310DE", "0x1DB410DE", "0x1DF510DE"),
        "volta",
        16384,
        "16GB",
        "S-smi-v100-16",
    ),
    (
        "v100-32gb",
        ("Tesla V100-SXM2-32GB", "Tesla V100-PCIE-32GB", "Tesla V100-SXM3-32GB", "Tesla V100S-PCIE-32GB"),
        ("0x1DB510DE", "0x1DB610DE", "0x1DB810DE", "0x1DF610DE"),
        "volta",
        32768,
        "32GB",
        "S-smi-v100-32",
    ),
    ("t4-16gb", ("Tesla T4", "NVIDIA T4"), ("0x1EB810DE",), "turing", 15360, "16GB", "S-smi-modal"),
    (
        "rtx-2080-ti",
        ("NVIDIA GeForce RTX 2080 Ti", "GeForce RTX 2080 Ti"),
        ("0x1E0410DE", "0x1E0710DE"),
        "turing",
        11264,
        "11GB",
        "S-smi-public",
    ),
    ("rtx-2080-ti-12gb", (), ("0x1E0310DE",), "turing", 12288, "12GB", "S-label"),
    ("a2-a16", ("NVIDIA A2", "NVIDIA A16"), ("0x25B610DE",), "ampere", 15356, "16GB", "S-smi-public"),
    ("a10", ("NVIDIA A10",), ("0x223610DE",), "ampere", 23028, "24GB", "S-smi-modal"),
    ("a40", ("NVIDIA A40",), ("0x223510DE",), "ampere", 46068, "48GB", "S-smi-public"),
    ("rtx-a6000", ("NVIDIA RTX A6000",), ("0x223010DE",), "ampere", 49140, "48GB", "S-smi-public"),
    ("rtx-3090", ("NVIDIA GeForce RTX 3090",), ("0x220410DE",), "ampere", 24576, "24GB", "S-smi-rtx-3090"),
    ("l4", ("NVIDIA L4",), ("0x27B810DE",), "ada", 23034, "24GB", "S-smi-modal"),
    ("l40", ("NVIDIA L40",), ("0x26B510DE",), "ada", 46068, "48GB", "S-smi-public"),
    ("l40s-48gb", ("NVIDIA L40S",), ("0x26B910DE",), "ada", 46068, "48GB", "S-smi-modal"),
    ("rtx-6000-ada", ("NVIDIA RTX 6000 Ada Generation",), ("0x26B110DE",), "ada", 49140, "48GB", "S-smi-public"),
    ("rtx-4090", ("NVIDIA GeForce RTX 4090",), ("0x268410DE",), "ada", 24564, "24GB", "S-smi-rtx-4090"),
    ("rtx-5090", ("NVIDIA GeForce RTX 5090",), ("0x2B8510DE",), "blackwell", 32607, "32GB", "S-smi-public"),
)

BOARDS: tuple[Board, ...] = tuple(
    Board(
        key=key,
        product_names=names,
        pci_device_ids=ids,
        architecture=architecture,
        total_memory_mib=memory,
        memory_label=label,
        memory_source=memory_source,
        source="S-pciids",
    )
    for key, names, ids, architecture, memory, label, memory_source in _ROWS
)
