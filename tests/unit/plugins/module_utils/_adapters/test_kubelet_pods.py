# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import kubelet_pods
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.host_files import HostFiles
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.kubelet_pods import (
    EVERY_GPU,
    read_allocations,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.schema import check_gpus
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.kubelet_checkpoint import CHECKPOINT
from ansible_collections.gpufleet.nvidia.plugins.module_utils._users import add_allocations, names, users_of
from hypothesis import strategies as some

from ....mutation import examples_of, property_of

NOTEBOOK, LOADER, ENDED = (f"{number}0000000-0000-4000-8000-000000000000" for number in (1, 2, 3))
SLICE = "nvidia.com/mig-1g.10gb"


def entry(uid, devices, resource=SLICE):
    return {"PodUID": uid, "ContainerName": "main", "ResourceName": resource, "DeviceIDs": devices, "AllocResp": ""}


def checkpoint(*entries):
    data = {"PodDeviceEntries": list(entries), "RegisteredDevices": {SLICE: ["MIG-a"]}}
    return json.dumps({"Data": data, "Checksum": 1})


def node(root, written, pods=(NOTEBOOK, LOADER)):
    """Return the files of a node whose kubelet has these pods."""
    path = Path(root) / CHECKPOINT.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(written if isinstance(written, bytes) else written.encode())
    for uid in pods:
        (Path(root) / "var/lib/kubelet/pods" / uid).mkdir(parents=True, exist_ok=True)
    (Path(root) / "var/log/pods" / f"team_notebook-0_{NOTEBOOK}").mkdir(parents=True, exist_ok=True)
    (Path(root) / "var/log/pods" / "left_over").mkdir(exist_ok=True)
    return HostFiles(str(root))


def test_devices_are_those_of_the_pods_that_are_on_the_host(tmp_path):
    written = checkpoint(
        entry(NOTEBOOK, {"0": ["MIG-a"], "-1": ["MIG-b"]}),
        entry(LOADER, {"0": ["GPU-1::0", "GPU-1::3"]}, "nvidia.com/gpu.shared"),
        entry(ENDED, {"0": ["MIG-c"]}),
    )
    notebook = {"pod": "team/notebook-0", "pod_uid": NOTEBOOK, "container": "main", "resource": SLICE}
    loader = {"pod": None, "pod_uid": LOADER, "container": "main", "resource": "nvidia.com/gpu.shared"}
    assert read_allocations(node(tmp_path, written)) == {"MIG-a": [notebook], "MIG-b": [notebook], "GPU-1": [loader]}


def test_a_host_without_a_kubelet_and_a_kubelet_without_pods_allocate_nothing(tmp_path):
    assert read_allocations(HostFiles(str(tmp_path))) == {}
    assert read_allocations(node(tmp_path, '{"Data": {"PodDeviceEntries": null}, "Checksum": 1}')) == {}


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("", "it is not what a kubelet writes"),
        (checkpoint(entry(NOTEBOOK, {"0": ["MIG-a"]}))[:-9], "it is not what a kubelet writes"),
        ('{"Data": {"Pods": []}}', "PodDeviceEntries"),
        ('{"Data": {"PodDeviceEntries": [{"PodUID": 7}]}}', "PodDeviceEntries[0]"),
        ("[" * 100_000, "it is not what a kubelet writes"),
        (b"\xff\xfe", "it is not what a kubelet writes"),
        ("x" * 5000, "it has 5000 bytes"),
    ],
)
def test_a_record_that_cannot_be_read_makes_every_gpu_used(tmp_path, monkeypatch, written, why):
    monkeypatch.setattr(kubelet_pods, "_LARGEST", 4096 if "bytes" in why else 1 << 20)
    found = read_allocations(node(tmp_path, written))
    gpu = {"index": 0, "uuid": "GPU-1", "processes": []}
    gpu["gpu_instances"] = [
        {"id": 1, "processes": [], "compute_instances": [{"id": 0, "uuid": "MIG-a", "processes": []}]}
    ]
    add_allocations([gpu], found)
    (user,) = names(users_of(gpu).on(1))
    assert user.startswith(f"unknown ({CHECKPOINT}: ") and why in user
    assert names(users_of(gpu).everybody) == (user,)


_JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=9),
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)
_NEARLY = some.fixed_dictionaries(
    {"PodUID": _JSON | some.just(NOTEBOOK), "ContainerName": _JSON, "ResourceName": _JSON, "DeviceIDs": _JSON}
)
_WRITTEN = (
    some.binary(max_size=200)
    | _JSON.map(lambda value: json.dumps(value).encode())
    | some.lists(_NEARLY, max_size=3).map(lambda listed: json.dumps({"Data": {"PodDeviceEntries": listed}}).encode())
)


@examples_of(tests=4)
def test_whatever_the_file_holds_is_read_or_unknown_and_fits_the_facts(examples):
    @property_of(_WRITTEN, examples)
    def check(written):
        with tempfile.TemporaryDirectory() as root:
            found = read_allocations(node(root, written))
        gpu = {"index": 0, "uuid": next((uuid for uuid in found if uuid), "GPU-1")}
        add_allocations([gpu], found)
        assert bool(users_of(gpu).everybody) == bool(found)
        assert set(found) <= {EVERY_GPU} or EVERY_GPU not in found
        if len(gpu["uuid"]) <= 256 and gpu["uuid"].isprintable():
            check_gpus([gpu])
