# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Metrics, alerts and the dashboard's expressions, as the real promtool sees them.

Every alert is fired from what the host program writes: the texts of consecutive minutes of a host become the series of a unit test of promtool.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render import addons
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.fleet import Fleet
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.tree import cluster_tree
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._health.faults import (
    FAULTS,
    HEALTHY,
    Fault,
    record,
)

INSTANCE = "gpu01:9100"
#: A host is healthy for ten minutes, and then has its fault.
BEGINS, ENDS = 10, 130
BOARDS = {"gpu_facts_gpus": [{"board": "l40s-48gb", "count": 4}]}
BY_NAME = {alert.name: alert for alert in (*addons.ALERTS, *addons.DCGM_ALERTS)}


@pytest.fixture(scope="module")
def tree():
    """The rendered tree with everything that there is."""
    made = Fleet({"gpu_hosts": ["a"], "pool": ["a"]}, lambda _host, _variables: None)
    on = {"gpu_kubernetes_prometheus_rule": True, "gpu_kubernetes_grafana_dashboard": True}
    made.add("a", {**BOARDS, **on}, lambda value: value)
    return cluster_tree(made.clusters()[0])


@pytest.fixture(scope="module")
def rules(tree):
    """What the Prometheus operator gives to Prometheus."""
    return yaml.safe_load(tree["monitoring/prometheus-rule.yaml"])["spec"]


@pytest.fixture(scope="session")
def program():
    """The path of promtool."""
    found = subprocess.run([Path(__file__).parent / "promtool.sh"], stdout=subprocess.PIPE, text=True, check=True)
    return found.stdout.strip()


@pytest.fixture
def promtool(program, tmp_path):
    """Run promtool on files that are given as documents; answer its exit status and what it said."""

    def run(*arguments, given="", **files):
        for name, content in files.items():
            (tmp_path / f"{name}.yml").write_text(yaml.safe_dump(content, width=10**6), encoding="utf-8")
        done = subprocess.run(
            [program, *arguments],
            input=given,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def series_of(texts):
    """The series of promtool from what a host writes minute by minute; C(_) where a minute has no such sample."""
    values = {}
    for minute, text in enumerate(texts):
        for line in text.splitlines():
            if line and line[0] != "#":
                name, _space, value = line.rpartition(" ")
                values.setdefault(name, ["_"] * len(texts))[minute] = value
    return [{"series": with_instance(name), "values": " ".join(row)} for name, row in sorted(values.items())]


def with_instance(series):
    """As Prometheus stores what node_exporter serves: with the instance; an empty label is no label."""
    name, _brace, labels = series.rstrip("}").partition("{")
    kept = [label for label in re.findall(r'\w+="(?:[^"\\]|\\.)*"', labels) if not label.endswith('=""')]
    return name + "{" + ",".join([*kept, f'instance="{INSTANCE}"']) + "}"


def texts_of(fault, begins=BEGINS, ends=ENDS):
    return [(HEALTHY if minute < begins else fault).text(minute * 60.0) for minute in range(ends)]


def promtool_test(series, minute, expected):
    """A unit test of promtool: which alerts fire after C(minute); all that are not named must not."""
    return {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": series,
                "alert_rule_test": [
                    {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": expected.get(name, [])}
                    for name in BY_NAME
                    if name not in ("GpufleetDcgmExporterAbsent",) or name in expected
                ],
            }
        ],
    }


def fired(name, value=None, **labels):
    """An alert as promtool expects it, its templates filled in."""
    rule = addons.rule(BY_NAME[name])

    def filled(text):
        text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda match: labels[match.group(1)], text)
        return text.replace("{{ $value }}", str(value))

    annotations = {key: filled(text) for key, text in rule["annotations"].items()}
    own = {**rule["labels"], **({"host": INSTANCE.partition(":")[0]} if "host" in rule["labels"] else {})}
    return {"exp_labels": {**labels, **own}, "exp_annotations": annotations}


GPU_0 = {"gpu": "0", "uuid": "GPU-0", "instance": INSTANCE}


def failed_check(check):
    return {"check": check, "status": "failed", "instance": INSTANCE}


