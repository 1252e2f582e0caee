# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values of the charts beside the device plugin: node feature discovery, metrics, HAMi and the DRA driver; alerts and the dashboard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...module_utils._formats.documents import table
from ...module_utils._formats.imex import HOST, MASKED
from ...module_utils._formats.imex import VARIABLE as IMEX
from ...module_utils._health.xid import LOUD_XIDS, QUIET_ACTIONS
from ...module_utils._plan import Refused
from ..fleet.capacity import HAMI_SPLIT
from ..fleet.served import FIRST_WITH_CLAIMS, GATE, MIGRATED_LABEL, ON_BY_DEFAULT, SERVERS
from ..fleet.text import CONFIGURATION_LABEL
from . import injection
from .clusters import (
    BACKEND_LABEL,
    MANAGED_BY,
    NOT_PAUSED,
    DescribedCluster,
    PluginConfiguration,
    any_of,
    client_affinity,
    kube_object,
)
from .emit import json_text, made
from .helm_values import extra_values, render_values
from .versions import DRA_DRIVER, NODE_FEATURE_DISCOVERY

DCGM_EXPORTER = "dcgm-exporter"
HAMI = "hami"


def node_feature_discovery(cluster: DescribedCluster) -> str:
    return render_values(cluster, NODE_FEATURE_DISCOVERY)


def dcgm_exporter(cluster: DescribedCluster) -> str:
    needed = any(item.injection.driver_pods_need_sys_admin for item in cluster.configurations)
    return render_values(cluster, DCGM_EXPORTER, affinity=_of_all_pools(cluster), needs_sys_admin=needed)


def _of_all_pools(cluster: DescribedCluster) -> dict[str, Any]:
    """Return the affinity to the nodes of all pools: those that Node Feature Discovery labels, and those of groups that have labels of their own."""
    groups = [item.match.labels for item in cluster.configurations if item.match.labels]
    return any_of(
        [{"key": CONFIGURATION_LABEL, "operator": "Exists"}, *cluster.only_moved, NOT_PAUSED],
        *(
            [*({"key": key, "operator": "In", "values": [value]} for key, value in labels.items()), NOT_PAUSED]
            for labels in groups
        ),
    )


def hami(cluster: DescribedCluster, items: tuple[PluginConfiguration, ...]) -> str:
    injected = injection.hami_values(injection.common(cluster, items, "HAMi"))
    return render_values(
        cluster, HAMI, pools=_pools(items), split=HAMI_SPLIT, injected=injected, backend_label=BACKEND_LABEL
    )


def _pools(items: Iterable[PluginConfiguration]) -> str:
    return ", ".join(dict.fromkeys(item.pool for item in items))


def dra_driver(cluster: DescribedCluster, items: tuple[PluginConfiguration, ...]) -> str:
    """Return values of the DRA driver: whole GPUs and MIG devices, or memory of GPUs, which nobody enforces; and ComputeDomains.

    :raises Refused: the cluster's Kubernetes has no such claims, or its pools need two different drivers.
    """
    claims = tuple(item for item in items if item.served_by_dra)
    domains = tuple(item for item in items if item.compute_domains)
    version = injection.kubernetes_version(cluster)
    if version < FIRST_WITH_CLAIMS:
        raise Refused(
            f"{'nvidia_sharing_backend' if claims else IMEX} of pool {items[0].pool}",
            f"{'dra' if claims else MASKED} needs resource.k8s.io/v1, which Kubernetes {cluster.options['version']} does not have",
            "Use Kubernetes 1.34.2 or newer (1.36 where pods request nvidia.com/gpu from DRA, or 1.34 with the feature gate DRAExtendedResource), "
            + (
                "or nvidia_sharing_backend: hami or mps."
                if claims
                else f"or run IMEX on the hosts with {IMEX}: {HOST}."
            ),
        )
    _refuse_two_kinds_of_nodes(cluster, claims, domains)
    slices = _claims_memory(cluster, claims)
    if slices:
        _refuse_shares_of_later_gpus(cluster, claims, version)
    affinity = (
        any_of(*_served_by_claims(claims))
        if claims
        else client_affinity({"key": CONFIGURATION_LABEL, "operator": "In", "values": [item.name for item in domains]})
    )
    return render_values(
        cluster,
        DRA_DRIVER,
        claims=bool(claims),
        memory=slices,
        domains=_pools(domains),
        pools=_pools(items),
        migrated=_pools(item for item in claims if item.sharing.migrate_from),
        shared=_shared(claims),
        affinity=affinity,
        version=".".join(map(str, version)),
        by_default=version >= ON_BY_DEFAULT,
        gate=GATE,
    )


