#!/usr/bin/env python3
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the time of a run goes: seconds per tier, file, fixture and test.

    tests/times.py FOLDER [TIER=SECONDS ...]

merges what the tiers wrote (FOLDER/times/TIER.json) into FOLDER/times.json and prints the slowest. pytest writes its part where C(GPUFLEET_TIMES) names
the file, again and again, so that of a run that is cut off it is known where its time went. A fixture has the seconds of its set-up, without those of the
fixtures that it asks for, and a test those of its call; a file has all, with the set-up and the end of what it uses first and last.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "GPUFLEET_TIMES"
KINDS = ("files", "fixtures", "tests")
SHOWN = 20
#: Seconds until what is measured is written again.
EVERY = 20.0


def slot(table: dict[str, list[float]], name: str, seconds: float) -> None:
    """Add to a row of a table: the sum of its seconds, and how many there are."""
    row = table.setdefault(name, [0.0, 0])
    row[0] = round(row[0] + seconds, 3)
    row[1] += 1


class Times:
    """The plugin. Fixtures are measured where tests run; their reports take it along, from the workers of xdist as well."""

    def __init__(self, path: Path, writes: bool = True) -> None:
        self.path = path
        self.writes = writes
        # A tier may run pytest more than once.
        self.former = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self.written = time.monotonic()
        self.tables: dict[str, dict[str, list[float]]] = {kind: {} for kind in KINDS}
        self.measured: list[tuple[str, float]] = []
        #: Seconds of the fixtures inside of the one that is being set up, innermost last.
        self.inside: list[float] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        begun = time.perf_counter()
        self.inside.append(0.0)
        try:
            return (yield)
        finally:
            whole, within = time.perf_counter() - begun, self.inside.pop()
            if self.inside:
                self.inside[-1] += whole
            self.measured.append((f"{fixturedef.baseid or 'pytest'}::{fixturedef.argname}", whole - within))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        report = yield
        report.fixture_seconds, self.measured = self.measured, []
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        slot(self.tables["files"], report.nodeid.partition("::")[0], report.duration)
        if report.when == "call":
            slot(self.tables["tests"], report.nodeid.partition("[")[0], report.duration)
        for name, seconds in report.fixture_seconds:
            slot(self.tables["fixtures"], name, seconds)
        if time.monotonic() - self.written > EVERY:
            self.pytest_sessionfinish()

    def pytest_sessionfinish(self) -> None:
        if not self.writes:
            return
        found: dict[str, dict[str, list[float]]] = {}
        for kind, table in self.tables.items():
            known = found[kind] = dict(self.former.get(kind, {}))
            for name, (seconds, count) in table.items():
                old = known.get(name, [0.0, 0])
                known[name] = [round(old[0] + seconds, 3), old[1] + count]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(found, indent=1, sort_keys=True), encoding="utf-8")
        part.replace(self.path)
        self.written = time.monotonic()


def configure(config: pytest.Config) -> None:
    if os.environ.get(VARIABLE):
        # Workers of xdist report to the process that started them.
        writes = not hasattr(config, "workerinput")
        config.pluginmanager.register(Times(Path(os.environ[VARIABLE]).resolve(), writes), "times")


def main(arguments: list[str]) -> None:
    folder = Path(arguments[0])
    seconds: Counter[str] = Counter()
    for tier, _, took in (word.partition("=") for word in arguments[1:]):
        seconds[tier] += int(took)
    parts = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (folder / "times").glob("*.json")}
    tiers = {tier: {"seconds": seconds[tier], **parts.get(tier, {})} for tier in sorted({*seconds, *parts})}
    (folder / "times.json").write_text(json.dumps({"tiers": tiers}, indent=1), encoding="utf-8")
    for kind in KINDS:
        rows = [
            (took, count, tier, name)
            for tier, part in tiers.items()
            for name, (took, count) in part.get(kind, {}).items()
        ]
        if not rows:
            continue
        print(f"The slowest {kind} (all in {folder}/times.json):")
        for took, count, tier, name in sorted(rows, reverse=True)[:SHOWN]:
            times = f" ({count} times)" if count > 1 and kind != "files" else ""
            print(f"{took:8.1f} s  {tier:<8} {name}{times}")


if __name__ == "__main__":
    main(sys.argv[1:])
