# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused, StagePlan
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import descriptions
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import site_gate
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions.site_gate import HostWork, by_pool, work_of
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.descriptions import Description, describe, warnings_of

from ...host_documents import seen

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


DRIVER_RUNS = StagePlan("driver", True)
UNREAD = StagePlan("toolkit", True, unread="the installed packages are not known")
PCI, DCGM = ({"nvidia_health_checks": [name]} for name in ("pci", "dcgm"))
OWED, NOT_OWED = ({**READ, **DRIVER, "recorded": {"acceptance_owed": owed}} for owed in (True, False))
ON_HOST = "its health is proven on the host"


@pytest.mark.parametrize(
    ("planned", "variables", "facts", "state", "why"),
    [
        ([DRIVER_RUNS, StagePlan("mig", False)], {}, READ, "to change", "driver"),
        # What the facts do not tell is read on the host.
        ([UNREAD], {}, READ, "to change", "toolkit"),
        ([], PCI, READ, "as described", ""),
        ([], {}, {**READ, "pci": []}, "to prove", "pci"),
        ([], {"nvidia_health_cuda_check": ["/opt/vectorAdd"]}, READ, "to prove", ON_HOST),
        ([], {"nvidia_health_fresh": True}, READ, "to prove", ON_HOST),
        ([], {}, {"schema": 1}, "to prove", ON_HOST),
        # What the host has for CUDA is not run where nothing was changed.
        ([], {**PCI, "nvidia_health_cuda_check": ["auto"]}, READ, "as described", ""),
        ([], {**DCGM, "nvidia_health_dcgm_level": 2}, OWED, "to prove", "dcgm"),
        # Nothing was changed: a host in service is not loaded.
        ([], {**DCGM, "nvidia_health_dcgm_level": 2}, NOT_OWED, "as described", ""),
        # What is not asked for any more is not owed.
        ([], {**DCGM, "nvidia_health_dcgm_level": 0}, OWED, "as described", ""),
    ],
)
def test_what_a_host_that_was_read_has_to_do(monkeypatch, planned, variables, facts, state, why):
    monkeypatch.setattr(descriptions, "plan_stages", lambda _facts, _variables: {one.stage: one for one in planned})
    work = work_of("a", describe("a", variables, POOLS), seen(facts))
    assert (work.pool, work.state, work.why) == ("training", state, why)


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


GROUPS = {"gpu_hosts": ["a", "b"], "training": ["a", "b"]}
MISSPELT = {"nvidia_mig_layot": "all-balanced"}


@pytest.fixture
def gate(call, bare_facts):
    def run(check_mode=False, **variables):
        hostvars = {host: {"gpu_facts_host": {"gpu": bare_facts}, **variables.get(host, {})} for host in ("a", "b")}
        return call(site_gate, {"hosts": ["a", "b"]}, {"groups": GROUPS, "hostvars": hostvars}, check_mode)

    return run


def refused(result):
    return [host for refusal in result["refusals"] for host in refusal["hosts"]]


def test_hosts_with_something_to_do_are_let_in_and_shown_by_pool(gate):
    result, shown = gate()
    assert result["to_accept"] == result["to_change"]
    assert result["todo"] == result["to_change"] == ["a", "b"] and result["refusals"] == [] and "failed" not in result
    by_pool = "  training: 2 to change: a (driver, toolkit, runtime, sharing), b (driver, toolkit, runtime, sharing)"
    assert shown.lines[:2] == ["a, b", "  driver: install driver branch 580 (no driver is installed)"]
    assert shown.lines[-1] == by_pool
    # Each stage shows its own steps in check mode.
    assert gate(check_mode=True)[1].lines == [by_pool]


def test_what_is_done_is_shown_as_plan_shows_it_before_anything_is_changed(gate):
    _result, shown = gate(b={"nvidia_driver_branch": "595"})
    assert [line for line in shown.lines if not line.startswith(" ")] == ["a", "b"]
    assert "  driver: install driver branch 595 (no driver is installed)" in shown.lines
    assert not shown.warnings
    _result, shown = gate(a=MISSPELT)
    assert not [line for line in shown.lines if "nvidia_mig_layot" in line], "the message of the refusal says it"


def test_a_host_that_only_gets_another_program_is_not_accepted_again():
    work = HostWork("a", "training", "to change", "boot")
    for others, accepted in (({}, False), ({"mig": False}, False), ({"mig": True}, True)):
        needed = {"boot": True, **others}
        stages = {name: StagePlan(name, needed=one) for name, one in needed.items()}
        assert site_gate._is_accepted_again(replace(work, stages=stages)) is accepted


def test_one_refused_host_stops_all_and_is_named_with_the_reason(gate):
    result, shown = gate(a=MISSPELT)
    assert result["failed"] and refused(result) == ["a"]
    assert result["msg"].startswith("a: nvidia_mig_layot: no role of gpufleet.nvidia has such a variable.")
    assert "No host is changed, because the description of a is refused, for the reasons above." in result["msg"]
    assert "1 refused: a" in shown.text


@pytest.mark.parametrize("value", [True, "yes"])
def test_a_refused_host_that_may_be_skipped_stops_nobody(gate, value):
    result, _shown = gate(a={**MISSPELT, "gpu_facts_skip_refused_hosts": value})
    assert "failed" not in result
    # Its own stages refuse it, so that the recap of the run shows it as failed.
    assert result["todo"] == ["a", "b"] and refused(result) == ["a"] and result["to_change"] == ["b"]


def test_a_host_whose_facts_do_not_fit_hurts_no_other(gate):
    result, shown = gate(a={"gpu_facts_host": {"gpu": {"schema": "x"}}})
    assert "failed" not in result and "1 unread: a (its facts are invalid: " in shown.text


@pytest.mark.parametrize(
    ("callback", "beside"), [("ansible.posix.json", True), ("jsonl", True), ("ansible.builtin.default", False)]
)
def test_lines_for_people_do_not_spoil_the_document_of_a_callback_for_programs(gate, monkeypatch, callback, beside):
    monkeypatch.setattr("ansible.constants.DEFAULT_STDOUT_CALLBACK", callback)
    _result, shown = gate()
    assert shown.lines and shown.on_stderr == beside
