# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is rendered for the newest Kubernetes, against its API server without a feature gate; and what one of 1.34 makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.plugin_utils.lint.claim_cases import REQUESTS, claim
from nodes.programs import NEWEST_KUBERNETES
from test_custom_resources import CLAIMS, TRAINING, dry_run, tree_of

CHART = Path(__file__).resolve().parents[2] / "charts" / "gpufleet-nvidia"
#: Every way in which devices are claimed, without what needs definitions of others.
POOLS = {
    "sliced": {**TRAINING, "nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 2, **CLAIMS},
    "moved": {**TRAINING, **CLAIMS, "nvidia_sharing_migrate_from": "mps"},
}
_OF_OTHERS = ("nfd.k8s-sigs.io", "argoproj.io", "monitoring.coreos.com", "kustomize.config.k8s.io")


@pytest.fixture(scope="module")
def newest():
    from nodes.control_plane import control_plane

    with control_plane(NEWEST_KUBERNETES) as plane:
        plane.kubectl("create", "namespace", "nvidia-gpu")
        yield plane


@pytest.fixture(scope="module")
def without_gate():
    """The release of the lab's nodes, as it is by default."""
    from nodes.control_plane import control_plane

    with control_plane(gates={}) as plane:
        yield plane


@pytest.fixture(scope="module")
def rendered():
    """Objects of the API by the file that they are in."""
    files = tree_of(POOLS, gpu_kubernetes_version=NEWEST_KUBERNETES).items()
    found = [
        (path, item)
        for path, text in files
        if path.endswith(".yaml") and not path.startswith("values/")
        for item in yaml.safe_load_all(text)
    ]
    return [(path, item) for path, item in found if not item["apiVersion"].startswith(_OF_OTHERS)]


def test_extended_resources_by_dra_are_on_by_default_there_and_off_in_1_34(newest, without_gate):
    minor = [json.loads(plane.kubectl("get", "--raw", "/version").stdout)["minor"] for plane in (newest, without_gate)]
    assert minor == [NEWEST_KUBERNETES.split(".")[1], "34"]
    assert [plane.enabled("DRAExtendedResource") for plane in (newest, without_gate)] == [True, False]


def test_it_takes_every_object_and_keeps_the_names_of_classes(newest, rendered):
    names = []
    for path, item in rendered:
        answer = dry_run(newest, item)
        assert answer.returncode == 0 or "AlreadyExists" in answer.stderr, f"{path}: {answer.stderr}"
        if item["kind"] == "DeviceClass":
            names.append(json.loads(answer.stdout)["spec"]["extendedResourceName"])
            assert names[-1] == item["spec"]["extendedResourceName"]
    assert sorted(names) == ["nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb", "nvidia.com/mig-3g.40gb"]
    assert {"ResourceClaim", "ResourceClaimTemplate", "Pod", "Job"} <= {item["kind"] for _path, item in rendered}


def test_1_34_drops_the_names_without_its_gate_as_plan_says(without_gate, rendered):
    (item, *_others) = [item for _path, item in rendered if item["kind"] == "DeviceClass"]
    create = ("create", "--dry-run=server", "-o", "json", "-f", "-")
    answer = without_gate.kubectl(*create, text=json.dumps(item))
    assert "extendedResourceName" not in json.loads(answer.stdout)["spec"]


@pytest.mark.parametrize("case", REQUESTS)
def test_it_takes_claims_in_which_the_linter_finds_mistakes(newest, case):
    answer = dry_run(newest, claim(REQUESTS[case][0]))
    assert answer.returncode == 0, answer.stderr


def test_it_compiles_the_expressions(newest):
    answer = dry_run(newest, claim({"deviceClassName": "gpu.nvidia.com", "expression": "device.attribute.x =="}))
    assert answer.returncode
    assert "compilation failed" in answer.stderr


def test_it_takes_the_chart_with_its_policies(newest, helm):
    arguments = ("--kube-version", NEWEST_KUBERNETES, "--namespace", "nvidia-gpu", "--set", "policies.mode=deny")
    text = helm("template", "gpus", CHART, *arguments).stdout
    items = [item for item in yaml.safe_load_all(text) if item]
    assert len([item for item in items if item["kind"] == "ValidatingAdmissionPolicy"]) > 5
    for item in items:
        answer = dry_run(newest, item)
        assert answer.returncode == 0, answer.stderr
