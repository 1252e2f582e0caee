# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The virtual NVML's boards are the collection's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards import lookup

if TYPE_CHECKING:
    from virtual_machine import VirtualMachine

SOURCES = Path(__file__).resolve().parents[3] / "tests" / "lab" / "virtual_nvml"
WITH_MIG = [board for board in lookup.BOARDS if board.mig and board.compute_slices and board.total_memory_mib]

READ = """
d = nvmlDeviceGetHandleByIndex(0)
refused(nvmlDeviceSetMigMode, d, 1)
rows = []
for number in range(NVML_GPU_INSTANCE_PROFILE_COUNT):
    try:
        p = nvmlDeviceGetGpuInstanceProfileInfo(d, number)
    except (NVMLError_NotSupported, NVMLError_InvalidArgument):
        continue
    where, count = (c_nvmlGpuInstancePlacement_t * 16)(), c_uint(16)
    nvmlDeviceGetGpuInstancePossiblePlacements(d, p.id, where, byref(count))
    rows.append([p.name, number, p.id, p.sliceCount, p.memorySizeMB, p.multiprocessorCount, p.copyEngineCount,
                 p.decoderCount, p.encoderCount, p.jpegCount, p.ofaCount,
                 [w.start for w in where[: count.value]], where[0].size])
answer([nvmlDeviceGetName(d), f"0x{nvmlDeviceGetPciInfo(d).pciDeviceId:08X}", nvmlDeviceGetMemoryInfo(d).total >> 20, rows])
"""


def test_header_is_up_to_date() -> None:
    generated = subprocess.run(
        [sys.executable, str(SOURCES / "generate_boards.py")], capture_output=True, text=True, check=True
    ).stdout
    assert generated == (SOURCES / "boards.h").read_text(), "run make generate"


@pytest.mark.parametrize("board", WITH_MIG, ids=lambda board: board.key)
def test_nvml_answers_with_the_table(machine: VirtualMachine, board: lookup.Board) -> None:
    machine.start(board.key)
    name, device, memory, rows = machine.nvml(READ)
    assert (name, device, memory) == (
        board.product_names[0],
        board.pci_device_ids[0].upper().replace("X", "x"),
        board.total_memory_mib,
    )
    seen = {row[0].removeprefix("MIG "): row[1:] for row in rows}
    assert set(seen) == {profile.name for profile in board.profiles}
    for profile in board.profiles:
        known = [
            profile.nvml_enum, profile.profile_id, profile.gpu_slices, profile.memory_mib, profile.multiprocessors,
            profile.copy_engines, profile.decoders, profile.encoders, profile.jpeg, profile.ofa,
        ]  # fmt: skip
        assert [s if k is None else k for k, s in zip(known, seen[profile.name])] == seen[profile.name][:10]
        if profile.placements:
            assert seen[profile.name][10:] == [list(profile.placements.starts), profile.placements.size]


def test_names_change_with_the_driver(machine: VirtualMachine) -> None:
    machine.start("gb200-189gb-early")
    names = {row[0] for row in machine.nvml(READ)[3]}
    assert {"MIG 1g.24gb", "MIG 3g.95gb", "MIG 7g.189gb"} < names


def test_a30_lies_about_its_counts(machine: VirtualMachine) -> None:
    machine.start("a30")
    machine.smi("-mig", "1")
    machine.gpu("reset")
    assert machine.nvml(
        """
        d = nvmlDeviceGetHandleByIndex(0)
        p = nvmlDeviceGetGpuInstanceProfileInfo(d, NVML_GPU_INSTANCE_PROFILE_1_SLICE)
        answer([p.instanceCount, nvmlDeviceGetGpuInstanceRemainingCapacity(d, p.id), nvmlDeviceGetMaxMigDeviceCount(d)])
        """
    ) == [7, 4, 4]
