# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_facts import shape_gpu, shape_profile
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_health import degraded_by
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_library import (
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    NvmlError,
    NvmlUnavailable,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_types import (
    ComputeInstance,
    GpuInstance,
    GpuInstanceProfile,
    GpuState,
    MigMode,
    Placement,
    Process,
    SystemInfo,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.pynvml_loader import PynvmlMissing
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts import gpus
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.gpus import (
    read_gpus,
    slowest,
)

TRAIN = Process(812, "python3", 1200, "C", 1, 0)
INSTANCE = GpuInstance(
    1,
    "3g.40gb",
    9,
    Placement(4, 4),
    40448,
    (ComputeInstance(0, "3g.40gb", 2, Placement(0, 3), "MIG-1", 0, (TRAIN,)),),
    (TRAIN,),
)
H100 = GpuState(
    index=0,
    minor=0,
    uuid="GPU-0",
    pci_address="0000:18:00.0",
    pci_device_id="0x233010DE",
    name="NVIDIA H100 80GB HBM3",
    memory_mib=81559,
    architecture="hopper",
    compute_mode="default",
    persistence_mode=True,
    mig=MigMode(True, True, True),
    gpu_instances=(INSTANCE,),
    processes=(TRAIN,),
)
LOST = GpuState(index=1, lost=True, unknown={"handle": "nvmlDeviceGetHandleByIndex failed: GPU is lost (GPU_IS_LOST)"})
PROFILE = GpuInstanceProfile(0, 19, "1g.10gb", 1, 7, 9728, 16, 1, 1, 0, 1, 0, (Placement(0, 1), Placement(1, 1)), 3)


class FabricInfo(ctypes.Structure):
    _fields_ = [
        ("clusterUuid", ctypes.c_ubyte * 16),
        ("status", ctypes.c_uint),
        ("cliqueId", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
    ]


class FakeNvml:
    """NVML as the adapter shows it; C(calls) answers the plain calls by name."""

    cluster = bytes(16)

    def __init__(self, states=(H100,), unknown=None, profiles=None, calls=None):
        self.states = states
        self.unknown = unknown or {}
        self._profiles = profiles
        self.calls = calls or {}
        self.library = SimpleNamespace(pynvml=SimpleNamespace(c_nvmlGpuFabricInfo_t=FabricInfo), call=self._call)

    def system(self):
        return SystemInfo("580.126.09", "13.580.126.09", "13.0", self.unknown)

    def gpus(self):
        return list(self.states)

    def profiles(self, _index):
        if self._profiles is None:
            raise NvmlError("nvmlDeviceGetGpuInstanceProfileInfo", NO_PERMISSION, "NO_PERMISSION", "no permission")
        return self._profiles

    def device(self, index):
        return index

    def _call(self, name, *arguments):
        answer = self.calls.get(name)
        if answer is None:
            raise NvmlError(name, NOT_SUPPORTED, "NOT_SUPPORTED", "not supported")
        if name == "nvmlDeviceGetGpuFabricInfo":
            arguments[1]._obj.state = answer
            arguments[1]._obj.clusterUuid[:] = self.cluster
            arguments[1]._obj.cliqueId = 3
            return 0
        return answer


def opened(monkeypatch, nvml=None, error=None):
    @contextmanager
    def open_nvml(_archive):
        if error:
            raise error
        yield nvml

    monkeypatch.setattr(gpus, "open_nvml", open_nvml)


def test_a_gpu_with_an_instance():
    assert shape_gpu(H100) == {
        "index": 0,
        "minor": 0,
        "uuid": "GPU-0",
        "pci_address": "0000:18:00.0",
        "name": "NVIDIA H100 80GB HBM3",
        "board": "h100-80gb-sxm",
        "architecture": "hopper",
        "memory_mib": 81559,
        "compute_mode": "default",
        "persistence_mode": True,
        "mig": {"supported": True, "current": True, "pending": True},
        "processes": [{"pid": 812, "name": "python3", "memory_mib": 1200, "type": "C", "gpu_instance": 1}],
        "gpu_instances": [
            {
                "id": 1,
                "profile": "3g.40gb",
                "profile_id": 9,
                "start": 4,
                "size": 4,
                "memory_mib": 40448,
                "processes": [{"pid": 812, "name": "python3", "memory_mib": 1200, "type": "C", "gpu_instance": 1}],
                "compute_instances": [
                    {
                        "id": 0,
                        "profile": "3g.40gb",
                        "profile_id": 2,
                        "multiprocessors": None,
                        "uuid": "MIG-1",
                        "index": 0,
                        "processes": [
                            {"pid": 812, "name": "python3", "memory_mib": 1200, "type": "C", "gpu_instance": 1}
                        ],
                    }
                ],
            }
        ],
    }


def test_a_lost_gpu_is_unknown_in_everything_but_its_index():
    shaped = shape_gpu(LOST)
    assert shaped["lost"] is True
    assert shaped["index"] == 1 and shaped["gpu_instances"] == []
    assert {shaped[name] for name in ("uuid", "name", "memory_mib", "board", "processes")} == {None}


def test_everything_is_read(tree, monkeypatch):
    opened(monkeypatch, FakeNvml((H100, LOST), {"cuda_version": "failed", "driver_version": "failed"}))
    found = read_gpus(tree.source(), None)
    assert found["nvml"] == {
        "available": True,
        "reason": None,
        "code": None,
        "version": "13.580.126.09",
        "cuda_version": "13.0",
    }
    assert [gpu["index"] for gpu in found["gpus"]] == [0, 1]
    assert found["fabric_state"] is None
    assert found["unknown"] == {"nvml.cuda_version": "failed", "gpus[1]": LOST.unknown["handle"]}


@pytest.mark.parametrize(
    ("name", "device", "memory", "asked"),
    [
        ("NVIDIA H100 80GB HBM3", "0x2330", 81559, False),
        ("NVIDIA H200", "0x2335", 143771, False),
        ("NVIDIA GH200 144G HBM3e", "0x2348", 146944, True),
        ("NVIDIA X1000 96GB", "0xffff", 98304, True),
    ],
)
def test_the_driver_is_asked_for_profiles_where_the_table_does_not_have_them_whole(
    tree, monkeypatch, name, device, memory, asked
):
    state = replace(H100, name=name, pci_device_id=device, pci_subsystem_id=None, memory_mib=memory)
    opened(monkeypatch, FakeNvml(states=(state,), profiles=(PROFILE,)))
    (gpu,) = read_gpus(tree.source(), None)["gpus"]
    assert ("profiles" in gpu) is asked
    without_mig = replace(state, mig=replace(state.mig, supported=False))
    opened(monkeypatch, FakeNvml(states=(without_mig,), profiles=(PROFILE,)))
    assert "profiles" not in read_gpus(tree.source(), None)["gpus"][0]


def test_profiles_on_request(tree, monkeypatch):
    opened(monkeypatch, FakeNvml(profiles=(PROFILE,)))
    assert "profiles" not in read_gpus(tree.source(), None)["gpus"][0]
    assert read_gpus(tree.source(), None, ("profiles",))["gpus"][0]["profiles"] == [
        {
            "name": "1g.10gb",
            "id": 19,
            "enum": 0,
            "memory_mib": 9728,
            "multiprocessors": 16,
            "copy_engines": 1,
            "decoders": 1,
            "encoders": 0,
            "jpeg": 1,
            "ofa": 0,
            "max_instances": 7,
            "remaining": 3,
            "starts": [0, 1],
            "size": 1,
        }
    ]
    opened(monkeypatch, FakeNvml())
    found = read_gpus(tree.source(), None, ("profiles",))
    assert found["gpus"][0]["profiles"] is None
    assert "NO_PERMISSION" in found["unknown"]["gpus[0].profiles"]


def test_a_profile_whose_places_are_not_told():
    assert shape_profile(GpuInstanceProfile(0, 19, "1g.10gb", 1, 7, 9728, 16, 1, 1, 0, 1, 0))["starts"] is None


MEMORY_ERRORS = ("remap_pending", "remap_failed", "uncorrected", "remapped_correctable", "remapped_uncorrectable")


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ({}, dict.fromkeys(MEMORY_ERRORS)),
        (
            {"nvmlDeviceGetRemappedRows": (3, 1, 1, 0), "nvmlDeviceGetTotalEccErrors": 2},
            dict(zip(MEMORY_ERRORS, (True, False, 2, 3, 1))),
        ),
        (
            {"nvmlDeviceGetRetiredPagesPendingStatus": 1},
            {**dict.fromkeys(MEMORY_ERRORS), "remap_pending": True},
        ),
    ],
)
def test_memory_errors_on_request(tree, monkeypatch, calls, expected):
    opened(monkeypatch, FakeNvml((H100, LOST), calls=calls))
    found = read_gpus(tree.source(), None, ("errors",))["gpus"]
    assert found[0]["errors"] == expected
    assert "errors" not in found[1]


def field_value(code, value):
    return [SimpleNamespace(nvmlReturn=code, value=SimpleNamespace(uiVal=value))]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (None, None),
        (field_value(NOT_SUPPORTED, 0), None),
        (field_value(0, 0), "none"),
        (field_value(0, 2), "node_reboot"),
        (field_value(0, 7), "system_reboot"),
        (field_value(0, 9), "value_9"),
    ],
)
def test_the_recovery_action_on_request(tree, monkeypatch, answer, expected):
    opened(monkeypatch, FakeNvml((H100, LOST), calls={"nvmlDeviceGetFieldValues": answer}))
    found = read_gpus(tree.source(), None, ("errors",))["gpus"]
    assert found[0]["recovery_action"] == expected
    assert "recovery_action" not in found[1]


