# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the GPU Operator's own chart and controller make of the rendered values, on real nodes of a pool of the plugin and one of DRA.

The operator is 1.11.1, the newest that can be built here; what is rendered is for 26.7. Its images are not available, so its pods wait
for them. Its RuntimeClass is made by hand: the controller asks for an API version that Kubernetes removed in 1.25.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from demo import wait_for
from hosts.progress import Progress
from nodes import programs
from nodes.programs import KUBERNETES
from pool_nodes import CDI, VARIABLE, PoolNodes

NAMESPACE = "nvidia-gpu"
TRAINING, CLAIMS = CDI, VARIABLE
PLUGIN, MANAGER = "nvidia-device-plugin-daemonset", "nvidia-mig-manager"
DEPLOY, FILE, LAYOUT = (
    "nvidia.com/gpu.deploy.device-plugin",
    "nvidia.com/device-plugin.config",
    "nvidia.com/mig.config",
)
BOARDS = {"gpu_facts_gpus": [{"board": "h100-80gb-sxm", "count": 2}]}
COMMON = {
    **BOARDS,
    # What site would do is not run here: the rendered values follow from the description alone.
    "nvidia_driver_state": "present",
    "gpu_kubernetes_version": KUBERNETES,
    "gpu_kubernetes_stack": "gpu_operator",
    "gpu_kubernetes_mig_manager": "operator",
    "gpu_kubernetes_node_feature_discovery": False,
}
POOLS = {
    "training": {"nvidia_mig_strategy": "mixed", "nvidia_mig_layout": "all-balanced"},
    "claims": {"nvidia_sharing_backend": "dra"},
}
#: What Node Feature Discovery and gpu-feature-discovery write.
DISCOVERED = ("feature.node.kubernetes.io/pci-10de.present=true", "nvidia.com/mig.capable=true")
#: Of the rendered values, what the operator has from later releases on.
LATER = {"spec.devicePlugin.config.create", "spec.migManager.config.default"}
RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "nvidia"},
    "handler": "nvidia",
}


class Operated(PoolNodes):
    """Two nodes and the controller, which runs on this machine."""

    @property
    def source(self) -> Path:
        return programs.source("gpu-operator")

    def policy(self) -> str:
        """The ClusterPolicy that the operator's chart makes of the rendered values."""
        chart, values = self.source / "deployments" / "gpu-operator", self.tree / "values" / "gpu-operator.yaml"
        command = [programs.helm(Progress()), "template", "gpu-operator", chart, "--namespace", NAMESPACE, "-f", values]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        (found,) = [item for item in yaml.safe_load_all(shown) if item and item["kind"] == "ClusterPolicy"]
        return json.dumps(found)

    def prepare(self) -> None:
        """As somebody who applies the rendered tree by hand."""
        definitions = self.source / "deployments" / "gpu-operator" / "crds" / "nvidia.com_clusterpolicies_crd.yaml"
        self.kubectl("apply", "--server-side", "-f", str(definitions))
        self.kubectl("apply", "--server-side", "-f", str(self.tree / "objects" / "namespace.yaml"))
        self.kubectl("apply", "--server-side", "-f", str(self.tree / "objects"))
        labels = self.tree / "node-labels.yaml"
        self.kubectl("apply", "--server-side", "--field-manager=gpufleet", "-f", str(labels))
        self.kubectl("create", "-f", "-", text=json.dumps(RUNTIME_CLASS))
        self.kubectl("label", "nodes", "--all", *DISCOVERED)
        self.kubectl("wait", "--for=condition=Established", "crd/clusterpolicies.nvidia.com", "--timeout=60s")

    def controller(self) -> subprocess.Popen[bytes]:
        """Start it where it finds its manifests and a node's files in the places that they have in its image."""
        root = self.folder / "operator"
        shutil.copytree(self.source / "assets", root / "opt" / "gpu-operator")
        for manifest in (root / "opt" / "gpu-operator" / "pre-requisites").iterdir():
            manifest.unlink()
        (root / "host-etc").mkdir()
        (root / "host-etc" / "os-release").write_text(self.lab("exec", TRAINING, "--", "cat", "/etc/os-release"))
        shutil.copy(self.lab("kubeconfig").strip(), root / "kubeconfig")
        (program,) = programs.tools(("gpu-operator",), Progress())
        shutil.copy(program, root / "gpu-operator")
        addresses = [f"--{name}-bind-address=0" for name in ("metrics", "health-probe")]
        with open(self.folder / "operator.log", "w") as log:
            return subprocess.Popen(
                [shutil.which("chroot") or "chroot", root, "/gpu-operator", *addresses],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"HOME": "/", "KUBECONFIG": "/kubeconfig", "OPERATOR_NAMESPACE": NAMESPACE},
            )

    def daemon_sets(self) -> dict[str, dict]:
        return {item["metadata"]["name"]: item for item in self.get("daemonsets", "-n", NAMESPACE)["items"]}

    def nodes_of(self, daemon_set: str) -> set[str]:
        """The nodes that the DaemonSet has pods on, whatever becomes of them."""
        pods = self.get("pods", "-n", NAMESPACE, "-l", f"app={daemon_set}")["items"]
        return {
            term["matchFields"][0]["values"][0]
            for pod in pods
            for term in pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
                "nodeSelectorTerms"
            ]
        }


