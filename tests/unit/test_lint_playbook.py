# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook lint with a real ansible-playbook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

COLLECTIONS = str(Path(__file__).resolve().parents[2] / "build" / "collections")
GOOD = "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 4\n"
CLASS = "{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: NAME}, spec: {extendedResourceName: example.com/gpu}}"
BAD = GOOD.replace("timeSlicing", "timeslicing")


@pytest.mark.parametrize(
    ("patterns", "passes", "said"),
    [
        (["conf/*.yaml"], False, "bad.yaml:\n  sharing.timeslicing: "),
        # A run of ansible-playbook each.
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                (["conf/good.yaml"], True, "conf/good.yaml does what it says"),
                (["conf/none-*.yaml"], False, "device_plugin_lint_files: no file matches"),
                (["conf/good.yaml", "conf/none.yaml"], False, "conf/none.yaml"),
                ([], False, "Name the files"),
                (["conf/class-one.yaml"], True, "conf/class-one.yaml does what it says"),
                (["conf/class-*.yaml"], False, "has example.com/gpu, too"),
                (["conf/latin.yml"], False, "the file is not UTF-8"),
                (["conf/other.yaml"], True, "conf/other.yaml: not checked: Deployment"),
            )
        ),
    ],
)
def test_files_are_looked_for_where_the_user_stands_and_none_is_a_failure(tmp_path, patterns, passes, said):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "good.yaml").write_text(GOOD)
    (tmp_path / "conf" / "bad.yaml").write_text(BAD)
    for name in ("one", "two"):
        (tmp_path / "conf" / f"class-{name}.yaml").write_text(CLASS.replace("NAME", name))
    (tmp_path / "conf" / "other.yaml").write_text("{apiVersion: apps/v1, kind: Deployment, metadata: {name: x}}\n")
    (tmp_path / "conf" / "latin.yml").write_bytes(b"version: v1\n# caf\xe9\n")
    program = Path(sys.executable).parent / "ansible-playbook"
    variables = json.dumps({"device_plugin_lint_files": patterns})
    done = subprocess.run(
        [str(program), "-i", "localhost,", "gpufleet.nvidia.lint", "-e", variables],
        cwd=tmp_path,
        env={**os.environ, "PWD": str(tmp_path), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_COLLECTIONS_PATH": COLLECTIONS},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) is passes, done.stdout + done.stderr
    assert said in done.stdout
