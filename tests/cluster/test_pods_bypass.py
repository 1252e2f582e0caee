# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What unprivileged pods get of GPUs that they were not given: tried against the runtime, without the policies that refuse such pods."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml
from demo import devices, wait_for
from releases import Releases

#: By way of injection, a pool that has MIG devices, and what one of them is called there.
POOLS = {"cdi": "training", "volume_mounts": "batch"}
RESOURCES = {"cdi": "nvidia.com/mig-1g.10gb", "volume_mounts": "nvidia.com/gpu"}
IMAGE = "nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0"
MAGIC = "/var/run/nvidia-container-devices"
DEV_NULL = {"hostPath": {"path": "/dev/null"}}
#: What a container is shown, and what happens to one that makes the node of the first GPU for itself, as root may.
PROBE = """
find /dev /host-dev -name 'nvidia*'
nvidia-smi -L
busybox mknod /tmp/made c 195 0 && cat /tmp/made
[ ! -e /host-dev ] || cat /host-dev/nvidia0
"""


@dataclass(frozen=True)
class Attempt:
    """What somebody adds to a pod that has no right to a GPU. ``GPU`` and ``MIG`` in it stand for a device of the node.

    :param variable: NVIDIA_VISIBLE_DEVICES; empty: the image's own, which says all as NVIDIA's images do.
    :param mounts: path in the container to the volume.
    """

    variable: str = ""
    mounts: dict[str, dict[str, Any]] = field(default_factory=dict)
    limits: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    #: Of the container, and of the pod.
    more: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)


#: Nothing of it gives a GPU, with or without the runtime class.
CLOSED = {
    "asks-for-nothing-with-an-image-that-says-all": Attempt(),
    "variable-all": Attempt("all"),
    "variable-gpu-uuid": Attempt("GPU"),
    "variable-mig-uuid": Attempt("MIG"),
    "asks-for-0-gpus": Attempt("all", limits={"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "0"}),
    "annotation-cdi": Attempt(annotations={"cdi.k8s.io/x": "nvidia.com/gpu=all"}),
    "magic-path-emptydir": Attempt(mounts={f"{MAGIC}/all": {"emptyDir": {}}}),
    "dev-of-the-host": Attempt("all", mounts={"/host-dev": {"hostPath": {"path": "/dev"}}}),
    "variable-from-a-config-map": Attempt(more={"envFrom": [{"configMapRef": {"name": "all"}}]}),
    "ipc-of-the-host": Attempt("all", spec={"hostIPC": True}),
    "another-class-of-the-same-handler": Attempt("all", spec={"runtimeClassName": "mine"}),
}
#: What the attempts name.
NAMED = [
    {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "all"},
        "data": {"NVIDIA_VISIBLE_DEVICES": "all"},
    },
    {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "mine"}, "handler": "nvidia"},
]
#: Has every device node of the host, whatever hands devices over.
PRIVILEGED = {"privileged": Attempt("all", more={"securityContext": {"privileged": True}})}
#: The NVIDIA runtime takes it for the device plugin's own mount where that is how devices are handed over.
OPEN_TO_VOLUME_MOUNTS = {
    "magic-path-all": Attempt(mounts={f"{MAGIC}/all": DEV_NULL}),
    "magic-path-gpu-uuid": Attempt(mounts={f"{MAGIC}/GPU": DEV_NULL}),
    "magic-path-mig-uuid": Attempt(mounts={f"{MAGIC}/MIG": DEV_NULL}),
}
#: Leads out of the mount namespace in which runc makes the container.
NEVER_STARTS = {
    "dev-of-the-host-by-proc": Attempt("all", mounts={"/host-dev": {"hostPath": {"path": "/proc/1/root/dev"}}})
}
ATTEMPTS = {**CLOSED, **OPEN_TO_VOLUME_MOUNTS, **PRIVILEGED, **NEVER_STARTS}
CLASSES = {"without-class": None, "runtime-class": "nvidia"}
#: Asks for one device, by right, and names all: with a neighbour in its pod that asks for nothing.
GREEDY = "asks-for-one-and-names-all"


@dataclass
class Tried:
    """What became of the pods.

    :param nodes: by way of injection.
    :param there: devices of the node of each way.
    :param logs: by way and container.
    """

    nodes: dict[str, str] = field(default_factory=dict)
    there: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    logs: dict[tuple[str, str], str] = field(default_factory=dict)

    def log(self, way: str, attempt: str, runtime_class: str) -> str:
        return self.logs[way, f"{attempt}-{runtime_class}"]


