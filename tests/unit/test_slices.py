# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Several controllers, each with a slice of the fleet, write the tree and the records that a single run writes.

C(plan) reads all hosts, which answer at once with canned facts, and records them; C(render) with C(site)'s own role writes the tree from what
was read. A slice is a limit, with the whole inventory, or a sliced job of AWX, whose inventory has no other hosts.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import yaml

from ..warm_ansible import run as run_ansible
from .host_documents import FACTS, GPU, WHOLE

#: Each run starts ansible-playbook.
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
HOSTS = 7
#: As C(get_script_data) of AWX (awx/main/models/inventory.py) makes them: every third host, beginning with the first, the second, the third.
SLICES = [[f"gpu-{number}" for number in range(first, HOSTS, 3)] for first in range(3)]
#: What site does with hosts that have nothing to do: read them, and render the tree.
PLAY = """
- name: Read the hosts
  hosts: gpu_hosts
  gather_facts: false
  tasks:
    - name: Read the host
      gpufleet.nvidia.gpu_info:
        gather: [errors, health]
        as_text: true
      register: gpu_facts_host

- name: Render
  hosts: gpu_hosts
  gather_facts: false
  roles:
    - role: gpufleet.nvidia.gpu_kubernetes
      run_once: true
      vars:
        __gpu_kubernetes_hosts: "{{ ansible_play_hosts_all }}"
"""


@pytest.fixture
def inventory(tmp_path):
    """Return the path of an inventory of hosts in two pools."""
    path = tmp_path / "inventory.yml"
    path.write_text(yaml.safe_dump(described(tmp_path)), encoding="utf-8")
    return path


def described(tmp_path):
    """Return the inventory. The GPUs of its hosts differ from host to host, and are described where one job renders for all slices."""
    pools = {"training": {"hosts": {}}, "batch": {"hosts": {}}}
    for number in range(HOSTS):
        name = f"gpu-{number}"
        whole = {**WHOLE, "uuid": f"GPU-{number}"}
        gpus = [{**GPU, "uuid": f"GPU-{number}-0"}, whole] if number % 3 == 0 else [whole]
        facts = {**FACTS, "host": {**FACTS["host"], "name": name}, "gpus": gpus}
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(facts), encoding="utf-8")
        boards = [{"board": GPU["board"], "count": len(gpus)}]
        host = {"bench_canned_facts": str(path), "gpu_facts_gpus": boards}
        pools["training" if number % 2 else "batch"]["hosts"][name] = host
    variables = {
        "ansible_connection": "canned",
        "ansible_python_interpreter": "/usr/bin/python3",
        "gpu_kubernetes_cluster": "production",
        "nvidia_toolkit_version": "1.20.2",
    }
    return {"gpu_hosts": {"children": pools, "vars": variables}}


def sliced(tmp_path, hosts):
    """Return the path of the inventory that AWX gives the job of a slice: its hosts, in groups that have no others."""
    inventory = described(tmp_path)
    for pool in inventory["gpu_hosts"]["children"].values():
        pool["hosts"] = {host: variables for host, variables in pool["hosts"].items() if host in hosts}
    path = tmp_path / f"inventory-{hosts[0]}.yml"
    path.write_text(yaml.safe_dump(inventory), encoding="utf-8")
    return path


