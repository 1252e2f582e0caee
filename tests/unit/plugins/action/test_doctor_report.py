# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import stat

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import doctor_report

from ....real import RECORDINGS


@pytest.fixture
def examine(call, tmp_path):
    def run(**hosts):
        path = tmp_path / "doctor.json"
        given = {"hosts": list(hosts), "report": str(path)}
        result, shown = call(doctor_report, given, {"hostvars": hosts, "groups": {"all": list(hosts)}})
        assert json.loads(path.read_text()) == result["hosts"]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        return result, shown.text

    return run


@pytest.fixture
def read(bare_facts):
    return {"gpu_facts_host": {"gpu": {**bare_facts, "health": {"nvidia_smi": None, "xids": []}}}}


def test_a_host_that_nobody_described_is_examined_and_planned(examine, read):
    result, text = examine(gpu01=read)
    assert not result["healthy"] and result["msg"] == "Something is wrong with 1 of 1 hosts: gpu01."
    assert "on the PCI bus, not seen by a driver" in text and "driver: install driver branch 580" in text
    assert "Judged by NVIDIA's driver branches as of " in text
    assert result["hosts"]["gpu01"]["stages"]["driver"]["needed"] is True
    assert result["hosts"]["gpu01"]["failed_check"] and "             next: " in text


def test_a_host_that_does_not_answer_is_in_the_report_and_the_others_are_examined(examine, read):
    result, text = examine(lost={"gpu_facts_host": {"unreachable": True, "msg": "Connection refused"}}, gpu01=read)
    assert result["hosts"]["lost"]["failed_check"] == "reach" and "lost: could not be read" in text
    assert "  next: Try: ansible lost --become -m ansible.builtin.ping" in text
    assert result["hosts"]["gpu01"]["identity"]["GPUs"]


def test_facts_without_health_are_not_taken_for_healthy(examine, bare_facts):
    result, _text = examine(gpu01={"gpu_facts_host": {"gpu": bare_facts}})
    assert not result["healthy"]
    assert (
        result["hosts"]["gpu01"]["checks"][0]["evidence"] == "its facts lack the subset health, which the checks need"
    )


def test_variables_of_the_host_are_what_site_would_use(examine, read):
    _result, text = examine(gpu01={**read, "nvidia_driver_branch": "595"}, gpu02={**read, "nvidia_mig_layot": "x"})
    assert "install driver branch 595" in text
    assert (
        "impossible: nvidia_mig_layot: no role of gpufleet.nvidia has such a variable. Did you mean nvidia_mig_layout?"
        in text
    )


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda one: one.name)
def test_a_driver_below_the_security_floor_is_named_on_a_host_where_all_else_works(examine, recording):
    facts = recording.json("facts/facts.json")["gpu"]
    result, text = examine(gpu01={"gpu_facts_host": {"gpu": facts}})
    assert "gpu01: checks failed: 0, warnings: 1" in text and result["healthy"]
    assert "warning  driver_security: 580.159.04 is below the security floor 580.178.04" in text
