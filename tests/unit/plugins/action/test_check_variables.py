# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import check_variables
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster_lease import this_run

#: By description a host is changed; the others say what is wrong with it, and go on.
BY_DESCRIPTION = ("migrate", "repartition", "rollback", "site", "upgrade")
H100 = {"gpu_facts_gpus": [{"board": "h100-80gb-sxm", "count": 8}], "nvidia_mig_strategy": "mixed"}
TOO_MANY = {**H100, "nvidia_mig_layout": [{"devices": "all", "instances": {"3g.40gb": 3}}]}


def check(call, variables, groups=(), **arguments):
    hosts = list(variables)
    known = {
        "hostvars": variables,
        "ansible_play_hosts_all": hosts,
        "groups": {"gpu_hosts": hosts, "pool": hosts, **dict(groups)},
    }
    return call(check_variables, {"playbook": "upgrade", **arguments}, known)


def test_what_is_wrong_is_said_once_for_all_of_its_hosts(call):
    hosts = {f"h{number}": {"gpu_upgrade_canary": "one"} for number in range(7)}
    hosts["h0"]["gpu_upgrade_max_paralel"] = 1
    result, _shown = check(call, hosts)
    assert result["failed"]
    assert [entry["hosts"] for entry in result["refusals"]] == [list(hosts), ["h0"]]
    assert "h0, h1, h2, h3, h4 and 2 more: gpu_upgrade_canary: 'one' must be an integer" in result["msg"]
    assert "h0: gpu_upgrade_max_paralel: " in result["msg"]
    assert result["msg"].endswith("\nNothing was changed.")


def test_what_is_right_passes_and_a_strange_name_warns(call):
    result, shown = check(call, {"a": {"gpu_upgrade_night_shift": 1}, "b": {"gpu_upgrade_canary": 2}})
    assert "failed" not in result
    assert shown.warnings == ["a: gpufleet.nvidia has no variable gpu_upgrade_night_shift."]


def test_a_run_is_told_its_name(call):
    """By what it drains in Slurm, the next run tells its own from what others took out."""
    result, _shown = check(call, {"a": {}}, playbook="rollback")
    assert (result["playbook"], result["run"]) == ("rollback", str(this_run()))


@pytest.mark.parametrize("groups", [{}, {"gpu_hosts": []}, {"all": ["a"], "ungrouped": ["a"]}])
def test_an_inventory_without_gpu_hosts_is_refused(call, groups):
    known = {"hostvars": {"a": {}}, "ansible_play_hosts_all": ["a"], "groups": groups}
    with pytest.raises(AnsibleActionFail, match="no hosts in the group gpu_hosts"):
        call(check_variables, {"playbook": "plan"}, known)
    assert "failed" not in call(check_variables, {"playbook": "doctor"}, known)[0]


def test_a_variable_of_an_earlier_release_is_refused_with_its_successor(call):
    result, _shown = check(call, {"a": {"gpu_upgrade_wave_timeout": 3600}})
    assert "no longer exists" in result["msg"] and "gpu_upgrade_budget_timeout" in result["msg"]
    assert [entry["hosts"] for entry in result["refusals"]] == [["a"]], "once"


def test_a_former_name_still_counts_and_its_successor_is_named_once(call):
    former = {
        "nvidia_driver_repository_url": "https://mirror.example.com/x",
        "nvidia_driver_key_url": "https://mirror.example.com/k",
    }
    hosts = {name: {**former, "nvidia_driver_key_fingerprint": "A" * 40} for name in ("a", "b")}
    result, shown = check(call, hosts, playbook="site")
    assert "failed" not in result
    assert shown.warnings == [
        f"nvidia_driver_{name}: its name is nvidia_driver_repository_{name}. The former name counts until 2.0.0."
        for name in ("key_url", "key_fingerprint")
    ]


def test_a_former_name_of_a_playbook_has_the_type_of_its_successor(call):
    result, shown = check(call, {"a": {"gpu_plan_fail_on_drift": "perhaps"}}, playbook="plan")
    assert "gpu_plan_fail" in result["msg"]
    assert [one.partition(".")[0] for one in shown.warnings] == ["gpu_plan_fail_on_drift: its name is gpu_plan_fail"]


