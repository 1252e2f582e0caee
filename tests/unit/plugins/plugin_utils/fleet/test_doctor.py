# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.report import Check
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused, StagePlan, Step
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.verification import (
    Diagnosis,
    Verification,
    identity,
    of_host,
)
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen

HOST = {
    "distribution": {"id": "debian", "version": "12"},
    "architecture": "x86_64",
    "kernel": "6.1.0-50-amd64",
    "secure_boot": True,
}
BARE = {
    "host": HOST,
    "pci": [
        *({"kind": "gpu", "board": "h100-80gb-sxm", "device_id": "0x2330"},) * 2,
        {"kind": "gpu", "board": None, "device_id": "0xffff"},
        {"kind": "nvswitch", "board": None, "device_id": "0x22a3"},
    ],
    "gpus": None,
    "driver": {"loaded_version": None, "on_disk_version": None},
    "runtimes": {},
    "mps": [],
    "unknown": {"driver.loaded_version": "no NVIDIA module is loaded"},
}


def gpu(index, **given):
    return {"index": index, "name": "NVIDIA H100 80GB HBM3", "memory_mib": 81559, "mig": {"current": False}, **given}


WHOLE = {
    "host": HOST,
    "gpus": [
        gpu(0),
        gpu(1, mig={"current": True}, gpu_instances=[{"id": 1, "processes": []}, {"id": 2, "processes": [{"pid": 1}]}]),
        gpu(2),
        gpu(3, lost=True),
        gpu(4, processes=[{"pid": 812}]),
    ],
    "driver": {
        "loaded_version": "580.126.09",
        "on_disk_version": "580.178.04",
        "flavour": "open",
        "source": "nvidia",
        "holds": ["nvidia-open"],
    },
    "toolkit": {"version": "1.20.2", "holds": []},
    "runtimes": {"containerd": {"version": "1.7.24", "nvidia": True}, "docker": {"version": None, "nvidia": False}},
    "mps": [{}, {}],
    "kubelet": {"installed": True, "active": True},
}


def test_a_bare_host_is_told_by_its_pci_bus():
    assert identity(seen(BARE)) == {
        "system": "debian 12 x86_64, kernel 6.1.0-50-amd64, Secure Boot on",
        "GPUs": "2 x h100-80gb-sxm on the PCI bus, not seen by a driver; 1 x PCI device 0xffff on the PCI bus, not seen by a driver",
        "driver": "none (no NVIDIA module is loaded)",
        "toolkit": "none",
        "runtimes": "none",
        "MPS daemons": "none",
        "kubelet": "none",
    }


def test_a_host_in_service_is_told_with_equal_gpus_together():
    assert identity(seen(WHOLE)) == {
        "system": "debian 12 x86_64, kernel 6.1.0-50-amd64, Secure Boot on",
        "GPUs": "2 x NVIDIA H100 80GB HBM3, 81559 MiB (GPU 0,2); "
        "1 x NVIDIA H100 80GB HBM3, 81559 MiB, MIG on with 2 GPU instances, in use (GPU 1); "
        "1 x a GPU that fell off the bus (GPU 3); 1 x NVIDIA H100 80GB HBM3, 81559 MiB, in use (GPU 4)",
        "driver": "580.126.09 open from nvidia; 580.178.04 is on the disk, held: nvidia-open",
        "toolkit": "1.20.2",
        "runtimes": "containerd 1.7.24 with the runtime nvidia, docker not known without the runtime nvidia",
        "MPS daemons": "2",
        "kubelet": "active",
    }


def test_of_a_containerd_that_is_not_read_nothing_is_said():
    told = identity(seen({"runtimes": {"k0s": {"active": True, "own": True}}}))
    assert told["runtimes"] == "k0s with or without the runtime nvidia: not read"


def test_what_the_facts_do_not_tell_is_not_known():
    assert identity(seen({}))["runtimes"] == identity(seen({}))["MPS daemons"] == "not known"
    assert identity(seen({}))["system"] == "not known  , kernel not known, Secure Boot not known"


@pytest.mark.parametrize(
    ("status", "summary", "healthy"),
    [
        ("passed", "nothing is wrong", True),
        ("warning", "checks failed: 0, warnings: 1", True),
        ("failed", "checks failed: 1, warnings: 0", False),
        ("unproven", "nothing is wrong, not proven: driver", True),
    ],
)
def test_what_is_wrong_comes_with_its_next_step(status, summary, healthy):
    check = Check("driver", status, "it is not loaded", "modprobe nvidia")
    diagnosis = Diagnosis("gpu01", seen(BARE), Verification((), (check,)))
    lines = diagnosis.lines()
    assert lines[0] == f"gpu01: {summary}" and diagnosis.as_dict()["healthy"] is healthy
    assert (f"    {status:8} driver: it is not loaded" in lines) is (status != "passed")
    assert ("             next: modprobe nvidia" in lines) is (status != "passed")
    assert lines[-1] == "  site would change nothing."


def test_what_site_would_do_is_in_the_words_of_plan():
    steps = tuple(
        Step(Kind.ENABLE_MIG, f"0000:0{n}:00.0", "wanted", (), {"index": n, "pci_address": f"0000:0{n}:00.0"})
        for n in (0, 1)
    )
    stages = {
        "mig": StagePlan("mig", True, steps),
        "driver": StagePlan("driver", True, refusals=(Refused("a", "b", "C."),)),
    }
    lines = Diagnosis("gpu01", seen(WHOLE), Verification((), ()), stages).lines()
    assert lines[-2:] == ["    mig: enable MIG GPUs 0-1 (wanted)", "    impossible: a: b. C."]


def test_a_host_that_could_not_be_read_says_why_and_has_no_plan():
    diagnosis = Diagnosis("gpu01", None, of_host(None, "Connection refused"))
    first, step = diagnosis.lines()
    assert first == "gpu01: could not be read: Connection refused"
    assert step.startswith("  next: Try: ansible gpu01 --become -m ansible.builtin.ping.")
    assert diagnosis.as_dict()["identity"] is None and diagnosis.as_dict()["healthy"] is False


def test_a_host_of_a_rack_says_what_it_has_of_imex():
    imex = {
        "version": "580.178.04",
        "active": True,
        "enabled": True,
        "masked": False,
        "nodes": ["10.0.0.1", "10.0.0.2"],
    }
    assert identity(seen({"fabric": {"imex": imex}}))["IMEX"] == "580.178.04, runs, 2 nodes"
    assert "IMEX" not in identity(seen({"fabric": {}}))
