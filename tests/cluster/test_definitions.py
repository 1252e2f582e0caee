# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real Argo CD over a cluster that exists: definitions of earlier releases, objects of users, and a change of stack.

There is an API server with the controllers that remove things, and no node. The charts are made by hand, with the definitions of the projects' own and
with one object in place of pods. What GPU Operator 26.7 added to its definitions is missing in those of before.
"""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.fleet import Fleet
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.tree import cluster_tree
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.render.versions import CHARTS, DEFINITIONS
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.plugin_utils.render.stacks import RACK, TRAINING

NAME, ADDRESS, NUMBER = "definitions-tests", "127.0.77.1", 63
NFD, OPERATOR, DRA = "node-feature-discovery", "gpu-operator", "dra-driver-nvidia-gpu"
#: New after 25.10.1, and after 26.3.3.
NEW = {
    "kataSandboxDevicePlugin": {"type": "object", "properties": {"enabled": {"type": "boolean"}}},
    "dcgmExporter": {
        "type": "object",
        "properties": {"serviceMonitor": {"type": "object", "properties": {"scrapeTimeout": {"type": "string"}}}},
    },
}
POLICY = {
    "apiVersion": "nvidia.com/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "cluster-policy"},
    "spec": {
        "kataSandboxDevicePlugin": {"enabled": False},
        "dcgmExporter": {"serviceMonitor": {"scrapeTimeout": "10s"}},
    },
}


def definition(group, plural, kind, version, properties, scope="Cluster"):
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def of_operator(properties):
    driver = {"driverType": {"type": "string"}}
    return {
        "nvidia.com_clusterpolicies.yaml": definition(
            "nvidia.com", "clusterpolicies", "ClusterPolicy", "v1", properties
        ),
        "nvidia.com_nvidiadrivers.yaml": definition("nvidia.com", "nvidiadrivers", "NVIDIADriver", "v1alpha1", driver),
    }


#: What users made.
MINE = [
    {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "NVIDIADriver",
        "metadata": {"name": "mine"},
        "spec": {"driverType": "gpu"},
    },
    {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeatureRule",
        "metadata": {"name": "mine"},
        "spec": {"rules": [{"name": "mine", "labels": {"example.com/mine": "true"}}]},
    },
    {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomain",
        "metadata": {"name": "mine", "namespace": "default"},
        "spec": {"numNodes": 1, "channel": {"resourceClaimTemplate": {"name": "mine"}}},
    },
]


class Site:
    """A cluster, its Argo CD, and what both are given."""

    def __init__(self, argocd, plane, helm, sources):
        self.argocd, self.plane, self._helm, self._sources = argocd, plane, helm, sources
        self._work = argocd.data / "tree"

    def definitions(self, of_policy):
        """Definitions by chart and file: the projects' own where their modules have them."""
        found = {
            chart: {path.name: path.read_text() for path in (source / DEFINITIONS[chart].path).glob("*.yaml")}
            for chart, source in self._sources.items()
        }
        operators = {name: json.dumps(item) for name, item in of_operator(of_policy).items()}
        # The operator's are older ones of the driver's: one field is not required there.
        found[OPERATOR] = {**operators, **{name: text.replace("minimum: 0", "") for name, text in found[DRA].items()}}
        return found

    def package(self, of_policy, policy):
        """Put the charts into the Helm repository, all under the pinned versions, and the definitions into git."""
        from nodes.argocd import commit_all

        for chart, files in self.definitions(of_policy).items():
            folder = self.argocd.data / "made" / chart
            shutil.rmtree(folder, ignore_errors=True)
            version = CHARTS[chart].version
            made = {
                "Chart.yaml": json.dumps({"apiVersion": "v2", "name": chart, "version": version}),
                "templates/release.yaml": json.dumps(policy if chart == OPERATOR else config_map(chart)),
                **{f"crds/{name}": text for name, text in files.items()},
            }
            if chart == OPERATOR:
                made.update({f"crds/{name}": text for name, text in self.definitions(of_policy)[NFD].items()})
            for name, text in made.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text)
            self._run(self._helm, "package", folder, "--destination", self.argocd.data / "charts")
            checkout = self.argocd.data / "definitions" / DEFINITIONS[chart].path
            shutil.rmtree(checkout, ignore_errors=True)
            checkout.mkdir(parents=True)
            for name, text in files.items():
                (checkout / name).write_text(text)
        commit_all(self.argocd.data / "definitions", "Definitions")
        self._run("git", "-C", self.argocd.data / "definitions", "push", "-q", self.bare("definitions"), "main")
        self._run(self._helm, "repo", "index", self.argocd.data / "charts", "--url", self.argocd.charts_url)

    def bare(self, name):
        return self.argocd.git_directory / f"{name}.git"

    def publish(self, pools, change=lambda application: application):
        """Push a tree whose Applications are as rendered, but for their repositories; return the commit."""
        from nodes.argocd import commit_all
        from nodes.publication import from_the_lab

        shutil.rmtree(self._work / "clusters", ignore_errors=True)
        versions = {
            **self.argocd.charts(),
            **{chart: CHARTS[chart].version for chart in (NFD, OPERATOR, DRA)},
        }
        for path, text in rendered(pools, self.argocd.git_url).items():
            file = self._work / "clusters" / "one" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            if path.startswith("argocd/"):
                application = change(yaml.safe_load(text))
                if application is None:
                    continue
                text = yaml.safe_dump(application, sort_keys=False)
                text, _said = from_the_lab(text, versions, self.argocd.charts_url, self.argocd.definitions_url)
            file.write_text(text)
        commit_all(self._work, "A tree")
        self._run("git", "-C", self._work, "push", "-q", self.bare("gpu-clusters"), "main")
        return self._run("git", "-C", self._work, "rev-parse", "HEAD").strip()

    def applications(self):
        items = json.loads(self.plane.kubectl("get", "applications", "-n", "argocd", "-o", "json").stdout)["items"]
        return {item["metadata"]["name"]: item for item in items}

    def unfinished(self, commit):
        from gitops import state

        found = self.applications()
        files = [yaml.safe_load(path.read_text()) for path in (self._work / "clusters/one/argocd").glob("*.yaml")]
        expected = {"gpufleet", *(item["metadata"]["name"] for item in files)}
        left = dict.fromkeys(found.keys() - expected, "to be removed")
        for name in expected:
            item = found.get(name, {})
            sources = item.get("spec", {}).get("source", {}).get("repoURL", "")
            if sources == self.argocd.definitions_url:
                # At the commit of another repository.
                status = item.get("status", {}).get("sync", {})
                text = state(item, status.get("revision", "none"))
            else:
                text = state(item, commit)
            if text:
                left[name] = text
        return left

    def uids(self):
        """What must stay: definitions, and what users made."""
        kinds = json.loads(self.plane.kubectl("get", "crd", "-o", "json").stdout)["items"]
        found = {item["metadata"]["name"]: item["metadata"]["uid"] for item in kinds}
        for item in MINE:
            where = ("-n", item["metadata"].get("namespace", "default"))
            there = json.loads(self.plane.kubectl("get", item["kind"], "mine", *where, "-o", "json").stdout)
            found[item["kind"]] = there["metadata"]["uid"]
        return found

    def operations(self):
        return {name: len(item["status"].get("history", ())) for name, item in self.applications().items()}

    def _run(self, *words):
        return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True).stdout


