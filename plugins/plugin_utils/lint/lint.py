# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The linter of device plugin configuration files: what the plugin 0.20 refuses, and what it accepts and ignores; and of
claims, objects of the GPU Operator, HAMi's and mig-parted's configuration, values of charts and pods that have to see the driver, also inside other files.

An I(error) is what the plugin, gpu-feature-discovery or the MPS daemon does not start with. A I(warning) is what they accept and
ignore, or understand otherwise than it looks. A file without findings does what it says.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...module_utils._formats.documents import read_yaml_documents
from . import chart_values, dra_claims, driver_pods, hami, mig_layouts, node, operator_objects, rules, together, yaml
from .carriers import Part, is_carrier, parts_of
from .decode import fold
from .finding import ERROR, MOST, OF_A_CONFIGURATION, WARNING, Finding, Report, TooManyFindings, below, closest, mapping
from .plugin_fields import CONFIGURATION, FLAGS, effective
from .plugin_fields import PLUGIN as PLUGIN_FLAGS


@dataclass(frozen=True)
class FileVerdict:
    """What the linter says of a file: errors first, then the others, or the kind of an object of which it knows nothing.

    :param effective: the configuration as the plugin would print it, defaults filled in; None when it refuses the file.
    """

    findings: tuple[Finding, ...]
    effective: Mapping[str, Any] | None
    not_checked: str = ""

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.level == "error")

    def as_dict(self) -> dict[str, Any]:
        return {
            "findings": [finding.as_dict() for finding in self.findings],
            "effective": dict(self.effective) if self.effective is not None else None,
            **({"not_checked": self.not_checked} if self.not_checked else {}),
        }


class Configuration(NamedTuple):
    """A configuration, an object or values of a chart, and where it was found.

    :param started_with: device list strategies that the plugin is started with, which beat those of its file; empty where the file decides.
    :param others: further objects of the GPU Operator in the file, if this is one.
    :param chart: whose values these are, and C(version) of it where the file says it.
    :param not_checked: the kind of an object of which the linter knows nothing.
    """

    name: str
    text: str
    started_with: tuple[str, ...] = ()
    others: tuple[Mapping[str, Any], ...] = ()
    chart: str = ""
    version: str = ""
    not_checked: str = ""


def lint(
    text: str,
    facts: Mapping[str, Any] | None = None,
    started_with: Sequence[str] = (),
    others: Sequence[Mapping[str, Any]] = (),
    chart: tuple[str, str] = ("", ""),
) -> FileVerdict:
    """Check the text of one configuration, object or values of a chart; what is none that the linter knows is taken for the device plugin's configuration.

    :param text: the file.
    :param facts: of the node on which it will be used, as M(gpufleet.nvidia.gpu_info) returns them; what depends on a node
        (its resources, MIG, the limit of MPS on old GPUs) is checked only with them.
    :param started_with: device list strategies that the plugin is started with, which beat those of the file.
    :param others: further objects of the GPU Operator for the same cluster.
    :param chart: whose values these are, and its version where it is known.
    """
    report = Report(mapping(mapping(facts).get("gpu", facts)), node.node_of(facts))
    try:
        used = _effective(text, started_with, others, chart, report)
    except TooManyFindings:
        message = f"it has more than {MOST} findings: the rest was not checked"
        report.findings.insert(
            0, Finding(ERROR, "", message, "Correct these first, if this is a configuration of the device plugin.")
        )
        used = None
    return FileVerdict(ordered(report.findings), used)


def _effective(
    text: str,
    started_with: Sequence[str],
    others: Sequence[Mapping[str, Any]],
    chart: tuple[str, str],
    report: Report,
) -> Mapping[str, Any] | None:
    """Report what is found, and return the configuration as the plugin prints it; None where it refuses the file, or this is none."""
    try:
        # Python keeps bytes that are not UTF-8 as characters that cannot be written.
        text.encode()
        document = yaml.load(text, report)
    except UnicodeEncodeError as error:
        report.error("", f"the file is not UTF-8 (at character {error.start})", "Save it as UTF-8.")
        return None
    except yaml.YamlError as error:
        report.error("", f"invalid YAML: {error}", "Correct the syntax.")
        return None
    if document is None:
        report.warning(
            "", "the file is empty: the plugin runs with its defaults and shares nothing", "Write at least version: v1."
        )
        return effective({})
    if not isinstance(document, dict):
        report.error("", "the file is not a mapping of fields", "Write version: v1 and the sections flags and sharing.")
        return None
    if chart[0] or driver_pods.has_pods(document):
        if chart[0]:
            chart_values.check(*chart, document, report)
        driver_pods.check(document, chart[0], report)
        if started_with:
            node.check({}, report, started_with)
        return None
    if dra_claims.is_claim(document):
        dra_claims.check(document, report)
        return None
    if operator_objects.is_operator(document):
        operator_objects.check(document, report, others)
        return None
    if hami.is_hami(document):
        hami.check(document, text, report)
        return None
    if mig_layouts.is_layouts(document):
        mig_layouts.check(document, report)
        return None
    if isinstance(document.get("kind"), str) and "apiVersion" in document:
        report.warning(
            "kind",
            f"this is a Kubernetes object of kind {document['kind']}, not a configuration file: the plugin would ignore all of it",
            "Check the text under data.<name> of a ConfigMap, or under config.map.<name> of Helm values.",
        )
    config = _accepted(document, report)
    if config is None:
        return None
    # From here on the plugin has read the file; what follows goes wrong later, in the daemon or on the node.
    rules.mps_daemon(config, report)
    node.check(config, report, started_with)
    return effective(config)


