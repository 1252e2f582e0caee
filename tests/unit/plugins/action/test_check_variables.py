# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.gpufleet.nvidia.plugins.action import check_variables


def check(call, variables, **arguments):
    known = {"hostvars": variables, "ansible_play_hosts_all": list(variables), "groups": {"gpu_hosts": list(variables)}}
    return call(check_variables, {"playbook": "upgrade", **arguments}, known)


def test_what_is_wrong_is_said_once_for_all_of_its_hosts(call):
    hosts = {f"h{number}": {"gpu_upgrade_canary": "one"} for number in range(7)}
    hosts["h0"]["gpu_upgrade_max_paralel"] = 1
    result, _shown = check(call, hosts)
    assert result["failed"]
    assert [entry["hosts"] for entry in result["refusals"]] == [list(hosts), ["h0"]]
    assert "h0, h1, h2, h3, h4 and 2 more: gpu_upgrade_canary: 'one' must be an integer" in result["msg"]
    assert "h0: gpu_upgrade_max_paralel: " in result["msg"]
    assert result["msg"].endswith("Nothing was changed.")


def test_what_is_right_passes_and_a_strange_name_warns(call):
    result, shown = check(call, {"a": {"gpu_upgrade_night_shift": 1}, "b": {"gpu_upgrade_canary": 2}})
    assert "failed" not in result
    assert shown.warnings == ["a: gpufleet.nvidia has no variable gpu_upgrade_night_shift."]


@pytest.mark.parametrize("groups", [{}, {"gpu_hosts": []}, {"all": ["a"], "ungrouped": ["a"]}])
def test_an_inventory_without_gpu_hosts_is_refused(call, groups):
    known = {"hostvars": {"a": {}}, "ansible_play_hosts_all": ["a"], "groups": groups}
    with pytest.raises(AnsibleActionFail, match="no hosts in the group gpu_hosts"):
        call(check_variables, {"playbook": "plan"}, known)
    assert "failed" not in call(check_variables, {"playbook": "doctor"}, known)[0]


def test_a_variable_of_an_earlier_release_is_refused_with_its_successor(call):
    result, _shown = check(call, {"a": {"gpu_upgrade_wave_timeout": 3600}})
    assert "no longer exists" in result["msg"] and "gpu_upgrade_budget_timeout" in result["msg"]


def test_some_hosts_alone(call):
    hosts = {"a": {"gpu_upgrade_canary": "one"}, "b": {}}
    assert "failed" not in check(call, hosts, hosts=["b"])[0]
