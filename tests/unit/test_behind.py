# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""C(tools/behind.py), with what pip, go and helm answered when they were asked."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_SPEC = importlib.util.spec_from_file_location("behind", ROOT / "tools" / "behind.py")
behind = importlib.util.module_from_spec(_SPEC)
sys.modules["behind"] = behind
_SPEC.loader.exec_module(behind)

GO = "github.com/NVIDIA/nvidia-container-toolkit v1.0.0-alpha.1 v1.19.1 v1.20.0-rc.1 v1.20.0 v1.20.1 v1.20.2 v1.20.3\n"
PIP = """ruff (0.17.6)
Available versions: 0.17.6, 0.17.5, 0.17.4
  INSTALLED: 0.17.5
  LATEST:    0.17.6
"""
HELM = """apiVersion: v2
appVersion: 4.8.3
name: dcgm-exporter
version: "4.8.3"
"""


def answers(command):
    """Return what a client printed; of all charts that it has one version, and of all Go modules those of the toolkit."""
    if command[0] == "go":
        return GO
    if command[0] == "helm":
        return HELM
    return PIP


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("v1.20.2", (1, 20, 2, 0)),
        ("4.8.3", (4, 8, 3, 0)),
        ("2025.12.19", (2025, 12, 19, 0)),
        ("620", (620, 0, 0, 0)),
        ("v0.13.3-1", (0, 13, 3, 0)),
        ("1.20.0-rc.1", ()),
        ("v1.0.0-alpha.1", ()),
        ("8.0.0b1", ()),
        ("", ()),
    ],
)
def test_released_versions_are_compared_by_number(version, expected):
    assert behind.key(version) == expected


def test_the_newest_released_version_of_each_client():
    assert behind.of_go("m", answers) == "v1.20.3"
    assert behind.of_pip("ruff", answers) == "0.17.6"
    assert behind.of_helm("dcgm-exporter", "https://nvidia.github.io/dcgm-exporter/helm-charts", answers) == "4.8.3"
    for ask in (behind.of_go, behind.of_pip):
        with pytest.raises(behind.Unanswered, match="no released version"):
            ask("m", lambda _command: "m v1.0.0-rc.1\n")


def test_a_chart_of_a_registry_is_asked_by_its_address():
    asked = []
    behind.of_helm("nfd", "oci://registry.example.com/charts", lambda command: asked.append(command) or HELM)
    behind.of_helm("plugin", "https://charts.example.com", lambda command: asked.append(command) or HELM)
    assert asked[0][3:] == ["oci://registry.example.com/charts/nfd"]
    assert asked[1][3:] == ["plugin", "--repo", "https://charts.example.com"]


def test_every_pin_is_in_the_table_with_the_file_that_has_it(capsys):
    status = behind.main([], answers)
    shown = capsys.readouterr().out.splitlines()
    places = {line.split()[-1] for line in shown[1:]}
    assert status == 1 and all((ROOT / place).exists() for place in places)
    assert {
        "plugins/plugin_utils/render/versions.py",
        "roles/nvidia_toolkit",
        "requirements/development.in",
        "plugins/module_utils/_driver/floors.py",
    } <= places
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "tests/lab/real_tools/modules").glob("*/go.mod")}
    assert modules <= places and "requirements/oldest-python.in" not in places
    (toolkit,) = [line for line in shown if line.startswith("container toolkit")]
    assert re.search(r" v1\.20\.3 +behind +roles/nvidia_toolkit$", toolkit)


def test_what_does_not_answer_is_said_and_not_taken_for_the_newest(capsys):
    def silent(command):
        raise behind.Unanswered(f"{command[0]} is not installed")

    assert behind.main(["--only", "chart dcgm-exporter"], silent) == 2
    assert "not answered: helm is not installed" in capsys.readouterr().out


def test_a_client_that_is_missing_or_fails_says_why():
    with pytest.raises(behind.Unanswered, match="nosuchclient is not installed"):
        behind.ask(["nosuchclient"])
    with pytest.raises(behind.Unanswered, match="sh: it is not there"):
        behind.ask(["sh", "-c", "echo trouble >&2; echo it is not there >&2; exit 1"])


def test_given_files_are_compared_with_the_tables(tmp_path, capsys):
    releases = tmp_path / "releases.json"
    advisory = tmp_path / "product-security" / "2027" / "5990" / "5990.json"
    advisory.parent.mkdir(parents=True)
    advisory.write_text(json.dumps({"document": {"category": "csaf_security_advisory"}, "tree": "Linux(R580)"}))
    arguments = ["--only", "floors.py", "--releases", str(releases), "--advisories", str(advisory.parents[2])]
    releases.write_text(json.dumps({"580": {}, "625": {}}))
    assert behind.main(arguments, answers) == 1
    shown = capsys.readouterr().out
    assert re.search(r"^driver branches +620 +625 +behind", shown, re.M)
    assert re.search(r"^security bulletin +5861 +5990 +behind", shown, re.M)
    releases.write_text(json.dumps({"580": {}, "620": {}}))
    advisory.unlink()
    assert behind.main(arguments, answers) == 2
    shown = capsys.readouterr().out
    assert re.search(r"^driver branches +620 +620 +newest", shown, re.M) and "has no advisory of the driver" in shown
    releases.write_text("{")
    assert behind.main(["--only", "driver branches", "--releases", str(releases)], answers) == 2
    assert str(releases) in capsys.readouterr().out
