# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import json
import os
import re
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils import _facts_view, _gpu_facts, _gpu_settings
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import kernel, processes
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts import gpus
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts import nvml as nvml_part
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.document import pynvml_is_wanted, read_document
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.nvml import unavailable
from ansible_collections.gpufleet.nvidia.plugins.module_utils._schema import View
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import ADDRESSES, h100, h100_settings

LIB = "/usr/lib/x86_64-linux-gnu"


@pytest.fixture(autouse=True)
def running_kernel(monkeypatch):
    monkeypatch.setattr(kernel, "running_kernel", lambda: "6.1.0-50-amd64")


def with_nvml(monkeypatch, answer):
    """Let NVML answer with C(answer), or have no pynvml where that is None."""

    missing = unavailable("pynvml_missing", "The Python module pynvml is not on this host")
    monkeypatch.setattr(
        gpus, "read_gpus", lambda _source, _archive, _subsets: dict(missing if answer is None else answer)
    )


def gpu(index):
    uuid = f"GPU-8a5e2c0{index}-0f5b-4f0a-9d0c-5a3c0f6b7d1{index}"
    return h100(index, uuid=uuid, settings=h100_settings())


def nvml(gpus, unknown=None):
    return {
        "nvml": {"available": True, "reason": None, "code": None, "version": "13.580.126.09", "cuda_version": "13.0"},
        "gpus": gpus,
        "fabric_state": "completed",
        "unknown": unknown or {},
    }


def build_typical(tree):
    """A Debian host with 8 H100, NVIDIA's driver, the toolkit, containerd and a kubelet."""
    tree.write("/etc/os-release", 'ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n')
    tree.write("/proc/sys/kernel/hostname", "gpu-training-1")
    tree.write("/proc/sys/kernel/random/boot_id", "5f1c7e0e-3d0a-4a53-9c0b-1b0f6f7f8a91")
    tree.write("/proc/self/ns/mnt")
    for address in ADDRESSES:
        tree.pci(address, "0x2330", "0x030200")
    for number in range(4):
        tree.pci(f"0000:0{number + 1}:00.0", "0x22a3", "0x068000", driver="nvidia-nvswitch")
    for name, version in (("nvidia", "580.126.09"), ("nvidia_uvm", ""), ("nvidia_modeset", ""), ("nvidia_drm", "")):
        tree.write(f"/sys/module/{name}/version", version)
        tree.write(f"/sys/module/{name}/refcnt", "1")
    tree.write("/sys/firmware/acpi/tables", "")
    tree.write("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.09  x")
    tree.write("/lib/modules/6.1.0-50-amd64/modules.dep", "updates/dkms/nvidia.ko:\n")
    tree.answers["modinfo"] = "version: 580.126.09\nlicense: Dual MIT/GPL\n"
    tree.write(f"{LIB}/libnvidia-ml.so.580.126.09")
    tree.link(f"{LIB}/libnvidia-ml.so.1", "libnvidia-ml.so.580.126.09")
    names = ("nvidia-open", "nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-persistenced", "libnvidia-ml1")
    names += ("nvidia-fabricmanager",)
    toolkit = ("nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container1")
    tree.write(
        "/var/lib/dpkg/status",
        "\n\n".join(
            f"Package: {name}\nStatus: install ok installed\nMaintainer: cudatools <cudatools@nvidia.com>\nVersion: {version}"
            for group, version in ((names, "580.126.09-1"), (toolkit, "1.20.2-1"))
            for name in group
        ),
    )
    for program in ("nvidia-persistenced", "nv-fabricmanager", "containerd", "kubelet", "nvidia-ctk", "nvidia-smi"):
        tree.program(f"/usr/bin/{program}")
    tree.answers["nv-fabricmanager"] = "Fabric Manager version is : 580.126.09"
    tree.answers["containerd"] = "containerd github.com/containerd/containerd v1.7.22 x"
    tree.write(
        "/etc/containerd/config.toml",
        'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\nruntime_type = "io.containerd.runc.v2"\n',
    )
    tree.folder("/run/systemd/system")
    tree.active = {
        "containerd.service",
        "kubelet.service",
        "nvidia-persistenced.service",
        "nvidia-fabricmanager.service",
    }
    devices = "".join(f"    - name: '{index}'\n      containerEdits: {{}}\n" for index in range(8))
    tree.write("/var/run/cdi/nvidia.yaml", f"cdiVersion: 0.5.0\ndevices:\n{devices}kind: nvidia.com/gpu\n")


def test_a_typical_host_costs_four_processes(tree, monkeypatch):
    build_typical(tree)
    with_nvml(monkeypatch, nvml([gpu(index) for index in range(8)]))

    read_document(tree.source())

    # modinfo, one systemctl for all units, the runtime and the fabric manager; none of them for each GPU or package.
    assert sorted(call[0].rsplit("/", 1)[-1] for call in tree.calls) == [
        "containerd",
        "modinfo",
        "nv-fabricmanager",
        "systemctl",
    ]


def test_packages_that_follow_a_kernel_are_named(tree, monkeypatch):
    """From them the plan knows which packages bring the driver's module for the next kernel."""
    build_typical(tree)
    names = ("linux-headers-amd64", "linux-image-6.1.0-50-amd64", "linux-image-amd64", "bash")
    shown = "\n\n".join(f"Package: {name}\nStatus: install ok installed\nMaintainer: x\nVersion: 1" for name in names)
    tree.write("/var/lib/dpkg/status", shown)
    with_nvml(monkeypatch, nvml([gpu(0)]))
    assert read_document(tree.source())["host"]["kernel_packages"] == ["linux-headers-amd64", "linux-image-amd64"]


