# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action render through ansible-playbook: check mode, diff, second run, a change by hand, facts that are kept."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import plan_file
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet import saved_plan

from ....warm_ansible import run as run_ansible

#: Each case runs ansible-playbook several times.
pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[4]

INVENTORY = """
gpu_hosts:
  children:
    shared:
      hosts:
        gpu-[1:2]:
      vars:
        gpu_facts_gpus: [{board: l40s-48gb, count: 4}]
        nvidia_sharing_mode: mps
        nvidia_sharing_memory_slice: "{{ slice }}"
        slice: 4GiB
"""

PLAYBOOK = """
- hosts: gpu_hosts
  gather_facts: false
  tasks:
    - ansible.builtin.set_fact:
        gpu_facts_host: "{{ facts }}"
      when: facts is defined
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - gpufleet.nvidia.render:
        output_directory: "{{ output }}"
        overwrite: "{{ overwrite | default(omit) }}"
        facts_directory: "{{ facts_directory | default(omit) }}"
        remove_nodes: "{{ remove_nodes | default(omit) }}"
        remove_clusters: "{{ remove_clusters | default(omit) }}"
        hosts: "{{ hosts_of_run | default([]) }}"
      register: answer
      ignore_errors: true
    - ansible.builtin.copy:
        content: "{{ answer | to_json }}"
        dest: "{{ answer_path }}"
        mode: "0600"
      check_mode: false
      diff: false
"""


@pytest.fixture
def render(tmp_path):
    """Return a function that renders and returns what the action answered."""
    (tmp_path / "inventory.yml").write_text(INVENTORY)
    answer = tmp_path / "answer.json"

    def run(*arguments, inventory=str(tmp_path / "inventory.yml"), play=PLAYBOOK, **extra):
        (tmp_path / "play.yml").write_text(play)
        extra = {"output": str(tmp_path / "out"), "answer_path": str(answer), **extra}
        command = [
            str(Path(sys.executable).parent / "ansible-playbook"),
            "-i",
            inventory,
            str(tmp_path / "play.yml"),
            "-e",
            json.dumps(extra),
            *arguments,
        ]
        environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "build" / "collections")}
        environment.pop("ANSIBLE_CONFIG", None)
        done = run_ansible(command, environment, tmp_path)
        assert answer.exists(), done.stdout + done.stderr
        result = json.loads(answer.read_text())
        answer.unlink()
        return result

    return run


def test_the_life_of_a_tree(render, tmp_path):
    planned = render("--check", "--diff")
    assert planned["changed"], planned
    assert not (tmp_path / "out").exists()
    assert {item["after_header"] for item in planned["diff"]} == {item["path"] for item in planned["changes"]}

    first = render()
    assert first["changes"] == planned["changes"]
    assert first["clusters"]["cluster"]["configurations"] == {
        "shared": {"nodes": 2, "resources": {"nvidia.com/gpu": 44}}
    }
    assert "diff" not in first
    assert not render()["changed"]
    limited = render("--limit", "gpu-1,localhost")
    assert not limited["changed"], "a limited run renders the hosts that it does not touch as well"
    assert limited["clusters"] == first["clusters"]

    changed = render(slice="8GiB")
    assert {"action": "update", "path": "clusters/cluster/capacity.json"} in changed["changes"]

    (tmp_path / "out/clusters/cluster/README.md").write_text("by hand\n")
    refused = render()
    assert refused["failed"]
    assert refused["edited"] == ["clusters/cluster/README.md"]
    assert "gpu_kubernetes_overwrite" in refused["msg"]
    assert not render(overwrite=True).get("failed")


def several(folder, cluster, pool, *hosts, **variables):
    """An inventory of its own, as another team has it."""
    path = folder / f"{cluster}.yml"
    own = {
        "gpu_kubernetes_cluster": cluster,
        "gpu_facts_gpus": [{"board": "l40s-48gb", "count": 4}],
        **variables,
    }
    of_pool = {"hosts": {host: {} for host in hosts}, "vars": own}
    path.write_text(json.dumps({"gpu_hosts": {"children": {pool: of_pool}}}))
    return str(path)


