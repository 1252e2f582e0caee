# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.model import ComputeInstance, GpuInstance
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.record import (
    GpuRecord,
    PlacedInstance,
    Unreadable,
    gpu_records,
    match,
    placed,
    read_recorded_layout,
    recorded_layout,
    with_others,
)

GPU = GpuRecord("GPU-1", "0000:18:00.0", "NVIDIA H100 80GB HBM3", True, (PlacedInstance("3g.40gb", 4, 4, (2, 1)),))


def test_placed_is_sorted_by_place_and_holds_slices_widest_first():
    instances = [
        GpuInstance(1, "3g.40gb", 4, 4, (ComputeInstance(0, 1), ComputeInstance(1, 2))),
        GpuInstance(9, "1g.10gb", 2, 1, (ComputeInstance(0, 1),)),
    ]
    assert placed(instances) == (PlacedInstance("1g.10gb", 2, 1, (1,)), PlacedInstance("3g.40gb", 4, 4, (2, 1)))


def test_a_recorded_layout_comes_back_as_it_was():
    off = GpuRecord("GPU-2", "0000:2a:00.0", "NVIDIA H100 80GB HBM3", False)
    document = recorded_layout([GPU, off], {"layout": "all-balanced", "strategy": "mixed"})
    assert read_recorded_layout(document) == (GPU, off)


def test_gpus_without_mig_are_not_recorded():
    assert recorded_layout([GpuRecord("GPU-3", "0000:3b:00.0", "Tesla T4", None)], {})["gpus"] == []


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {"schema": 2, "gpus": []},
        {"schema": 1},
        {"schema": 1, "gpus": [{"uuid": "GPU-1"}]},
        {"schema": 1, "gpus": [{**GPU.as_dict(), "instances": [{"profile": "3g.40gb", "start": "x"}]}]},
        {"schema": 1, "gpus": ["GPU-1"]},
    ],
)
def test_what_is_no_recorded_layout_is_unreadable(document):
    with pytest.raises(Unreadable):
        read_recorded_layout(document)


def test_gpu_records_wants_a_list():
    with pytest.raises(Unreadable):
        gpu_records({})


@pytest.mark.parametrize(
    ("uuid", "address", "name", "found"),
    [
        ("GPU-1", "0000:ff:00.0", "another", True),
        ("GPU-9", "0000:18:00.0", "NVIDIA H100 80GB HBM3", True),
        ("GPU-9", "0000:18:00.0", "NVIDIA L40S", False),
        ("GPU-9", "0000:2a:00.0", "NVIDIA H100 80GB HBM3", False),
    ],
)
def test_a_record_belongs_to_a_uuid_or_to_the_same_product_in_the_same_slot(uuid, address, name, found):
    assert (match([GPU], uuid, address, name) is GPU) == found


OTHER = GpuRecord("GPU-2", "0000:2a:00.0", "NVIDIA H100 80GB HBM3", False)


@pytest.mark.parametrize(
    ("uuids", "slots", "kept"),
    [
        ({"GPU-2"}, {}, True),  # moved to another slot
        ((), {"0000:2a:00.0": None}, True),  # lost, and still on the bus
        ((), {"0000:2a:00.0": "NVIDIA H100 80GB HBM3"}, True),  # replaced by the same product
        ((), {"0000:2a:00.0": "NVIDIA L40S"}, False),
        ((), {}, False),
    ],
)
def test_the_records_of_other_gpus_are_kept_while_these_are_there(uuids, slots, kept):
    assert with_others([GPU], [OTHER], uuids, slots) == ((GPU, OTHER) if kept else (GPU,))


def test_a_new_record_of_a_gpu_replaces_the_former_one():
    moved = replace(GPU, pci_address="0000:99:00.0", mig=False)
    assert with_others([GPU], [moved], {GPU.uuid}, {}) == (GPU,)
    assert with_others([GPU], [replace(OTHER, pci_address=GPU.pci_address)], {"GPU-2"}, {}) == (GPU,)
