# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""YAML as the device plugin's Go code reads it, which is neither YAML 1.2 nor what PyYAML makes of it; and objects that carry values of charts, opened.

The plugin reads its file with C(sigs.k8s.io/yaml) 1.6 over go-yaml 2.4 (C(resolve.go)): the first document only, YAML 1.1 booleans (C(yes),
C(off)), octal C(010), merge keys, the last of two equal keys. This module does the same on PyYAML's nodes and says what the file's author may
not have meant. Infinity and keys that are no text are left out: nobody writes them in a configuration.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Callable, NamedTuple

import yaml

from ...module_utils._formats.documents import read_json, yaml_loader
from .chart_values import FORMER, chart_of, charts
from .decode import LONGEST_NUMBER
from .finding import OF_A_CONFIGURATION, Report, below, group_of, join, mapping, readable, sequence

#: What is told of a path that is read otherwise than it looks: the path, what happens, and a remedy.
_Warn = Callable[[str, str, str], None]

#: A document that says which YAML it is, which libyaml reads and go-yaml refuses unless it is 1.1.
_DIRECTIVE = re.compile(r"^\ufeff?%YAML[ \t]+(?!1\.1\s)", re.MULTILINE)
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"], True),
    **dict.fromkeys(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"], False),
    **dict.fromkeys(["", "~", "null", "Null", "NULL"], None),
}
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_INTEGER = re.compile(
    r"(?P<sign>[-+]?)(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[oO]?(?P<oct>[0-7]+)|0[bB](?P<bin>[01]+)|(?P<dec>0|[1-9][0-9]*))"
)
_BASES = {"hex": 16, "oct": 8, "bin": 2, "dec": 10}
#: What a text with one of these tags has to be; with any other it stays a text.
_TYPES: dict[str, Any] = {"bool": bool, "int": int, "float": (int, float), "null": type(None)}
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


class YamlError(ValueError):
    """The text is invalid YAML for the plugin."""


class OfGo(YamlError):
    """Only what Go programs read YAML with refuses it."""


def load(text: str, report: Report) -> Any:
    """Return the first document of C(text) as plain data, None for an empty one; YamlError is what the plugin would refuse."""
    if _DIRECTIVE.match(text):
        raise OfGo("found incompatible YAML document (the plugin reads YAML 1.1)")
    # Python keeps bytes that are not UTF-8 as characters that cannot be written.
    if half := re.search("[\ud800-\udfff]", text):
        raise YamlError(f"the file is not UTF-8 (at character {half.start()})")
    documents = _values(text, report.warning, first=True)
    value = next(documents, None)
    try:
        more = next(documents, documents) is not documents
    except YamlError:
        # However wrong it is, the plugin never reads it.
        more = True
    if more:
        report.warning(
            "", "only the first document is read: what follows it is ignored", "Keep one document in a file."
        )
    return value


def load_all(text: str) -> list[Any]:
    """Return all documents of C(text), as whatever reads objects and values in Go does; YamlError is what it would refuse."""
    return list(_values(text, lambda *_said: None))


def _values(text: str, warn: _Warn, first: bool = False) -> Iterator[Any]:
    try:
        loader = yaml_loader(text, "BaseLoader", first)
        # Of PyYAML's own, a text without a tag has that of one with !!str.
        documents = type("Loader", (loader,), {"DEFAULT_SCALAR_TAG": ""})(text)
        while documents.check_node():
            yield _value(documents.get_node(), "", warn)
    except (yaml.YAMLError, ValueError) as error:
        kind = OfGo if isinstance(error, OfGo) else YamlError
        raise kind(" ".join(str(error).split()).removeprefix("invalid YAML: ")) from error


def _value(node: Any, path: str, warn: _Warn) -> Any:
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, warn)
    if isinstance(node, yaml.SequenceNode):
        return [_value(child, f"{path}[{index}]", warn) for index, child in enumerate(node.value)]
    # An escape such as \ud800: half a character, of which Python makes a text that cannot be written.
    if any("\ud800" <= letter <= "\udfff" for letter in node.value):
        raise YamlError("found invalid Unicode character escape code")
    if node.tag:
        return _tagged(node.tag.rpartition(":")[2], node.value)
    if node.style:
        return node.value
    value, surprise = _plain(node.value)
    if surprise:
        warn(path, f"{node.value} is read as {surprise}", "Write the number in plain decimal digits.")
    return value


def _tagged(tag: str, text: str) -> Any:
    """Return a scalar with an explicit tag, quoted or not."""
    if tag == "binary":
        return base64.b64decode("".join(text.split()), validate=True).decode(errors="replace")
    wanted = _TYPES.get(tag)
    value = _plain(text)[0] if wanted else text
    if wanted and not (isinstance(value, wanted) and isinstance(value, bool) is (tag == "bool")):
        raise OfGo(f"cannot decode {text} as a !!{tag}")
    return value


def _mapping(node: Any, path: str, warn: _Warn) -> dict[str, Any]:
    result: dict[str, Any] = {}
    own: set[str] = set()
    for key_node, value_node in node.value:
        key = key_node.value
        if not isinstance(key, str):
            raise OfGo("unsupported map key: it is a list or a mapping")
        if key == "<<" and not key_node.style:
            _merge(value_node, path, result, warn)
            continue
        if key in own:
            warn(join(path, key), "the key is given twice: the last one wins, the first is ignored", "Keep one.")
        own.add(key)
        result[key] = _value(value_node, join(path, key), warn)
    return result