def test_whether_boards_that_nobody_described_can_be_divided_so_is_left_to_the_host(call):
    of_second = {"devices": [1], "instances": {"1g.10gb": 7}}
    for layout, refused in ([of_second], ""), ([{**of_second, "divices": "all"}], "nvidia_mig_layout[0].divices"):
        host = {"nvidia_mig_strategy": "mixed", "nvidia_mig_layout": layout}
        result, _shown = check(call, {"a": host}, playbook="site")
        assert result.get("failed", False) is bool(refused) and refused in result.get("msg", "")


def test_some_hosts_alone(call):
    hosts = {"a": {"gpu_upgrade_canary": "one"}, "b": {}}
    assert "failed" not in check(call, hosts, hosts=["b"])[0]


#: What no host is needed for: a name, a type, a pool, a version, a board, and whether the layout fits the boards.
WITHOUT_HOST = {
    "a": {"nvidia_mig_layuot": []},
    "b": {"nvidia_driver_hold": "perhaps"},
    "c": {"gpu_facts_pool": "night"},
    "d": {"nvidia_driver_branch": "575"},
    "e": {"gpu_facts_gpus": [{"board": "h100", "count": 8}]},
    "f": TOO_MANY,
    "g": {"nvidia_toolkit_version": "1.16.0"},
    "h": {**H100, "nvidia_driver_branch": "580", "nvidia_mig_layout": "all-balanced"},
    # Which GPUs virtual machines have, only the host tells.
    "i": {**H100, "gpu_facts_passthrough": 2},
}


@pytest.mark.parametrize("playbook", sorted(check_variables.playbook_variables.OWN))
def test_all_that_no_host_is_needed_for_is_the_same_list_in_every_playbook(call, playbook):
    result, shown = check(call, WITHOUT_HOST, playbook=playbook)
    found = {entry["hosts"][0]: entry["thing"] for entry in result["refusals"]}
    assert found == {
        "a": "nvidia_mig_layuot",
        "b": "nvidia_driver_hold",
        "c": "gpu_facts_pool of c",
        "d": "nvidia_driver_branch",
        "e": "gpu_facts_gpus[0].board",
        "f": "nvidia_mig_layout[0].instances",
        "g": "nvidia_toolkit_version",
    }
    sentences = [f"{entry['hosts'][0]}: {entry['message']}" for entry in result["refusals"]]
    assert result.get("failed", False) is (playbook in BY_DESCRIPTION)
    if playbook in BY_DESCRIPTION:
        assert result["msg"].splitlines()[:-1] == sentences
        assert result["msg"].endswith(f"Nothing was changed. {check_variables._STOP}")
    else:
        assert shown.lines == [f"[WARNING]: {sentence}" for sentence in sentences]


#: Of playbooks and roles that one playbook or another does not read: a type, a choice, a share, a name, a number that was a text.
OF_PLAYBOOKS = {
    "gpu_plan_offline": ("perhaps", ["plan"]),
    "gpu_inspect_format": ("jsn", ["inspect"]),
    "gpu_upgrade_canary": ("one", ["migrate", "rollback", "upgrade"]),
    "gpu_heal_max_unavailable": ("0", ["heal"]),
    "gpu_kubernetes_prune": ("sometimes", ["render", "repartition", "site"]),
    "gpu_kubernetes_runtime_class": ("nvidia'", ["render", "repartition", "site"]),
    "gpu_kubernetes_version": (1.30, ["render", "repartition", "site"]),
    "gpu_remove_driver": ("perhaps", ["remove"]),
    "gpu_slurm_node_name": ("node[1-4]", ["heal", "migrate", "render", "repartition", "rollback", "site", "upgrade"]),
    "gpu_kubernetes_namspace": ("x", sorted(check_variables.playbook_variables.OWN)),
}


