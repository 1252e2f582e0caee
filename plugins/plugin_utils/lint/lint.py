# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The linter of device plugin configuration files: what the plugin 0.20 refuses, and what it accepts and ignores; and of
claims, objects of the GPU Operator and HAMi's configuration, and pods that have to see the driver, also inside other files.

An I(error) is what the plugin, gpu-feature-discovery or the MPS daemon does not start with. A I(warning) is what they accept and
ignore, or understand otherwise than it looks. A file without findings does what it says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...module_utils._formats.documents import read_yaml_documents
from . import dra_claims, driver_pods, hami, node, operator_objects, rules, together, yaml
from .finding import ERROR, MOST, Finding, Report, TooManyFindings
from .plugin_fields import CONFIGURATION, effective
from .reading import OF_A_CONFIGURATION, below


@dataclass(frozen=True)
class Verdict:
    """What the linter says of a file.

    :param findings: errors first, then warnings, each in the order of the file.
    :param effective: the configuration as the plugin would print it, defaults filled in; None when it refuses the file.
    """

    findings: tuple[Finding, ...]
    effective: Mapping[str, Any] | None

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.level == "error")

    def as_dict(self) -> dict[str, Any]:
        return {
            "findings": [finding.as_dict() for finding in self.findings],
            "effective": dict(self.effective) if self.effective is not None else None,
        }


def lint(
    text: str,
    facts: Mapping[str, Any] | None = None,
    started_with: Sequence[str] = (),
    others: Sequence[Mapping[str, Any]] = (),
) -> Verdict:
    """Check the text of a device plugin configuration file, of an object by which devices of the DRA driver are claimed or that tells the GPU
    Operator what to do, of pods that have to see the driver, or of HAMi's configuration.

    :param text: the file.
    :param facts: of the node on which it will be used, as M(gpufleet.nvidia.gpu_info) returns them; what depends on a node
        (its resources, MIG, the limit of MPS on old GPUs) is checked only with them.
    :param started_with: device list strategies that the plugin is started with, which beat those of the file.
    :param others: further objects of the GPU Operator for the same cluster.
    """
    report = Report()
    try:
        used = _effective(text, facts, started_with, others, report)
    except TooManyFindings:
        message = f"it has more than {MOST} findings: the rest was not checked"
        report.findings.insert(
            0, Finding(ERROR, "", message, "Correct these first, if this is a configuration of the device plugin.")
        )
        used = None
    return Verdict(ordered(report.findings), used)


