#!/usr/bin/env python3
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write docs/support.md from the marks of the tests: a cell says what a test proves, and names it.

tools/support-matrix.py            write it
tools/support-matrix.py --check    fail when it is not what would be written

A test that proves something has the mark C(proves(area, column, rows=..., by=..., note=...)). C(rows) are names of rows; C(by) names the parameter of the
test that is the row, so that a case which is added or taken away is in the page or out of it by itself. The level is where the test is.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = REPOSITORY / "docs" / "support.md"
REAL = REPOSITORY / "tests" / "real"
TIERS = REPOSITORY / "tools" / "test.sh"
MARK = "proves"
#: From the strongest to the weakest.
LEVELS = ("real", "lab", "resolver", "plan")
REFUSED = "refused"
#: Behind the number of a test that no run without arguments has.
BY_NAME = "\N{DAGGER}"
#: The mark of tests and cases that no run without --whole has (tests/whole.py).
CASE = "by_name"
#: Each is a table of the page.
AREAS = frozenset({"driver", "unconfirmed", "kernel", "toolkit", "runtime", "fabric", "trap"})
_FOLDERS = {"tests/lab": "lab", "tests/resolver": "resolver", "tests/unit": "plan"}

_INTRODUCTION = """# Support matrix

What is supported, and which test proves it. `tools/support-matrix.py` writes this page from the marks of the tests, and a test holds it to them: do not
edit it. CI runs every test that is named here, except those with {mark}: they take long, and run by name only
({tiers}).

| level | means | runs with |
|---|---|---|
| **real** | the distribution's own packages and its real package manager, on a lab host with systemd | `make test TIERS="lab dkms"` |
| **lab** | packages shaped like NVIDIA's, with real apt, DKMS and systemd on a lab host, and virtual GPUs; real runtimes | `make test TIERS="lab dkms"` |
| **resolver** | the real apt, dnf or zypper resolves, and where it says so installs, from generated repositories | `make test TIERS=resolver` |
| **plan** | the plan is computed and compared; no package manager of that distribution was asked | `make test TIERS=unit` |
| refused | there is no such combination, or something is missing for it: a test proves that it is refused with the reason | `make test TIERS=unit` |
| unconfirmed | it is not refused, and no test proves it | |

The generated repositories are signed and have the names, versions, dependency shapes, streams and traps of NVIDIA's; what is in them holds no driver.
What was run on real GPUs is in [Boards](#boards). The kernel of a lab host cannot load modules: what is loaded is the lab's answer, what is built is
real only where it says so. The numbers are those of the [tests](#tests).
"""

#: What the collection calls alike, as people tell it apart.
_REBUILDS = {"rhel": "RHEL", "rocky": "Rocky Linux", "almalinux": "AlmaLinux"}


@dataclass(frozen=True)
class Proof:
    """What one test says of one cell.

    :param test: path and name, without its parameters.
    :param tier: the tier that has it, where that runs by name only; L(CASE) where the test, or this case of it, does.
    """

    area: str
    column: str
    row: str
    level: str
    note: str
    test: str
    tier: str = ""


class Collector:
    """A plugin of pytest that takes the marks of the tests that it collected, and runs none."""

    def __init__(self) -> None:
        self.proofs: dict[Proof, None] = {}

    def pytest_collection_finish(self, session: Any) -> None:
        for item in session.items:
            for mark in item.iter_markers(MARK):
                self.proofs.update(dict.fromkeys(proofs_of(item, mark)))


def proofs_of(item: Any, mark: Any) -> list[Proof]:
    """Return what a mark of a collected test proves."""
    area, column = mark.args
    given = dict(mark.kwargs)
    rows, by, note, level = (
        given.pop(name, default) for name, default in (("rows", ()), ("by", ""), ("note", ""), ("level", ""))
    )
    if given or bool(rows) is bool(by) or level not in ("", *LEVELS, REFUSED):
        raise ValueError(
            f"{item.nodeid}: {MARK} takes rows or by, note, and level of {LEVELS} or {REFUSED}: {mark.kwargs}"
        )
    if by:
        value = item.callspec.params[by]
        rows = ["-".join(value) if isinstance(value, tuple) else str(value)]
    path = item.nodeid.partition("::")[0]
    found = level or next(name for folder, name in _FOLDERS.items() if path.startswith(f"{folder}/"))
    name = f"{path}::{getattr(item, 'originalname', item.name)}"
    marks = {each.name for each in item.iter_markers()}
    tier = next((tier for tier in tiers_by_name() if tier in marks), CASE if CASE in marks else "")
    return [Proof(area, column, row, found, note, name, tier) for row in rows]


