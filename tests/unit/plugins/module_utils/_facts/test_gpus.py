# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import ctypes
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_gpus import Nvml, lost_gpu
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_health import degraded_by
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_library import (
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    GpuState,
    NvmlError,
    NvmlUnavailable,
    PynvmlMissing,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts import gpus
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.gpus import read_gpus, slowest
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import MIG_ON, h100

H100 = GpuState(h100(mig=MIG_ON), device_id="0x233010DE")
LOST = GpuState(lost_gpu(1), unknown={"handle": "nvmlDeviceGetHandleByIndex failed: GPU is lost (GPU_IS_LOST)"})
PROFILE = {"name": "1g.10gb", "id": 19, "memory_mib": 9728, "max_instances": 7, "starts": [0, 1], "size": 1}


class FabricInfo(ctypes.Structure):
    _fields_ = [
        ("clusterUuid", ctypes.c_ubyte * 16),
        ("status", ctypes.c_uint),
        ("cliqueId", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
    ]


class FakeNvml(Nvml):
    """NVML as the adapter shows it; C(calls) answers the plain calls by name."""

    cluster = bytes(16)

    def __init__(self, states=(H100,), unknown=None, profiles=None, calls=None):
        super().__init__(SimpleNamespace(pynvml=SimpleNamespace(c_nvmlGpuFabricInfo_t=FabricInfo), call=self._call))
        self.states = states
        self.unknown = unknown or {}
        self.offered = profiles
        self.calls = calls or {}

    def versions(self):
        return {"version": "13.580.126.09", "cuda_version": "13.0"}, self.unknown

    def gpus(self):
        return copy.deepcopy(list(self.states))

    def profiles(self, _index):
        if self.offered is None:
            raise NvmlError("nvmlDeviceGetGpuInstanceProfileInfo", NO_PERMISSION, "NO_PERMISSION", "no permission")
        return self.offered

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


def test_a_lost_gpu_is_unknown_in_everything_but_its_index():
    assert LOST.lost and LOST.index == 1 and LOST.facts["gpu_instances"] == []
    assert {LOST.facts[name] for name in ("uuid", "name", "memory_mib", "board", "processes")} == {None}
    assert set(LOST.facts) - set(H100.facts) == {"lost"}


def test_everything_is_read(tree, monkeypatch):
    opened(monkeypatch, FakeNvml((H100, LOST), {"cuda_version": "failed"}))
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
    ("board", "asked"), [("h100-80gb-sxm", False), ("h200-141gb", False), ("gh200-144gb", True), (None, True)]
)
def test_the_driver_is_asked_for_profiles_where_the_table_does_not_have_them_whole(tree, monkeypatch, board, asked):
    state = GpuState({**H100.facts, "board": board})
    opened(monkeypatch, FakeNvml(states=(state,), profiles=[PROFILE]))
    (gpu,) = read_gpus(tree.source(), None)["gpus"]
    assert ("profiles" in gpu) is asked
    without_mig = GpuState({**state.facts, "mig": {"supported": False}})
    opened(monkeypatch, FakeNvml(states=(without_mig,), profiles=[PROFILE]))
    assert "profiles" not in read_gpus(tree.source(), None)["gpus"][0]


def test_profiles_on_request(tree, monkeypatch):
    opened(monkeypatch, FakeNvml(profiles=[PROFILE]))
    assert "profiles" not in read_gpus(tree.source(), None)["gpus"][0]
    assert read_gpus(tree.source(), None, ("profiles",))["gpus"][0]["profiles"] == [PROFILE]
    opened(monkeypatch, FakeNvml())
    found = read_gpus(tree.source(), None, ("profiles",))
    assert found["gpus"][0]["profiles"] is None
    assert "NO_PERMISSION" in found["unknown"]["gpus[0].profiles"]


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
    assert tuple(degraded_by(mask)) == expected


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
