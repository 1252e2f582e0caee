# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import board
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu_facts import gpu_view
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.model import ComputeInstance, GpuInstance
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.record import (
    match,
    placed,
    record_step,
    recorded_gpus,
    recorded_layout,
    with_others,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._records import (
    LAYOUT,
    GpuRecord,
    PlacedInstance,
    Unusable,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._schema import Unfit, check

GPU = GpuRecord("GPU-1", "0000:18:00.0", "NVIDIA H100 80GB HBM3", True, (PlacedInstance("3g.40gb", 4, 4, (2, 1)),))


def test_placed_is_sorted_by_place_and_holds_slices_widest_first():
    instances = [
        GpuInstance(1, "3g.40gb", 4, 4, (ComputeInstance(0, 1), ComputeInstance(1, 2))),
        GpuInstance(9, "1g.10gb", 2, 1, (ComputeInstance(0, 1),)),
    ]
    assert placed(instances) == (PlacedInstance("1g.10gb", 2, 1, (1,)), PlacedInstance("3g.40gb", 4, 4, (2, 1)))


def test_a_recorded_layout_comes_back_as_it_was():
    off = GpuRecord("GPU-2", "0000:2a:00.0", "NVIDIA H100 80GB HBM3", False)
    asked = {"layout": "all-balanced", "strategy": "mixed"}
    found = check(LAYOUT, json.loads(recorded_layout([GPU, off], asked).as_text()))
    assert (found.gpus, found.request) == ((GPU, off), asked)
    # A name that somebody gave a configuration, which can be written and not be shown.
    named = {"layout": {"mig_parted": {"mig-configs": {"a\u00a0b": []}}}}
    found = check(LAYOUT, json.loads(recorded_layout([GPU, off], named).as_text()))
    assert (found.gpus, found.request) == ((GPU, off), None)


def test_gpus_without_mig_are_not_recorded():
    assert recorded_layout([GpuRecord("GPU-3", "0000:3b:00.0", "Tesla T4", None)]).gpus == ()


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
        {"schema": 1, "gpus": [{**GPU.as_dict(), "mig": "on"}]},
        {"schema": 1, "gpus": [{**GPU.as_dict(), "instances": [{**GPU.as_dict()["instances"][0], "size": 10**9}]}]},
        {"schema": 1, "gpus": [GPU.as_dict()] * 1025},
    ],
)
def test_what_is_no_recorded_layout_is_unreadable(document):
    with pytest.raises(Unfit):
        check(LAYOUT, document)
    recorded = view_of({"recorded": {"mig": document}}).recorded.mig
    assert recorded_gpus(recorded) == ()
    assert recorded is None if document is None else isinstance(recorded, Unusable)


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
    assert (match([GPU], gpu_view({"index": 0, "uuid": uuid, "pci_address": address, "name": name})) is GPU) == found


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
    assert with_others(host(uuids, slots), [GPU], [OTHER]) == ((GPU, OTHER) if kept else (GPU,))
    # Where the bus cannot be read nobody knows what was taken out.
    assert with_others(host(uuids, slots).but(pci=None), [GPU], [OTHER]) == (GPU, OTHER)


def host(uuids=(), slots=None):
    """Facts with GPUs of these UUIDs anywhere, and with slots of which NVML reaches those that have a name."""
    slots = slots or {}
    named = [{"pci_address": address, "name": name} for address, name in slots.items() if name]
    gpus = [*({"uuid": uuid} for uuid in uuids), *named]
    return view_of(
        {
            "gpus": [{**gpu, "index": index} for index, gpu in enumerate(gpus)],
            "pci": [{"address": address, "kind": "gpu"} for address in slots],
        }
    )


def test_what_is_recorded_is_compared_by_what_a_boot_makes_of_it():
    offered = {GPU.uuid: board("h100-80gb-sxm").profiles}
    assert record_step((GPU, OTHER), [GPU], offered) is None
    assert record_step((), [replace(GPU, mig=None)], offered) is None
    for other in (replace(GPU, mig=False), replace(GPU, instances=GPU.instances[1:]), replace(GPU, uuid="GPU-9")):
        assert record_step((other,), [GPU], offered).kind.key == "record_layout"
    # Another release of the driver calls the profile otherwise.
    renamed = tuple(replace(one, profile=one.profile.replace("40gb", "39gb")) for one in GPU.instances)
    assert renamed != GPU.instances and record_step((replace(GPU, instances=renamed),), [GPU], offered) is None


def test_a_new_record_of_a_gpu_replaces_the_former_one():
    moved = replace(GPU, pci_address="0000:99:00.0", mig=False)
    assert with_others(host([GPU.uuid]), [GPU], [moved]) == (GPU,)
    assert with_others(host(["GPU-2"]), [GPU], [replace(OTHER, pci_address=GPU.pci_address)]) == (GPU,)
