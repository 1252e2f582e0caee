# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVIDIA's unmodified tools see exactly what the virtual machine has, and it has what they made.

The oracle is `virtual-gpu show`, which reads the machine's state without NVML.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.cdi import parse_specification

if TYPE_CHECKING:
    from conftest import Tools
    from virtual_machine import VirtualMachine

pytestmark = pytest.mark.lab

#: Two GPUs cut differently, one without MIG mode.
LAYOUT = """
version: v1
mig-configs:
  mine:
  - {devices: [0], mig-enabled: true, mig-devices: {1g.10gb: 2, 2g.20gb: 1, 3g.40gb: 1}}
  - {devices: [1], mig-enabled: true, mig-devices: {1c.3g.40gb: 2, 1g.20gb: 2}}
  - {devices: [2], mig-enabled: false}
"""


def profiles(gpu: dict[str, Any]) -> Counter[str]:
    return Counter(c["profile"] for g in gpu["gpu_instances"] for c in g["compute_instances"])


def compute_instances(shown: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {**c, "gpu": gpu["index"], "gi_minor": g["minor"], "memory_mib": g["memory_mib"], "gi_profile": g["profile"]}
        for gpu in shown["gpus"]
        for g in gpu["gpu_instances"]
        for c in g["compute_instances"]
    ]


def cut(machine: VirtualMachine, tools: Tools, tmp_path: Path, text: str = LAYOUT) -> dict[str, Any]:
    """Let mig-parted apply a configuration; what the machine has then."""
    file = tmp_path / "config.yaml"
    file.write_text(text)
    assert "applied successfully" in tools.ok("nvidia-mig-parted", "apply", "-f", str(file), "-c", "mine")
    return machine.show()


def test_mig_parted_applies_asserts_and_exports(machine: VirtualMachine, tools: Tools, tmp_path: Path) -> None:
    machine.start("h100-80gb-sxm", "--count=3")
    shown = cut(machine, tools, tmp_path)
    assert [profiles(gpu) for gpu in shown["gpus"]] == [
        {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}, {"1c.3g.40gb": 2, "1g.20gb": 2}, {},
    ]  # fmt: skip
    tools.ok("nvidia-mig-parted", "assert", "-f", str(tmp_path / "config.yaml"), "-c", "mine")
    exported = yaml.safe_load(tools.ok("nvidia-mig-parted", "export"))["mig-configs"]["current"]
    by_gpu = {gpu: entry for entry in exported for gpu in entry["devices"]}
    assert [by_gpu[i]["mig-devices"] for i in range(3)] == [profiles(gpu) for gpu in shown["gpus"]]
    assert [by_gpu[i]["mig-enabled"] for i in range(3)] == [True, True, False]


def test_mig_parted_sees_what_nvml_made_elsewhere(machine: VirtualMachine, tools: Tools) -> None:
    machine.start("h100-80gb-sxm")
    machine.nvml(
        """
        d = nvmlDeviceGetHandleByIndex(0)
        nvmlDeviceSetMigMode(d, 1)
        for profile, start, compute in ((9, 0, 2), (15, 4, 7), (19, 6, 0)):
            nvmlGpuInstanceCreateComputeInstance(create(d, profile, start), compute)
        answer(None)
        """
    )
    exported = yaml.safe_load(tools.ok("nvidia-mig-parted", "export"))["mig-configs"]["current"]
    assert exported[0]["mig-devices"] == {"3g.40gb": 1, "1g.20gb": 1, "1g.10gb": 1}


def test_mig_parted_resets_ampere(machine: VirtualMachine, tools: Tools, tmp_path: Path) -> None:
    machine.start("a100-40gb", "--count=2")
    shown = cut(
        machine, tools, tmp_path,
        "{version: v1, mig-configs: {mine: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}]}}",
    )  # fmt: skip
    assert [profiles(gpu) for gpu in shown["gpus"]] == [{"1g.5gb": 7}] * 2
    assert all(
        gpu["mig"] == {"supported": True, "current": True, "pending": True, "inforom": True} for gpu in shown["gpus"]
    )


