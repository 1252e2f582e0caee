# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rendered ResourceQuotas on a real API server: it admits exactly what they say.

The controller that copies a quota's numbers into its status does not run here, so the test does that.
"""

from __future__ import annotations

import json

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.plugin_utils.render.stacks import TRAINING
from test_custom_resources import tree_of

RESOURCE = "nvidia.com/mig-1g.10gb"
DEVICES = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
OPTIONS = {
    "gpu_kubernetes_version": "1.36",
    "gpu_kubernetes_quota_kind": "resourcequota",
    "gpu_kubernetes_quotas": [
        {
            "team": "half",
            "namespaces": ["quota-half"],
            "shares": [{"pool": "training", "percent": 50}, {"pool": "claims", "count": 2}],
        },
        {
            "team": "rest",
            "namespaces": ["quota-rest"],
            "shares": [{"pool": "training", "resource": RESOURCE, "count": 1}],
        },
    ],
}
POOLS = {
    "training": TRAINING,
    "claims": {"gpu_facts_gpus": [{"board": "l40s", "count": 4}], "nvidia_sharing_backend": "dra"},
}


@pytest.fixture(scope="module")
def limited(cluster):
    """Return the API server with the rendered quotas, and what they allow, by namespace."""
    found = {}
    for item in yaml.safe_load_all(tree_of(POOLS, **OPTIONS)["quotas/quotas.yaml"]):
        namespace, name = item["metadata"]["namespace"], item["metadata"]["name"]
        cluster.kubectl("create", "namespace", namespace)
        cluster.kubectl("create", "--validate=strict", "-f", "-", text=json.dumps(item))
        hard = item["spec"]["hard"]
        status = json.dumps({"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}})
        arguments = ["patch", "resourcequota", name, "-n", namespace, "--subresource=status", "--type=merge", "-p"]
        cluster.kubectl(*arguments, status)
        found[namespace] = hard
    yield cluster, found
    for namespace in found:
        cluster.kubectl("delete", "namespace", namespace, "--wait=false")


def pod(namespace, count):
    limits = {"limits": {RESOURCE: count}}
    container = {"name": "main", "image": "registry.example.com/work:1", "resources": limits}
    metadata = {"generateName": "work-", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def claim(namespace, count):
    request = {"name": "gpus", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": count}}
    metadata = {"generateName": "work-", "namespace": namespace}
    spec = {"devices": {"requests": [request]}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("namespace", "resource", "expected", "item"),
    [
        ("quota-half", f"requests.{RESOURCE}", 8, pod),
        ("quota-rest", f"requests.{RESOURCE}", 1, pod),
        ("quota-half", DEVICES, 2, claim),
    ],
)
def test_the_api_server_admits_a_team_up_to_its_number_and_no_more(limited, namespace, resource, expected, item):
    server, allowed = limited
    assert allowed[namespace][resource] == str(expected)

    def create(count):
        return server.kubectl("create", "-f", "-", text=json.dumps(item(namespace, count)), check=False)

    above = create(expected + 1)
    assert above.returncode
    assert "exceeded quota: gpufleet-" in above.stderr
    assert f"requested: {resource}={expected + 1}, used: {resource}=0, limited: {resource}={expected}" in above.stderr
    assert create(expected).returncode == 0
    again = create(1)
    assert again.returncode
    assert f"used: {resource}={expected}, limited: {resource}={expected}" in again.stderr