def config_map(chart):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"made-by-{chart}"}}


def rendered(pools, url):
    fleet = Fleet({"gpu_hosts": list(pools), **{pool: [pool] for pool in pools}}, lambda *_of: None)
    common = {
        "gpu_kubernetes_cluster": "one",
        "gpu_kubernetes_version": "1.36",
        "gpu_kubernetes_gitops": "argocd",
        "gpu_kubernetes_gitops_repository": url,
        "gpu_kubernetes_automated_sync": "prune",
        "gpu_kubernetes_dcgm_exporter": False,
        "gpu_kubernetes_examples": False,
    }
    for pool, variables in pools.items():
        fleet.add(pool, {**common, **variables}, lambda value: value)
    (cluster,) = fleet.clusters()
    return cluster_tree(cluster)


def as_before(application):
    """An Application of a chart as earlier releases of the collection rendered it: it carries and prunes its definitions."""
    for source in application["spec"].get("sources", ()):
        if source.get("helm", {}).pop("skipCrds", False):
            application["spec"]["syncPolicy"]["automated"]["prune"] = True
    return None if "-gpufleet-crds-" in application["metadata"]["name"] else application


@pytest.fixture(scope="module")
def site():
    from hosts import paths
    from hosts.progress import Progress
    from nodes import programs
    from nodes.argocd import NAMESPACE, ArgoCD
    from nodes.control_plane import FEATURE_GATES, ControlPlane, Endpoints, stop
    from nodes.publication import _root

    progress = Progress()
    argocd = ArgoCD(paths.LabPaths(NAME), NUMBER, None, progress)
    shutil.rmtree(argocd.data.parent, ignore_errors=True)
    # Not below /tmp, of which Argo CD has one of its own.
    folder = argocd.data.parent / "plane"
    folder.mkdir(parents=True)
    release = programs.KUBERNETES
    endpoints = Endpoints(ADDRESS, 6443, 2379, 2380)
    plane = ControlPlane(
        folder, programs.kubernetes(progress, release), endpoints, controllers=False, gates=FEATURE_GATES[release]
    )
    plane.prepare()
    argocd._plane, argocd._address = plane, ADDRESS
    processes = plane.start()
    try:
        # What Argo CD removes goes when its dependents are known to be gone.
        collect = [
            f"--kubeconfig={plane.kubeconfig}",
            "--leader-elect=false",
            "--secure-port=0",
            "--controllers=garbage-collector-controller,namespace-controller,daemonset-controller",
        ]
        processes.append(plane._start("kube-controller-manager", collect))
        argocd.prepare()
        processes += argocd.start()
        made = Site(
            argocd,
            plane,
            programs.helm(progress),
            {NFD: programs.source("nfd-master"), DRA: programs.source("gpu-kubelet-plugin")},
        )
        made.root = _root(argocd.git_url, "one")
        made.root["metadata"]["namespace"] = NAMESPACE
        yield made
    finally:
        stop(processes)
        shutil.rmtree(argocd.data.parent, ignore_errors=True)


