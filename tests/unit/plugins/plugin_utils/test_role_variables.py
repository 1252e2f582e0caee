# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The desired state of a host: every variable checked, every mistake told at once, with what would be taken."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import role_variables
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.role_variables import (
    FORMER,
    HOST_ROLES,
    RENAMED,
    VariablesRefused,
    collect,
    entry_points,
    inventory_lines,
    refusals_of,
    role_interface,
    validated,
)

ROLES = Path(role_variables.__file__).resolve().parents[2] / "roles"


def collected(**variables):
    return collect(variables, lambda value: value)


def refused(**variables):
    with pytest.raises(VariablesRefused) as caught:
        collected(**variables)
    return caught.value


@pytest.mark.parametrize(("given", "taken"), [(True, "true"), (False, "false"), ("false", "false"), ("auto", "auto")])
def test_a_choice_between_truth_values_and_auto(given, taken):
    assert collected(nvidia_sharing_mps_multi_user=given)["nvidia_sharing_mps_multi_user"] == taken


def test_without_variables_the_desired_state_is_the_defaults_of_all_roles():
    desired = collected()
    for role in HOST_ROLES:
        defaults = yaml.safe_load((ROLES / role / "defaults" / "main.yml").read_text()) or {}
        for name, value in defaults.items():
            if not isinstance(value, str) or "{{" not in value:
                assert desired[name] == value, name


def test_values_are_brought_to_their_type():
    desired = collected(nvidia_sharing_gpus_per_pod="4", nvidia_toolkit_hold="no", nvidia_driver_branch=580)
    assert (desired["nvidia_sharing_gpus_per_pod"], desired["nvidia_toolkit_hold"]) == (4, False)
    assert desired["nvidia_driver_branch"] == "580"


def test_a_former_name_counts_where_the_present_one_has_its_default():
    new, old = "nvidia_driver_repository_key_url", "nvidia_driver_key_url"
    for given, taken in (({old: "a"}, "a"), ({old: "a", new: ""}, "a"), ({old: "a", new: "b"}, "b"), ({new: "b"}, "b")):
        desired = collected(**given)
        assert desired[new] == taken and old not in desired
    assert inventory_lines({old: "a", "other": 1}) == ['nvidia_driver_key_url: "a"']


def test_a_former_name_is_of_no_present_variable():
    known = {name for role in ROLES.iterdir() for options in entry_points(role.name).values() for name in options}
    assert set(FORMER) <= known and not known & (set(FORMER.values()) | set(RENAMED))


def test_templates_are_rendered():
    desired = collect({"nvidia_sharing_mode": "{{ mode }}"}, lambda value: "mps" if value == "{{ mode }}" else value)
    assert desired["nvidia_sharing_mode"] == "mps"


@pytest.mark.parametrize(
    ("variables", "thing", "reason", "remedy"),
    [
        (
            {"nvidia_sharing_gpus_per_pod": "many"},
            "nvidia_sharing_gpus_per_pod",
            "'many' must be an integer",
            "default is 1",
        ),
        (
            {"gpu_facts_gpus": [{"board": "l40s-48gb", "count": "9" * 5000}]},
            "gpu_facts_gpus",
            "more than 64 bits",
            "ansible-doc -t role gpufleet.nvidia.gpu_facts",
        ),
        *(
            (
                {"nvidia_sharing_gpus_per_pod": value},
                "nvidia_sharing_gpus_per_pod",
                "must be finite",
                "nvidia_sharing describes it",
            )
            for value in (float("inf"), "-inf")
        ),
        (
            {"gpu_facts_gpus": [{"board": "\ud800", "count": 1}]},
            "gpu_facts_gpus",
            "half of a character",
            "ansible-doc -t role gpufleet.nvidia.gpu_facts",
        ),
        (
            {"nvidia_toolkit_hold": "perhaps"},
            "nvidia_toolkit_hold",
            "'perhaps' must be true or false",
            "default is True",
        ),
        ({"nvidia_sharing_mode": "msp"}, "nvidia_sharing_mode", "'msp' must be one of none,", "mean mps?"),
        (
            {"nvidia_toolkit_runtime": "containred"},
            "nvidia_toolkit_runtime",
            "must be one of containerd, docker,",
            "mean containerd?",
        ),
        ({"nvidia_toolkit_runtime": "zzz"}, "nvidia_toolkit_runtime", "must be one of", "ansible-doc -t role"),
        ({"nvidia_sharing_mps_limits": [{"gpu": 0}]}, "nvidia_sharing_mps_limits", "missing required arguments", "doc"),
        ({"gpu_facts_gpus": [{"board": "t4", "count": "x"}]}, "gpu_facts_gpus", "'x'", "ansible-doc"),
        (
            {"nvidia_toolkit_allow_visible_devices_variable": True},
            "nvidia_toolkit_allow_visible_devices_variable",
            "no longer exists",
            "set nvidia_toolkit_device_injection: envvar",
        ),
        ({"nvidia_mig_layot": "x"}, "nvidia_mig_layot", "no role", "mean nvidia_mig_layout?"),
        ({"nvidea_mig_layout": "x"}, "nvidea_mig_layout", "no role", "mean nvidia_mig_layout?"),
        ({"gpu_fact_pool": "x"}, "gpu_fact_pool", "no role", "mean gpu_facts_pool?"),
        ({"nvidia_driver_brnach": "x"}, "nvidia_driver_brnach", "no role", "mean nvidia_driver_branch?"),
        ({"nvidia_sharing_mem_slice": "x"}, "nvidia_sharing_mem_slice", "no role", "nvidia_sharing_memory_slice?"),
    ],
)
def test_a_mistake_names_variable_reason_and_remedy(variables, thing, reason, remedy):
    refusal = refused(**variables)
    (only,) = refusals_of(refusal)
    assert only.thing == thing
    assert reason in only.reason
    assert remedy in only.remedy
    assert refusal.message == only.message


