# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The alerts over the metrics of the hosts and of dcgm-exporter, as one table, and the PrometheusRule that is made of it.

Every alert names the check of C(verify) that tells of the same, in that check's words (for what a stage sets, those of C(plan)), and the section
of docs/runbooks.md that says what to do.
Tests hold both against the code, and fire every alert with promtool from what the host program writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.metric_table import Metrics
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.xid import LOUD_XIDS, QUIET_ACTIONS
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.model import MANAGED_BY, Cluster

RUNBOOKS = "https://github.com/gpufleet/gpufleet.nvidia/blob/main/docs/runbooks.md"
GROUP = "gpufleet"
CRITICAL, WARNING = "critical", "warning"
#: What tells extensions/eda/rulebooks/heal.yml which host to repair: the instance without its port.
REPAIR = {"repair": "heal", "host": '{{ reReplaceAll ":[0-9]+$" "" $labels.instance }}'}
_ANYTHING = "..."

_M = {metric.name: metric.value.name for metric in Metrics}
_CHECK = f'{_M["CHECK"]}{{check="%s",status="failed"}} == 1'
#: An error's series begins with its first one, so that a rate alone would miss it.
_NEW = "increase({0}[1h]) > 0 or ({0} unless {0} offset 1h)"
_XID = f'{_M["XIDS"]}{{action!~"{"|".join(QUIET_ACTIONS)}"}}'
_LOUD = f'{_M["XIDS"]}{{xid=~"{"|".join(map(str, LOUD_XIDS))}"}}'
_SXID = f'{_M["SXIDS"]}{{severity="fatal"}}'


@dataclass(frozen=True)
class Alert:
    """One alert.

    :param check: the check of C(verify) that tells of the same; empty where none does.
    :param expression: PromQL.
    :param minutes: for how long it has to hold.
    :param summary: one line; may hold labels of the series.
    :param verify: what that check says, with C(...) for what differs from host to host.
    :param remedy: the first thing to do.
    :param section: of docs/runbooks.md.
    :param repair: whether C(heal) does something about it, so that the rulebook may start it.
    """

    name: str
    check: str
    expression: str
    minutes: int
    severity: str
    summary: str
    verify: str
    remedy: str
    section: str
    repair: bool = False


_ON = "on {{ $labels.instance }}"
_GPU = "GPU {{ $labels.gpu }} " + _ON

