# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variables of the playbooks for day two."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleUndefinedVariable
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import playbook_variables
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.playbook_variables import OWN, Findings, check
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.pools import OF_PLAYBOOKS

PLAYBOOKS = Path(__file__).parents[4] / "playbooks"


def messages(playbook, **variables):
    return [refusal.message for refusal in check(playbook, variables).refusals]


@pytest.mark.parametrize("playbook", sorted(OWN))
def test_the_variables_of_the_playbooks_are_described_and_the_head_says_where(playbook):
    assert all(option["description"] and option["type"] for option in OWN[playbook].values())
    text = (PLAYBOOKS / f"{playbook}.yml").read_text(encoding="utf-8")
    named = f"ansible-doc -t role gpufleet.nvidia.playbooks -e {playbook}" in text
    assert named or not OWN[playbook] or playbook == "repartition"


@pytest.mark.parametrize("playbook", sorted(OWN))
def test_a_playbook_reads_no_other_variables_and_checks_them_first(playbook):
    path = PLAYBOOKS / f"{playbook}.yml"
    text = path.read_text(encoding="utf-8")
    read = set(re.findall(rf"\bgpu_{playbook}_\w+", text)) - set(OF_PLAYBOOKS)
    assert read <= {*OWN[playbook], *playbook_variables._known()}
    play = yaml.safe_load(text)[0]
    first = play.get("pre_tasks", play.get("tasks"))[0]
    hosts = {"hosts": "{{ groups['gpu_hosts'] | default([]) }}"} if play["hosts"] == "localhost" else {}
    assert first["gpufleet.nvidia.fleet"] == {"action": "check_variables", "playbook": playbook, **hosts}
    assert hosts or first["run_once"]


@pytest.mark.parametrize(
    ("playbook", "variables"),
    [
        ("plan", {}),
        ("plan", {"gpu_plan_offline": "true", "gpu_plan_facts_directory": "facts"}),
        ("inspect", {"gpu_inspect_format": "json", "gpu_inspect_details": True}),
        ("upgrade", {"gpu_upgrade_max_unavailable": 2, "gpu_upgrade_canary": "3"}),
        ("upgrade", {"gpu_upgrade_max_unavailable": "10%"}),
        ("repartition", {"gpu_repartition_serial": [1, "5", "25%"]}),
        ("repartition", {"gpu_repartition_serial": "100%"}),
        ("rollback", {"gpu_rollback_serial": ["1", "10%"]}),
        ("verify", {"gpu_plan_report": "of another playbook", "gpu_verify_node": "registered by a playbook"}),
        ("verify", {"gpu_upgrade_result": "registered by a role", "site_variable": 1}),
        # Slips in the description of one host, which the plan of that host names.
        ("plan", {"nvidea_driver_branch": "580", "nvidia_mig_layot": "all-balanced", "nvidia_sharing_replica": 2}),
    ],
)
def test_what_is_right_is_taken(playbook, variables):
    assert messages(playbook, **variables) == []


