# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Against a real API server: installation with helm, policies that admit and refuse, rendered objects in a strict dry run."""

from __future__ import annotations

import contextlib
import copy
import json
import time

import pytest
import yaml
from chart_under_test import CHART
from policy_cases import (
    ADMITTED,
    ANNOTATING,
    BYPASSES,
    CREATE,
    DEBUG,
    DEBUG_ADMITTED,
    GPU,
    GPU_RESOURCES,
    REFUSED,
    SYSTEM_PODS,
    container,
    env,
    gpu_pod,
    host_path,
    pod,
)

DENY = {
    "policies": {"mode": "deny", "gpuResources": GPU_RESOURCES},
    "verification": {"checks": [{"name": "shared", "resource": "nvidia.com/gpu"}]},
}
#: One object that each policy refuses.
EACH = {
    "visible-devices": "devices by hand: 'all'",
    "environment": "a ConfigMap for envFrom",
    "annotations": "annotation cdi.k8s.io/gpu",
    "privileged": "privileged without a GPU",
    "host-devices": "hostPath /dev",
    "limits": "the runtime class without a GPU",
    "runtime-classes": "a runtime class of its own",
}
EXEMPT = "gpufleet.github.io/exempt"


@pytest.fixture
def installed_with(helm, installed, tmp_path):
    """Return a context in which the chart has other values; it waits until C(there) holds, and afterwards for all to be as before."""

    @contextlib.contextmanager
    def change(there, policies, **values):
        path = tmp_path / "values.yaml"
        arguments = ["upgrade", "test", CHART, "--namespace", "gpu", "-f", path]
        path.write_text(json.dumps({**DENY, **values, "policies": {**DENY["policies"], **policies}}))
        helm(*arguments, KUBECONFIG=str(installed.kubeconfig))
        try:
            eventually(there, "the new values are not enforced")
            yield installed
        finally:
            path.write_text(json.dumps(DENY))
            helm(*arguments, KUBECONFIG=str(installed.kubeconfig))
            enforced(installed)

    return change


def enforced(plane):
    """Wait until every policy refuses, and none refuses an ordinary pod."""
    for name in EACH.values():
        eventually(lambda name=name: create(plane, REFUSED[name][0]).returncode, f"{name} is not refused")
    eventually(lambda: create(plane, pod()).returncode == 0, "an ordinary pod is refused")


def eventually(condition, otherwise):
    until = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < until, otherwise
        time.sleep(0.5)


def create(plane, item, namespace="work"):
    arguments = ["create", "--dry-run=server", "--validate=strict", "--namespace", namespace, "-f", "-"]
    return plane.kubectl(*arguments, text=json.dumps(item), check=False)


def refused(answer, words):
    """Whether a policy refused, with the thing, the reason and the remedy in one sentence of its own."""
    assert answer.returncode != 0, answer.stdout
    assert "ValidatingAdmissionPolicy" in answer.stderr
    assert words in answer.stderr
    assert "failed expression" not in answer.stderr
    assert any(
        remedy in answer.stderr for remedy in ("Remove", "Set it to", "Choose another", "Ask for a GPU", "Use one of")
    )


@pytest.mark.parametrize("item", ADMITTED.values(), ids=ADMITTED.keys())
def test_admitted(installed, item):
    answer = create(installed, item)
    assert answer.returncode == 0, answer.stderr
    assert "Warning" not in answer.stderr


@pytest.mark.parametrize(("way", "item", "words"), BYPASSES.values(), ids=BYPASSES.keys())
def test_every_bypass_is_refused_with_the_remedy(installed, running, way, item, words):
    answer = attempt(installed, running, way, item)
    refused(answer, words)
    if item.get("kind") != "RuntimeClass":
        assert EXEMPT in answer.stderr


def attempt(plane, running, way, item):
    """Try one of the ways of C(policy_cases)."""
    if way == CREATE:
        return create(plane, item)
    if way == DEBUG:
        return add_debug_container(plane, running, item)
    return annotate(plane, running, way, item)


def annotate(plane, name, way, annotations):
    """Give a pod annotations, by one of the requests that can."""
    kind, _slash, subresource = way.partition("/")
    pods = "/api/v1/namespaces/work/pods"
    if "binding" in way:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "annotations": annotations},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "one"},
        }
        path = f"{pods}/{name}/binding" if kind == "pod" else "/api/v1/namespaces/work/bindings"
        return plane.kubectl("create", "--raw", f"{path}?dryRun=All", "-f", "-", text=json.dumps(body), check=False)
    held = json.loads(plane.kubectl("get", "pod", name, "--namespace", "work", "-o", "json").stdout)
    held["metadata"].setdefault("annotations", {}).update(annotations)
    path = "/".join([pods, name, *([subresource] if subresource else [])])
    return plane.kubectl("replace", "--raw", f"{path}?dryRun=All", "-f", "-", text=json.dumps(held), check=False)