def _effective(
    text: str,
    facts: Mapping[str, Any] | None,
    started_with: Sequence[str],
    others: Sequence[Mapping[str, Any]],
    report: Report,
) -> Mapping[str, Any] | None:
    """Report what is found, and return the configuration as the plugin prints it; None where it refuses the file, or this is none."""
    try:
        document = yaml.load(text, report)
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
    if dra_claims.is_claim(document):
        dra_claims.check(document, node.node_of(facts), report)
        return None
    if operator_objects.is_operator(document):
        operator_objects.check(document, facts, node.node_of(facts), report, others)
        return None
    if hami.is_hami(document):
        hami.check(document, text, facts, node.node_of(facts), report)
        return None
    if driver_pods.has_pods(document):
        driver_pods.check(document, facts, report)
        if started_with:
            node.check({}, node.node_of(facts), report, started_with)
        return None
    if isinstance(document.get("kind"), str) and "apiVersion" in document:
        report.warning(
            "kind",
            f"this is a Kubernetes object of kind {document['kind']}, not a configuration file: the plugin would ignore all of it",
            "Check the text under data.<name> of a ConfigMap, or under config.map.<name> of Helm values.",
        )
    config = CONFIGURATION(document, "", report)
    version = config.get("version")
    if isinstance(version, str) and version not in ("", "v1"):
        report.error("version", f"unknown version: {version}", "Write v1.")
    if not report.refused:
        rules.flags(config.get("flags") or {}, report)
        rules.imex(config.get("imex") or {}, report)
        rules.sharing(config, report)
    if report.refused:
        return None
    # From here on the plugin has read the file; what follows goes wrong later, in the daemon or on the node.
    rules.mps_daemon(config, report)
    node.check(config, node.node_of(facts), report, started_with)
    return effective(config)


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return errors first, and else the order in which they were found."""
    return tuple(sorted(findings, key=lambda finding: finding.level != ERROR))


_STRATEGY = "DEVICE_LIST_STRATEGY"


class Configuration(NamedTuple):
    """A configuration and where it was found.

    :param started_with: device list strategies that the plugin is started with, which beat those of its file; empty where the file decides.
    :param others: further objects of the GPU Operator in the file, if this is one.
    """

    name: str
    text: str
    started_with: tuple[str, ...] = ()
    others: tuple[Mapping[str, Any], ...] = ()


def lint_files(texts: Mapping[str, str], facts: Mapping[str, Any] | None = None) -> dict[str, Verdict]:
    """Return what the linter says of each configuration and object in files, by a name that begins with the file's, and of all that are in one folder,
    or in one C(clusters/NAME), together.

    :param texts: by the paths of the files.
    :param facts: of the node on which they will be used, as for L(lint).
    """
    verdicts: dict[str, Verdict] = {}
    parts: list[together.Part] = []
    for name, text in texts.items():
        documents = _documents(text)
        for one in _taken_apart(name, text, documents):
            verdicts[one.name] = lint(one.text, facts, one.started_with, one.others)
        parts += [together.Part(name, _place(name, document), document) for document in documents]
    for cluster in together.by_cluster(parts):
        for place, report in together.check(cluster):
            there = verdicts.get(place, Verdict((), None))
            verdicts[place] = replace(there, findings=ordered((*there.findings, *report.findings)))
    return verdicts


def configurations(name: str, text: str) -> list[Configuration]:
    """Return the configurations, claims and objects of the GPU Operator in a file, and the values and DaemonSets by which pods have to see the
    driver, each with a name that says where it is; the file itself when it has none of these.

    Values of a chart and DaemonSets that name a device list strategy, and no configuration, count as an empty one.

    :param name: of the file.
    """
    return _taken_apart(name, text, _documents(text))


def _documents(text: str) -> list[Mapping[str, Any]]:
    """Return the mappings among the documents of a file; nothing where it is no YAML, which L(lint) says."""
    try:
        documents = read_yaml_documents(text)
    except ValueError:
        return []
    return [document for document in documents if isinstance(document, Mapping)]


def _place(name: str, document: Mapping[str, Any]) -> str:
    """Return where a document is: values of a chart have neither kind nor name."""
    return (
        f"{name}[{document['kind']}/{below(document, 'metadata', 'name')}]" if "kind" in document else f"{name}[values]"
    )


def _taken_apart(name: str, text: str, documents: Sequence[Mapping[str, Any]]) -> list[Configuration]:
    found = []
    operators = [document for document in documents if operator_objects.is_operator(document)]
    for document in documents:
        place = _place(name, document)
        if operator_objects.is_operator(document):
            others = tuple(other for other in operators if other is not document)
            found.append(Configuration(place, yaml.dump(document), others=others))
            continue
        if dra_claims.is_claim(document):
            found.append(Configuration(place, yaml.dump(document)))
            continue
        started_with = _started_with(document)
        inside = list(_inside(document))
        if driver_pods.has_pods(document):
            found.append(Configuration(place, yaml.dump(document), () if inside else started_with))
        elif started_with and not inside:
            inside = [(str(document.get("kind") or "values"), "version: v1\n")]
        found += [Configuration(f"{name}[{path}]", inner, started_with) for path, inner in inside]
    if not found and any(map(together.is_dra_driver, documents)):
        # Of these values nothing is said but together with others.
        return []
    return found or [Configuration(name, text)]


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


def _inside(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if document.get("kind") == "ConfigMap" and isinstance(document.get("data"), Mapping):
        places = [("data", document["data"])]
    else:
        places = [("config.map", below(document, "config", "map"))]
        places.append(("devicePlugin.config.data", below(document, "devicePlugin", "config", "data")))
        nodes = below(document, "devicePlugin", "nodeConfiguration", "config")
        places.append(("devicePlugin.nodeConfiguration", {"config": nodes}))
        places.append(("device-config", {"content": below(document, "device-config", "content")}))
    for path, texts in places:
        for key, inner in texts.items() if isinstance(texts, Mapping) else ():
            if isinstance(inner, str):
                yield f"{path}.{key}", inner
