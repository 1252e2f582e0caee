# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_library import RECOVERY_ACTIONS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.hardware import NO_RECOVERY, RECOVERIES, recovery


def judge(evidence, facts, *actions):
    for gpu, action in zip(facts["gpus"], actions):
        gpu["recovery_action"] = action
    return recovery(evidence())


def test_every_action_that_the_adapter_names_has_a_remedy():
    assert {NO_RECOVERY, *RECOVERIES} == set(RECOVERY_ACTIONS)


def test_none_is_needed(evidence, facts):
    assert judge(evidence, facts, NO_RECOVERY, NO_RECOVERY).status == "passed"
    assert judge(evidence, facts, None, NO_RECOVERY).evidence == "none is needed on 1 GPUs"
    assert judge(evidence, facts, None, None).status == "skipped"


@pytest.mark.parametrize(
    ("action", "evidence_text", "remedy"),
    [
        ("gpu_reset", "GPU 1 asks for a reset (gpu_reset)", "GPU 1: Drain the host and reset the GPU"),
        ("node_reboot", "GPU 1 asks for a reboot of the host", "GPU 1: Drain and reboot the host"),
        # A value that is not known is not "none".
        ("value_9", "GPU 1 asks for something that this release does not know (value_9)", "GPU Recovery Action"),
    ],
)
def test_a_gpu_that_asks_for_recovery_is_not_healthy(evidence, facts, action, evidence_text, remedy):
    outcome = judge(evidence, facts, NO_RECOVERY, action)
    assert outcome.status == "failed"
    assert evidence_text in outcome.evidence
    assert remedy in outcome.next_step


def test_one_remedy_for_each_kind(evidence, facts):
    outcome = judge(evidence, facts, "node_reboot", "node_reboot")
    assert outcome.next_step == "GPU 0, 1: Drain and reboot the host"
    assert judge(evidence, facts, "gpu_reset", "node_reboot").next_step.count(". GPU 1: ") == 1
