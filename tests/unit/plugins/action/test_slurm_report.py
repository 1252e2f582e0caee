# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role gpu_slurm says of a host, with what Debian's Slurm 22.05.8 printed."""

from __future__ import annotations

import shutil
from pathlib import Path

import jinja2
import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions.slurm_report import ActionModule

DATA = Path(__file__).parent.parent / "plugin_utils"
HOST = "gpu01.example.org"


class Displayed(ActionModule):
    """The action without Ansible around it; its lines are kept."""

    def __init__(self):
        self.lines = []

    @property
    def _display(self):
        return self

    @property
    def _templar(self):
        return self

    @staticmethod
    def template(value):
        return value

    def display(self, text):
        self.lines.append(text)


@pytest.fixture
def report(tmp_path):
    (tmp_path / "slurm/hpc").mkdir(parents=True)
    shutil.copy(DATA / "render/data/slurm/capacity.json", tmp_path / "slurm/hpc/capacity.json")

    def run(recorded, host=HOST, cluster="hpc", **more):
        said = {name: (DATA / f"fleet/slurm/{recorded}.{name}.txt").read_text() for name in ("slurmd", "scontrol")}
        action = Displayed()
        variables = {"gpu_slurm_cluster": cluster, "gpu_kubernetes_output_directory": str(tmp_path)}
        arguments = {"stays": None, "jobs": None, **said, **more}
        return action, action.act(arguments, {"inventory_hostname": host, **variables})

    return run


def test_a_node_that_is_as_described(report):
    action, result = report("whole")
    assert "failed" not in result
    assert [one["status"] for one in result["checks"]] == ["passed", "passed"]
    assert action.lines[1] == f"  {HOST}: scontrol show node: passed: IDLE"


def test_what_differs_is_said_with_the_node_that_stays_drained_for_it(report):
    said = "Node gpu01 stays drained."
    assert report("fewer", stays=said)[1]["msg"].endswith(f"\n{HOST}: {said}")
    assert "failed" not in report("whole", stays=said)[1]


def test_one_device_fewer_fails_with_the_order_that_heals(report):
    _action, result = report("fewer")
    assert result["failed"]
    assert (
        "Restart slurmctld, then slurmd on the node, and resume it: scontrol update nodename=gpu01 state=resume"
        in result["msg"]
    )


def test_a_slurmd_that_has_its_configuration_from_slurmctld_is_not_told_to_render(report):
    said = (
        "slurmd: error: _establish_configuration: failed to load configs\nslurmd: error: slurmd initialization failed"
    )
    _action, result = report("whole", slurmd=said)
    assert "it has no configuration: slurmd: error: _establish_configuration" in result["msg"]
    assert "--conf-server" in result["msg"] and "Render" not in result["msg"]


@pytest.mark.parametrize(("host", "cluster"), [("other", "hpc"), (HOST, "viz"), (HOST, "")])
def test_a_host_without_rendered_files_is_refused(report, host, cluster):
    with pytest.raises(Refused) as refused:
        report("whole", host, cluster)
    assert refused.value.thing == host


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"stdout": "NodeName=gpu01", "stderr": "warning", "msg": ""}, "NodeName=gpu01"),
        (
            {"stdout": "", "stderr": "Unable to contact slurm controller", "msg": "non-zero"},
            "Unable to contact slurm controller",
        ),
        (
            {"msg": "[Errno 2] No such file or directory: b'scontrol'"},
            "[Errno 2] No such file or directory: b'scontrol'",
        ),
    ],
)
def test_the_role_passes_on_why_scontrol_has_no_answer(result, said):
    tasks = yaml.safe_load((Path(__file__).parents[4] / "roles/gpu_slurm/tasks/compare.yml").read_text())
    text = tasks[-1]["gpufleet.nvidia.fleet"]["scontrol"]
    assert jinja2.Template(text).render(__gpu_slurm_scontrol=result) == said
