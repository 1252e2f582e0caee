# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Objects that carry values of charts, and values that carry those of other charts, opened. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from ...module_utils._formats.documents import read_json
from .chart_values import FORMER, chart_of, charts
from .finding import OF_A_CONFIGURATION, below, group_of, mapping, readable, sequence
from .yaml import load_all


class Part(NamedTuple):
    """An object, or values of a chart, in a file.

    :param file: its path.
    :param place: the name of what the linter says of it.
    :param chart: whose values these are; empty for an object, and where nothing tells.
    :param version: of the chart, where the file says it.
    :param text: of values that are no YAML, in place of a document.
    """

    file: str
    place: str
    document: Mapping[str, Any]
    chart: str = ""
    version: str = ""
    text: str = ""

    @property
    def kind(self) -> str:
        return str(self.document.get("kind", ""))

    def below(self, path: str) -> str:
        """Return the place of what stands in it at a path; of what a file or a ConfigMap holds, this tells which it is."""
        own = self.kind == "ConfigMap" or self.place == f"{self.file}[values]"
        return f"{self.file}[{path}]" if own else f"{self.place[:-1]}.{path}]"


#: Kinds that carry something, by group, and the part of each below which it is.
_ARGO, _FLUX, _K3S, _KUSTOMIZE = "argoproj.io", "helm.toolkit.fluxcd.io", "helm.cattle.io", "kustomize.config.k8s.io"
_CARRIERS = {
    (_ARGO, "Application"): "spec",
    (_ARGO, "ApplicationSet"): "spec.template.spec",
    (_FLUX, "HelmRelease"): "spec",
    (_K3S, "HelmChart"): "spec",
    (_K3S, "HelmChartConfig"): "spec",
    (_KUSTOMIZE, "Kustomization"): "",
}


def is_carrier(document: Mapping[str, Any]) -> bool:
    return (group_of(document), str(document.get("kind"))) in _CARRIERS


#: kustomize knows its file by its name.
_KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "kustomization")


#: A text of JSON, which stays, or what JSON with comments has more than JSON: these, and then a comma before a bracket that closes. Neither pass looks
#: at a character twice: what does not end, goes on to the end.
_TEXT = r'("(?:[^"\\\n]|\\.?)*(?:"|(?=\n)|\Z))'
_COMMENTS = re.compile(_TEXT + r"|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_COMMAS = re.compile(_TEXT + r"|,(?=\s*[]}])", re.DOTALL)


def documents(text: str) -> tuple[str, list[Any]]:
    """Return a text and its documents, changed as L(readable) does where YAML reads it only so. Raises ValueError: it is no JSON, either."""
    try:
        return text, load_all(text)
    except ValueError:
        with suppress(ValueError):
            return text, [read_json(_COMMAS.sub(r"\1", _COMMENTS.sub(r"\1", text)))]
    return readable(text), load_all(readable(text))


def parts_of(file: str, document: Mapping[str, Any]) -> Iterator[Part]:
    """Yield what is in a document of a file, the document itself last."""
    if document.get("kind") == "List" or (str(document.get("kind", "")).endswith("List") and "items" in document):
        for item in sequence(document.get("items")):
            if isinstance(item, Mapping):
                yield from parts_of(file, item)
        return
    if "kind" not in document and ("helmCharts" in document or file.rpartition("/")[2].lower() in _KUSTOMIZATIONS):
        document = {"apiVersion": f"{_KUSTOMIZE}/v1beta1", "kind": "Kustomization", **document}
    if "kind" not in document:
        yield from _values(Part(file, f"{file}[values]", document, chart_of(document) or _named_after(file, document)))
        return
    name = below(document, "metadata", "name")
    place = f"{file}[{document['kind']}{f'/{name}' if name else ''}]"
    for path, values, chart, version in _carried(document):
        chart = str(chart or "").rpartition("/")[2]
        part = Part(file, f"{place[:-1]} {path}]", {}, FORMER.get(chart, chart), str(version or ""))
        if isinstance(values, str):
            try:
                values = next(iter(documents(values)[1]), None) or {}
            except ValueError:
                yield part._replace(text=values)
                continue
        if isinstance(values, Mapping):
            yield from _values(part._replace(document=values, chart=part.chart or chart_of(values)))
    yield Part(file, place, document)


def _named_after(file: str, document: Mapping[str, Any]) -> str:
    """Return the chart after which a file of values is called, if it has a key of it."""
    stem = file.rpartition("/")[2].partition(".")[0]
    for chart, (_version, keys) in charts().items():
        if stem == chart or stem.startswith(f"{chart}-"):
            tops = {key.partition(".")[0] for key in keys}
            return chart if tops & set(document) and not OF_A_CONFIGURATION & set(document) else ""
    return ""


def _values(part: Part) -> Iterator[Part]:
    """Yield values, and those of the charts that they are an umbrella of."""
    own = charts().get(part.chart, ("", frozenset()))[1]
    for chart in charts():
        inner = part.document.get(chart)
        if isinstance(inner, Mapping) and not any(key.partition(".")[0] == chart for key in own):
            yield Part(part.file, part.below(chart), inner, chart)
            part = part._replace(document={key: value for key, value in part.document.items() if key != chart})
    if part.document:
        yield part


def _carried(document: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any, Any]]:
    """Yield the path of values, the values, the chart, and its version."""
    group, kind = group_of(document), document.get("kind")
    path = _CARRIERS.get((group, str(kind)))
    if path is None:
        return
    spec = mapping(below(document, *path.split("."))) if path else document
    if group == _ARGO:
        named = [("source", spec.get("source"))]
        named += [(f"sources[{number}]", one) for number, one in enumerate(sequence(spec.get("sources")))]
        for name, source in named:
            helm = mapping(below(source, "helm"))
            for key in ("values", "valuesObject"):
                yield (
                    f"{path}.{name}.helm.{key}",
                    helm.get(key),
                    below(source, "chart"),
                    below(source, "targetRevision"),
                )
    elif group == _FLUX:
        chart = mapping(below(spec, "chart", "spec"))
        # An object beside it that has the version, and is called as the chart, or anyhow.
        reference = str(below(spec, "chartRef", "name") or "")
        of_chart = reference if FORMER.get(reference, reference) in charts() else chart.get("chart")
        yield "spec.values", spec.get("values"), of_chart, reference or chart.get("version")
    elif group == _K3S:
        for key in ("valuesContent", "values"):
            yield f"spec.{key}", spec.get(key), spec.get("chart"), spec.get("version")
    else:
        for number, one in enumerate(map(mapping, sequence(spec.get("helmCharts")))):
            yield f"helmCharts[{number}].valuesInline", one.get("valuesInline"), one.get("name"), one.get("version")
