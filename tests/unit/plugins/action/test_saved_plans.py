# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plan that C(plan) saves, C(site) and the turn of each host are held to, and each module that changes a host."""

from __future__ import annotations

import copy
import dataclasses
import random
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.schema import check_facts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.repair_plan import RepairPlan
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.repair_record import Action
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused, Step
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import descriptions, plan_file
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import (
    check_variables,
    fleet_plan,
    host_plan,
    plan_gate,
    site_gate,
)
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.descriptions import describe
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import repair
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.plan import NodeView
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_facts import ControllerAction, HostAction
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.planning import Planning, made_of
from ansible_collections.gpufleet.nvidia.tests.whole import examples

from ...golden import corpus

GROUPS = {"gpu_hosts": ["a", "b"], "training": ["a", "b"]}
EXACT = Step(Kind.INSTALL_DRIVER, "driver", "no driver is installed", (), {"branch": "580", "version": "580.178.04"})
NEWER = dataclasses.replace(EXACT, data={"branch": "580", "version": "580.180.02"})
#: What the module of the driver says in check mode, which asks the repository.
ASKED = {"nvidia_driver_result": {"steps": [EXACT.as_dict()], "changed": True}}


def parted(given):
    """Return the variables of a run, and the arguments of an action."""
    variables = {name: value for name, value in given.items() if name.startswith("gpu_")}
    return variables, {name: value for name, value in given.items() if name not in variables}


@pytest.fixture
def fleet(call, bare_facts, tmp_path):
    """The hosts of a run, which can be changed, and what runs actions on them."""
    hosts = {host: {"gpu_facts_host": {"gpu": copy.deepcopy(bare_facts)}, **ASKED} for host in ("a", "b")}
    path = str(tmp_path / "plan.json")

    def run(module, arguments, **variables):
        given = {"groups": GROUPS, "hostvars": hosts, "ansible_play_hosts_all": ["a", "b"], "ansible_run_tags": ["all"]}
        return call(module, arguments, {**given, **variables})

    def save(**given):
        variables, arguments = parted(given)
        return run(fleet_plan, {"out": path, "tree": "1234", "summary": True, **arguments}, **variables)

    def gate(**given):
        variables, arguments = parted(given)
        return run(plan_gate, {"playbook": "site", "hosts": ["a", "b"], "plan": path, **arguments}, **variables)[0]

    return SimpleNamespace(hosts=hosts, path=path, run=run, save=save, gate=gate)


def test_a_plan_is_saved_with_what_the_modules_said_and_shown_again(fleet):
    result, shown = fleet.save(author="the board")
    plan, digest = plan_file.opened(fleet.path)
    assert digest == result["digest"] and digest in shown.text
    assert (plan.author, plan.tree, plan.options) == ("the board", "1234", {"tags": ("all",)})
    assert plan.host("a").work[0].step == EXACT
    assert "driver: install driver 580.178.04" in shown.text
    result, again = fleet.run(fleet_plan, {"saved": fleet.path})
    assert result["digest"] == digest and "driver: install driver 580.178.04" in again.text
    assert "by the board" in again.text and "The files of the clusters have the digest 1234." in again.text


def test_only_hosts_with_work_are_asked(fleet):
    fleet.hosts["b"].clear()
    assert fleet.save(ask=True)[0]["todo"] == ["a"] and not Path(fleet.path).exists()
    # Where nobody has to be asked, the plan is saved at once.
    fleet.hosts["a"].clear()
    assert "todo" not in fleet.save(ask=True)[0] and Path(fleet.path).exists()


def test_a_plan_that_cannot_be_saved_or_shown_says_why(fleet):
    result, _shown = fleet.save(sign=["/bin/false", "{file}"])
    assert result["failed"] and result["msg"].endswith("No plan was written.")
    result, _shown = fleet.run(fleet_plan, {"saved": fleet.path})
    assert result["failed"] and "there is no such file" in result["msg"]


