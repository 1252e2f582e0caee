# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Against a real API server: installation with helm, policies that admit and refuse, rendered objects in a strict dry run."""

from __future__ import annotations

import json
import time

import pytest
import yaml
from chart_under_test import CHART

DENY = {"policies": {"mode": "deny"}, "verification": {"checks": [{"name": "shared", "resource": "nvidia.com/gpu"}]}}


def pod(name="probe", container=None, **spec):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "example.com/cuda", **(container or {})}], **spec},
    }


GPU = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
ADMITTED = {
    "no GPU at all": pod(),
    "a GPU in its limits": pod(container=GPU, runtimeClassName="nvidia"),
    "a MIG device in its limits": pod(
        container={"resources": {"limits": {"nvidia.com/mig-1g.10gb": "1"}}}, runtimeClassName="nvidia"
    ),
    "privileged without a GPU": pod(container={"securityContext": {"privileged": True}}),
    "void devices": pod(container={"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]}),
    "a hostPath elsewhere": pod(volumes=[{"name": "x", "hostPath": {"path": "/var/lib/devices"}}]),
    "a claim": pod(
        runtimeClassName="nvidia",
        resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "x"}],
        container={"resources": {"claims": [{"name": "gpus"}]}},
    ),
}
REFUSED = {
    "all devices by hand": pod(container={**GPU, "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}),
    "devices by hand from elsewhere": pod(
        container={
            "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
        }
    ),
    "devices by hand in an init container": pod(
        initContainers=[{"name": "init", "image": "x", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "0"}]}]
    ),
    "privileged with a GPU": pod(container={**GPU, "securityContext": {"privileged": True}}),
    "privileged with the runtime class": pod(
        runtimeClassName="nvidia", container={**GPU, "securityContext": {"privileged": True}}
    ),
    "a GPU device": pod(volumes=[{"name": "x", "hostPath": {"path": "/dev/nvidia0"}}]),
    "a GPU device by another spelling": pod(volumes=[{"name": "x", "hostPath": {"path": "//dev/./nvidia-uvm"}}]),
    "all devices of the host": pod(volumes=[{"name": "x", "hostPath": {"path": "/dev"}}]),
    "all of the host": pod(volumes=[{"name": "x", "hostPath": {"path": "/"}}]),
    "the runtime class without a GPU": pod(runtimeClassName="nvidia"),
}


@pytest.fixture(scope="module")
def installed(helm, cluster, tmp_path_factory):
    """Install the chart with helm; wait until the API server enforces what it was given."""
    values = tmp_path_factory.mktemp("values") / "values.yaml"
    values.write_text(json.dumps(DENY))
    cluster.kubectl("create", "namespace", "gpu")
    cluster.kubectl("create", "namespace", "work")
    answer = helm("install", "test", CHART, "--namespace", "gpu", "-f", values, KUBECONFIG=str(cluster.kubeconfig))
    assert "STATUS: deployed" in answer.stdout
    assert "helm test test --namespace gpu" in answer.stdout
    until = time.monotonic() + 300
    while create(cluster, REFUSED["a GPU device"]).returncode == 0:
        assert time.monotonic() < until, "the policies are not enforced"
        time.sleep(1)
    return cluster


def create(plane, item, namespace="work"):
    arguments = ["create", "--dry-run=server", "--validate=strict", "--namespace", namespace, "-f", "-"]
    return plane.kubectl(*arguments, text=json.dumps(item), check=False)


@pytest.mark.parametrize("item", ADMITTED.values(), ids=ADMITTED.keys())
def test_admitted(installed, item):
    answer = create(installed, item)
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("item", REFUSED.values(), ids=REFUSED.keys())
def test_refused_with_the_remedy(installed, item):
    answer = create(installed, item)
    assert answer.returncode != 0
    assert "ValidatingAdmissionPolicy" in answer.stderr
    assert "gpufleet.github.io/exempt" in answer.stderr


def test_exempt_name_spaces(installed):
    installed.kubectl("create", "namespace", "exempt")
    installed.kubectl("label", "namespace", "exempt", "gpufleet.github.io/exempt=true")
    for item in REFUSED.values():
        assert create(installed, item, "exempt").returncode == 0
    installed.kubectl("create", "namespace", "partly")
    installed.kubectl("label", "namespace", "partly", "gpufleet.github.io/exempt-host-devices=true")
    assert create(installed, REFUSED["a GPU device"], "partly").returncode == 0
    assert create(installed, REFUSED["privileged with a GPU"], "partly").returncode != 0


def test_a_label_on_the_pod_does_not_exempt_it(installed):
    item = json.loads(json.dumps(REFUSED["a GPU device"]))
    item["metadata"]["labels"] = {"gpufleet.github.io/exempt": "true"}
    assert create(installed, item).returncode != 0


def test_warn_admits_and_says_so(helm, installed, tmp_path):
    values = tmp_path / "values.yaml"
    values.write_text(json.dumps({**DENY, "policies": {"mode": "warn"}}))
    helm("upgrade", "test", CHART, "--namespace", "gpu", "-f", values, KUBECONFIG=str(installed.kubeconfig))
    try:
        until = time.monotonic() + 300
        while create(installed, REFUSED["a GPU device"]).returncode:
            assert time.monotonic() < until, "the policies still deny"
            time.sleep(1)
        answer = create(installed, REFUSED["a GPU device"])
        assert "Warning:" in answer.stderr
        assert "goes round the device plugin" in answer.stderr
    finally:
        values.write_text(json.dumps(DENY))
        helm("upgrade", "test", CHART, "--namespace", "gpu", "-f", values, KUBECONFIG=str(installed.kubeconfig))


def test_rendered_objects_in_a_strict_dry_run(installed, demo_tree):
    """Every object of a kind that the API server has itself; those of CRDs are another test's."""
    own = {"Namespace", "ConfigMap", "RuntimeClass", "Pod"}
    seen = set()
    installed.kubectl("apply", "-f", "-", text=(demo_tree / "objects" / "namespace.yaml").read_text())
    for path in sorted([*(demo_tree / "objects").glob("*.yaml"), *(demo_tree / "examples").glob("*.yaml")]):
        for item in yaml.safe_load_all(path.read_text()):
            if not item or item["kind"] not in own:
                continue
            seen.add(item["kind"])
            arguments = [
                "apply",
                "--server-side",
                "--force-conflicts",
                "--dry-run=server",
                "--validate=strict",
                "-f",
                "-",
            ]
            answer = installed.kubectl(*arguments, text=json.dumps(item), check=False)
            assert answer.returncode == 0, f"{path}: {answer.stderr}"
    assert seen == own
