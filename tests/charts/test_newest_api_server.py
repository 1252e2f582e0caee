# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is rendered for the newest Kubernetes, against its API server without a feature gate; and, by name, what one of 1.34 makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.plugin_utils.render.stacks import CLAIMS, TRAINING
from nodes.programs import KUBERNETES, OLDEST_KUBERNETES
from test_custom_resources import dry_run, taken, tree_of

CHART = Path(__file__).resolve().parents[2] / "charts" / "gpufleet-nvidia"
#: Every way in which devices are claimed, without what needs definitions of others.
POOLS = {
    "sliced": {**TRAINING, "nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 2, **CLAIMS},
    "moved": {**TRAINING, **CLAIMS, "nvidia_sharing_migrate_from": "mps"},
}
_OF_OTHERS = ("nfd.k8s-sigs.io", "argoproj.io", "monitoring.coreos.com", "kustomize.config.k8s.io")


@pytest.fixture(scope="module")
def server(newest):
    """Return the API server with the namespace of the releases, which is exempt from the policies as the rendered one is."""
    newest.kubectl("create", "namespace", "nvidia-gpu", check=False)
    newest.kubectl("label", "namespace", "nvidia-gpu", "gpufleet.github.io/exempt=true", "--overwrite")
    return newest


@pytest.fixture(scope="module")
def without_gate():
    """One of the oldest release that serves claims, as it is by default."""
    from nodes.control_plane import control_plane

    with control_plane(OLDEST_KUBERNETES, gates={}) as plane:
        yield plane


@pytest.fixture(scope="module")
def rendered():
    """Objects of the API by the file that they are in."""
    files = tree_of(POOLS, gpu_kubernetes_version=KUBERNETES).items()
    found = [
        (path, item)
        for path, text in files
        if path.endswith(".yaml") and not path.startswith("values/")
        for item in yaml.safe_load_all(text)
    ]
    return [(path, item) for path, item in found if not item["apiVersion"].startswith(_OF_OTHERS)]


def minor(plane):
    return json.loads(plane.kubectl("get", "--raw", "/version").stdout)["minor"]


def test_extended_resources_by_dra_are_on_by_default_there(server):
    assert minor(server) == KUBERNETES.split(".")[1]
    assert server.enabled("DRAExtendedResource")


@pytest.mark.by_name
def test_they_are_off_in_1_34(without_gate):
    assert minor(without_gate) == "34"
    assert not without_gate.enabled("DRAExtendedResource")


def test_it_takes_every_object_and_keeps_the_names_of_classes(server, rendered):
    names = []
    for path, item in rendered:
        answer = dry_run(server, item)
        assert answer.returncode == 0 or "AlreadyExists" in answer.stderr, f"{path}: {answer.stderr}"
        if item["kind"] == "DeviceClass":
            names.append(json.loads(answer.stdout)["spec"]["extendedResourceName"])
            assert names[-1] == item["spec"]["extendedResourceName"]
    assert sorted(names) == ["nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb", "nvidia.com/mig-3g.40gb"]
    assert {"ResourceClaim", "ResourceClaimTemplate", "Pod", "Job"} <= {item["kind"] for _path, item in rendered}


@pytest.mark.by_name
def test_1_34_drops_the_names_without_its_gate_as_plan_says(without_gate, rendered):
    (item, *_others) = [item for _path, item in rendered if item["kind"] == "DeviceClass"]
    create = ("create", "--dry-run=server", "-o", "json", "-f", "-")
    answer = without_gate.kubectl(*create, text=json.dumps(item))
    assert "extendedResourceName" not in json.loads(answer.stdout)["spec"]


def test_it_takes_the_chart_with_its_policies(server, helm):
    arguments = ("--kube-version", KUBERNETES, "--namespace", "nvidia-gpu", "--set", "policies.mode=deny")
    text = helm("template", "gpus", CHART, *arguments).stdout
    items = [item for item in yaml.safe_load_all(text) if item]
    assert len([item for item in items if item["kind"] == "ValidatingAdmissionPolicy"]) > 5
    assert taken(server, items) == []
