# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values for a pinned chart: what is in values/*.yml.j2, filled in, merged with what the user adds, and no key that the chart does not read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any

from ...module_utils._formats.documents import read_yaml
from ...module_utils._plan import Refused
from ..lint.chart_values import check, dead_keys
from ..lint.finding import Report, near
from .clusters import DescribedCluster
from .emit import filled, sections
from .versions import CHARTS, OWN_CHART

#: A part of the values: where it comes from, and top-level keys that no other part has.
Part = tuple[str, Mapping[str, Any]]

EXTRA = "gpu_kubernetes_values"


def refuse_unknown_charts(cluster: DescribedCluster) -> None:
    """Refuse values of what is no chart of the tree, which would have no effect, and what are no values."""
    known = [*CHARTS, OWN_CHART]
    for chart, values in cluster.options["values"].items():
        if chart not in known:
            raise Refused(
                f"{EXTRA}['{chart}']", "no tree has such a chart, so it would have no effect", near(str(chart), known)
            )
        if not isinstance(values or {}, Mapping):
            raise Refused(
                f"{EXTRA}['{chart}']", "the values of a chart must be a mapping", "Write KEY: VALUE below it."
            )


def extra_values(cluster: DescribedCluster, chart: str) -> dict[str, Any]:
    """Return what the user adds to the values of a chart (C(gpu_kubernetes_values)); it overrides what the generator says."""
    return dict(cluster.options["values"].get(chart) or {})


def _parts(text: str) -> Iterator[Part]:
    """Yield the parts of filled values, which empty lines set apart: each begins with a comment that says where its keys come from."""
    for block in re.split(r"\n{2,}", text.strip()):
        notes = takewhile(lambda line: line.startswith("# "), block.splitlines())
        yield "\n".join(line[2:] for line in notes), read_yaml(block)


def render_values(cluster: DescribedCluster, chart: str, of: str = "", **given: Any) -> str:
    """Return the text of a values file for the cluster, or for a part of it such as a pool (C(of)); refuse keys that the chart does not read.

    :param given: what the chart's values are filled in with, beside the options of the cluster.
    """
    extra = extra_values(cluster, chart)
    parts = list(_parts(filled(f"values/{chart}.yml.j2", options=cluster.options, **given)))
    all_parts = [
        (note, merged(part, {key: value for key, value in extra.items() if key in part})) for note, part in parts
    ]
    own = {key for _note, part in parts for key in part}
    rest = {key: value for key, value in extra.items() if key not in own}
    if rest:
        all_parts.append((f"From {EXTRA}.", rest))
    for _note, part in all_parts:
        refuse_dead_keys(chart, part, EXTRA)
    where, kept, pinned = ", ".join(filter(None, (cluster.name, of))), cluster.chart(chart), CHARTS[chart].version
    header = f"Rendered by gpufleet.nvidia.render. Cluster {where}.\nValues for the chart {chart} {kept.version} ({kept.repository})."
    if kept.version.lstrip("v") != pinned.lstrip("v"):
        header += f"\nThey are written for {pinned}: a key that {kept.version} does not read has no effect there."
    return sections(header, all_parts)


def refuse_dead_keys(chart: str, values: Mapping[str, Any], thing: str) -> None:
    """Refuse values of the variable C(thing) that the chart would ignore in silence, and those with which what it deploys does not work."""
    for path, others in dead_keys(chart, values):
        reason = f"no template of the chart {chart} {CHARTS[chart].version} reads it, so it would have no effect"
        raise Refused(f"{thing}['{chart}'].{path}", reason, f"It reads {' and '.join(others)}." if others else "")
    report = Report()
    check(chart, "", values, report)
    for finding in report.findings:
        raise Refused(f"{thing}['{chart}'].{finding.path}", finding.message, finding.remedy)


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return C(base) with the values of C(over) in place of its own, mapping by mapping."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        result[key] = merged(below, value) if both else value  # type: ignore[arg-type]
    return result
