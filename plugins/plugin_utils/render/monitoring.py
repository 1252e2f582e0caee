# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The PrometheusRule that is made of alerts.yml, and the ConfigMap from which Grafana's sidecar takes the dashboard of dashboard.yml.

Every alert names the check of C(verify) that tells of the same, in that check's words (for what a stage sets, those of C(plan)), and the section
of docs/runbooks.md that says what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...module_utils._formats.documents import read_yaml
from ...module_utils._health.xid import LOUD_XIDS, QUIET_ACTIONS
from .clusters import MANAGED_BY, DescribedCluster, kube_object
from .emit import json_text

RUNBOOKS = "https://github.com/gpufleet/gpufleet.nvidia/blob/main/docs/runbooks.md"
#: What tells extensions/eda/rulebooks/heal.yml which host to repair: the instance without its port.
REPAIR = {"repair": "heal", "host": '{{ reReplaceAll ":[0-9]+$" "" $labels.instance }}'}
#: What the sidecar of Grafana's chart looks for by default (sidecar.dashboards.label and labelValue).
SIDECAR_LABEL = {"grafana_dashboard": "1"}
_ANYTHING = "..."
_COLUMNS, _HEIGHT, _WIDTH = 24, 8, 8
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Alert:
    """One alert, with the fields that alerts.yml explains."""

    name: str
    expression: str
    severity: str
    summary: str
    remedy: str
    section: str
    check: str = ""
    minutes: int = 0
    verify: str = ""
    repair: bool = False


def _data(name: str) -> Any:
    return read_yaml(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def _alerts(entries: Iterable[Mapping[str, Any]]) -> tuple[Alert, ...]:
    quiet, loud = "|".join(QUIET_ACTIONS), "|".join(map(str, LOUD_XIDS))
    return tuple(
        Alert(**{**one, "expression": one["expression"].replace("QUIET_ACTIONS", quiet).replace("LOUD_XIDS", loud)})
        for one in entries
    )


ALERTS, DCGM_ALERTS = (_alerts(entries) for entries in _data("alerts.yml").values())
_DASHBOARD = _data("dashboard.yml")


def rule(alert: Alert) -> dict[str, Any]:
    """Return the rule as Prometheus reads it."""
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


def prometheus_rule(cluster: DescribedCluster) -> dict[str, Any]:
    """Return the object of the Prometheus operator with all alerts that make sense in C(cluster)."""
    own = {str(name): str(value) for name, value in cluster.options["prometheus_rule_labels"].items()}
    alerts = ALERTS + (DCGM_ALERTS if cluster.options["dcgm_exporter"] else ())
    spec = {"groups": [{"name": "gpufleet", "rules": [rule(alert) for alert in alerts]}]}
    labels, namespace = {**MANAGED_BY, **own}, cluster.options["namespace"]
    return kube_object("monitoring.coreos.com/v1", "PrometheusRule", "gpufleet", labels, namespace, spec=spec)


def dashboard(cluster: DescribedCluster) -> dict[str, Any]:
    """Return the dashboard as Grafana imports it, its panels row by row from the left."""
    panels: list[dict[str, Any]] = []
    x = y = 0
    for entry in _DASHBOARD["hosts"] + (_DASHBOARD["dcgm_exporter"] if cluster.options["dcgm_exporter"] else []):
        width = entry.get("width", _WIDTH)
        if x + width > _COLUMNS:
            x, y = 0, y + _HEIGHT
        place = {"x": x, "y": y, "w": width, "h": _HEIGHT}
        panels.append({"id": len(panels) + 1, "gridPos": place, **_panel(entry)})
        x += width
    return {**_DASHBOARD["dashboard"], "panels": panels}


def _panel(entry: Mapping[str, Any]) -> dict[str, Any]:
    target = {"refId": "A", "datasource": _DATASOURCE, "expr": entry["expression"]}
    if entry["kind"] == "timeseries":
        target["legendFormat"] = entry.get("legend", "")
    else:
        # The present values alone; a table shows the labels as columns.
        target["instant"] = True
    if entry["kind"] == "table":
        target["format"] = "table"
    return {
        "title": entry["title"],
        "type": entry["kind"],
        "datasource": _DATASOURCE,
        "fieldConfig": {"defaults": {"unit": entry["unit"]} if "unit" in entry else {}, "overrides": []},
        "options": {},
        "targets": [target],
    }


def dashboard_config_map(cluster: DescribedCluster) -> dict[str, Any]:
    data = {f"{_DASHBOARD['dashboard']['uid']}.json": json_text(dashboard(cluster))}
    labels, namespace = {**MANAGED_BY, **SIDECAR_LABEL}, cluster.options["namespace"]
    return kube_object("v1", "ConfigMap", "gpufleet-dashboard", labels, namespace, data=data)
