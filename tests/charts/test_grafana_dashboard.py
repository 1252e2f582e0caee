# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rendered dashboard, as the real TypeScript compiler sees it against the schema that Grafana publishes: no Grafana runs here.

A dashboard is a literal of Grafana's own types, so that a property that a panel's plugin does not know is an error as much as a wrong value.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.fleet import Fleet
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.tree import cluster_tree

HERE = Path(__file__).parent
#: Release of Grafana, to where it publishes the type of a Prometheus query. The oldest is that of the dashboard's schemaVersion.
RELEASES = {
    "10.4.19": (
        "PrometheusDataQuery",
        "@grafana/schema/dist/esm/raw/composable/prometheus/dataquery/x/PrometheusDataQuery_types.gen",
    ),
    "13.2.3": ("Prometheus", "./node_modules/@grafana/prometheus/dist/types/dataquery"),
}
STRICT = {
    "strict": True,
    "noEmit": True,
    "noErrorTruncation": True,
    # Of the Prometheus plugin there are the types of its queries, and not all that its other files import.
    "skipLibCheck": True,
    "module": "esnext",
    "moduleResolution": "bundler",
    "target": "es2022",
}


@pytest.fixture(scope="session")
def schemas():
    """Return the folder with the compiler and the schema of each release."""
    found = subprocess.run([HERE / "grafana-schema.sh"], stdout=subprocess.PIPE, text=True, check=True)
    return Path(found.stdout.strip())


@pytest.fixture(scope="module")
def board():
    """The rendered dashboard with everything that there is."""
    made = Fleet({"gpu_hosts": ["a"], "pool": ["a"]}, lambda _host, _variables: None)
    boards = {"gpu_facts_gpus": [{"board": "l40s-48gb", "count": 4}]}
    made.add("a", {**boards, "gpu_kubernetes_grafana_dashboard": True}, lambda value: value)
    (text,) = yaml.safe_load(cluster_tree(made.clusters()[0])["monitoring/dashboard.yaml"])["data"].values()
    return json.loads(text)


def panel(board, kind):
    """The first panel of a kind."""
    return next(one for one in board["panels"] if one["type"] == kind)


def defaults(board, kind):
    """The field configuration of the first panel of a kind."""
    return panel(board, kind)["fieldConfig"]["defaults"]


def target(board, kind):
    """The query of the first panel of a kind."""
    return panel(board, kind)["targets"][0]


LEGEND = {"showLegend": True, "calcs": [], "displayMode": "list", "placement": "right"}
#: What plugins have and this dashboard leaves to their defaults: without these a type that refuses everything would do, too.
OTHERWISE = {
    "options and a drawing of their own plugins": lambda board: (
        panel(board, "stat").update(options={"graphMode": "none", "textMode": "value_and_name"}),
        panel(board, "table").update(options={"showHeader": True, "cellHeight": "sm"}),
        defaults(board, "table").update(custom={"filterable": True, "align": "left"}),
        panel(board, "timeseries").update(options={"legend": LEGEND}),
        defaults(board, "timeseries").update(custom={"drawStyle": "line", "fillOpacity": 10}),
        defaults(board, "timeseries").update(color={"mode": "palette-classic"}),
    ),
}
#: What is wrong with a dashboard, how it is made so, and the word that the compiler stops at.
MISTAKES = {
    "a property that no dashboard has": (lambda board: board.update(colour="red"), "colour"),
    "a time that is no text": (lambda board: board["time"].update(to=5), "'number'"),
    "a panel without its width": (lambda board: panel(board, "stat")["gridPos"].pop("w"), "'w'"),
    "a panel of another plugin": (lambda board: panel(board, "stat").update(type="graph"), '"graph"'),
    "a stat's option in a table": (
        lambda board: panel(board, "table").update(options={"graphMode": "none"}),
        "'string' is not assignable",
    ),
    "a colour mode that no stat has": (
        lambda board: panel(board, "stat").update(options={"colorMode": "rainbow"}),
        '"rainbow"',
    ),
    "a legend on the left": (
        lambda board: panel(board, "timeseries").update(options={"legend": {**LEGEND, "placement": "left"}}),
        '"left"',
    ),
    "a drawing style that there is not": (
        lambda board: defaults(board, "timeseries").update(custom={"drawStyle": "dots"}),
        '"dots"',
    ),
    "a column's property in a time series": (
        lambda board: defaults(board, "timeseries").update(custom={"filterable": True}),
        "filterable",
    ),
    "a drawing style in a stat": (
        lambda board: defaults(board, "stat").update(custom={"drawStyle": "line"}),
        "'string' is not assignable",
    ),
    "a unit that is no text": (lambda board: defaults(board, "timeseries").update(unit=1), "'number'"),
    "a query without its expression": (lambda board: target(board, "stat").pop("expr"), "expr"),
    "a query in another format": (lambda board: target(board, "table").update(format="csv"), '"csv"'),
    "a property of SQL in a query": (lambda board: target(board, "table").update(rawSql="SELECT 1"), "rawSql"),
    "a query of another data source": (
        lambda board: target(board, "table")["datasource"].update(type="loki"),
        '"loki"',
    ),
    "a variable that is read at no known time": (
        lambda board: board["templating"]["list"][1].update(refresh=7),
        "'7'",
    ),
    "a variable of another kind": (lambda board: board["templating"]["list"][1].update(type="list"), '"list"'),
}


@pytest.fixture(scope="module", params=RELEASES)
def errors(request, schemas, board, tmp_path_factory):
    """What the compiler says, against the schema of a release, of the dashboard and of each that was made of it; by their names."""
    variants = {"rendered": board}
    for name, make in [*OTHERWISE.items(), *((name, make) for name, (make, _said) in MISTAKES.items())]:
        variants[name] = copy.deepcopy(board)
        make(variants[name])
    folder = tmp_path_factory.mktemp("typescript")
    (folder / "node_modules").symlink_to(schemas / request.param / "node_modules")
    shutil.copy(HERE / "grafana_dashboard.ts", folder)
    query, module = RELEASES[request.param]
    (folder / "prometheus_query.ts").write_text(f'export type {{ {query} as PrometheusQuery }} from "{module}";\n')
    files = {f"board_{number}.ts": name for number, name in enumerate(variants)}
    for file, name in files.items():
        literal = json.dumps(variants[name], indent=1)
        (folder / file).write_text(
            f'import type {{ Dashboard }} from "./grafana_dashboard";\nexport const board: Dashboard = {literal};\n'
        )
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": STRICT, "files": list(files)}))
    done = subprocess.run(
        ["node", schemas / "compiler/node_modules/typescript/lib/tsc.js", "--pretty", "false"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    found = dict.fromkeys(variants, "")
    # A message begins with the place, and goes on in lines that are indented.
    for message in re.split(r"\n(?!\s)", done.stdout.rstrip("\n")):
        file = message.partition("(")[0]
        assert file in files, done.stdout + done.stderr
        found[files[file]] += message
    return found


def test_grafanas_own_types_take_the_dashboard(errors, board):
    assert {"stat", "table", "timeseries"} == {one["type"] for one in board["panels"]}
    assert errors["rendered"] == ""


@pytest.mark.parametrize("variant", OTHERWISE)
def test_grafanas_own_types_take_what_its_plugins_have(errors, variant):
    assert errors[variant] == ""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_grafanas_own_types_refuse_a_mistake(errors, mistake):
    """The proof that the tests above can fail, and that each part is held against the type of its own plugin."""
    assert MISTAKES[mistake][1] in errors[mistake]