@pytest.mark.parametrize("name", OF_PLAYBOOKS)
def test_variables_of_playbooks_are_the_same_list_in_every_one_of_them(call, name):
    """What a playbook does not read keeps it from nothing."""
    value, stopped = OF_PLAYBOOKS[name]
    said = {}
    for playbook in check_variables.playbook_variables.OWN:
        result, shown = check(call, {"a": {name: value}}, playbook=playbook)
        (entry,) = result["refusals"]
        assert entry["thing"] == name and result.get("failed", False) is (playbook in stopped)
        sentence = f"a: {entry['message']}"
        assert sentence in result["msg"] if playbook in stopped else shown.lines == [f"[WARNING]: {sentence}"]
        said[playbook] = entry["message"]
    assert len(said) > 11 and len(set(said.values())) == 1


def test_hosts_of_two_clusters_are_rendered_in_one_run(call):
    hosts = {"a": {"gpu_cluster_kubeconfig": "one"}, "b": {"gpu_cluster_kubeconfig": "two"}}
    assert "failed" not in check(call, hosts, playbook="render")[0]


def test_hosts_that_may_be_skipped_are_named_and_stop_nobody(call):
    hosts = {"a": {"gpu_facts_skip_refused_hosts": "true", "nvidia_mig_layuot": []}, "b": {}}
    result, shown = check(call, hosts, playbook="site")
    assert "failed" not in result and len(result["refusals"]) == 1
    assert shown.lines[0].startswith("[WARNING]: a: nvidia_mig_layuot: ")


def test_a_host_that_nobody_describes_is_not_judged(call):
    hosts = {"gpu01": {"nvidia_mig_layuot": []}}
    result, _shown = check(call, hosts, {"gpu_hosts": [], "pool": []}, playbook="doctor")
    assert result["refusals"] == []


def test_hosts_with_one_description_are_planned_once(call, monkeypatch):
    planned = []
    plan = check_variables.hosts_of.__globals__["assumed_host"]
    monkeypatch.setitem(
        check_variables.hosts_of.__globals__, "assumed_host", lambda desired: planned.append(1) or plan(desired)
    )
    hosts = {f"h{number}": TOO_MANY for number in range(50)} | {"other": H100}
    result, _shown = check(call, hosts)
    assert len(planned) == 2
    assert [len(entry["hosts"]) for entry in result["refusals"]] == [50]


@pytest.mark.parametrize("name", ["vars", "hosts", "children"])
@pytest.mark.parametrize("hosts", [[], ["a"]])
def test_a_keyword_where_a_group_belongs_is_refused(call, name, hosts):
    """YAML that is indented one step too far: Ansible makes a group of it, and its variables are lost."""
    with pytest.raises(AnsibleActionFail, match=rf"^the group {name}: .*Move {name}: one step to the left"):
        check(call, {"a": {}}, {name: hosts}, playbook="plan")


def test_a_group_of_others_may_be_called_so(call):
    assert "failed" not in check(call, {"a": {}}, {"hosts": ["a", "switch-1"]})[0]


@pytest.mark.parametrize(
    ("playbook", "first", "second", "refused"),
    [
        ("plan", {"gpu_plan_report": "a.json"}, {"gpu_plan_report": "b.json"}, "a has 'a.json' and b has 'b.json'"),
        ("plan", {}, {"gpu_plan_report": "b.json"}, "a has none and b has 'b.json'"),
        (
            "inspect",
            {"gpu_cluster_kubeconfig": "one"},
            {"gpu_cluster_kubeconfig": "two"},
            "a has 'one' and b has 'two'",
        ),
        ("plan", {"gpu_plan_report": "a.json"}, {"gpu_plan_report": "a.json"}, ""),
        ("inspect", {}, {"gpu_cluster_kubeconfig": "two"}, ""),
        ("inspect", {"gpu_cluster_kubeconfig": ""}, {"gpu_cluster_kubeconfig": "two"}, ""),
    ],
)
def test_a_variable_of_the_run_is_the_same_for_all_hosts(call, playbook, first, second, refused):
    """The first host would decide, and what is set for another would be ignored."""
    result, _shown = check(call, {"a": first, "b": second}, playbook=playbook)
    assert bool(result.get("failed")) is bool(refused), result
    if refused:
        assert f"b: {next(iter(second))}: {refused}, and one run takes one value" in result["msg"]
