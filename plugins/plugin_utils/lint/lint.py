# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The linter of device plugin configuration files: what the plugin 0.20 refuses, and what it accepts and ignores; and of
claims, objects of the GPU Operator, HAMi's and mig-parted's configuration, values of charts and pods that have to see the driver, also inside other files.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Callable, Optional

from ...module_utils._facts_view import Facts
from ...module_utils._versions import numbers
from . import chart_values, dra_claims, driver_pods, hami, node, object_fields, operator_objects, rules, together, yaml
from .decode import fold
from .finding import (
    ERROR,
    MOST,
    OF_A_CONFIGURATION,
    Finding,
    Report,
    TooManyFindings,
    below,
    closest,
    is_placeholder,
    mapping,
    readable,
    sequence,
)
from .plugin_fields import CONFIGURATION, FLAGS, effective
from .plugin_fields import PLUGIN as PLUGIN_FLAGS
from .yaml import Part, documents, is_carrier, parts_of


@dataclass(frozen=True)
class FileVerdict:
    """What the linter says of a file: errors first, then the others, or the kind of an object of which it knows nothing.

    :param effective: the configuration as the plugin would print it, defaults filled in; None when it refuses the file, or is given values later.
    """

    findings: tuple[Finding, ...]
    effective: Mapping[str, Any] | None
    not_checked: str = ""

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.level == "error")

    def as_dict(self) -> dict[str, Any]:
        return {
            "findings": [asdict(finding) for finding in self.findings],
            "effective": dict(self.effective) if self.effective is not None else None,
            **({"not_checked": self.not_checked} if self.not_checked else {}),
        }


#: What reports what is wrong with something, and returns the configuration as the device plugin prints it, if it is one that it accepts.
_Check = Callable[[Report], Optional[Mapping[str, Any]]]


def lint(text: str, facts: Mapping[str, Any] | None = None) -> FileVerdict:
    """Check the text of one configuration or object; what is none that the linter knows is taken for the device plugin's configuration.

    :param text: the file.
    :param facts: of the node on which it will be used, as M(gpufleet.nvidia.gpu_info) returns them; what depends on a node
        (its resources, MIG, the limit of MPS on old GPUs) is checked only with them.
    """
    return _verdict(partial(_text, text, (), None), node.facts_of(facts))


def _verdict(check: _Check, host: Facts) -> FileVerdict:
    report = Report(host, node.LintedNode(host) if host.gpus is not None else None)
    try:
        used = check(report)
    except TooManyFindings:
        message = f"it has more than {MOST} findings: the rest was not checked"
        remedy = "Correct these first, if this is a configuration of the device plugin."
        report.findings.insert(0, Finding(ERROR, "", message, remedy))
        used = None
    return FileVerdict(ordered(report.findings), used)


def _text(text: str, started_with: Sequence[str], strategy: str | None, report: Report) -> Mapping[str, Any] | None:
    """Check a text. C(started_with), C(strategy): device list strategies and MIG strategy that the plugin is started with, which beat those of the text."""
    try:
        document = _loaded(text, report)
    except yaml.YamlError as error:
        if is_placeholder(text):
            report.note("", "it is a template, which is not YAML before it is filled in: it was not checked")
        else:
            _invalid(error, True, report)
        return None
    if document is None:
        report.warning(
            "", "the file is empty: the plugin runs with its defaults and shares nothing", "Write at least version: v1."
        )
        return effective({})
    if not isinstance(document, dict):
        report.error("", "the file is not a mapping of fields", "Write version: v1 and the sections flags and sharing.")
        return None
    if hami.is_hami(document):
        hami.check(document, text, started_with, report)
        return None
    check = _check_of(document)
    if check is not None:
        return check(report)
    if _is_object(document):
        report.warning(
            "kind",
            f"this is a Kubernetes object of kind {document['kind']}, not a configuration file: the plugin would ignore all of it",
            "Check the text under data.<name> of a ConfigMap, or under config.map.<name> of Helm values.",
        )
    config = _accepted(document, report, strategy)
    if config is None:
        return None
    # From here on the plugin has read the file; what follows goes wrong later, in the daemon or on the node.
    rules.mps_daemon(config, report)
    node.check(config, report, started_with)
    return None if report.unknown else effective(config)


def _loaded(text: str, report: Report) -> Any:
    try:
        return yaml.load(text, report)
    except yaml.YamlError:
        if readable(text) == text:
            raise
        return yaml.load(readable(text), report)


