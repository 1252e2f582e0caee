# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What needs neither Argo CD nor a node: the one change to the Applications, and what a pod was given, read from its log."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TESTS / "lab"), str(TESTS / "cluster")]

from gitops import state
from hosts.progress import LabError
from nodes import needs
from nodes.publication import from_the_lab
from pod_slices import pod_slice, table

APPLICATION = """\
spec:
  sources:
    - repoURL: https://nvidia.github.io/k8s-device-plugin
      chart: nvidia-device-plugin
      targetRevision: 0.20.0
      helm:
        releaseName: nvidia-device-plugin-shared
    - repoURL: git://10.96.0.1/gpu-clusters.git
      targetRevision: main
      ref: tree
"""


def test_only_repository_and_version_of_the_chart_are_others():
    text, said = from_the_lab(APPLICATION, {"nvidia-device-plugin": "0.19.0"}, "http://10.96.0.1:8879")
    changed = [(old, new) for old, new in zip(APPLICATION.splitlines(), text.splitlines(), strict=True) if old != new]
    assert changed == [
        ("    - repoURL: https://nvidia.github.io/k8s-device-plugin", "    - repoURL: http://10.96.0.1:8879"),
        ("      targetRevision: 0.20.0", "      targetRevision: 0.19.0"),
    ]
    assert said == [
        "chart nvidia-device-plugin 0.19.0 of http://10.96.0.1:8879 in place of 0.20.0 of https://nvidia.github.io/k8s-device-plugin"
    ]


def test_definitions_come_from_the_labs_repository_in_the_same_folder():
    text = (
        "spec:\n  source:\n    repoURL: https://github.com/NVIDIA/gpu-operator\n    targetRevision: v26.7.0\n"
        "    path: deployments/gpu-operator/crds\n"
    )
    found, said = from_the_lab(text, {}, "http://10.96.0.1:8879", "git://10.96.0.1/definitions.git")
    assert found == (
        "spec:\n  source:\n    repoURL: git://10.96.0.1/definitions.git\n    targetRevision: main\n"
        "    path: deployments/gpu-operator/crds\n"
    )
    assert said == [
        "definitions of git://10.96.0.1/definitions.git in place of v26.7.0 of https://github.com/NVIDIA/gpu-operator"
    ]


def test_a_chart_that_the_lab_lacks_is_named():
    with pytest.raises(LabError, match="no chart nvidia-device-plugin, only node-feature-discovery"):
        from_the_lab(APPLICATION, {"node-feature-discovery": "0.19.0"}, "http://10.96.0.1:8879")


def test_plain_objects_stay_as_they_are():
    text = "spec:\n  source:\n    repoURL: git://10.96.0.1/gpu-clusters.git\n    targetRevision: main\n    path: clusters/demo/objects\n"
    assert from_the_lab(text, {}, "http://10.96.0.1:8879") == (text, [])


def pod(name, node, **limits):
    return {
        "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"resources": {"limits": limits}}]},
    }


MIG = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-6f40f7a0-0000-0000-0000-000000000001)
  MIG 1g.10gb     Device  0: (UUID: MIG-9c6f8a4e-0000-0000-0000-000000000002)