def node(name="one", labels=None, annotations=None):
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
    }


def by_kubelet(plane, *arguments, name="one", text=None):
    """Ask as the kubelet of a node does: by name and group, which the authorizer of nodes and NodeRestriction know it by."""
    as_node = (f"--as=system:node:{name}", "--as-group=system:nodes", "--as-group=system:authenticated")
    return plane.kubectl(*as_node, *arguments, text=text, check=False)


POOL = "gpufleet.github.io/pool"


@pytest.fixture(scope="module")
def labelled(installed):
    """Return the name of a node that the administrator has put into a pool, and that is nobody's kubelet's."""
    item = node(
        labels={POOL: "batch", "example.com/rack": "4"}, annotations={"gpufleet.github.io/upgrade-state": "done"}
    )
    installed.kubectl("create", "-f", "-", text=json.dumps(item))
    eventually(
        lambda: (
            by_kubelet(installed, "label", "--dry-run=server", "node", "one", f"{POOL}=x", "--overwrite").returncode
        ),
        "the policy over the labels of nodes is not enforced",
    )
    return "one"


def changed(plane, name, subresource="", **metadata):
    """Return the arguments that replace a node by itself with other metadata, and its text. None takes a key away."""
    item = json.loads(plane.kubectl("get", "node", name, "-o", "json").stdout)
    for field, values in metadata.items():
        item["metadata"][field].update(values)
        item["metadata"][field] = {key: value for key, value in item["metadata"][field].items() if value is not None}
    return ("replace", "--raw", f"/api/v1/nodes/{name}{subresource}?dryRun=All", "-f", "-"), json.dumps(item)


@pytest.mark.parametrize("subresource", ["", "/status"])
@pytest.mark.parametrize(
    "change",
    [
        {"labels": {POOL: "training"}},
        {"labels": {POOL: None}},
        {"labels": {"gpufleet.github.io/configuration": "training"}},
        {"annotations": {"gpufleet.github.io/upgrade-state": "failed"}},
        {"annotations": {"gpufleet.github.io/upgrade-state": None}},
    ],
    ids=json.dumps,
)
def test_a_kubelet_does_not_choose_its_pool(installed, labelled, subresource, change):
    """The status is one of the ways: the API server takes labels from an update of it, too."""
    request, text = changed(installed, labelled, subresource, **change)
    (values,) = change.values()
    refused(by_kubelet(installed, *request, text=text), f"node one: {next(iter(values))} says to which pool")
    # Whoever labels the pools may.
    installed.kubectl(*request, text=text)


def test_a_kubelet_does_everything_else_that_it_may(installed, labelled):
    for change in (
        {"labels": {"example.com/rack": "5"}},
        {"labels": {"example.com/rack": None}},
        {"annotations": {"example.com/note": "x"}},
    ):
        for subresource in ("", "/status"):
            request, text = changed(installed, labelled, subresource, **change)
            answer = by_kubelet(installed, *request, text=text)
            assert answer.returncode == 0, answer.stderr
            assert "Warning" not in answer.stderr
    # NodeRestriction keeps it from the labels that nodes are isolated by, which is what the documentation counts on.
    request, text = changed(installed, labelled, labels={"node-restriction.kubernetes.io/tenant": "a"})
    answer = by_kubelet(installed, *request, text=text)
    assert answer.returncode != 0
    assert "is not allowed to modify labels: node-restriction.kubernetes.io/tenant" in answer.stderr + answer.stdout


def test_a_node_registers_without_a_pool(installed, labelled):
    assert labelled
    create_it = ["create", "--dry-run=server", "-f", "-"]
    answer = by_kubelet(installed, *create_it, name="two", text=json.dumps(node("two", {"example.com/rack": "4"})))
    assert answer.returncode == 0, answer.stderr
    answer = by_kubelet(installed, *create_it, name="two", text=json.dumps(node("two", {POOL: "batch"})))
    refused(answer, f"node two: {POOL} says to which pool")


@pytest.fixture(scope="module")
def running(installed):
    """Return the name of a GPU pod that is there, with a volume that debug containers can mount."""
    item = gpu_pod(name="running", volumes=[{"name": "x", "emptyDir": {}}])
    installed.kubectl("create", "--namespace", "work", "-f", "-", text=json.dumps(item))
    return item["metadata"]["name"]


def add_debug_container(plane, name, item):
    held = json.loads(plane.kubectl("get", "pod", name, "--namespace", "work", "-o", "json").stdout)
    held["spec"]["ephemeralContainers"] = [item]
    path = f"/api/v1/namespaces/work/pods/{name}/ephemeralcontainers?dryRun=All"
    return plane.kubectl("replace", "--raw", path, "-f", "-", text=json.dumps(held), check=False)


