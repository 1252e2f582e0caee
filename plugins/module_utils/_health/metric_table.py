# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The metrics that the host program writes for node_exporter: the one table that the file, the documentation, the alerts and the dashboard
are made from.

Names and units follow https://prometheus.io/docs/practices/naming/. What is not known of a host has no sample; a 0 is a statement.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique

GAUGE = "gauge"
COUNTER = "counter"
_GPU = ("gpu", "uuid")


@dataclass(frozen=True)
class Metric:
    """One metric.

    :param name: as Prometheus knows it.
    :param help: one sentence, for people.
    :param labels: in the order in which they are written.
    """

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