def test_site_does_what_the_plan_says(fleet):
    fleet.save()
    result = fleet.gate()
    assert "failed" not in result and result["refusals"] == []
    assert result["digest"] == digest_of(fleet)
    # Where no files are rendered, none are compared.
    assert "failed" not in fleet.gate(tree="1234")
    result = fleet.gate(tree="5678")
    assert result["failed"] and "with the digest 1234, and rendering them gives 5678" in result["msg"]


def test_each_host_is_read_and_planned_once_where_site_is_held_to_a_plan(fleet, monkeypatch):
    fleet.save()
    counted = []
    for name in ("read_facts", "plan_stages"):
        does = getattr(descriptions, name)
        monkeypatch.setattr(
            descriptions, name, lambda *given, name=name, does=does: counted.append(name) or does(*given)
        )
    asked = {"hosts": ["a", "b"], "plan": fleet.path, "tree": "1234"}
    result, _shown = fleet.run(site_gate, asked)
    assert sorted(counted) == ["plan_stages"] * 2 + ["read_facts"] * 2
    assert "failed" not in result and (result["todo"], result["digest"]) == (["a", "b"], digest_of(fleet))
    assert "rendering them gives 5678" in fleet.run(site_gate, {**asked, "tree": "5678"})[0]["msg"]
    assert fleet.run(site_gate, {**asked, "valid_for": 0})[0]["msg"].endswith("No host is changed.")
    # What is refused of a host is named beside what is not as the plan says.
    fleet.hosts["a"]["nvidia_driver_branch"] = "595"
    fleet.hosts["b"]["nvidia_mig_layot"] = "all-balanced"
    result, _shown = fleet.run(site_gate, asked)
    assert result["failed"] and "No host is changed" in result["msg"]
    assert result["refusals"][0]["hosts"] == ["b"] and "nvidia_mig_layot" in result["refusals"][0]["message"]
    assert ["a"] in [one["hosts"] for one in result["refusals"] if "variables have other values" in one["reason"]]


def test_site_is_refused_before_the_first_change_where_a_host_is_another_one(fleet):
    fleet.save()
    fleet.hosts["b"]["gpu_facts_host"]["gpu"]["host"]["kernel_headers"] = False
    result = fleet.gate()
    assert result["failed"] and 'b: the plan: before the step "install driver 580.178.04": facts' in result["msg"]
    assert "are others now: host.kernel_headers" in result["msg"] and "\na: " not in result["msg"]
    assert [refusal["hosts"] for refusal in result["refusals"]] == [["b"]]


def test_site_is_refused_where_a_variable_is_another_one_or_a_host_cannot_be_read(fleet):
    fleet.save()
    fleet.hosts["a"]["nvidia_driver_branch"] = "595"
    fleet.hosts["b"]["gpu_facts_host"] = {"failed": True, "msg": "it is down"}
    result = fleet.gate()
    assert "a: the plan: " in result["msg"] and "variables have other values: nvidia_driver_branch" in result["msg"]
    assert "b: the plan: it could not be read: it is down" in result["msg"]


def test_a_host_with_a_recommendation_is_held_to_it_too(fleet):
    recommended = {"gpu_recommend_seen": {"a": {"state": "1234", "evicts": [], "keeps": ["MIG-1"]}, "b": {}}}
    fleet.save(**recommended)
    assert "failed" not in fleet.gate(**recommended)
    assert "failed" not in turn(fleet, **recommended)
    recommended["gpu_recommend_seen"]["a"]["evicts"] = ["default/other"]
    said = 'a: the plan: before the step "install driver 580.178.04": variables have other values: gpu_recommend_seen'
    for result in (fleet.gate(**recommended), turn(fleet, **recommended)):
        assert result["failed"] and said in result["msg"] and "\nb: " not in result["msg"]


