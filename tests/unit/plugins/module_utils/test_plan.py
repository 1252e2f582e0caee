# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import (
    NotInEffect,
    Plan,
    Refused,
    StagePlan,
    Step,
    Verdict,
    carry_out,
    verdict_of,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind, sentence


def test_refused_says_thing_reason_and_remedy():
    refusal = Refused("nvidia_mig_layout[0]", "profile 1g.5gb does not exist on NVIDIA H100", "The nearest is 1g.10gb.")
    assert str(refusal) == "nvidia_mig_layout[0]: profile 1g.5gb does not exist on NVIDIA H100. The nearest is 1g.10gb."
    assert refusal.as_dict()["remedy"] == "The nearest is 1g.10gb."


def test_refused_without_remedy_ends_with_the_reason():
    assert str(Refused("GPU 0", "it fell off the bus")) == "GPU 0: it fell off the bus."


def test_plan_without_steps_changes_nothing():
    plan = Plan()
    assert not plan.changes
    assert plan.as_dict() == {"changed": False, "steps": []}
    assert plan.diff("mig")["before"] == ""


def test_step_reads_as_a_sentence_and_is_plain_data():
    step = Step(Kind.STOP_MPS_DAEMON, "node", "the desired state has none", ("pod default/train",), {"id": 3})
    assert str(step) == "stop MPS daemon node (the desired state has none); disturbs pod default/train"
    quiet = Step(Kind.RESTART_SERVICE, "containerd", "its configuration changed")
    assert str(quiet) == "restart containerd (its configuration changed)"
    assert json.loads(json.dumps(step.as_dict())) == {
        "kind": "stop_mps_daemon",
        "target": "node",
        "data": {"id": 3},
        "text": str(step),
        "why": "the desired state has none",
        "disturbs": ["pod default/train"],
    }


def test_lists_of_packages_are_named_with_or_without_their_versions():
    named = sentence(Kind.INSTALL_PREREQUISITES, "driver", {"packages": [["linux-headers", "6.1"], ["dkms", ""]]})
    assert named == "install linux-headers, dkms"
    assert sentence(Kind.RELEASE_PACKAGES, "driver", {"packages": ["a", "b"]}) == "release a, b"


def test_a_driver_without_a_version_is_called_by_its_branch():
    assert sentence(Kind.INSTALL_DRIVER, "driver", {"version": "", "branch": "580"}) == "install driver branch 580"
    assert sentence(Kind.INSTALL_DRIVER, "driver", {"version": "580.1"}) == "install driver 580.1"


def test_diff_is_stable_text():
    plan = Plan(steps=(Step(Kind.CHANGE_FILE, "x", "y"),), before={"b": 1, "a": 2}, after={"a": 3})
    assert plan.diff("gpu01: mig")["before"] == '{\n  "a": 2,\n  "b": 1\n}\n'
    assert plan.diff("gpu01: mig")["after_header"] == "gpu01: mig"


def test_stage_plan_is_plain_data():
    stage = StagePlan("mig", True, unknown="no driver yet", refusals=(Refused("a", "b"),), warnings=("w",))
    assert json.loads(json.dumps(stage.as_dict())) == {
        "stage": "mig",
        "verdict": "impossible",
        "needed": True,
        "steps": [],
        "unknown": "no driver yet",
        "unread": None,
        "refusals": [{"thing": "a", "reason": "b", "remedy": "", "message": "a: b."}],
        "warnings": ["w"],
    }


RECORD = Step(Kind.RECORD_SHARING, "sharing", "it is restored from there after a reboot")
ECC = Step(Kind.SET_ECC, "0000:18:00.0", "it is on", ("the host",), {"index": 0, "ecc": "off", "reboot": "needed"})


def _host(*plans):
    """A host whose plans come one after the other, and what was applied to it."""
    applied, left = [], list(plans)
    return applied, lambda plan: applied.extend(plan.steps), lambda: left.pop(0)


def test_what_is_left_of_a_plan_is_applied_again_as_often_as_is_said():
    applied, apply, again = _host(Plan((RECORD,)), Plan())
    assert carry_out("share", Plan((ECC,)), apply, again, rounds=2) == ((ECC, RECORD), [])
    assert applied == [ECC, RECORD]
    _applied, apply, again = _host(Plan((RECORD,)))
    with pytest.raises(
        NotInEffect, match="Failed to share: every step was carried out, but these are still needed: record"
    ):
        carry_out("share", Plan((ECC,)), apply, again)


def test_only_what_waits_for_a_reboot_may_be_left():
    def waits(step):
        return "reboot" in step.data

    _applied, apply, again = _host(Plan((ECC,)))
    assert carry_out("share", Plan((ECC,)), apply, again, waits=waits) == ((ECC,), [ECC])
    _applied, apply, again = _host(Plan((ECC, RECORD)))
    with pytest.raises(NotInEffect) as raised:
        carry_out("share", Plan((ECC,)), apply, again, waits=waits)
    assert "ECC" not in str(raised.value)


def test_a_refusal_after_the_steps_does_not_say_that_nothing_was_changed():
    def again():
        raise Refused("GPU 0", "it is in use by python3 (pid 7)", "Drain the host first.")

    with pytest.raises(
        NotInEffect, match=r"every step was carried out, but then: GPU 0: it is in use by python3 \(pid 7\)"
    ):
        carry_out("share", Plan((ECC,)), lambda _plan: None, again)


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        ({"needed": False}, Verdict.AS_DESCRIBED),
        ({"needed": True, "unknown": "no driver yet"}, Verdict.TO_CHANGE),
        ({"needed": True, "unread": "no packages"}, Verdict.UNREAD),
        ({"needed": True, "unread": "no packages", "refusals": (Refused("a", "b"),)}, Verdict.IMPOSSIBLE),
    ],
)
def test_a_stage_has_one_verdict(given, verdict):
    stage = StagePlan("mig", **given)
    assert stage.verdict is verdict
    assert verdict_of([StagePlan("driver", False), stage]) is verdict


def test_the_verdict_of_a_host_is_what_has_to_be_done_about_it_first():
    to_change, unread = StagePlan("mig", True, unknown="x"), StagePlan("dcgm", True, unread="y")
    assert verdict_of([unread, to_change]) is Verdict.TO_CHANGE
    assert verdict_of([]) is Verdict.AS_DESCRIBED
