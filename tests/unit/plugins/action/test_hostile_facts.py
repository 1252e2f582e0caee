# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts of one host, whatever is in them, change nothing of what heal, doctor and verify say of another, and end no run."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import doctor_report, heal_plan, verify_report

from ...golden import corpus
from ...mutation import examples_of, mutated, property_of, shown
from .test_heal import BROKEN, WELL

TRAINING, SHARED = (corpus.ready(pool) for pool in (corpus.TRAINING, corpus.SHARED))


@examples_of(tests=4)
@pytest.mark.parametrize("document", [TRAINING.facts, BROKEN], ids=["whole", "broken"])
def test_heal(call, monkeypatch, examples, document):
    monkeypatch.setattr(heal_plan.ActionModule, "cluster", lambda _self, _arguments: None)

    def planned(**read):
        hosts = {host: {"gpu_facts_host": {"gpu": facts}} for host, facts in {**read, "well": WELL}.items()}
        known = {**hosts, **{f"other-{number}": {} for number in range(20)}}
        given = {"hosts": [*hosts], "kubernetes": False}
        result, said = call(heal_plan, given, {"groups": {"gpu_hosts": [*known]}, "hostvars": known})
        shown(said.text)
        return result["plans"]["honest"]

    expected = planned(honest=BROKEN)
    assert expected["action"] == "reset_gpu"

    @property_of(mutated(document), examples)
    def check(facts):
        assert planned(hostile=facts, honest=BROKEN) == expected


@examples_of(tests=4)
@pytest.mark.parametrize("action", [doctor_report, verify_report], ids=["doctor", "verify"])
def test_reports(call, examples, action):
    honest = {**SHARED.variables, "gpu_facts_host": {"gpu": SHARED.facts}}

    def reported(**hosts):
        groups = {name: list(hosts) for name in ("all", "gpu_hosts", "training")}
        result, said = call(action, {"hosts": list(hosts)}, {"hostvars": hosts, "groups": groups})
        shown(said.text)
        return result["hosts"]["honest"]

    expected = reported(honest=honest)

    @property_of(mutated(TRAINING.facts), examples)
    def check(facts):
        hostile = {**TRAINING.variables, "gpu_facts_host": {"gpu": facts}}
        assert reported(hostile=hostile, honest=honest) == expected
