# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The chart through the real helm: linted, rendered with every example, valid for every supported Kubernetes."""

from __future__ import annotations

import json
import subprocess

import kubernetes_validate
import pytest
import yaml
from chart_under_test import CHART, KUBERNETES

EXAMPLES = {"defaults": [], **{path.stem: ["-f", path] for path in sorted((CHART / "ci").glob("*.yaml"))}}
SUPPORTED = ("1.30", "1.32", "1.34", "1.36")


def objects(text):
    return [item for item in yaml.safe_load_all(text) if item]


@pytest.fixture(params=EXAMPLES.values(), ids=EXAMPLES.keys())
def arguments(request):
    return request.param


def test_lint(helm, arguments):
    answer = helm("lint", "--strict", "--kube-version", KUBERNETES, CHART, *arguments)
    assert "0 chart(s) failed" in answer.stdout


@pytest.mark.parametrize("version", SUPPORTED)
def test_rendered_objects_are_valid(helm, arguments, version):
    text = helm("template", "test", CHART, "--namespace", "gpu", "--kube-version", f"{version}.0", *arguments).stdout
    for item in objects(text):
        kubernetes_validate.validate(item, version, strict=True)


@pytest.mark.parametrize("version", SUPPORTED)
def test_objects_of_the_generator_are_valid(demo_tree, version):
    """Those of kinds that Kubernetes has by itself; the others are held to their real definitions elsewhere."""
    kinds = set()
    for path in [*(demo_tree / "objects").glob("*.yaml"), *(demo_tree / "examples").glob("*.yaml")]:
        for item in objects(path.read_text()):
            kubernetes_validate.validate(item, version, strict=True)
            kinds.add(item["kind"])
    assert kinds == {"Namespace", "ConfigMap", "RuntimeClass", "Pod"}


def test_switched_off_renders_nothing(helm):
    text = helm("template", "test", CHART, "--kube-version", KUBERNETES, *EXAMPLES["off-values"]).stdout
    assert objects(text) == []


@pytest.mark.parametrize(
    "values",
    [
        {"polices": {"mode": "deny"}},
        {"policies": {"mode": "forbid"}},
        {"policies": {"limits": {"mode": "dney"}}},
        {"policies": {"deviceInjection": ["volume-mounts"]}},
        {"policies": {"deviceInjection": []}},
        {"policies": {"gpuResources": "it's"}},
        {"policies": {"exemptNamespaces": "kube-system"}},
        {"policies": {"hostDevices": {"paths": ["srv"]}}},
        {"policies": {"hostDevices": {"paths": ["/srv/"]}}},
        {"policies": {"hostDevices": {"openPaths": ["/it's"]}}},
        {"policies": {"hostDevices": {"serviceAccounts": ["shipper"]}}},
        {"verification": {"checks": [{"name": "x", "resource": "gpu"}]}},
        {"verification": {"checks": [{"name": "x"}]}},
        {"verification": {"checks": [{"name": "x", "device": "GPU"}]}},
        {"verification": {"checks": [{"name": "x", "device": "GPU", "claim": {"requests": []}, "count": 2}]}},
        {"examples": [{"name": "x", "limits": {}}]},
        {"configMaps": {"Upper": {"a": "b"}}},
        {"runtimeClass": {"name": "NVIDIA"}},
        {"priorityClasses": {"x": {"value": "high"}}},
    ],
)
def test_the_schema_refuses(helm, tmp_path, values):
    path = tmp_path / "values.yaml"
    path.write_text(json.dumps(values))
    answer = helm("template", "test", CHART, "--kube-version", KUBERNETES, "-f", path, check=False)
    assert answer.returncode != 0
    assert "values don't meet the specifications" in answer.stderr


