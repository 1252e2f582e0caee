#!/usr/bin/env python3
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Print the value keys that the templates of a Helm chart read, for plugins/plugin_utils/lint/chart_keys.yml.

    tools/chart-keys.py path/to/unpacked/chart

A key that stands in values.yaml and is read by no template is dead: it is not printed. Run it when a pinned chart is raised.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

_REFERENCE = re.compile(r"\.Values((?:\.[A-Za-z_][A-Za-z0-9_-]*)+)")
_INDEXED = re.compile(r'index \$?\.?(?:root\.|local\.)?\$?\.Values((?: "[^"]+")+)')


def keys(chart: Path) -> list[str]:
    """Return the paths that the chart's own templates read, without those that a shorter one covers."""
    found: set[str] = set()
    for template in sorted(chart.glob("templates/**/*")):
        if template.suffix not in (".yaml", ".yml", ".tpl", ".txt"):
            continue
        text = template.read_text(encoding="utf-8")
        found |= {match.group(1)[1:] for match in _REFERENCE.finditer(text)}
        found |= {".".join(re.findall(r'"([^"]+)"', match.group(1))) for match in _INDEXED.finditer(text)}
    return sorted(found)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    print(
        textwrap.fill(
            " ".join(keys(Path(sys.argv[1]))),
            118,
            initial_indent="  ",
            subsequent_indent="  ",
            break_on_hyphens=False,
            break_long_words=False,
        )
    )