@pytest.mark.parametrize(("state", "name"), [(1, "not_started"), (2, "in_progress"), (3, "completed"), (9, None)])
def test_fabric_state(tree, monkeypatch, state, name):
    opened(monkeypatch, FakeNvml(calls={"nvmlDeviceGetGpuFabricInfo": state}))
    found = read_gpus(tree.source(), None)
    assert found["fabric_state"] == name
    assert (found["gpus"][0].get("fabric") or {}).get("state") == name


@pytest.mark.parametrize(
    ("state", "cluster", "clique"),
    [(3, range(16), "00010203-0405-0607-0809-0a0b0c0d0e0f.3"), (3, bytes(16), None), (2, range(16), None)],
    ids=["a rack", "a host by itself", "not registered yet"],
)
def test_the_clique_of_a_rack_has_the_form_of_its_label(tree, monkeypatch, state, cluster, clique):
    nvml = FakeNvml(calls={"nvmlDeviceGetGpuFabricInfo": state})
    nvml.cluster = cluster
    opened(monkeypatch, nvml)
    assert read_gpus(tree.source(), None)["gpus"][0]["fabric"]["clique"] == clique


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (0, ()),
        # Every value says that nothing is wrong, and the configuration is right.
        (0b10 | 0b10 << 2 | 0b10 << 4 | 0b10 << 6 | 1 << 8, ()),
        (0b01, ("degraded_bandwidth",)),
        (0b01 << 2 | 0b01 << 4 | 0b01 << 6, ("route_recovery", "route_unhealthy", "access_timeout_recovery")),
        (5 << 8, ("insufficient_nvlinks",)),
        (9 << 8, ("incorrect_configuration_9",)),
    ],
)
def test_the_health_mask_of_the_fabric(mask, expected):
    assert degraded_by(mask) == expected


