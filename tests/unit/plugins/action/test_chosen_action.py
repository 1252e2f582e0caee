# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The actions that only the collection's playbooks call: how one is chosen, its former name, and what is documented of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from ansible.plugins.loader import action_loader, module_loader
from ansible_collections.gpufleet.nvidia.plugins.action import fleet, node, rollout
from ansible_collections.gpufleet.nvidia.plugins.doc_fragments import internal
from ansible_collections.gpufleet.nvidia.plugins.module_utils import _migration
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure, Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import action_options, playbook_variables
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import site_times
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import ApiError
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import nvsentinel, objects, served, upgrade, usage
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_facts import ChosenAction, ControllerAction, choices

MODULES = Path(__file__).resolve().parents[4] / "plugins" / "modules"

FORMER = {
    "fleet": "adopt check_variables doctor_report fleet_plan host_plan inspect rack_drivers remove_gate site_gate site_times verify_report",
    "node": "evict_gpu_pods gpu_clients heal_node node_server upgrade_node verify_node",
    "rollout": "heal_plan upgrade_lease upgrade_waves",
}


@pytest.mark.parametrize(("now", "name"), [(now, name) for now, names in FORMER.items() for name in names.split()])
def test_a_former_name_leads_to_its_action_and_says_so(now, name):
    found = module_loader.find_plugin_with_context(f"gpufleet.nvidia.{name}")
    assert found.resolved_fqcn == found.action_plugin == f"gpufleet.nvidia.{now}"
    assert found.deprecated and f"Use gpufleet.nvidia.{now}, with the former name as action." in str(
        found.deprecation_warnings
    )
    assert name in {
        choice.__name__.rpartition(".")[2] for choice in action_loader.get(found.action_plugin, class_only=True).CHOICES
    }


def test_the_action_node_without_a_choice_does_what_it_did_before_it_had_others():
    assert node.ActionModule.DEFAULT in {choice.__name__.rpartition(".")[2] for choice in node.ActionModule.CHOICES}
    assert documented("node")["options"]["action"]["default"] == node.ActionModule.DEFAULT == "node_state"


class Chosen(ChosenAction):
    CHOICES = (site_times,)


@pytest.mark.parametrize(("name", "options"), [("fleet", {"action": "site_times"}), ("site_times", {})])
def test_an_action_is_chosen_by_its_option_or_by_its_former_name(call, name, options):
    task_of = SimpleNamespace(ActionModule=Chosen)
    arguments = {**options, "hosts": []}
    assert call(task_of, arguments, {}, action=f"gpufleet.nvidia.{name}")[0]["seconds"] == {}
    assert arguments == {**options, "hosts": []}, "a task that is tried again has them again"


def test_a_default_runs_where_neither_option_nor_name_chooses(call):
    class Defaulting(Chosen):
        DEFAULT = "site_times"

    task_of = SimpleNamespace(ActionModule=Defaulting)
    assert call(task_of, {"hosts": []}, {}, action="gpufleet.nvidia.node")[0]["seconds"] == {}


@pytest.mark.parametrize("options", [{}, {"action": "site_tim\x1bes"}, {"action": ["site_times"]}])
def test_an_action_that_there_is_not_is_refused(call, options):
    with pytest.raises(AnsibleActionFail, match=r"^action must be one of site_times, and is "):
        call(SimpleNamespace(ActionModule=Chosen), options, {}, action="gpufleet.nvidia.fleet")