#: By alert: the labels with which it fires, and which other alerts the same fault has to fire, and when.
FIRES = {
    "GpufleetNvmlNotRead": {"source": "nvml", "instance": INSTANCE},
    "GpufleetGpuLost": {"instance": INSTANCE},
    "GpufleetNvidiaSmiFails": failed_check("nvidia_smi"),
    "GpufleetNextKernelWithoutDriver": failed_check("next_kernel"),
    "GpufleetDriverVersionsDiffer": {"instance": INSTANCE},
    "GpufleetRecoveryNeeded": {**GPU_0, "action": "gpu_reset"},
    "GpufleetXid": {"pci_address": "0000:18:00", "xid": "119", "action": "reset_gpu", "instance": INSTANCE},
    "GpufleetSxid": {"pci_address": "0000:05:00.0", "sxid": "20034", "severity": "fatal", "instance": INSTANCE},
    "GpufleetRemapFailed": GPU_0,
    "GpufleetRemapPending": GPU_0,
    "GpufleetFabricNotReady": failed_check("fabric"),
    "GpufleetMigNotAsRecorded": {"record": "mig", "instance": INSTANCE},
    "GpufleetMpsNotServing": {"pipe_directory": "/run/nvidia/mps/nvidia.com/gpu/pipe", "instance": INSTANCE},
    "GpufleetComputeModeNotAsRecorded": {"record": "compute_mode", "instance": INSTANCE},
    "GpufleetSettingsNotAsRecorded": {"record": "settings", "instance": INSTANCE},
    "GpufleetRuntimeDown": failed_check("runtime"),
    "GpufleetContainersNotServed": {"record": "cdi", "instance": INSTANCE},
}


def test_every_fault_is_fired():
    assert set(FIRES) == set(FAULTS)


def test_promtool_takes_the_metrics(promtool):
    for fault in (HEALTHY, *FAULTS.values()):
        assert promtool("check", "metrics", given=fault.text()) == (0, "")


def test_promtool_would_not_take_other_metrics(promtool):
    """The proof that the check above can fail."""
    text = HEALTHY.text().replace("_total", "").replace("# HELP gpufleet_drift", "# HELP x")
    status, said = promtool("check", "metrics", given=text)
    assert status != 0 and "gpufleet_drift no help text" in said and "_total" in said


def test_promtool_takes_the_rules(promtool, rules):
    status, said = promtool("check", "rules", "--lint=all", "--lint-fatal", "rules.yml", rules=rules)
    assert status == 0 and f"{len(BY_NAME)} rules found" in said, said


@pytest.mark.parametrize("name", FIRES)
def test_a_fault_fires_its_alert_and_no_other(promtool, rules, name):
    alert = BY_NAME[name]
    # Two minutes after it is due. What Xid errors say is new only for an hour.
    minute = BEGINS + alert.minutes + 2
    expected = {name: [fired(name, value=1, **FIRES[name])]}
    test = promtool_test(series_of(texts_of(FAULTS[name])), minute, expected)
    status, said = promtool("test", "rules", "test.yml", rules=rules, test=test)
    assert status == 0, said


@pytest.mark.parametrize("name", [name for name in FIRES if BY_NAME[name].minutes > 1])
def test_a_fault_that_passes_fires_nothing(promtool, rules, name):
    texts = [*texts_of(FAULTS[name], ends=BEGINS + BY_NAME[name].minutes - 1), *[HEALTHY.text(9e9)] * 20]
    test = promtool_test(series_of(texts), BEGINS + BY_NAME[name].minutes + 2, {})
    status, said = promtool("test", "rules", "test.yml", rules=rules, test=test)
    assert status == 0, said


def test_a_healthy_host_fires_nothing(promtool, rules):
    for minute in (5, 60, 120):
        test = promtool_test(series_of(texts_of(HEALTHY)), minute, {})
        status, said = promtool("test", "rules", "test.yml", rules=rules, test=test)
        assert status == 0, said


def test_a_host_that_is_read_no_more(promtool, rules):
    """node_exporter serves the last file for ever."""
    texts = [HEALTHY.text(min(minute, BEGINS) * 60.0) for minute in range(ENDS)]
    test = promtool_test(series_of(texts), BEGINS + 14, {})
    late = {"GpufleetMetricsStale": [fired("GpufleetMetricsStale", instance=INSTANCE)]}
    test["tests"] += promtool_test(series_of(texts), BEGINS + 16, late)["tests"]
    status, said = promtool("test", "rules", "test.yml", rules=rules, test=test)
    assert status == 0, said


