# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the pods of a claim share its devices, as the DRA driver's own code reads it: what is rendered, and what the linter finds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.lint.lint import lint
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.plugin_utils.lint.claim_cases import (
    CONFIGURATIONS,
    PARAMETERS,
    claim,
)
from real_tools.install import QUICKLY
from test_custom_resources import tree

HERE = Path(__file__).parent
MODULE = HERE.parent / "lab" / "real_tools" / "modules" / "dra-driver-nvidia-gpu"
GATES = "TimeSlicingSettings=true,MPSSupport=true,"


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """Return what the driver's decoder and its checks say to parameters: a reason for each, empty for good ones."""
    folder = tmp_path_factory.mktemp("driver")
    shutil.copytree(MODULE, folder, dirs_exist_ok=True)
    shutil.copyfile(HERE / "claim_parameters.go", folder / "main.go")
    environment = {**os.environ, "GOWORK": "off", "GOFLAGS": ""}
    # As the driver itself is built for the nodes: what both need is compiled once.
    command = ["go", "build", "-mod=readonly", *QUICKLY, "-o", "driver", "main.go"]
    subprocess.run(command, cwd=folder, env=environment, check=True)

    def verdicts(parameters, gates=GATES):
        done = subprocess.run(
            [folder / "driver"],
            input=json.dumps(parameters),
            env={**os.environ, "FEATURE_GATES": gates},
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(done.stdout)

    return verdicts


def test_the_driver_takes_what_is_rendered_under_the_gates_that_are_rendered(driver):
    files = tree("shared claims", "argocd")
    gates = yaml.safe_load(files["values/dra-driver-nvidia-gpu.yaml"])["featureGates"]
    given = [
        config["opaque"]["parameters"]
        for path, text in files.items()
        if path.startswith("examples/")
        for item in yaml.safe_load_all(text)
        if item["kind"] == "ResourceClaim"
        for config in item["spec"]["devices"].get("config", [])
    ]
    assert {(one["kind"], one["sharing"]["strategy"]) for one in given} == {
        ("GpuConfig", "TimeSlicing"),
        ("GpuConfig", "MPS"),
        ("MigDeviceConfig", "MPS"),
    }
    assert driver(given, ",".join(f"{gate}={str(on).lower()}" for gate, on in gates.items())) == [""] * len(given)
    assert all("feature gate is not enabled" in said for said in driver(given, "")), "without them it takes none"


def test_the_linter_finds_what_the_driver_refuses(driver):
    # What the devices of the request are is not in the parameters.
    cases = [case for case in CONFIGURATIONS if case[2] != ".kind"]
    given = [{**PARAMETERS, **parameters} for parameters, _request, _path, _said in cases]
    for case, one, verdict in zip(cases, given, driver(given), strict=True):
        document = claim({"deviceClassName": "gpu.nvidia.com", **case[1]})
        opaque = {"driver": "gpu.nvidia.com", "parameters": one}
        document["spec"]["spec"]["devices"]["config"] = [{"requests": ["device"], "opaque": opaque}]
        errors = [found for found in lint(yaml.safe_dump(document)).findings if found.level == "error"]
        assert bool(errors) == bool(verdict), f"{one}: the driver says {verdict!r}"
