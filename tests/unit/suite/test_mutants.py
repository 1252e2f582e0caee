# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""tools/mutants.py lists the changes that no test notices, and no other; what never ends is noticed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[3] / "tools"
PLANNER = """\
def least(value, floor):
    if value < floor:
        return floor
    return value


def doublings(value):
    count = 0
    while value > 1:
        value = value // 2
        count = count + 1
    return count


def unused(value):
    return not value
"""
TESTS = """\
import planner
from planner import least

def test_least():
    assert (least(1, 2), least(2, 1)) == (2, 2)

def test_doublings():
    assert planner.doublings(4) == 2
"""
RUN = """\
import sys
from pathlib import Path
sys.path[:0] = [sys.argv.pop(1), "."]
import mutants
mutants.ROOT, mutants.PLANNERS, mutants.TESTS, mutants.LIMIT_CPU_S = Path.cwd(), ("planner.py",), ("test_planner.py",), 1
sys.exit(mutants.main())
"""


def test_it_lists_the_survivors_alone(tmp_path):
    (tmp_path / "planner.py").write_text(PLANNER)
    (tmp_path / "test_planner.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run([sys.executable, "-c", RUN, TOOLS], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert [line for line in done.stdout.splitlines() if "  ->  " in line] == [
        # The two differ where value is floor, and then are one number.
        "planner.py:2: value < floor  ->  value <= floor",
        "planner.py:16: return not value  ->  return None",
        "planner.py:16: not value  ->  value",
    ]
    assert (done.returncode, (tmp_path / "planner.py").read_text()) == (1, PLANNER)
