# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Alerts, the dashboard and docs/runbooks.md, held against the code that they quote. What promtool says of them is in tests/charts."""

from __future__ import annotations

import datetime
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import Xid
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.checks import NAMES
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.hardware import RECOVERIES
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.metrics import METRICS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.repair_faults import Described
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.repair_plan import Policy, plan_repair
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.repair_record import RepairRecord
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.report import Evidence
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.xid import QUIET_ACTIONS, action_of, xid
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.xid_catalogue import CATALOGUE
from ansible_collections.gpufleet.nvidia.plugins.module_utils._schema import encode
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.expectations import different_resources
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render import addons
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.tree import cluster_tree
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.stages import STAGES
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._health.faults import FAULTS

DOCS = Path(__file__).resolve().parents[5] / "docs"
ALL = (*addons.ALERTS, *addons.DCGM_ALERTS)
OF_CHECKS = [alert for alert in addons.ALERTS if alert.check in NAMES]
#: What a stage sets: verify says so in the words of plan.
OF_STAGES = [alert for alert in addons.ALERTS if alert.check and alert.check not in NAMES]
PLANS = Path(__file__).resolve().parents[3] / "golden" / "plans.txt"
NAME = re.compile(r"\b(?:gpufleet|DCGM_FI)_\w+")
ON = {"prometheus_rule": True, "grafana_dashboard": True}


def sections(text):
    """The text of every section by its anchor, as GitHub makes them."""
    found = {}
    for block in re.split(r"^#+ ", text, flags=re.MULTILINE)[1:]:
        title, _newline, body = block.partition("\n")
        found[re.sub(r"[^\w -]", "", title.strip().lower()).replace(" ", "-")] = body
    return found


RUNBOOKS = sections((DOCS / "runbooks.md").read_text(encoding="utf-8"))


def said(alert):
    """What the check of an alert says of the host with its fault."""
    return FAULTS[alert.name].report().outcomes[alert.check]


def test_every_fault_has_an_alert_and_every_alert_of_a_check_a_fault():
    assert set(FAULTS) == {alert.name for alert in (*OF_CHECKS, *OF_STAGES)}
    assert {alert.check for alert in OF_STAGES} <= {f"stage {name}" for name in STAGES}
    assert len({alert.name for alert in ALL}) == len(ALL)


def _uncorrected_without_recovery_action(facts):
    for gpu in facts["gpus"]:
        gpu["recovery_action"] = None
        gpu["errors"]["uncorrected"] = 1


def _degraded_fabric(facts):
    facts["gpus"][0]["fabric"]["degraded"] = ["bandwidth"]


def _new_driver_on_disk(facts):
    facts["driver"]["on_disk_version"] = facts["driver"]["library_version"]


#: Where heal acts on a fault in some cases only: what makes the fault such a case.
ACTED_ON = {
    "GpufleetXid": _uncorrected_without_recovery_action,
    "GpufleetSxid": _degraded_fabric,
    "GpufleetDriverVersionsDiffer": _new_driver_on_disk,
}


@pytest.mark.parametrize("alert", ALL, ids=lambda alert: alert.name)
def test_the_rulebook_is_started_by_what_heal_acts_on_and_by_nothing_else(alert):
    labels = addons.rule(alert)["labels"]
    assert labels.get("repair") == ("heal" if alert.repair else None)
    assert ("host" in labels) is alert.repair
    fault = FAULTS.get(alert.name)
    if fault is None:
        assert not alert.repair, "there is no fault with which it could be tried"
        return
    policy = Policy(datetime.datetime(2026, 11, 23, tzinfo=datetime.timezone.utc))
    evidence = fault.evidence()
    document = encode(evidence.facts)
    ACTED_ON.get(alert.name, lambda _facts: None)(document)
    evidence = replace(evidence, facts=seen(document))
    assert plan_repair(evidence, Described(), RepairRecord(), policy).needed is alert.repair