ALERTS: tuple[Alert, ...] = (
    Alert(
        "GpufleetMetricsStale",
        "",
        f"time() - {_M['LAST_RUN']} > 900",
        0,
        WARNING,
        f"The host has not been read for 15 minutes {_ON}",
        "",
        "Look at gpufleet-metrics.timer and the journal of gpufleet-metrics.service; a change of the GPUs that lasts this long is a reason, too",
        "metrics-are-stale",
    ),
    Alert(
        "GpufleetNvmlNotRead",
        "nvml",
        f'{_M["READ_SUCCESS"]}{{source="nvml"}} == 0',
        5,
        CRITICAL,
        f"NVML does not answer {_ON}",
        _ANYTHING,
        "Run gpufleet.nvidia.verify with --limit on the host: the first check that fails is the one to fix",
        "node-shows-0-gpus",
        repair=True,
    ),
    Alert(
        "GpufleetGpuLost",
        "nvml",
        f'{_M["GPUS"]}{{seen_by="nvml"}} < ignoring(seen_by) {_M["GPUS"]}{{seen_by="pci"}}',
        5,
        CRITICAL,
        f"NVML reaches {{{{ $value }}}} GPUs {_ON}, fewer than are on the PCI bus",
        "NVML cannot reach ...",
        "Look for Xid 79 in the kernel's log, then drain and power-cycle the host",
        "a-gpu-fell-off-the-bus",
        repair=True,
    ),
    Alert(
        "GpufleetNextKernelWithoutDriver",
        "next_kernel",
        _CHECK % "next_kernel",
        10,
        WARNING,
        f"The kernel that is booted next has no driver {_ON}",
        "the kernel ... is booted next and has no module of the driver",
        "Do not reboot; install the kernel's headers and run dkms autoinstall, or make the running kernel the default",
        "next-kernel-has-no-driver",
    ),
    Alert(
        "GpufleetNvidiaSmiFails",
        "nvidia_smi",
        _CHECK % "nvidia_smi",
        5,
        CRITICAL,
        f"nvidia-smi does not end with 0 {_ON}",
        "nvidia-smi did not answer: ...",
        "Look for a GPU that hangs in the kernel's log (NVRM), then drain and reboot the host",
        "nvidia-smi-hangs",
        repair=True,
    ),
    Alert(
        "GpufleetDriverVersionsDiffer",
        "driver",
        f"{_M['DRIVER_AGREES']} == 0",
        10,
        WARNING,
        f"Driver and library are of different versions {_ON}",
        "driver ... is loaded, but ... is installed",
        "Drain the host, then run gpufleet.nvidia.site with a reload or a reboot allowed",
        "driver-and-library-are-of-different-versions",
        repair=True,
    ),
    Alert(
        "GpufleetRecoveryNeeded",
        "recovery",
        f'{_M["RECOVERY"]}{{action!="none"}} == 1',
        1,
        CRITICAL,
        f"{_GPU} asks for a recovery: {{{{ $labels.action }}}}",
        "GPU ... asks for ...",
        "Do what the driver asks for; what that is for each action is in the runbook",
        "the-driver-asks-for-a-recovery",
        repair=True,
    ),
    Alert(
        "GpufleetXid",
        "xid",
        f"{_NEW.format(_XID)} or {_NEW.format(_LOUD)}",
        0,
        WARNING,
        f"Xid {{{{ $labels.xid }}}} on {{{{ $labels.pci_address }}}} {_ON}: NVIDIA's catalogue says {{{{ $labels.action }}}}",
        "Xid ... on ...",
        "Look the action up in the runbook; a recovery that the driver asks for takes precedence",
        "xid-errors-by-class",
        repair=True,
    ),
    Alert(
        "GpufleetSxid",
        "xid",
        _NEW.format(_SXID),
        0,
        CRITICAL,
        f"SXid {{{{ $labels.sxid }}}} of the NVSwitch {{{{ $labels.pci_address }}}} {_ON}",
        "SXid ... of the NVSwitch ...",
        "Drain the host and reset all its GPUs and NVSwitches, or reboot it",
        "xid-errors-by-class",
        repair=True,
    ),
    Alert(
        "GpufleetRemapFailed",
        "memory",
        f"{_M['REMAP_FAILED']} == 1",
        0,
        CRITICAL,
        f"{_GPU} has no spare memory rows left",
        "GPU ... has no spare memory rows left",
        "Drain the host and have the board replaced",
        "memory-errors",
        repair=True,
    ),
    Alert(
        "GpufleetRemapPending",
        "memory",
        f"{_M['REMAP_PENDING']} == 1",
        60,
        WARNING,
        f"{_GPU} has memory to be replaced at its next reset",
        "GPU ... has memory to be replaced at its next reset",
        "Drain the host and reset the GPU when there is time",
        "memory-errors",
    ),
    Alert(
        "GpufleetFabricNotReady",
        "fabric",
        _CHECK % "fabric",
        5,
        CRITICAL,
        f"The NVLink fabric is not ready {_ON}: CUDA does not start",
        "the fabric is ...",
        "Look at nvidia-fabricmanager.service and /var/log/fabricmanager.log",
        "the-fabric-is-not-completed",
        repair=True,
    ),
    Alert(
        "GpufleetMigNotAsRecorded",
        "stage mig",
        f'{_M["DRIFT"]}{{record="mig"}} == 1',
        10,
        WARNING,
        f"The MIG layout is not the recorded one {_ON}",
        "create GPU instance ... (wanted: ...)",
        "Restart gpufleet-mig.service, or run gpufleet.nvidia.site",
        "mig-is-gone-after-a-reboot",
        repair=True,
    ),
    Alert(
        "GpufleetMpsNotServing",
        "mps",
        f"{_M['MPS_SERVING']} == 0",
        5,
        CRITICAL,
        f"An MPS daemon does not run or does not answer {_ON}",
        "the MPS daemon with pid ... does not answer",
        "Look at the journal of gpufleet-mps@NAME.service and at control.log in its log directory",
        "mps-clients-wait",
        repair=True,
    ),
    Alert(
        "GpufleetComputeModeNotAsRecorded",
        "stage sharing",
        f'{_M["DRIFT"]}{{record="compute_mode"}} == 1',
        10,
        WARNING,
        f"The compute mode is not the recorded one {_ON}",
        "set compute mode GPU ... (it is ..., the desired state is ...)",
        "Restart gpufleet-sharing.service, or run gpufleet.nvidia.site",
        "mps-clients-wait",
        repair=True,
    ),
    Alert(
        "GpufleetSettingsNotAsRecorded",
        "stage settings",
        f'{_M["DRIFT"]}{{record="settings"}} == 1',
        10,
        WARNING,
        f"Power limits, clocks or ECC are not the recorded ones {_ON}",
        "set the power limit ... to ... W (it is ... W)",
        "Restart gpufleet-settings.service, or run gpufleet.nvidia.site",
        "power-limit-or-clocks-differ",
        repair=True,
    ),
    Alert(
        "GpufleetRuntimeDown",
        "runtime",
        _CHECK % "runtime",
        10,
        WARNING,
        f"The container runtime that gives GPUs to containers does not run {_ON}",
        "... does not run",
        "Start it, and look into its journal",
        "pod-in-unexpectedadmissionerror",
    ),
    Alert(
        "GpufleetContainersNotServed",
        "stage toolkit",
        f'{_M["DRIFT"]}{{record="cdi"}} == 1',
        10,
        WARNING,
        f"Containers may not get their GPUs {_ON}: the CDI specification describes other devices",
        "generate the CDI specification (... describes other devices)",
        "Restart gpufleet-cdi.service, or run gpufleet.nvidia.site",
        "pod-in-unexpectedadmissionerror",
        repair=True,
    ),
)

