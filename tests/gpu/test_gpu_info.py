# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""gpu_info against what nvidia-smi and NVML say of the same GPUs."""

from __future__ import annotations

import time

import pytest

COMPUTE_MODES = {
    "Default": "default",
    "Exclusive_Process": "exclusive_process",
    "Prohibited": "prohibited",
    "Exclusive_Thread": "exclusive_thread",
}
MIG_MODES = {"Enabled": True, "Disabled": False}


@pytest.fixture(scope="module")
def said(nvidia_smi):
    return nvidia_smi(
        "index",
        "uuid",
        "name",
        "pci.bus_id",
        "memory.total",
        "driver_version",
        "compute_mode",
        "persistence_mode",
        "mig.mode.current",
        "mig.mode.pending",
    )


def test_nvml_answers(document):
    assert document["nvml"]["available"] is True, document["nvml"]["reason"]
    assert document["nvml"]["version"] and document["nvml"]["cuda_version"]


def test_the_same_gpus(document, said):
    assert [(gpu["index"], gpu["uuid"], gpu["name"]) for gpu in document["gpus"]] == [
        (int(row["index"]), row["uuid"], row["name"]) for row in said
    ]


def test_the_same_addresses(document, said):
    # nvidia-smi writes the domain with eight digits and in capitals.
    assert [gpu["pci_address"] for gpu in document["gpus"]] == [row["pci.bus_id"].lower()[4:] for row in said]


def test_the_same_memory(document, said):
    for gpu, row in zip(document["gpus"], said):
        assert abs(gpu["memory_mib"] - int(row["memory.total"])) <= 1


def test_the_same_modes(document, said):
    for gpu, row in zip(document["gpus"], said):
        assert gpu["compute_mode"] == COMPUTE_MODES[row["compute_mode"]]
        assert gpu["persistence_mode"] is (row["persistence_mode"] == "Enabled")
        assert gpu["mig"]["current"] is MIG_MODES.get(row["mig.mode.current"])
        assert gpu["mig"]["pending"] is MIG_MODES.get(row["mig.mode.pending"])


def test_the_same_driver(document, said):
    versions = {row["driver_version"] for row in said}
    assert versions == {document["driver"]["loaded_version"]}
    assert document["driver"]["library_version"] in (None, *versions)
    assert document["driver"]["flavour"] in ("open", "proprietary")


def test_every_gpu_is_on_the_bus(document):
    if document["pci"] is None:
        pytest.skip("this container does not show the PCI bus")
    on_bus = {device["address"]: device for device in document["pci"] if device["kind"] == "gpu"}
    for gpu in document["gpus"]:
        assert gpu["pci_address"] in on_bus
        assert on_bus[gpu["pci_address"]]["kernel_driver"] in ("nvidia", None)
        assert on_bus[gpu["pci_address"]]["board"] == gpu["board"]


def test_the_board_and_its_profiles_are_known(document):
    for gpu in document["gpus"]:
        assert gpu["architecture"]
        if gpu["mig"]["supported"] and gpu["mig"]["current"]:
            assert {profile["name"] for profile in gpu["profiles"]}


def _lasting(gpu):
    """What is read of a GPU without what moves by itself: the present clock, and who uses the GPU."""
    settings = gpu["settings"]
    clocks = {name: value for name, value in settings["clocks_mhz"].items() if name != "graphics"}
    return {**gpu, "processes": None, "settings": {**settings, "clocks_mhz": clocks}}


def test_reading_twice_gives_the_same(document, module):
    again = module("gpu_info", {"gather": ["errors", "holders", "profiles"]})["gpu"]
    assert [_lasting(gpu) for gpu in again["gpus"]] == [_lasting(gpu) for gpu in document["gpus"]]


def test_reading_is_quick(module):
    started = time.monotonic()
    module("gpu_info", {})
    # Without persistence mode a GPU takes seconds to wake up.
    assert time.monotonic() - started < 15
