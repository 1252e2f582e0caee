# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rendered quotas with the real controller of Kueue on a real API server: it admits and holds jobs exactly at their numbers.

Its webhooks are not registered, and no pod runs: a job that is not suspended any more is one that Kueue admitted.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

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
REPOSITORY = Path(__file__).resolve().parents[2]
#: What repartition does with the quotas: the same task files, each phase in a run of its own.
FOLLOW = """
- hosts: gpu_hosts
  connection: local
  gather_facts: false
  module_defaults:
    group/gpufleet.nvidia.cluster: {kubeconfig: "{{ kubeconfig }}", api_timeout: 5}
  tasks:
    - ansible.builtin.include_role: {name: gpufleet.nvidia.gpu_kubernetes}
      when: phase == "rendered"
    - ansible.builtin.import_role: {name: gpufleet.nvidia.gpu_kubernetes, tasks_from: guard}
    - ansible.builtin.include_role: {name: gpufleet.nvidia.gpu_repartition, tasks_from: quotas.yml}
      vars: {__gpu_repartition_quotas: "{{ phase }}"}
      when: phase != "rendered"
"""
NIGHT = [{"devices": "all", "instances": {"1g.10gb": 4, "3g.40gb": 1}}]


def shared(percent):
    """Of two teams one has C(percent) of all resources, and the other a quarter of one."""
    shares = {"blue": {"percent": percent}, "red": {"resource": RESOURCE, "percent": 25}}
    return [
        {"team": team, "namespaces": [team], "shares": [{"pool": "training", **share}]}
        for team, share in shares.items()
    ]


def rendered(percent):
    """The objects of a cluster with 16 of the resource."""
    pools = {"training": {**TRAINING, "gpu_kubernetes_quotas": shared(percent)}}
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


def follow(plane, phase, hosts, teams=None, **variables):
    """Run a phase of a new layout on hosts, by name their variables; return what Ansible wrote."""
    folder = plane.data / "run"
    folder.mkdir(exist_ok=True)
    values = {
        **TRAINING,
        "gpu_kubernetes_version": "1.36",
        "gpu_kubernetes_quotas": teams or shared(50),
        "gpu_kubernetes_output_directory": str(folder / "tree"),
        "ansible_python_interpreter": sys.executable,
        **variables,
    }
    pool = {"hosts": hosts, "vars": values}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"gpu_hosts": {"children": {"training": pool}}}))
    (folder / "follow.yml").write_text(FOLLOW)
    program = Path(sys.executable).parent / "ansible-playbook"
    extra = json.dumps({"phase": phase, "kubeconfig": str(plane.operator)})
    done = subprocess.run(
        [str(program), "-i", str(folder / "hosts.yml"), str(folder / "follow.yml"), "-e", extra],
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "build/collections"), "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    return done.stdout


def offers(plane, node, **profiles):
    """Let a node offer so many MIG devices, as its kubelet would say."""
    item = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}
    plane.kubectl("apply", "-f", "-", text=json.dumps(item))
    there = {f"nvidia.com/mig-{name.lstrip('_').replace('_', '.')}": str(count) for name, count in profiles.items()}
    status = json.dumps({"status": {"allocatable": there, "capacity": there}})
    plane.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", status)


def numbers(plane, team="blue"):
    queue = json.loads(plane.kubectl("get", "clusterqueue", f"gpufleet-{team}", "-o", "json").stdout)
    return {
        (flavor["name"].removeprefix("gpufleet-training"), item["name"].rpartition("-")[2]): int(item["nominalQuota"])
        for flavor in queue["spec"]["resourceGroups"][0]["flavors"]
        for item in flavor["resources"]
    }