def test_mig_parted_checkpoint_is_the_state(machine: VirtualMachine, tools: Tools, tmp_path: Path) -> None:
    machine.start("h100-80gb-sxm", "--count=3")
    shown = cut(machine, tools, tmp_path)
    file = tmp_path / "checkpoint.json"
    tools.ok("nvidia-mig-parted", "checkpoint", "-f", str(file))
    devices = json.loads(file.read_text())["MigState"]["Devices"]
    places = {
        d["UUID"]: sorted((g["Placement"]["Start"], g["Placement"]["Size"]) for g in d["GpuInstances"] or [])
        for d in devices
    }
    assert places == {
        gpu["uuid"]: sorted((g["start"], g["size"]) for g in gpu["gpu_instances"]) for gpu in shown["gpus"]
    }
    machine.gpu("reset")
    tools.ok("nvidia-mig-parted", "restore", "-f", str(file))
    assert [profiles(gpu) for gpu in machine.show()["gpus"]] == [profiles(gpu) for gpu in shown["gpus"]]


def test_mig_parted_generates_for_a_board(machine: VirtualMachine, tools: Tools) -> None:
    machine.start("rtx-pro-6000")
    generated = yaml.safe_load(tools.ok("nvidia-mig-parted", "generate-config"))["mig-configs"]
    assert generated["all-1g.24gb"][0]["mig-devices"] == {"1g.24gb": 4}
    assert {"all-2g.48gb", "all-4g.96gb", "all-balanced"} <= set(generated)


#: From 3g + 2g + 1g + 1g: what is wanted, GPU instances destroyed and created, and whether the GPU is left empty.
PEER = [
    ("{1g.10gb: 1, 2g.20gb: 1, 3g.40gb: 1}", 4, 3, False),
    ("{3g.40gb: 2, 1g.10gb: 1}", 4 + 6, 6, True),  # impossible: three orders, two instances each
    ("{1g.5gb: 7}", 4, 0, True),  # a profile of another board
]


@pytest.mark.parametrize(("wanted", "destroyed", "created", "left_empty"), PEER)
def test_what_the_peer_costs(
    machine: VirtualMachine, tools: Tools, tmp_path: Path, wanted: str, destroyed: int, created: int, left_empty: bool
) -> None:
    machine.start("h100-80gb-sxm")
    one = "{version: v1, mig-configs: {mine: [{devices: [0], mig-enabled: true, mig-devices: %s}]}}"
    cut(machine, tools, tmp_path, one % "{1g.10gb: 2, 2g.20gb: 1, 3g.40gb: 1}")
    (tmp_path / "config.yaml").write_text(one % wanted)
    machine.gpu("trace", "on")
    tools.run("nvidia-mig-parted", "apply", "-f", str(tmp_path / "config.yaml"), "-c", "mine")
    log = [line.split()[1:] for line in machine.gpu("trace", "log").splitlines()]
    assert log.count(["nvmlGpuInstanceDestroy", "SUCCESS"]) == destroyed
    assert log.count(["nvmlDeviceCreateGpuInstance", "SUCCESS"]) == created
    assert (machine.show()["gpus"][0]["gpu_instances"] == []) == left_empty


def test_nvidia_ctk_writes_a_device_for_every_instance(machine: VirtualMachine, tools: Tools, tmp_path: Path) -> None:
    machine.start("h100-80gb-sxm", "--count=3")
    shown = cut(machine, tools, tmp_path)
    options = ("cdi", "generate", "--mode=nvml", f"--driver-root={tools.driver_root()}", "--dev-root=/")
    text = tools.ok("nvidia-ctk", "--quiet", *options)
    spec = yaml.safe_load(text)
    # What we read of it line by line is what a YAML parser reads.
    read = parse_specification("/var/run/cdi/nvidia.yaml", text)
    nodes = [node for part in (spec, *spec["devices"]) for node in part["containerEdits"].get("deviceNodes") or ()]
    assert (read.kind, read.version) == (spec["kind"], spec["cdiVersion"])
    assert read.devices == tuple(device["name"] for device in spec["devices"])
    assert read.nodes == {node["path"]: node.get("major") for node in nodes}
    assert "/dev/nvidia-uvm" in read.nodes or not Path("/dev/nvidia-uvm").exists()
    mounted = {Path(one["hostPath"]).name for one in spec["containerEdits"].get("mounts") or ()}
    assert {f"libcuda.so.{version}" for version in read.drivers} >= {
        name for name in mounted if name.startswith("libcuda.so.")
    }
    devices = {d["name"]: d["containerEdits"]["deviceNodes"] for d in spec["devices"]}
    for instance in compute_instances(shown):
        nodes = devices[f"{instance['gpu']}:{instance['mig_index']}"]
        assert [n["path"] for n in nodes] == [
            f"/dev/nvidia{instance['gpu']}",
            f"/dev/nvidia-caps/nvidia-cap{instance['gi_minor']}",
            f"/dev/nvidia-caps/nvidia-cap{instance['minor']}",
        ]
        assert devices[instance["uuid"]] == nodes
    assert [n["path"] for n in devices["2"]] == ["/dev/nvidia2"]
    assert devices[shown["gpus"][2]["uuid"]] == devices["2"]
    count = len(compute_instances(shown)) + 1
    assert len(devices) == 2 * count + 1  # by index, by UUID, and all