def test_an_action_that_few_playbooks_call_is_imported_by_its_task(call):
    # In a process of its own: here other tests have imported it.
    asked = f"import sys, {fleet.__name__}; print([name for name in sys.modules if '.recommend.' in name])"
    environment = {"PYTHONPATH": str(MODULES.parents[1] / "build" / "collections")}
    line = [sys.executable, "-c", asked]
    done = subprocess.run(line, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    # What the plan of a host compares with a recommendation is another matter.
    assert done.stdout.strip() == "['ansible_collections.gpufleet.nvidia.plugins.plugin_utils.recommend.seen']"

    class Late(ChosenAction):
        LATE = "rack_drivers site_times"

    task_of = SimpleNamespace(ActionModule=Late)
    assert call(task_of, {"action": "site_times", "hosts": []}, {}, action="gpufleet.nvidia.fleet")[0]["seconds"] == {}


def test_options_of_another_action_are_refused(call):
    with pytest.raises(AnsibleActionFail, match=r"Unsupported parameters for \(site_times\) module: playbook"):
        options = {"action": "site_times", "hosts": [], "playbook": "site"}
        call(SimpleNamespace(ActionModule=Chosen), options, {}, action="gpufleet.nvidia.fleet")


def documented(name):
    return yaml.safe_load((MODULES / f"{name}.yml").read_text(encoding="utf-8"))["DOCUMENTATION"]


def options_of(action):
    return {**getattr(action, "COMMON", {}), **getattr(action, "OPTIONS", {})}


@pytest.mark.parametrize("module", [fleet, node, rollout], ids=lambda module: module.__name__.rpartition(".")[2])
def test_every_choice_and_every_option_of_each_is_documented(module):
    """What an option is, is declared with the documentation. Beside it stand those that are no action's, and that no host reads."""
    name = module.__name__.rpartition(".")[2]
    document = documented(name)
    options = document["options"]
    if "gpufleet.nvidia.internal.cluster" in document["extends_documentation_fragment"]:
        options |= yaml.safe_load(internal.ModuleDocFragment.CLUSTER)["options"]
    action = options.pop("action")
    every = [*module.ActionModule.CHOICES, *choices(module.ActionModule.LATE)]
    assert list(action["choices"]) == sorted(choice.__name__.rpartition(".")[2] for choice in every)
    declared = {}
    for choice in every:
        for option, specified in options_of(choice.ActionModule).items():
            declared.setdefault(option, set()).add((specified["type"], specified.get("elements")))
    if module is fleet:
        # The action of one host takes the facts as they came: checking them would cost as much as planning.
        declared |= {"facts": {("dict", None)}, "show": {("bool", None)}}
    assert declared == {name: {(option.get("type", "str"), option.get("elements"))} for name, option in options.items()}


#: What the documentation writes out of what the code has a name for.
NAMED = {
    ("fleet", "playbook"): sorted(playbook_variables.OWN),
    ("fleet", "unit"): [usage.MEMORY, usage.UNITS],
    ("node", "brought_by"): [_migration.HOST, _migration.OPERATOR],
    ("node", "nvsentinel"): [*nvsentinel.MODES],
    ("node", "operands"): [*_migration.VARIABLES],
    ("node", "server"): [served.PLUGIN, served.DRA],
    ("rollout", "nvsentinel"): [*nvsentinel.MODES],
    ("rollout", "work"): [*upgrade.WORK],
}


@pytest.mark.parametrize(("module", "option"), NAMED)
def test_the_choices_of_an_option_are_those_of_the_code(module, option):
    assert documented(module)["options"][option]["choices"] == NAMED[module, option]


def test_the_namespaces_of_the_clusters_own_pods_are_those_that_are_rendered():
    own = [objects.DEFAULT_NAMESPACE, *objects.DEFAULT_MORE]
    assert documented("node")["options"]["namespaces"]["default"] == own


def test_an_action_takes_an_option_as_it_is_documented_unless_it_says_otherwise():
    found = action_options.takes("node", "timeout server", needs="poll", settle=0, checkpoint=None)
    kinds = {"timeout": {"type": "int", "default": 300}, "server": {"type": "str", "choices": ["device-plugin", "dra"]}}
    changed = {"poll": {"type": "float", "required": True}, "settle": {"type": "int", "default": 0}}
    assert found == {**kinds, **changed, "checkpoint": {"type": "str", "default": None}}
    with pytest.raises(KeyError):
        action_options.takes("node", "hosts")


class Ending(ControllerAction):
    UNTOUCHED = " Nothing was changed."

    def act(self, _arguments, task_vars):
        raise task_vars["error"]


@pytest.mark.parametrize(
    ("error", "ended"),
    [
        (
            Failure("Failed to wait.", evicted=["a"], changed=True),
            {"msg": "Failed to wait.", "evicted": ["a"], "changed": True},
        ),
        (
            ApiError(403, "list the nodes", "forbidden"),
            {"msg": "Failed to list the nodes: forbidden", "changed": False},
        ),
        (
            Refused("the node", "it is busy", "Wait."),
            {
                "msg": "the node: it is busy. Wait. Nothing was changed.",
                "refusals": [Refused("the node", "it is busy", "Wait.").as_dict()],
                "changed": False,
            },
        ),
    ],
)
def test_an_action_that_refuses_or_fails_ends_with_its_message(call, error, ended):
    """One place makes a result of it, for all actions of the controller."""
    result = call(SimpleNamespace(ActionModule=Ending), {}, {"error": error})[0]
    assert result["failed"] and {name: result[name] for name in ended} == ended
