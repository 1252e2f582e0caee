# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plain text tables: columns as wide as their widest cell, numbers of equal neighbours folded into ranges."""

from __future__ import annotations

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]], gap: str = "  ") -> str:
    """Return C(rows) under C(header), every column left-aligned, without trailing blanks."""
    widths = [max(len(line[column]) for line in (header, *rows)) for column in range(len(header))]
    lines = [gap.join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in (header, *rows)]
    return "\n".join(lines) + "\n"


def ranges(numbers: Sequence[int]) -> str:
    """Return ascending C(numbers) with runs folded: C([0, 1, 2, 5]) becomes C(0-2,5)."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