def test_a_host_of_which_no_fact_was_read_is_no_other_one(fleet):
    for host in fleet.hosts.values():
        host["nvidia_driver_lock_timeout"] = "soon"
    fleet.save()
    assert plan_file.opened(fleet.path)[0].host("a").facts is None
    assert "failed" not in fleet.gate()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"valid_for": 0}, "gpu_plan_valid_for"),
        ({"valid_for": float("nan")}, "gpu_plan_valid_for"),
        ({"verify": ["/bin/false", "{file}"]}, "gpu_plan_verify_command"),
    ],
)
def test_site_is_refused_where_the_plan_itself_is_not_valid(fleet, arguments, said):
    fleet.save()
    result = fleet.gate(**arguments)
    assert result["failed"] and said in result["msg"] and result["msg"].endswith("No host is changed.")


def digest_of(fleet):
    return plan_file.opened(fleet.path)[1]


def turn(fleet, host="a", **variables):
    facts = fleet.hosts[host]["gpu_facts_host"]["gpu"]
    # As the playbooks have it for the turn of a host.
    variables = {"gpu_facts_skip_refused_hosts": True, **variables}
    return fleet.run(host_plan, {"facts": facts}, inventory_hostname=host, **held(fleet), **variables)[0]


def test_the_turn_of_a_host_begins_with_the_plan_and_goes_on_with_it(fleet):
    digest = fleet.save()[0]["digest"]
    assert turn(fleet)["plan_begins"] == digest
    facts = fleet.hosts["a"]["gpu_facts_host"]["gpu"]
    facts["host"]["kernel_headers"] = False
    result = turn(fleet)
    assert result["failed"] and "host.kernel_headers" in result["msg"]
    # What it has changed since is no difference.
    facts["recorded"] = {"plan_begun": digest}
    result = turn(fleet)
    assert "failed" not in result and "plan_begins" not in result
    # Another plan in its place was not begun here.
    fleet.save(author="somebody else")
    assert "plan_begins" in turn(fleet)
    facts["host"]["kernel_headers"] = True
    assert turn(fleet)["failed"]


def test_a_plan_that_was_applied_to_a_host_is_not_applied_again(fleet):
    digest = fleet.save()[0]["digest"]
    fleet.hosts["b"]["gpu_facts_host"]["gpu"]["recorded"] = {"plan_applied": digest}
    said = (
        "it was applied to the host already, and since then: driver: install driver 580.178.04: it is not in the plan"
    )
    assert f"b: the plan: {said}" in fleet.gate()["msg"] and "\na: " not in fleet.gate()["msg"]
    assert turn(fleet, "b")["failed"] and "failed" not in turn(fleet)
    # Nor does a host begin it again that has its turn though nothing is left.
    assert turn(fleet, "b", __gpu_facts_emptied=True)["plan_begins"] == "" != turn(fleet)["plan_begins"]
    # The files of the clusters may follow what it has changed.
    assert "rendering them" not in fleet.gate(tree="5678")["msg"]


def held(fleet):
    return {"gpu_plan_apply": fleet.path, "gpu_plan_gate": {"digest": digest_of(fleet)}}


class Asking(HostAction):
    """An action whose module answers with steps, and says when it was really run."""

    def __init__(self, steps, check_mode=False, module="driver", **answer):
        self._task = SimpleNamespace(action=f"gpufleet.nvidia.{module}", check_mode=check_mode)
        self._templar = SimpleNamespace(template=lambda value: value)
        self._answer = {**answer, "steps": [step.as_dict() for step in steps]}
        self.asked = []

    def ask(self, task_vars):  # noqa: ARG002
        self.asked.append(self._task.check_mode)
        return self._answer


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("580.178.04", ""),
        ("580.180.02", 'install driver 580.180.02: version is "580.178.04" in the plan, and "580.180.02" now'),
    ],
)
def test_a_module_is_stopped_before_it_does_what_the_plan_does_not_have(fleet, version, said):
    fleet.save()
    action = Asking([Step(EXACT.kind, EXACT.target, "", (), {**EXACT.data, "version": version})])
    found = action._beyond_plan(held(fleet), "a")
    assert action.asked == [True] and action._task.check_mode is False
    assert bool(found) is bool(said) and (not said or (said in found["msg"] and "before that" in found["msg"]))