#: Over what dcgm-exporter shows by default (etc/default-counters.csv of NVIDIA/dcgm-exporter); only where it is rendered.
DCGM_ALERTS: tuple[Alert, ...] = (
    Alert(
        "GpufleetDcgmRowRemapFailed",
        "memory",
        "DCGM_FI_DEV_ROW_REMAP_FAILURE > 0",
        5,
        CRITICAL,
        "GPU {{ $labels.gpu }} ({{ $labels.UUID }}) on {{ $labels.Hostname }} could not replace memory",
        "GPU ... has no spare memory rows left",
        "Drain the host and have the board replaced",
        "memory-errors",
    ),
    Alert(
        "GpufleetDcgmExporterAbsent",
        "",
        "absent(DCGM_FI_DEV_GPU_TEMP)",
        15,
        WARNING,
        "No GPU of the cluster is seen by dcgm-exporter",
        "",
        "Look at the pods of dcgm-exporter: without a driver that answers they do not start",
        "node-shows-0-gpus",
    ),
)


def alerts_of(cluster: Cluster) -> tuple[Alert, ...]:
    """Return the alerts that make sense in C(cluster)."""
    return ALERTS + (DCGM_ALERTS if cluster.options["dcgm_exporter"] else ())


def rule(alert: Alert) -> dict[str, Any]:
    said = " why" if alert.verify == _ANYTHING else f": {alert.verify}"
    verify = f"The check {alert.check} says{said}" if alert.check else "No check tells of this"
    return {
        "alert": alert.name,
        "expr": alert.expression,
        **({"for": f"{alert.minutes}m"} if alert.minutes else {}),
        "labels": {"severity": alert.severity, **(REPAIR if alert.repair else {})},
        "annotations": {
            "summary": alert.summary,
            "verify": verify,
            "remedy": alert.remedy,
            "runbook_url": f"{RUNBOOKS}#{alert.section}",
        },
    }


def groups(alerts: tuple[Alert, ...]) -> list[dict[str, Any]]:
    """Return the rules as Prometheus reads them from a file and the operator from an object."""
    return [{"name": GROUP, "rules": [rule(alert) for alert in alerts]}]


def prometheus_rule(cluster: Cluster) -> dict[str, Any]:
    """Return the object of the Prometheus operator with all alerts."""
    own = {str(name): str(value) for name, value in cluster.options["prometheus_rule_labels"].items()}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "gpufleet",
            "namespace": cluster.options["namespace"],
            "labels": {**MANAGED_BY, **own},
        },
        "spec": {"groups": groups(alerts_of(cluster))},
    }