def tiers_by_name() -> list[str]:
    """Return the tiers that run by name only; each has the tests with the mark of its name."""
    (names,) = re.findall(r"^BY_NAME=\((.*)\)$", TIERS.read_text(encoding="utf-8"), re.MULTILINE)
    return str(names).split()


def collected() -> list[Proof]:
    """Return the proofs of all marked tests, in the order of their files."""
    import pytest

    named = sorted((REPOSITORY / "tests").rglob("test_*.py"))
    files = [
        str(file.relative_to(REPOSITORY))
        for file in named
        if f"pytest.mark.{MARK}(" in file.read_text(encoding="utf-8")
    ]
    collector = Collector()
    status = pytest.main(
        ["--collect-only", "-qqq", "--whole", "-m", "", "-p", "no:cacheprovider", *files], plugins=[collector]
    )
    if status:
        raise SystemExit(f"pytest could not collect {' '.join(files)}: {status}")
    return list(collector.proofs)


def page(proofs: Sequence[Proof]) -> str:
    """Return the text of docs/support.md."""
    # pytest has made the collection importable.
    from ansible_collections.gpufleet.nvidia.plugins.module_utils._distributions.distributions import (
        DISTRIBUTIONS,
        UNCONFIRMED,
    )
    from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes import RUNTIMES

    astray = sorted({proof.area for proof in proofs} - AREAS)
    if astray:
        raise SystemExit(f"No such area: {astray}")
    # Of a matrix some cases run by default: the mark is that of a cell, and of the test where none of them does.
    by_default = {proof.test for proof in proofs if not proof.tier}
    numbers = {test: number for number, test in enumerate(dict.fromkeys(proof.test for proof in proofs), 1)}
    by_name = sorted({proof.tier for proof in proofs if proof.tier})
    tiers = ", ".join("`make test-all`" if tier == CASE else f"`make test TIERS={tier}`" for tier in by_name)
    table = _Tables(proofs, numbers)
    distributions = {
        "-".join(key): f"{_REBUILDS[key[0]]} {key[1]}" if key[0] in _REBUILDS else row.name
        for key, row in DISTRIBUTIONS.items()
    }
    remarks = {"-".join(key): _remark(row) for key, row in DISTRIBUTIONS.items()}
    parts = [
        _INTRODUCTION.format(mark=BY_NAME, tiers=tiers or "none at present"),
        "## Driver\n\nCompute-only and full variants, open and proprietary flavour, unless a cell says otherwise. A mirror is resolved on every "
        "architecture of a row: x86_64 and arm64 (`sbsa`), or what it says.\n",
        table.of(
            "driver",
            distributions,
            {
                "nvidia": "NVIDIA's repository",
                "mirror": "a mirror, a local repository",
                "distribution": "the distribution's packages",
            },
            remarks,
        ),
        "Distributions that are refused, and what is missing:\n",
        table.of(
            "unconfirmed", {"-".join(key): f"{' '.join(key)}: {why}" for key, why in UNCONFIRMED.items()}, {"": "proof"}
        ),
        "## Kernels of Oracle (UEK)\n\nDKMS builds the module with the compiler that built the kernel: the system's own, or that of a gcc-toolset. A cell "
        "names the kernel and the compiler.\n",
        table.of(
            "kernel",
            {f"ol-{major}-uek": f"Oracle Linux {major} with UEK" for name, major in DISTRIBUTIONS if name == "ol"},
            {"headers": "headers", "compiler": "compiler"},
        ),
        "## Container toolkit\n",
        table.of("toolkit", distributions, {"": "proof"}),
        "## Container runtime\n",
        table.of("runtime", {name: name for name in RUNTIMES}, {"": "proof"}),
        "## NVLink fabric\n",
        table.of(
            "fabric",
            {
                "nvswitch": "NVSwitches on the PCI bus (HGX A100, H100, H200)",
                "nvlink5-host": "NVLink 5 switches of the host (HGX B200, B300)",
                "nvlink5-rack": "NVLink 5 switches of the rack (GB200, GB300 NVL72): IMEX",
            },
            {"packages": "packages", "host": "on the host", "health": "health"},
        ),
        "## Traps of repositories\n",
        table.of(
            "trap",
            {
                "newer-branch": "a dependency with `>=` that pulls the newest branch",
                "transitional": "a transitional package that jumps to another branch",
                "partial-hold": "a hold of some packages of the driver",
                "key": "metadata that another key signed",
            },
            {"": "proof"},
        ),
        "## Boards\n\nWhat `run.sh` of the GPU bundle did on the real board ([how](testing-your-pools.md)): the driver with its flavour, the date, and the "
        "parts that ran.\nNo setting was changed: MIG mode stayed as it was. Where the column is empty, no real one has been reached yet.\n",
        _boards(),
        "## Tests\n\n| number | test |\n|---|---|",
        *(f"| {number}{'' if test in by_default else BY_NAME} | `{test}` |" for test, number in numbers.items()),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _boards() -> str:
    """Return the table of boards, with what was recorded from real ones."""
    from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import BOARDS

    recorded: dict[str, list[str]] = {}
    for path in sorted(REAL.glob("*/about.json")):
        about = json.loads(path.read_text(encoding="utf-8"))
        ran = ", ".join(
            name for name, status in about["parts"].items() if status == "ran" and name not in ("before", "after")
        )
        text = f"**real** driver {about['driver']} ({about['flavour']}), {about['date']}: {ran}"
        recorded.setdefault(about["board"], []).append(text)
    rows = [
        f"| {board.product_names[0] if board.product_names else board.key} | {'; '.join(recorded.get(board.key, []))} |"
        for board in BOARDS
    ]
    return "\n".join(["| | real |", "|---|---|", *rows]) + "\n"


def _remark(row: Any) -> str:
    """Return what has to be known of a distribution beside the proofs."""
    found = []
    if not (row.key.fingerprint or row.key.digest):
        found.append("no two sources confirm the key of NVIDIA's repository: its fingerprint has to be given")
    if len(row.machines) == 1:
        found.append(f"{row.machines[0]} only: no source says that NVIDIA has packages for others")
    return "; ".join(found)


class _Tables:
    """The tables of the page; every proof has to be in one of them."""

    def __init__(self, proofs: Sequence[Proof], numbers: Mapping[str, int]) -> None:
        self._proofs, self._numbers = proofs, numbers

    def of(
        self, area: str, rows: Mapping[str, str], columns: Mapping[str, str], remarks: Mapping[str, str] | None = None
    ) -> str:
        """Return the table of an area.

        :param rows: by the name that marks have, as people read it; C(columns) the same.
        :param remarks: what is said of a row beside its name.
        """
        mine = [proof for proof in self._proofs if proof.area == area]
        astray = [proof for proof in mine if proof.row not in rows or proof.column not in columns]
        if astray:
            raise SystemExit(f"No such row or column of {area}: {astray}")
        lines = [
            f"| {' | '.join(['', *columns.values()])} |".replace("|  |", "| |", 1),
            "|---" * (len(columns) + 1) + "|",
        ]
        for row, title in rows.items():
            remark = (remarks or {}).get(row)
            name = f"{title} ({remark})" if remark else title
            cells = [self._cell([one for one in mine if (one.row, one.column) == (row, column)]) for column in columns]
            lines.append(f"| {' | '.join([name, *cells])} |")
        return "\n".join(lines) + "\n"

    def _cell(self, proofs: Sequence[Proof]) -> str:
        if not proofs:
            return "unconfirmed"
        texts = []
        for level in (*LEVELS, REFUSED):
            for note in dict.fromkeys(proof.note for proof in proofs if proof.level == level):
                here = [one for one in proofs if (one.level, one.note) == (level, note)]
                mine, by_default = {one.test for one in here}, {one.test for one in here if not one.tier}
                tests = [
                    f"{number}{'' if test in by_default else BY_NAME}"
                    for test, number in self._numbers.items()
                    if test in mine
                ]
                shown = level if level == REFUSED else f"**{level}**"
                texts.append(f"{shown} {', '.join(tests)}" + (f" ({note})" if note else ""))
        return "; ".join(texts)


def main() -> int:
    os.chdir(REPOSITORY)
    wanted = page(collected())
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(wanted, encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") == wanted:
        return 0
    print(
        f"{PAGE.relative_to(REPOSITORY)} is not what the marks of the tests say: run tools/support-matrix.py",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