@pytest.mark.by_name
def test_one_tree_has_the_clusters_of_several_inventories(render, tmp_path):
    east = several(tmp_path, "east", "training", *(f"e{number}" for number in range(6)))
    west = several(tmp_path, "west", "serving", "w1", "w2")
    assert not render(inventory=east).get("failed")
    answer = render(inventory=west)
    assert not answer.get("failed") and answer["others"] == ["east"]
    assert {change["path"].split("/")[1] for change in answer["changes"]} == {"west"}
    assert not render(inventory=east)["changed"]
    # What the refusal about lost nodes names allows it for the clusters of this inventory, and touches no other.
    less = several(tmp_path, "east", "training", "e0")
    refused = render(inventory=less)
    assert refused["failed"] and "5 of the 6 nodes" in refused["msg"]
    assert not render(inventory=less, remove_nodes=True).get("failed")
    assert (tmp_path / "out/clusters/west/capacity.json").exists()
    # What is wrong there is no business of this inventory.
    capacity = tmp_path / "out/clusters/west/capacity.json"
    text = capacity.read_text()
    capacity.write_text("{")
    assert render(inventory=less)["others"] == ["west"]
    capacity.write_text(text)
    # By its name, and not while somebody describes it.
    assert "hosts of this inventory" in render(inventory=less, remove_clusters=["east"])["msg"]
    answer = render("--check", inventory=less, remove_clusters=["west"])
    assert {change["action"] for change in answer["changes"]} == {"remove"}
    assert (tmp_path / "out/clusters/west/capacity.json").exists()
    assert not render(inventory=less, remove_clusters=["west"]).get("failed")
    assert sorted(path.name for path in (tmp_path / "out/clusters").iterdir()) == ["east"]
    assert not render(inventory=less, remove_clusters=["west"])["changed"], "it can be repeated"


@pytest.mark.by_name
def test_a_slurm_cluster_loses_hosts_to_another_and_goes_by_its_name(render, tmp_path):
    def inventory(**clusters):
        path = tmp_path / "slurm.json"
        pools = {
            pool: {"hosts": {host: {} for host in hosts}, "vars": {"gpu_slurm_cluster": clusters[pool]}}
            for pool, hosts in {"a": ["l1", "l2", "l3"], "b": ["l4"]}.items()
        }
        own = {"gpu_kubernetes_cluster": "", "gpu_facts_gpus": [{"board": "l40s-48gb", "count": 4}]}
        path.write_text(json.dumps({"gpu_hosts": {"children": pools, "vars": own}}))
        return str(path)

    assert not render(inventory=inventory(a="hpc", b="hpc")).get("failed")
    # Three of four nodes leave the cluster, and no host leaves the inventory.
    answer = render(inventory=inventory(a="viz", b="hpc"))
    assert {name: list(one["nodes"]) for name, one in answer["slurm"].items()} == {
        "hpc": ["l4"],
        "viz": ["l1", "l2", "l3"],
    }
    left = inventory(a="viz", b="viz")
    assert render(inventory=left)["others"] == ["slurm/hpc"]
    assert "hosts of this inventory" in render(inventory=left, remove_clusters=["viz"])["msg"]
    assert not render(inventory=left, remove_clusters=["hpc"])["others"]
    assert [path.name for path in (tmp_path / "out/slurm").iterdir()] == ["viz"]


@pytest.mark.by_name
def test_what_a_new_layout_has_to_know_of_quotas_is_of_the_inventory_and_a_broken_file_of_them_is_named(
    render, tmp_path
):
    share = {"team": "blue", "namespaces": ["blue"], "shares": [{"pool": "training", "percent": 50}]}
    inventories = {
        name: several(
            tmp_path, name, "training", f"{name}-1", gpu_kubernetes_quotas=quotas, gpu_kubernetes_gitops="none"
        )
        for name, quotas in (("with", [share]), ("without", []))
    }
    first = render(inventory=inventories["with"])["quotas"]
    assert list(first) == ["with"] and first["with"]["hosts"] == ["with-1"] and first["with"]["gitops"] == ""
    path = tmp_path / "out" / first["with"]["file"]
    assert path.exists()
    for broken in ("{", "null", "[1]"):
        path.write_text(broken)
        refused = render(inventory=inventories["with"])
        assert refused["failed"] and first["with"]["file"] in refused["msg"] and "quotas" not in refused
        assert render(inventory=inventories["with"], overwrite=True)["quotas"] == first
    assert render(inventory=inventories["without"])["quotas"] == {}