@pytest.mark.parametrize("item", DEBUG_ADMITTED.values(), ids=DEBUG_ADMITTED.keys())
def test_debug_containers_admitted(installed, running, item):
    answer = add_debug_container(installed, running, item)
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("way", ANNOTATING)
def test_other_annotations_of_a_pod_that_is_there(installed, running, way):
    answer = annotate(installed, running, way, {"example.com/owner": "me"})
    assert answer.returncode == 0, answer.stderr
    assert "Warning" not in answer.stderr


def test_host_paths_of_a_site(installed, installed_with):
    """A path more, one less, and a service account that may: only in its namespace, and nothing but host paths."""
    agent, log = pod(**host_path("/srv/agent/run")), pod(**host_path("/var/log"))
    values = {"paths": ["/srv/agent"], "openPaths": ["/var/log"], "serviceAccounts": ["work/shipper"]}
    for name in ("shipper", "other"):
        for namespace in ("work", "gpu"):
            installed.kubectl("create", "serviceaccount", name, "--namespace", namespace)
    assert create(installed, agent).returncode == 0
    with installed_with(lambda: create(installed, agent).returncode, {"hostDevices": values}):
        refused(create(installed, agent), "spec.volumes: hostPath /srv/agent/run")
        refused(create(installed, pod(**host_path("/srv"))), "spec.volumes: hostPath /srv ")
        assert create(installed, log).returncode == 0
        refused(create(installed, pod(**host_path("/var/log/pods"))), "spec.volumes: hostPath /var/log/pods")
        for name, namespace, may in (("shipper", "work", True), ("other", "work", False), ("shipper", "gpu", False)):
            answer = create(installed, pod(serviceAccountName=name, **host_path("/var/log/pods")), namespace)
            assert (answer.returncode == 0) == may, (name, namespace, answer.stderr)
        refused(create(installed, pod(serviceAccountName="shipper", hostPID=True)), "spec.hostPID")


def test_pods_from_before_the_policies_can_be_changed(installed):
    """A controller that takes its finalizer off an annotated pod is not in the policies' way."""
    installed.kubectl("create", "namespace", "before")
    installed.kubectl("label", "namespace", "before", f"{EXEMPT}=true")
    item = REFUSED["annotation cdi.k8s.io/gpu"][0]
    eventually(lambda: create(installed, item, "before").returncode == 0, "the namespace is not exempt")
    installed.kubectl("create", "--namespace", "before", "-f", "-", text=json.dumps(item))
    installed.kubectl("label", "namespace", "before", f"{EXEMPT}-")
    eventually(lambda: create(installed, item, "before").returncode, "the namespace is exempt still")
    change = ["pod", "probe", "--namespace", "before", "--dry-run=server"]
    assert installed.kubectl("label", *change, "example.com/a=b").returncode == 0
    answer = installed.kubectl("annotate", *change, "--overwrite", "cdi.k8s.io/gpu=nvidia.com/gpu=0", check=False)
    refused(answer, "metadata.annotations: cdi.k8s.io/gpu")


@pytest.mark.parametrize("namespace", ["exempt", "kube-system"])
def test_exempt_namespaces(installed, namespace):
    items = [item for item, _words in REFUSED.values() if item["kind"] != "RuntimeClass"]
    answer = create(installed, {"apiVersion": "v1", "kind": "List", "items": items}, namespace)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.count("created (server dry run)") == len(items)


@pytest.mark.parametrize("item", SYSTEM_PODS.values(), ids=SYSTEM_PODS.keys())
def test_pods_of_the_releases(installed, demo_tree, item):
    """The rendered namespace of the releases is exempt, and their pods would not run in another."""
    namespace = yaml.safe_load((demo_tree / "objects" / "namespace.yaml").read_text())
    installed.kubectl("apply", "-f", "-", text=json.dumps(namespace))
    name = namespace["metadata"]["name"]
    eventually(lambda: create(installed, item, name).returncode == 0, f"{name} is not exempt")
    assert create(installed, item).returncode != 0


def test_exempt_from_one_policy(installed):
    installed.kubectl("create", "namespace", "partly")
    installed.kubectl("label", "namespace", "partly", f"{EXEMPT}-host-devices=true")
    device = REFUSED["hostPath /dev/nvidia0"][0]
    eventually(lambda: create(installed, device, "partly").returncode == 0, "the namespace is not exempt")
    for policy, name in EACH.items():
        assert bool(create(installed, REFUSED[name][0], "partly").returncode) == (policy != "host-devices"), policy


