# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused, StagePlan
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import descriptions
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions.site_gate import HostWork, by_pool, work_of
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.descriptions import Description, describe, warnings_of
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen

POOLS = {"training": ["a"], "batch": ["b"]}
READ = {
    "schema": 1,
    "pci": [{"address": "0000:18:00.0", "device_id": "0x2330", "kind": "gpu", "board": "h100-80gb-sxm"}],
    "driver": {},
    "unknown": {},
    "health": {"nvidia_smi": None, "xids": []},
}
#: A driver that works, so that checks that need one are looked at.
DRIVER = {
    "driver": dict.fromkeys(("loaded_version", "on_disk_version", "library_version"), "580.178.04"),
    "nvml": {"available": True},
    "gpus": [{"index": 0, "pci_address": "0000:18:00.0"}],
}


@pytest.fixture
def stages(monkeypatch):
    """Nothing is to do, but for what a test puts there."""
    found = {}
    monkeypatch.setattr(descriptions, "plan_stages", lambda _facts, _variables: dict(found))
    return found


def test_a_stage_that_has_to_run_makes_a_host_one_to_change(stages):
    stages.update(driver=StagePlan("driver", True), mig=StagePlan("mig", False, warnings=("an empty GPU",)))
    work = work_of("a", describe("a", {}, POOLS), seen(READ))
    assert (work.pool, work.state, work.why) == ("training", "to change", "driver")
    assert warnings_of([("a", work.stages)]) == ["a: mig: an empty GPU"]


def test_what_the_facts_do_not_tell_is_read_on_the_host(stages):
    stages.update(toolkit=StagePlan("toolkit", True, unread="the installed packages are not known"))
    work = work_of("a", describe("a", {}, POOLS), seen(READ))
    assert (work.state, work.why) == ("to change", "toolkit")


@pytest.mark.usefixtures("stages")
def test_a_host_without_work_is_as_described_where_its_function_needs_no_look():
    work = work_of("a", describe("a", {"nvidia_health_checks": ["pci"]}, POOLS), seen(READ))
    assert (work.state, work.why) == ("as described", "")


@pytest.mark.usefixtures("stages")
def test_a_host_that_does_not_work_is_looked_at_by_its_stages():
    work = work_of("a", describe("a", {}, POOLS), seen({**READ, "pci": []}))
    assert (work.state, work.why) == ("to prove", "pci")


@pytest.mark.usefixtures("stages")
@pytest.mark.parametrize(
    ("variables", "facts", "why"),
    [
        ({"nvidia_health_cuda_check": ["/opt/vectorAdd"]}, READ, "its health is proven on the host"),
        ({"nvidia_health_fresh": True}, READ, "its health is proven on the host"),
        ({}, {"schema": 1}, "its health is proven on the host"),
    ],
)
def test_what_only_the_host_can_prove_is_left_to_its_stages(variables, facts, why):
    work = work_of("a", describe("a", variables, POOLS), seen(facts))
    assert (work.state, work.why) == ("to prove", why)


@pytest.mark.usefixtures("stages")
@pytest.mark.parametrize(
    ("variables", "owed", "state"),
    [
        ({"nvidia_health_dcgm_level": 2}, True, "to prove"),
        # Nothing was changed: a host in service is not loaded.
        ({"nvidia_health_dcgm_level": 2}, False, "as described"),
        # What is not asked for any more is not owed.
        ({"nvidia_health_dcgm_level": 0}, True, "as described"),
    ],
)
def test_an_acceptance_that_is_owed_lets_a_host_in_again(variables, owed, state):
    facts = {**READ, "recorded": {"acceptance_owed": owed}}
    given = {**variables, "nvidia_health_checks": ["dcgm"]}
    work = work_of("a", describe("a", given, POOLS), seen({**facts, **DRIVER}))
    assert (work.state, work.why) == (state, "dcgm" if state == "to prove" else "")


@pytest.mark.usefixtures("stages")
def test_what_the_host_has_for_cuda_is_not_run_where_nothing_was_changed():
    work = work_of(
        "a",
        describe("a", {"nvidia_health_checks": ["pci"], "nvidia_health_cuda_check": ["auto"]}, POOLS),
        seen(READ),
    )
    assert (work.state, work.why) == ("as described", "")


def test_a_refused_description_comes_before_facts_that_are_missing():
    wrong = Description("training", {}, (Refused("nvidia_mig_layout", "it is wrong", "Mend it."),))
    assert [str(one) for one in work_of("a", wrong, None, "it did not answer").refusals] == [
        "nvidia_mig_layout: it is wrong. Mend it."
    ]
    unread = work_of("a", Description("training", {}), None, "it did not answer")
    assert (unread.state, unread.why) == ("unread", "it did not answer")


def test_a_line_for_each_pool_names_who_is_not_as_described():
    hosts = [
        *(HostWork(f"t-{number}", "training", "as described") for number in range(1000)),
        *(HostWork(f"c-{number}", "training", "to change", "mig") for number in range(7)),
        HostWork("b-1", "batch", "refused", "", ("no",)),
        HostWork("x", None, "unread", "it did not answer"),
    ]
    assert by_pool(hosts) == [
        "  batch: 1 refused: b-1",
        "  in no pool: 1 unread: x (it did not answer)",
        "  training: 1000 as described; 7 to change: c-0 (mig), c-1 (mig), c-2 (mig), c-3 (mig), c-4 (mig) and 2 more",
    ]


def test_a_warning_of_many_hosts_is_said_once():
    stages = {"sharing": StagePlan("sharing", False, warnings=("one user",))}
    assert warnings_of([("a", stages), ("b", stages)]) == ["a, b: sharing: one user"]