def test_the_size_of_the_facts(tree, monkeypatch):
    build_typical(tree)
    with_nvml(monkeypatch, nvml([gpu(index) for index in range(8)]))

    document = read_document(tree.source())

    assert document["gpus"][7]["index"] == 7 and document["unknown"] == {}
    # Facts of 130 KB make plays slow. Eight GPUs and four switches without instances take 9.5 KiB.
    assert len(json.dumps(document)) < 10 * 1024


def test_the_shape_is_the_documented_one(tree, monkeypatch):
    build_typical(tree)
    with_nvml(monkeypatch, nvml([gpu(0)]))
    document = read_document(tree.source())
    assert list(document) == [
        "schema",
        "host",
        "pci",
        "driver",
        "nvml",
        "gpus",
        "fabric",
        "mps",
        "mps_control",
        "toolkit",
        "dcgm",
        "runtimes",
        "kubelet",
        "cdi",
        "recorded",
        "host_program",
        "unknown",
    ]
    assert document["pci"][4] == {
        "address": "0000:18:00.0",
        "device_id": "0x2330",
        "subsystem_id": "0x16c1",
        "class": "0x030200",
        "kind": "gpu",
        "numa_node": 0,
        "kernel_driver": "nvidia",
        "board": "h100-80gb-sxm",
        "architecture": "hopper",
    }
    assert document["driver"]["source"] == "nvidia" and document["driver"]["persistence_daemon"]["active"] is True
    assert document["fabric"] == {
        "nvswitches": 4,
        "manager": {"installed": True, "active": True, "version": "580.126.09"},
        "state": "completed",
    }
    assert document["kubelet"] == {"installed": True, "active": True}
    assert document["toolkit"]["version"] == "1.20.2"
    assert document["cdi"][0]["stale"] == [str(index) for index in range(1, 8)]
    json.dumps(document)


def value_at(document, path):
    value = document
    for part in re.findall(r"[^.\[\]]+", path):
        value = value[int(part)] if part.isdigit() else value[part]
    return value


STATES = ("bare", "no_sysfs", "other_root", "no_pynvml", "typical")


@pytest.mark.parametrize("state", STATES)
def test_what_is_unknown_is_none_and_never_a_guess(tree, monkeypatch, state):
    if state in ("no_pynvml", "typical", "other_root"):
        build_typical(tree)
    if state == "bare":
        tree.folder("/sys/bus/pci/devices")
        tree.write("/var/lib/dpkg/status")
    with_nvml(monkeypatch, None if state in ("no_pynvml", "other_root") else nvml([gpu(0)]))

    document = read_document(tree.source(local=state != "other_root"))

    assert (document["unknown"] == {}) is (state == "typical")
    for path, reason in document["unknown"].items():
        assert reason
        if path == "services":  # systemd did not answer: every unit's state is unknown
            assert document["kubelet"]["active"] is None
        else:
            assert value_at(document, path) is None, path
    if document["gpus"] is None:
        assert "gpus" in document["unknown"]


def test_a_bare_host_starts_no_process_and_looks_for_no_pynvml(tree, monkeypatch):
    tree.folder("/sys/bus/pci/devices")
    tree.write("/etc/os-release", "ID=debian\n")
    tree.write("/var/lib/dpkg/status")
    tree.write("/lib/modules/6.1.0-50-amd64/modules.dep")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(nvml_part, "begin_isolated", lambda _function, _limit: pytest.fail("not needed"))

    document = read_document(tree.source())

    assert tree.calls == []
    assert document["pci"] == [] and document["gpus"] is None
    assert document["nvml"]["code"] == "library_not_found"


def test_pynvml_is_asked_for_where_only_that_is_missing(tree, monkeypatch):
    build_typical(tree)
    with_nvml(monkeypatch, None)
    document = read_document(tree.source())
    assert document["nvml"]["code"] == "pynvml_missing"
    assert pynvml_is_wanted(tree.files, document["nvml"]["code"])
    assert not pynvml_is_wanted(HostFiles(str(tree.root / "nowhere")), document["nvml"]["code"])


def test_holders_on_request(tree, monkeypatch):
    build_typical(tree)
    with_nvml(monkeypatch, nvml([]))
    tree.process(812, ["python3"], devices=("/dev/nvidia0",))
    assert "holders" not in read_document(tree.source())
    assert read_document(tree.source(), subsets=("holders",))["holders"] == [
        {
            "pid": 812,
            "command": "python3",
            "command_line": "python3",
            "devices": ["/dev/nvidia0"],
            "pod_uid": None,
            "container_id": None,
            "unit": None,
        }
    ]


@pytest.mark.parametrize(
    ("user", "remedy"), [(1000, "run as root"), (0, "root itself may not here, as in a container")]
)
def test_hidden_holders_are_noted(tree, monkeypatch, user, remedy):
    with_nvml(monkeypatch, nvml([]))
    monkeypatch.setattr(processes, "device_holders", lambda _files: processes.HolderScan((), 3))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    unknown = read_document(tree.source(), subsets=("holders",))["unknown"]
    assert unknown["holders"] == f"3 processes cannot be inspected; {remedy}"


def test_every_declared_field_is_in_the_page():
    page = (Path(__file__).parents[5] / "docs" / "facts.md").read_text(encoding="utf-8")
    declared = {
        f"{name}.{field.name}": field.name
        for module in (_facts_view, _gpu_facts, _gpu_settings)
        for name, one in vars(module).items()
        if isinstance(one, type) and issubclass(one, View) and one is not View
        for field in dataclasses.fields(one)
        if field.metadata
    }
    assert len(declared) > 200
    assert [name for name, field in declared.items() if not re.search(rf"\b{field}\b", page)] == []
