# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The linter of device plugin configuration files: what the plugin 0.20 refuses, and what it accepts and ignores; and of
claims, objects of the GPU Operator and HAMi's configuration.

An I(error) is what the plugin, gpu-feature-discovery or the MPS daemon does not start with. A I(warning) is what they accept and
ignore, or understand otherwise than it looks. A file without findings does what it says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import claims, gpu_operator, hami, node, pods, rules, yaml
from .finding import ERROR, MOST, Finding, Report, TooManyFindings
from .plugin_fields import CONFIGURATION, effective


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
        return _lint(text, facts, started_with, others, report)
    except TooManyFindings:
        message = f"it has more than {MOST} findings: the rest was not checked"
        report.findings.insert(
            0, Finding(ERROR, "", message, "Correct these first, if this is a configuration of the device plugin.")
        )
        return _verdict(report, None)


def _lint(
    text: str,
    facts: Mapping[str, Any] | None,
    started_with: Sequence[str],
    others: Sequence[Mapping[str, Any]],
    report: Report,
) -> Verdict:
    try:
        document = yaml.load(text, report)
    except yaml.YamlError as error:
        report.error("", f"invalid YAML: {error}", "Correct the syntax.")
        return _verdict(report, None)
    if document is None:
        report.warning(
            "", "the file is empty: the plugin runs with its defaults and shares nothing", "Write at least version: v1."
        )
        return _verdict(report, effective({}))
    if not isinstance(document, dict):
        report.error("", "the file is not a mapping of fields", "Write version: v1 and the sections flags and sharing.")
        return _verdict(report, None)
    if claims.is_claim(document):
        claims.check(document, node.node_of(facts), report)
        return _verdict(report, None)
    if gpu_operator.is_operator(document):
        gpu_operator.check(document, facts, node.node_of(facts), report, others)
        return _verdict(report, None)
    if hami.is_hami(document):
        hami.check(document, text, facts, node.node_of(facts), report)
        return _verdict(report, None)
    if pods.has_pods(document):
        pods.check(document, facts, report)
        if started_with:
            node.check({}, node.node_of(facts), report, started_with)
        return _verdict(report, None)
    _explain_kubernetes_objects(document, report)
    config = CONFIGURATION(document, "", report)
    _version(config.get("version"), report)
    if not report.refused:
        rules.flags(config.get("flags") or {}, report)
        rules.imex(config.get("imex") or {}, report)
        rules.sharing(config, report)
    if report.refused:
        return _verdict(report, None)
    # From here on the plugin has read the file; what follows goes wrong later, in the daemon or on the node.
    rules.mps_daemon(config, report)
    node.check(config, node.node_of(facts), report, started_with)
    return _verdict(report, effective(config))


def _verdict(report: Report, used: Mapping[str, Any] | None) -> Verdict:
    return Verdict(ordered(report.findings), used)


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return errors first, and else the order in which they were found."""
    return tuple(sorted(findings, key=lambda finding: finding.level != ERROR))


def _version(version: Any, report: Report) -> None:
    if isinstance(version, str) and version not in ("", "v1"):
        report.error("version", f"unknown version: {version}", "Write v1.")


def _explain_kubernetes_objects(document: Mapping[str, Any], report: Report) -> None:
    if isinstance(document.get("kind"), str) and "apiVersion" in document:
        report.warning(
            "kind",
            f"this is a Kubernetes object of kind {document['kind']}, not a configuration file: the plugin would ignore all of it",
            "Check the text under data.<name> of a ConfigMap, or under config.map.<name> of Helm values.",
        )
