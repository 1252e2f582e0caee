#!/usr/bin/env python3
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Change the planners in one place at a time, and count the changes that no unit test notices.

``tools/mutants.py [--sample 300] [--seed 1] [--only PATH-PART] [--list]`` imports the unit tests once, runs them once to learn which of
them execute which line, and gives each mutant to those of its lines, in a fork in which its code stands in the place of the
function's. No file is changed. It ends with 1 where less than 95 % of the mutants were noticed, and prints the survivors as FILE:LINE,
before and after.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import gc
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType

import pytest
from coverage import Coverage
from hypothesis import Phase, settings

ROOT = Path(__file__).resolve().parent.parent
PLANNERS = (
    "plugins/module_utils/*/plan.py",
    "plugins/module_utils/*/*_plan.py",
    "plugins/module_utils/*/stage.py",
    "plugins/module_utils/*/desired.py",
    "plugins/module_utils/_mig/geometry.py",
    "plugins/plugin_utils/fleet/plan.py",
    "plugins/plugin_utils/fleet/waves.py",
)
TESTS = ("tests/unit/plugins", "tests/unit/golden", "tests/unit/test_slices.py")
NOTICED = 0.95
# A mutant may never end, or fill the memory first. Its tests have ten times the seconds of a core that they took without it, and these.
LIMIT_CPU_S = 30
LIMIT_S = 600
RECORD_S = 3600
LIMIT_BYTES = 3 << 30

_COMPARE = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult}


