# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""C(recommend) from recorded facts, and the file that it writes given to C(plan) and C(render)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import yaml

from ..warm_ansible import run as run_ansible
from .golden import corpus
from .roles.upgrade_harness import Site

pytestmark = pytest.mark.slow
pytest.importorskip("highspy")

ROOT = Path(__file__).resolve().parents[2]
TRAINING, SHARED = corpus.TRAINING, corpus.SHARED
RESOURCE = "nvidia.com/mig-1g.10gb"


def with_pods(facts):
    """Give one of the small instances of each GPU to a pod."""
    for gpu in facts["gpus"]:
        instance = next(one for one in gpu["gpu_instances"] if one["profile"] == "1g.10gb")
        pod = {"pod": f"jobs/small-{gpu['index']}", "pod_uid": f"uid-{gpu['index']}", "container": "c"}
        instance["compute_instances"][0]["allocations"] = [{**pod, "resource": RESOURCE}]


@pytest.fixture
def fleet(tmp_path):
    """Return a function that runs a playbook over the recorded hosts, whose names lead nowhere."""
    children = {}
    (tmp_path / "facts").mkdir()
    for pool, name, change in (("training", TRAINING, with_pods), ("shared", SHARED, None)):
        host = corpus.ready(name, change)
        children[pool] = {"hosts": {name: {"ansible_host": "192.0.2.1"}}, "vars": dict(host.variables)}
        boards = [{"board": host.facts["gpus"][0]["board"], "count": len(host.facts["gpus"])}]
        children[pool]["vars"]["gpu_facts_gpus"] = boards
        (tmp_path / "facts" / f"{name}.json").write_text(json.dumps(host.facts), encoding="utf-8")
    children["training"]["vars"]["nvidia_mig_disruption"] = "force"
    inventory = {
        "gpu_hosts": {"children": children, "vars": {"gpu_kubernetes_output_directory": str(tmp_path / "tree")}}
    }
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")

    def run(playbook, *arguments, **variables):
        command = [
            sys.executable.replace("python", "ansible-playbook"),
            "-i",
            "inventory.yml",
            f"gpufleet.nvidia.{playbook}",
        ]
        environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "build" / "collections")}
        return run_ansible([*command, *arguments, "-e", json.dumps(variables)], environment, tmp_path)

    return run