@pytest.fixture(scope="module")
def operated(make_pools):
    found = make_pools({"training": [TRAINING], "claims": [CLAIMS]}, kind=Operated)
    process = None
    try:
        found.describe(COMMON, POOLS)
        found.play("render")
        found.prepare()
        found.kubectl("create", "--validate=ignore", "-f", "-", text=found.policy())
        process = found.controller()
        wait_for(lambda: MANAGER in found.daemon_sets() or process.poll() is not None, 120)
        assert process.poll() is None, (found.folder / "operator.log").read_text()[-3000:]
        yield found
    finally:
        if process:
            process.kill()
            process.wait()


def environment(container):
    return {one["name"]: one.get("value") for one in container["env"]}


def test_the_operators_definition_has_every_field_but_those_of_later_releases(operated):
    with pytest.raises(AssertionError) as refused:
        operated.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", text=operated.policy())
    assert set(re.findall(r'unknown field "([^"]+)"', str(refused.value))) == LATER


def test_driver_and_toolkit_are_left_to_the_hosts(operated):
    names = set(operated.daemon_sets())
    assert {PLUGIN, MANAGER, "gpu-feature-discovery", "nvidia-dcgm-exporter"} <= names
    assert not [name for name in names if "driver" in name or "toolkit" in name]


def test_its_plugin_reads_the_file_that_the_label_of_the_pool_names(operated):
    pod = operated.daemon_sets()[PLUGIN]["spec"]["template"]["spec"]
    files = yaml.safe_load((operated.tree / "objects" / "nvidia-device-plugin.yaml").read_text())
    plugin, manager = (environment(container) for container in pod["containers"])
    assert plugin["MIG_STRATEGY"] == "mixed"
    assert pod["runtimeClassName"] == "nvidia"
    mounted = [volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume]
    assert files["metadata"]["name"] in mounted
    assert manager["NODE_LABEL"] == FILE
    assert manager["DEFAULT_CONFIG"] in files["data"]
    assert operated.labels(TRAINING)[FILE] in files["data"]


def test_a_node_of_dra_keeps_no_plugin(operated):
    assert operated.labels(CLAIMS)[DEPLOY] == "false", "the controller sets true where nothing is said"
    assert operated.labels(TRAINING)[DEPLOY] == "true"
    assert FILE not in operated.labels(CLAIMS)
    wait_for(lambda: operated.nodes_of("nvidia-operator-validator") == {TRAINING, CLAIMS}, 60)
    assert operated.nodes_of(PLUGIN) == {TRAINING}


def test_its_mig_manager_has_the_layouts_of_the_pools_and_those_that_it_always_had(operated):
    pod = operated.daemon_sets()[MANAGER]["spec"]["template"]["spec"]
    rendered = yaml.safe_load((operated.tree / "objects" / "gpufleet-mig.yaml").read_text())
    mounted = [volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume]
    assert rendered["metadata"]["name"] in mounted
    layouts = set(yaml.safe_load(rendered["data"]["config.yaml"])["mig-configs"])
    assert {operated.labels(node)[LAYOUT] for node in (TRAINING, CLAIMS)} <= layouts
    shipped = yaml.safe_load((operated.source / "assets" / "state-mig-manager" / "0400_configmap.yaml").read_text())
    assert {"all-disabled", "all-enabled", "all-balanced", "all-1g.10gb"} <= layouts
    assert set(yaml.safe_load(shipped["data"]["config.yaml"])["mig-configs"]) <= layouts