def xid_host(*numbers):
    log = "".join(record(n, f"NVRM: Xid (PCI:0000:18:00): {number}, x") for n, number in enumerate(numbers))
    return Fault("xid", log=log)


@pytest.mark.parametrize(
    ("before", "after", "minute", "labels"),
    [
        ((), (31,), BEGINS + 2, None),
        ((), (31, 43, 45, 63), BEGINS + 2, None),
        ((), (94,), BEGINS + 2, {"xid": "94", "action": "restart_app"}),
        ((), (999,), BEGINS + 2, {"xid": "999", "action": "unknown"}),
        ((), (79,), BEGINS + 70, None),
        ((79,), (79, 79), BEGINS + 70, {"xid": "79", "action": "restart_bm"}),
    ],
    ids=["an application's", "applications'", "contained memory", "unknown", "an hour ago", "again"],
)
def test_which_xids_alert(promtool, rules, before, after, minute, labels):
    """An error alerts for an hour from its coming, also the first of its kind, whose series begins with it."""
    begins = BEGINS if not before else BEGINS + 60
    texts = [xid_host(*(before if at < begins else after)).text(at * 60.0) for at in range(ENDS)]
    place = {"pci_address": "0000:18:00", "instance": INSTANCE}
    expected = {"GpufleetXid": [fired("GpufleetXid", **place, **labels)]} if labels else {}
    status, said = promtool("test", "rules", "t.yml", rules=rules, t=promtool_test(series_of(texts), minute, expected))
    assert status == 0, said


def test_the_alerts_over_dcgm_exporter(promtool, rules):
    labels = {"gpu": "0", "UUID": "GPU-0", "Hostname": "gpu01"}
    pairs = ",".join(f'{name}="{value}"' for name, value in labels.items())
    rows = [{"series": f"DCGM_FI_DEV_ROW_REMAP_FAILURE{{{pairs}}}", "values": "0 0 1x40"}]
    shown = {"series": f"DCGM_FI_DEV_GPU_TEMP{{{pairs}}}", "values": "40x40"}
    failed = {"GpufleetDcgmRowRemapFailed": [fired("GpufleetDcgmRowRemapFailed", **labels)]}
    absent = {"GpufleetDcgmExporterAbsent": [fired("GpufleetDcgmExporterAbsent")]}
    seen = {"GpufleetDcgmExporterAbsent": []}
    test = promtool_test([*rows, shown], 10, {**failed, **seen})
    test["tests"] += promtool_test(rows, 20, {**failed, **absent})["tests"]
    status, said = promtool("test", "rules", "test.yml", rules=rules, test=test)
    assert status == 0, said


def test_a_rule_that_is_wrong_fails_its_test(promtool, rules):
    """The proof that the tests above can fail."""
    text = json.dumps(rules).replace("gpufleet_drift", "gpufleet_drifts")
    name = "GpufleetComputeModeNotAsRecorded"
    test = promtool_test(series_of(texts_of(FAULTS[name])), 40, {name: [fired(name, **FIRES[name])]})
    status, said = promtool("test", "rules", "test.yml", rules=json.loads(text), test=test)
    assert status != 0 and "FAILED" in said


def test_promtool_takes_every_expression_of_the_dashboard(promtool, tree):
    """As recording rules, because promtool reads expressions only there; a variable of Grafana stands for a text."""
    (text,) = yaml.safe_load(tree["monitoring/dashboard.yaml"])["data"].values()
    found = [target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"]]
    recorded = [{"record": f"panel:{number}", "expr": one} for number, one in enumerate(found)]
    status, said = promtool("check", "rules", "r.yml", r={"groups": [{"name": "dashboard", "rules": recorded}]})
    assert status == 0 and f"{len(found)} rules found" in said and len(found) > 15, said
    recorded[0]["expr"] += ")"
    assert promtool("check", "rules", "r.yml", r={"groups": [{"name": "x", "rules": recorded}]})[0] != 0
