# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading GPUs: against the virtual NVML, and against a driver that answers as old or broken ones do."""

from __future__ import annotations

import ctypes
import os
from types import SimpleNamespace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import nvml_gpus, nvml_library
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_gpus import Nvml, open_nvml, pci_address
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_instances import (
    gpu_instance_profiles,
    with_places,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_library import (
    Library,
    NvmlError,
    NvmlUnavailable,
    processes,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.schema import check_facts
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._mig.virtual_gpus import VirtualHost, build


@pytest.fixture
def make(tmp_path, monkeypatch):
    build()

    def create(board="h100-80gb-sxm", count=1):
        host = VirtualHost.create(tmp_path / "host", board, count)
        monkeypatch.setenv("VIRTUAL_GPU_ROOT", str(host.root))
        return host

    return create


def test_a_gpu_without_mig(make):
    make("t4-16gb")
    with open_nvml() as nvml:
        (gpu,) = nvml.gpus()
        assert nvml.profiles(0) == []
    found = gpu.facts
    assert (found["name"], found["architecture"], found["board"]) == ("Tesla T4", "turing", "t4-16gb")
    assert found["mig"] == {"supported": False, "current": None, "pending": None}
    assert found["pci_address"] == "0000:18:00.0" and found["uuid"].startswith("GPU-")
    assert found["processes"] == found["gpu_instances"] == [] and not gpu.unknown and not gpu.lost
    assert (gpu.device_id, gpu.index) == ("0x1EB810DE", 0)


def test_the_versions(make):
    make()
    with open_nvml() as nvml:
        assert nvml.driver_version() == "580.126.09"
        versions, unknown = nvml.versions()
    assert versions["version"].endswith("580.126.09") and versions["cuda_version"] == "13.0" and not unknown


def test_instances_with_their_places_uuids_and_processes(make):
    host = make()
    with open_nvml() as nvml:
        assert nvml_gpus.set_mig_mode(nvml, 0, True) == nvml_gpus.ACTIVE
        profiles = {profile["name"]: profile for profile in nvml.profiles(0)}
        assert (profiles["1g.20gb"]["starts"], profiles["1g.20gb"]["size"]) == ([0, 2, 4, 6], 2)
        assert profiles["1g.20gb"]["remaining"] == 4
        number = nvml_gpus.create_gpu_instance(nvml, 0, profiles["3g.40gb"]["id"], 4, 4)
        (whole, *_rest) = [p for p in nvml.compute_profiles(0, number, "3g.40gb", 3) if p.slices == 3]
        inner = nvml_gpus.create_compute_instance(nvml, 0, number, whole.id)
        host.control("run", "--gpu", "0", "--gi", str(number), "--ci", str(inner), "--pid", str(os.getpid()))
        (gpu,) = nvml.gpus()
        (instance,) = gpu.facts["gpu_instances"]
        (compute,) = instance["compute_instances"]
        assert [instance[key] for key in ("id", "profile", "start", "size")] == [number, "3g.40gb", 4, 4]
        assert (instance["profile_id"], instance["memory_mib"]) == (9, profiles["3g.40gb"]["memory_mib"])
        assert [compute[key] for key in ("id", "profile", "multiprocessors", "index")] == [inner, "3g.40gb", 60, 0]
        assert compute["uuid"].startswith("MIG-")
        (process,) = compute["processes"]
        assert set(process) == {"pid", "name", "memory_mib", "type", "gpu_instance"} and process["name"] is not None
        assert (process["pid"], process["gpu_instance"]) == (os.getpid(), number)
        assert instance["processes"] == gpu.facts["processes"] == [process]
        check_facts({"schema": 1, "gpus": [{**gpu.facts, "profiles": list(profiles.values())}]})
        with pytest.raises(NvmlError) as refused:
            nvml_gpus.destroy_compute_instance(nvml, 0, number, inner)
        assert refused.value.symbol == "IN_USE"
        host.control("stop", "--pid", str(os.getpid()))
        nvml_gpus.destroy_compute_instance(nvml, 0, number, inner)
        nvml_gpus.destroy_gpu_instance(nvml, 0, number)
        assert nvml.gpu(0).facts["gpu_instances"] == []


def test_modes_are_set(make):
    make()
    with open_nvml() as nvml:
        nvml_gpus.set_compute_mode(nvml, 0, "exclusive_process")
        gpu = nvml.gpu(0)
    assert gpu.facts["compute_mode"] == "exclusive_process"


def test_the_mode_of_an_ampere_gpu_waits_for_a_reset(make):
    make("a100-40gb")
    with open_nvml() as nvml:
        assert nvml_gpus.set_mig_mode(nvml, 0, True) == nvml_gpus.PENDING_RESET
        assert nvml.gpu(0).facts["mig"] == {"supported": True, "current": False, "pending": True}


def test_a_lost_gpu_does_not_hide_the_others(make):
    host = make(count=2)
    host.control("lose", "--gpu", "0")
    with open_nvml() as nvml:
        first, second = nvml.gpus()
    assert first.lost and first.unknown
    assert not second.lost and second.facts["name"] == "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
    ("call", "key"),
    [
        ("nvmlDeviceGetMinorNumber", "minor"),
        ("nvmlDeviceGetMigMode", "mig"),
        ("nvmlDeviceGetComputeRunningProcesses_v3", "processes"),
        ("nvmlDeviceGetPciInfo_v3", "pci_address"),
        ("nvmlDeviceGetMemoryInfo", "memory_mib"),
    ],
)
def test_a_value_that_cannot_be_read_is_unknown_with_its_reason(make, call, key):
    host = make()
    host.control("fail", call, "UNKNOWN")
    with open_nvml() as nvml:
        gpu = nvml.gpu(0)
    assert "UNKNOWN" in gpu.unknown[key] and len(gpu.unknown) == 1
    assert gpu.facts["uuid"] and gpu.unknown_facts == {f"gpus[0].{key}": gpu.unknown[key]}


def test_instances_that_cannot_be_read_are_unknown(make):
    host = make()
    with open_nvml() as nvml:
        nvml_gpus.set_mig_mode(nvml, 0, True)
        host.control("fail", "nvmlDeviceGetMaxMigDeviceCount", "UNKNOWN")
        assert "gpu_instances" in nvml.gpu(0).unknown


def test_processes_come_from_the_mig_devices_where_the_gpu_does_not_tell(make):
    host = make()
    assert host.run("all-balanced").error is None
    instance = host.occupy("3g.40gb")
    host.control("fail", "nvmlDeviceGetComputeRunningProcesses_v3", "NO_PERMISSION", "--nth", "1")
    with open_nvml() as nvml:
        gpu = nvml.gpu(0)
    assert [process["gpu_instance"] for process in gpu.facts["processes"]] == [instance["id"]]
    host.control("fail", "nvmlDeviceGetComputeRunningProcesses_v3", "NO_PERMISSION")
    with open_nvml() as nvml:
        assert nvml.gpu(0).facts["processes"] is None


def test_without_a_driver(make):
    host = make()
    host.control("unload", "nvidia_uvm", "nvidia_modeset", "nvidia")
    with pytest.raises(NvmlUnavailable) as missing, open_nvml():
        pass
    assert missing.value.reason == "driver_not_loaded" and "nvidia_driver" in missing.value.message


def test_closed_opens_again(make):
    make()
    with open_nvml() as nvml:
        with nvml.closed(), pytest.raises(NvmlError):
            nvml.count()
        assert nvml.count() == 1


@pytest.mark.parametrize(
    ("text", "address"),
    [("00000000:18:00.0", "0000:18:00.0"), ("0000:3B:00.0", "0000:3b:00.0"), ("00010000:18:00.0", "10000:18:00.0")],
)
def test_pci_addresses_are_those_of_sysfs(text, address):
    assert pci_address(text) == address


class Error(Exception):
    def __init__(self, value):
        self.value = value

    def __str__(self):
        return "text"


def library(**functions):
    """Return a library whose pynvml has these functions only; an int is the error that a function raises."""

    def function(answer):
        def call(*arguments, **options):
            found = answer(*arguments, **options) if callable(answer) else answer
            if isinstance(found, Error):
                raise found
            return found

        return call

    fake = SimpleNamespace(NVMLError=Error, NVML_ERROR_NOT_SUPPORTED=3, NVML_ERROR_FUNCTION_NOT_FOUND=13)
    for name, answer in functions.items():
        setattr(fake, name, function(answer))
    return Library(fake)


def profile_of(enum, version, answers):
    return answers.get((enum, version), Error(3))


def info(**values):
    numbers = dict.fromkeys(("copyEngineCount", "decoderCount", "encoderCount", "jpegCount", "ofaCount"), 1)
    return SimpleNamespace(instanceCount=7, multiprocessorCount=14, **numbers, **values)


def test_an_old_driver_without_version_2_names_its_profiles_by_their_memory():
    answers = {(0, 2): Error(13), (0, 1): info(id=19, sliceCount=1, memorySizeMB=9856)}
    answers.update({(7, 2): Error(25), (7, 1): info(id=20, sliceCount=1, memorySizeMB=9856)})
    old = library(
        nvmlDeviceGetGpuInstanceProfileInfo=lambda _device, enum, version=2: profile_of(enum, version, answers)
    )
    old._symbols[25] = "ARGUMENT_VERSION_MISMATCH"
    names = [profile["name"] for profile in gpu_instance_profiles(old, None, 81920)]
    assert names == ["1g.10gb", "1g.10gb+me"]
    assert gpu_instance_profiles(old, None, None)[0]["name"] == "1g.10gb"


def test_the_drivers_name_is_believed_without_its_prefix():
    named = {(0, 2): info(id=19, sliceCount=1, memorySizeMB=1, name=b"MIG 1g.24gb")}
    new = library(nvmlDeviceGetGpuInstanceProfileInfo=lambda _d, enum, version=2: profile_of(enum, version, named))
    assert [profile["name"] for profile in gpu_instance_profiles(new, None, 1)] == ["1g.24gb"]


class Place(ctypes.Structure):
    _fields_ = [("start", ctypes.c_uint), ("size", ctypes.c_uint)]


def test_places_of_another_size_than_the_first_are_ignored():
    def told(*places):
        def call(_device, _profile, room, count):
            for number, place in enumerate(places):
                room[number] = Place(*place)
            count._obj.value = len(places)

        odd = library(nvmlDeviceGetGpuInstancePossiblePlacements=call)
        odd.pynvml.c_nvmlGpuInstancePlacement_t = Place
        (profile,) = with_places(odd, None, [{"id": 19}], remaining=False)
        return profile["starts"], profile["size"]

    assert told((1, 1), (0, 1), (2, 2)) == ([0, 1], 1)
    assert told() == (None, None)


def test_an_error_that_says_nothing_of_profiles_is_raised():
    broken = library(nvmlDeviceGetGpuInstanceProfileInfo=lambda *_, **__: Error(999))
    with pytest.raises(NvmlError):
        gpu_instance_profiles(broken, None, 1)


def process(pid, gi=0xFFFFFFFF, ci=0xFFFFFFFF, memory=1 << 20):
    return SimpleNamespace(pid=pid, usedGpuMemory=memory, gpuInstanceId=gi, computeInstanceId=ci)


def test_processes_of_an_old_driver_and_of_mps():
    old = library(
        nvmlDeviceGetComputeRunningProcesses_v3=Error(13),
        nvmlDeviceGetComputeRunningProcesses_v2=lambda _device: [process(5), process(7, 1, 0, None)],
        nvmlDeviceGetGraphicsRunningProcesses_v3=Error(3),
        nvmlDeviceGetMPSComputeRunningProcesses_v3=lambda _device: [process(5)],
    )
    found = processes(old, None)
    assert [(one.pid, one.type, one.gpu_instance, one.memory_mib) for one in found] == [
        (5, "M+C", None, 1),
        (7, "C", 1, None),
    ]


def test_processes_that_nobody_tells():
    for broken in ({"nvmlDeviceGetComputeRunningProcesses_v3": Error(3)}, {}):
        with pytest.raises(NvmlError):
            processes(library(**broken), None)
    graphics = library(
        nvmlDeviceGetComputeRunningProcesses_v3=lambda _device: [],
        nvmlDeviceGetGraphicsRunningProcesses_v3=Error(999),
    )
    with pytest.raises(NvmlError):
        processes(graphics, None)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (9, "driver_not_loaded"),
        (12, "library_not_found"),
        (18, "version_mismatch"),
        (4, "no_permission"),
        (999, "unknown"),
    ],
)
def test_why_nvml_cannot_be_opened(code, reason):
    with pytest.raises(NvmlUnavailable) as failed:
        Nvml(library(nvmlInit=Error(code))).open()
    assert failed.value.reason == reason


def test_closing_never_fails():
    Nvml(library(nvmlShutdown=Error(1))).close()


@pytest.mark.parametrize("installed", [("",), ("/run/nvidia/driver/usr/lib64/",), ()])
def test_the_library_of_a_driver_container_is_loaded_where_the_host_has_none(monkeypatch, installed):
    tried = []

    def load(path):
        tried.append(path)
        if path.removesuffix("libnvidia-ml.so.1") not in installed:
            raise OSError(path)

    monkeypatch.setattr(nvml_library.ctypes, "CDLL", load)
    opened = []
    Library(SimpleNamespace(nvmlInit=lambda: opened.append(list(tried)), NVMLError=Error)).open()
    (before,) = opened
    if installed:
        assert before[-1] == f"{installed[0]}libnvidia-ml.so.1"
    assert before == tried and len(before) == {("",): 1}.get(installed, 4), "NVML says what is missing"
