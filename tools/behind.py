#!/usr/bin/env python3
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Show which pins and tables of the collection are behind what registries and NVIDIA's published files offer.

    tools/behind.py [--releases FILE] [--advisories FOLDER] [--only WORD]

It asks by the ordinary clients (pip, go, helm where they are installed) and changes nothing. What did not answer is shown with the reason, and is
never taken for up to date. It ends with 1 where something is behind, and with 2 where nothing is but something was not answered.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: Seconds that a client may take for one name.
_TIMEOUT = 60
#: Runs a client and returns what it printed. Raises Unanswered.
Ask = Callable[[Sequence[str]], str]
_VERSION = re.compile(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:\.(\d+))?(?:-\d+)?")


class Unanswered(Exception):
    """Why nobody said what the newest version is."""


@dataclass(frozen=True)
class Row:
    """One pin: where it stands, and the newest version; C(unanswered) says why that is not known."""

    pin: str
    where: str
    version: str
    newest: str = ""
    unanswered: str = ""

    @property
    def state(self) -> str:
        if self.unanswered:
            return f"not answered: {self.unanswered}"
        return "behind" if key(self.newest) > key(self.version) else "newest"


def key(version: str) -> tuple[int, ...]:
    """Return what a released version is sorted by; empty for pre-releases and for what is none."""
    match = _VERSION.fullmatch(version)
    return tuple(int(part or 0) for part in match.groups()) if match else ()


def newest(versions: Iterable[str]) -> str:
    """Return the newest released version. Raises Unanswered: there is none."""
    known = [version for version in versions if key(version)]
    if not known:
        raise Unanswered("no released version was named")
    return max(known, key=key)


def ask(command: Sequence[str]) -> str:
    """Run a client without what the environment says about caches of modules of this checkout."""
    environment = {**os.environ, "LC_ALL": "C", "GOFLAGS": "-mod=mod", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                command, env=environment, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT, check=False
            )
        except FileNotFoundError as error:
            raise Unanswered(f"{command[0]} is not installed") from error
        except subprocess.TimeoutExpired as error:
            raise Unanswered(f"{command[0]} took more than {_TIMEOUT} s") from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["it printed nothing"]
        raise Unanswered(f"{command[0]}: {lines[-1].strip()[:120]}")
    return done.stdout


def of_go(module: str, run: Ask) -> str:
    """Return the newest version of a Go module."""
    return newest(run(["go", "list", "-m", "-versions", module]).split()[1:])


def of_pip(package: str, run: Ask) -> str:
    """Return the newest version of a Python package for this Python."""
    found = re.search(
        r"^Available versions: (.*)$", run([sys.executable, "-m", "pip", "index", "versions", package]), re.M
    )
    return newest(found[1].split(", ") if found else ())


def of_helm(chart: str, repository: str, run: Ask) -> str:
    """Return the newest version of a chart."""
    command = ["helm", "show", "chart"]
    command += [f"{repository}/{chart}"] if repository.startswith("oci://") else [chart, "--repo", repository]
    found = re.search(r"^version: \"?([^\s\"]+)", run(command), re.M)
    return newest([found[1]] if found else ())


def charts(run: Ask) -> Iterator[Row]:
    """The charts that values are rendered for."""
    sys.path.insert(0, str(ROOT / "plugins" / "plugin_utils" / "render"))
    import versions

    where = "plugins/plugin_utils/render/versions.py"
    for chart in versions.CHARTS.values():
        yield _row(
            f"chart {chart.name}", where, chart.version, lambda chart=chart: of_helm(chart.name, chart.repository, run)
        )


def go_modules(run: Ask) -> Iterator[Row]:
    """The programs that the lab builds, and the container toolkit that is installed by default."""
    defaults = (ROOT / "roles/nvidia_toolkit/defaults/main.yml").read_text(encoding="utf-8")
    toolkit = re.search(r"^nvidia_toolkit_version: \"?([\d.]+)", defaults, re.M)
    if toolkit:
        module = "github.com/NVIDIA/nvidia-container-toolkit"
        yield _row("container toolkit", "roles/nvidia_toolkit", toolkit[1], lambda: of_go(module, run))
    for file in sorted((ROOT / "tests/lab/real_tools/modules").glob("*/go.mod")):
        required = re.search(r"^require (\S+) (\S+)$", file.read_text(encoding="utf-8"), re.M)
        if required:
            where, (module, version) = str(file.relative_to(ROOT)), required.groups()
            yield _row(module, where, version, lambda module=module: of_go(module, run))


