# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What was read of a host, as samples of the metrics. Pure: the same evidence that the health checks judge, and what they say of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .._boards.lookup import cards_on_bus
from . import software
from .error_counts import ErrorCounts
from .exposition import Sample
from .hardware import version_differences
from .metric_table import Metrics
from .report import FAILED, PASSED, SKIPPED, UNPROVEN, WARNING, Evidence, HealthReport

_STATUSES = (PASSED, WARNING, FAILED, SKIPPED, UNPROVEN)
FABRIC_STATES = ("not_started", "in_progress", "completed")


def readings(
    evidence: Evidence,
    report: HealthReport,
    counts: ErrorCounts,
    now: float,
    duration: float,
    drift: Mapping[str, bool],
) -> list[Sample]:
    """Return everything that is known of a host.

    :param report: of all checks, over the same evidence.
    :param counts: the errors since the boot.
    :param now: seconds since the epoch.
    :param duration: seconds that reading took.
    :param drift: what of the host differs from its records.
    """
    return [
        *_run(evidence.facts, now, duration),
        *_sources(evidence),
        *_checks(report),
        *_driver(evidence.facts),
        *_gpus(evidence),
        *_errors(counts),
        *_mps(evidence.facts),
        *_drift(evidence.facts, drift),
    ]


def unread(now: float, version: str | None) -> list[Sample]:
    """Return what is said of a host whose GPUs were not asked, because the process that asked them before hangs still."""
    return [
        *_run({"host_program": {"version": version}}, now, 0.0),
        Sample(Metrics.READ_SUCCESS.value, 0, ("nvml",)),
    ]


def _run(facts: Mapping[str, Any], now: float, duration: float) -> Iterator[Sample]:
    yield Sample(Metrics.LAST_RUN.value, int(now))
    yield Sample(Metrics.RUN_DURATION.value, round(duration, 3))
    yield Sample(Metrics.PROGRAM.value, 1, ((facts.get("host_program") or {}).get("version"),))


def _sources(evidence: Evidence) -> Iterator[Sample]:
    sources = {
        "nvml": bool((evidence.facts.get("nvml") or {}).get("available")),
        "kernel_log": evidence.xids is not None,
        "systemd": "services" not in (evidence.facts.get("unknown") or {}),
    }
    for source, success in sources.items():
        yield Sample(Metrics.READ_SUCCESS.value, success, (source,))


def _checks(report: HealthReport) -> Iterator[Sample]:
    for name, outcome in report.outcomes.items():
        for status in _STATUSES:
            yield Sample(Metrics.CHECK.value, outcome.status == status, (name, status))


def _driver(facts: Mapping[str, Any]) -> Iterator[Sample]:
    driver = facts.get("driver") or {}
    loaded, library = driver.get("loaded_version"), driver.get("library_version")
    if loaded or driver.get("on_disk_version") or library:
        labels = (loaded, driver.get("on_disk_version"), library, driver.get("flavour"))
        yield Sample(Metrics.DRIVER.value, 1, labels)
    if loaded:
        yield Sample(Metrics.DRIVER_AGREES.value, not version_differences(driver))


def _gpus(evidence: Evidence) -> Iterator[Sample]:
    gpus: Sequence[Mapping[str, Any]] | None = evidence.facts.get("gpus")
    if evidence.facts.get("pci") is not None:
        yield Sample(Metrics.GPUS.value, len(cards_on_bus(evidence.facts)), ("pci",))
    if gpus is None:
        return
    yield Sample(Metrics.GPUS.value, sum(1 for gpu in gpus if not gpu.get("lost")), ("nvml",))
    for gpu in gpus:
        of_gpu = (str(gpu["index"]), gpu.get("uuid"))
        yield Sample(Metrics.GPU.value, 1, (*of_gpu, gpu.get("pci_address"), gpu.get("board"), gpu.get("name")))
        if gpu.get("recovery_action"):
            yield Sample(Metrics.RECOVERY.value, 1, (*of_gpu, gpu["recovery_action"]))
        yield from _memory(gpu.get("errors") or {}, of_gpu)
        if gpu.get("fabric"):
            for state in FABRIC_STATES:
                yield Sample(Metrics.FABRIC.value, gpu["fabric"].get("state") == state, (*of_gpu, state))


def _memory(errors: Mapping[str, Any], of_gpu: tuple[str, str | None]) -> Iterator[Sample]:
    for metric, name in (
        (Metrics.REMAP_PENDING, "remap_pending"),
        (Metrics.REMAP_FAILED, "remap_failed"),
        (Metrics.UNCORRECTED, "uncorrected"),
    ):
        if errors.get(name) is not None:
            yield Sample(metric.value, int(errors[name]), of_gpu)
    for cause in ("correctable", "uncorrectable"):
        rows = errors.get(f"remapped_{cause}")
        if rows is not None:
            yield Sample(Metrics.REMAPPED_ROWS.value, rows, (*of_gpu, cause))


def _errors(counts: ErrorCounts) -> Iterator[Sample]:
    for (address, number, action), count in counts.xids.items():
        yield Sample(Metrics.XIDS.value, count, (address, str(number), action))
    for (address, number, severity), count in counts.sxids.items():
        yield Sample(Metrics.SXIDS.value, count, (address, str(number), severity))


def _mps(facts: Mapping[str, Any]) -> Iterator[Sample]:
    """A recorded daemon that does not run serves nobody; of one that is not recorded and cannot be asked nothing is said."""
    serving = dict.fromkeys(software.recorded_pipe_directories(facts), False)
    for daemon in facts.get("mps") or []:
        pipe = daemon.get("pipe_directory")
        if pipe is None:
            continue
        # Of the device plugin's daemon nothing is recorded: its node says whether it serves.
        # A user's own is not asked, wherever it says that its pipe is.
        if not daemon.get("in_container") and daemon.get("responds") is not None:
            serving[pipe] = serving.get(pipe, False) or bool(daemon["responds"])
        if daemon.get("clients") is not None:
            yield Sample(Metrics.MPS_CLIENTS.value, daemon["clients"], (pipe,))
    for pipe, serves in serving.items():
        yield Sample(Metrics.MPS_SERVING.value, serves, (pipe,))


def _drift(facts: Mapping[str, Any], drift: Mapping[str, bool]) -> Iterator[Sample]:
    for record, differs in drift.items():
        yield Sample(Metrics.DRIFT.value, differs, (record,))
    unfinished = (facts.get("recorded") or {}).get("mig_unfinished")
    if unfinished is not None:
        yield Sample(Metrics.MIG_UNFINISHED.value, unfinished)
