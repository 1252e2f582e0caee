# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Verify on real nodes: green as rendered, and red with the step that mends it where pods would get nothing."""

from __future__ import annotations

import json

import pytest
from demo import wait_for
from releases import Releases

TRAINING, BATCH, SHARED = "gpu-training-1", "gpu-batch-1", "gpu-shared-1"
PIPE = "/run/nvidia/mps/nvidia.com/gpu/pipe"
BY_RENDERING = "run gpufleet.nvidia.site on the host and sync the rendered tree"
MPS_UNIT = "gpufleet-mps@node.service"


@pytest.fixture(scope="module")
def releases(demo):
    return Releases(demo)


def verify(demo, capacity=None):
    """What the playbook reports of each node: check to its status, its evidence and its next step."""
    report = demo.folder / "verify.json"
    values = {
        "gpu_cluster_kubeconfig": demo.lab("kubeconfig").strip(),
        "gpu_verify_capacity": str(capacity or demo.tree / "capacity.json"),
        "gpu_verify_report": str(report),
        "gpu_verify_fail": False,
    }
    demo.play("verify", "-e", json.dumps(values))
    return {
        node: {check["name"]: check for check in found["checks"]}
        for node, found in json.loads(report.read_text()).items()
    }


def failed(checks):
    return sorted(name for name, check in checks.items() if check["status"] == "failed")


def as_rendered(demo):
    wait_for(lambda: demo.offered() == {name: node["resources"] for name, node in demo.capacity["nodes"].items()}, 300)


def test_all_is_green_as_it_is_rendered(demo):
    found = verify(demo)
    assert {node: failed(checks) for node, checks in found.items()} == {TRAINING: [], BATCH: [], SHARED: []}
    assert {checks["device plugin"]["status"] for checks in found.values()} == {"passed"}
    assert found[SHARED]["MPS pipe"]["status"] == "passed"
    assert "MPS pipe" not in found[TRAINING]


def test_what_gives_pods_nothing_is_red_and_says_what_to_do(demo, releases, tmp_path):
    """A fault on each node at once: another strategy than the host's, a plugin without its right to the driver, another name of the resource."""
    renamed = tmp_path / "clusters" / "demo"
    inventory = tmp_path / "renamed.yml"
    inventory.write_text(json.dumps({"shared": {"vars": {"nvidia_sharing_rename": True}}}))
    demo.play("render", "-i", str(inventory), "-e", f"gpu_kubernetes_output_directory={tmp_path}")
    try:
        releases.plugin("training", "deviceListStrategy=envvar")
        releases.plugin("batch", "securityContext.capabilities.add=null", "securityContext.capabilities.drop[0]=ALL")
        demo.kubectl("apply", "--server-side", "-f", str(renamed / "objects" / "nvidia-device-plugin-shared.yaml"))
        releases.plugin("shared", tree=renamed)
        found = verify(demo, renamed / "capacity.json")

        strategy = found[TRAINING]["device plugin"]
        assert strategy["status"] == "failed"
        assert "hands devices over by envvar" in strategy["evidence"]
        assert BY_RENDERING in strategy["next_step"]

        blind = found[BATCH]["device plugin"]
        assert blind["status"] == "failed"
        assert (
            "sees no driver: the host's container toolkit accepts NVIDIA_VISIBLE_DEVICES only from containers with SYS_ADMIN"
            in blind["evidence"]
        )
        assert BY_RENDERING in blind["next_step"]

        pipe = found[SHARED]["MPS pipe"]
        assert pipe["status"] == "failed"
        assert "/run/nvidia/mps/nvidia.com/gpu.shared/pipe" in pipe["evidence"]
        assert f"daemons serve {PIPE}" in pipe["evidence"]
        assert "gpufleet.nvidia.site" in pipe["next_step"]
    finally:
        for pool in ("training", "batch", "shared"):
            releases.plugin(pool)
        as_rendered(demo)


def test_limits_that_somebody_told_the_daemon_are_red_and_site_sets_them_back(demo):
    told = f"CUDA_MPS_PIPE_DIRECTORY={PIPE} nvidia-cuda-mps-control"
    ask = ("exec", SHARED, "--", "sh", "-c")
    demo.lab(*ask, f"echo set_default_device_pinned_mem_limit 0 1G | {told}")
    demo.lab(*ask, f"echo set_default_active_thread_percentage 10 | {told}")
    sharing = verify(demo)[SHARED]["stage sharing"]
    assert sharing["status"] == "failed"
    assert "active thread percentage 10.0 in place of 100" in sharing["evidence"]
    assert "limit 1G on device 0 in place of 4096 MiB" in sharing["evidence"]
    assert "gpufleet.nvidia.site" in sharing["next_step"]

    demo.play("site", "--limit", SHARED)
    assert demo.lab(*ask, f"echo get_default_device_pinned_mem_limit 0 | {told}").strip() == "4G"
    assert verify(demo)[SHARED]["stage sharing"]["status"] in ("passed", "warning")


def test_a_plugin_without_its_runtime_class_and_a_stopped_daemon_are_red(demo, releases):
    try:
        releases.plugin("batch", "runtimeClassName=null")
        demo.lab("exec", SHARED, "--", "systemctl", "stop", MPS_UNIT)
        found = verify(demo)

        blind = found[BATCH]["device plugin"]
        assert blind["status"] == "failed"
        assert "sees no driver: it has no runtime class, and the host's default runtime is runc" in blind["evidence"]
        assert BY_RENDERING in blind["next_step"]
        assert failed(found[TRAINING]) == []

        pipe = found[SHARED]["MPS pipe"]
        assert (pipe["status"], pipe["evidence"]) == (
            "failed",
            f"clients look for the MPS daemon at {PIPE}, and no MPS daemon runs",
        )
    finally:
        demo.lab("exec", SHARED, "--", "systemctl", "start", MPS_UNIT)
        releases.plugin("batch")
        as_rendered(demo)
