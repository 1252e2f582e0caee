# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pods at random against the policies of a real API server: what they admit, and what asks for no GPU, is given none by the toolkit's own rules."""

from __future__ import annotations

import json
import posixpath

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from policy_cases import MAGIC, container, pod

ASKS = [{"limits": {"nvidia.com/gpu": "1"}}, {"limits": {"nvidia.com/mig-1g.10gb": "1"}}]
NOTHING = [None, None, {"limits": {"nvidia.com/gpu": "0"}}, {"limits": {"cpu": "1"}}]
VISIBLE = ["void", "none", "all", "0", "GPU-8d1f4b4c", "", " void", "nvidia.com/gpu=all"]
#: Where GPUs are on a host, and folders that have nothing to do with them.
PATHS = [
    "/",
    "/dev",
    "/dev/null",
    "/dev/nvidia0",
    "//dev/./nvidiactl",
    "/proc",
    "/run/nvidia/driver",
    "/var/run/cdi",
    "/etc/cdi",
]
HARMLESS = ["/data", "/srv/logs"]
ANNOTATIONS = ["cdi.k8s.io/gpu", "nvidia.cdi.k8s.io/x", "example.com/owner"]


@st.composite
def containers(draw, name, volumes):
    made = container(name)
    asked = draw(st.sampled_from([*NOTHING, *ASKS]))
    if asked:
        made["resources"] = asked
    value = draw(st.sampled_from([*[None, "void"] * 5, *VISIBLE]))
    if value is not None:
        made["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}]
    mounts = [
        {"name": volume, "mountPath": f"{draw(st.sampled_from([MAGIC, '/mnt', '/mnt', '/mnt']))}/{volume}"}
        for volume in volumes
        if draw(st.integers(0, 2)) == 0
    ]
    if mounts:
        made["volumeMounts"] = mounts
    if draw(st.integers(0, 7)) == 0:
        made["securityContext"] = draw(
            st.sampled_from([{"privileged": True}, {"capabilities": {"add": ["SYS_ADMIN"]}}, {"runAsUser": 1000}])
        )
    return made


@st.composite
def pods(draw):
    paths = draw(st.lists(st.sampled_from([*PATHS, *HARMLESS * 6]), max_size=1))
    volumes = {f"v{number}": {"hostPath": {"path": path}} for number, path in enumerate(paths)}
    if draw(st.booleans()):
        volumes["own"] = {"emptyDir": {}}
    spec = {
        "containers": [draw(containers(f"main-{number}", list(volumes))) for number in range(draw(st.integers(1, 2)))]
    }
    if draw(st.booleans()):
        spec["initContainers"] = [draw(containers("init", list(volumes)))]
    if volumes:
        spec["volumes"] = [{"name": name, **source} for name, source in volumes.items()]
    if draw(st.booleans()):
        spec["runtimeClassName"] = "nvidia"
    found = draw(st.sampled_from([[], [], [], *[[name] for name in ANNOTATIONS]]))
    return pod(annotations=dict.fromkeys(found, "x"), **spec)


def gives(item, part):
    """Return by which of its rules the runtime, or the kernel, gives GPUs to a container; nothing where none does.

    The image is one of CUDA, which asks for all GPUs itself, and the toolkit accepts every way (nvidia-container-toolkit, internal/config/image).
    """
    spec, found = item["spec"], []
    if any(
        name.split("/")[0] in ("cdi.k8s.io", "nvidia.cdi.k8s.io") for name in item["metadata"].get("annotations", {})
    ):
        found.append("an annotation of CDI")
    context = part.get("securityContext", {})
    if context.get("privileged") or context.get("capabilities"):
        found.append("it may do what root may")
    sources = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in spec.get("volumes", [])}
    for mount in part.get("volumeMounts", []):
        source = sources[mount["name"]] and posixpath.normpath("/" + sources[mount["name"]].lstrip("/"))
        if source == "/dev/null" and mount["mountPath"].startswith(MAGIC) and spec.get("runtimeClassName"):
            found.append("a mount of the device list")
        if source in ("/", "/dev", "/proc") or (source or "").startswith(
            ("/dev/nvidia", "/run/nvidia", "/var/run/cdi", "/etc/cdi")
        ):
            found.append(f"the host's {source}")
    if spec.get("runtimeClassName") == "nvidia":
        (value,) = [entry["value"] for entry in part.get("env", [])] or ["all"]
        if value not in ("void", "none", ""):
            found.append(f"NVIDIA_VISIBLE_DEVICES={value}")
    return found


def asks(part):
    return part.get("resources") in ASKS


@pytest.mark.parametrize("rounds", [6])
def test_what_is_admitted_and_asks_for_nothing_is_given_nothing(installed, rounds):
    outcome = {"admitted": 0, "refused": 0, "would give": 0}

    @settings(
        max_examples=rounds,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(pods(), min_size=100, max_size=100))
    def check(drawn):
        named = [{**item, "metadata": {**item["metadata"], "name": f"p{number}"}} for number, item in enumerate(drawn)]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": named})
        arguments = ["create", "--dry-run=server", "--namespace", "work", "-f", "-"]
        answer = installed.kubectl(*arguments, text=text, check=False)
        admitted = {line.split()[0].partition("/")[2] for line in answer.stdout.splitlines() if " created" in line}
        # All others have to be refused by a policy: what the API server does not take proves nothing.
        assert (
            answer.stderr.count("Error from server")
            == answer.stderr.count("ValidatingAdmissionPolicy")
            == len(named) - len(admitted)
        ), answer.stderr
        for item in named:
            parts = [*item["spec"]["containers"], *item["spec"].get("initContainers", [])]
            given_away = {part["name"]: gives(item, part) for part in parts if not asks(part) and gives(item, part)}
            outcome["would give"] += bool(given_away)
            if item["metadata"]["name"] in admitted:
                outcome["admitted"] += 1
                assert not given_away, f"{given_away} of {json.dumps(item)}"
            else:
                outcome["refused"] += 1

    check()
    # Of each kind there were enough to prove something.
    assert min(outcome.values()) > 20 * rounds // 3, outcome