def packages(run: Ask) -> Iterator[Row]:
    """The tools of the checkout that are pinned to a version; those for the oldest Python are old on purpose."""
    for file in sorted(set((ROOT / "requirements").glob("*.in")) - {ROOT / "requirements/oldest-python.in"}):
        for name, version in re.findall(
            r"^([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?==([\d.]+)", file.read_text(encoding="utf-8"), re.M
        ):
            yield _row(name, str(file.relative_to(ROOT)), version, lambda name=name: of_pip(name, run))


def branches(releases: str) -> Iterator[Row]:
    """The driver branches of the table beside those of NVIDIA's list of releases."""
    where = "plugins/module_utils/_driver/floors.py"
    table = {
        int(branch)
        for branch in re.findall(r"^    (\d{3}): Branch\(", (ROOT / where).read_text(encoding="utf-8"), re.M)
    }
    yield _row("driver branches", where, str(max(table)), lambda: str(_newest_branch(releases)))


def _newest_branch(releases: str) -> int:
    if not releases:
        raise Unanswered("give NVIDIA's releases.json with --releases")
    try:
        document: Mapping[str, Any] = json.loads(Path(releases).read_text(encoding="utf-8"))
        return max(int(branch) for branch in document)
    except (OSError, ValueError, TypeError) as error:
        raise Unanswered(f"{releases}: {error}") from error


def bulletins(advisories: str) -> Iterator[Row]:
    """The newest security bulletin of the driver beside those of a checkout of NVIDIA/product-security."""
    where = "plugins/module_utils/_driver/floors.py"
    known = re.findall(r'^    "(\d{4})",$', (ROOT / where).read_text(encoding="utf-8"), re.M)
    yield _row("security bulletin", where, max(known), lambda: str(_newest_bulletin(advisories)))


def _newest_bulletin(advisories: str) -> int:
    if not advisories:
        raise Unanswered("give a checkout of NVIDIA/product-security with --advisories")
    numbers = []
    for path in sorted(Path(advisories).rglob("*.json")):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise Unanswered(f"{path}: {error}") from error
        if re.search(r"\"Linux\s*\(R\d{3}\)\"", text) and "csaf_security_advisory" in text:
            numbers += [int(path.stem)] if path.stem.isdigit() else []
    if not numbers:
        raise Unanswered(f"{advisories} has no advisory of the driver for Linux")
    return max(numbers)


def _row(pin: str, where: str, version: str, asked: Callable[[], str]) -> Row:
    try:
        return Row(pin, where, version, asked())
    except Unanswered as error:
        return Row(pin, where, version, unanswered=str(error))


def lines(rows: Sequence[Row]) -> list[str]:
    """Return the table for people."""
    cells = [("PIN", "STANDS AT", "NEWEST", "STATE", "WHERE")]
    cells += [(row.pin, row.version, row.newest or "-", row.state, row.where) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells]


def main(arguments: Sequence[str], run: Ask = ask) -> int:
    """Print the table and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--releases", default="", help="NVIDIA's releases.json")
    parser.add_argument("--advisories", default="", help="a checkout of NVIDIA/product-security, or a year of it")
    parser.add_argument("--only", default="", help="pins with this in their name or place")
    given = parser.parse_args(arguments)
    sources = (charts(run), go_modules(run), packages(run), branches(given.releases), bulletins(given.advisories))
    rows = [row for source in sources for row in source if given.only in f"{row.pin} {row.where}"]
    print("\n".join(lines(rows)))
    states = {row.state.partition(":")[0] for row in rows}
    return 1 if "behind" in states else 2 if "not answered" in states else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