def test_a_driver_that_only_a_reboot_would_load_may_be_reloaded_once_nobody_has_it_open(fleet):
    """As on a node whose device plugin has it open when it is planned, and leaves for the change."""
    user, lost = "nvidia-device-p (PID 7) uses the driver", "MIG instances, which do not survive a reload"
    data = {"version": "580.178.04"}
    load = Step(Kind.RELOAD_DRIVER, "driver", "", (lost, user), {**data, "reboot": "needed"})
    for host in fleet.hosts.values():
        host["nvidia_driver_result"] = {
            **ASKED["nvidia_driver_result"],
            "pending": [{**load.as_dict(), "waits_for": [user]}],
        }
    fleet.save()
    for one, said in (
        (dataclasses.replace(load, disturbs=(lost,), data=data), ""),
        (dataclasses.replace(load, disturbs=(lost,), data={"version": "580.180.02"}), '"580.180.02" now'),
        (dataclasses.replace(load, disturbs=(lost, "train (PID 9)")), "it disturbs train (PID 9)"),
    ):
        found = Asking([one])._beyond_plan(held(fleet), "a")
        assert bool(found) is bool(said) and said in found.get("msg", ""), found
    # That another one has it open by then is no other plan.
    pending = fleet.hosts["b"]["nvidia_driver_result"]["pending"][0]
    pending.update(
        disturbs=[lost, "nvidia-device-p (PID 8) uses the driver"],
        waits_for=["nvidia-device-p (PID 8) uses the driver"],
    )
    assert "failed" not in fleet.gate()


def test_a_module_is_not_asked_twice_without_a_plan_nor_in_check_mode(fleet):
    action = Asking([])
    assert action._beyond_plan({}, "a") == {} and action.asked == []
    fleet.save()
    action = Asking([], check_mode=True)
    before = {"gpu_plan_apply": fleet.path}
    assert action._beyond_plan(before, "a") == {} and action.asked == []
    # Nor what brings back what does not work as planned.
    action = Asking([NEWER])
    assert action._beyond_plan({**held(fleet), "__gpu_facts_rolled_back": True}, "a") == {} and action.asked == []


def test_a_module_says_in_check_mode_what_is_not_in_the_plan_once_the_run_is_held_to_it(fleet):
    fleet.save()
    for steps, refused in (([EXACT], False), ([NEWER], True)):
        action = Asking(steps, check_mode=True)
        assert bool(action._beyond_plan(held(fleet), "a").get("failed")) == refused
        assert action.asked == [True] and action._task.check_mode is True


def test_a_module_that_fails_in_check_mode_is_not_run(fleet):
    fleet.save()
    failing = {"failed": True, "msg": "no repository answers"}
    assert Asking([], **failing)._beyond_plan(held(fleet), "a")["msg"] == "no repository answers"


@pytest.mark.parametrize("kind", [ControllerAction, HostAction])
def test_what_is_only_asked_is_no_change_in_the_recap(call, kind):
    asked = type("ActionModule", (kind,), {"act": lambda *_: {"changed": True}, "ask": lambda *_: {"changed": True}})
    for given, counted in (({}, True), ({"__gpu_facts_asked": True}, False)):
        result, _shown = call(SimpleNamespace(ActionModule=asked), {}, given)
        # What would follow a change is asked, too.
        assert (result["changed"], result.get("would_change", False)) == (counted, not counted)


def test_what_follows_a_change_is_asked_where_the_change_was_only_asked():
    """Each stage that a role begins because another one changed something."""
    roles = Path(__file__).parents[4] / "roles"
    stages = "|".join(registered for _stage, registered in plan_file.STAGE_OF.values())
    ask = yaml.safe_load((roles / "gpu_facts/tasks/ask.yml").read_text())
    assert [one["vars"]["__gpu_facts_asked"] for one in ask] == [True]
    places = [roles / "gpu_facts/vars/main.yml"]
    places += [roles / f"nvidia_{name}/tasks/main.yml" for name in ("toolkit", "settings", "mig", "sharing", "dcgm")]
    texts = [path.read_text() for path in places]
    follows = [re.findall(rf"({stages})\S*(?: \| default\({{}}\)\))? is changed", text) for text in texts]
    assert [len(found) for found in follows] == [1, 1, 0, 0, 2, 0]
    assert [text.count(".would_change | default(false)") for text in texts] == [len(found) for found in follows]


