#!/usr/bin/env python3
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write the README of a chart from its values.yaml: each key with the comment above it and its default; and the list of files/host-paths.yaml.

tools/chart-readme.py charts/gpufleet-nvidia            write README.md
tools/chart-readme.py --check charts/gpufleet-nvidia    fail when it is not what would be written
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml


def readme(chart: Path) -> str:
    """Return the text of the README."""
    about = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
    intro = (chart / "README.intro.md").read_text(encoding="utf-8").strip()
    paths = yaml.safe_load((chart / "files" / "host-paths.yaml").read_text(encoding="utf-8"))
    guarded = "".join(f"| `{path}` | {reason} |\n" for path, reason in paths["guarded"].items())
    intro = intro.replace("{guarded}", f"| path | what is there |\n|---|---|\n{guarded}".strip())
    intro = intro.replace("{harmless}", ", ".join(f"`{path}`" for path in paths["harmless"]))
    # A bar ends a cell of the table, even between backquotes.
    cells = (tuple(cell.replace("|", "\\|") for cell in row) for row in rows_of(chart / "values.yaml"))
    rows = "".join(f"| `{path}` | `{default}` | {note} |\n" for path, default, note in cells)
    head = f"# {about['name']} {about['version']}\n\n{about['description'].strip()}.\n\n{intro}\n\n"
    return f"{head}## Values\n\n| value | default | meaning |\n|---|---|---|\n{rows}"


def rows_of(path: Path) -> list[tuple[str, str, str]]:
    """Return path, default and comment of every key that is no section of others."""
    text = path.read_text(encoding="utf-8")
    values = yaml.safe_load(text)
    rows: list[tuple[str, str, str]] = []
    parents: list[tuple[int, str]] = []
    notes: list[str] = []
    inside = -1
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        stripped = line.strip()
        if not stripped or stripped == "---":
            notes = []
            continue
        if inside >= 0 and indent > inside:
            continue
        inside = -1
        if stripped.startswith("#"):
            notes.append(stripped.lstrip("# "))
            continue
        parents = [item for item in parents if item[0] < indent]
        key = stripped.partition(":")[0]
        names = [name for _indent, name in parents] + [key]
        value: Any = values
        for name in names:
            value = value[name]
        if notes or not isinstance(value, dict):
            rows.append((".".join(names), json.dumps(value), " ".join(notes)))
            inside = indent
        else:
            parents.append((indent, key))
        notes = []
    return rows


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--check"]
    if len(arguments) != 1:
        raise SystemExit(__doc__)
    folder = Path(arguments[0])
    wanted = readme(folder)
    target = folder / "README.md"
    if "--check" not in sys.argv:
        target.write_text(wanted, encoding="utf-8")
    elif not target.exists() or target.read_text(encoding="utf-8") != wanted:
        raise SystemExit(f"{target} is not what values.yaml says: run tools/chart-readme.py {folder}")
