#!/usr/bin/env python3
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Change the planners in one place at a time, and count the changes that no unit test notices.

``tools/mutants.py [--sample 300] [--seed 1] [--only PATH-PART] [--list]`` works in a copy of the committed files below build/. A
mutant is first given to the tests of its own folder; one that survives them to the golden plans and the tests of actions and of the
controller. It ends with 1 where less than 95 % of the mutants were noticed, and prints the survivors as FILE:LINE, before and after.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

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
# What runs for the mutants that the tests of their own folder let pass.
WIDER = (
    "tests/unit/golden",
    "tests/unit/plugins/action",
    "tests/unit/plugins/plugin_utils",
    "tests/unit/test_slices.py",
)
NOTICED = 0.95
# A mutant may never end, or fill the memory first; the whole set of tests takes a minute on a free core, and less than a GiB.
LIMIT_S = 600
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
    source: str

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


def mutants(folder: Path, path: str) -> Iterator[Mutant]:
    tree = ast.parse((folder / path).read_text(encoding="utf-8"))
    seen: set[int] = set()
    for node in _mutable(tree):
        if id(node) in seen:
            continue
        seen.add(id(node))
        for changed in _changes(node):
            # A second tree in which the place is found again by its position among all nodes.
            again = copy.deepcopy(tree)
            place = list(ast.walk(again))[list(ast.walk(tree)).index(node)]
            source = ast.unparse(ast.fix_missing_locations(_Replace(place, changed).visit(again)))
            line = getattr(node, "lineno", None) or getattr(node, "target", node).lineno
            yield Mutant(path, line, _short(node), _short(changed), source)


def sample(folder: Path, only: str, number: int, seed: int) -> list[Mutant]:
    paths = sorted({str(path.relative_to(folder)) for pattern in PLANNERS for path in folder.glob(pattern)})
    found = [mutant for path in paths if only in path for mutant in mutants(folder, path)]
    return sorted(random.Random(seed).sample(found, min(number, len(found))), key=lambda each: (each.path, each.line))


def _copy(target: Path) -> None:
    """Copy the committed files: what a mutant breaks, no other run sees."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", "HEAD"], stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "-x", "-C", str(target)], input=archive.stdout, check=True)
    (target / ".venv").symlink_to((ROOT / ".venv").resolve())


def _tests(folder: Path, path: str) -> list[str]:
    room = "tests/unit/" + str(Path(path).parent)
    return [room] if (folder / room).is_dir() else ["tests/unit/" + str(Path(path).parent.parent)]


def _passes(folder: Path, tests: list[str], environment: dict[str, str]) -> bool:
    command = [
        "prlimit",
        f"--as={LIMIT_BYTES}",
        str(folder / ".venv/bin/python"),
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "--no-header",
        *tests,
    ]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(LIMIT_S) == 0
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return False


def survives(folder: Path, mutant: Mutant) -> bool:
    path = folder / mutant.path
    before = path.read_text(encoding="utf-8")
    shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
    path.write_text(mutant.source, encoding="utf-8")
    # Bytecode of a mutant must never be taken for the original's: within a second both have one time of change.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return _passes(folder, _tests(folder, mutant.path), environment) and _passes(folder, list(WIDER), environment)
    finally:
        path.write_text(before, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=300, help="how many mutants (default 300)")
    parser.add_argument("--seed", type=int, default=1, help="which ones: the same number, the same mutants")
    parser.add_argument("--only", default="", help="only files with this text in their path")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time (default 1)")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    arguments = parser.parse_args()
    folders = [ROOT / "build" / "mutants" / str(number) for number in range(arguments.jobs)]
    for folder in folders:
        _copy(folder)
    chosen = sample(folders[0], arguments.only, arguments.sample, arguments.seed)
    if arguments.list:
        print(*chosen, sep="\n")
        return 0
    # What the mutants have in common is compiled once, here.
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for folder in folders:
        rooms = sorted({test for mutant in chosen for test in _tests(folder, mutant.path)})
        if not _passes(folder, [*rooms, *WIDER], compiled):
            sys.exit(f"the unit tests fail without any mutant: see .venv/bin/python -m pytest {' '.join(rooms)}")
    began = time.monotonic()
    free = list(folders)

    def judge(mutant: Mutant) -> bool:
        folder = free.pop()
        try:
            alive = survives(folder, mutant)
        finally:
            free.append(folder)
        if alive:
            print(mutant, flush=True)
        return alive

    with ThreadPoolExecutor(len(folders)) as pool:
        alive = sum(pool.map(judge, chosen))
    noticed = 1 - alive / max(1, len(chosen))
    print(f"{len(chosen)} mutants, {alive} survived, {noticed:.1%} noticed, {time.monotonic() - began:.0f} s")
    return 0 if noticed >= NOTICED else 1


if __name__ == "__main__":
    sys.exit(main())