def texts(options, path=""):
    """Give every option of a role that is a text, or a list of texts, as a path into the user's variables, and a value of it."""
    for name, option in options.items():
        below = option.get("options") or {}
        if option.get("type", "str") == "str":
            yield f"{path}{name}", {name: 1.3}
        elif option.get("elements") == "str":
            yield f"{path}{name}[1]", {name: ["a", 1.3]}
        several = option.get("type") == "list"
        for inner, value in texts(below, f"{path}{name}[0]." if several else f"{path}{name}."):
            yield inner, {name: [value] if several else value}


@pytest.mark.parametrize("role", [*HOST_ROLES, "gpu_kubernetes", "gpu_node", "gpu_upgrade", "gpu_heal"])
def test_a_text_that_yaml_reads_as_a_number_is_refused_by_name(role):
    """1.30 without quotes is 1.3, so nobody knows what was written."""
    interface = role_interface(role)
    found = dict(texts(interface.options))
    assert found
    for path, given in found.items():
        _values, wrong = validated(interface, given)
        first = wrong[0]
        assert first.thing == path and "1.30 is read as 1.3" in first.reason, first.message
        assert f"Write it in quotes, such as {path}: " in first.remedy
        assert "1.3" not in first.remedy.replace('"1.34"', ""), "a password is not shown"


def test_the_other_mistakes_are_told_beside_a_number():
    _values, wrong = validated(
        role_interface("gpu_kubernetes"), {"gpu_kubernetes_version": 1.3, "gpu_kubernetes_stack": "x"}
    )
    assert [one.thing for one in wrong] == ["gpu_kubernetes_version", "gpu_kubernetes_stack"]
    assert wrong[0].remedy == 'Write it in quotes, such as gpu_kubernetes_version: "1.34".'
    assert validated(role_interface("nvidia_driver"), {"nvidia_driver_branch": 580})[0]["nvidia_driver_branch"] == "580"


def test_all_mistakes_are_told_at_once():
    refusal = refused(nvidia_sharing_gpus_per_pod="many", nvidia_mig_layot="x", nvidia_toolkit_runtime="containred")
    assert [one.thing for one in refusals_of(refusal)] == [
        "nvidia_toolkit_runtime",
        "nvidia_sharing_gpus_per_pod",
        "nvidia_mig_layot",
    ]
    assert refusal.message.count("\n") == 2
    assert str(refusal) == refusal.message


@pytest.mark.parametrize(
    "name",
    [
        "ansible_host",
        "nvidia",
        "my_nvidia_mig_layout",
        "nvidia_mig_layout_night",  # a site's own, from which it chooses
        "site_nvidia_mig_layout_night",
        "nvidia_driver_result",  # registered by the role
        "nvidia_toolkit_runtime_result",
        "gpu_facts_host",
        "gpu_kubernetes_cluster",  # of a role that is not asked for here
    ],
)
def test_variables_that_mean_something_else_are_left_alone(name):
    assert collected(**{name: "x"}) == collected()


def test_of_thousands_of_mistakes_in_a_role_some_are_named_and_the_rest_is_counted():
    with pytest.raises(VariablesRefused) as caught:
        collect({"gpu_facts_gpus": ["x"] * 20000}, lambda value: value)
    refusals = [one for one in caught.value.refusals if "gpu_facts" in one.thing]
    assert len(refusals) == 21
    assert "more values are invalid" in refusals[-1].reason


def test_a_single_refusal_stands_for_itself():
    refusal = Refused("thing", "reason")
    assert refusals_of(refusal) == (refusal,)


def test_an_interface_knows_what_the_tasks_register():
    interface = role_interface("gpu_facts")
    assert interface.registered >= {"gpu_facts_host", "gpu_facts_plan"}
    assert set(interface.defaults) == set(interface.options)


def test_a_role_without_files_has_an_empty_interface():
    assert role_interface("no_such_role") == role_variables.RoleInterface("no_such_role", {}, {}, frozenset())


def test_an_error_that_names_no_variable_is_told_for_the_role():
    interface = role_interface("nvidia_sharing")
    assert "role gpufleet.nvidia.nvidia_sharing" in role_variables._explained(interface, "something is wrong", {}).thing


def test_a_role_without_options_is_not_validated(monkeypatch):
    monkeypatch.setattr(
        role_variables,
        "role_interface",
        lambda role: role_variables.RoleInterface(role, {"plain_thing": 1}, {}, frozenset()),
    )
    role_variables._names.cache_clear()
    role_variables._meant.cache_clear()
    try:
        assert collect({"plain_thing": "x"}, lambda value: value, ("plain",)) == {"plain_thing": "x"}
    finally:
        role_variables._names.cache_clear()
        role_variables._meant.cache_clear()


def test_only_files_of_tasks_are_read_for_what_they_register(tmp_path):
    (tmp_path / "main.yml").write_text("- name: Read\n  register: found\n", encoding="utf-8")
    (tmp_path / "README").write_text("register: nothing\n", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    assert role_variables.registered(str(tmp_path)) == {"found"}
