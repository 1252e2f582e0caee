# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All roles have the same shape."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import remove_gate
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.role_variables import registered

#: It documents the variables of the playbooks for ansible-doc, and has no tasks.
DOCUMENTATION = "playbooks"
ROLES = sorted(role for role in (Path(__file__).parents[3] / "roles").iterdir() if role.name != DOCUMENTATION)
PLAYBOOKS = Path(__file__).parents[3] / "playbooks"

#: The roles that bring a host into its state; what they do follows from the facts.
DEPEND_ON_FACTS = {
    "nvidia_driver",
    "nvidia_toolkit",
    "nvidia_boot",
    "nvidia_dcgm",
}

#: Those of which something is restored at boot.
DEPEND_ON_BOOT = {"nvidia_settings", "nvidia_mig", "nvidia_sharing", "nvidia_health"}

#: Roles that read the hosts themselves, or are called by a playbook that did.
ALONE = {"gpu_facts", "gpu_kubernetes", "gpu_node", "gpu_remove", "gpu_slurm"}

#: The roles for day two, which take nodes out of service.
DEPEND_ON_NODE = {"gpu_upgrade", "gpu_repartition", "gpu_heal"}


def load(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.fixture(params=ROLES, ids=[role.name for role in ROLES])
def role(request):
    return request.param


def test_there_are_roles():
    assert {
        "gpu_facts",
        "nvidia_driver",
        "nvidia_toolkit",
        "nvidia_boot",
        "nvidia_settings",
        "nvidia_mig",
        "nvidia_sharing",
        "nvidia_health",
        "nvidia_dcgm",
        "gpu_kubernetes",
        "gpu_slurm",
        "gpu_node",
        "gpu_upgrade",
        "gpu_repartition",
        "gpu_remove",
        "gpu_heal",
    } == {role.name for role in ROLES}


def test_variables_carry_the_roles_name_and_a_description(role):
    # How the cluster is reached is typed once, for all playbooks.
    prefixes = (f"{role.name}_", "gpu_cluster_") if role.name == "gpu_node" else (f"{role.name}_",)
    options = load(role / "meta" / "argument_specs.yml")["argument_specs"]["main"]["options"]
    for name, option in options.items():
        assert name.startswith(prefixes)
        assert option["description"], name
        assert option["type"], name


def test_no_task_takes_the_name_of_a_variable_of_the_role(role):
    """What a task registers stands above the role's own variables, for every task after it."""
    own = set(load(role / "defaults" / "main.yml"))
    variables = role / "vars" / "main.yml"
    own |= set(load(variables)) if variables.exists() else set()
    taken = registered(str(role / "tasks")) & own
    assert not taken


def conditions(document):
    """Every condition of tasks, wherever it stands."""
    if isinstance(document, list):
        for entry in document:
            yield from conditions(entry)
    elif isinstance(document, dict):
        for key, value in document.items():
            if key in ("when", "failed_when", "changed_when", "until"):
                yield from (str(one) for one in (value if isinstance(value, list) else [value]))
            else:
                yield from conditions(value)


def test_conditions_take_a_truth_value_as_e_gives_it(role):
    """C(-e name=false) is a text, which no condition takes from ansible-core 2.19 on."""
    options = load(role / "meta" / "argument_specs.yml")["argument_specs"]["main"]["options"]
    names = "|".join(name for name, option in options.items() if option["type"] == "bool") or "none"
    bare = re.compile(rf"\b(?:{names})\b(?! \| bool)")
    found = {
        str(path): condition
        for path in sorted((role / "tasks").glob("*.yml"))
        for condition in conditions(load(path))
        if bare.search(condition)
    }
    assert not found


def test_no_condition_reads_a_message():
    """What a module says is for people, and is written otherwise one day."""
    files = [path for role in ROLES for path in (role / "tasks").glob("*.yml")]
    read = [(path, one) for path in [*files, *PLAYBOOKS.glob("*.yml")] for one in conditions(load(path))]
    assert {path.parent for path, _one in read} >= {PLAYBOOKS, ROLES[0].parent / "gpu_upgrade" / "tasks"}
    assert not [(str(path), one) for path, one in read if re.search(r"\bmsg\b", one)]


def test_host_roles_depend_on_the_facts(role):
    dependencies = [entry["role"] for entry in load(role / "meta" / "main.yml")["dependencies"]]
    needed = (
        "gpu_node" if role.name in DEPEND_ON_NODE else "nvidia_boot" if role.name in DEPEND_ON_BOOT else "gpu_facts"
    )
    expected = [] if role.name in ALONE else [f"gpufleet.nvidia.{needed}"]
    assert dependencies == expected


def test_the_removal_is_given_every_variable_of_a_host_that_it_reads():
    """The gate hands over the values of other roles; what it leaves out is found by no check before a host is touched."""
    read = {
        name
        for path in sorted((PLAYBOOKS.parent / "roles" / "gpu_remove").rglob("*.yml"))
        for name in re.findall(r"__gpu_remove_host\.(\w+)", path.read_text(encoding="utf-8"))
    }
    assert "nvidia_dcgm_state" in read and read <= set(remove_gate._PASSED)


def test_the_connection_to_the_cluster_is_handed_to_the_actions_of_one_group():
    """Who reaches the cluster is in the group, which the playbooks for day two give the connection; no task of a role repeats it."""
    modules = PLAYBOOKS.parent / "plugins" / "modules"
    connected = {
        path.stem
        for path in modules.glob("*.*")
        if "gpufleet.nvidia.internal.cluster\n" in path.read_text(encoding="utf-8")
    }
    assert connected == {"node", "rollout"}
    assert set(load(PLAYBOOKS.parent / "meta" / "runtime.yml")["action_groups"]["cluster"]) == connected
    for role in ROLES:
        for path in (role / "tasks").glob("*.yml"):
            assert "kubeconfig:" not in path.read_text(encoding="utf-8"), path
    for path in PLAYBOOKS.glob("*.yml"):
        day_two = [play for play in load(path) if re.search(r"gpu_(upgrade|repartition|heal|node)'", str(play))]
        given = [play["module_defaults"] for play in day_two]
        assert all(given) and all(one == given[0] for one in given), path
        if given:
            assert set(given[0]["group/gpufleet.nvidia.cluster"]) == {
                "kubernetes",
                "kubeconfig",
                "context",
                "api_timeout",
            }


@pytest.mark.parametrize(
    ("variables", "passed"),
    [({}, ""), ({"old": "a"}, "a"), ({"old": "a", "new": "b"}, "b"), ({"new": "b"}, "b")],
)
def test_the_driver_is_given_the_key_under_its_former_names_too(variables, passed):
    (task,) = load(ROLES[0].parent / "nvidia_driver" / "tasks" / "install.yml")
    repository = task["gpufleet.nvidia.driver"]["repository"]
    for part in ("key_url", "key_file", "key_fingerprint"):
        names = {"new": f"nvidia_driver_repository_{part}", "old": f"nvidia_driver_{part}"}
        given = {names["new"]: "", **{names[which]: value for which, value in variables.items()}}
        assert Templar(DataLoader(), variables=given).template(trust_as_template(repository[part])) == passed


def test_remove_shows_its_steps_once_with_the_plan():
    tasks = load(ROLES[0].parent / "gpu_remove" / "tasks" / "main.yml")
    assert tasks[-1]["when"] == "__gpu_remove_planned | default(false)" and "debug" in next(
        iter(tasks[-1].keys() - {"name", "when"})
    )
    included = [
        task
        for play in load(PLAYBOOKS / "remove.yml")
        for task in play["tasks"]
        if "ansible.builtin.include_role" in task
    ]
    planned = [task.get("vars", {}).get("__gpu_remove_planned") for task in included]
    assert planned == [True, None] and included[0]["ansible.builtin.include_role"]["apply"] == {"check_mode": True}


def test_one_task_reboots_hosts_with_the_timeout_of_the_role_gpu_node():
    reboots = {path for role in ROLES for path in (role / "tasks").glob("*.yml") if "    reboot:\n" in path.read_text()}
    (only,) = reboots
    (timeout,) = re.findall(r"gpu_node_reboot_timeout \| default\((\d+)\)", only.read_text(encoding="utf-8"))
    assert load(ROLES[0].parent / "gpu_node" / "defaults" / "main.yml")["gpu_node_reboot_timeout"] == int(timeout)
