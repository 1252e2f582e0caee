# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pool that NVIDIA's own DRA driver serves: one GPU as a whole, the other in MIG devices, claimed by the rendered examples.

The driver is 0.5.0 from its own chart, for which the values are rendered; Kubernetes is the newest and, by name, the oldest that serves claims.
"""

from __future__ import annotations

import json

import pytest
import yaml
from demo import devices, wait_for
from hosts.progress import LabError
from nodes.programs import KUBERNETES, OLDEST_KUBERNETES
from pool_nodes import CDI
from releases import Releases

NODE, GPU = CDI, "gpu.nvidia.com"
DESCRIBED = {
    "nvidia_sharing_backend": "dra",
    "nvidia_mig_strategy": "mixed",
    "nvidia_mig_layout": [{"devices": [1], "instances": {"3g.40gb": 1, "1g.10gb": 2}}],
}
RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "nvidia"},
    "handler": "nvidia",
}
DEVICES = {GPU: 1, "mig.nvidia.com/1g.10gb": 2, "mig.nvidia.com/3g.40gb": 1}
EXAMPLES = {GPU: "claims-gpu", "mig.nvidia.com/1g.10gb": "claims-mig-1g-10gb"}


@pytest.fixture(scope="module", params=[KUBERNETES, pytest.param(OLDEST_KUBERNETES, marks=pytest.mark.by_name)])
def node(request, make_pools):
    found = make_pools({"claims": [NODE]}, request.param)
    found.describe({**DESCRIBED, "gpu_kubernetes_version": request.param})
    found.site()
    return found


def claiming(node, example, count, **more):
    """The rendered claim once, and so many pods that make one of it each.

    :param more: of the pods' specification.
    """
    template, pod = yaml.safe_load_all((node.tree / "examples" / f"{example}.yaml").read_text())
    claims = pod["spec"]["containers"][0]["resources"]["claims"]
    pods = []
    for number in range(count):
        one = node.staying(json.loads(json.dumps(pod)), number)
        one["spec"]["containers"][0]["resources"]["claims"] = claims
        one["spec"].update(more)
        pods.append(one)
    node.kubectl("create", "-f", "-", text=yaml.safe_dump_all([template, *pods]))


def test_the_driver_publishes_what_is_rendered_and_verify_compares_it(node):
    assert node.capacity["nodes"][NODE]["devices"] == DEVICES
    wait_for(lambda: node.report("inspect")["offered"][NODE] == DEVICES, 180)
    kubeconfig = node.lab("kubeconfig").strip()
    shown = node.play(
        "verify", "-e", f"gpu_cluster_kubeconfig={kubeconfig}", "-e", f"gpu_verify_capacity={node.tree}/capacity.json"
    )
    assert "devices of claims gpu.nvidia.com: 1, mig.nvidia.com/1g.10gb: 2, mig.nvidia.com/3g.40gb: 1" in shown


@pytest.mark.parametrize("kind", EXAMPLES)
def test_each_claim_gets_exactly_its_device_and_the_next_one_waits(node, kind):
    example, fits = EXAMPLES[kind], DEVICES[kind]
    claiming(node, example, fits + 1)
    try:
        wait_for(lambda: [pod["status"]["phase"] for pod in node.pods(example)].count("Running") == fits, 180)
        pods = {pod["metadata"]["name"]: pod["status"]["phase"] for pod in node.pods(example)}
        assert set(pods.values()) == {"Running", "Pending"}
        running = [name for name, phase in pods.items() if phase == "Running"]
        seen = {name: devices(node.kubectl("exec", name, "--", "nvidia-smi", "-L")) for name in running}
        assert seen == {name: devices(node.kubectl("logs", name)) for name in running}
        given = [uuid for found in seen.values() for uuid in found]
        assert len(given) == len(set(given)) == fits, "one device for each, and none for two"
        held = {
            share["device"]: share["pods"]
            for gpu in node.report("inspect")["ledger"][NODE]["gpus"]
            for share in gpu["shares"]
            if share["pods"]
        }
        assert held == {seen[name][0]: {f"default/{name}": 1} for name in running}
    finally:
        node.kubectl("delete", "pods", "-l", f"example={example}", "--force", "--grace-period=0")
        node.kubectl("delete", "resourceclaimtemplates", example)
        wait_for(lambda: not node.pods(example), 120)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_claim_in_the_runtime_class_gets_its_device_alone_although_its_image_says_all(node, kind):
    """Without the policies, which refuse it."""
    example = EXAMPLES[kind]
    node.kubectl("apply", "-f", "-", text=json.dumps(RUNTIME_CLASS))
    claiming(node, example, 1, runtimeClassName="nvidia")
    try:
        wait_for(lambda: [pod["status"]["phase"] for pod in node.pods(example)] == ["Running"], 120)
        (name,) = [pod["metadata"]["name"] for pod in node.pods(example)]
        said = node.kubectl("exec", name, "--", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES").strip()
        assert said in ("all", "void"), "the image's, or what the DRA driver makes of it"
        shown = node.kubectl("exec", name, "--", "nvidia-smi", "-L")
        assert len(devices(shown)) == 1
        assert shown.count("GPU ") == 1, "nor the other GPU"
    finally:
        node.kubectl("delete", "pods", "-l", f"example={example}", "--force", "--grace-period=0")
        node.kubectl("delete", "resourceclaimtemplates", example)
        wait_for(lambda: not node.pods(example), 120)


RULE = f"gpufleet-gpu-0-{NODE}"


def deployed(node, example, count):
    """The rendered claim, and so many pods of it that come back when they are evicted."""
    template, pod = yaml.safe_load_all((node.tree / "examples" / f"{example}.yaml").read_text())
    staying = node.staying(pod)
    labels = {"example": example}
    spec = {"replicas": count, "selector": {"matchLabels": labels}}
    spec["template"] = {"metadata": {"labels": labels}, "spec": {**staying["spec"], "restartPolicy": "Always"}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": example}, "spec": spec}
    node.kubectl("create", "-f", "-", text=yaml.safe_dump_all([template, deployment]))


def phases(node, example):
    return sorted(pod["status"]["phase"] for pod in node.pods(example) if "deletionTimestamp" not in pod["metadata"])


def heal(node, *arguments, **options):
    values = {"gpu_cluster_kubeconfig": node.lab("kubeconfig").strip(), **options}
    return node.run("heal", "--limit", NODE, *arguments, "-e", json.dumps(values))


def rules(node):
    return {one["metadata"]["name"]: one["spec"] for one in node.get("devicetaintrules")["items"]}


@pytest.mark.by_name
def test_a_broken_gpu_is_tainted_alone_until_it_is_proven_and_the_pods_on_the_other_one_see_nothing(node):
    """The older Kubernetes has no v1 of these rules: the node is cordoned, as before."""
    if node.kubernetes == OLDEST_KUBERNETES:
        assert "devicetaintrules" not in node.kubectl("get", "--raw", "/apis/resource.k8s.io/v1")
        return
    whole, parts = EXAMPLES[GPU], EXAMPLES["mig.nvidia.com/1g.10gb"]
    deployed(node, whole, 1)
    deployed(node, parts, 1)
    try:
        wait_for(lambda: phases(node, whole) == phases(node, parts) == ["Running"], 180)
        others = [(pod["metadata"]["uid"], pod["status"]["containerStatuses"]) for pod in node.pods(parts)]
        (broken,) = node.pods(whole)
        # A recovery action that this release does not know: it is for people.
        node.lab("exec", NODE, "--", "virtual-gpu", "recovery", "--gpu", "0", "--action", "9")
        plan = heal(node, "--check").stdout
        assert "taints gpu-0; the node stays in service" in plan
        assert rules(node) == {}, "check mode touches nothing"
        done = heal(node)
        assert done.returncode != 0 and "Handed over to people" in done.stdout, done.stdout[-4000:]
        selector = {"driver": "gpu.nvidia.com", "pool": NODE, "device": "gpu-0"}
        assert {name: spec["deviceSelector"] for name, spec in rules(node).items()} == {RULE: selector}
        assert not node.get("node", NODE)["spec"].get("unschedulable")
        # Its claim waits, and the other GPU takes new ones.
        wait_for(lambda: phases(node, whole) == ["Pending"], 120)
        assert broken["metadata"]["uid"] not in [pod["metadata"]["uid"] for pod in node.pods(whole)]
        node.kubectl("scale", "deployment", parts, "--replicas=2")
        wait_for(lambda: phases(node, parts) == ["Running", "Running"], 180)
        # The board was replaced.
        node.lab("exec", NODE, "--", "virtual-gpu", "recovery", "--gpu", "0", "--action", "0")
        back = heal(node, gpu_heal_retry=True)
        assert back.returncode == 0, back.stdout[-4000:]
        assert rules(node) == {}
        wait_for(lambda: phases(node, whole) == ["Running"], 180)
        # And a reset from beginning to end.
        node.lab("exec", NODE, "--", "virtual-gpu", "recovery", "--gpu", "0", "--action", "1", "--until", "reset")
        done = heal(node)
        assert done.returncode == 0, done.stdout[-4000:]
        assert rules(node) == {} and not node.get("node", NODE)["spec"].get("unschedulable")
        wait_for(lambda: phases(node, whole) == ["Running"], 180)
        there = [(pod["metadata"]["uid"], pod["status"]["containerStatuses"]) for pod in node.pods(parts)]
        assert all(one in there for one in others), "no pod on the other GPU was restarted"
    finally:
        node.kubectl("delete", "deployments", whole, parts, "--cascade=foreground")
        node.kubectl("delete", "resourceclaimtemplates", whole, parts)
        wait_for(lambda: not node.pods(whole) and not node.pods(parts), 120)


@pytest.mark.by_name
def test_helm_test_claims_a_device_of_each_kind_and_fails_where_one_is_taken(node):
    """What a claim gets is shown above; the sample of these checks fails where it sees no device."""
    example, releases = EXAMPLES[GPU], Releases(node)
    releases.own_chart("verification.deadlineSeconds=120")
    try:
        assert releases.helm_test() == [f"claims-claim-{kind}" for kind in ("1g-10gb", "3g-40gb", "gpu")]
        releases.own_chart("verification.deadlineSeconds=5")
        claiming(node, example, 1)
        wait_for(lambda: [pod["status"]["phase"] for pod in node.pods(example)] == ["Running"], 120)
        with pytest.raises(LabError, match="claims-claim-gpu"):
            releases.helm_test("claims-claim-gpu")
    finally:
        releases.remove_own_chart()
        node.kubectl("delete", "pods", "-l", f"example={example}", "--force", "--grace-period=0")
        node.kubectl("delete", "resourceclaimtemplates", example, "--ignore-not-found")
        wait_for(lambda: not node.pods(example), 120)
