# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The linter as a program of its own, as pre-commit and people start it: Python and PyYAML, and no Ansible."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "device-plugin-lint"
NODE = {
    "gpus": [{"index": 0, "mig": {"current": False}}],
    "toolkit": {"accept_envvar_unprivileged": False, "accept_volume_mounts": False},
    "runtimes": {"containerd": {"version": "2.1.5"}},
}
VALUES = "config: {map: {a: 'version: v1'}}\n"


def run(tmp_path, text, *arguments):
    file = tmp_path / "values.yaml"
    file.write_text(text)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, str(TOOL), *arguments, str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        (
            f"deviceListStrategy: envvar\n{VALUES}",
            1,
            "error: this node's container toolkit and runtime do not accept envvar",
        ),
        (VALUES, 0, "warning: the plugin's default is envvar"),
        ("config: {map: {a: 'version: v2'}}\n", 1, "values.yaml[config.map.a]: version: error: unknown version: v2"),
    ],
)
def test_somebody_elses_values_with_the_facts_of_a_node(tmp_path, text, status, said):
    facts = tmp_path / "facts.json"
    facts.write_text(json.dumps(NODE))
    done = run(tmp_path, text, "--facts", str(facts))
    assert (done.returncode, done.stderr) == (status, "")
    assert said in done.stdout


def test_a_file_that_is_not_there_is_no_clean_file(tmp_path):
    done = run(tmp_path, "version: v1\n", "missing.yaml")
    assert done.returncode == 2
    assert "missing.yaml" in done.stderr


def test_facts_with_a_field_that_does_not_fit_are_no_facts_of_a_clean_node(tmp_path):
    facts = tmp_path / "facts.json"
    facts.write_text(json.dumps({**NODE, "toolkit": {"accept_envvar_unprivileged": "no"}}))
    done = run(tmp_path, VALUES, "--facts", str(facts))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "device-plugin-lint: the facts of the node: toolkit.accept_envvar_unprivileged: 'no' must be true or false."
    )


def test_a_file_that_is_not_utf_8_is_named(tmp_path):
    (tmp_path / "latin.yaml").write_bytes(b"version: v1\n# caf\xe9\n")
    done = run(tmp_path, "version: v1\n", "latin.yaml")
    assert (done.returncode, done.stderr) == (1, "")
    assert (
        done.stdout.splitlines()[0]
        == "latin.yaml: error: invalid YAML: the file is not UTF-8 (at character 17). Save it as UTF-8."
    )


def test_what_cannot_be_known_and_what_is_not_checked_is_said_and_fails_nothing(tmp_path):
    done = run(tmp_path, "deviceListStrategy: cdi-cri\n---\napiVersion: v1\nkind: Secret\n", "--strict")
    assert (done.returncode, done.stderr) == (0, "")
    first, last = done.stdout.splitlines()
    assert first.startswith(
        "TMP/values.yaml[values]: flags.plugin.deviceListStrategy: note: cdi-cri".replace("TMP", str(tmp_path))
    )
    assert last == f"{tmp_path}/values.yaml: not checked: Secret"


def test_values_of_one_cluster_that_offer_its_gpus_twice_are_said_with_their_nodes(tmp_path):
    """Both files are fine alone, and so are those of two clusters."""
    files = {
        "clusters/a/values/plugin.yaml": "migStrategy: none\nfailOnInitError: false\n",
        "clusters/a/other/dra.yaml": "kubeletPlugin: {nodeSelector: {pool: claims}}\n",
        "clusters/b/values/plugin.yaml": "migStrategy: none\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    program = [sys.executable, str(TOOL)]

    def check(*names):
        return subprocess.run([*program, *names], capture_output=True, text=True, check=False, cwd=tmp_path)

    plugin, driver, other = files
    assert check(driver, other).stdout == ""
    done = check(plugin, driver, other)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        f"{plugin}[values]: affinity: warning: the device plugin of {plugin} and the DRA driver of {driver} run on"
    )
    assert "nodes with pool=claims" in done.stdout
    assert (
        subprocess.run([*program, "--strict", *files], capture_output=True, check=False, cwd=tmp_path).returncode == 1
    )
