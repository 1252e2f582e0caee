# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rendered quotas with the real controller of Kueue on a real API server: it admits and holds jobs exactly at their numbers.

Its webhooks are not registered, and no pod runs: a job that is not suspended any more is one that Kueue admitted.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.plugin_utils.render.stacks import TRAINING
from hosts.progress import Progress
from nodes import programs
from nodes.control_plane import control_plane, end_with_parent
from test_custom_resources import served, tree_of

# A first build takes minutes.
pytestmark = pytest.mark.by_name

RESOURCE = "nvidia.com/mig-1g.10gb"
#: Metrics have a certificate at this path, whatever the configuration says; the mount is the process's own.
START = "mount -t tmpfs tmpfs /etc && mkdir -p /etc/kueue/metrics && cp -r {} /etc/kueue/metrics/certs && exec"
HELD_FOR = 5.0


def rendered(percent):
    """The objects of a cluster with 16 of the resource, of which one team has C(percent), and another a quarter."""
    shares = {"blue": {"percent": percent}, "red": {"resource": RESOURCE, "percent": 25}}
    teams = [
        {"team": team, "namespaces": [team], "shares": [{"pool": "training", **share}]}
        for team, share in shares.items()
    ]
    pools = {"training": {**TRAINING, "gpu_kubernetes_quotas": teams}}
    return tree_of(pools, gpu_kubernetes_version="1.36")


def offered(tree):
    (node,) = json.loads(tree["capacity.json"])["nodes"].values()
    return node["resources"][RESOURCE]


def job(namespace, name, count, resource=RESOURCE):
    """A job of so many pods that request one each, and what all pods request."""
    requests = {"cpu": "1", "memory": "1Gi", resource: "1"}
    resources = {"requests": requests, "limits": {resource: "1"}}
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "registry.example.com/work:1", "resources": resources}],
    }
    labels = {"kueue.x-k8s.io/queue-name": f"gpufleet-{namespace}"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"suspend": True, "parallelism": count, "completions": count, "template": {"spec": pod}},
    }


@pytest.fixture(scope="module")
def plane():
    """Return an API server with Kueue's definitions and its running controller."""
    source = programs.module_source("@".join(programs.install.TOOLS["kueue"].required))
    (program,) = programs.tools(("kueue",), Progress())
    with control_plane() as server:
        definitions = source / "config" / "components" / "crd" / "bases"
        server.kubectl("apply", "--server-side", "-f", str(definitions))
        names = {yaml.safe_load(path.read_text())["metadata"]["name"] for path in definitions.glob("*.yaml")}
        until = time.monotonic() + 120
        while missing := names - served(server):
            assert time.monotonic() < until, f"the API server does not serve {missing}"
            time.sleep(1)
        for namespace in ("kueue-system", "blue", "red"):
            server.kubectl("create", "namespace", namespace)
        process = start(server, program)
        yield server
        process.kill()
        process.wait()


def start(server, program):
    keys = server.data / "kueue"
    keys.mkdir()
    for name, key in (("tls.crt", "server.crt"), ("tls.key", "server.key")):
        (keys / name).write_bytes((server.data / "certificates" / key).read_bytes())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    configuration = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta1",
        "kind": "Configuration",
        "namespace": "kueue-system",
        "health": {"healthProbeBindAddress": "0"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(keys)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": ["batch/job"]},
    }
    path = server.data / "kueue.yaml"
    path.write_text(yaml.safe_dump(configuration))
    command = [program, "--config", path, "--feature-gates", "VisibilityOnDemand=false"]
    shell = START.format('"$0"') + ' "$@"'
    with open(server.data / "kueue.log", "wb") as log:
        return subprocess.Popen(
            ["unshare", "--mount", "sh", "-ec", shell, str(keys), *map(str, command)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "KUBECONFIG": str(server.kubeconfig)},
            preexec_fn=end_with_parent,
        )


def apply(server, text):
    """As Argo CD and Flux do: Kueue's own updates of an object make it an owner of the fields."""
    server.kubectl("apply", "--server-side", "--force-conflicts", "--validate=strict", "-f", "-", text=text)


def suspended(server, item):
    name, namespace = item["metadata"]["name"], item["metadata"]["namespace"]
    found = server.kubectl("get", "job", name, "-n", namespace, "-o", "json").stdout
    return json.loads(found)["spec"]


def admitted(server, item, within=60.0):
    """Whether Kueue admits a job within some seconds."""
    until = time.monotonic() + within
    while suspended(server, item)["suspend"]:
        if time.monotonic() > until:
            return False
        time.sleep(0.3)
    return True


def why(server, item):
    """What Kueue says of the workload of a job that it holds, once it has said it."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        found = server.kubectl("get", "workloads", "-n", item["metadata"]["namespace"], "-o", "json").stdout
        for one in json.loads(found)["items"]:
            owners = [owner["name"] for owner in one["metadata"].get("ownerReferences", ())]
            for condition in one.get("status", {}).get("conditions", ()):
                if item["metadata"]["name"] in owners and condition["type"] == "QuotaReserved":
                    return condition["message"]
        time.sleep(0.3)
    raise AssertionError((server.data / "kueue.log").read_text(errors="replace")[-3000:])


def create(server, item):
    server.kubectl("create", "-f", "-", text=json.dumps(item))
    return item


def test_kueue_admits_each_team_up_to_its_number_and_holds_the_rest(plane):
    tree = rendered(50)
    apply(plane, tree["quotas/quotas.yaml"])
    there = offered(tree)
    assert there == 16
    first = create(plane, job("blue", "half", there // 2))
    assert admitted(plane, first), (plane.data / "kueue.log").read_text(errors="replace")[-3000:]
    selector = suspended(plane, first)["template"]["spec"]["nodeSelector"]
    assert selector == {"gpufleet.github.io/configuration": "training"}
    over = create(plane, job("blue", "over", 1))
    assert f"insufficient unused quota for {RESOURCE} in flavor gpufleet-training, 1 more needed" in why(plane, over)
    assert not admitted(plane, over, HELD_FOR)

    # Another team has its own part, one more than which it never gets.
    larger = create(plane, job("red", "larger", there // 4 + 1))
    assert "insufficient quota" in why(plane, larger)
    quarter = create(plane, job("red", "quarter", there // 4))
    assert admitted(plane, quarter)
    assert not admitted(plane, larger, HELD_FOR)
    other = create(plane, job("red", "other", 1, "nvidia.com/mig-3g.40gb"))
    assert "insufficient quota for nvidia.com/mig-3g.40gb" in why(plane, other)

    # A quota that is raised admits what was held.
    apply(plane, rendered(60)["quotas/quotas.yaml"])
    assert admitted(plane, over)
