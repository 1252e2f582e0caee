# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pods that share a device by one claim of NVIDIA's own DRA driver 0.5.0: a GPU in time slices, a GPU by MPS and a MIG device by MPS, each on a node.

For MPS the driver starts NVIDIA's control daemon in a Deployment of its own image; the daemon is the host's, and the GPU is the lab's. No CUDA client
exists here, so what a client gets is what its daemon says.
"""

from __future__ import annotations

import pytest
import yaml
from demo import devices, wait_for
from nodes.programs import KUBERNETES, OLDEST_KUBERNETES
from pool_nodes import CDI, SMALL, VARIABLE
from releases import Releases

SLICED, MPS, DIVIDED = SMALL, VARIABLE, CDI
GPU = "gpu.nvidia.com"
PROFILE = "3g.40gb"
POOLS = {"sliced": [SLICED], "served": [MPS], "divided": [DIVIDED]}
DESCRIBED = {
    "sliced": {
        "nvidia_sharing_mode": "time_slicing",
        "nvidia_sharing_time_slice": "long",
        "nvidia_sharing_replicas": 2,
    },
    "served": {"nvidia_sharing_mode": "mps", "nvidia_sharing_replicas": 4},
    # The other GPU stays whole.
    "divided": {
        "nvidia_mig_strategy": "mixed",
        "nvidia_mig_layout": [{"devices": [0], "instances": {PROFILE: 2}}],
        "nvidia_sharing_mode": "mps",
        "nvidia_sharing_replicas": 2,
    },
}


@pytest.fixture(scope="module", params=[KUBERNETES, pytest.param(OLDEST_KUBERNETES, marks=pytest.mark.by_name)])
def nodes(request, make_pools):
    found = make_pools(POOLS, request.param)
    found.describe({"nvidia_sharing_backend": "dra", "gpu_kubernetes_version": request.param}, DESCRIBED)
    found.site()
    return found


def sharing(nodes, example, name=""):
    """The rendered claim and its job, whose pods stay.

    :param name: of both, in place of the example's.
    """
    text = (nodes.tree / "examples" / f"{example}.yaml").read_text()
    claim, job = yaml.safe_load_all(text.replace(example, name or example))
    spec = job["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    container["command"] = ["sh", "-c", "nvidia-smi -L && exec sleep 86400"]
    container["resources"] = {"claims": container["resources"]["claims"]}
    spec["terminationGracePeriodSeconds"] = 0
    nodes.kubectl("create", "-f", "-", text=yaml.safe_dump_all([claim, job]))
    return job["spec"]["parallelism"]


def pods(nodes, example):
    return nodes.get("pods", "-l", f"app.kubernetes.io/name={example}")["items"]


def running(nodes, example, count):
    wait_for(lambda: [pod["status"]["phase"] for pod in pods(nodes, example)].count("Running") == count, 240)
    return [pod["metadata"]["name"] for pod in pods(nodes, example)]


def stop(nodes, example):
    nodes.kubectl("delete", "job", example, "--cascade=foreground")
    wait_for(lambda: not pods(nodes, example), 120)
    nodes.kubectl("delete", "resourceclaim", example)


def daemons(nodes):
    """The Deployments that the driver made for claims."""
    found = nodes.get("deployments", "-n", "nvidia-gpu")["items"]
    return [one for one in found if one["metadata"]["name"].startswith("mps-control-daemon-")]


def held(nodes, node):
    """The devices of a node that pods hold, as inspect shows them, and the pods."""
    gpus = nodes.report("inspect")["ledger"][node]["gpus"]
    return {share["device"]: share["pods"] for gpu in gpus for share in gpu["shares"] if share["pods"]}


def on(nodes, node, *words):
    """What a command of a host prints."""
    return nodes.lab("exec", node, "--", *words)


@pytest.mark.by_name
def test_pods_share_a_gpu_in_the_time_slices_that_their_claim_says(nodes):
    example = "sliced-gpu"
    assert nodes.capacity["nodes"][SLICED]["devices"] == {GPU: 2}
    wait_for(lambda: nodes.report("inspect")["offered"][SLICED] == {GPU: 2}, 180)
    count = sharing(nodes, example)
    assert count == 2
    names = running(nodes, example, count)
    seen = {uuid for name in names for uuid in devices(nodes.kubectl("logs", name))}
    assert len(seen) == 1, "both pods have the one GPU"
    shown = on(nodes, SLICED, "nvidia-smi", "compute-policy", "-l")
    assert (shown.count("Long"), shown.count("Default")) == (1, 1), (
        "the driver set what the claim says, on its GPU alone"
    )
    assert held(nodes, SLICED) == {uuid: {f"default/{name}": 1 for name in names} for uuid in seen}
    stop(nodes, example)
    wait_for(lambda: on(nodes, SLICED, "nvidia-smi", "compute-policy", "-l").count("Default") == 2, 60)


def test_pods_share_a_gpu_by_the_mps_daemon_of_their_claim(nodes):
    example = "served-gpu"
    unit = nodes.capacity["configurations"]["served"]["slices"][GPU]
    count = sharing(nodes, example)
    names = running(nodes, example, count)
    assert len(names) == 4
    assert len({uuid for name in names for uuid in devices(nodes.kubectl("logs", name))}) == 1
    (daemon,) = daemons(nodes)
    script = daemon["spec"]["template"]["spec"]["containers"][0]["args"][0]
    assert f"{unit['limit_mib']}M" in script
    asked = "echo get_default_active_thread_percentage | nvidia-cuda-mps-control"
    assert nodes.kubectl("exec", names[0], "--", "sh", "-c", asked).strip() == "25.0"
    stop(nodes, example)
    wait_for(lambda: not daemons(nodes), 120)


def test_pods_share_a_mig_device_by_the_mps_daemon_of_their_claim_beside_another_one_on_the_same_gpu(nodes):
    example, kind = "divided-mig-3g-40gb", f"mig.nvidia.com/{PROFILE}"
    assert nodes.capacity["nodes"][DIVIDED]["devices"] == {kind: 2, GPU: 1}
    wait_for(lambda: nodes.report("inspect")["offered"][DIVIDED] == {kind: 2, GPU: 1}, 180)
    unit = nodes.capacity["configurations"]["divided"]["slices"][kind]
    apps = {name: sharing(nodes, example, name) for name in ("one", "other")}
    assert apps == {"one": 2, "other": 2}
    given = {}
    for name, count in apps.items():
        pods_of = running(nodes, name, count)
        seen = [devices(nodes.kubectl("logs", pod)) for pod in pods_of]
        assert seen[0] == seen[1] and len(seen[0]) == 1, "both pods have the one MIG device"
        given[seen[0][0]] = pods_of
    assert len(given) == 2 and all(uuid.startswith("MIG-") for uuid in given), "each claim has one of its own"
    containers = [one["spec"]["template"]["spec"]["containers"][0] for one in daemons(nodes)]
    served = {
        entry["value"]: one for one in containers for entry in one["env"] if entry["name"] == "CUDA_VISIBLE_DEVICES"
    }
    assert served.keys() == given.keys()
    for uuid, container in served.items():
        assert f"set_default_device_pinned_mem_limit {uuid} {unit['limit_mib']}M" in container["args"][0]
        asked = "echo get_default_active_thread_percentage | nvidia-cuda-mps-control"
        assert nodes.kubectl("exec", given[uuid][0], "--", "sh", "-c", asked).strip() == "50.0"
    assert held(nodes, DIVIDED) == {uuid: {f"default/{pod}": 1 for pod in names} for uuid, names in given.items()}
    for name in apps:
        stop(nodes, name)
    wait_for(lambda: not daemons(nodes), 120)


@pytest.mark.by_name
def test_helm_test_claims_a_device_of_each_pool_as_its_pods_would_share_it(nodes):
    releases = Releases(nodes)
    releases.own_chart("verification.deadlineSeconds=120")
    try:
        assert releases.helm_test() == [
            "divided-claim-3g-40gb",
            "divided-claim-gpu",
            "served-claim-gpu",
            "sliced-claim-gpu",
        ]
    finally:
        releases.remove_own_chart()
    wait_for(lambda: not daemons(nodes), 120)
