# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page of the documentation: the README's hosts after C(site), as lab hosts said they are, in a cluster with pods on them.

C(RECORD_TRANSCRIPTS=1) writes C(docs/assets/gpus.html) anew, of which C(make screenshots) makes the picture.
"""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path

import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import inspect

from ...golden.corpus import recorded

ROOT = Path(__file__).resolve().parents[4]
PAGE = ROOT / "docs" / "assets" / "gpus.html"
ADDRESSES = {"gpu-training-1": "10.0.0.11", "gpu-shared-1": "10.0.0.12"}
#: What pods on an instance of a profile are called; of two of a profile only the first is taken.
USERS = {"3g.40gb": "train-bert", "2g.20gb": "eval", "1g.10gb": "notebook"}
#: Pods of the shared host, with GPU and how many of its slices each holds.
SHARED = {"chat-0": (0, 4), "chat-1": (0, 4), "chat-2": (1, 4), "embed-0": (1, 2), "rerank-0": (2, 1)}


def pod(name, node, resource, count):
    return {
        "metadata": {"namespace": "jobs", "name": name, "uid": f"uid-{name}"},
        "spec": {
            **({"nodeName": node} if node else {}),
            "containers": [{"resources": {"limits": {resource: str(count)}}}],
        },
        "status": {"phase": "Running" if node else "Pending"},
    }


def on_instances(facts):
    """Each pod on the training host with the one device that it holds."""
    for gpu in facts["gpus"]:
        free = dict(USERS)
        for instance in gpu["gpu_instances"]:
            user = free.pop(instance["profile"], None)
            # Two GPUs have some room.
            if user and (gpu["index"] < 6 or user == "notebook"):
                (compute,) = instance["compute_instances"]
                yield f"{user}-{gpu['index']}", f"nvidia.com/mig-{instance['profile']}", [compute["uuid"]]


def on_slices(facts):
    used = {}
    for name, (gpu, count) in SHARED.items():
        first = used.get(gpu, 0)
        used[gpu] = first + count
        yield name, "nvidia.com/gpu", [f"{facts['gpus'][gpu]['uuid']}::{first + number}" for number in range(count)]


def checkpoint(held):
    entries = [
        {"PodUID": f"uid-{name}", "ContainerName": "c", "ResourceName": resource, "DeviceIDs": {"0": devices}}
        for name, resource, devices in held
    ]
    return base64.b64encode(json.dumps({"Data": {"PodDeviceEntries": entries}}).encode()).decode()


def test_the_page_in_the_documentation_is_the_one_that_is_written(call, monkeypatch, tmp_path):
    readme = re.search(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[1]
    described = yaml.safe_load(readme)["gpu_hosts"]
    facts = {host: recorded(host, "ready") for host in ADDRESSES}
    held = {
        "gpu-training-1": list(on_instances(facts["gpu-training-1"])),
        "gpu-shared-1": list(on_slices(facts["gpu-shared-1"])),
    }
    offered = {
        "gpu-training-1": {"nvidia.com/mig-1g.10gb": 16, "nvidia.com/mig-2g.20gb": 8, "nvidia.com/mig-3g.40gb": 8},
        "gpu-shared-1": {"nvidia.com/gpu": 44},
    }

    class Api:
        def nodes(self):
            return {
                host: {
                    "spec": {},
                    "status": {
                        "addresses": [{"type": "InternalIP", "address": address}],
                        "conditions": [{"type": "Ready", "status": "True"}],
                        "allocatable": {name: str(count) for name, count in offered[host].items()},
                    },
                }
                for host, address in ADDRESSES.items()
            }

        def pods(self):
            placed = [pod(name, host, what, len(on)) for host, pods in held.items() for name, what, on in pods]
            return [*placed, pod("train-llm-0", None, "nvidia.com/gpu", 16)]

    monkeypatch.setattr(inspect, "Cluster", lambda *_arguments: Api())
    groups, hostvars = {"gpu_hosts": list(ADDRESSES)}, {}
    for name, pool in described["children"].items():
        (host,) = groups[name] = list(pool["hosts"])
        answers = {
            "gpu_facts_host": {"gpu": facts[host]},
            "gpu_inspect_checkpoint": {"content": checkpoint(held[host])},
        }
        hostvars[host] = {**described["vars"], **pool["vars"], **answers}
    page = tmp_path / "gpus.html"
    result, _shown = call(
        inspect,
        {"kubeconfig": "/kube", "html": str(page)},
        {"groups": groups, "hostvars": hostvars, "ansible_play_hosts": list(ADDRESSES)},
    )
    assert result["mismatches"] == {}
    text = re.sub(r"Read [\d-]+ [\d:]+ UTC", "Read 2026-11-20 08:00 UTC", page.read_text(encoding="utf-8"))
    if os.environ.get("RECORD_TRANSCRIPTS"):
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text
