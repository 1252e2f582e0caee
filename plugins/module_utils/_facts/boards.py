# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From what a host says of a GPU to the key of its board and its architecture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._boards.lookup import find_board
from .._boards.model import Board

if TYPE_CHECKING:
    # What reads the bus needs nothing that speaks NVML.
    from .._adapters.nvml_types import GpuState


def board_of_gpu(gpu: GpuState) -> tuple[str | None, str | None]:
    """Return the key of the GPU's board and its architecture; None for what the table does not know."""
    return _key(find_board(gpu.pci_device_id, gpu.name, gpu.memory_mib))


def board_of_pci(device_id: str) -> tuple[str | None, str | None]:
    """Return board and architecture from the PCI device id alone, which works without a driver."""
    return _key(find_board(device_id))


def _key(board: Board | None) -> tuple[str | None, str | None]:
    return (None, None) if board is None else (board.key, board.architecture)
