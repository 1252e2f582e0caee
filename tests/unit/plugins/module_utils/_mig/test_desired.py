# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.lookup import board
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu_facts import gpu_view
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig import desired as desired_of_mig
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.desired import (
    desired_layout,
    desired_of,
    may_switch_off,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.layouts import names_of_layouts, predefined_layout
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.model import DesiredGpu, DesiredInstance
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.state import present
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._mig.build import H100


def gpu(index, key="h100-80gb-sxm", subsystem_id=None, **more):
    one = board(key)
    read = {
        "index": index,
        "uuid": f"GPU-0000000{index}",
        "pci_address": f"0000:{0x18 + index:02x}:00.0",
        "name": one.product_names[0],
        "board": key,
        "mig": {"supported": one.mig, "current": False, "pending": False},
        **more,
    }
    return gpu_view(read).but(subsystem_id=subsystem_id)


HOST = [gpu(index) for index in range(4)]
MIXED_HOST = [gpu(0, "a30-24gb", device_id="0x20b7", subsystem_id="0x1532"), gpu(1), gpu(2, "t4-16gb")]


def devices(found):
    return {index: str(desired) for index, desired in found.gpus.items()}


class TestSelection:
    @pytest.mark.parametrize(
        ("selection", "chosen"),
        [
            ("all", [0, 1, 2, 3]),
            (2, [2]),
            ("2", [2]),
            ([0, 3], [0, 3]),
            (["GPU-00000001", 0], [0, 1]),
            ("gpu-00000001", [1]),
            ("0000:1a:00.0", [2]),
            ("00000000:1A:00.0", [2]),
            ("1a:00.0", [2]),
            ([0, 0, "0000:18:00.0"], [0]),
        ],
    )
    def test_devices(self, selection, chosen):
        found = desired_layout([{"devices": selection, "layout": "all-balanced"}], "mixed", HOST)
        assert sorted(found.gpus) == chosen
        assert list(found.unselected) == [index for index in range(4) if index not in chosen]

    @pytest.mark.parametrize(
        ("selection", "path"),
        [
            (9, "nvidia_mig_layout[0].devices"),
            ([0, 9], "nvidia_mig_layout[0].devices[1]"),
            ("GPU-ffff", "nvidia_mig_layout[0].devices"),
            ("0000:99:00.0", "nvidia_mig_layout[0].devices"),
            ("everything", "nvidia_mig_layout[0].devices"),
            ([], "nvidia_mig_layout[0].devices"),
            ([True], "nvidia_mig_layout[0].devices[0]"),
        ],
    )
    def test_devices_that_do_not_exist(self, selection, path):
        with pytest.raises(Refused) as refused:
            desired_layout([{"devices": selection, "layout": "all-balanced"}], "mixed", HOST)
        assert refused.value.thing == path

    @pytest.mark.parametrize(
        ("device_filter", "chosen"),
        [
            ("NVIDIA A30", [0]),
            ("nvidia a30", [0]),
            ("0x20B7", [0]),
            ("0x20B710DE", [0]),
            ("0x20B710DE:0x153210DE", [0]),
            ("0x20B710DE:0x999910DE", []),
            (["0x20B710DE", "0x233010DE"], [0, 1]),
            ("0x2331", []),
        ],
    )
    def test_device_filter(self, device_filter, chosen):
        entry = {"device_filter": device_filter, "layout": "all-balanced"}
        assert sorted(desired_layout([entry], "mixed", MIXED_HOST).gpus) == chosen

    @pytest.mark.parametrize("device_filter", [[], [7], "", "0xZZZZ", "0x12345"])
    def test_device_filter_that_is_none(self, device_filter):
        with pytest.raises(Refused) as refused:
            desired_layout([{"device_filter": device_filter, "layout": "all-balanced"}], "mixed", HOST)
        assert refused.value.thing == "nvidia_mig_layout[0].device_filter"

    def test_first_match_wins_and_the_rest_is_left_alone(self):
        layout = [{"devices": 0, "enabled": False}, {"devices": [0, 1], "layout": "all-1g.10gb"}]
        found = desired_layout(layout, "mixed", HOST)
        assert devices(found) == {0: "MIG off", 1: "1g.10gb x7"}
        assert found.unselected == (2, 3)

    def test_gpus_without_mig_are_passed_over_unless_they_are_named(self):
        assert desired_layout("all-balanced", "mixed", MIXED_HOST).unselected == (2,)
        assert desired_layout("all-disabled", "none", MIXED_HOST).unselected == (2,)
        with pytest.raises(Refused) as refused:
            desired_layout([{"devices": 2, "layout": "all-balanced"}], "mixed", MIXED_HOST)
        assert "no MIG on GPU 2" in refused.value.reason
        with pytest.raises(Refused):
            desired_layout("all-balanced", "mixed", [gpu(0, "t4-16gb")])

    def test_no_layout_selects_nothing(self):
        for layout in (None, [], ""):
            assert desired_layout(layout, "none", HOST) == ({}, (0, 1, 2, 3), ())


class TestReadyMade:
    @pytest.mark.parametrize(
        ("name", "key", "expected"),
        [
            ("all-disabled", "h100-80gb-sxm", "MIG off"),
            ("all-enabled", "h100-80gb-sxm", "MIG on, no instances"),
            ("all-balanced", "h100-80gb-sxm", "3g.40gb + 2g.20gb + 1g.10gb x2"),
            ("all-balanced", "a30-24gb", "2g.12gb + 1g.6gb x2"),
            ("all-balanced", "rtx-pro-6000-96gb", "2g.48gb + 1g.24gb x2"),
            ("all-balanced", "gb300-278gb", "3g.139gb + 2g.70gb + 1g.35gb x2"),
            ("all-balanced", "h200-141gb", "3g.71gb + 2g.35gb + 1g.18gb x2"),
            ("all-1g.10gb", "a100-40gb", "1g.10gb x4"),
            ("all-1g.10gb", "a100-80gb", "1g.10gb x7"),
            ("all-1g.10gb.me", "h100-80gb-sxm", "1g.10gb+me"),
            ("all-1g.10gb+me", "h100-80gb-sxm", "1g.10gb+me"),
            ("all-1g.24gb.me.all", "rtx-pro-6000-96gb", "1g.24gb+me.all"),
            ("all-1g.24gb-me", "rtx-pro-6000-96gb", "1g.24gb-me x4"),
            ("all-2g.48gb.gfx", "rtx-pro-6000-96gb", "2g.48gb+gfx x2"),
            ("all-1g.24gb.me", "gb200-186gb", "1g.23gb+me"),
            ("all-7g.80gb", "h100-80gb-pcie", "7g.80gb"),
        ],
    )
    def test_names(self, name, key, expected):
        assert str(predefined_layout(name, board(key).profiles, "layout", "GPU 0")) == expected

    @pytest.mark.parametrize(
        ("name", "key"),
        [
            ("balanced", "h100-80gb-sxm"),
            ("all-1g.5gb", "h100-80gb-sxm"),
            ("all-everything", "h100-80gb-sxm"),
            ("all-balanced", "rtx-pro-4500-32gb"),
        ],
    )
    def test_other_names_are_refused(self, name, key):
        with pytest.raises(Refused):
            predefined_layout(name, board(key).profiles, "layout", "GPU 0")

    def test_all_names_of_a_board_can_be_made(self):
        for name in names_of_layouts(H100):
            predefined_layout(name, H100, "layout", "GPU 0")

    def test_a_driver_that_counts_too_many_is_not_believed(self):
        a30 = tuple(
            p if p.name != "1g.6gb" else p.__class__(**{**vars(p), "max_instances": 9})
            for p in board("a30-24gb").profiles
        )
        assert str(predefined_layout("all-1g.6gb", a30, "layout", "GPU 0")) == "1g.6gb x4"


class TestInstances:
    def entry(self, instances):
        return desired_layout([{"devices": 0, "instances": instances}], "mixed", HOST).gpus[0]

    def test_counts(self):
        assert str(self.entry({"3g.40gb": 1, "1g.10gb": 2, "2g.20gb": 0})) == "3g.40gb + 1g.10gb x2"

    def test_compute_instances_share_a_gpu_instance(self):
        assert self.entry({"1c.3g.40gb": 3}) == DesiredGpu(True, (DesiredInstance("3g.40gb", (1, 1, 1)),))
        assert self.entry({"1c.3g.40gb": 4}).counts == {"3g.40gb": 2}
        mixed = self.entry({"2c.3g.40gb": 1, "1c.3g.40gb": 1, "3g.40gb": 1})
        assert mixed.instances == (DesiredInstance("3g.40gb", (2, 1)), DesiredInstance("3g.40gb", (3,)))
        assert mixed.devices == {"3g.40gb": 1, "2c.3g.40gb": 1, "1c.3g.40gb": 1}

    @pytest.mark.parametrize(
        ("instances", "path"),
        [
            ({"1g.5gb": 7}, "nvidia_mig_layout[0].instances['1g.5gb']"),
            ({"1g.10gb": -1}, "nvidia_mig_layout[0].instances['1g.10gb']"),
            ({"1g.10gb": True}, "nvidia_mig_layout[0].instances['1g.10gb']"),
            ({"1g.10gb": "2"}, "nvidia_mig_layout[0].instances['1g.10gb']"),
            ({"gpu": 1}, "nvidia_mig_layout[0].instances['gpu']"),
            ({"1g.10gb": 0}, "nvidia_mig_layout[0].instances"),
            ({}, "nvidia_mig_layout[0].instances"),
            (["1g.10gb"], "nvidia_mig_layout[0].instances"),
            ({"3g.40gb": 3}, "nvidia_mig_layout[0].instances"),
        ],
    )
    def test_refusals_carry_the_path(self, instances, path):
        with pytest.raises(Refused) as refused:
            self.entry(instances)
        assert refused.value.thing == path

    def test_what_the_gpu_has_already_is_not_doubted(self):
        existing = [
            {
                "id": n,
                "profile": "1g.10gb+me",
                "start": n,
                "size": 1,
                "compute_instances": [{"id": 0, "profile": "1g.10gb+me"}],
            }
            for n in range(2)
        ]
        odd = gpu(0, mig={"supported": True, "current": True}, gpu_instances=existing)
        found = desired_layout([{"instances": {"1g.10gb+me": 2}}], "mixed", [odd])
        assert found.gpus[0] == present(odd)

    def test_live_profiles_come_before_the_table(self):
        live = [
            {
                "name": one.name,
                "enum": one.nvml_enum,
                "id": one.profile_id,
                "memory_mib": 6000,
                "max_instances": one.max_instances,
            }
            for one in board("a30-24gb").profiles
        ]
        assert str(desired_layout("all-balanced", "mixed", [gpu(0, profiles=live)]).gpus[0]) == "2g.12gb + 1g.6gb x2"


class TestEntries:
    @pytest.mark.parametrize(
        ("layout", "path"),
        [
            (7, "nvidia_mig_layout"),
            (["all-balanced"], "nvidia_mig_layout[0]"),
            ([{"mig-enabled": True}], "nvidia_mig_layout[0].mig-enabled"),
            ([{"devices": "all"}], "nvidia_mig_layout[0]"),
            ([{"enabled": "yes"}], "nvidia_mig_layout[0].enabled"),
            ([{"enabled": False, "layout": "all-balanced"}], "nvidia_mig_layout[0]"),
            ([{"layout": "all-balanced", "instances": {"1g.10gb": 1}}], "nvidia_mig_layout[0]"),
            ([{"layout": 7}], "nvidia_mig_layout[0].layout"),
            ([{"layout": "all-1g.5gb"}], "nvidia_mig_layout[0].layout"),
            ("all-1g.5gb", "nvidia_mig_layout"),
        ],
    )
    def test_refusals_carry_the_path(self, layout, path):
        with pytest.raises(Refused) as refused:
            desired_layout(layout, "mixed", HOST)
        assert refused.value.thing == path

    def test_a_gpu_of_an_unknown_board_needs_its_driver(self):
        stranger = gpu_view({"index": 0, "name": "NVIDIA X1000", "mig": {"supported": True}})
        with pytest.raises(Refused) as refused:
            desired_layout("all-balanced", "mixed", [stranger])
        assert "nothing is known about the MIG profiles" in refused.value.reason
        assert desired_layout("all-enabled", "mixed", [stranger]).gpus == {0: DesiredGpu(True)}


class TestNode:
    def test_totals_are_placed(self):
        found = desired_layout({"node": {"1g.10gb": 10, "3g.40gb": 3}}, "mixed", HOST)
        assert sum(desired.devices.get("1g.10gb", 0) for desired in found.gpus.values()) == 10
        found = desired_layout([{"devices": 3, "enabled": False}, {"node": {"7g.80gb": 3}}], "mixed", HOST)
        assert [found.gpus[index].enabled for index in range(4)] == [True, True, True, False]

    @pytest.mark.parametrize(
        ("totals", "host", "path"),
        [
            ({"1c.3g.40gb": 1}, HOST, "nvidia_mig_layout.node['1c.3g.40gb']"),
            ({"1g.5gb": 1}, HOST, "nvidia_mig_layout.node['1g.5gb']"),
            ({"7g.80gb": 5}, HOST, "nvidia_mig_layout.node"),
            ({"2g.20gb": 1}, [gpu(0, "h100-80gb-pcie")], "nvidia_mig_layout.node"),
            ({"1g.10gb": 1}, [gpu(0, "t4-16gb")], "nvidia_mig_layout.devices"),
            ({"1g.34gb": 1}, [gpu(0, "gb300-278gb"), gpu(1, "b300-269gb")], "nvidia_mig_layout.node['1g.34gb']"),
        ],
    )
    def test_refusals_carry_the_path(self, totals, host, path):
        with pytest.raises(Refused) as refused:
            desired_layout({"node": totals}, "mixed", host)
        assert refused.value.thing == path

    def test_no_gpu_that_a_filter_lets_through(self):
        with pytest.raises(Refused) as refused:
            desired_layout([{"device_filter": "NVIDIA A30", "node": {"1g.6gb": 1}}], "mixed", HOST)
        assert refused.value.reason == "no GPU with MIG is selected"


class TestStrategy:
    @pytest.mark.parametrize(
        ("strategy", "layout"),
        [
            ("Single", None),
            ("none", "all-balanced"),
            ("single", "all-balanced"),
            ("single", [{"devices": 0, "layout": "all-1g.10gb"}]),
            ("single", [{"devices": 0, "layout": "all-enabled"}, {"layout": "all-1g.10gb"}]),
            ("single", [{"devices": 0, "enabled": False}, {"layout": "all-1g.10gb"}]),
        ],
    )
    def test_what_the_device_plugin_would_refuse_or_hide(self, strategy, layout):
        with pytest.raises(Refused) as refused:
            desired_layout(layout, strategy, HOST)
        assert refused.value.thing == "nvidia_mig_strategy"

    @pytest.mark.parametrize(
        ("strategy", "layout"),
        [("none", "all-disabled"), ("single", "all-1g.10gb"), ("single", "all-enabled"), ("mixed", "all-balanced")],
    )
    def test_what_it_takes(self, strategy, layout):
        assert len(desired_layout(layout, strategy, HOST).gpus) == 4


def test_gpus_that_offer_the_same_share_what_the_layout_makes_of_them(monkeypatch):
    made, make = [], desired_of_mig._desired_gpu
    monkeypatch.setattr(desired_of_mig, "_desired_gpu", lambda *given: made.append(given) or make(*given))
    found = desired_layout([{"devices": "all", "layout": "all-balanced"}], "mixed", HOST)
    assert len(found.gpus) == len(HOST) and len(made) == 1


@pytest.mark.parametrize(
    ("layout", "strategy"),
    [
        ("all-balanced", "mixed"),
        ("all-disabled", "mixed"),
        ([{"devices": [0], "layout": "all-balanced"}], "mixed"),
        ([{"devices": [0], "enabled": False}, {"devices": "all", "layout": "all-balanced"}], "mixed"),
        ([{"devices": "all", "node": {"3g.40gb": 1}}], "mixed"),
        (None, "none"),
        (None, "single"),
    ],
)
@pytest.mark.parametrize("unselected", [None, "leave", "disable"])
def test_what_may_switch_mig_off_can_be_said_without_planning(layout, strategy, unselected):
    on = [gpu(index, mig={"supported": True, "current": True, "pending": True}) for index in range(2)]
    variables = {"nvidia_mig_layout": layout, "nvidia_mig_strategy": strategy, "nvidia_mig_unselected": unselected}
    off = any(not one.enabled for one in desired_of(variables, on).gpus.values())
    assert may_switch_off(variables) or not off
    assert not may_switch_off({**variables, "nvidia_mig_layout": "all-balanced", "nvidia_mig_unselected": "leave"})