def test_the_rulebook_looks_at_labels_that_the_rules_have():
    path = DOCS.parent / "extensions" / "eda" / "rulebooks" / "heal.yml"
    text = path.read_text(encoding="utf-8")
    (ruleset,) = yaml.safe_load(text)
    (rule,) = ruleset["rules"]
    assert set(re.findall(r"commonLabels\.(\w+)", text)) == set(addons.REPAIR)
    assert f'commonLabels.repair == "{addons.REPAIR["repair"]}"' in rule["condition"]
    assert (DOCS.parent / "playbooks" / f"{rule['action']['run_playbook']['name'].rpartition('.')[2]}.yml").exists()
    documented = re.search(r"```yaml\n(route:.*?)```", (DOCS / "heal.md").read_text(encoding="utf-8"), re.DOTALL)
    (route,) = yaml.safe_load(documented[1])["route"]["routes"]
    assert route["matchers"] == [f'repair = "{addons.REPAIR["repair"]}"'] and sorted(route["group_by"]) == sorted(
        addons.REPAIR
    )


@pytest.mark.parametrize("alert", OF_CHECKS, ids=lambda alert: alert.name)
def test_an_alert_says_what_verify_says(alert):
    outcome = said(alert)
    assert outcome.status in ("failed", "warning"), outcome
    assert FAULTS[alert.name].check == alert.check
    pattern = ".+".join(re.escape(part) for part in alert.verify.split("..."))
    assert re.fullmatch(pattern, outcome.evidence), (pattern, outcome.evidence)


@pytest.mark.parametrize("alert", ALL, ids=lambda alert: alert.name)
def test_an_alert_has_a_section_that_names_it(alert):
    assert f"`{alert.name}`" in RUNBOOKS[alert.section]
    annotations = addons.rule(alert)["annotations"]
    assert set(annotations) == {"summary", "verify", "remedy", "runbook_url"} and all(annotations.values())
    assert annotations["runbook_url"].endswith(f"docs/runbooks.md#{alert.section}")


@pytest.mark.parametrize("alert", OF_CHECKS, ids=lambda alert: alert.name)
def test_the_runbook_quotes_what_verify_says(alert):
    outcome = said(alert)
    page = RUNBOOKS[alert.section]
    assert f"`{alert.check}`: {outcome.evidence}" in page, outcome.evidence


@pytest.mark.parametrize("alert", OF_STAGES, ids=lambda alert: alert.name)
def test_an_alert_of_a_stage_says_what_plan_says_and_so_does_its_runbook(alert):
    assert FAULTS[alert.name].check == alert.check
    pattern = re.compile(".+".join(re.escape(part) for part in alert.verify.split("...")))
    planned = PLANS.read_text(encoding="utf-8")
    (quoted,) = (
        line.partition(": ")[2]
        for line in RUNBOOKS[alert.section].splitlines()
        if line.startswith(f"> `{alert.check}`") and pattern.search(line)
    )
    assert pattern.search(planned) and quoted in planned


def test_the_runbooks_name_no_alert_that_there_is_not():
    named = {name for text in RUNBOOKS.values() for name in re.findall(r"`(Gpufleet\w+)`", text)}
    assert named == {alert.name for alert in ALL}


def test_the_runbook_says_what_verify_says_for_every_class_of_xid():
    page = RUNBOOKS["xid-errors-by-class"]
    rows = {}
    for line in page.splitlines():
        if line.startswith("| `"):
            names, row = line[1:].split("|", 1)
            rows.update(dict.fromkeys(re.findall(r"`(\w+)`", names), row))
    loud = {number: action_of(Xid(number, "0000:18:00", "")) for number in CATALOGUE}
    for number, action in loud.items():
        outcome = xid(Evidence(seen({}), xids=[Xid(number, "0000:18:00", "")]))
        remedy = outcome.next_step.partition(": ")[2]
        if action in QUIET_ACTIONS:
            assert "no alert" in rows[action], action
        else:
            assert remedy and remedy in rows[action], action
    assert "unknown" in rows


def test_the_runbook_has_every_recovery_action():
    page = RUNBOOKS["the-driver-asks-for-a-recovery"]
    assert [name for name, one in RECOVERIES.items() if f"| `{name}` | {one.remedy} |" not in page] == []


def test_the_runbook_quotes_the_check_of_a_node():
    (text,) = different_resources({}, {"nvidia.com/gpu": 8})
    assert f"`allocatable`: {text}" in RUNBOOKS["node-shows-0-gpus"]