@pytest.mark.parametrize(
    ("playbook", "taken"),
    [
        ("site", True),
        ("verify", True),
        ("upgrade", True),
        ("repartition", True),
        ("heal", True),
        ("migrate", True),
        ("remove", False),
        ("rollback", True),
        ("plan", False),
    ],
)
def test_a_playbook_that_cannot_be_held_to_a_plan_says_so(fleet, playbook, taken):
    result, _shown = fleet.run(check_variables, {"playbook": playbook}, gpu_plan_apply=fleet.path, ansible_run_tags=[])
    assert ("cannot be held to a saved plan" in result.get("msg", "")) is not taken


@pytest.mark.parametrize("given", [{"playbook": "upgrade"}, {"playbook": "plan", "gpu_plan_for": "upgrade"}])
@pytest.mark.parametrize(("kernel", "taken"), [("keep", True), ("latest", False)])
def test_no_plan_has_steps_of_kernels(fleet, given, kernel, taken):
    variables, arguments = parted({"gpu_upgrade_kernel": kernel, **given})
    variables |= {} if "gpu_plan_for" in given else {"gpu_plan_apply": fleet.path}
    result, _shown = fleet.run(check_variables, arguments, ansible_run_tags=[], **variables)
    assert ("saved plans have no steps of kernels" in result.get("msg", "")) is not taken


@pytest.mark.parametrize("given", [{"playbook": "migrate"}, {"playbook": "plan", "gpu_plan_for": "migrate"}])
def test_no_plan_has_what_the_gpu_operator_hands_over(fleet, given):
    """Not even of one host among others."""
    variables, arguments = parted(given)
    variables |= {} if "gpu_plan_for" in given else {"gpu_plan_apply": fleet.path}
    for handed_over in (False, True):
        fleet.hosts["b"]["nvidia_driver_migrate_from"] = "gpu_operator" if handed_over else ""
        result, _shown = fleet.run(
            check_variables, {"hosts": ["a", "b"], **arguments}, ansible_run_tags=[], **variables
        )
        said = "b: nvidia_driver_migrate_from: what the host needs is known only when the GPU Operator's containers"
        assert (said in result.get("msg", "")) is handed_over, result


#: What the role says that empties a node, for each playbook that does.
EMPTIED = {
    "upgrade": ("__gpu_node_evicted", {"changed": True, "evicted": ["jobs/one"]}),
    "repartition": ("__gpu_repartition_leaving", {"changed": True, "evicted": ["jobs/one"]}),
    "migrate": ("__gpu_node_evicted", {"changed": True, "evicted": ["jobs/one"]}),
    "rollback": ("__gpu_node_drained", {"changed": True, "evicted": ["jobs/one"]}),
}
LAYOUT = {
    "steps": [
        Step(
            Kind.DESTROY_GPU_INSTANCE,
            "GPU-1",
            "",
            (),
            {"index": 0, "id": 3, "profile": "1g.10gb", "start": 0, "size": 1},
        ).as_dict()
    ]
}


@pytest.fixture(params=EMPTIED)
def emptied(fleet, request):
    """Hosts that a playbook empties first, with the pods that it evicts."""
    name, answer = EMPTIED[request.param]
    for host in fleet.hosts.values():
        host |= {"nvidia_mig_layout": "all-balanced", "nvidia_mig_strategy": "mixed", name: copy.deepcopy(answer)}
        host["__gpu_repartition_mig_plan"] = copy.deepcopy(LAYOUT)
        host["__gpu_upgrade_asked"] = {"steps": [{"kind": "migrate_node", "target": "GPUs served by dra"}]}
    fleet.save(playbook=request.param)
    return SimpleNamespace(playbook=request.param, name=name, gate=lambda: fleet.gate(playbook=request.param))


