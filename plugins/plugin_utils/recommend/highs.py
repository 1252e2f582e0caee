# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""HiGHS, the solver of linear and integer programs. It is needed for this alone, so it is imported when it is asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
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

    def row(self, lower: float = -INFINITY, upper: float = INFINITY, entries: Iterable[tuple[int, float]] = ()) -> int:
        """Add a row and return its number. C(entries): its values by column."""
        self.highs.addRow(lower, upper, *self._sparse(entries))
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
        self.highs.addCol(cost, lower, upper, *self._sparse(entries))
        if integer:
            self.highs.changeColIntegrality(self.columns, self.highspy.HighsVarType.kInteger)
        self.columns += 1
        return self.columns - 1

    def _sparse(self, entries: Iterable[tuple[int, float]]) -> tuple[int, Any, Any]:
        places, values = [], []
        for place, value in entries:
            if value:
                places.append(place)
                values.append(value)
        return len(places), self.np.array(places, dtype=self.np.int32), self.np.array(values, dtype=float)

    def solve(self) -> bool:
        """Solve it, and return whether there is a solution."""
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