def _served_by_claims(claims: tuple[PluginConfiguration, ...]) -> list[list[Mapping[str, Any]]]:
    """Return the nodes that the driver serves: those of its pools, without what was migrated away, and what was migrated to it."""
    # Also after a migration: the label of the pool may go from the nodes later than this release changes.
    stays = {"key": MIGRATED_LABEL, "operator": "NotIn", "values": [SERVERS["mps"]]}
    terms: list[list[Mapping[str, Any]]] = [
        [{"key": BACKEND_LABEL, "operator": "In", "values": ["dra"]}, stays, NOT_PAUSED]
    ]
    arriving = [item.name for item in claims if item.sharing.migrate_from == "mps"]
    if arriving:
        there = {"key": MIGRATED_LABEL, "operator": "In", "values": [SERVERS["dra"]]}
        terms.append([{"key": CONFIGURATION_LABEL, "operator": "In", "values": arriving}, there, NOT_PAUSED])
    return terms


def _refuse_two_kinds_of_nodes(
    cluster: DescribedCluster, claims: tuple[PluginConfiguration, ...], domains: tuple[PluginConfiguration, ...]
) -> None:
    """Refuse nodes on which the driver would offer GPUs that the device plugin offers, too: one driver does the same on all its nodes."""
    plugin = [item for item in domains if not item.served_by_dra]
    if claims and plugin:
        raise Refused(
            f"{IMEX} of pool {plugin[0].pool}",
            f"it is {MASKED}, and one DRA driver of cluster {cluster.name} would run its ComputeDomains and serve the GPUs of pool "
            f"{claims[0].pool} by claims (nvidia_sharing_backend: dra): on nodes of pool {plugin[0].pool} it would offer the same GPUs "
            "as the device plugin",
            "Set nvidia_sharing_backend: dra for both pools or for none, or give them different clusters (gpu_kubernetes_cluster).",
        )


def _claims_memory(cluster: DescribedCluster, items: tuple[PluginConfiguration, ...]) -> bool:
    """Return whether claims are for memory; refuse pools of one driver that differ in that, and values that destroy the hosts' MIG instances."""
    sliced = [item for item in items if item.sharing.consumed]
    whole = [item for item in items if not item.sharing.consumed]
    if sliced and whole:
        reason = f"one DRA driver of cluster {cluster.name} serves it and pool {whole[0].pool}, whose pods claim whole devices"
        remedy = "Set it for both pools or for none, or give them different clusters (gpu_kubernetes_cluster)."
        raise Refused(f"nvidia_sharing_memory_slice of pool {sliced[0].pool}", reason, remedy)
    gates = extra_values(cluster, DRA_DRIVER).get("featureGates")
    for gate in _DYNAMIC_MIG:
        if isinstance(gates, dict) and gates.get(gate):
            reason = "when it starts, the driver then destroys MIG instances that it did not create: those of nvidia_mig_layout"
            remedy = "Remove it: the hosts partition their GPUs, and pods claim what is there."
            raise Refused(f"gpu_kubernetes_values['{DRA_DRIVER}'].featureGates.{gate}", reason, remedy)
    return bool(sliced)


