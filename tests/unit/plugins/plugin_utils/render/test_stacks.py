# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The linter on the generator's own trees, of all stacks and GitOps controllers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint import chart_values
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.finding import NOTE
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.lint import lint_files
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.fleet import Fleet
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.tree import cluster_tree
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.versions import CHARTS

from .stacks import COMMON, FLEETS, GITOPS

REPOSITORY = Path(__file__).resolve().parents[5]
#: Kinds of the tree of which the linter knows nothing.
NOT_CHECKED = {
    *("ConfigMap", "HelmRepository", "Job", "Kustomization"),
    *("Namespace", "Pod", "ResourceQuota", "RuntimeClass"),
}


@pytest.mark.parametrize("objects", ["manifests", "chart"])
@pytest.mark.parametrize("controller", [*GITOPS, "none"])
@pytest.mark.parametrize("stack", FLEETS)
def test_the_own_tree_is_clean_with_warnings_as_failures(stack, controller, objects):
    files = tree_of(stack, controller, objects)
    verdicts = lint_files(files)
    assert not {(name, one) for name, verdict in verdicts.items() for one in verdict.findings if one.level != NOTE}
    checked = {name.partition("[")[0] for name, verdict in verdicts.items() if not verdict.not_checked}
    assert {path for path in files if "/values/" in path} <= checked
    assert {verdict.not_checked for verdict in verdicts.values()} - {""} <= NOT_CHECKED


def tree_of(stack, controller, objects):
    pools = FLEETS[stack]
    fleet = Fleet(
        {"gpu_hosts": [f"{pool}-1" for pool in pools], **{pool: [f"{pool}-1"] for pool in pools}}, lambda *_of: None
    )
    for pool, variables in pools.items():
        options = {**COMMON, **GITOPS.get(controller, {}), "gpu_kubernetes_objects": objects}
        fleet.add(f"{pool}-1", {**options, **variables, "gpu_kubernetes_cluster": "one"}, lambda value: value)
    (cluster,) = fleet.clusters()
    return {f"clusters/one/{path}": text for path, text in cluster_tree(cluster).items() if path.endswith(".yaml")}


@pytest.mark.parametrize("controller", [*GITOPS, "none"])
def test_the_published_hook_passes_on_the_own_trees(controller, tmp_path):
    """With the files that pre-commit would give it, and with all."""
    (hook,) = yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text())
    for number, stack in enumerate(FLEETS):
        for path, text in tree_of(stack, controller, "manifests").items():
            file = tmp_path / str(number) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    every = [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*.yaml"))]
    program = [sys.executable, *hook["entry"].replace("tools/", f"{REPOSITORY}/tools/").split()]
    for files in ([path for path in every if re.search(hook["files"], path)], every):
        done = subprocess.run([*program, *files], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert files and (done.returncode, done.stderr) == (0, ""), done.stdout


def test_the_keys_are_those_of_the_pinned_charts():
    assert {name: version for name, (version, _keys) in chart_values.charts().items()} == {
        name: chart.version for name, chart in CHARTS.items()
    }