def _check_of(
    document: Mapping[str, Any],
    others: Sequence[Mapping[str, Any]] = (),
    chart: str = "",
    version: str = "",
    is_patch: bool = True,
) -> _Check | None:
    """Return what checks an object, values of a chart or a file of mig-parted; None of what the linter does not know.

    :param others: further objects of the GPU Operator for the same cluster.
    :param chart: whose values these are, and its version where it is known.
    :param is_patch: whether an object may lack what is required.
    """
    if dra_claims.is_claim(document):
        return partial(dra_claims.check, document)
    if object_fields.definition_of(document):
        return partial(_object, document, others, is_patch)
    if rules.is_layouts(document):
        return partial(rules.check, document)
    if chart in (chart_values.OWN, *chart_values.charts()) or any(driver_pods.pods(document)):
        return partial(_values, document, chart, version)
    return None


def _object(document: Mapping[str, Any], others: Sequence[Mapping[str, Any]], is_patch: bool, report: Report) -> None:
    object_fields.check(document, is_patch, report)
    if operator_objects.is_operator(document):
        operator_objects.check(document, others, report)


def _values(document: Mapping[str, Any], chart: str, version: str, report: Report) -> None:
    if chart in chart_values.charts():
        chart_values.check(chart, version, document, report)
        if chart == chart_values.PLUGIN:
            rules.values(document, report)
        elif chart == chart_values.OPERATOR and numbers(version) <= numbers(chart_values.charts()[chart][0]):
            fields = object_fields.known_kinds()[operator_objects.POLICY].fields
            object_fields.check_fields(document, fields, "", report)
    driver_pods.check(document, chart, report)


def _accepted(document: Any, report: Report, strategy: str | None = None) -> Mapping[str, Any] | None:
    """Return the device plugin's configuration as it is decoded, or None where the plugin refuses it."""
    config: Mapping[str, Any] = CONFIGURATION(document, "", report)
    if strategy:
        config = {**config, "flags": {**(config.get("flags") or {}), "migStrategy": strategy}}
    version = config.get("version")
    if isinstance(version, str) and version not in ("", "v1"):
        report.error("version", f"unknown version: {version}", "Write v1.")
    rules.flags(config.get("flags") or {}, report)
    rules.imex(config.get("imex") or {}, report)
    rules.sharing(config, report)
    return None if report.refused else config