@pytest.mark.parametrize(
    ("policies", "refused"),
    [
        ({}, True),
        ({"deviceInjection": ["envvar"]}, True),
        ({"deviceInjection": ["cdi", "volume_mounts"]}, False),
        ({"defaultRuntime": True}, False),
        ({"limits": {"mode": "off"}}, False),
    ],
)
def test_no_runtime_class_contradicts_envvar(helm, tmp_path, policies, refused):
    """Pods would get no GPU at all, or get them by a default runtime that the policies do not know of."""
    path = tmp_path / "values.yaml"
    path.write_text(json.dumps({"runtimeClass": {"create": False, "name": ""}, "policies": policies}))
    answer = helm("template", "test", CHART, "--kube-version", KUBERNETES, "-f", path, check=False)
    assert bool(answer.returncode) == refused, answer.stderr
    if refused:
        assert "runtimeClass.name is empty and policies.deviceInjection contains envvar" in answer.stderr
        assert "Set policies.defaultRuntime to true" in answer.stderr


def test_pods_of_the_chart_have_as_few_rights_as_possible(helm):
    text = helm("template", "test", CHART, "--kube-version", KUBERNETES, *EXAMPLES["all-values"]).stdout
    pods = [item["spec"]["template"]["spec"] for item in objects(text) if item["kind"] == "Job"]
    assert len(pods) == 4
    for pod in pods:
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["readOnlyRootFilesystem"] is True
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert {"cpu", "memory"} <= set(container["resources"]["limits"])


def test_the_readme_lists_the_values_as_they_are():
    done = subprocess.run(
        [CHART.parents[1] / "tools" / "chart-readme.py", "--check", CHART], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_values_of_the_generator_fit_the_chart(helm, demo_tree):
    answer = helm(
        "lint", "--strict", "--kube-version", KUBERNETES, CHART, "-f", demo_tree / "values" / "gpufleet-nvidia.yaml"
    )
    assert "0 chart(s) failed" in answer.stdout


def test_a_check_by_a_claim_makes_the_claim_before_its_pod(helm, tmp_path):
    claim = {"requests": [{"name": "device", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}
    path = tmp_path / "values.yaml"
    checks = [{"name": "claims", "device": "1g.10gb+me", "claim": claim, "runtimeClassName": ""}]
    path.write_text(json.dumps({"verification": {"checks": checks}}))
    text = helm("template", "test", CHART, "--kube-version", KUBERNETES, "-f", path).stdout
    found = {item["kind"]: item for item in objects(text) if item["kind"] in ("Job", "ResourceClaimTemplate")}
    for item in found.values():
        kubernetes_validate.validate(item, SUPPORTED[-1], strict=True)
        assert item["metadata"]["annotations"]["helm.sh/hook"] == "test"
    template, spec = found["ResourceClaimTemplate"], found["Job"]["spec"]["template"]["spec"]
    assert template["spec"]["spec"]["devices"] == claim
    assert template["metadata"]["annotations"]["helm.sh/hook-weight"] == "-1", "before the job"
    name = template["metadata"]["name"]
    assert name.endswith("-claims-claim-1g-10gb-me")
    assert spec["resourceClaims"] == [{"name": "device", "resourceClaimTemplateName": name}]
    (container,) = spec["containers"]
    assert container["resources"]["claims"] == [{"name": "device"}]
    assert not [key for key in container["resources"]["limits"] if "/" in key]


def test_a_check_names_the_runtime_class_of_its_own_pool(helm, tmp_path):
    """Where the container runtime injects devices by CDI a pod needs none."""
    checks = [
        {"name": "by-default", "resource": "nvidia.com/gpu"},
        {"name": "cdi", "resource": "nvidia.com/gpu", "runtimeClassName": ""},
        {"name": "mounts", "resource": "nvidia.com/gpu", "runtimeClassName": "gpu"},
    ]
    path = tmp_path / "values.yaml"
    path.write_text(json.dumps({"verification": {"when": "install", "checks": checks}}))
    text = helm("template", "test", CHART, "--kube-version", KUBERNETES, "-f", path).stdout
    classes = {
        item["metadata"]["name"].rpartition("-gpu")[0].rpartition("nvidia-")[2]: item["spec"]["template"]["spec"].get(
            "runtimeClassName"
        )
        for item in objects(text)
        if item["kind"] == "Job"
    }
    assert classes == {"by-default": "nvidia", "cdi": None, "mounts": "gpu"}
