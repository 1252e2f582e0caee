# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""checkov on everything that is rendered; what is left as it is has its reason in checkov.yaml."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from chart_under_test import CHART, KUBERNETES

HERE = Path(__file__).parent


def findings(folder, *arguments):
    built = subprocess.run([HERE / "build-checkov.sh"], stdout=subprocess.PIPE, text=True, check=True)
    binary = built.stdout.strip().splitlines()[-1]
    command = [binary, "--directory", str(folder), "--output", "json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    answer = json.loads(done.stdout)
    assert answer["summary"]["passed"] > 100, done.stdout + done.stderr
    return {(item["check_id"], item["resource"]) for item in answer["results"]["failed_checks"]}


def test_no_finding_without_a_reason(helm, demo_tree, tmp_path):
    chart = helm(
        "template", "gpus", CHART, "--kube-version", KUBERNETES, "-n", "gpu", "-f", CHART / "ci" / "all-values.yaml"
    )
    (tmp_path / "chart.yaml").write_text(chart.stdout)
    for path in [*(demo_tree / "objects").glob("*.yaml"), *(demo_tree / "examples").glob("*.yaml")]:
        shutil.copy(path, tmp_path)
    assert findings(tmp_path, "--config-file", str(HERE / "checkov.yaml")) == set()
