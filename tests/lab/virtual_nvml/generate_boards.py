#!/usr/bin/env python3
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write boards.h, the virtual NVML's table, from the collection's table of boards (plugins/module_utils/_boards).

    make generate

The header is committed, so that the build needs gcc and make only; a unit test says when it is out of date.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parents[2] / "plugins"))

import lab_boards as lab
from module_utils._boards import lookup
from module_utils._boards.board import ARCHITECTURES, Board, GpuInstanceProfile

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Filled:
    """A profile without a gap, as boards.h wants it."""

    name: str
    numbers: tuple[int, ...]
    starts: tuple[int, ...]
    size: int


def kind_of(name: str, base_gb: str) -> str:
    """A profile's name without its memory: 1g, 1gx2 (double memory), 1g+me, 2g-me.

    >>> kind_of("1g.20gb", "10"), kind_of("2g.48gb+me.all", "24")
    ('1gx2', '2g+me.all')
    """
    slices, _, rest = name.partition(".")
    memory, _, attributes = rest.partition("gb")
    return slices + ("x2" if slices == "1g" and memory != base_gb else "") + attributes


def fill_profile(board: Board, profile: GpuInstanceProfile, assumed: list[str]) -> Filled:
    """Replace what the table does not know; what was replaced is added to assumed."""
    base_gb = next(p.name for p in board.profiles if p.name.startswith("1g.")).partition(".")[2].partition("gb")[0]
    kind = kind_of(profile.name, base_gb)
    grid, slices, total = board.placement_grid_units, profile.gpu_slices, board.compute_slices

    def known(field: str, assumption: int) -> int:
        value = getattr(profile, field)
        if value is None:
            assumed.append(f"{profile.name}.{field}")
        return assumption if value is None else value

    if profile.placements is not None:
        starts, size = profile.placements.starts, profile.placements.size
    else:
        assumed.append(f"{profile.name}.placements")
        starts, size = lab.PLACEMENTS_8[kind] if total == 7 else ((), slices * grid // total)
        starts = starts or tuple(range(0, grid - size + 1, size))
    whole = size == grid
    sms = board.sm_total if whole else board.sm_total * slices // (total + 1) // 2 * 2
    enum = known("nvml_enum", lab.NVML_ENUMS[kind])
    numbers = (
        enum,
        known("profile_id", lab.PROFILE_IDS[kind] if total == 7 else 40 + enum),
        slices,
        profile.max_instances,
        lab.REPORTED_INSTANCE_COUNT.get((board.key, profile.name), profile.max_instances),
        known("memory_mib", int(board.total_memory_mib * size / grid * 0.985) // 64 * 64),
        known("multiprocessors", sms),
        known("copy_engines", slices),
        known("decoders", 7 if whole else slices),
        known("encoders", 0),
        known("jpeg", 7 if whole else slices),
        known("ofa", 1 if whole or "+me" in kind else 0),
    )
    return Filled(profile.name, numbers, starts, size)


def fill_board(board: Board, extra: lab.Extra, assumed: list[str]) -> Board:
    """The board with memory, SMs and grid; NVML rounds the total up to the label, so a little less than the label is assumed."""
    if board.total_memory_mib is None:
        assumed.append("total_memory_mib")
        label = int((board.memory_label or "0GB").rstrip("GB"))
        board = replace(board, total_memory_mib=label * 1024 - 512)
    for field in ("sm_total", "compute_slices", "placement_grid_units"):
        if getattr(board, field) is None and getattr(extra, field) is not None:
            assumed.append(field)
            board = replace(board, **{field: getattr(extra, field)})
    return board


def variants(boards: dict[str, Board]) -> Iterator[tuple[Board, str]]:
    """The boards of lab_boards.VARIANTS, each with the key of the board that it varies."""
    for variant in lab.VARIANTS:
        origin = boards[variant.of]
        renamed = {old: (new, mib) for old, new, mib in variant.profiles}
        profiles = tuple(
            replace(p, name=renamed[p.name][0], memory_mib=renamed[p.name][1]) if p.name in renamed else p
            for p in origin.profiles
        )
        total = variant.total_memory_mib or (None if variant.memory_label else origin.total_memory_mib)
        label = variant.memory_label or origin.memory_label
        yield (
            replace(origin, key=variant.key, memory_label=label, total_memory_mib=total, profiles=profiles),
            variant.of,
        )


def chosen() -> list[tuple[Board, str]]:
    """The boards of the lab with the key of their extras, in the order of the table, variants last."""
    table = [b for b in lookup.BOARDS if (b.mig and b.key not in lab.LEFT_OUT) or b.key in lab.WITHOUT_MIG]
    return [(b, b.key) for b in table] + list(variants({b.key: b for b in table}))


def render() -> str:
    """The header's text. The same table gives the same bytes."""
    profiles: list[str] = []
    rows: list[str] = []
    for number, (board, extra_key) in enumerate(chosen()):
        assumed: list[str] = []
        extra = lab.EXTRAS.get(extra_key, lab.Extra())
        board = fill_board(board, extra, assumed)
        architecture = ARCHITECTURES[board.architecture]
        capability = extra.capability or architecture.compute_capabilities[0].split(".")
        if board.mig:
            profiles.append(f"static const struct profile profiles_{number}[] = {{ /* {board.key} */")
            for p in (fill_profile(board, profile, assumed) for profile in board.profiles):
                values = ", ".join(map(str, (*p.numbers, p.size, len(p.starts))))
                profiles.append(f'    {{"{p.name}", {values}, {{{", ".join(map(str, p.starts))}}}}},')
            profiles.append("};")
        if assumed:
            profiles.append(f"/* {board.key}, assumed: {', '.join(assumed)} */")
        device, product = lab.WITHOUT_MIG.get(extra_key, (board.pci_device_ids[0], board.product_names[0]))
        numbers = (
            f"0x{int(device, 16) >> 16:04x}", f"0x{extra.subsystem:04x}", f"0x{extra.pci_class:06x}", architecture.nvml,
            *capability, extra.brand, board.total_memory_mib, board.compute_slices or 0,
            board.placement_grid_units or 0, board.sm_total or 0, extra.nvlinks, extra.power_w,
            extra.least_power_w or extra.power_w * 2 // 5, f"{{{extra.memory_clocks[0]}, {extra.memory_clocks[1]}}}", extra.bus_width, extra.bar1_mib,
            f"profiles_{number}" if board.mig else "NULL", len(board.profiles),
        )  # fmt: skip
        rows.append(f'    {{"{board.key}", "{product}", {", ".join(map(str, numbers))}}},')
    head = "/* Generated by generate_boards.py from plugins/module_utils/_boards; do not edit. Included once, by boards.c. */"
    tail = [f"const int board_count = {len(rows)};", ""]
    return "\n".join([head, "", *profiles, "", "const struct board boards[] = {", *rows, "};", *tail])


if __name__ == "__main__":
    sys.stdout.write(render())
