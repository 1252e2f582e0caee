# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A healthy host as facts, which the tests of the checks spoil in one place each."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import AnswerFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.report import Evidence
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._health.hosts import healthy_facts


@pytest.fixture
def facts():
    return healthy_facts()


@pytest.fixture
def evidence(facts):
    """Evidence over the facts fixture, which a test may have changed; keyword arguments replace the rest."""

    def build(**given):
        answers = {"nvidia_smi": AnswerFacts(0, "GPU 0: NVIDIA H100"), "xids": [], "cuda": AnswerFacts(0, "PASSED")}
        return Evidence(facts=seen(facts), **{**answers, **given})

    return build
