# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Dynamic MIG of the DRA driver, which destroys the MIG instances of a host's layout: refused where it is installed."""

from __future__ import annotations

import json

import pytest

IMAGE = "registry.k8s.io/dra-driver-nvidia/dra-driver-nvidia-gpu:v0.5.0"


def driver(gates=None, image=IMAGE, args=None):
    """The part of the chart's DaemonSet that counts (templates/kubeletplugin.yaml)."""
    environment = [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    if gates is not None:
        environment.append({"name": "FEATURE_GATES", "value": gates})
    containers = [{"name": "compute-domains", "image": image}, {"name": "gpus", "image": image, "env": environment}]
    if args:
        containers[1]["args"] = args
    labels = {"app": "driver"}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
    }
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "driver"}, "spec": spec}


def create(plane, item, namespace):
    arguments = ["create", "--dry-run=server", "--validate=strict", "--namespace", namespace, "-f", "-"]
    return plane.kubectl(*arguments, text=json.dumps(item), check=False)


@pytest.mark.parametrize("namespace", ["work", "gpu", "kube-system"])
@pytest.mark.parametrize(
    "item",
    [
        driver("DynamicMIG=true,"),
        driver("TimeSlicingSettings=true, DynamicMIG = True,MPSSupport=false,"),
        driver("AllAlpha=true,"),
        driver("DynamicMIG=1"),
        driver(args=["--feature-gates=DynamicMIG=true"]),
    ],
)
def test_dynamic_mig_is_refused_in_every_namespace(installed, item, namespace):
    answer = create(installed, item, namespace)
    assert answer.returncode != 0, answer.stdout
    assert "container gpus: the feature gate DynamicMIG has the DRA driver destroy MIG instances" in answer.stderr
    assert "Remove featureGates.DynamicMIG" in answer.stderr
    assert "failed expression" not in answer.stderr


@pytest.mark.parametrize(
    "item",
    [
        driver(),
        driver("TimeSlicingSettings=true,MPSSupport=true,"),
        driver("DynamicMIG=false,"),
        driver("NotDynamicMIG=true,"),
        driver("AllAlpha=true,", image="example.com/other"),
    ],
)
def test_the_driver_without_it_is_admitted(installed, item):
    answer = create(installed, item, "gpu")
    assert answer.returncode == 0, answer.stderr
    assert "Warning" not in answer.stderr