def run(inventory, playbook, *arguments, succeeds=True):
    program = Path(sys.executable).with_name("ansible-playbook")
    done = run_ansible(
        [program, "-i", inventory, playbook, *arguments],
        {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "build" / "collections"),
            "ANSIBLE_CONNECTION_PLUGINS": str(ROOT / "tests" / "bench" / "canned"),
            "ANSIBLE_PIPELINING": "true",
            "ANSIBLE_INJECT_FACT_VARS": "false",
        },
        Path.cwd(),
    )
    assert (done.returncode == 0) is succeeds, f"{done.stdout}\n{done.stderr}"
    return f"{done.stdout}\n{done.stderr}"


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_slices_write_the_tree_and_the_records_of_one_run(inventory, tmp_path):
    playbook = tmp_path / "play.yml"
    playbook.write_text(PLAY, encoding="utf-8")
    for name, limits in (("whole", [[]]), ("slices", SLICES)):
        for hosts in limits:
            limit = ["--limit", ",".join(hosts)] if hosts else []
            run(inventory, playbook, "-e", f"gpu_kubernetes_output_directory={tmp_path / name}", *limit)
            records = [
                "-e",
                f"gpu_plan_facts_directory={tmp_path / f'{name}-records'}",
                "-e",
                "gpu_plan_fail=false",
            ]
            tree = ["-e", f"gpu_kubernetes_output_directory={tmp_path / name}"]
            run(inventory, "gpufleet.nvidia.plan", *records, *tree, *limit)
    tree = files(tmp_path / "whole")
    assert {f"facts/gpu-{number}.json" for number in range(HOSTS)} <= set(tree)
    assert any(path.startswith("clusters/production/") for path in tree)
    assert files(tmp_path / "slices") == tree
    recorded = files(tmp_path / "whole-records")
    assert set(recorded) == {f"gpu-{number}.json" for number in range(HOSTS)}
    assert files(tmp_path / "slices-records") == recorded


@pytest.mark.by_name
def test_sliced_jobs_of_awx_write_the_records_of_one_run_and_one_job_the_tree(inventory, tmp_path):
    playbook = tmp_path / "play.yml"
    playbook.write_text(PLAY, encoding="utf-8")
    jobs = {"whole": inventory, **{f"slice-{hosts[0]}": sliced(tmp_path, hosts) for hosts in SLICES}}
    for name, hosts in jobs.items():
        records = tmp_path / ("whole-records" if hosts == inventory else "slices-records")
        options = [f"gpu_plan_facts_directory={records}", "gpu_plan_fail=false"]
        # Each job is a container with a checkout of its own.
        tree = f"gpu_kubernetes_output_directory={tmp_path / name}"
        run(hosts, "gpufleet.nvidia.plan", *(text for option in (*options, tree) for text in ("-e", option)))
    recorded = files(tmp_path / "whole-records")
    assert set(recorded) == {f"gpu-{number}.json" for number in range(HOSTS)}
    assert files(tmp_path / "slices-records") == recorded

    run(inventory, playbook, "-e", f"gpu_kubernetes_output_directory={tmp_path / 'whole'}")
    run(inventory, "gpufleet.nvidia.render", "-e", f"gpu_kubernetes_output_directory={tmp_path / 'rendered'}")
    whole, rendered = files(tmp_path / "whole" / "clusters"), files(tmp_path / "rendered" / "clusters")
    # The one job has read no host, and these say so; the manifest has their checksums.
    assert b"no facts are recorded" in rendered["production/README.md"]
    assert {path for path in whole.keys() | rendered.keys() if whole.get(path) != rendered.get(path)} == {
        "production/README.md",
        "production/capacity.json",
        "production/manifest.json",
    }


@pytest.mark.by_name
@pytest.mark.parametrize("hosts", SLICES, ids=[f"slice-{hosts[0]}" for hosts in SLICES])
def test_a_sliced_job_of_awx_does_not_take_the_nodes_of_other_slices_out_of_the_tree(hosts, inventory, tmp_path):
    playbook, tree = tmp_path / "play.yml", ["-e", f"gpu_kubernetes_output_directory={tmp_path / 'tree'}"]
    playbook.write_text(PLAY, encoding="utf-8")
    run(inventory, playbook, *tree)
    before = files(tmp_path / "tree")
    said = run(sliced(tmp_path, hosts), playbook, *tree, succeeds=False)
    assert f"{HOSTS - len(hosts)} of the {HOSTS} nodes in the tree are not in this inventory" in said
    assert "--skip-tags cluster" in said
    assert files(tmp_path / "tree") == before
    run(sliced(tmp_path, hosts), playbook, *tree, "-e", "gpu_kubernetes_remove_nodes=true")
    rendered = json.loads((tmp_path / "tree/clusters/production/capacity.json").read_text(encoding="utf-8"))
    assert set(rendered["nodes"]) == set(hosts)
