# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What runs by default is a sample; C(--whole) runs everything.

A test, a class, a file (C(pytestmark)) or a case (C(pytest.param(..., marks=pytest.mark.by_name))) with the mark C(by_name) runs only with C(--whole),
with C(GPUFLEET_WHOLE=1) in the environment (C(make test-all), C(make test TIERS=lab WHOLE=yes)), or where the command line names that very test
(C(FILE::TEST)). What did not run is named at the end and is in no count of what passed. L(sampled), L(some) and L(examples) shrink matrices, loops
and properties. None of it changes what a test asserts.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

MARK = "by_name"
VARIABLE = "GPUFLEET_WHOLE"
#: Samples are the same in every run: a failure that comes and goes with its sample helps nobody.
SEED = 20260101


def whole() -> bool:
    """Whether this run is to have everything. It may be asked while test modules are imported."""
    return os.environ.get(VARIABLE, "") not in ("", "0", "no")


def examples(everything: int, default: int | None = None) -> int:
    """How many examples a property gets: C(everything) in a whole run, C(default) otherwise (a tenth)."""
    return everything if whole() else (everything // 10 if default is None else default)


def some(values: Iterable[Any]) -> list[Any]:
    """Return what a test loops over: all of it in a whole run, otherwise a tenth (and ten at least), drawn with a fixed seed and in its order."""
    every = list(values)
    if whole():
        return every
    kept = random.Random(SEED).sample(range(len(every)), min(max(10, len(every) // 10), len(every)))
    return [every[number] for number in sorted(kept)]


def sampled(names: str | tuple[str, ...], cases: Iterable[Any], default: int, **options: Any) -> pytest.MarkDecorator:
    """Return C(pytest.mark.parametrize) of all cases; all but C(default) of them, drawn with a fixed seed, run by name only.

    :param options: C(ids) and what else C(parametrize) takes.
    """
    every, one = list(cases), isinstance(names, str) and "," not in names
    kept = random.Random(f"{SEED}{names}").sample(range(len(every)), min(default, len(every)))
    marked = [case if number in kept else _by_name(case, one) for number, case in enumerate(every)]
    return pytest.mark.parametrize(names, marked, **options)


def _by_name(case: Any, one: bool) -> Any:
    if isinstance(case, type(pytest.param())):
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.by_name])
    return pytest.param(*((case,) if one else case), marks=pytest.mark.by_name)


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--whole", action="store_true", help=f"run what has the mark {MARK}, and all examples, too")


class Whole:
    """The plugin: takes away what runs by name only, and says so at the end."""

    def __init__(self, config: pytest.Config) -> None:
        # For L(whole), and for the workers of xdist.
        if config.getoption("--whole"):
            os.environ[VARIABLE] = "1"
        self.left_out: list[str] = []

    # Behind everything else that selects: what another mark took away is not of this run.
    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if whole():
            return
        named = [argument.split("[")[0] for argument in config.args if "::" in argument]
        gone = [item for item in items if item.get_closest_marker(MARK) and not _is_named(item.nodeid, named)]
        self.left_out = [item.nodeid for item in gone]
        if gone:
            config.hook.pytest_deselected(items=gone)
            taken = set(map(id, gone))
            items[:] = [item for item in items if id(item) not in taken]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[MARK] = self.left_out

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        # Every worker collects the same.
        self.left_out = getattr(node, "workeroutput", {}).get(MARK, self.left_out)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.left_out:
            return
        terminalreporter.section("run by name only")
        for name, count in Counter(name.split("[")[0] for name in self.left_out).items():
            terminalreporter.write_line(f"{name}" + (f" ({count} cases)" if count > 1 else ""))
        terminalreporter.write_line(f"{len(self.left_out)} tests run by name only: make test-all, or --whole")


def _is_named(nodeid: str, named: list[str]) -> bool:
    path, _, test = nodeid.split("[")[0].partition("::")
    for argument in named:
        file, _, wanted = argument.partition("::")
        # Paths are given relative to any folder.
        if path.endswith(os.path.normpath(file).lstrip("./")) and (test == wanted or test.startswith(f"{wanted}::")):
            return True
    return False
