# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The benchmarks' own program starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[2] / "bench" / "run.py"


def test_a_benchmark_that_does_not_exist_is_refused_with_those_that_do():
    result = subprocess.run([sys.executable, str(PROGRAM), "nothing"], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("There is no benchmark nothing. There are: ") and "recommend" in result.stderr
