# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import AnswerFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.checks import CHECKS, NAMES
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.report import (
    DcgmRun,
    HealthCheck,
    HealthReport,
    evaluate,
    evidence_of,
    failed,
    passed,
    skipped,
    warning,
)
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.role_variables import role_interface
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._health import dcgm_outputs


def check(name, outcome, *needs):
    return HealthCheck(name, lambda _evidence: outcome, needs)


def statuses(report):
    return {name: outcome.status for name, outcome in report.outcomes.items()}


CHAIN = (
    check("bus", passed("2 GPUs")),
    check("driver", failed("not loaded", "Load it"), "bus"),
    check("library", passed("fine"), "driver"),
    check("mig", passed("fine"), "library"),
    check("runtime", warning("old", "Renew it")),
)


def test_what_depends_on_a_failure_is_skipped_and_says_so(evidence):
    report = evaluate(CHAIN, evidence())
    assert statuses(report) == {
        "bus": "passed",
        "driver": "failed",
        "library": "skipped",
        "mig": "skipped",
        "runtime": "warning",
    }
    # The cause is named, not the link in between.
    assert report.outcomes["mig"].evidence == "the check driver failed"
    assert not report.healthy
    assert report.message == "The check driver failed: not loaded. Load it."


def test_a_check_that_does_not_apply_blocks_nothing(evidence):
    chain = (check("fabric", skipped("no switch")), check("cuda", passed("ran"), "fabric"))
    assert statuses(evaluate(chain, evidence())) == {"fabric": "skipped", "cuda": "passed"}


def test_a_warning_blocks_nothing(evidence):
    chain = (check("persistence", warning("off", "Turn it on")), check("mig", passed("ok"), "persistence"))
    report = evaluate(chain, evidence())
    assert report.healthy
    assert report.message == "Every check passed, with warnings: persistence."


def test_chosen_checks_bring_what_they_need_only_when_it_fails(evidence):
    report = evaluate(CHAIN, evidence(), ["mig"])
    assert statuses(report) == {"driver": "failed", "mig": "skipped"}
    assert statuses(evaluate(CHAIN, evidence(), ["bus"])) == {"bus": "passed"}


def test_a_message_without_a_next_step():
    assert HealthReport({"x": failed("broken", "")}).message == "The check x failed: broken."
    assert HealthReport().message == "Every check passed."


def test_the_report_as_plain_data():
    assert HealthReport({"x": failed("broken", "Mend it")}).checks[0].as_dict() == {
        "name": "x",
        "status": "failed",
        "evidence": "broken",
        "next_step": "Mend it",
    }


def test_every_need_is_a_check_that_runs_before():
    seen = set()
    for one in CHECKS:
        assert set(one.needs) <= seen
        seen.add(one.name)
    assert len(NAMES) == len(set(NAMES))


def test_a_healthy_host_passes_every_check(evidence):
    diagnosed = DcgmRun(2, AnswerFacts(0, dcgm_outputs.HEALTHY))
    report = evaluate(CHECKS, evidence(dcgm=diagnosed))
    assert statuses(report) == dict.fromkeys(NAMES, "passed")
    assert report.message == "Every check passed."


def test_a_bare_host_fails_at_the_bus(evidence, facts):
    facts.clear()
    facts.update({"pci": [], "unknown": {}})
    report = evaluate(CHECKS, evidence(nvidia_smi=None, xids=None, cuda=None))
    assert report.first_failure[0] == "pci"
    assert set(statuses(report).values()) == {"failed", "skipped"}


def test_facts_without_anything_never_raise(evidence, facts):
    # Every check on its own, also those that the order would have kept from running.
    facts.clear()
    for one in CHECKS:
        outcome = one.evaluate(evidence(nvidia_smi=None, xids=None, cuda=None))
        assert outcome.status in ("failed", "warning", "skipped", "passed")
        assert outcome.evidence
        assert (outcome.next_step != "") is (outcome.status in ("failed", "warning"))


@pytest.mark.parametrize("path", ["pci", "driver", "nvml", "gpus", "fabric", "mps", "toolkit", "runtimes", "recorded"])
def test_a_missing_part_of_the_facts_never_raises(evidence, facts, path):
    facts[path] = None
    evaluate(CHECKS, evidence())


def test_the_variable_of_the_role_names_every_check():
    options = role_interface("nvidia_health").options
    assert options["nvidia_health_checks"]["choices"] == list(NAMES)


def test_what_could_not_be_read_stays_unknown():
    evidence = evidence_of(seen({"health": {"nvidia_smi": None, "xids": None}}))
    assert evidence.nvidia_smi is None and evidence.xids is None