CHECK = """
- hosts: gpu_hosts
  connection: local
  gather_facts: false
  vars:
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
  tasks:
    - gpufleet.nvidia.fleet:
        action: check_variables
        playbook: "{{ playbook }}"
      run_once: true
      register: answer
      ignore_errors: true
    - ansible.builtin.copy:
        content: "{{ answer | to_json }}"
        dest: "{{ answer_path }}"
        mode: "0600"
      run_once: true
"""


@pytest.mark.by_name
def test_nodes_that_the_inventory_lacks_are_named_before_a_host_is_read(render, tmp_path):
    """By their names: this run reads no host."""
    out = {"gpu_kubernetes_output_directory": str(tmp_path / "out")}
    whole = several(tmp_path, "east", "shared", *(f"gpu-{number}" for number in range(1, 5)))
    assert not render(inventory=whole).get("failed")
    (tmp_path / "part").mkdir()
    part = several(tmp_path / "part", "east", "shared", "gpu-1")
    for playbook in ("site", "repartition"):
        refused = render(inventory=part, play=CHECK, playbook=playbook, **out)
        assert "3 of the 4 nodes in the tree are not in this inventory" in refused["msg"], refused
    assert not render(inventory=part, play=CHECK, playbook="verify", **out).get("failed")
    assert not render("--skip-tags", "cluster", inventory=part, play=CHECK, playbook="site", **out).get("failed")
    allowed = render(inventory=part, play=CHECK, playbook="site", gpu_kubernetes_remove_nodes=True, **out)
    assert not allowed.get("failed"), allowed
    assert not render("--limit", "gpu-1", inventory=whole, play=CHECK, playbook="site", **out).get("failed")


PLAN = """
- hosts: gpu_hosts
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.import_role:
        name: gpufleet.nvidia.gpu_kubernetes
        tasks_from: compare
"""
RENDER = """
- ansible.builtin.import_playbook: gpufleet.nvidia.render
"""
RESULT = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.copy:
        content: "{{ (hostvars['gpu-1'].gpu_kubernetes_result | default(gpu_kubernetes_result)) | to_json }}"
        dest: "{{ answer_path }}"
        mode: "0600"
      check_mode: false