def test_around_a_new_layout_kueue_admits_what_fits_before_and_after_it(plane):
    """With the rights that the documentation asks for."""
    text = (REPOSITORY / "docs" / "upgrade.md").read_text(encoding="utf-8")
    plane.allow_operator(*re.findall(r"```yaml\n(apiVersion: rbac.*?)```", text, re.DOTALL))
    plane.kubectl("delete", "jobs,workloads", "--all", "-n", "blue")
    plane.kubectl("delete", "jobs,workloads", "--all", "-n", "red")
    apply(plane, rendered(50)["quotas/quotas.yaml"])
    offers(plane, "training-1", _1g_10gb=16, _2g_20gb=8, _3g_40gb=8)
    night = {"training-1": {"nvidia_mig_layout": NIGHT}}
    runs = create(plane, job("blue", "runs", 2, "nvidia.com/mig-2g.20gb"))
    assert admitted(plane, runs)

    follow(plane, "rendered", {"training-1": {}})
    said = follow(plane, "planned", night)
    assert "gpufleet-training nvidia.com/mig-2g.20gb 4 -> 0" in said
    assert numbers(plane) == {("", "1g.10gb"): 8, ("", "2g.20gb"): 4, ("", "3g.40gb"): 4}, "nothing is touched"
    follow(plane, "lowered", night)
    assert numbers(plane) == {("", "1g.10gb"): 8, ("", "3g.40gb"): 4}
    middle = create(plane, job("blue", "middle", 1, "nvidia.com/mig-2g.20gb"))
    twelve = create(plane, job("blue", "twelve", 12))
    assert why(plane, middle) and why(plane, twelve)
    assert not admitted(plane, middle, HELD_FOR) and not admitted(plane, twelve, 0)
    assert not suspended(plane, runs)["suspend"], "what runs is left alone"

    # A part of the GPUs has the new layout: half of 24, and not half of the 32 that are described.
    offers(plane, "training-1", _1g_10gb=24, _3g_40gb=8)
    assert "is 12 of 16: the nodes offer 24 of 32 so far" in follow(plane, "raised", night)
    assert admitted(plane, twelve)
    more = create(plane, job("blue", "more", 1))
    assert f"insufficient unused quota for {RESOURCE} in flavor gpufleet-training, 1 more needed" in why(plane, more)
    assert not admitted(plane, more, HELD_FOR)
    offers(plane, "training-1", _1g_10gb=32, _3g_40gb=8)
    follow(plane, "raised", night)
    assert admitted(plane, more)
    assert numbers(plane) == {("", "1g.10gb"): 16, ("", "3g.40gb"): 4}
    assert numbers(plane, "red")["", "1g.10gb"] == 8
    assert "changed=0" in follow(plane, "raised", night)

    # What is shared otherwise is another configuration, and the queue names a flavor that the cluster does not have yet.
    both = {**night, "training-2": {"nvidia_sharing_mode": "time_slicing", "nvidia_sharing_replicas": 2}}
    offers(plane, "training-2", _1g_10gb=32, _2g_20gb=16, _3g_40gb=16)
    follow(plane, "raised", both)
    (second,) = {flavor for flavor, _name in numbers(plane)} - {""}
    assert numbers(plane)[second, "2g.20gb"] == 8
    assert admitted(plane, middle), "Kueue would hold all jobs of a queue of which it lacks a flavor"

    # A team that left gets nothing more, and what a GitOps controller syncs is left alone.
    blue = shared(50)[:1]
    owned = {"gpu_kubernetes_gitops": "argocd", "gpu_kubernetes_gitops_repository": "https://git.example.com/x.git"}
    for phase in ("planned", "lowered"):
        said = follow(plane, phase, both, blue, **owned)
        assert ("argocd syncs clusters/" in said and "/quotas/quotas.yaml" in said) is (phase == "planned")
    assert sum(numbers(plane, "red").values()) == (32 + 32) // 4
    follow(plane, "lowered", both, blue)
    assert set(numbers(plane, "red").values()) == {0}
    left = create(plane, job("red", "left", 1))
    assert "insufficient quota" in why(plane, left)
    assert not admitted(plane, left, HELD_FOR)