def test_links_between_sections_lead_somewhere():
    for name in ("runbooks.md", "monitoring.md"):
        text = (DOCS / name).read_text(encoding="utf-8")
        for page, anchor in re.findall(r"\]\(([\w.]*)#([\w-]+)\)", text):
            there = sections((DOCS / (page or name)).read_text(encoding="utf-8"))
            assert anchor in there, (name, page, anchor)


def expressions(board):
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def test_expressions_are_over_metrics_that_somebody_writes(clusters_of, pools):
    # The counters that dcgm-exporter shows by default: etc/default-counters.csv of NVIDIA/dcgm-exporter.
    theirs = (Path(__file__).parent / "data" / "dcgm_default_counters.txt").read_text(encoding="utf-8").split()
    known = {metric.name for metric in METRICS} | set(theirs)
    (cluster,) = clusters_of(pools, **ON)
    board = addons.dashboard(cluster)
    used = {name for text in (*expressions(board), *(alert.expression for alert in ALL)) for name in NAME.findall(text)}
    assert used <= known and len(used) > 15


def test_monitoring_is_off_by_default_and_has_a_folder_of_its_own(clusters_of, pools):
    assert not [path for path in cluster_tree(clusters_of(pools)[0]) if "monitoring" in path]
    options = {"gitops": "argocd", "gitops_repository": "https://git.example.com/x.git"}
    tree = cluster_tree(clusters_of(pools, **ON, **options)[0])
    assert [path for path in tree if "monitoring" in path] == [
        "argocd/monitoring.yaml",
        "monitoring/dashboard.yaml",
        "monitoring/prometheus-rule.yaml",
    ]
    application = yaml.safe_load(tree["argocd/monitoring.yaml"])
    assert application["spec"]["source"]["path"] == "clusters/cluster/monitoring"
    assert "SkipDryRunOnMissingResource=true" in application["spec"]["syncPolicy"]["syncOptions"]
    flux = cluster_tree(clusters_of(pools, grafana_dashboard=True, gitops="flux", gitops_source="x")[0])
    assert yaml.safe_load(flux["flux/monitoring.yaml"])["spec"]["path"] == "./clusters/cluster/monitoring"
    assert "monitoring/prometheus-rule.yaml" not in flux


def test_the_prometheus_of_the_site_finds_the_rules_by_its_own_label(clusters_of, pools):
    tree = cluster_tree(clusters_of(pools, prometheus_rule=True, prometheus_rule_labels={"release": "site"})[0])
    rule = yaml.safe_load(tree["monitoring/prometheus-rule.yaml"])
    assert rule["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "gpufleet", "release": "site"}
    names = [one["alert"] for one in rule["spec"]["groups"][0]["rules"]]
    assert names == [alert.name for alert in ALL]


def test_without_dcgm_exporter_nothing_is_asked_of_it(clusters_of, pools):
    tree = cluster_tree(clusters_of(pools, dcgm_exporter=False, **ON)[0])
    assert "DCGM" not in tree["monitoring/prometheus-rule.yaml"] + tree["monitoring/dashboard.yaml"]


def test_the_dashboard_has_what_grafana_needs_as_far_as_that_shows_without_a_grafana(clusters_of, pools):
    config_map = yaml.safe_load(cluster_tree(clusters_of(pools, **ON)[0])["monitoring/dashboard.yaml"])
    ((name, text),) = config_map["data"].items()
    board = json.loads(text)
    assert name.endswith(".json") and config_map["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", board["uid"]) and board["title"] and board["schemaVersion"]
    panels = board["panels"]
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
    assert {panel["type"] for panel in panels} <= {"stat", "table", "timeseries"}
    cells = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        mine = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & mine, f"{panel['title']} lies over another panel"
        cells |= mine
        assert panel["title"] and [target["refId"] for target in panel["targets"]] == ["A"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        if panel["type"] == "timeseries":
            assert panel["targets"][0]["legendFormat"]
    variables = {variable["name"]: variable["type"] for variable in board["templating"]["list"]}
    assert variables == {"datasource": "datasource", "instance": "query"}
    used = set(re.findall(r"\$\{?(\w+)", " ".join(expressions(board))))
    assert used <= set(variables)
