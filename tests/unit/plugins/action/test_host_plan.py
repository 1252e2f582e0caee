# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.template import trust_as_template
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import StagePlan
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import descriptions
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import host_plan

from ...host_documents import UNLISTED_FACTS

GROUPS = {"all": ["gpu-1"], "gpu_hosts": ["gpu-1"], "training": ["gpu-1"]}


@pytest.fixture
def plan(call, bare_facts):
    def run(check_mode=False, facts=bare_facts, groups=GROUPS, show=None, **variables):
        arguments = {"facts": facts} if show is None else {"facts": facts, "show": show}
        everything = {"inventory_hostname": "gpu-1", "groups": groups, **variables}
        return call(host_plan, arguments, everything, check_mode)

    return run


def test_a_bare_host(plan):
    result, shown = plan()
    assert result["pool"] == "training"
    assert result["changed"] is False and "failed" not in result
    assert result["needed"] == ["driver", "toolkit", "runtime", "sharing"]
    assert list(result["stages"]) == ["driver", "toolkit", "runtime", "boot", "settings", "mig", "sharing", "dcgm"]
    assert shown.lines == []


@pytest.mark.parametrize(("check_mode", "show"), [(True, None), (False, True)])
def test_the_plan_is_shown_in_check_mode_or_on_request(plan, check_mode, show):
    _result, shown = plan(check_mode, show=show, nvidia_mig_strategy="mixed", nvidia_mig_layout="all-balanced")
    assert "  gpu-1: driver: install driver branch 580 (no driver is installed)" in shown.lines
    assert "  gpu-1: mig: partition GPU" in shown.text
    assert "the present instances are not known: libnvidia-ml.so.1 is not installed" in shown.text


def test_what_is_not_needed_is_said_as_well(plan):
    _result, shown = plan(True)
    assert "  gpu-1: mig: nothing to do" in shown.lines


def test_the_former_name_of_a_variable_warns(plan):
    _result, shown = plan(nvidia_driver_key_file="/k")
    assert (
        "nvidia_driver_key_file: its name is nvidia_driver_repository_key_file. The former name counts until 2.0.0."
        in shown.warnings
    )


def test_templates_are_rendered(plan):
    layout = trust_as_template("{{ layout_of_the_night }}")
    result, _shown = plan(nvidia_mig_strategy="mixed", nvidia_mig_layout=layout, layout_of_the_night="all-balanced")
    assert result["stages"]["mig"]["needed"]


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"nvidia_sharing_replicas": "many"}, "gpu-1: nvidia_sharing_replicas: 'many' must be an integer"),
        ({"nvidia_mig_layot": "x"}, "gpu-1: nvidia_mig_layot: no role"),
        ({"gpu_facts_pool": "batch"}, "gpu-1: gpu_facts_pool of gpu-1: no group below gpu_hosts is called batch"),
        (
            {"nvidia_mig_layout": [{"devices": "all", "instances": {"1g.11gb": 1}}], "nvidia_mig_strategy": "mixed"},
            "gpu-1: nvidia_mig_layout[0].instances['1g.11gb']",
        ),
        ({"facts": {"schema": 1, "pci": [], "gpus": None}}, "this host has no NVIDIA GPU on its PCI bus"),
    ],
)
def test_what_is_refused_names_host_and_variable_and_nothing_was_touched(plan, variables, message):
    result, _shown = plan(**variables)
    assert result["failed"]
    assert message in result["msg"]
    assert result["msg"].endswith("\nNothing was changed.")
    assert all(set(refusal) == {"thing", "reason", "remedy", "message"} for refusal in result["refusals"])
    assert "stages" not in result


def test_all_that_is_refused_is_told(plan):
    result, _shown = plan(nvidia_sharing_gpus_per_pod="many", nvidia_toolkit_runtime="containred")
    assert len(result["refusals"]) == 2
    assert result["msg"].count("gpu-1: ") == 2


def test_users_of_a_host_that_is_emptied_first_refuse_nothing(plan):
    given = {"facts": UNLISTED_FACTS, "nvidia_mig_strategy": "mixed"}
    result, _shown = plan(**given)
    assert "is in use by" in result["msg"] and "gpufleet.nvidia.upgrade" in result["msg"]
    result, _shown = plan(**given, __gpu_facts_emptied=True)
    assert "failed" not in result and "driver" in result["needed"]


@pytest.mark.parametrize(
    "refused", ["nvidia_driver_disruption", "nvidia_mig_disruption", "nvidia_sharing_mps_disruption"]
)
def test_on_a_host_that_is_emptied_first_every_stage_may_end_what_there_was(refused):
    assert descriptions.Description("training", {refused: "refuse"}).emptied().variables[refused] == "force"


def test_warnings_are_given(plan, monkeypatch):
    stage = StagePlan("mig", needed=False, warnings=("an empty GPU",))
    monkeypatch.setattr(descriptions, "plan_stages", lambda _facts, _desired: {"mig": stage})
    _result, shown = plan()
    assert shown.warnings == ["gpu-1: mig: an empty GPU"]


@pytest.mark.parametrize("facts", [None, "x", {}, {"schema": 2}])
def test_facts_of_another_kind_are_refused(plan, facts):
    result, _shown = plan(facts=facts)
    assert result["failed"]
    assert result["msg"].startswith("gpu-1: facts must be what")
