# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import board
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu_facts import gpu_view
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.desired import desired_layout
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.mig_parted import layout_of, read, write
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.model import DesiredGpu
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused

NAME = board("h100-80gb-sxm").product_names[0]
HOST = [{"index": index, "name": NAME, "device_id": "0x2330", "mig": {"supported": True}} for index in range(4)]
FILE = {
    "version": "v1",
    "mig-configs": {
        "all-disabled": [{"devices": "all", "mig-enabled": False}],
        "all-enabled": [{"devices": "all", "mig-enabled": True, "mig-devices": {}}],
        "custom": [
            {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 7}},
            {"device-filter": "0x233010DE", "devices": [0, 1], "mig-enabled": True, "mig-devices": {"3g.40gb": 2}},
        ],
    },
}


def test_read():
    layouts = read(FILE)
    assert layouts["all-disabled"] == [{"devices": "all", "enabled": False}]
    assert layouts["all-enabled"] == [{"devices": "all", "layout": "all-enabled"}]


def test_later_entries_of_mig_parted_win():
    found = desired_layout(read(FILE)["custom"], "mixed", [gpu_view(one) for one in HOST])
    assert [str(found.gpus[index]) for index in range(4)] == ["3g.40gb x2"] * 2 + ["1g.10gb x7"] * 2


@pytest.mark.parametrize(
    "layout",
    [
        "all-balanced",
        "all-disabled",
        "all-enabled",
        [{"devices": [0, 2], "enabled": False}, {"instances": {"1c.3g.40gb": 2, "3g.40gb": 1}}],
    ],
)
def test_what_is_written_reads_back_as_the_same(layout):
    found = desired_layout(layout, "mixed", [gpu_view(one) for one in HOST]).gpus
    assert (
        desired_layout(read(write("current", found, 4))["current"], "mixed", [gpu_view(one) for one in HOST]).gpus
        == found
    )
    assert desired_layout(layout_of(found, 4), "mixed", [gpu_view(one) for one in HOST]).gpus == found


def test_gpus_that_are_not_meant_stay_out_of_the_file():
    document = write("one", {1: DesiredGpu(False)}, 4)
    assert document == {"version": "v1", "mig-configs": {"one": [{"devices": [1], "mig-enabled": False}]}}


ENTRY = {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 1}}


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ([], "f"),
        ({"version": "v2", "mig-configs": {"a": [ENTRY]}}, "f: version"),
        ({"version": "v1", "mig-configs": {}}, "f: mig-configs"),
        ({"version": "v1", "mig-configs": {"a": [ENTRY]}, "extra": 1}, "f: extra"),
        ({"version": "v1", "mig-configs": {"a": []}}, "f: mig-configs.a"),
        ({"version": "v1", "mig-configs": {"a": [7]}}, "f: mig-configs.a[0]"),
        ({"version": "v1", "mig-configs": {"a": [{**ENTRY, "x": 1}]}}, "f: mig-configs.a[0].x"),
        ({"version": "v1", "mig-configs": {"a": [{**ENTRY, "devices": 0}]}}, "f: mig-configs.a[0].devices"),
        ({"version": "v1", "mig-configs": {"a": [{**ENTRY, "mig-enabled": "yes"}]}}, "f: mig-configs.a[0].mig-enabled"),
        ({"version": "v1", "mig-configs": {"a": [{**ENTRY, "mig-enabled": False}]}}, "f: mig-configs.a[0].mig-devices"),
        ({"version": "v1", "mig-configs": {"a": [{**ENTRY, "mig-devices": None}]}}, "f: mig-configs.a[0].mig-devices"),
        (
            {"version": "v1", "mig-configs": {"a": [{**ENTRY, "mig-devices": {"1g.10gb": 0}}]}},
            "f: mig-configs.a[0].mig-devices",
        ),
        (
            {"version": "v1", "mig-configs": {"a": [{**ENTRY, "mig-devices": {"1g.10gb": "1"}}]}},
            "f: mig-configs.a[0].mig-devices['1g.10gb']",
        ),
        (
            {"version": "v1", "mig-configs": {"a": [{**ENTRY, "mig-devices": {"typo": 1}}]}},
            "f: mig-configs.a[0].mig-devices['typo']",
        ),
    ],
)
def test_files_that_are_not_valid(document, path):
    with pytest.raises(Refused) as refused:
        read(document, "f")
    assert refused.value.thing == path


def test_a_file_is_a_layout():
    found = desired_layout({"mig_parted": FILE, "label": "custom"}, "mixed", [gpu_view(one) for one in HOST])
    assert found == desired_layout(read(FILE)["custom"], "mixed", [gpu_view(one) for one in HOST])
    one = {**FILE, "mig-configs": {"only": FILE["mig-configs"]["custom"]}}
    assert desired_layout({"mig_parted": one}, "mixed", [gpu_view(one) for one in HOST]) == found, (
        "a single configuration needs no label"
    )


@pytest.mark.parametrize(
    ("layout", "thing", "reason"),
    [
        ({"mig_parted": FILE}, "nvidia_mig_layout.label", "several configurations"),
        ({"mig_parted": FILE, "label": "night"}, "nvidia_mig_layout.label", "no configuration night"),
        ({"mig_parted": FILE, "devices": "all"}, "nvidia_mig_layout.devices", "no such key"),
        ({"mig_parted": {"version": "v2"}}, "nvidia_mig_layout.mig_parted: version", "'v2' is not v1"),
    ],
)
def test_a_file_that_is_no_layout_is_refused_with_its_place(layout, thing, reason):
    with pytest.raises(Refused) as refused:
        desired_layout(layout, "mixed", [gpu_view(one) for one in HOST])
    assert refused.value.thing == thing
    assert reason in refused.value.reason