def test_an_old_pynvml_knows_no_fabric(tree, monkeypatch):
    nvml = FakeNvml()
    nvml.library.pynvml = SimpleNamespace()
    opened(monkeypatch, nvml)
    assert read_gpus(tree.source(), None)["fabric_state"] is None


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({"completed", "in_progress"}, "in_progress"),
        ({"completed", "not_started"}, "not_started"),
        ({None, "completed"}, "completed"),
        ({None}, None),
        (set(), None),
    ],
)
def test_the_fabric_is_as_far_as_its_last_gpu(states, expected):
    assert slowest(states) == expected


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NvmlUnavailable("version_mismatch", "Failed to open NVML: ..."), "version_mismatch"),
        (NvmlUnavailable("driver_not_loaded", "Failed to open NVML: ..."), "driver_not_loaded"),
        (NvmlError("nvmlDeviceGetCount", GPU_IS_LOST, "GPU_IS_LOST", "lost"), "unknown"),
        (PynvmlMissing("it is nowhere"), "pynvml_missing"),
    ],
)
def test_nvml_that_does_not_answer(tree, monkeypatch, error, code):
    opened(monkeypatch, error=error)
    found = read_gpus(tree.source(), None)
    assert found["gpus"] is None
    assert found["nvml"]["available"] is False and found["nvml"]["code"] == code
    assert found["nvml"]["reason"] in found["unknown"]["gpus"]