def labels(tools: Tools, strategy: str, tmp_path: Path) -> dict[str, str]:
    file = tmp_path / "labels"
    tools.ok(
        "gpu-feature-discovery", "--oneshot", "--no-timestamp", "--use-node-feature-api=false", f"--mig-strategy={strategy}",
        f"--output-file={file}", "--machine-type-file=/dev/null",
    )  # fmt: skip
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


def test_gpu_feature_discovery_labels_every_profile(machine: VirtualMachine, tools: Tools, tmp_path: Path) -> None:
    machine.start("h100-80gb-sxm", "--count=2")
    shown = cut(machine, tools, tmp_path, LAYOUT.rsplit("\n  -", 1)[0].replace("1c.3g.40gb: 2", "3g.40gb: 1"))
    found = labels(tools, "mixed", tmp_path)
    total: Counter[str] = sum((profiles(gpu) for gpu in shown["gpus"]), Counter())
    assert {key: found[f"nvidia.com/mig-{key}.count"] for key in total} == {
        key: str(count) for key, count in total.items()
    }
    assert found["nvidia.com/cuda.driver-version.full"] == shown["driver_version"]
    memory = {i["gi_profile"]: i["memory_mib"] for i in compute_instances(shown)}
    assert found["nvidia.com/mig-3g.40gb.memory"] == str(memory["3g.40gb"])


def test_gpu_feature_discovery_without_mig(machine: VirtualMachine, tools: Tools, tmp_path: Path) -> None:
    machine.start("l40s", "--count=4")
    found = labels(tools, "none", tmp_path)
    assert (found["nvidia.com/gpu.count"], found["nvidia.com/gpu.product"]) == ("4", "NVIDIA-L40S")
    assert found["nvidia.com/gpu.memory"] == str(machine.show()["gpus"][0]["memory_mib"])
    assert found["nvidia.com/mig.capable"] == "false"


def test_device_plugin_serves_every_profile_and_watches_health(
    machine: VirtualMachine, tools: Tools, tmp_path: Path
) -> None:
    """Without a kubelet it serves all the same, and an XID makes instances of its GPU unhealthy, some of every profile.

    (Of several equal instances on one GPU the plugin marks one only.)
    """
    machine.start("h100-80gb-sxm", "--count=2")
    shown = cut(machine, tools, tmp_path, LAYOUT.rsplit("\n  -", 1)[0].replace("1c.3g.40gb: 2", "3g.40gb: 1"))
    resources = {f"nvidia.com/mig-{instance['gi_profile']}" for instance in compute_instances(shown)}
    sick = {instance["uuid"]: instance["gi_profile"] for instance in compute_instances(shown) if instance["gpu"] == 1}
    plugin = subprocess.Popen(
        [*tools.command("nvidia-device-plugin", "--mig-strategy=mixed", "--kubelet-socket=")],
        env=tools.environment, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    overdue = threading.Timer(600, plugin.kill)
    overdue.start()
    over = threading.Event()

    def make_sick() -> None:
        # The event sets are made after the last line that the plugin writes of them, so that one XID may be missed.
        while not over.wait(1):
            machine.gpu("xid", "--gpu", "1", "--number", "79")

    xids = threading.Thread(target=make_sick)
    try:
        assert plugin.stderr is not None
        served: set[str] = set()
        marked: set[str] = set()
        watching = 0
        for line in plugin.stderr:
            served |= set(re.findall(r"Starting to serve '([^']+)'", line))
            watching += "Ignoring the following XIDs" in line
            if watching == len(resources) and served == resources and xids.ident is None:
                xids.start()
            marked |= set(re.findall(r"Xid=79 on Device=(MIG-[0-9a-f-]+)", line))
            if {sick.get(uuid) for uuid in marked} == set(sick.values()):
                break
        assert served == resources
        assert {sick[uuid] for uuid in marked} == set(sick.values())
    finally:
        overdue.cancel()
        over.set()
        if xids.ident is not None:
            xids.join()
        plugin.kill()
        plugin.wait()