def test_a_label_on_the_pod_does_not_exempt_it(installed):
    item = copy.deepcopy(REFUSED["hostPath /dev/nvidia0"][0])
    item["metadata"]["labels"] = {EXEMPT: "true"}
    assert create(installed, item).returncode != 0


def test_a_label_on_the_pod_exempts_it_where_that_is_wanted(installed, installed_with):
    item = copy.deepcopy(REFUSED["hostPath /dev/nvidia0"][0])
    item["metadata"]["labels"] = {EXEMPT: "true"}
    with installed_with(lambda: create(installed, item).returncode == 0, {"exemptPods": True}):
        assert create(installed, REFUSED["hostPath /dev/nvidia0"][0]).returncode != 0


def test_the_api_server_refuses_by_itself(installed):
    """What the policies rely on: they have no rules for these, and exempt nobody from them."""
    for item, words in (
        (
            pod({"resources": {"requests": {"nvidia.com/gpu": "1"}}}),
            "Limit must be set for non overcommitable resources",
        ),
        (pod(volumes=[{"name": "x", "hostPath": {"path": "/tmp/../dev"}}]), "must not contain '..'"),
        (pod(runtimeClassName="unknown"), 'RuntimeClass "unknown" not found'),
    ):
        answer = create(installed, item, "exempt")
        assert answer.returncode != 0
        assert words in answer.stderr


def test_large_pods_are_within_the_cost_budget(installed):
    """CEL stops an expression at its cost limit, and the policy then refuses: far more than pods have must be possible."""
    variables = [{"name": f"NVIDIA_VARIABLE_{number}", "value": "x" * 50} for number in range(100)]
    mounts = [{"name": f"volume-{number}", "mountPath": f"/var/run/data/{number}"} for number in range(50)]
    part = {**GPU, "env": variables, "volumeMounts": mounts}
    item = gpu_pod(
        containers=[container(f"main-{number}", part) for number in range(50)],
        initContainers=[container(f"init-{number}", part) for number in range(20)],
        volumes=[{"name": f"volume-{number}", "hostPath": {"path": f"/data/a/b/c/{number}"}} for number in range(50)],
    )
    answer = create(installed, item)
    assert answer.returncode == 0, answer.stderr
    item["spec"]["containers"][-1]["env"] = [*variables, *env("all")["env"]]
    refused(create(installed, item), "container main-49: env sets one of")


def test_warn_admits_and_says_so(installed, installed_with):
    def admitted():
        return all(create(installed, REFUSED[name][0]).returncode == 0 for name in EACH.values())

    with installed_with(admitted, {"mode": "warn"}):
        for name in EACH.values():
            item, words = REFUSED[name]
            answer = create(installed, item)
            assert "Warning:" in answer.stderr
            assert words in answer.stderr


def test_one_policy_has_a_mode_of_its_own(installed, installed_with):
    device = REFUSED["hostPath /dev"][0]
    with installed_with(lambda: create(installed, device).returncode == 0, {"hostDevices": {"mode": "off"}}):
        assert "Warning" not in create(installed, device).stderr
        assert create(installed, REFUSED["privileged without a GPU"][0]).returncode != 0


def test_images_decide_nothing_without_envvar(installed, installed_with):
    """Where the runtime takes no devices from the environment, containers beside one with a GPU need no void."""
    second = REFUSED["a second container without a GPU"][0]
    with installed_with(
        lambda: create(installed, second).returncode == 0, {"deviceInjection": ["cdi", "volume_mounts"]}
    ):
        assert create(installed, gpu_pod(initContainers=[container("init")])).returncode == 0
        assert create(installed, pod()).returncode == 0
        for name in (
            "the runtime class without a GPU",
            "the runtime class with no GPUs",
            "the runtime class with a claim",
        ):
            refused(create(installed, REFUSED[name][0]), "spec.runtimeClassName: the pod starts in the NVIDIA runtime")


def test_the_nvidia_runtime_as_the_default_of_the_nodes(installed, installed_with):
    """Then a pod needs no runtime class to see the GPUs, and every container has to say that it wants none."""
    nothing = {"create": False, "name": ""}
    with installed_with(lambda: create(installed, pod()).returncode, {"defaultRuntime": True}, runtimeClass=nothing):
        refused(
            create(installed, pod()), "container main: starts in the NVIDIA runtime (the default runtime of the nodes)"
        )
        assert create(installed, pod(env("void"))).returncode == 0
        assert create(installed, pod(GPU)).returncode == 0
        # Pods in another runtime are no business of the policy.
        gvisor = {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "gvisor"},
            "handler": "runsc",
        }
        installed.kubectl("apply", "-f", "-", text=json.dumps(gvisor))
        eventually(lambda: create(installed, pod(runtimeClassName="gvisor")).returncode == 0, "gvisor pods are refused")


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
