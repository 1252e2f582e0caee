# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.records import cdi_difference, record_differences
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._health.hosts import LAYOUT


def test_a_host_that_is_as_recorded_has_nothing_to_do(facts):
    assert record_differences(seen(facts)) == dict.fromkeys(("mig", "settings", "sharing", "compute_mode"), "")
    facts["recorded"] = dict.fromkeys(facts["recorded"])
    assert record_differences(seen(facts)) == {}


def test_the_cdi_specification_is_compared_where_there_is_one(facts):
    assert cdi_difference(seen(facts)) == ""
    facts["cdi"][0]["stale"] = ["GPU-9"]
    assert cdi_difference(seen(facts)) == "/var/run/cdi/nvidia.yaml describes other devices"
    facts["cdi"] = []
    assert cdi_difference(seen(facts)) is None


def _in_another_order(facts):
    facts["recorded"]["mig"]["gpus"][0]["instances"] = [
        {"profile": "3g.40gb", "start": 4, "size": 4, "compute": [3]},
        {"profile": "1g.10gb", "start": 0, "size": 1, "compute": [1]},
    ]
    instance = facts["gpus"][0]["gpu_instances"][0]
    compute = [{**instance["compute_instances"][0], "profile": "1g.10gb"}]
    facts["gpus"][0]["gpu_instances"] = [
        {**instance, "id": 2, "profile": "1g.10gb", "start": 0, "size": 1, "compute_instances": compute},
        instance,
    ]


def _lost(facts):
    facts["gpus"][0] = {**dict.fromkeys(facts["gpus"][0]), "index": 0, "lost": True, "gpu_instances": []}


def _replaced(facts):
    """A new board in the slot of the old one has its record."""
    facts["gpus"][0]["uuid"] = "GPU-new"


@pytest.mark.parametrize(
    ("spoil", "record", "text"),
    [
        (
            lambda facts: facts["gpus"][0].update(gpu_instances=[]),
            "mig",
            "create GPU instance GPU 0 (0000:18:00.0): 3g.40gb at 4:4",
        ),
        (
            lambda facts: facts["recorded"]["mig"]["gpus"][0].update(mig=False),
            "mig",
            "disable MIG GPU 0 (0000:18:00.0)",
        ),
        (
            lambda facts: facts["recorded"]["mig"]["gpus"][0].update(instances=[{**LAYOUT[0], "compute": [2, 1]}]),
            "mig",
            "GPU 0 (0000:18:00.0)",
        ),
        # The same profiles in other places are restored otherwise than they are.
        (lambda facts: facts["gpus"][0]["gpu_instances"][0].update(start=0), "mig", "3g.40gb at 4:4"),
        (lambda facts: facts["gpus"][0]["gpu_instances"][0].update(compute_instances=[]), "mig", "compute instance"),
        (_replaced, "mig", ""),
        # A layout does not select it.
        (lambda facts: facts["recorded"]["mig"]["gpus"].pop(0), "mig", ""),
        (_in_another_order, "mig", ""),
        (_lost, "mig", ""),
        (_lost, "compute_mode", ""),
        (_lost, "settings", ""),
        (lambda facts: facts["recorded"].update(mig={"schema": 9}), "mig", "mig.json cannot be used"),
        (lambda facts: facts["mps"].clear(), "sharing", "start MPS daemon node (it does not run)"),
        (lambda facts: facts["mps"][0].update(responds=False), "sharing", "MPS daemon node"),
        (lambda facts: facts["mps"][0].update(in_container=True), "sharing", "start MPS daemon node"),
        (
            lambda facts: facts["mps"][0].update(percentage=50.0, limits=["1G", "4G"]),
            "sharing",
            "active thread percentage 50.0 in place of 25; limit 1G on device 0 in place of 4096 MiB",
        ),
        (lambda facts: facts["mps"][0].update(limits=["", "4G"]), "sharing", "limit none on device 0"),
        (lambda facts: facts["mps"][0].update(percentage=25.04, limits=["4G", "4G"]), "sharing", ""),
        (lambda facts: facts["recorded"].update(sharing={"daemons": [{}]}), "sharing", "sharing.json cannot be used"),
        (
            lambda facts: facts["gpus"][1].update(compute_mode="prohibited"),
            "compute_mode",
            "set compute mode GPU 1 (it is prohibited, the desired state is default)",
        ),
        (lambda facts: facts["recorded"].update(settings={"schema": 9}), "settings", "settings.json cannot be used"),
        (
            lambda facts: facts["gpus"][0]["settings"]["power_w"].update(limit=300),
            "settings",
            "set the power limit GPU 0 (0000:18:00.0) to 500 W (it is 300 W)",
        ),
        (lambda facts: facts["gpus"][0]["settings"]["power_w"].update(max=400), "settings", "400 W"),
        (
            lambda facts: facts["gpus"][0]["settings"]["clocks_mhz"].update(locked_graphics=None),
            "settings",
            "lock the graphics clock",
        ),
    ],
)
def test_what_differs_from_a_record(facts, spoil, record, text):
    spoil(facts)
    found = record_differences(seen(facts))[record]
    assert text in found if text else found == ""