def wait(site, commit):
    from demo import wait_for

    wait_for(lambda: not site.unfinished(commit), 300)


POOLS = {"training": TRAINING, "rack": RACK}


def of_stack(stack):
    return {pool: {**variables, "gpu_kubernetes_stack": stack} for pool, variables in POOLS.items()}


def test_definitions_are_taken_over_and_survive_a_change_of_stack(site):
    from demo import wait_for

    # A cluster of GPU Operator 25.3, whose definitions helm left, with a tree of an earlier release of the collection.
    site.package({}, {**POLICY, "spec": {}})
    for name, text in site.definitions({})[OPERATOR].items():
        if name.startswith("nvidia.com_"):
            site.plane.kubectl("create", "-f", "-", text=text)
    site.plane.kubectl("apply", "-f", "-", text=json.dumps(site.root))
    commit = site.publish(of_stack("device_plugin"), as_before)
    wait(site, commit)
    for item in MINE:
        site.plane.kubectl("create", "-f", "-", text=json.dumps(item))
    before = site.uids()

    # The same stack, rendered now.
    wait(site, site.publish(of_stack("device_plugin")))
    assert site.uids() == before

    # The operator with what 26.7 added, over definitions of 25.3; Node Feature Discovery's Application goes, with its finalizer.
    site.package(NEW, POLICY)
    commit = site.publish(of_stack("gpu_operator"))
    wait(site, commit)
    assert f"one-{NFD}" not in site.applications()
    assert before.items() <= site.uids().items()
    policy = json.loads(site.plane.kubectl("get", "clusterpolicy", "cluster-policy", "-o", "json").stdout)
    assert policy["spec"] == POLICY["spec"], "the definitions are the new ones"

    # Twice in a row nothing is to do.
    done = site.operations()
    for _time in range(2):
        for name in done:
            note = "argocd.argoproj.io/refresh=hard"
            site.plane.kubectl("annotate", "application", name, "-n", "argocd", note, "--overwrite")
        wait(site, commit)

        wait_for(
            lambda: (
                not any(
                    "annotations" in i["metadata"] and "argocd.argoproj.io/refresh" in i["metadata"]["annotations"]
                    for i in site.applications().values()
                )
            ),
            120,
        )
        assert not site.unfinished(commit)
    assert site.operations() == done
