# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Samples as text in Prometheus' exposition format (https://prometheus.io/docs/instrumenting/exposition_formats/). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .metric_table import METRICS, Metric


@dataclass(frozen=True)
class Sample:
    """One value of a metric.

    :param labels: values in the order of the metric's labels; None is written as an empty value, which Prometheus takes for no label.
    """

    metric: Metric
    value: float
    labels: tuple[str | None, ...] = ()


def expose(samples: Sequence[Sample]) -> str:
    """Return the text of C(samples): metrics in the order of the table, each with HELP and TYPE, its samples sorted by their labels.

    Samples with the same labels are summed: what labels name is partly the users', and two values would have the whole file refused.

    :raises ValueError: a sample has another number of labels than its metric.
    """
    lines: list[str] = []
    for metric in METRICS:
        mine = sorted(_lines(metric, [sample for sample in samples if sample.metric is metric]))
        if mine:
            lines += [f"# HELP {metric.name} {_help(metric.help)}", f"# TYPE {metric.name} {metric.kind}", *mine]
    return "".join(f"{line}\n" for line in lines)


def _lines(metric: Metric, samples: Iterable[Sample]) -> list[str]:
    found: dict[str, float] = {}
    for sample in samples:
        if len(sample.labels) != len(metric.labels):
            raise ValueError(f"{metric.name} has the labels {metric.labels}, and a sample {sample.labels}")
        pairs = [f'{name}="{_escaped(value or "")}"' for name, value in zip(metric.labels, sample.labels)]
        series = f"{metric.name}{{{','.join(pairs)}}}" if pairs else metric.name
        found[series] = found.get(series, 0) + sample.value
    return [f"{series} {_number(value)}" for series, value in found.items()]


def _escaped(text: str) -> str:
    # A path that is not UTF-8 has parts that cannot be written.
    shown = text.encode("utf-8", "replace").decode()
    return shown.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
