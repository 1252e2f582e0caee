# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.gpufleet.nvidia.plugins.action import verify_report


def check(name, status="passed", evidence="e"):
    return {"name": name, "status": status, "evidence": evidence, "next_step": "look" if status == "failed" else ""}


@pytest.fixture
def report(call, tmp_path):
    def run(**hosts):
        path = tmp_path / "verify.json"
        result, shown = call(verify_report, {"hosts": list(hosts), "report": str(path)}, {"hostvars": hosts})
        assert json.loads(path.read_text()) == result["hosts"]
        return result, shown

    return run


READ = {"gpu_facts_host": {"gpu": {"schema": 1}}}
HOST = {**READ, "nvidia_health_result": {"checks": [check("pci"), check("driver")]}}


def test_all_hosts_with_evidence_and_next_step_for_people_and_as_json(report):
    node = {"gpu_verify_node": {"checks": [check("node"), check("allocatable", "failed", "3 of 4"), check("labels")]}}
    result, shown = report(good={**HOST, "gpu_verify_node": {"checks": [check("node")]}}, bad={**HOST, **node})
    assert result["msg"] == "1 of 2 hosts are not as described: bad."
    assert result["hosts"]["bad"]["failed_check"] == "allocatable"
    assert "  failed   allocatable    3 of 4\n           next: look" in shown.text
    assert not result["healthy"]


def test_an_unreachable_host_and_a_refused_description_say_why(report):
    lost = {"gpu_facts_host": {"unreachable": True, "msg": "Connection refused.\nmore"}}
    wrong = {**HOST, "__gpu_verify_refused": "a: no such profile.\nNothing was touched."}
    result, _shown = report(lost=lost, wrong=wrong)
    assert result["hosts"]["lost"]["checks"][0]["evidence"] == "Connection refused"
    assert result["hosts"]["wrong"]["checks"][2]["evidence"] == "a: no such profile"


def test_a_cluster_that_does_not_answer_is_a_failed_check(report):
    result, _shown = report(a={**HOST, "gpu_verify_node": {"failed": True, "msg": "Failed to read node a: refused"}})
    assert result["hosts"]["a"]["failed_check"] == "node"


def test_without_a_cluster_its_checks_are_skipped(report):
    # A task that was skipped has a message of its own.
    skipped = {"gpu_verify_node": {"skipped": True, "skip_reason": "Conditional result was False"}}
    result, _shown = report(a={**HOST, **skipped})
    assert result["healthy"]
    assert result["hosts"]["a"]["checks"][2]["evidence"] == "no cluster was asked: gpu_verify_kubeconfig is not set"