@pytest.mark.parametrize(
    ("playbook", "variables", "said"),
    [
        ("plan", {"gpu_plan_offline": "perhaps"}, "gpu_plan_offline: 'perhaps' must be true or false."),
        ("inspect", {"gpu_inspect_format": "jsn"}, "'jsn' must be one of table, json. Did you mean json?"),
        ("upgrade", {"gpu_upgrade_canary": "one"}, "gpu_upgrade_canary: 'one' must be an integer. The default is 1."),
        ("upgrade", {"gpu_upgrade_max_unavailable": "25 %"}, "'25 %' must be 1 or more hosts, or 1% to 100%"),
        ("upgrade", {"gpu_upgrade_max_unavailable": "101%"}, "or 1% to 100% of them. Write 2 or 25%."),
        ("upgrade", {"gpu_upgrade_max_unavailable": 0}, "0 must be 1 or more hosts"),
        ("upgrade", {"gpu_upgrade_max_unavailble": 1}, "Did you mean gpu_upgrade_max_unavailable?"),
        ("rollback", {"gpu_upgrade_reboot": "never"}, "gpu_upgrade_reboot: 'never' must be true or false"),
        ("repartition", {"gpu_repartition_serial": [1, "x"]}, "gpu_repartition_serial: 'x' must be 1 or more hosts"),
        ("repartition", {"gpu_repartition_serial": []}, "the list is empty"),
        ("repartition", {"gpu_repartition_serial": True}, "True must be 1 or more hosts"),
        ("rollback", {"gpu_rollback_serial": "0"}, "gpu_rollback_serial: '0' must be 1 or more hosts"),
        ("rollback", {"gpu_rollback_seriel": 2}, "Did you mean gpu_rollback_serial?"),
        ("plan", {"gpu_verify_capcity": "x"}, "Did you mean gpu_verify_capacity?"),
        ("verify", {"gpu_clustr_kubeconfig": "x"}, "Did you mean gpu_cluster_kubeconfig?"),
        ("site", {"gpu_kuberntes_namespace": "x"}, "Did you mean gpu_kubernetes_namespace?"),
        ("site", {"gpu_kubernetes_namspace": "x"}, "Did you mean gpu_kubernetes_namespace?"),
        ("site", {"gpu_kubernetes_runtime_class": "nvidia'"}, "is not a valid name of a runtime class"),
        ("site", {"gpu_kubernetes_runtime_class": "nvidia\n"}, "is not a valid name of a runtime class"),
        ("site", {"gpu_kubernetes_operator_version": "latest"}, "'latest' is not a version of the chart gpu-operator"),
        ("site", {"gpu_node_reboot_timeout": "15m"}, "gpu_node_reboot_timeout: '15m' must be an integer"),
        ("remove", {"gpu_node_reboot_timeout": "15m"}, "gpu_node_reboot_timeout: '15m' must be an integer"),
        ("site", {"gpu_kubernetes_prune": "sometimes"}, "gpu_kubernetes_prune: 'sometimes' must be true or false"),
    ],
)
def test_what_is_wrong_is_named_with_what_would_be_right(playbook, variables, said):
    (message,) = messages(playbook, **variables)
    assert said in message


@pytest.mark.parametrize(
    "playbook", [path.stem for path in PLAYBOOKS.glob("*.yml") if "import_playbook: render.yml" in path.read_text()]
)
def test_what_a_playbook_renders_at_its_end_is_checked_before_its_first_host(playbook):
    (message,) = messages(playbook, gpu_kubernetes_version=1.30)
    assert message.startswith("gpu_kubernetes_version: it is a number with a decimal point")


def test_what_tasks_of_the_collection_set_is_nobodys_mistake():
    """With serial the variables are checked again for every batch, when tasks of the ones before have set theirs."""
    tasks = [path for folder in ("roles", "playbooks") for path in (PLAYBOOKS.parent / folder).rglob("*.yml")]
    private = {name for path in tasks for name in re.findall(r"\b__gpu_\w+|\b__nvidia_\w+", path.read_text())}
    assert "__gpu_upgrade_next" in private and len(private) > 40
    for playbook in OWN:
        assert check(playbook, dict.fromkeys(private, "x")) == Findings()
    assert "Did you mean gpu_upgrade_reboot?" in check("rollback", {"gpu_upgrade_reboots": 1}).refusals[0].message


def test_a_name_that_is_near_none_is_only_unknown():
    found = check("plan", {"gpu_upgrade_window_of_the_site": "night"})
    assert found.refusals == ()
    assert found.unknown == ("gpu_upgrade_window_of_the_site",)


def test_a_template_that_cannot_be_rendered_is_a_mistake_of_its_variable():
    def template(value):
        if value == "{{ nothing }}":
            raise AnsibleUndefinedVariable("'nothing' is undefined")
        return value

    found = check("plan", {"gpu_plan_report": "{{ nothing }}", "gpu_plan_offline": True}, template)
    (message,) = [refusal.message for refusal in found.refusals]
    assert message.startswith("gpu_plan_report: 'nothing' is undefined.")
    # What its template needs may be given to the playbook that reads it alone.
    other = check("doctor", {"gpu_plan_report": "{{ nothing }}", "gpu_plan_offline": 5}, template)
    assert not other.refusals and [one.thing for one in other.others] == ["gpu_plan_offline"]


def mappings(node):
    if isinstance(node, yaml.MappingNode):
        yield node
    for one in node.value if isinstance(node.value, list) else ():
        for part in one if isinstance(one, tuple) else (one,):
            yield from mappings(part)


@pytest.mark.parametrize("path", sorted(PLAYBOOKS.glob("*.yml")), ids=lambda path: path.stem)
def test_no_key_replaces_one_that_was_merged_of_which_ansible_warns_at_every_run(path):
    for found in mappings(yaml.compose(path.read_text(encoding="utf-8"))):
        own = [key.value for key, _value in found.value if key.value != "<<"]
        own += [key.value for name, merged in found.value if name.value == "<<" for key, _value in merged.value]
        assert len(own) == len(set(own)), found.start_mark
