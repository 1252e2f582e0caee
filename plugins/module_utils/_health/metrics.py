# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The metrics that the host program writes for node_exporter: the one table that the file, the documentation, the alerts and the dashboard
are made from, and what was read of a host as their samples: the same evidence that the health checks judge, and what they say of it. Pure.

Names and units follow https://prometheus.io/docs/practices/naming/. What is not known of a host has no sample; a 0 is a statement.

The kernel's log overwrites its oldest records. Every record has a number that only grows until the next boot (Documentation/ABI/testing/dev-kmsg of
the kernel). What was counted is kept with the number of the last error's record, so that no error is counted twice and none is lost later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, unique

from .._boards.cards import cards_on_bus
from .._facts_view import CardFacts, Facts, Xid
from .._formats.documents import read_record
from .._gpu_facts import MemoryErrorFacts
from .._schema import SCHEMA, Record, items, needs, number, of, row, text
from .hardware import version_differences
from .records import recorded_daemons
from .report import FAILED, PASSED, SKIPPED, UNPROVEN, WARNING, Evidence, HealthReport
from .xid import action_of, errors_in, severity_of_sxid

GAUGE = "gauge"
COUNTER = "counter"
_GPU = ("gpu", "uuid")


@dataclass(frozen=True)
class Metric:
    """One metric. C(name): as Prometheus knows it. C(help): one sentence, for people. C(labels): in the order in which they are written."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: str = GAUGE


@unique
class Metrics(Enum):
    """Every metric, in the order in which the file has them."""

    LAST_RUN = Metric("gpufleet_last_run_timestamp_seconds", "When the host was last read, in seconds since the epoch.")
    RUN_DURATION = Metric("gpufleet_last_run_duration_seconds", "How long reading the host took, in seconds.")
    READ_SUCCESS = Metric(
        "gpufleet_read_success",
        "Whether a source could be read (1) or not (0): nvml, the kernel_log, systemd.",
        ("source",),
    )
    PROGRAM = Metric("gpufleet_host_program_info", "The host program that wrote this, always 1.", ("version",))
    CHECK = Metric(
        "gpufleet_health_check_status",
        "What a check of gpufleet.nvidia.health says: 1 for the status that it has, 0 for the others.",
        ("check", "status"),
    )
    DRIVER = Metric(
        "gpufleet_driver_info",
        "Versions of the loaded kernel module, of the module on disk and of the library, always 1.",
        ("loaded", "on_disk", "library", "flavour"),
    )
    DRIVER_AGREES = Metric(
        "gpufleet_driver_versions_agree",
        "Whether loaded module, module on disk and library are of one version (1) or not (0).",
    )
    GPUS = Metric("gpufleet_gpus", "How many GPUs the PCI bus shows and NVML can reach.", ("seen_by",))
    GPU = Metric(
        "gpufleet_gpu_info",
        "A GPU that NVML counts, always 1; without a UUID where it fell off the bus.",
        (*_GPU, "pci_address", "board", "name"),
    )
    RECOVERY = Metric(
        "gpufleet_gpu_recovery_action",
        "The action that the driver asks for to recover the GPU (NVML's recovery action), always 1; none where nothing is needed.",
        (*_GPU, "action"),
    )
    XIDS = Metric(
        "gpufleet_xid_errors_total",
        "Xid errors in the kernel's log since the boot, with the action that NVIDIA's catalogue asks for.",
        ("pci_address", "xid", "action"),
        COUNTER,
    )
    SXIDS = Metric(
        "gpufleet_sxid_errors_total",
        "SXid errors of NVSwitches in the kernel's log since the boot.",
        ("pci_address", "sxid", "severity"),
        COUNTER,
    )
    REMAP_PENDING = Metric(
        "gpufleet_gpu_memory_remap_pending",
        "Whether memory of the GPU is replaced at its next reset (1) or not (0).",
        _GPU,
    )
    REMAP_FAILED = Metric(
        "gpufleet_gpu_memory_remap_failed",
        "Whether memory could not be replaced because no spare row is left (1) or not (0).",
        _GPU,
    )
    REMAPPED_ROWS = Metric(
        "gpufleet_gpu_remapped_rows_total",
        "Rows of the GPU's memory that were replaced in the board's life, by the kind of error.",
        (*_GPU, "cause"),
        COUNTER,
    )
    UNCORRECTED = Metric(
        "gpufleet_gpu_uncorrected_memory_errors_total",
        "Uncorrected memory errors of the GPU since the driver was loaded.",
        _GPU,
        COUNTER,
    )
    FABRIC = Metric(
        "gpufleet_gpu_fabric_state",
        "State of the GPU on its NVLink fabric: 1 for the state that it has, 0 for the others.",
        (*_GPU, "state"),
    )
    MPS_SERVING = Metric(
        "gpufleet_mps_daemon_serving",
        "Whether an MPS daemon that runs or is recorded answers (1) or not (0).",
        ("pipe_directory",),
    )
    MPS_CLIENTS = Metric("gpufleet_mps_clients", "Clients that the servers of an MPS daemon have.", ("pipe_directory",))
    DRIFT = Metric(
        "gpufleet_drift",
        "Whether site would change (1) what it recorded on the host, or not (0): mig, settings, sharing, compute_mode, the units that restore "
        "it: boot, and the CDI specification: cdi.",
        ("record",),
    )
    MIG_UNFINISHED = Metric(
        "gpufleet_mig_change_unfinished", "Whether the last change of MIG was cut off before its end (1) or not (0)."
    )


METRICS: tuple[Metric, ...] = tuple(metric.value for metric in Metrics)


_STATUSES = (PASSED, WARNING, FAILED, SKIPPED, UNPROVEN)
FABRIC_STATES = ("not_started", "in_progress", "completed")
#: More different errors than this are no sign of anything any more, and each is a time series.
_MOST = 1000
_Key = tuple[str, int, str]
_Row = tuple[str, int, str, int]


@dataclass(frozen=True)
class Sample:
    """One value of a metric. C(labels): values in the order of the metric's labels; None is written as an empty value, which Prometheus takes for no
    label.
    """

    metric: Metric
    value: float
    labels: tuple[str | None, ...] = ()


def expose(samples: Sequence[Sample]) -> str:
    """Return the text of C(samples): metrics in the order of the table, each with HELP and TYPE, its samples sorted by their labels. Samples with the
    same labels are summed: what labels name is partly the users', and two values would have the whole file refused.
    """
    lines: list[str] = []
    for metric in METRICS:
        mine = sorted(_lines(metric, [sample for sample in samples if sample.metric is metric]))
        if mine:
            lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}", *mine]
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


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


_COUNTS = items(row(text(256), number(), text(64), number()), _MOST)


@dataclass(frozen=True)
class ErrorCounts(Record):
    """How many errors were logged since the boot: rows of PCI address, number, action or severity, and count. C(last): number of the last one's record,
    or -1.
    """

    boot_id: str = needs(text(256))
    last: int = needs(number(-1), -1)
    xids: tuple[_Row, ...] = needs(_COUNTS, ())
    sxids: tuple[_Row, ...] = needs(_COUNTS, ())


_RECORD = of(ErrorCounts, SCHEMA)


def parse_counts(text: str | None, boot_id: str) -> ErrorCounts:
    """Return what was counted since this boot; nothing where the file is missing, of another boot, or cannot be used."""
    found: ErrorCounts | None = read_record(_RECORD, text)
    return found if found and found.boot_id == boot_id else ErrorCounts(boot_id)


def counted(before: ErrorCounts, log: str, devices: Iterable[CardFacts]) -> ErrorCounts:
    """Return C(before) and the errors of the records of C(log) that are newer (see L(kernel_log.errors_in))."""
    xids, sxids, last = _counter(before.xids), _counter(before.sxids), before.last
    for place, error in errors_in(log, ((device.kind, device.address) for device in devices)):
        if place <= before.last:
            continue
        last = max(last, place)
        if isinstance(error, Xid):
            _add(xids, (error.pci_address, error.number, action_of(error)))
        else:
            _add(sxids, (error.pci_address, error.number, severity_of_sxid(error)))
    return ErrorCounts(before.boot_id, last, _rows(xids), _rows(sxids))


def _counter(rows: Iterable[_Row]) -> Counter[_Key]:
    return Counter({(address, code, kind): count for address, code, kind, count in rows})


def _rows(counts: Counter[_Key]) -> tuple[_Row, ...]:
    return tuple((*key, count) for key, count in sorted(counts.items()))


def _add(counts: Counter[_Key], key: _Key) -> None:
    if key in counts or len(counts) < _MOST:
        counts[key] += 1


def readings(
    evidence: Evidence,
    report: HealthReport,
    counts: ErrorCounts,
    now: float,
    duration: float,
    drift: Mapping[str, bool],
) -> list[Sample]:
    return [
        *_run(evidence.facts.host_program.version, now, duration),
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
    return [*_run(version, now, 0.0), Sample(Metrics.READ_SUCCESS.value, 0, ("nvml",))]


def _run(version: str | None, now: float, duration: float) -> Iterator[Sample]:
    yield Sample(Metrics.LAST_RUN.value, int(now))
    yield Sample(Metrics.RUN_DURATION.value, round(duration, 3))
    yield Sample(Metrics.PROGRAM.value, 1, (version,))


def _sources(evidence: Evidence) -> Iterator[Sample]:
    sources = {
        "nvml": bool(evidence.facts.nvml.available),
        "kernel_log": evidence.xids is not None,
        "systemd": "services" not in (evidence.facts.unknown or {}),
    }
    for source, success in sources.items():
        yield Sample(Metrics.READ_SUCCESS.value, success, (source,))


def _checks(report: HealthReport) -> Iterator[Sample]:
    for name, outcome in report.outcomes.items():
        for status in _STATUSES:
            yield Sample(Metrics.CHECK.value, outcome.status == status, (name, status))


def _driver(facts: Facts) -> Iterator[Sample]:
    driver = facts.driver
    loaded, library = driver.loaded_version, driver.library_version
    if loaded or driver.on_disk_version or library:
        labels = (loaded, driver.on_disk_version, library, driver.flavour)
        yield Sample(Metrics.DRIVER.value, 1, labels)
    if loaded:
        yield Sample(Metrics.DRIVER_AGREES.value, not version_differences(driver))


def _gpus(evidence: Evidence) -> Iterator[Sample]:
    gpus = evidence.facts.gpus
    if evidence.facts.pci is not None:
        yield Sample(Metrics.GPUS.value, len(cards_on_bus(evidence.facts)), ("pci",))
    if gpus is None:
        return
    yield Sample(Metrics.GPUS.value, sum(1 for gpu in gpus if not gpu.lost), ("nvml",))
    for gpu in gpus:
        of_gpu = (str(gpu.index), gpu.uuid)
        yield Sample(Metrics.GPU.value, 1, (*of_gpu, gpu.pci_address, gpu.board, gpu.name))
        if gpu.recovery_action:
            yield Sample(Metrics.RECOVERY.value, 1, (*of_gpu, gpu.recovery_action))
        yield from _memory(gpu.errors, of_gpu)
        if gpu.fabric.state:
            for state in FABRIC_STATES:
                yield Sample(Metrics.FABRIC.value, gpu.fabric.state == state, (*of_gpu, state))


def _memory(errors: MemoryErrorFacts, of_gpu: tuple[str, str | None]) -> Iterator[Sample]:
    for metric, value, labels in (
        (Metrics.REMAP_PENDING, errors.remap_pending, of_gpu),
        (Metrics.REMAP_FAILED, errors.remap_failed, of_gpu),
        (Metrics.UNCORRECTED, errors.uncorrected, of_gpu),
        (Metrics.REMAPPED_ROWS, errors.remapped_correctable, (*of_gpu, "correctable")),
        (Metrics.REMAPPED_ROWS, errors.remapped_uncorrectable, (*of_gpu, "uncorrectable")),
    ):
        if value is not None:
            yield Sample(metric.value, int(value), labels)


def _errors(counts: ErrorCounts) -> Iterator[Sample]:
    for address, code, action, count in counts.xids:
        yield Sample(Metrics.XIDS.value, count, (address, str(code), action))
    for address, code, severity, count in counts.sxids:
        yield Sample(Metrics.SXIDS.value, count, (address, str(code), severity))


def _mps(facts: Facts) -> Iterator[Sample]:
    """A recorded daemon that does not run serves nobody; of one that is not recorded and cannot be asked nothing is said."""
    serving = dict.fromkeys((daemon.pipe_directory for daemon in recorded_daemons(facts)), False)
    for daemon in facts.mps or []:
        pipe = daemon.pipe_directory
        if pipe is None:
            continue
        # Of the device plugin's daemon nothing is recorded: its node says whether it serves.
        # A user's own is not asked, wherever it says that its pipe is.
        if not daemon.in_container and daemon.responds is not None:
            serving[pipe] = serving.get(pipe, False) or bool(daemon.responds)
        if daemon.clients is not None:
            yield Sample(Metrics.MPS_CLIENTS.value, daemon.clients, (pipe,))
    for pipe, serves in serving.items():
        yield Sample(Metrics.MPS_SERVING.value, serves, (pipe,))


def _drift(facts: Facts, drift: Mapping[str, bool]) -> Iterator[Sample]:
    for record, differs in drift.items():
        yield Sample(Metrics.DRIFT.value, differs, (record,))
    unfinished = facts.recorded.mig_unfinished
    if unfinished is not None:
        yield Sample(Metrics.MIG_UNFINISHED.value, unfinished)
