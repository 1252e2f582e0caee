# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pods on a node whose kubelet works with CRI-O: the drop-in that the collection writes is in force, and containers get exactly their devices.

The tests run in order: each begins with what the one before left.
"""

from __future__ import annotations

import json
import os

import pytest
from crio_node import use_crio
from demo import wait_for
from nodes.programs import OLDEST_KUBERNETES
from test_pods_day_two import starts
from test_pool_kinds import GPU, KINDS, PLUGIN, Nodes, fill_with

NODE = "node-crio"
SPEC = {
    "hosts": [
        {
            "name": NODE,
            "group": "gpu_hosts",
            "boards": [{"board": "h100-80gb-sxm", "count": 2}],
            "driver": "installed",
            "node": "containerd-2.4",
        }
    ]
}
OWN = {"crio": {"nvidia_toolkit_runtime": "crio"}}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("crio")
    spec = folder / "lab.json"
    spec.write_text(json.dumps(SPEC))
    name = f"{os.environ.get('GPUFLEET_TEST_LAB', 'fleet-tests')}-crio"
    # CRI-O 1.34 is for the Kubernetes of its number.
    found = Nodes(name, folder, folder / "inventory.json", spec, OLDEST_KUBERNETES, pools={"crio": [NODE]}, own=OWN)
    try:
        found.boot()
        use_crio(found, NODE)
        yield found
    finally:
        found.lab("down")


def test_the_node_is_ready_with_crio(nodes):
    def runtime():
        info = nodes.get("node", NODE)["status"]
        ready = {item["type"]: item["status"] for item in info["conditions"]}
        return ready["Ready"] == "True" and info["nodeInfo"]["containerRuntimeVersion"].startswith("cri-o://")

    assert wait_for(runtime, 180)


@pytest.mark.proves("runtime", "", rows=["crio"], level="lab", note="pods on a node of a cluster")
@pytest.mark.parametrize("kind", ["MIG mixed", "whole GPUs", "time slicing, renamed", "MPS by the host"])
def test_a_pod_gets_exactly_what_was_described(nodes, kind):
    nodes.switch(KINDS[kind])
    for example, gpus in KINDS[kind].examples.items():
        fits = next(iter(KINDS[kind].resources.values())) // gpus
        fill_with(nodes, f"crio-{example}", fits, gpus, KINDS[kind].shares)
    nodes.shows_its_labels(NODE)
    verified = nodes.report("verify")[NODE]
    assert {check["name"] for check in verified["checks"] if check["status"] == "failed"} == set(), verified


def test_pods_are_there_again_after_a_reboot(nodes):
    nodes.switch(KINDS["whole GPUs"])

    def plugins():
        return [starts(pod) for pod in nodes.get("pods", "-n", "nvidia-gpu", "-l", PLUGIN)["items"]]

    before = plugins()
    nodes.lab("reboot", NODE)
    # What ran before the reboot is not what runs now, although the API server says so until the kubelet has looked.
    wait_for(lambda: nodes.plugin_is_ready() and not [one for one in plugins() if one in before], 300)
    nodes.offers_what_is_rendered()
    fill_with(nodes, "crio-gpu", KINDS["whole GPUs"].resources[GPU], 1, 1)