def _merge(node: Any, path: str, into: dict[str, Any], warn: _Warn) -> None:
    """Unlike YAML says, keys that were given before a merge are overwritten by it: go-yaml goes from top to bottom."""
    sources = node.value[::-1] if isinstance(node, yaml.SequenceNode) else [node]
    if not all(isinstance(source, yaml.MappingNode) for source in sources):
        raise OfGo("map merge requires map or sequence of maps as the value")
    for source in sources:
        merged = _mapping(source, path, warn)
        for key in sorted(set(into) & set(merged)):
            if into[key] != merged[key]:
                message = "the merge key << stands below this key and overwrites it"
                warn(join(path, key), message, "Put << before the keys that override it.")
        into.update(merged)


def _plain(text: str) -> tuple[str | int | float | bool | None, str]:
    """Return what go-yaml makes of a scalar without quotes, and how that is written where it is not what it looks like."""
    if text in _WORDS:
        return _WORDS[text], ""
    if text[0] not in "+-.0123456789":
        return text, ""
    digits = text if text[0] == "." else text.replace("_", "")
    match = _INTEGER.fullmatch(digits) if len(digits) <= LONGEST_NUMBER else None
    if match:
        group, base = next((group, base) for group, base in _BASES.items() if match[group])
        number = int(match["sign"] + match[group], base)
        if -(2**63) <= number <= (2**63 if match["sign"] else 2**64) - 1:
            return number, "" if _DECIMAL.fullmatch(text) else str(number)
    real = float(digits) if _FLOAT.fullmatch(digits) else math.inf
    return (text, "") if math.isinf(real) else (real, "" if digits == text else repr(real))


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
        yield from _parts_of_values(
            Part(file, f"{file}[values]", document, chart_of(document) or _named_after(file, document))
        )
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
            yield from _parts_of_values(part._replace(document=values, chart=part.chart or chart_of(values)))
    yield Part(file, place, document)


def _named_after(file: str, document: Mapping[str, Any]) -> str:
    """Return the chart after which a file of values is called, if it has a key of it."""
    stem = file.rpartition("/")[2].partition(".")[0]
    for chart, (_version, keys) in charts().items():
        if stem == chart or stem.startswith(f"{chart}-"):
            tops = {key.partition(".")[0] for key in keys}
            return chart if tops & set(document) and not OF_A_CONFIGURATION & set(document) else ""
    return ""


def _parts_of_values(part: Part) -> Iterator[Part]:
    """Yield values, and those of the charts that they are an umbrella of."""
    own = charts().get(part.chart, ("", frozenset()))[1]
    for chart in charts():
        inner = part.document.get(chart)
        if isinstance(inner, Mapping) and not any(key.partition(".")[0] == chart for key in own):
            yield Part(part.file, part.below(chart), inner, chart)
            part = part._replace(document={key: value for key, value in part.document.items() if key != chart})
    if part.document:
        yield part


def _nested(given: Mapping[Any, Any]) -> dict[str, Any]:
    """Return values that are given one by one, by a path as of C(helm --set); of what is in a list nothing is known."""
    found: dict[str, Any] = {}
    for path, value in given.items():
        place, bracket, _rest = str(path).partition("[")
        *above, last = (name.replace("\\.", ".") for name in re.split(r"(?<!\\)[.]", place))
        inside = found
        for name in above:
            inside = inside.setdefault(name, {}) if isinstance(inside.get(name, {}), dict) else {}
        in_list = bracket or str(value).startswith("{")
        inside[last] = [] if in_list else {"true": True, "false": False}.get(str(value), value)
    return found


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
            helm, named_chart = (
                mapping(below(source, "helm")),
                (below(source, "chart"), below(source, "targetRevision")),
            )
            for key in ("values", "valuesObject"):
                yield f"{path}.{name}.helm.{key}", helm.get(key), *named_chart
            if not (helm.get("values") or helm.get("valuesObject")):
                given = {str(below(one, "name")): below(one, "value") for one in sequence(helm.get("parameters"))}
                yield f"{path}.{name}.helm.parameters", _nested(given), *named_chart
    elif group == _FLUX:
        chart = mapping(below(spec, "chart", "spec"))
        # An object beside it that has the version, and is called as the chart, or anyhow.
        reference = str(below(spec, "chartRef", "name") or "")
        of_chart = reference if FORMER.get(reference, reference) in charts() else chart.get("chart")
        yield "spec.values", spec.get("values"), of_chart, reference or chart.get("version")
    elif group == _K3S:
        values = [(f"spec.{key}", spec[key]) for key in ("valuesContent", "values") if spec.get(key)]
        for where, one in values or [("spec.set", _nested(mapping(spec.get("set"))))]:
            yield where, one, spec.get("chart"), spec.get("version")
    else:
        for number, one in enumerate(map(mapping, sequence(spec.get("helmCharts")))):
            yield f"helmCharts[{number}].valuesInline", one.get("valuesInline"), one.get("name"), one.get("version")
