# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From what a host says of a GPU to the key of its board and its architecture."""

from __future__ import annotations

from .._adapters.nvml import GpuState


def board_of_gpu(gpu: GpuState) -> tuple[str | None, str | None]:
    """Return the key of the GPU's board and its architecture; None for what the table does not know."""
    return None, None


def board_of_pci(device_id: str, subsystem_id: str | None) -> tuple[str | None, str | None]:
    """Return board and architecture from the PCI ids alone, which works without a driver."""
    return None, None