@dataclass(frozen=True)
class Mutant:
    path: str
    line: int
    before: str
    after: str
    tree: ast.Module
    place: int
    changed: ast.AST
    #: First and last line of the statement.
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before}  ->  {self.after}"


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what could stand in the place of a node: another comparison, operator, constant or condition, or nothing."""
    new = copy.deepcopy(node)
    if isinstance(new, ast.Compare) and len(new.ops) == 1 and type(new.ops[0]) in _COMPARE:
        new.ops[0] = _COMPARE[type(new.ops[0])]()
        yield new
    elif isinstance(new, ast.BoolOp):
        new.op = ast.Or() if isinstance(new.op, ast.And) else ast.And()
        yield new
    elif isinstance(new, ast.UnaryOp) and isinstance(new.op, ast.Not):
        yield new.operand
    elif isinstance(new, ast.BinOp) and type(new.op) in _ARITHMETIC and not _is_text(new):
        new.op = _ARITHMETIC[type(new.op)]()
        yield new
    elif isinstance(new, ast.Constant) and isinstance(new.value, (bool, int)):
        new.value = not new.value if isinstance(new.value, bool) else new.value + 1
        yield new
    elif isinstance(new, (ast.If, ast.IfExp)) and isinstance(new.test, (ast.Name, ast.Attribute, ast.Call)):
        new.test = ast.UnaryOp(ast.Not(), new.test)
        yield new
    elif isinstance(new, ast.comprehension) and new.ifs:
        new.ifs = new.ifs[1:]
        yield new
    elif isinstance(new, ast.Return) and new.value is not None and not isinstance(new.value, ast.Constant):
        new.value = ast.Constant(None)
        yield new
    elif isinstance(new, ast.Expr) and isinstance(new.value, ast.Call):
        yield ast.Pass()


def _is_text(node: ast.AST) -> bool:
    return any(isinstance(part, (ast.JoinedStr, ast.List)) or _is_string(part) for part in ast.walk(node))


def _is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


class _Replace(ast.NodeTransformer):
    def __init__(self, place: ast.AST, by: ast.AST) -> None:
        self._place, self._by = place, by

    def visit(self, node: ast.AST) -> ast.AST:
        return ast.copy_location(self._by, node) if node is self._place else self.generic_visit(node)


def _mutable(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes of what functions do: neither annotations nor the signs of dataclasses and defaults of fields."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body:
                annotations = {
                    id(part)
                    for node in ast.walk(statement)
                    if isinstance(node, ast.AnnAssign)
                    for part in ast.walk(node.annotation)
                }
                yield from (node for node in ast.walk(statement) if id(node) not in annotations)


def _short(node: ast.AST) -> str:
    if isinstance(node, ast.comprehension):
        return " ".join(["for", ast.unparse(node.target), *(f"if {ast.unparse(test)}" for test in node.ifs)])[:90]
    return ast.unparse(node).splitlines()[0][:90]


def _statements(tree: ast.Module) -> dict[int, tuple[int, int]]:
    """Return first and last line of the statement around each node, without the statements in its own body."""
    lines: dict[int, tuple[int, int]] = {}
    # Outer statements come first, so that the innermost one stays.
    for statement in (node for node in ast.walk(tree) if isinstance(node, ast.stmt)):
        body = getattr(statement, "body", None)
        last = max(statement.lineno, body[0].lineno - 1) if body else statement.end_lineno or statement.lineno
        lines.update((id(node), (statement.lineno, last)) for node in ast.walk(statement))
    return lines


def mutants(path: str, source: str) -> Iterator[Mutant]:
    tree = ast.parse(source)
    places = {id(node): number for number, node in enumerate(ast.walk(tree))}
    statements = _statements(tree)
    seen: set[int] = set()
    for node in _mutable(tree):
        if id(node) in seen:
            continue
        seen.add(id(node))
        for changed in _changes(node):
            line = (node.target if isinstance(node, ast.comprehension) else node).lineno  # type: ignore[attr-defined]
            place, lines = places[id(node)], statements[id(node)]
            yield Mutant(path, line, _short(node), _short(changed), tree, place, changed, *lines)


def sample(only: str, number: int, seed: int) -> list[Mutant]:
    paths = sorted({path for pattern in PLANNERS for path in ROOT.glob(pattern) if only in str(path.relative_to(ROOT))})
    found = [each for path in paths for each in mutants(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))]
    return sorted(random.Random(seed).sample(found, min(number, len(found))), key=lambda each: (each.path, each.line))


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def imported() -> list[FunctionType]:
    """Return the functions of all planners. Whoever imported one by its name has the same function."""
    paths = {path for pattern in PLANNERS for path in ROOT.glob(pattern)}
    found = [each for each in gc.get_objects() if isinstance(each, FunctionType)]
    files = {name: Path(name).resolve() for name in {each.__code__.co_filename for each in found}}
    return [each for each in found if files[each.__code__.co_filename] in paths]


def put_in_place(mutant: Mutant, functions: Iterable[FunctionType]) -> bool:
    """Give the functions that differ in the mutant their other code. Return whether there was one."""
    # A copy of the tree, in which the place is found again by its number.
    tree = copy.deepcopy(mutant.tree)
    place = next(node for number, node in enumerate(ast.walk(tree)) if number == mutant.place)
    _Replace(place, mutant.changed).visit(tree)
    whole = compile(ast.fix_missing_locations(tree), mutant.path, "exec")
    codes = {(code.co_name, code.co_firstlineno): code for code in _codes(whole)}
    found = False
    for function in functions:
        old = function.__code__
        new = codes.get((old.co_name, old.co_firstlineno))
        if new and new != old and Path(old.co_filename).resolve() == ROOT / mutant.path:
            function.__code__ = new.replace(co_filename=old.co_filename)
            found = True
    return found


def forked(work: Callable[[], bool], cpu_s: float, limit_s: float = LIMIT_S) -> bool:
    """Return what some work returns that is done in a process of its own, within bounds: C(False) where it reached them."""
    pid = os.fork()
    if not pid:
        try:
            os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
            resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s), int(cpu_s)))
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 1)
            os.dup2(nothing, 2)
            os._exit(not work())
        finally:
            os._exit(1)
    end = time.monotonic() + limit_s
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG if time.monotonic() < end else 0)
        if ended:
            break
        time.sleep(0.01)
        if time.monotonic() >= end:
            os.kill(pid, signal.SIGKILL)
    # What its tests started ends with it.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return status == 0


@dataclass
class Record:
    """What one run without mutants told: which tests executed a line, by their numbers, and how long each took."""

    lines: dict[str, dict[str, list[int]]]
    seconds: list[float]

    def tests(self, mutant: Mutant) -> list[int]:
        lines = self.lines.get(mutant.path, {})
        found = {test for line in range(mutant.first, mutant.last + 1) for test in lines.get(str(line), ())}
        return sorted(found, key=self.seconds.__getitem__)


class Judge:
    """The plugin of pytest: runs the tests for each mutant in the place of once."""

    def __init__(self, chosen: list[Mutant], coverage: Coverage, file: Path) -> None:
        self.chosen, self.coverage, self.file = chosen, coverage, file
        self.functions: list[FunctionType] = []
        self.failed = ""
        self.alive = 0

    def pytest_sessionstart(self) -> None:
        # The same examples for every mutant, and no time for the smallest one.
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", derandomize=True, database=None, phases=phases)
        settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = f"{report.nodeid}\n{report.longreprtext}"

    def _passes(self, items: list[pytest.Item], after: Callable[[int, float], None] | None = None) -> bool:
        for number, item in enumerate(items):
            began = sum(os.times()[:4])
            following = items[number + 1] if number + 1 < len(items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                return False
            if after:
                after(number, sum(os.times()[:4]) - began)
        return True

    def _record(self, items: list[pytest.Item]) -> bool:
        """Write L(Record) into the file, or what failed."""
        seconds: list[float] = []

        def after(number: int, took: float) -> None:
            seconds.append(took)
            self.coverage.switch_context(str(number + 1))

        self.coverage.start()
        self.coverage.switch_context("0")
        passed = self._passes(items, after)
        self.coverage.stop()
        data = self.coverage.get_data()
        lines = {
            str(Path(name).relative_to(ROOT)): {
                line: [int(context) for context in contexts if context]
                for line, contexts in data.contexts_by_lineno(name).items()
            }
            for name in data.measured_files()
        }
        self.file.write_text(json.dumps([lines, seconds] if passed else self.failed), encoding="utf-8")
        return passed

    def _survives(self, mutant: Mutant, items: list[pytest.Item], record: Record) -> bool:
        tests = record.tests(mutant)
        files = {items[test].path for test in tests}
        # What a test found in a cache, or in a fixture of its file, another one may have computed.
        beside = [number for number, item in enumerate(items) if item.path in files and number not in set(tests)]
        ordered = [items[number] for number in (*tests, *beside)]
        limit = LIMIT_CPU_S + 10 * sum(record.seconds[number] for number in (*tests, *beside))
        return forked(lambda: not put_in_place(mutant, self.functions) or self._passes(ordered), limit)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.coverage.stop()
        items, self.functions = session.items, imported()
        if not forked(lambda: self._record(items), RECORD_S, RECORD_S):
            pytest.exit(f"the unit tests fail without any mutant: {self.file.read_text(encoding='utf-8')}", 1)
        record = Record(*json.loads(self.file.read_text(encoding="utf-8")))
        for mutant in self.chosen:
            if self._survives(mutant, items, record):
                self.alive += 1
                print(mutant, flush=True)
        return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=300, help="how many mutants (default 300)")
    parser.add_argument("--seed", type=int, default=1, help="which ones: the same number, the same mutants")
    parser.add_argument("--only", default="", help="only files with this text in their path")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    arguments = parser.parse_args()
    chosen = sample(arguments.only, arguments.sample, arguments.seed)
    if arguments.list:
        print(*chosen, sep="\n")
        return 0
    os.chdir(ROOT)
    # As with python -m pytest: no tool of this folder stands in the place of a library.
    sys.path[0] = str(ROOT)
    # As in the unit tier: what was imported once is compiled.
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(ROOT / "build" / "pycache")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        coverage = Coverage(
            data_file=f"{folder}/coverage", config_file=False, include=[str(ROOT / each) for each in PLANNERS]
        )
        # What is executed while tests are imported counts, too.
        coverage.start()
        judge = Judge(chosen, coverage, Path(folder, "record.json"))
        options = ["-s", "-q", "--no-header", "--no-summary", "-p", "no:cacheprovider", f"--basetemp={folder}/tests"]
        status = pytest.main([*options, *TESTS], plugins=[judge])
    if status:
        return int(status)
    noticed = 1 - judge.alive / max(1, len(chosen))
    print(f"{len(chosen)} mutants, {judge.alive} survived, {noticed:.1%} noticed, {time.monotonic() - began:.0f} s")
    return 0 if noticed >= NOTICED else 1


if __name__ == "__main__":
    sys.exit(main())