+-----------------------------------------------------------------------------------------+
|   0  NVIDIA H100 80GB HBM3         On  |   00000000:1B:00.0 Off |                    0 |
| N/A   34C    P0             70W /  700W |     500MiB /  81559MiB |      0%      Default |
| MIG devices:                                                                            |
|  0    9   0   0  |         0MiB /   9984MiB          |  16      0|  1   0    1    0    1  |
Test PASSED
"""
SHARED = """\
GPU 2: NVIDIA L40S (UUID: GPU-6f40f7a0-0000-0000-0000-000000000003)
+-----------------------------------------------------------------------------------------+
|   2  NVIDIA L40S                   On  |   00000000:1B:00.0 Off |                    0 |
| N/A   34C    P0             70W /  350W |     500MiB /  49140MiB |      0%   E. Process |
CUDA_MPS_PIPE_DIRECTORY=/mps/nvidia.com/gpu/pipe
MPS memory limit: 4G
MPS active thread percentage: 8.0
Test PASSED
"""


def test_a_pod_is_told_by_what_it_asked_for_and_what_it_printed():
    mig = pod_slice(pod("one", "gpu-training-1", **{"cpu": "1", "nvidia.com/mig-1g.10gb": "1"}), MIG)
    assert mig.asked == "1 nvidia.com/mig-1g.10gb"
    assert mig.device == "MIG-9c6f8a4e-0000-0000-0000-000000000002 (1g.10gb)"
    assert (mig.memory, mig.limit) == ("9984 MiB", "-")
    shared = pod_slice(pod("two", "gpu-shared-1", **{"nvidia.com/gpu": "1"}), SHARED)
    assert shared.device == "GPU-6f40f7a0-0000-0000-0000-000000000003 (NVIDIA L40S)"
    assert (shared.memory, shared.limit) == ("49140 MiB", "memory 4G, threads 8.0")
    assert [len(line.split("  ")) > 5 for line in table([mig, shared]).splitlines()] == [True] * 4


def test_a_pod_that_was_given_nothing_says_so():
    nothing = pod_slice(pod("three", "gpu-batch-1", cpu="1"), "No devices were found\n")
    assert (nothing.asked, nothing.device, nothing.memory, nothing.limit) == ("", "none", "-", "-")


def application(revisions, sync="Synced", health="Healthy", **more):
    return {"status": {"sync": {"status": sync, "revisions": revisions}, "health": {"status": health}, **more}}


def test_an_application_is_done_at_the_commit_when_synced_and_healthy():
    assert state(application(["0.19.0", "abc"]), "abc") == ""
    assert (
        state({"status": {"sync": {"status": "Synced", "revision": "abc"}, "health": {"status": "Healthy"}}}, "abc")
        == ""
    )
    assert state(application(["0.19.0", "older"]), "abc") == "has not seen the commit"
    assert state({}, "abc") == "has not seen the commit"
    failed = {"phase": "Running", "message": 'namespaces "nvidia-gpu" not found'}
    text = state(application(["abc"], "OutOfSync", "Missing", operationState=failed), "abc")
    assert text == 'OutOfSync, Missing Running: namespaces "nvidia-gpu" not found'


def test_what_is_in_the_way_of_argo_cd_is_said_before_anything_is_built(monkeypatch, tmp_path):
    """A machine without Go, and a cache that Argo CD, which has a /tmp of its own, would not find its program in."""
    (tmp_path / "stat").symlink_to(shutil.which("stat"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "/tmp/cache")
    found = needs.obstacles()
    assert [text for text in found if text.startswith("go is missing: ") and "Install Go 1.26 or newer" in text]
    (below,) = [text for text in found if "argocd would be below /tmp" in text]
    assert "XDG_CACHE_HOME" in below
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/elsewhere")
    assert not [text for text in needs.obstacles() if "argocd would be below /tmp" in text]


@pytest.mark.skipif(os.geteuid() != 0, reason="the script ends before its look without root")
def test_the_script_of_the_demo_ends_before_it_builds_in_a_clone_below_tmp(tmp_path):
    """What lies in the way of Argo CD was said after forty minutes once: the script itself, with a cache that it would not find its program in."""
    clone, cache = tmp_path / "clone", Path("/tmp") / f"of-{tmp_path.name}"
    # Without what would build: that the script goes on would be a failure, too.
    shutil.copytree(TESTS / "lab", clone / "tests" / "lab")
    shutil.copytree(
        TESTS.parent / "tools", clone / "tools", ignore=lambda _folder, names: {*names} - {"demo-cluster.sh"}
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    script = [str(clone / "tools" / "demo-cluster.sh"), "up"]
    ended = subprocess.run(["bash", *script], env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1 and "argocd would be below /tmp" in ended.stderr and "XDG_CACHE_HOME" in ended.stderr
    assert (ended.stdout, cache.exists(), (clone / "build").exists()) == ("", False, False)