def test_who_is_evicted_is_in_the_plan_to_the_pod(fleet, emptied):
    plan, _digest = plan_file.opened(fleet.path)
    assert (plan.playbook, plan.host("a").pods) == (emptied.playbook, ("jobs/one",))
    stages = {one.stage for one in plan.host("a").work}
    meant = {"upgrade": {"driver", "mig"}, "rollback": {"driver", "mig"}, "repartition": {"mig"}, "migrate": {"node"}}
    assert stages >= meant[emptied.playbook] and ("driver" in stages) == ("driver" in meant[emptied.playbook])
    assert "failed" not in emptied.gate()
    # One that left is no difference, one that arrived is refused by its name, before anything is changed.
    fleet.hosts["b"][emptied.name]["evicted"] = []
    assert "failed" not in emptied.gate()
    fleet.hosts["b"][emptied.name]["evicted"] = ["jobs/one", "jobs/two"]
    result = emptied.gate()
    assert result["failed"] and "b: the plan: jobs/two would be evicted, which the plan does not have" in result["msg"]
    assert [refusal["hosts"] for refusal in result["refusals"]] == [["b"]]


def test_who_uses_a_node_and_is_not_evicted_is_not_shown_as_disturbed(fleet, monkeypatch):
    node = NodeView("a", pods=("jobs/one", "jobs/stays"))
    monkeypatch.setattr(fleet_plan._ClusterNow, "read", lambda *_: SimpleNamespace(view=lambda *_: node))
    name, answer = EMPTIED["repartition"]
    asked = copy.deepcopy(LAYOUT)
    asked["steps"][0]["disturbs"] = ["pod that nvidia_mig_busy_instances names"]
    fleet.hosts["a"] |= {name: answer, "__gpu_repartition_mig_plan": asked, "nvidia_mig_layout": "all-balanced"}
    result, shown = fleet.save(playbook="repartition", summary=False)
    assert result["plan"]["hosts"]["a"]["disturbs"] == ["pod that nvidia_mig_busy_instances names", "pod jobs/one"]
    assert "jobs/stays" not in shown.text


def test_a_plan_is_for_one_playbook(fleet, emptied):
    assert f"it is for {emptied.playbook}, and this is site" in fleet.gate()["msg"]


def test_pods_that_arrived_since_are_not_evicted_in_the_turn_of_the_host(fleet, emptied):
    assert emptied.gate()["digest"] == digest_of(fleet)
    variables = {**held(fleet), "inventory_hostname": "a"}
    plan_file.unannounced(variables, fleet.path, ["jobs/one"])
    with pytest.raises(Refused, match="jobs/two would be evicted, which the plan does not have"):
        plan_file.unannounced(variables, fleet.path, ["jobs/one", "jobs/two"])
    # Its other steps are compared with what the modules say, which know who uses it.
    result = fleet.run(
        host_plan,
        {"facts": fleet.hosts["a"]["gpu_facts_host"]["gpu"]},
        __gpu_facts_emptied=True,
        **{**fleet.hosts["a"], **variables},
    )[0]
    assert "failed" not in result and result["plan_begins"] == digest_of(fleet)


# The others take all instances.
@pytest.mark.parametrize("emptied", ["repartition"], indirect=True)
def test_repartition_takes_no_other_instance_than_the_plan_has(fleet, emptied):
    asked = fleet.hosts["a"]["__gpu_repartition_mig_plan"]["steps"][0]
    # A pod that arrived is named where it is evicted, and not by the variable that has its device for the module.
    asked["disturbs"] = ["pod that nvidia_mig_busy_instances names"]
    fleet.hosts["a"][emptied.name]["evicted"] = ["jobs/one", "jobs/two"]
    (said,) = emptied.gate()["refusals"]
    assert "jobs/two would be evicted" in said["reason"] and "nvidia_mig_busy_instances" not in emptied.gate()["msg"]
    asked["data"]["id"] = 5
    assert "id is 3 in the plan, and 5 now" in emptied.gate()["msg"]


