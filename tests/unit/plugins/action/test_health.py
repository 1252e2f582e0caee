# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.action import health
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import host_program
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._health.hosts import healthy_facts

VARIABLES = {"inventory_hostname": "gpu-1"}


@pytest.fixture
def facts(bare_facts):
    return {**bare_facts, "driver": {}, "unknown": {}, "health": {"nvidia_smi": None, "xids": []}}


@pytest.fixture(autouse=True)
def on_the_host(monkeypatch):
    """The module on the host, which must not be asked where the facts are given."""
    asked = []

    def ask(self, _task_vars):
        asked.append(dict(self._task.args))
        return {"healthy": True}

    monkeypatch.setattr(host_program.NvmlAction, "ask", ask)
    return asked


def test_given_facts_are_judged_on_the_controller(call, facts, on_the_host):
    result, _shown = call(health, {"facts": {**facts, "pci": []}}, VARIABLES)
    assert result["failed"] and result["failed_check"] == "pci"
    assert result["msg"].startswith("Failed to prove that gpu-1 is healthy: The check pci failed")
    assert on_the_host == []


def test_a_host_that_is_not_healthy_yet_does_not_fail_where_that_is_not_described(call, facts):
    arguments = {"facts": {**facts, "pci": []}, "checks": ["pci"]}
    planned, _shown = call(health, dict(arguments), VARIABLES, check_mode=True)
    assert "failed" not in planned and not planned["healthy"]
    quiet, _shown = call(health, {**arguments, "fail": False}, VARIABLES)
    assert "failed" not in quiet and [check["name"] for check in quiet["checks"]] == ["pci"]
    passed, _shown = call(health, {**arguments, "facts": facts}, VARIABLES)
    assert passed["healthy"] and passed["failed_check"] is None


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"facts": {}},
        {"facts": {"schema": 1}, "cuda_check": ["/opt/vectorAdd"]},
        {"facts": {"schema": 1}, "dcgm_level": 2},
    ],
)
def test_without_facts_and_for_cuda_the_host_is_asked(call, on_the_host, arguments):
    assert call(health, arguments, VARIABLES)[0]["healthy"] is True
    assert len(on_the_host) == 1 and "facts" not in on_the_host[0]


@pytest.mark.parametrize(
    ("asked", "status", "text"),
    [({}, "unproven", "the host has neither"), ({"cuda_check": []}, "skipped", "no command was given")],
)
def test_facts_alone_prove_no_cuda_and_say_so(call, on_the_host, asked, status, text):
    facts = {"schema": 1, **healthy_facts(), "health": {"nvidia_smi": None, "xids": []}}
    result, _shown = call(health, {"facts": facts, "checks": ["cuda"], **asked}, VARIABLES)
    (found,) = (check for check in result["checks"] if check["name"] == "cuda")
    assert found["status"] == status and text in found["evidence"] and result["healthy"] and on_the_host == []


@pytest.mark.parametrize("facts", [{"schema": 1}, {"schema": 2, "health": {}}])
def test_facts_that_do_not_say_enough_are_refused(call, facts, on_the_host):
    result, _shown = call(health, {"facts": facts}, VARIABLES)
    assert result["failed"] and result["msg"].startswith("gpu-1: facts must be what gpufleet.nvidia.gpu_info returned")
    assert "gather: [errors, health]" in result["msg"] and on_the_host == []