def test_plan_announces_what_was_recommended_and_render_describes_it(fleet, tmp_path):
    wanted = [{"profile": "3g.40gb", "count": 10}]
    files = {"gpu_recommend_file": "layouts.yml", "gpu_recommend_report": "recommended.json"}
    done = fleet("recommend", gpu_recommend_facts_directory="facts", gpu_recommend_demand=wanted, **files)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "recommended.json").read_text())["hosts"][TRAINING]
    evicted = ", ".join(report["evicts"])
    assert len(report["evicts"]) == 2
    assert f"2 GPUs of 1 hosts change; evicted: {evicted}; idle instances destroyed: 4." in done.stdout

    offline = {"gpu_plan_offline": True, "gpu_plan_facts_directory": "facts", "gpu_plan_fail": False}
    done = fleet("plan", "-e", "@layouts.yml", gpu_plan_report="plan.json", **offline)
    assert done.returncode == 0, done.stdout + done.stderr
    plan = json.loads((tmp_path / "plan.json").read_text())["hosts"]
    steps = plan[TRAINING]["stages"]["mig"]["steps"]
    changed = sorted({step["data"]["index"] for step in steps if "index" in step["data"]})
    assert changed == [one["index"] for one in report["gpus"]]
    assert [who for step in steps for who in step["disturbs"]] == [
        f"pod {one} ({RESOURCE})" for one in report["evicts"]
    ]
    assert "mig" not in plan[SHARED]["changes"]

    done = fleet("render", "-e", "@layouts.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    rendered = "".join(path.read_text() for path in (tmp_path / "tree").rglob("capacity.json"))
    assert '"nvidia.com/mig-3g.40gb": 10' in rendered


def test_what_is_wrong_with_the_variables_is_said_before_any_host_is_read(fleet):
    done = fleet("recommend", gpu_recommend_headrom=5)
    assert done.returncode != 0 and "Did you mean gpu_recommend_headroom?" in done.stdout


@pytest.mark.parametrize(("announced", "goes"), [(["jobs/new"], True), ([], False)])
def test_repartition_evicts_nobody_who_was_not_announced(tmp_path, announced, goes):
    site = Site(tmp_path, "a")
    plan = {"needed": ["driver"], "stages": {}, "recommended": {"state": "0123", "evicts": announced}}
    given = {"stub_plan": plan, "__gpu_repartition_leaving": {"leave": ["jobs/new"]}}
    done = site.run("repartition", "-e", json.dumps(given), "--skip-tags", "cluster")
    assert (done.returncode == 0) == goes, done.stdout[-3000:]
    assert ("a mig" in site.log) == ("a drain" in site.log) == goes
    assert ("gpu_recommend_seen.a: jobs/new would be evicted" in done.stdout) != goes


RECOMMENDED = {"needed": ["mig"], "stages": {}, "recommended": {"state": "0123", "evicts": []}}


@pytest.mark.by_name
def test_repartition_takes_the_hosts_in_the_order_of_the_file(tmp_path):
    site = Site(tmp_path, "abc")
    given = {"stub_plan": RECOMMENDED, "gpu_recommend_order": ["c", "a", "gone"]}
    done = site.run("repartition", "-e", json.dumps(given), "--skip-tags", "cluster")
    assert done.returncode == 0, done.stdout[-3000:]
    turns = [line for line in site.log if line.endswith(" mig") or "repartition_node" in line]
    # No pod is evicted before the last of those that change takes none.
    assert [line[0] for line in turns] == ["c", "a", "c", "a", "b"]
    assert [" ahead" in line for line in turns] == [True, True, False, False, False]


def test_a_host_whose_turn_did_not_come_is_returned_and_one_that_failed_in_its_own_is_not(tmp_path):
    site = Site(tmp_path, "abc")
    site.fail(a="mig")
    given = {"stub_plan": RECOMMENDED, "gpu_recommend_order": ["c", "a", "b"]}
    done = site.run("repartition", "-e", json.dumps(given), "--skip-tags", "cluster")
    assert done.returncode != 0
    assert [line for line in site.log if line.endswith(" mig")] == ["c mig", "a mig"]
    ahead, back = (
        sorted(line[0] for line in site.log if {"repartition_node", state} <= set(line.split()))
        for state in ("ahead", "done")
    )
    assert (ahead, back) == (["a", "b", "c"], ["b"])
    assert not any(" ahead " in line for line in _alone(tmp_path).log), "a single host is cordoned in its turn"


@pytest.mark.by_name
@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("plan", "Nothing was changed on it; to have the node take pods before that: kubectl uncordon node-of-a"),
        ("mig", "Its layout may have changed by half."),
    ],
)
def test_a_lost_host_whose_node_stays_cordoned_is_named_with_what_returns_it(tmp_path, step, said):
    site = Site(tmp_path, "abc")
    site.fail(lost=True, a=step)
    given = {"stub_plan": RECOMMENDED, "gpu_recommend_order": ["c", "a", "b"]}
    given |= {"gpu_node_name": "{{ 'node-of-' ~ inventory_hostname }}", "gpu_repartition_serial": 2}
    done = site.run("repartition", "-e", json.dumps(given), "--skip-tags", "cluster")
    assert done.returncode != 0
    text = " ".join(done.stdout.split())
    assert (
        "a was lost, and its node node-of-a stays cordoned. Once the host answers, run gpufleet.nvidia.repartition"
        in text
    )
    assert said in text and text.count(" was lost, ") == 1
    # Where the lost host is alone in its batch, Ansible ends the run: it is said before.
    assert "Cordoned ahead of their turns: node-of-c, node-of-a, node-of-b." in text
    # The one that was not reached yet is returned, the lost one is not.
    assert [line[0] for line in site.log if {"repartition_node", "done"} <= set(line.split())] == ["b"]


@pytest.mark.by_name
@pytest.mark.parametrize("taken", [True, False])
def test_a_node_that_a_killed_run_has_cordoned_ahead_is_returned_though_nothing_is_to_change(tmp_path, taken):
    site = Site(tmp_path, "a")
    # As its record says.
    given = {"stub_steps": [], "__gpu_repartition_node": {"taken": taken}}
    done = site.run("repartition", "-e", json.dumps(given), "--skip-tags", "cluster")
    assert done.returncode == 0, done.stdout[-3000:]
    assert ("a resume" in site.log) == ("Return the node to service" in done.stdout) == taken


def _alone(folder):
    (folder / "alone").mkdir()
    site = Site(folder / "alone", "a")
    given = {"stub_plan": RECOMMENDED, "gpu_recommend_order": ["a"]}
    assert site.run("repartition", "-e", json.dumps(given), "--skip-tags", "cluster").returncode == 0
    return site