#: The scheduler of 1.34 compares every request with what is left of a node's first device (kubernetes#133705), so that nobody gets a share of the
#: others once that is full; seen with 1.34.4 on a node of two GPUs.
_FIRST_WITH_SHARES_OF_ALL = (1, 35)


def _refuse_shares_of_later_gpus(
    cluster: DescribedCluster, items: tuple[PluginConfiguration, ...], version: tuple[int, int]
) -> None:
    if version >= _FIRST_WITH_SHARES_OF_ALL:
        return
    for item in items:
        if item.gpus > 1:
            raise Refused(
                f"nvidia_sharing_memory_slice of pool {item.pool}",
                f"its nodes have {item.gpus} GPUs, and Kubernetes {cluster.options['version']} allocates shares of the first one of a node only "
                "(kubernetes/kubernetes#133705)",
                "Use Kubernetes 1.35 or newer with the feature gate DRAConsumableCapacity (1.36 has it by default), or nvidia_sharing_backend: hami.",
            )


#: By these the driver has dynamic MIG; the second switches on all gates that are alpha (k8s.io/component-base/featuregate).
_DYNAMIC_MIG = ("DynamicMIG", "AllAlpha")
#: Feature gates of the driver under which it takes the sharing of a claim (pkg/featuregates, both alpha and off by default).
_SHARING_GATES = {"time_slicing": "TimeSlicingSettings", "mps": "MPSSupport"}


def _shared(items: tuple[PluginConfiguration, ...]) -> list[tuple[str, str, str]]:
    """Return the modes in which pods share devices of claims, each with the gate of the driver that it needs, and its pools."""
    found = []
    for mode, gate in _SHARING_GATES.items():
        pools = _pools(item for item in items if item.sharing.claims_shared and item.sharing.mode == mode)
        if pools:
            found.append((mode, gate, pools))
    return found


# The PrometheusRule that is made of alerts.yml, and the ConfigMap from which Grafana's sidecar takes the dashboard of dashboard.yml.
# Every alert names the check of C(verify) that tells of the same, in that check's words (for what a stage sets, those of C(plan)), and the section
# of docs/runbooks.md that says what to do.

RUNBOOKS = "https://github.com/gpufleet/gpufleet.nvidia/blob/main/docs/runbooks.md"
#: What tells extensions/eda/rulebooks/heal.yml which host to repair: the instance without its port.
REPAIR = {"repair": "heal", "host": '{{ reReplaceAll ":[0-9]+$" "" $labels.instance }}'}
#: What the sidecar of Grafana's chart looks for by default (sidecar.dashboards.label and labelValue).
SIDECAR_LABEL = {"grafana_dashboard": "1"}
_ANYTHING = "..."
_COLUMNS, _HEIGHT, _WIDTH = 24, 8, 8


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


def _alerts(entries: Iterable[Mapping[str, Any]]) -> tuple[Alert, ...]:
    quiet, loud = "|".join(QUIET_ACTIONS), "|".join(map(str, LOUD_XIDS))
    return tuple(
        Alert(**{**one, "expression": one["expression"].replace("QUIET_ACTIONS", quiet).replace("LOUD_XIDS", loud)})
        for one in entries
    )


ALERTS, DCGM_ALERTS = (_alerts(entries) for entries in table(str(__package__), "alerts").values())
_DASHBOARD = table(str(__package__), "dashboard")


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
        panels.append({"id": len(panels) + 1, "gridPos": place, **made("panel", **{"legend": "", "unit": "", **entry})})
        x += width
    return {**_DASHBOARD["dashboard"], "panels": panels}


def dashboard_config_map(cluster: DescribedCluster) -> dict[str, Any]:
    data = {f"{_DASHBOARD['dashboard']['uid']}.json": json_text(dashboard(cluster))}
    labels, namespace = {**MANAGED_BY, **SIDECAR_LABEL}, cluster.options["namespace"]
    return kube_object("v1", "ConfigMap", "gpufleet-dashboard", labels, namespace, data=data)