"""
PLACES = {
    "all": ("group_vars/all.yml",),
    "gpu_hosts": ("group_vars/gpu_hosts.yml",),
    "gpu_hosts before all": ("group_vars/gpu_hosts.yml", "group_vars/all.yml"),
    "pool": ("group_vars/shared.yml",),
    "hosts": ("host_vars/gpu-1.yml", "host_vars/gpu-2.yml"),
    "localhost": ("host_vars/localhost.yml",),
}


@pytest.mark.parametrize(
    "place",
    [
        place if place in ("gpu_hosts", "localhost") else pytest.param(place, marks=pytest.mark.by_name)
        for place in PLACES
    ],
)
def test_where_the_tree_is_may_stand_anywhere(render, tmp_path, place):
    """Of plan, which runs on the hosts, and of render and site, which run on localhost, alike."""
    _first, *others = PLACES[place]
    last = others if "before" in place else []
    for path in PLACES[place]:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        where = (
            "elsewhere"
            if path in last
            else "'{{ inventory_dir }}/trees'"
            if path != PLACES["localhost"][0]
            else "trees"
        )
        (tmp_path / path).write_text(f"gpu_kubernetes_output_directory: {where}\ngpu_kubernetes_prune: false\n")
    answers = [render(play=play + RESULT) for play in (PLAN, RENDER)]
    assert [one["output_directory"] for one in answers] == [str(tmp_path / "trees")] * 2, answers
    assert (tmp_path / "trees/clusters/cluster/README.md").exists()
    answers = [render(play=play + RESULT, gpu_kubernetes_output_directory="said") for play in (PLAN, RENDER)]
    assert [one["output_directory"] for one in answers] == [str(tmp_path / "said")] * 2, answers


@pytest.mark.by_name
def test_hosts_that_say_different_things_of_the_run_are_refused_by_name(render, tmp_path):
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars/gpu-2.yml").write_text("gpu_kubernetes_output_directory: mine\n")
    answers = [render(play=PLAN + RESULT), render()]
    for answer in answers:
        assert "gpu_kubernetes_output_directory: gpu-1 has None and gpu-2 has 'mine'" in answer["msg"], answer
    (tmp_path / "host_vars/gpu-2.yml").unlink()
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/all.yml").write_text("gpu_kubernetes_output_directory: 'of/{{ inventory_hostname }}'\n")
    assert "gpu-1 has 'of/gpu-1' and gpu-2 has 'of/gpu-2'" in render()["msg"]
    (tmp_path / "group_vars/all.yml").write_text("gpu_kubernetes_prune: perhaps\n")
    assert "gpu_kubernetes_prune: 'perhaps' must be true or false" in render()["msg"]


@pytest.mark.by_name
def test_a_tree_inside_the_inventory_is_refused(render, tmp_path):
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory.yml").rename(tmp_path / "inventory/hosts.yml")
    inside = render(inventory=str(tmp_path / "inventory"), output=str(tmp_path / "inventory/gitops"))
    assert "gpu_kubernetes_output_directory" in inside["msg"] and "is inside the inventory" in inside["msg"]
    facts = render(inventory=str(tmp_path / "inventory"), facts_directory=str(tmp_path / "inventory/facts"))
    assert "gpu_kubernetes_facts_directory" in facts["msg"]
    assert sorted(path.name for path in (tmp_path / "inventory").iterdir()) == ["hosts.yml"]
    assert not render(inventory=str(tmp_path / "inventory")).get("failed")


def test_facts_of_this_run_are_used_and_kept(render, tmp_path):
    gpu = {"name": "NVIDIA L40S", "board": "l40s-48gb", "architecture": "ada", "memory_mib": 46068}
    gpus = [
        {**gpu, "index": index, "mig": {"supported": False, "current": False}, "processes": [{"pid": 1}]}
        for index in range(4)
    ]
    answer = render(facts={"gpu": {"gpus": gpus}})
    assert answer["clusters"]["cluster"]["configurations"]["shared"]["resources"] == {"nvidia.com/gpu": 44}
    kept = json.loads((tmp_path / "out/facts/gpu-1.json").read_text())
    assert kept["gpus"][0]["memory_mib"] == 46068
    assert "processes" not in kept["gpus"][0]
    assert not render()["changed"], "without contact to the hosts the kept facts say the same"
    (tmp_path / "out/facts/gpu-1.json").write_text("{")
    answer = render()
    assert not answer.get("failed")
    assert str(answer["unread"]).count("gpu-1") >= 1, "the host is rendered as the inventory says"
    assert "gpu-2" not in str(answer["unread"])


@pytest.mark.by_name
def test_what_a_run_tells_its_hosts_counts_for_no_other(render, tmp_path):
    """The night shift of one host, then of the other; then a run without it, and one that goes back."""
    gpu = {"name": "NVIDIA L40S", "board": "l40s-48gb", "architecture": "ada", "memory_mib": 40960}
    gpus = [{**gpu, "index": index, "mig": {"supported": False, "current": False}} for index in range(4)]

    def run(host, **extra):
        extra = {"facts": {"gpu": {"gpus": gpus}}, "hosts_of_run": [host], **extra}
        assert not render("--limit", f"{host},localhost", **extra).get("failed")
        return per_node(tmp_path)

    render()
    assert per_node(tmp_path) == {"gpu-1": 44, "gpu-2": 44}
    assert run("gpu-1", slice="8GiB") == {"gpu-1": 20, "gpu-2": 44}
    assert run("gpu-2", slice="8GiB") == {"gpu-1": 20, "gpu-2": 20}
    told = json.loads((tmp_path / "out/facts/gpu-1.json").read_text())["told"]
    assert told == {"nvidia_sharing_memory_slice": "8GiB"}
    assert run("gpu-1") == {"gpu-1": 40, "gpu-2": 20}, "four fewer than by the table of boards, as the host's facts say"
    assert "told" not in json.loads((tmp_path / "out/facts/gpu-1.json").read_text())
    assert not render().get("failed")
    assert per_node(tmp_path) == {"gpu-1": 40, "gpu-2": 40}, "the inventory alone"


def per_node(folder):
    document = json.loads((folder / "out/clusters/cluster/capacity.json").read_text())
    return {node: entry["resources"]["nvidia.com/gpu"] for node, entry in document["nodes"].items()}


def test_a_desired_state_that_cannot_be_met_writes_nothing(render, tmp_path):
    answer = render(slice="4GB")
    assert answer["failed"]
    assert "4GiB?" in answer["msg"]
    assert answer["refusals"][0]["thing"].endswith("nvidia_sharing_memory_slice")
    assert not (tmp_path / "out").exists()


@pytest.mark.by_name
def test_the_first_hosts_of_a_fleet_are_rendered_without_those_that_were_never_read(render, tmp_path):
    gpu = {"name": "NVIDIA L40S", "board": "l40s-48gb", "architecture": "ada", "memory_mib": 46068}
    gpus = [{**gpu, "index": index, "mig": {"supported": False, "current": False}} for index in range(4)]
    text = (tmp_path / "inventory.yml").read_text()
    (tmp_path / "inventory.yml").write_text(text.replace("gpu_facts_gpus", "not_said"))
    refused = render()
    assert refused["failed"] and "nothing says which GPUs the host has" in refused["msg"]
    first = {"facts": {"gpu": {"gpus": gpus}}, "hosts_of_run": ["gpu-1"]}
    answer = render("--limit", "gpu-1,localhost", **first)
    assert not answer.get("failed")
    assert per_node(tmp_path) == {"gpu-1": 44} and "limited to other hosts" in answer["unread"]["gpu-2"]
    second = {"facts": {"gpu": {"gpus": gpus}}, "hosts_of_run": ["gpu-2"]}
    assert not render("--limit", "gpu-2,localhost", **second).get("failed")
    assert per_node(tmp_path) == {"gpu-1": 44, "gpu-2": 44}
    (tmp_path / "out/facts/gpu-2.json").unlink()
    lost = render("--limit", "gpu-1,localhost", **first)
    assert lost["failed"], "a node that is in the tree is not dropped from it"
    assert per_node(tmp_path) == {"gpu-1": 44, "gpu-2": 44}


def test_the_files_are_those_of_a_plan_or_are_not_written(render, tmp_path):
    path = str(tmp_path / "plan.json")
    # What they say of one host is not changed by another one, with which it shared its configuration.
    found = render("--check", gpu_plan_out=path)
    assert set(found["of_hosts"]) == {"gpu-1", "gpu-2"} and "of_hosts" not in render("--check")
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars/gpu-2.yml").write_text("slice: 8GiB\n")
    changed = render("--check", gpu_plan_out=path)
    assert [changed["of_hosts"][host] == found["of_hosts"][host] for host in ("gpu-1", "gpu-2")] == [True, False]

    made = time.strftime(saved_plan.MOMENT, time.gmtime())
    hosts = {"gpu-1": saved_plan.PlannedHost()}
    plan_file.write(path, saved_plan.SavedPlan(saved_plan.FORMAT, "1.0.0", made, tree=found["digest"], hosts=hosts), [])
    other = render(gpu_plan_in=path)
    assert other["failed"]
    assert f"rendering them gives the digest {changed['digest']}, and the plan" in other["msg"]
    (tmp_path / "host_vars/gpu-2.yml").unlink()
    assert not (tmp_path / "out").exists()
    assert render(gpu_plan_in=path, gpu_plan_verify_command=["/bin/false", "{file}"])["failed"]
    assert render(gpu_plan_in=path)["digest"] == found["digest"]