def decoded(text: str, strategy: str | None = None) -> Mapping[str, Any]:
    """Return a configuration of the device plugin as the plugin decodes it, without defaults.

    :param strategy: the MIG strategy that its environment or its arguments give it, which beats the file's.
    :raises ValueError: the plugin does not start with it, and why.
    """
    report = Report(filled_in=True)
    try:
        config = _accepted(yaml.load(text, report), report, strategy)
    except yaml.YamlError as error:
        raise ValueError(f"invalid YAML: {error}") from error
    except TooManyFindings:
        raise ValueError(f"it has more than {MOST} findings") from None
    if config is None:
        first = ordered(report.findings)[0]
        raise ValueError(": ".join(filter(None, (first.path, first.message))))
    return config


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return errors first, and else the order in which they were found."""
    return tuple(sorted(findings, key=lambda finding: finding.level != ERROR))


_STRATEGY = "DEVICE_LIST_STRATEGY"


def lint_files(texts: Mapping[str, str], facts: Mapping[str, Any] | None = None) -> dict[str, FileVerdict]:
    """Return what the linter says of each configuration and object in files, C(texts) by path, by a name that begins with the file's, and of all that are
    in one folder, or in one C(clusters/NAME), together. Raises Refused: the facts do not fit.
    """
    host = node.facts_of(facts)
    verdicts: dict[str, FileVerdict] = {}
    files = {name: _parts(name, text) for name, text in texts.items()}
    parts = [part for _text, found, _wrong in files.values() for part in found]
    patches = together.patches_of(parts)
    for name, (text, found, wrong) in files.items():
        for place, check in _checks(name, text, found, wrong, together.is_patch(name, patches)).items():
            verdicts[place] = FileVerdict((), None, check) if isinstance(check, str) else _verdict(check, host)
    for cluster in together.by_cluster(parts):
        for place, report in together.check(cluster, patches):
            there = verdicts.get(place, FileVerdict((), None))
            verdicts[place] = replace(there, findings=ordered((*there.findings, *report.findings)))
    return verdicts


def _parts(name: str, text: str) -> tuple[str, list[Part], ValueError | None]:
    """Return a text as YAML reads it, the objects and values in it, and why it is no YAML, if it is none."""
    try:
        text, objects = documents(text)
    except ValueError as error:
        return text, [], error
    found: dict[str, Part] = {}
    numbers: Counter[str] = Counter()
    for part in (part for one in objects if isinstance(one, Mapping) for part in parts_of(name, one)):
        place = part.place
        # Objects of one file may have the same kind and name, in different namespaces.
        while place in found:
            numbers[part.place] += 1
            place = f"{part.place[:-1]} {numbers[part.place] + 1}]"
        found[place] = part._replace(place=place)
    return text, list(found.values()), None


def _checks(
    name: str, text: str, parts: Sequence[Part], wrong: ValueError | None, is_patch: bool
) -> dict[str, _Check | str]:
    """Return what checks each configuration, object and values of a file, by a name that says where it is, or the kind of what is not checked."""
    beside = [one.document for one in parts if one.kind == "DaemonSet" or operator_objects.is_operator(one.document)]
    found: dict[str, _Check | str] = {}
    for part in parts:
        for place, check in _of_part(name, text if part is parts[0] else "", part, beside, is_patch):
            if not (isinstance(check, str) and place in found):
                # Objects of one file may have the same keys.
                place = place if place not in found else f"{part.place[:-1]} {place.partition('[')[2]}"
                found[place] = check
    if found or parts:
        return found
    kind = "template" if is_placeholder(text) else "a file without kind"
    if kind != "template" and _KNOWN.search(text):
        return {name: partial(_text, text, (), None)}
    if kind != "template" and wrong and name.lower().endswith((".yaml", ".yml", ".json")):
        return {name: partial(_invalid, wrong, False)}
    return {f"{name}[{kind}]": kind}


def _invalid(error: ValueError, known: bool, report: Report) -> None:
    """Say why a file cannot be read. C(known): whether it is one that Go programs read."""
    of_go = isinstance(error, yaml.OfGo)
    if of_go and not known:
        report.note("", f"programs in Go could not read it: {error}")
    else:
        remedy = "Save it as UTF-8." if str(error).startswith("the file is not UTF-8") else "Correct the syntax."
        report.error("", f"{'YAML that Go refuses' if of_go else 'invalid YAML'}: {error}", remedy)


def _of_part(
    name: str, text: str, part: Part, beside: Sequence[Mapping[str, Any]], is_patch: bool
) -> Iterator[tuple[str, _Check | str]]:
    """Yield what checks a part of a file. C(text): that of the file, if it begins with the part; C(beside): operators' objects and DaemonSets of the file."""
    document = part.document
    if part.text:
        yield part.place, "template" if is_placeholder(part.text) else partial(_text, part.text, (), None)
    elif not part.chart and not _is_object(document) and _is_configuration(document):
        place = name if text else f"{name}[configuration]"
        yield place, partial(_text, text or json.dumps(document), (), None)
    else:
        others = tuple(one for one in beside if one is not document and operator_objects.is_operator(one))
        check = _check_of(document, others, part.chart, part.version, is_patch)
        readers = [document, *(one for one in beside if _mounts(one, document))]
        started_with, inside = next(filter(None, map(_started_with, readers)), ()), list(_inside(part))
        if check or (started_with and not inside):
            yield part.place, partial(_both, check, () if inside else started_with)
        elif not (inside or is_carrier(document) or part.kind in together.KNOWN):
            values = f"values of {part.chart or 'another chart'}"
            kind = part.kind or ("a file without kind" if part.place == f"{name}[values]" else values)
            yield f"{name}[{kind}]", kind
        # The charts of the plugin and of the operator.
        given = document.get("migStrategy") or below(document, "mig", "strategy")
        strategy = given if part.chart and isinstance(given, str) else None
        for path, inner in inside:
            yield part.below(path), partial(_text, inner, started_with, strategy)


def _both(check: _Check | None, started_with: Sequence[str], report: Report) -> None:
    if check is not None:
        check(report)
    if started_with:
        node.check({}, report, started_with)


#: What a text says that is no YAML, if it was to be something that the linter knows; of what is not UTF-8, or empty, nobody can say.
_KNOWN = re.compile(
    r"(?:^|[{,])\s*['\"]?(?:(?:sharing|flags|mig-configs|nodeconfig|migStrategy|timeSlicing)['\"]?\s*:"
    r"|kind['\"]?\s*:\s*['\"]?(?:NVIDIADriver|ResourceClaim|DeviceClass))|^apiVersion: nvidia\.com/"
    r"|[\ud800-\udfff]|\A(?:\s|#.*$|---)*\Z",
    re.MULTILINE,
)
_FIELDS = {"version", "flags", "resources", "sharing", "imex"}
#: Fields below these: in a file whose own names are wrong, they tell what it was to be.
_INNER = {fold(name) for name in (*FLAGS, *PLUGIN_FLAGS, "plugin", "gfd", "mps", "timeSlicing")}
#: Files of mig-manager and of the vGPU device manager, whose version is v1, too.
_OF_OTHERS = {"hooks", "systemd-services", "vgpu-configs"}


