# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which hosts Slurm's files are brought to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.slurm_desired import asked_of, slurm_desired
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.users_of_host import refuse_users

REPOSITORY = Path(__file__).resolve().parents[4]
IN_SLURM = {"gpu_slurm_controllers": ["head"], "gpu_slurm_cluster": "hpc"}
#: Hosts of another pool, for which the inventory names the controllers too, as it does for all.
BESIDE = {"gpu_slurm_controllers": ["head"]}
USED = view_of({"holders": [{"pid": 7, "command": "train", "devices": ["/dev/nvidia0"]}]})


def same(value):
    return value


@pytest.mark.parametrize(("variables", "there"), [({}, ""), (BESIDE, ""), (IN_SLURM, "/etc/slurm/gpufleet")])
def test_the_files_of_slurm_are_read_where_they_are_brought(variables, there):
    assert asked_of(variables, same)["_slurm_directory"] == there


def test_a_host_of_another_pool_has_no_stage_of_slurm():
    assert slurm_desired("gpu01", BESIDE, same) is None


def test_a_host_is_brought_what_the_tree_has_of_its_cluster(tmp_path):
    variables = {**IN_SLURM, "gpu_kubernetes_output_directory": str(tmp_path)}
    assert "have no node of this host yet" in slurm_desired("gpu01", variables, same)
    folder = tmp_path / "slurm/hpc"
    folder.mkdir(parents=True)
    (folder / "nodes.conf").write_text("NodeName=n1 Gres=gpu:x:1\n")
    node = {"host": "gpu01", "scontrol": {"Gres": "gpu:x:1"}, "gres": {"gpu:x": 1}, "devices": []}
    (folder / "capacity.json").write_text(json.dumps({"schema": 1, "nodes": {"n1": node}}))
    assert "no node of this host" not in str(slurm_desired("gpu01", variables, same))
    assert "have no node of this host yet" in slurm_desired("gpu02", variables, same)


def test_slurm_takes_the_users_from_its_own_nodes_alone():
    assert refuse_users({"gpu01": (USED, IN_SLURM)}) == {"gpu01": ("train (PID 7)",)}
    with pytest.raises(Refused, match="gpu01, in use by train"):
        refuse_users({"gpu01": (USED, BESIDE)})


@pytest.mark.parametrize("name", ["drain.yml", "resume.yml"])
def test_every_playbook_of_day_two_asks_slurm_of_its_own_nodes_alone(name):
    tasks = yaml.safe_load((REPOSITORY / "roles/gpu_node/tasks" / name).read_text())
    (asked,) = (
        one for one in tasks if one.get("ansible.builtin.include_role", {}).get("name") == "gpufleet.nvidia.gpu_slurm"
    )
    assert {given for given in IN_SLURM if any(given in one for one in asked["when"])} == set(IN_SLURM)