def test_a_rollback_does_what_the_modules_say_of_before_and_not_what_is_described(fleet):
    """The bare hosts are to get a driver and a toolkit; whoever rolls them back wants neither."""
    back = Step(Kind.DOWNGRADE_DRIVER, "driver", "", (), {"before": "595.1", "version": "580.1"})
    kernel = Step(Kind.BOOT_KERNEL_ONCE, "6.1.0-1-amd64", "", (), {})
    for host in fleet.hosts.values():
        host["nvidia_driver_result"] = {"steps": [back.as_dict()]}
        host["__gpu_upgrade_back_to_kernel"] = {"steps": [kernel.as_dict()]}
    # A host has to be asked whose description wants nothing, and none that cannot be read.
    assert fleet.save(playbook="rollback", ask=True)[0]["todo"] == ["a", "b"]
    fleet.save(playbook="rollback")
    plan, _digest = plan_file.opened(fleet.path)
    assert {one.stage: one.kind for one in plan.host("a").work if one.step} == {
        "driver": Kind.DOWNGRADE_DRIVER, "kernel": Kind.BOOT_KERNEL_ONCE
    }  # fmt: skip
    assert "failed" not in fleet.gate(playbook="rollback")
    answer = dataclasses.replace(kernel, target="6.1.0-2-amd64").as_dict()
    fleet.hosts["b"]["__gpu_upgrade_back_to_kernel"] = {"steps": [answer]}
    said = fleet.gate(playbook="rollback")["msg"]
    assert "b: the plan: kernel: boot kernel 6.1.0-2-amd64 the next time: it is not in the plan" in said
    # So is the module that has GRUB boot it.
    assert plan_file.beyond(held(fleet), fleet.path, "a", "boot_kernel", {"steps": [kernel.as_dict()]}) == []
    assert plan_file.beyond(held(fleet), fleet.path, "a", "boot_kernel", {"steps": [answer]})


def test_what_cannot_be_evicted_is_in_the_plan(fleet):
    for host in fleet.hosts.values():
        host["__gpu_node_evicted"] = {"failed": True, "evicted": [], "msg": "jobs/one: it has no controller"}
    shown = fleet.save(playbook="upgrade")[1]
    assert "they cannot be evicted: jobs/one: it has no controller" in shown.text


@cache
def planned_hosts():
    """Return recorded hosts with work: what their stages would do, and the plan."""
    found = {}
    for name, host in corpus.hosts().items():
        one = Planning(describe("a", host.variables, {"training": ["a"]}), check_facts(host.facts), host.facts)
        stages = {stage: list(plan.steps) for stage, plan in one.stages.items() if plan.steps}
        if stages and not any(plan.refusals for plan in one.stages.values()):
            found[name] = stages, made_of({"a": (one, {})}, {})
    return found


def newer(step, chance, exact):
    """Return a step as it is when something else has changed since: other data, somebody who is in the way, another thing, or more."""
    data = {name: value for name, value in step.data.items() if value not in (None, "")}
    others = [dataclasses.replace(step, disturbs=(*step.disturbs, "pod default/arrived"))]
    others += [dataclasses.replace(step, target=f"{step.target}-other")]
    others += [dataclasses.replace(step, data={**step.data, name: "another"}) for name in data]
    others += [dataclasses.replace(step, data={**step.data, "besides": True})] if exact else []
    return chance.choice(others)


