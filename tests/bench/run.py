# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the benchmarks, write build/bench.json and print it as a table: run.py [NAME...], all of them without an argument.

A benchmark is a module bench_<name>.py with C(run() -> dict), figures by key, and maybe C(table() -> str), text to print. One that
cannot run here raises C(Unavailable) with the reason, and is said to be left out. Nothing fails on an absolute time.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
sys.path[:0] = [str(HERE), str(REPOSITORY / "tests"), str(REPOSITORY)]

from unavailable import Unavailable

import tests.conftest  # noqa: F401  makes the collection importable


def main(names: list[str]) -> int:
    found = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
    unknown = [name for name in names if name not in found]
    if unknown:
        print(f"There is no benchmark {', '.join(unknown)}. There are: {', '.join(found)}", file=sys.stderr)
        return 2
    output = REPOSITORY / "build" / "bench.json"
    figures = json.loads(output.read_text(encoding="utf-8")) if output.is_file() else {}
    left_out = []
    for name in names or found:
        print(f"== {name}", flush=True)
        try:
            benchmark = importlib.import_module(f"bench_{name}")
            result = benchmark.run()
        except Unavailable as reason:
            print(f"left out: {reason}")
            left_out.append(name)
            continue
        if hasattr(benchmark, "table"):
            print(benchmark.table())
        figures.update(result)
        width = max(len(key) for key in result)
        for key, value in sorted(result.items()):
            print(f"{key:<{width}}  {value:.4g}" if isinstance(value, float) else f"{key:<{width}}  {value}")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(figures, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    print(f"\nWritten to {output.relative_to(REPOSITORY)}" + (f"; left out: {', '.join(left_out)}" if left_out else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
