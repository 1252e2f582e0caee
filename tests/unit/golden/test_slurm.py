# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host of a Slurm cluster whose files are brought: all who are asked say the same of it, and name what Slurm lost, with files that Slurm 22.05.8 ran with."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._slurm.plan import digest_of, from_options
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.actions import (
    check_variables,
    doctor_report,
    verify_report,
)
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.descriptions import describe
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.planning import Planning

from ... import drift
from . import corpus
from .test_agree import disagreements
from .test_drift import stages

DATA = Path(__file__).parents[1] / "plugins/plugin_utils"
TREE, SAID = DATA / "render/data/slurm", DATA / "fleet/slurm"
HOST, OURS = "gpu01.example.org", "/etc/slurm/gpufleet"
FILES = {name: (TREE / name).read_text() for name in ("nodes.conf", "gres.conf", "task-prolog.sh")}
DIGESTS = {name: digest_of(name, text, True) for name, text in FILES.items()}
DIGEST = from_options({"directory": OURS, "node": "gpu01", "files": FILES}).digest


@pytest.fixture
def host(tmp_path):
    shutil.copytree(TREE, tmp_path / "slurm/hpc")
    variables = {
        "inventory_hostname": HOST,
        "gpu_slurm_cluster": "hpc",
        "gpu_slurm_controllers": ["head"],
        "gpu_kubernetes_output_directory": str(tmp_path),
    }

    def make(files=None, applied=DIGEST, said="whole"):
        found = corpus.ready(**variables)
        texts = {name: (SAID / f"{said}.{name}.txt").read_text() for name in ("slurmd", "scontrol")}
        found.facts["slurm"] = {
            "files": {**DIGESTS, **(files or {})},
            "applied": {"slurmd": applied, **DIGESTS},
            **texts,
        }
        return found

    return make


def steps(host):
    return [str(step) for plan in stages(host, HOST).values() for step in plan.steps]


def test_a_host_that_has_its_files_has_nothing_to_do_and_its_variables_are_checked(call, host):
    assert steps(host()) == []
    assert disagreements(call, {HOST: host()}) == []
    known = {
        "hostvars": {HOST: host().variables},
        "ansible_play_hosts_all": [HOST],
        "groups": {"gpu_hosts": [HOST], "pool": [HOST]},
    }
    assert "failed" not in call(check_variables, {"playbook": "site"}, known)[0]


#: What the facts have after each row of the catalogue: digests of files, and what slurmd was started with.
AFTER = {
    "a line of gres.conf is lost, and slurmd is restarted": ({"gres.conf": "edited"}, DIGEST),
    "slurmd was started without a line of gres.conf, which was put back": ({}, "of an unknown text"),
    "the lines of nodes in nodes.conf are edited": ({"nodes.conf": "edited"}, DIGEST),
    "the prolog is edited": ({"task-prolog.sh": "edited"}, DIGEST),
    "a cgroup.conf that is not rendered": ({"cgroup.conf": "of somebody"}, DIGEST),
    "the record of what slurmd was started with is lost": ({}, ""),
}


@pytest.mark.parametrize("row", drift.SLURM_ROWS, ids=[row.what for row in drift.SLURM_ROWS])
def test_drift_is_planned_and_all_say_the_same(call, host, row):
    found = host(*AFTER[row.what])
    assert [step.kind for plan in stages(found, HOST).values() for step in plan.steps] == [*row.steps]
    assert disagreements(call, {HOST: found}) == []


@pytest.mark.parametrize("report", [verify_report, doctor_report])
@pytest.mark.parametrize(
    ("said", "named", "step"),
    [
        ("fewer", "instead of", "restart both daemons"),
        ("more", "slurmd ignores devices", "restart both daemons"),
        ("whole", "", ""),
    ],
)
def test_what_slurm_lost_is_named_with_the_next_step(call, host, report, said, named, step):
    given = {**host().variables, "gpu_facts_host": {"gpu": host(said=said).facts}}
    variables = {"hostvars": {HOST: given}, "groups": {"gpu_hosts": [HOST], "pool": [HOST], "other": []}}
    found = call(report, {"hosts": [HOST]}, variables)[0]["hosts"][HOST]
    wrong = [one for one in found["checks"] if one["status"] == "failed" and "slurm" in one["name"] + one["evidence"]]
    assert bool(wrong) is bool(named), wrong
    if named:
        assert named in wrong[0]["evidence"] and step in wrong[0]["next_step"]


def test_a_job_that_sees_another_device_is_named_by_its_number_and_its_user(call, host):
    found = host()
    gpu = found.facts["gpus"][1]
    gpu["allocations"] = [{"job": "17", "user": "ada", "resource": "gpu:h100", "sees": "MIG-x"}]
    given = {**found.variables, "gpu_facts_host": {"gpu": found.facts}}
    variables = {"hostvars": {HOST: given}, "groups": {"gpu_hosts": [HOST], "pool": [HOST], "other": []}}
    checks = call(verify_report, {"hosts": [HOST]}, variables)[0]["hosts"][HOST]["checks"]
    (named,) = [one for one in checks if one["name"] == "slurm jobs"]
    assert (
        f"job 17 of ada has gpu:h100 ({gpu['uuid']}) and sees MIG-x" in named["evidence"]
        and named["status"] == "warning"
    )
    assert "scontrol requeue" in named["next_step"]


def test_a_saved_plan_is_held_to_a_restart_under_jobs_and_not_to_what_the_run_itself_has_rendered(host, tmp_path):
    def variables(**given):
        of_host = {**host().variables, **given}
        return Planning(describe(HOST, of_host, {"pool": [HOST]}), None, None).variables

    before = variables()
    (tmp_path / "slurm/hpc/gres.conf").write_text("# other files\n")
    assert variables() == before
    assert variables(gpu_slurm_restart_under_jobs=True) != before