def test_no_run_that_is_killed_does_what_the_plan_does_not_have_and_the_next_one_finishes_it(tmp_path):
    """Runs are killed after any step; before the next one, what a module would do may have become something else."""
    module_of = {stage: module for module, (stage, _registered) in plan_file.STAGE_OF.items()}
    kills = finished = stopped = 0
    names, seed = sorted(planned_hosts()), 0
    while kills < examples(10_000):
        chance, seed = random.Random(seed), seed + 1
        stages, plan = planned_hosts()[chance.choice(names)]
        path = str(tmp_path / "plan.json")
        given = {"gpu_plan_apply": path, "gpu_plan_gate": {"digest": plan_file.write(path, plan, [])}}
        exact = {stage: not one.unknown for stage, one in plan.host("a").stages.items()}
        meant = [(stage, step) for stage, steps in stages.items() for step in steps]
        left, done = list(meant), []
        while left:
            alive = chance.randrange(len(left) + 1)
            kills += alive < len(left)
            drifts = chance.random() < 0.2
            for stage in dict.fromkeys(stage for stage, _step in left):
                mine = [step for of, step in left if of == stage]
                would = [newer(mine[0], chance, exact[stage]), *mine[1:]] if drifts else mine
                refused = Asking(would, module=module_of[stage])._beyond_plan(given, "a")
                assert bool(refused) == drifts, (stage, would, refused)
                stopped += drifts
                drifts = False
                if refused:
                    # Nothing of the stage, and none after it.
                    break
                did, alive = mine[:alive], alive - len(mine[:alive])
                done += [(stage, step) for step in did]
                left = left[len(did) :]
                if len(did) < len(mine):
                    break
        assert done == meant
        finished += 1
    assert finished and stopped


def test_a_repair_is_the_one_of_the_plan_and_what_was_begun_is_brought_to_its_end(fleet):
    def planned(host, *gpus):
        one = RepairPlan(Action.RESET_GPU if gpus else Action.NOTHING, gpus=gpus, emptied=gpus, resumed=not gpus)
        fleet.hosts[host]["__gpu_heal_asked"] = {"steps": [step.as_dict() for step in repair.steps(one, [])]}

    for host in fleet.hosts:
        planned(host, "0000:18:00.0")
        fleet.hosts[host]["__gpu_heal_evicted"] = {"evicted": ["jobs/one"]}
    assert fleet.save(playbook="heal", ask=True)[0]["todo"] == ["a", "b"]
    digest = fleet.save(playbook="heal")[0]["digest"]
    plan, _digest = plan_file.opened(fleet.path)
    # Whatever else the description wants is none of it.
    assert [one.kind for one in plan.host("a").work] == [Kind.REPAIR_HOST] and plan.host("a").pods == ("jobs/one",)
    assert "failed" not in fleet.gate(playbook="heal")
    planned("b", "0000:18:00.0", "0000:2a:00.0")
    assert "b: the plan: repair: repair the host: reset_gpu: emptied is" in fleet.gate(playbook="heal")["msg"]
    planned("b")
    said = "b: the plan: repair: prove the host and return it to service: it is not in the plan"
    assert said in fleet.gate(playbook="heal")["msg"]
    fleet.hosts["b"]["gpu_facts_host"]["gpu"]["recorded"] = {"plan_begun": digest}
    assert "failed" not in fleet.gate(playbook="heal")
    # A host that is not repaired, or not any more, does nothing.
    fleet.hosts["b"]["__gpu_heal_asked"] = {"steps": []}
    assert "failed" not in fleet.gate(playbook="heal")


def test_the_tree_of_a_host_that_was_not_begun_is_compared_after_a_run_that_was_cut_off(fleet):
    def rendered(**of_hosts):
        return {"gpu_kubernetes_result": {"digest": "1234", "of_hosts": of_hosts}}

    digest = fleet.save(**rendered(a="aa", b="bb"))[0]["digest"]
    assert [plan_file.opened(fleet.path)[0].host(host).tree for host in "ab"] == ["aa", "bb"]
    fleet.hosts["b"]["gpu_facts_host"]["gpu"]["recorded"] = {"plan_begun": digest}
    # What was begun changes its own part of the files, and their digest.
    assert "failed" not in fleet.gate(tree="5678", **rendered(a="aa", b="b2"))
    result = fleet.gate(tree="5678", **rendered(a="a2", b="b2"))
    assert "a: the files of the clusters: what they say of its node is not what the plan was made for" in result["msg"]
    assert [refusal["hosts"] for refusal in result["refusals"]] == [["a"]]
    # Where none are rendered, none are compared.
    assert "failed" not in fleet.gate()
