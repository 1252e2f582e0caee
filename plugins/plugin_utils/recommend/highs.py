# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""HiGHS, the solver of linear and integer programs. It is needed for this alone, so it is imported when it is asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from ...module_utils._plan import Refused

VERSION = "1.16.0"
INFINITY = float("inf")


def numpy() -> Any:
    """Return numpy, which comes with HiGHS. Raises Refused: it is not installed here."""
    return _modules()[0]


def _modules() -> tuple[Any, Any]:
    try:
        import highspy
        import numpy as np
    except ImportError as missing:
        reason = f"it needs HiGHS, a solver of integer programs, and Python on this controller has none ({missing})"
        raise Refused("gpufleet.nvidia.recommend", reason, f"Install it: pip install highspy=={VERSION}") from None
    _say_nothing(highspy)
    return np, highspy


@lru_cache(maxsize=1)
def _say_nothing(highspy: Any) -> None:
    """Make the first solver of this process, which writes a banner to the standard output before an option could forbid it."""
    sys.stdout.flush()
    output, (end, start) = os.dup(1), os.pipe()
    try:
        os.dup2(start, 1)
        highspy.Highs()
    finally:
        os.dup2(output, 1)
        for one in (output, end, start):
            os.close(one)


class Program:
    """A linear or integer program that is minimised. One thread and a fixed seed: the same input has the same result everywhere.

    Columns and rows are added at any time; what has been solved is where the next solution starts from.
    """

    def __init__(self, **options: Any) -> None:
        self.np, self.highspy = _modules()
        self.highs = self.highspy.Highs()
        fixed = {"output_flag": False, "threads": 1, "parallel": "off", "random_seed": 1, "mip_rel_gap": 0.0}
        for name, value in {**fixed, **options}.items():
            self.highs.setOptionValue(name, value)
        self.rows = self.columns = 0
        #: Rows without entries, and columns, that the solver is given at once.
        self._rows: list[tuple[float, float]] = []
        self._columns: list[tuple[float, float, float, list[tuple[int, float]], bool]] = []

    def row(self, lower: float = -INFINITY, upper: float = INFINITY, entries: Iterable[tuple[int, float]] = ()) -> int:
        """Add a row and return its number. C(entries): its values by column."""
        pairs = [(place, value) for place, value in entries if value]
        if pairs:
            self._give()
            self.highs.addRow(lower, upper, *self._sparse([pairs])[1:])
        else:
            self._rows.append((lower, upper))
        self.rows += 1
        return self.rows - 1

    def column(
        self,
        cost: float,
        lower: float = 0.0,
        upper: float = INFINITY,
        entries: Iterable[tuple[int, float]] = (),
        integer: bool = False,
    ) -> int:
        """Add a column and return its number. C(entries): its values by row."""
        self._columns.append((cost, lower, upper, [(place, value) for place, value in entries if value], integer))
        self.columns += 1
        return self.columns - 1

    def _give(self) -> None:
        np = self.np
        if self._rows:
            lower, upper = np.array(self._rows, dtype=float).T.copy()
            starts, count, places, values = self._sparse([[]] * len(self._rows))
            self.highs.addRows(len(self._rows), lower, upper, count, starts, places, values)
        if self._columns:
            *bounds, entries, integer = zip(*self._columns)
            costs, lower, upper = np.array(bounds, dtype=float)
            starts, count, places, values = self._sparse(entries)
            self.highs.addCols(len(entries), costs, lower, upper, count, starts, places, values)
            whole = (np.flatnonzero(integer) + self.columns - len(entries)).astype(np.int32)
            kinds = np.full(len(whole), int(self.highspy.HighsVarType.kInteger), dtype=np.uint8)
            self.highs.changeColsIntegrality(len(whole), whole, kinds)
        self._rows, self._columns = [], []

    def _sparse(self, several: Sequence[list[tuple[int, float]]]) -> tuple[Any, int, Any, Any]:
        """Return where the entries of each begin, how many there are, their places and their values."""
        np, flat = self.np, [pair for entries in several for pair in entries]
        starts = np.cumsum([0, *map(len, several)], dtype=np.int32)[:-1]
        places, values = (np.array([pair[at] for pair in flat], dtype=kind) for at, kind in ((0, np.int32), (1, float)))
        return starts, len(flat), places, values

    def solve(self) -> bool:
        """Solve it, and return whether there is a solution."""
        self._give()
        self.highs.run()
        info = self.highs.getInfo()
        return int(info.primal_solution_status) == 2

    @property
    def finished(self) -> bool:
        """Whether no better solution exists, within the gap that was allowed."""
        return self.highs.getModelStatus() == self.highspy.HighsModelStatus.kOptimal

    @property
    def value(self) -> float:
        return float(self.highs.getInfo().objective_function_value)

    @property
    def bound(self) -> float:
        """Return what no solution in integers is below."""
        return float(self.highs.getInfo().mip_dual_bound)

    def values(self) -> Any:
        return self.np.array(self.highs.getSolution().col_value)

    def duals(self) -> Any:
        return self.np.array(self.highs.getSolution().row_dual)
