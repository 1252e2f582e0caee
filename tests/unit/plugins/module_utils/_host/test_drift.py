# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of a host differs from its records: what the planners of C(site) would do with the records as the desired state."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.write_metrics import drift
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import installed_program
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._health.hosts import healthy_facts

RECORDED = ("mig", "settings", "sharing", "compute_mode", "cdi")


@pytest.fixture
def facts():
    found = healthy_facts()
    found["host_program"] = installed_program(daemons=("node",))
    return found


def test_a_host_that_is_as_recorded(facts):
    assert drift(facts) == dict.fromkeys((*RECORDED, "boot"), False)


def _set(path, value):
    def spoil(facts):
        *folders, last = path
        for name in folders:
            facts = facts[name]
        facts[last] = value

    return spoil


GPU = ("gpus", 0)
INSTANCE = (*GPU, "gpu_instances", 0)
UNITS = ("host_program", "units")


@pytest.mark.parametrize(
    ("spoil", "differs"),
    [
        (_set((*GPU, "gpu_instances"), []), "mig"),
        # The same profiles in other places are restored otherwise than they are.
        (_set((*INSTANCE, "start"), 0), "mig"),
        (_set((*INSTANCE, "compute_instances"), []), "mig"),
        (_set((*GPU, "settings", "power_w", "limit"), 700), "settings"),
        (_set((*GPU, "settings", "power_w", "max"), 400), "settings"),
        (_set((*GPU, "settings", "clocks_mhz", "locked_graphics"), None), "settings"),
        (_set((*GPU, "compute_mode"), "prohibited"), "compute_mode"),
        (_set(("mps", 0, "responds"), False), "sharing"),
        (_set(("mps", 0, "limits"), ["1G", "4G"]), "sharing"),
        (_set(("mps",), []), "sharing"),
        (_set(("cdi", 0, "missing"), ["MIG-1"]), "cdi"),
        (_set((*UNITS, "gpufleet-mig.service", "state"), "disabled"), "boot"),
        (_set((*UNITS, "gpufleet-mig.service"), {"sha256": None, "state": "masked"}), "boot"),
        (_set((*UNITS, "gpufleet-mig.service", "sha256"), "0"), "boot"),
    ],
)
def test_one_thing_that_is_not_as_recorded(facts, spoil, differs):
    spoil(facts)
    assert drift(facts) == {name: name == differs for name in (*RECORDED, "boot")}


def test_an_mps_daemon_that_would_not_come_back_differs(facts):
    facts["host_program"]["units"]["gpufleet-mps@node.service"]["state"] = "masked"
    assert drift(facts) == {name: name == "sharing" for name in (*RECORDED, "boot")}


def test_a_new_board_in_the_slot_of_an_old_one_has_its_record(facts):
    facts["gpus"][0]["uuid"] = "GPU-new"
    assert drift(facts)["mig"] is False
    facts["gpus"][0]["gpu_instances"] = []
    assert drift(facts)["mig"] is True


def test_a_gpu_that_is_lost_is_not_compared(facts):
    facts["gpus"][0] = {"index": 0, "pci_address": facts["gpus"][0]["pci_address"], "lost": True}
    assert drift(facts) == dict.fromkeys((*RECORDED, "boot"), False)


def test_records_that_cannot_be_used_differ_and_what_is_not_recorded_is_missing(facts):
    facts |= {"host_program": None, "cdi": []}
    facts["recorded"] = {"mig": {"schema": 99}, "sharing": {"daemons": [{}]}}
    assert drift(facts) == {"mig": True, "sharing": True}
    facts["recorded"] = {"mig": None, "sharing": None}
    assert drift(facts) == {}
    assert drift({}) == {}


def test_without_nvml_only_the_daemons_are_compared(facts):
    facts["gpus"] = None
    assert drift(facts) == {"sharing": False, "boot": False}
