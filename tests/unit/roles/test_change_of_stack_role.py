# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A change of the stack whose device plugin serves the nodes: nothing leaves a node for it, what follows a failure, and how a run is continued."""

from __future__ import annotations

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.host_names import UPGRADE_STEPS

from .upgrade_harness import Site

# Each of them runs a whole playbook.
pytestmark = pytest.mark.slow

TO_RELEASES = {"gpu_kubernetes_stack": "device_plugin", "gpu_kubernetes_migrate_from": "gpu_operator"}
TO_OPERATOR = {"gpu_kubernetes_stack": "gpu_operator", "gpu_kubernetes_migrate_from": "device_plugin"}
TARGET = "device plugin of its own release"
#: No drain, nothing stopped or resumed, no role of the host: pods and what they use stay.
MOVED = ["a stack device_plugin"]
STEPS = [state for state in UPGRADE_STEPS if state != "rolling-back"]


@pytest.fixture
def site(tmp_path):
    found = Site(tmp_path)
    found.services("nvidia-dcgm")
    describe(found, **TO_RELEASES)
    return found


def describe(site, **variables):
    inventory = yaml.safe_load((site.folder / "inventory.yml").read_text())
    inventory["gpu_hosts"]["vars"].update(variables)
    (site.folder / "inventory.yml").write_text(yaml.safe_dump(inventory))


@pytest.mark.parametrize(
    ("variables", "stack", "target"),
    [
        (TO_RELEASES, "device_plugin", TARGET),
        pytest.param(TO_OPERATOR, "gpu_operator", "device plugin of the GPU Operator", marks=pytest.mark.by_name),
    ],
)
def test_one_node_after_the_other_changes_its_plugin_and_keeps_its_pods(site, variables, stack, target):
    describe(site, **variables)
    done = site.run("migrate")
    assert done.returncode == 0, done.stdout[-3000:]
    assert site.log == [f"a stack {stack}", f"b stack {stack}"]
    assert [(site.record(host)["state"], site.record(host)["to"]) for host in "ab"] == [("done", target)] * 2


#: What plan does for a plan that is saved, with what the hosts are here.
PLANNED = """
- hosts: gpu_hosts
  gather_facts: false
  vars: {__gpu_facts_emptied: true, __gpu_facts_playbook: migrate}
  tasks:
    - ansible.builtin.include_role: {name: gpufleet.nvidia.gpu_facts}
    - ansible.builtin.include_role: {name: gpufleet.nvidia.gpu_facts, tasks_from: ask.yml}
    - gpufleet.nvidia.fleet:
        {action: fleet_plan, hosts: "{{ ansible_play_hosts_all }}", playbook: migrate, out: "{{ inventory_dir }}/plan.json"}
      run_once: true
"""


def test_a_saved_plan_has_the_nodes_that_change_and_no_other_one_does(site):
    (site.folder / "planned.yml").write_text(PLANNED)
    held = ("-e", f"gpu_plan_apply={site.folder / 'plan.json'}")
    done = site.run(site.folder / "planned.yml")
    assert done.returncode == 0 and site.log == [], done.stdout[-3000:]
    text = (site.folder / "plan.json").read_text()
    assert text.count(f'{{"kind": "migrate_node", "stage": "node", "target": "{TARGET}"}}') == 2, text
    # To where it moves is another one now.
    describe(site, **TO_OPERATOR)
    refused = site.run("migrate", *held)
    assert refused.returncode != 0 and site.log == [] and not site.record("a")
    assert (
        "a, b: the plan: node: migrate the node: device plugin of the GPU Operator: it is not in the plan"
        in refused.stdout
    )
    describe(site, **TO_RELEASES)
    done = site.run("migrate", *held)
    assert done.returncode == 0 and site.log == [f"{host} stack device_plugin" for host in "ab"], done.stdout[-3000:]
    noted = [yaml.safe_load((site.folder / host / "plan.json").read_text()) for host in "ab"]
    assert all(one["applied"] for one in noted)


@pytest.mark.by_name
def test_a_node_that_fails_stays_cordoned_and_no_other_one_is_started(site):
    site.fail(a="stack device_plugin")
    assert site.run("migrate").returncode != 0
    assert site.log == MOVED and not site.record("b")
    assert (site.record("a")["state"], site.record("a")["failed_reason"]) == (
        "failed",
        "Have the device plugin of one stack leave, and that of the other come: stack device_plugin does not work",
    )
    site.fail()
    assert site.run("migrate", "--limit", "a", "-e", "gpu_upgrade_retry=true").returncode == 0
    assert site.log == MOVED and site.record("a")["state"] == "done"


@pytest.mark.parametrize(
    "state", [pytest.param(one, marks=[] if one == "installing" else pytest.mark.by_name) for one in STEPS]
)
def test_a_run_that_was_cut_off_at_any_step_is_continued(site, state):
    site.keep("a", state=state, to=TARGET)
    describe(site, stub_moved=STEPS.index(state) > STEPS.index("installing"))
    done = site.run("migrate", "--limit", "a")
    assert done.returncode == 0, done.stdout[-3000:]
    assert site.log == MOVED and site.record("a")["state"] == "done"


@pytest.mark.by_name
def test_a_node_that_was_moved_is_left_alone_and_check_mode_changes_nothing(site):
    describe(site, stub_moved=True)
    assert site.run("migrate").returncode == 0 and site.log == []
    describe(site, stub_moved=False)
    done = site.run("migrate", "--check")
    assert done.returncode == 0, done.stdout[-3000:]
    assert all(step.endswith("(check)") for step in site.log) and not site.record("a")
