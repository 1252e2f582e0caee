# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Grafana dashboard over the metrics of the hosts and of dcgm-exporter, and the ConfigMap that Grafana's sidecar takes it from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.metric_table import Metrics
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.emit import json_text
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.model import MANAGED_BY, Cluster

UID = "gpufleet-hosts"
#: What the sidecar of Grafana's chart looks for by default (sidecar.dashboards.label and labelValue).
SIDECAR_LABEL = {"grafana_dashboard": "1"}
#: Of Grafana 10.
_SCHEMA = 38
_COLUMNS = 24
_HEIGHT = 8
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

_M = {metric.name: metric.value.name for metric in Metrics}
_HOST = 'instance=~"$instance"'


@dataclass(frozen=True)
class Panel:
    """One panel.

    :param kind: C(stat), C(table) or C(timeseries).
    :param expression: PromQL.
    :param legend: of a series.
    :param unit: as Grafana calls it; empty for a plain number.
    """

    title: str
    kind: str
    expression: str
    legend: str = ""
    width: int = 8
    unit: str = ""


PANELS: tuple[Panel, ...] = (
    Panel("Hosts that were read", "stat", f"count({_M['LAST_RUN']}{{{_HOST}}})", width=6),
    Panel(
        "Hosts that NVML does not answer on",
        "stat",
        f'count({_M["READ_SUCCESS"]}{{source="nvml",{_HOST}}} == 0) or vector(0)',
        width=6,
    ),
    Panel(
        "GPUs that wait for a recovery",
        "stat",
        f'count({_M["RECOVERY"]}{{action!="none",{_HOST}}}) or vector(0)',
        width=6,
    ),
    Panel(
        "Hosts that differ from their record",
        "stat",
        f"count(max by (instance) ({_M['DRIFT']}{{{_HOST}}}) == 1) or vector(0)",
        width=6,
    ),
    Panel("Checks that fail", "table", f'{_M["CHECK"]}{{status="failed",{_HOST}}} == 1', width=12),
    Panel("Recovery that drivers ask for", "table", f'{_M["RECOVERY"]}{{action!="none",{_HOST}}}', width=12),
    Panel("Drivers", "table", f"count by (loaded, on_disk, library, flavour) ({_M['DRIVER']}{{{_HOST}}})", width=12),
    Panel("GPUs by board", "table", f"count by (board) ({_M['GPU']}{{{_HOST}}})", width=12),
    Panel(
        "Xid errors in an hour",
        "timeseries",
        f"increase({_M['XIDS']}{{{_HOST}}}[1h])",
        "{{instance}} {{pci_address}} Xid {{xid}} ({{action}})",
    ),
    Panel(
        "SXid errors in an hour",
        "timeseries",
        f"increase({_M['SXIDS']}{{{_HOST}}}[1h])",
        "{{instance}} {{pci_address}} SXid {{sxid}} ({{severity}})",
    ),
    Panel("Remapped rows", "timeseries", f"{_M['REMAPPED_ROWS']}{{{_HOST}}} > 0", "{{instance}} GPU {{gpu}} {{cause}}"),
    Panel(
        "GPUs not completed on their fabric",
        "timeseries",
        f'sum by (instance) ({_M["FABRIC"]}{{state!="completed",{_HOST}}})',
        "{{instance}}",
    ),
    Panel("MPS clients", "timeseries", f"{_M['MPS_CLIENTS']}{{{_HOST}}}", "{{instance}} {{pipe_directory}}"),
    Panel(
        "Time since a host was read", "timeseries", f"time() - {_M['LAST_RUN']}{{{_HOST}}}", "{{instance}}", unit="s"
    ),
)
#: Over the default counters of dcgm-exporter, whose labels are its own: no instance of a host.
DCGM_PANELS: tuple[Panel, ...] = (
    Panel("Utilization", "timeseries", "avg by (Hostname) (DCGM_FI_DEV_GPU_UTIL)", "{{Hostname}}", unit="percent"),
    Panel("Memory in use", "timeseries", "sum by (Hostname) (DCGM_FI_DEV_FB_USED)", "{{Hostname}}", unit="mbytes"),
    Panel(
        "Highest temperature", "timeseries", "max by (Hostname) (DCGM_FI_DEV_GPU_TEMP)", "{{Hostname}}", unit="celsius"
    ),
    Panel("Power", "timeseries", "sum by (Hostname) (DCGM_FI_DEV_POWER_USAGE)", "{{Hostname}}", unit="watt"),
    Panel(
        "PCIe replays in an hour",
        "timeseries",
        "sum by (Hostname) (increase(DCGM_FI_DEV_PCIE_REPLAY_COUNTER[1h]))",
        "{{Hostname}}",
    ),
    Panel("Last Xid", "table", "DCGM_FI_DEV_XID_ERRORS > 0"),
)


def dashboard(cluster: Cluster) -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    panels = PANELS + (DCGM_PANELS if cluster.options["dcgm_exporter"] else ())
    return {
        "uid": UID,
        "title": "NVIDIA GPU hosts",
        "tags": ["gpufleet", "nvidia"],
        "schemaVersion": _SCHEMA,
        "editable": False,
        "refresh": "1m",
        "time": {"from": "now-24h", "to": "now"},
        "templating": {"list": [_datasource_variable(), _instance_variable()]},
        "panels": _placed(panels),
    }


def _datasource_variable() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _instance_variable() -> dict[str, Any]:
    return {
        "name": "instance",
        "label": "Host",
        "type": "query",
        "datasource": dict(_DATASOURCE),
        "query": {"query": f"label_values({_M['LAST_RUN']}, instance)", "refId": "instance"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _placed(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """Return the panels, row by row from the left."""
    placed, x, y = [], 0, 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > _COLUMNS:
            x, y = 0, y + _HEIGHT
        placed.append(_panel(panel, number, x, y))
        x += panel.width
    return placed


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    target: dict[str, Any] = {"refId": "A", "datasource": dict(_DATASOURCE), "expr": panel.expression}
    if panel.kind == "timeseries":
        target["legendFormat"] = panel.legend
    else:
        # The present values alone; a table shows the labels as columns.
        target["instant"] = True
    if panel.kind == "table":
        target["format"] = "table"
    return {
        "id": number,
        "title": panel.title,
        "type": panel.kind,
        "datasource": dict(_DATASOURCE),
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit} if panel.unit else {}, "overrides": []},
        "options": {},
        "targets": [target],
    }


def config_map(cluster: Cluster) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "gpufleet-dashboard",
            "namespace": cluster.options["namespace"],
            "labels": {**MANAGED_BY, **SIDECAR_LABEL},
        },
        "data": {f"{UID}.json": json_text(dashboard(cluster))},
    }