def _accepted(document: Mapping[str, Any], report: Report, strategy: str | None = None) -> Mapping[str, Any] | None:
    """Return the device plugin's configuration as it is decoded, or None where the plugin refuses it."""
    config: Mapping[str, Any] = CONFIGURATION(document, "", report)
    if strategy:
        config = {**config, "flags": {**(config.get("flags") or {}), "migStrategy": strategy}}
    version = config.get("version")
    if isinstance(version, str) and version not in ("", "v1"):
        report.error("version", f"unknown version: {version}", "Write v1.")
    if not report.refused:
        rules.flags(config.get("flags") or {}, report)
        rules.imex(config.get("imex") or {}, report)
        rules.sharing(config, report)
    return None if report.refused else config


def decoded(text: str, strategy: str | None = None) -> Mapping[str, Any]:
    """Return a configuration of the device plugin as the plugin decodes it, without defaults.

    :param strategy: the MIG strategy that its environment or its arguments give it, which beats the file's.

    :raises ValueError: the plugin does not start with it, and why.
    """
    report = Report()
    try:
        text.encode()
        document = yaml.load(text, report)
        config = (
            _accepted({} if document is None else document, report, strategy)
            if isinstance(document, (dict, type(None)))
            else None
        )
    except (UnicodeEncodeError, yaml.YamlError) as error:
        raise ValueError(f"invalid YAML: {error}") from error
    except TooManyFindings:
        raise ValueError(f"it has more than {MOST} findings") from None
    if config is None:
        first = next((one for one in report.findings if one.level != WARNING), None)
        raise ValueError(f"{first.path}: {first.message}" if first else "it is not a mapping of fields")
    return config


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return errors first, and else the order in which they were found."""
    return tuple(sorted(findings, key=lambda finding: finding.level != ERROR))


_STRATEGY = "DEVICE_LIST_STRATEGY"


def lint_files(texts: Mapping[str, str], facts: Mapping[str, Any] | None = None) -> dict[str, FileVerdict]:
    """Return what the linter says of each configuration and object in files, C(texts) by path, by a name that begins with the file's, and of all that are
    in one folder, or in one C(clusters/NAME), together.
    """
    verdicts: dict[str, FileVerdict] = {}
    parts: list[Part] = []
    for name, text in texts.items():
        found = _parts(name, text)
        for one in _taken_apart(name, text, found):
            if one.not_checked:
                verdicts[one.name] = FileVerdict((), None, one.not_checked)
            else:
                verdicts[one.name] = lint(one.text, facts, one.started_with, one.others, (one.chart, one.version))
        parts += found
    patches = together.patches_of(parts)
    for cluster in together.by_cluster(parts):
        for place, report in together.check(cluster, patches):
            there = verdicts.get(place, FileVerdict((), None))
            verdicts[place] = replace(there, findings=ordered((*there.findings, *report.findings)))
    return verdicts


def configurations(name: str, text: str) -> list[Configuration]:
    """Return what of the file C(name) is checked, and what is not, each with a name that says where it is; the file itself if it cannot be read.

    Values of a chart and DaemonSets that name a device list strategy, and no configuration, count as an empty one.
    """
    return _taken_apart(name, text, _parts(name, text))


def _parts(name: str, text: str) -> list[Part]:
    """Return the objects and values in a file; nothing where it is no YAML, which L(lint) says."""
    try:
        documents = read_yaml_documents(text)
    except ValueError:
        return []
    found: dict[str, Part] = {}
    numbers: Counter[str] = Counter()
    for part in (part for one in documents if isinstance(one, Mapping) for part in parts_of(name, one)):
        place = part.place
        # Objects of one file may have the same kind and name, in different namespaces.
        while place in found:
            numbers[part.place] += 1
            place = f"{part.place[:-1]} {numbers[part.place] + 1}]"
        found[place] = part._replace(place=place)
    return list(found.values())


def _taken_apart(name: str, text: str, parts: Sequence[Part]) -> list[Configuration]:
    operators = [part.document for part in parts if operator_objects.is_operator(part.document)]
    found: dict[str, Configuration] = {}
    for part in parts:
        for one in _of_part(name, text, part, parts, operators):
            if one.not_checked and one.name in found:
                continue
            # Objects of one file may have the same keys.
            place = one.name if one.name not in found else f"{part.place[:-1]} {one.name.partition('[')[2]}"
            found[place] = one._replace(name=place)
    if not found and not parts and not _KNOWN.search(text) and ("{{" in text or _is_other(text)):
        kind = "template" if "{{" in text else "a file without kind"
        return [Configuration(f"{name}[{kind}]", "", not_checked=kind)]
    return list(found.values()) if found or parts else [Configuration(name, text)]


def _is_other(text: str) -> bool:
    """Return whether a text that PyYAML makes nothing of, such as one with tags of others, or JSON with comments, is no configuration."""
    try:
        document = yaml.load(text, Report())
    except (yaml.YamlError, TooManyFindings, ValueError):
        return text.lstrip().startswith("{")
    return document is not None and not (isinstance(document, dict) and _is_configuration(document))


def _of_part(
    name: str, text: str, part: Part, parts: Sequence[Part], operators: Sequence[Mapping[str, Any]]
) -> Iterator[Configuration]:
    document = part.document
    if part.text:
        yield Configuration(part.place, part.text, not_checked="template" if "{{" in part.text else "")
        return
    if operator_objects.is_operator(document):
        others = tuple(other for other in operators if other is not document)
        yield Configuration(part.place, yaml.dump(document), others=others)
        return
    if dra_claims.is_claim(document):
        yield Configuration(part.place, yaml.dump(document))
        return
    if not part.chart and not _is_object(document) and _is_configuration(document):
        first = part is parts[0]
        yield Configuration(name, text) if first else Configuration(f"{name}[configuration]", yaml.dump(document))
        return
    started_with, inside = _started_with(document), list(_inside(part))
    pods = driver_pods.has_pods(document, part.chart)
    if part.chart or pods:
        yield Configuration(
            part.place, yaml.dump(document), () if inside else started_with, chart=part.chart, version=part.version
        )
    elif started_with and not inside:
        yield Configuration(f"{name}[{part.kind or 'values'}]", "version: v1\n", started_with)
        return
    for path, inner in inside:
        yield Configuration(part.below(path), inner, started_with)
    if not (part.chart or pods or inside or is_carrier(document) or part.kind in together.KNOWN):
        kind = part.kind or "a file without kind"
        yield Configuration(f"{name}[{kind}]", "", not_checked=kind)


#: What a text says that is no YAML, if it was to be something that the linter knows.
_KNOWN = re.compile(
    r"(?:^|[{,])\s*['\"]?(sharing|flags|mig-configs|nodeconfig|migStrategy|timeSlicing)['\"]?\s*:", re.MULTILINE
)
_FIELDS = {"version", "flags", "resources", "sharing", "imex"}
#: Fields below these: in a file whose own names are wrong, they tell what it was to be.
_INNER = {fold(name) for name in (*FLAGS, *PLUGIN_FLAGS, "plugin", "gfd", "mps", "timeSlicing")}
#: Files of mig-manager and of the vGPU device manager, whose version is v1, too.
_OF_OTHERS = {"hooks", "systemd-services", "vgpu-configs"}
_VERSION = re.compile("v[0-9]+")


def _is_object(document: Mapping[str, Any]) -> bool:
    return "kind" in document and "apiVersion" in document


def _is_configuration(document: Mapping[str, Any]) -> bool:
    """Return whether a file, or a text in a ConfigMap, is a configuration of the device plugin, of HAMi or of mig-parted."""
    if mig_layouts.is_layouts(document) or hami.is_hami(document):
        return True
    names = {fold(str(name)): mapping(value) for name, value in document.items()}
    if {"flags", "sharing", "imex"} & set(names) or {"gpus", "mig"} & set(names.get("resources", {})):
        return True
    if "version" in names and set(names) <= _FIELDS:
        return True
    if _VERSION.fullmatch(str(document.get("version"))) and not _OF_OTHERS & set(names):
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
        document = next(iter(read_yaml_documents(text)), None)
    except ValueError:
        return bool(_KNOWN.search(text))
    return isinstance(document, Mapping) and not _is_object(document) and _is_configuration(document)


def _started_with(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the strategies that values of the plugin's chart, of HAMi or of the GPU Operator, or a DaemonSet, start the plugin with."""
    if OF_A_CONFIGURATION & set(document):
        return ()
    containers = below(document, "spec", "template", "spec", "containers")
    said: Any = _environment(below(document, "devicePlugin", "env"))
    for container in containers if document.get("kind") == "DaemonSet" and isinstance(containers, list) else ():
        said = said or _environment(below(container, "env"))
    said = document.get("deviceListStrategy") or below(document, "devicePlugin", "deviceListStrategy") or said
    if not said and isinstance(document.get("devicePlugin"), Mapping) and below(document, "cdi", "enabled") is True:
        # What the GPU Operator gives its plugin then.
        return ("cdi-annotations", "cdi-cri")
    parts = said.split(",") if isinstance(said, str) else said if isinstance(said, list) else ()
    return tuple(part.strip() for part in map(str, parts) if part.strip())


def _environment(entries: Any) -> Any:
    named = [one for one in entries if isinstance(one, Mapping)] if isinstance(entries, list) else []
    return next((one.get("value") for one in named if one.get("name") == _STRATEGY), None)


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
