# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of a host differs from its records: what the planners of C(site) would do with the records as the desired state."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.write_metrics import drift
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import installed_program, seen
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._health.hosts import healthy_facts

RECORDED = ("mig", "settings", "sharing", "compute_mode", "cdi")


@pytest.fixture
def facts():
    found = healthy_facts()
    found["host_program"] = installed_program(daemons=("node",))
    return found


def test_a_host_that_is_as_recorded(facts):
    assert drift(seen(facts)) == dict.fromkeys((*RECORDED, "boot"), False)


@pytest.mark.parametrize(
    "unit", [{"sha256": None, "state": "masked"}, {"sha256": "0", "state": "enabled"}, {"state": "disabled"}], ids=str
)
def test_units_that_would_not_restore_at_boot_differ(facts, unit):
    facts["host_program"]["units"]["gpufleet-mig.service"].update(unit)
    assert drift(seen(facts)) == {name: name == "boot" for name in (*RECORDED, "boot")}


def test_what_differs_from_a_record_and_the_cdi_specification_are_told_apart(facts):
    facts["gpus"][0]["gpu_instances"] = []
    facts["cdi"][0]["missing"] = ["MIG-1"]
    assert drift(seen(facts)) == {name: name in ("mig", "cdi") for name in (*RECORDED, "boot")}


def test_an_mps_daemon_that_would_not_come_back_differs(facts):
    facts["host_program"]["units"]["gpufleet-mps@node.service"]["state"] = "masked"
    assert drift(seen(facts)) == {name: name == "sharing" for name in (*RECORDED, "boot")}


def test_records_that_cannot_be_used_differ_and_what_is_not_recorded_is_missing(facts):
    facts |= {"host_program": None, "cdi": []}
    facts["recorded"] = {"mig": {"schema": 99}, "sharing": {"daemons": [{}]}}
    assert drift(seen(facts)) == {"mig": True, "sharing": True}
    facts["recorded"] = {"mig": None, "sharing": None}
    assert drift(seen(facts)) == {}
    assert drift(seen({})) == {}


def test_without_nvml_only_the_daemons_are_compared(facts):
    facts["gpus"] = None
    assert drift(seen(facts)) == {"sharing": False, "boot": False}
