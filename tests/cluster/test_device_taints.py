# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a repair of one GPU has the real scheduler and the real eviction controller of the newest Kubernetes do. There is no kubelet: pods run nowhere."""

from __future__ import annotations

import json
import os
import subprocess
import time

import pytest
import yaml
from demo import wait_for
from fleet import REPOSITORY, documented_role

DRIVER, API = "gpu.nvidia.com", "resource.k8s.io/v1"


@pytest.fixture
def plane():
    from nodes.control_plane import control_plane

    with control_plane(controllers=True) as found:
        found.allow_operator(documented_role())
        wait_for(lambda: found.kubectl("get", "serviceaccount", "default", check=False).returncode == 0, 60)
        yield found


def create(plane, *documents):
    plane.kubectl("create", "-f", "-", text=yaml.safe_dump_all(documents))


def read(plane, *what):
    return json.loads(plane.kubectl("get", *what, "-o", "json").stdout)


def offer(plane):
    """A node with two GPUs, as its kubelet and the driver on it make it."""
    create(plane, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}})
    status = {"capacity": {"pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]}
    plane.kubectl("patch", "node", "a", "--subresource=status", "-p", json.dumps({"status": status}))
    uid = read(plane, "node", "a")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": "a", "uid": uid}
    attributes = {name: {"type": {"string": "gpu"}, "uuid": {"string": f"GPU-{name}"}} for name in ("gpu-0", "gpu-1")}
    devices = [{"name": name, "attributes": of} for name, of in attributes.items()]
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": "a", "pool": pool, "devices": devices}
    chosen = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    exactly = {"exactly": {"deviceClassName": DRIVER}}
    template = {"spec": {"devices": {"requests": [{"name": "gpu", **exactly}]}}}
    create(
        plane,
        {
            "apiVersion": API,
            "kind": "ResourceSlice",
            "metadata": {"name": "a", "ownerReferences": [owner]},
            "spec": spec,
        },
        {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": DRIVER}, "spec": {"selectors": chosen}},
        {"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": {"name": "gpu"}, "spec": template},
    )


def start(plane, name):
    container = {"name": "work", "image": "work", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {
        "containers": [container],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
        "terminationGracePeriodSeconds": 0,
        # Nobody says any more that the node is well.
        "tolerations": [{"operator": "Exists"}],
    }
    create(plane, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def given(plane):
    """Pod to the device that it was allocated."""
    found = {}
    for claim in read(plane, "resourceclaims")["items"]:
        status = claim.get("status") or {}
        for result in ((status.get("allocation") or {}).get("devices") or {}).get("results") or ():
            found.update({user["name"]: result["device"] for user in status.get("reservedFor") or ()})
    return found


def step(plane, state, device):
    plan = {"action": "reset_gpu", "taints": [["a", device]], "tainted": [f"gpufleet-{device}-a"]}
    options = {"action": "heal_node", "node": "a", "state": state, "plan": plan, "members": ["a"]}
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "build" / "collections"),
        "ANSIBLE_CONFIG": str(REPOSITORY / "examples" / "ansible.cfg"),
    }
    command = [str(REPOSITORY / ".venv" / "bin" / "ansible"), "localhost", "-i", "localhost,"]
    task = ["-m", "gpufleet.nvidia.node", "-a", json.dumps({**options, "kubeconfig": str(plane.operator)})]
    done = subprocess.run([*command, *task], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout


def test_new_pods_get_the_other_gpu_what_returns_leaves_again_and_after_the_proof_both_are_given(plane):
    offer(plane)
    start(plane, "first")
    broken = wait_for(lambda: given(plane).get("first"), 60)
    (other,) = {"gpu-0", "gpu-1"} - {broken}
    step(plane, "started", broken)
    assert not read(plane, "node", "a")["spec"].get("unschedulable")
    # The scheduler sees the rule in a moment.
    time.sleep(2)
    start(plane, "second")
    wait_for(lambda: given(plane).get("second") == other, 60)
    start(plane, "third")
    time.sleep(3)
    assert given(plane) == {"first": broken, "second": other}, "who has the device is asked to leave, not deleted"
    # What a claim that stays allocated would bring back.
    step(plane, "repairing", broken)
    wait_for(lambda: given(plane) == {"second": other}, 60)
    assert {pod["metadata"]["name"] for pod in read(plane, "pods")["items"]} == {"second", "third"}
    step(plane, "done", broken)
    assert read(plane, "devicetaintrules")["items"] == []
    wait_for(lambda: given(plane) == {"second": other, "third": broken}, 60)