def _is_object(document: Mapping[str, Any]) -> bool:
    return "kind" in document and "apiVersion" in document


def _is_configuration(document: Mapping[str, Any]) -> bool:
    """Return whether a file, or a text in a ConfigMap, is a configuration of the device plugin, of HAMi or of mig-parted."""
    if rules.is_layouts(document) or hami.is_hami(document):
        return True
    names = {fold(str(name)): mapping(value) for name, value in document.items()}
    if {"flags", "sharing", "imex"} & set(names) or {"gpus", "mig"} & set(names.get("resources", {})):
        return True
    if "version" in names and set(names) <= _FIELDS:
        return True
    if re.fullmatch("v[0-9]+", str(document.get("version"))) and not _OF_OTHERS & set(names):
        return True
    # Sections and flags at the top, unless the plugin's chart reads them there; others have a field plugin as well.
    of_others = set() if _INNER & {fold(str(inner)) for inner in names.get("plugin", {})} else {"plugin"}
    at_top = {str(name): value for name, value in document.items() if fold(str(name)) in _INNER - of_others}
    if not chart_values.chart_of(document) and any(chart_values.dead_keys(chart_values.PLUGIN, at_top)):
        return True
    slips = [name for name in names if closest(name, ("flags", "sharing"), 0.75)]
    inside = {fold(str(inner)) for name in slips for inner in names[name]}
    return bool(slips) and (set(names) <= {*_FIELDS, *slips} or bool(_INNER & inside))


def _is_known(text: str) -> bool:
    try:
        document = next(iter(documents(text)[1]), None)
    except ValueError:
        return bool(_KNOWN.search(text))
    return isinstance(document, Mapping) and not _is_object(document) and _is_configuration(document)


def _started_with(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the strategies that values of the plugin's chart, of HAMi or of the GPU Operator, or a DaemonSet, start the plugin with."""
    if OF_A_CONFIGURATION & set(document):
        return ()
    containers = below(document, "spec", "template", "spec", "containers")
    said: Any = _environment(below(document, "devicePlugin", "env"))
    for container in sequence(containers) if document.get("kind") == "DaemonSet" else ():
        said = said or _environment(below(container, "env"))
    said = document.get("deviceListStrategy") or below(document, "devicePlugin", "deviceListStrategy") or said
    if not said and isinstance(document.get("devicePlugin"), Mapping) and below(document, "cdi", "enabled") is True:
        # What the GPU Operator gives its plugin then.
        return ("cdi-annotations", "cdi-cri")
    parts = said.split(",") if isinstance(said, str) else said if isinstance(said, list) else ()
    return tuple(part.strip() for part in map(str, parts) if part.strip())


def _mounts(document: Mapping[str, Any], config_map: Mapping[str, Any]) -> bool:
    """Return whether the pods of an object, a DaemonSet, have a ConfigMap as a volume."""
    name = below(config_map, "metadata", "name") if config_map.get("kind") == "ConfigMap" else None
    volumes = below(document, "spec", "template", "spec", "volumes")
    return name is not None and any(below(one, "configMap", "name") == name for one in sequence(volumes))


def _environment(entries: Any) -> Any:
    return next(
        (one["value"] for one in map(mapping, sequence(entries)) if one.get("name") == _STRATEGY and "value" in one),
        None,
    )


#: Where values of charts have texts that are configurations.
_PLACES = ("config.map", "devicePlugin.config.data", "migManager.config.data")
#: Where HAMi's chart has one each; left empty, the chart has its own.
_OF_HAMI = (("devicePlugin.nodeConfiguration", "config"), ("device-config", "content"))


def _inside(part: Part) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each configuration in a ConfigMap, or in values."""
    document = part.document
    if part.kind:
        data = {"data": document.get("data")} if part.kind == "ConfigMap" else {}
        known = _is_known
    else:
        data = {path: below(document, *path.split(".")) for path in _PLACES}
        for path, key in _OF_HAMI:
            text = below(document, *path.split("."), key)
            data[path] = {key: text} if isinstance(text, str) and text.strip() else {}
        if part.chart == chart_values.OWN:
            data.update({f"configMaps.{name}": one for name, one in mapping(document.get("configMaps")).items()})
        known = bool  # type: ignore[assignment]
    for path, texts in data.items():
        for key, inner in mapping(texts).items():
            if isinstance(inner, str) and (known(inner) or path == "config.map"):
                yield f"{path}.{key}", inner