def container(name: str, attempt: Attempt, here: dict[str, list[str]]) -> dict[str, Any]:
    def filled(text: str) -> str:
        for kind in ("GPU", "MIG"):
            text = text.replace(kind, here[kind][0])
        return text

    return {
        "name": name,
        "image": IMAGE,
        "command": ["sh", "-c", PROBE + "true"],
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": filled(attempt.variable)}] if attempt.variable else [],
        "resources": {"limits": attempt.limits},
        "volumeMounts": [
            {"name": f"v{number}", "mountPath": filled(path)} for number, path in enumerate(attempt.mounts)
        ],
        **attempt.more,
    }


def pod(
    node: str, name: str, runtime_class: str | None, attempt: Attempt, containers: list[dict[str, Any]]
) -> dict[str, Any]:
    spec = {
        "restartPolicy": "Never",
        "nodeSelector": {"kubernetes.io/hostname": node},
        "containers": containers,
        "volumes": [{"name": f"v{number}", **source} for number, source in enumerate(attempt.mounts.values())],
        **({"runtimeClassName": runtime_class} if runtime_class else {}),
        **attempt.spec,
    }
    metadata = {"name": f"{name}-{node}", "labels": {"tries": node}, "annotations": attempt.annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.fixture(scope="module")
def tried(example_fleet):
    """Every attempt on every node, all at once: what each container wrote."""
    demo = example_fleet
    found = Tried({way: demo.node_of(pool) for way, pool in POOLS.items()})
    pods = []
    for way, node in found.nodes.items():
        listing = demo.lab("exec", node, "--", "nvidia-smi", "-L")
        mig = devices(listing)
        whole = [uuid for uuid in devices(listing.replace("MIG-", "")) if uuid.startswith("GPU-")]
        here = found.there[way] = {"GPU": whole, "MIG": mig}
        for name, attempt in ATTEMPTS.items():
            for title, runtime_class in CLASSES.items():
                pods.append(pod(node, f"{name}-{title}", runtime_class, attempt, [container("main", attempt, here)]))
        greedy = Attempt("all", limits={RESOURCES[way]: "1"})
        both = [container("main", greedy, here), container("neighbour", Attempt("all"), here)]
        pods.append(pod(node, GREEDY, "nvidia", greedy, both))
    demo.kubectl("create", "-f", "-", text=yaml.safe_dump_all([*NAMED, *pods]))

    def over():
        there = demo.get("pods", "-l", "tries")["items"]
        return len(there) == len(pods) and all(one["status"]["phase"] in ("Succeeded", "Failed") for one in there)

    try:
        wait_for(over, 300)
        everything = demo.kubectl(
            "logs", "-l", "tries", "--all-containers", "--prefix", "--tail=-1", "--max-log-requests=100"
        )
        for line in everything.splitlines():
            where, _space, text = line.partition(" ")
            _pod, name, of = where.strip("[]").split("/")
            way, node = next(one for one in found.nodes.items() if name.endswith(one[1]))
            key = (way, name.removesuffix(f"-{node}") + ("" if of == "main" else f"-{of}"))
            found.logs[key] = found.logs.get(key, "") + text + "\n"
        yield found
    finally:
        demo.kubectl("delete", "pods", "-l", "tries", "--force", "--grace-period=0")
        demo.kubectl("delete", "-f", "-", text=yaml.safe_dump_all(NAMED))


def sees_none(log: str) -> bool:
    """Whether a container got no device, no driver, and no right to the node of one."""
    shown = [line for line in log.splitlines() if line.startswith("/dev/")]
    refused = [line for line in log.splitlines() if line.startswith("cat: can't open")]
    return (
        not devices(log) and not shown and bool(refused) and all("Operation not permitted" in line for line in refused)
    )


@pytest.mark.parametrize("runtime_class", CLASSES)
@pytest.mark.parametrize("attempt", CLOSED)
@pytest.mark.parametrize("way", POOLS)
def test_a_pod_gets_no_gpu_that_it_was_not_given(tried, way, attempt, runtime_class):
    log = tried.log(way, attempt, runtime_class)
    assert sees_none(log), log


@pytest.mark.parametrize("runtime_class", CLASSES)
@pytest.mark.parametrize("attempt", NEVER_STARTS)
@pytest.mark.parametrize("way", POOLS)
def test_a_container_with_the_hosts_files_by_proc_is_never_started(example_fleet, tried, way, attempt, runtime_class):
    """runc's own word; with another one the mount would be that of dev-of-the-host, which gives no GPU."""
    assert not devices(tried.logs.get((way, f"{attempt}-{runtime_class}"), ""))
    pod = example_fleet.get("pod", f"{attempt}-{runtime_class}-{tried.nodes[way]}")
    (ended,) = [one["state"]["terminated"] for one in pod["status"]["containerStatuses"]]
    assert 'error mounting "/proc/1/root/dev"' in ended["message"]


@pytest.mark.parametrize("attempt", OPEN_TO_VOLUME_MOUNTS)
@pytest.mark.parametrize(
    ("way", "runtime_class"), [("cdi", "without-class"), ("cdi", "runtime-class"), ("volume_mounts", "without-class")]
)
def test_a_mount_at_the_magic_path_gives_no_gpu_by_cdi_or_without_the_runtime_class(tried, way, runtime_class, attempt):
    log = tried.log(way, attempt, runtime_class)
    assert sees_none(log), log


@pytest.mark.parametrize("attempt", OPEN_TO_VOLUME_MOUNTS)
def test_without_policies_a_hostpath_at_the_magic_path_stays_open_under_volume_mounts(tried, attempt):
    """The roles' README says so: only Pod Security or the policies keep such pods out."""
    log = tried.log("volume_mounts", attempt, "runtime-class")
    here = tried.there["volume_mounts"]
    expected = {"all": here["MIG"], "gpu": here["GPU"][:1], "mig": here["MIG"][:1]}[attempt.split("-")[2]]
    assert devices(log) == sorted(expected), log


@pytest.mark.parametrize("runtime_class", CLASSES)
@pytest.mark.parametrize("way", POOLS)
def test_without_policies_a_privileged_pod_has_every_gpu(tried, way, runtime_class):
    """As on any node: only Pod Security or the policies keep such pods out."""
    log = tried.log(way, "privileged", runtime_class)
    nodes = {f"/dev/nvidia{index}" for index in range(len(tried.there[way]["GPU"]))}
    assert nodes <= set(log.splitlines()), log


@pytest.mark.parametrize("way", POOLS)
def test_a_debug_container_in_a_pod_with_a_gpu_is_given_none(example_fleet, tried, way):
    """It starts in the pod's runtime class, and its image says all."""
    demo, node = example_fleet, tried.nodes[way]
    greedy = Attempt(limits={RESOURCES[way]: "1"})
    main = {**container("main", greedy, tried.there[way]), "command": ["sleep", "86400"]}
    item = pod(node, "debugged", "nvidia", greedy, [main])
    name = item["metadata"]["name"]
    demo.kubectl("create", "-f", "-", text=json.dumps(item))
    demo.kubectl("wait", "--for=condition=Ready", "--timeout=60s", f"pod/{name}")
    demo.kubectl("debug", name, f"--image={IMAGE}", "--container=debugger", "--", "sh", "-c", PROBE + "true")

    def ended():
        status = demo.get("pod", name)["status"]
        return [one for one in status.get("ephemeralContainerStatuses", []) if "terminated" in one["state"]]

    wait_for(ended, 60)
    log = demo.kubectl("logs", name, "--container=debugger")
    assert sees_none(log), log


@pytest.mark.parametrize("way", POOLS)
def test_a_container_that_asks_for_one_and_names_all_gets_one_and_its_neighbour_none(tried, way):
    here = tried.there[way]["MIG"]
    (given,) = devices(tried.logs[way, GREEDY])
    assert given in here
    neighbour = tried.logs[way, f"{GREEDY}-neighbour"]
    assert sees_none(neighbour), neighbour


def test_the_rendered_policies_refuse_the_pod_that_stays_open_and_admit_the_example(example_fleet):
    """With the tree's own values of the chart, and nothing but the mode changed."""
    demo = example_fleet
    node = demo.node_of(POOLS["volume_mounts"])
    attempt = OPEN_TO_VOLUME_MOUNTS["magic-path-all"]
    here = {"GPU": ["GPU-0"], "MIG": ["MIG-0"]}
    taking = pod(node, "refused", "nvidia", attempt, [container("main", attempt, here)])

    def create(item: dict[str, Any]) -> str:
        try:
            return demo.kubectl("create", "--dry-run=server", "-f", "-", text=json.dumps(item))
        except AssertionError as error:
            return str(error)

    assert "created (server dry run)" in create(taking)
    releases = Releases(demo)
    releases.own_chart("policies.mode=deny")
    try:
        answer = wait_for(lambda: next((text for text in [create(taking)] if "created" not in text), ""), 180)
        # It offends several policies, and any of them may be the first that the API server names.
        assert "ValidatingAdmissionPolicy" in answer
        for example in sorted((demo.tree / "examples").glob("*.yaml")):
            assert "created (server dry run)" in create(yaml.safe_load(example.read_text())), example.name
    finally:
        releases.remove_own_chart()
