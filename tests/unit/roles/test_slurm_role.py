# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the role gpu_slurm drains and resumes a node, with programs that answer as Slurm's do and remember what they were asked."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import cluster_lease

REPOSITORY = Path(__file__).resolve().parents[3]
SCONTROL = """#!/bin/sh
cd {folder}
echo "$*" >> asked
[ ! -e away ] || {{ echo 'Unable to contact slurm controller' >&2; exit 1; }}
case "$*" in
show*)
    read -r said < state
    then="${{said##*@}}"
    case "$said" in
    *@[0-9]*]) echo "${{said%@*}}@$(date -d "@${{then%]}}" +%Y-%m-%dT%H:%M:%S)]" ;;
    *) cat state ;;
    esac ;;
*state=drain*) echo "NodeName=gpu01 State=IDLE+DRAIN Reason=${{4#reason=}} [root]" > state; mv drained-away away; true ;;
*state=resume*) echo "NodeName=gpu01 State=IDLE" > state ;;
create*) [ ! -e no-reservation ] || {{ echo 'Error creating the reservation: Access denied' >&2; exit 1; }} ;;
requeue*) : > jobs ;;
esac
"""
SQUEUE = """#!/bin/sh
cd {folder}
[ ! -e away ] || {{ echo 'Unable to contact slurm controller' >&2; exit 1; }}
cat jobs
mv asked-again away
mv asked-away asked-again
true
"""
#: C(allowed) and C(saw) are what it answers C(--test-only) and a job.
SRUN = """#!/bin/sh
cd {folder}
echo "srun $*" >> asked
case "$*" in
*--test-only*) cat allowed >&2; [ ! -s allowed ] ;;
*) cat saw; [ -s saw ] || {{ echo 'srun: error: Unable to allocate resources' >&2; exit 1; }} ;;
esac
"""
RUNUSER = """#!/bin/sh
shift 3
exec "$@"
"""
IDLE = "NodeName=gpu01 State=IDLE"


@pytest.fixture
def node(tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in {"scontrol": SCONTROL, "squeue": SQUEUE, "srun": SRUN, "runuser": RUNUSER}.items():
        (programs / name).write_text(text.format(folder=tmp_path))
        (programs / name).chmod(0o755)

    def run(files, state=IDLE, jobs="", work="repartition", role="gpu_slurm", **variables):
        (tmp_path / "state").write_text(f"{state}\n")
        (tmp_path / "jobs").write_text(jobs)
        (tmp_path / "asked").write_text("")
        given = {
            **({"__gpu_slurm_run": work} if work else {}),
            "__gpu_slurm_patience": 1 if work != "site" else 0,
            **variables,
        }
        roles = [
            {"ansible.builtin.include_role": {"name": f"gpufleet.nvidia.{role}", "tasks_from": name}, "vars": given}
            for name in files
        ]
        play = [{"hosts": "gpu01", "gather_facts": False, "tasks": roles}]
        (tmp_path / "play.yml").write_text(yaml.safe_dump(play))
        path = f"{programs}:{REPOSITORY}/.venv/bin:{os.environ['PATH']}"
        given = {
            **os.environ,
            "PATH": path,
            "TZ": "JST-9",
            "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "build/collections"),
        }
        inventory = tmp_path / "hosts.yml"
        inventory.write_text(
            f"all: {{hosts: {{gpu01: {{ansible_connection: local, ansible_python_interpreter: {sys.executable}}}}}}}\n"
        )
        command = ["ansible-playbook", "-i", str(inventory), str(tmp_path / "play.yml")]
        ran = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
        asked = [line for line in (tmp_path / "asked").read_text().splitlines() if not line.startswith("show")]
        return ran.returncode, asked, ran.stdout + ran.stderr

    return run


def test_a_node_is_drained_by_the_name_of_the_run_and_resumed(node):
    code, asked, said = node(["drain.yml", "resume.yml"])
    assert code == 0, said
    assert asked == [
        "update nodename=gpu01 state=drain reason=gpufleet.nvidia.repartition",
        "update nodename=gpu01 state=resume",
    ]


def test_a_node_whose_controller_goes_away_after_the_drain_is_named_and_the_next_run_resumes_it(node, tmp_path):
    (tmp_path / "drained-away").touch()
    code, asked, said = node(["drain.yml"], work="site")
    assert code and len(asked) == 1, said
    away = "slurmctld does not say which jobs run: Unable to contact slurm controller"
    stays = "Node gpu01 stays drained (gpufleet.nvidia.site). Run gpufleet.nvidia.site again, which resumes it, or:"
    assert f"gpu01: {away}. {stays} scontrol update nodename=gpu01 state=resume" in " ".join(said.split())
    drained = (tmp_path / "state").read_text().strip()
    code, _asked, said = node(["resume.yml"], state=drained, work="site")
    assert code and "slurmctld does not answer: Unable to contact slurm controller. Node gpu01 may be drained" in said
    (tmp_path / "away").unlink()
    code, asked, said = node(["resume.yml"], state=drained, work="site")
    assert code == 0 and asked == ["update nodename=gpu01 state=resume"], said


@pytest.mark.by_name
def test_jobs_are_requeued_only_where_the_site_says_so(node):
    code, asked, said = node(["drain.yml"], jobs="12\n13\n", gpu_slurm_jobs="requeue")
    assert code == 0, said
    assert asked[1:] == ["requeue 12,13"]
    code, asked, said = node(["drain.yml"], jobs="12\n")
    assert code
    assert asked[1:] == []
    assert "jobs run on node gpu01: 12." in said and "gpu_slurm_jobs: requeue" in said


def test_the_reason_has_the_playbook_and_its_run_which_each_of_them_is_told(node):
    for name in ("site", "upgrade", "rollback", "repartition", "heal", "migrate"):
        plays = yaml.safe_load((REPOSITORY / f"playbooks/{name}.yml").read_text())
        (told,) = [
            one["register"] for play in plays for one in play.get("tasks", ()) if one["name"] == "Check the variables"
        ]
        assert told == "__gpu_run", name
    # One role upgrades and rolls back.
    given = {"gpu_slurm_controllers": ["gpu01"], "gpu_slurm_cluster": "hpc", "gpu_slurm_jobs_timeout": 1}
    given["__gpu_run"] = {"playbook": "rollback", "run": "ada@head/4711-9-8"}
    code, asked, said = node(["drain.yml"], work=None, role="gpu_node", gpu_node_kubernetes=False, **given)
    assert code == 0, said
    assert asked[0] == "update nodename=gpu01 state=drain reason=gpufleet.nvidia.rollback ada@head/4711-9-8"


def test_site_has_its_name_with_each_of_the_tags_by_which_it_drains():
    plays = yaml.safe_load((REPOSITORY / "playbooks/site.yml").read_text())
    (brings,) = [play for play in plays if play.get("name") == "Bring Slurm its files"]
    told, drains = brings["tasks"]
    assert "include_role" in str(drains) and "tags" not in told
    # Asked once more only where the first play, which no such tag selects, did not.
    assert (told["register"], told["run_once"], told["when"]) == ("__gpu_run", True, "__gpu_run is not defined")


def test_a_node_that_a_run_has_drained_which_is_still_at_work_is_left_to_it(node):
    other = subprocess.Popen(["sleep", "60"])
    here = cluster_lease.Holder(f"{os.environ.get('USER') or os.getuid()}@{socket.gethostname()}", "")
    living = f"{here}{other.pid}-{cluster_lease._start_of(other.pid)}-{cluster_lease._space()}"
    state = f"NodeName=gpu01 State=IDLE+DRAIN Reason=gpufleet.nvidia.repartition {living} [root]"
    try:
        code, asked, said = node(["drain.yml"], state=state)
        assert code and f"gpufleet.nvidia.repartition, which has drained its node, is still at work ({living})" in said
        assert asked == []
        # No other playbook works on the host beside it.
        code, asked, said = node(["drain.yml"], state=state, work="heal")
        assert code and asked == [] and f"is still at work ({living})" in said
    finally:
        other.kill()
        other.wait()
    code, asked, said = node(["drain.yml", "resume.yml"], state=state)
    assert code == 0 and asked == ["update nodename=gpu01 state=resume"], said


@pytest.mark.parametrize(
    ("needed", "state", "done"),
    [
        (["mig"], IDLE, ["state=drain"]),
        # Of a run that was cut off, before somebody described the host as it is.
        ([], "NodeName=gpu01 State=IDLE+DRAIN Reason=gpufleet.nvidia.repartition [root]", ["state=resume"]),
        ([], "NodeName=gpu01 State=IDLE+DRAIN Reason=broken fan [root]", []),
        ([], IDLE, []),
    ],
)
def test_a_node_whose_turn_comes_later_gets_no_jobs_and_its_own_go_on(node, needed, state, done):
    code, asked, said = node(["ahead.yml"], state, "12\n", gpu_facts_plan={"needed": needed}, gpu_slurm_jobs="requeue")
    assert code == 0 and [line.split()[2] for line in asked] == done, said


def test_a_controller_that_is_away_ahead_of_a_turn_is_left_to_that_turn(node, tmp_path):
    (tmp_path / "away").touch()
    code, _asked, said = node(["ahead.yml"], gpu_facts_plan={"needed": ["mig"]}, gpu_slurm_jobs="requeue")
    assert code == 0 and "node gpu01 is not drained ahead of its turn" in said


def test_a_node_that_another_run_works_on_is_not_returned_ahead_of_a_turn(node):
    code, asked, said = node(["ahead.yml"], drained_elsewhere(1), gpu_facts_plan={"needed": []})
    assert code == 0 and asked == [] and "may be at work on another machine" in said


def test_repartition_drains_ahead_only_where_jobs_are_returned_and_resumes_whose_turn_did_not_come():
    plays = yaml.safe_load((REPOSITORY / "playbooks/repartition.yml").read_text())
    asked = {
        one["ansible.builtin.include_role"]["tasks_from"]: one["when"]
        for play in plays
        for one in play.get("tasks", ())
        if one.get("ansible.builtin.include_role", {}).get("name") == "gpufleet.nvidia.gpu_slurm"
    }
    assert "gpu_slurm_jobs | default('wait') == 'requeue'" in asked["ahead.yml"]
    assert "not ansible_check_mode" in asked["ahead.yml"]
    assert asked["resume.yml"] == ["__gpu_slurm_ahead | default(false) | bool", "__gpu_repartition_turn is not defined"]


def drained_elsewhere(minutes):
    """A node that a run on another machine drained some minutes ago: scontrol prints that in the time of its own zone."""
    then = int(time.time()) - minutes * 60
    return f"NodeName=gpu01 State=IDLE+DRAIN Reason=gpufleet.nvidia.repartition ada@other/7-8-9 [root@{then}]"


def test_a_node_that_a_run_on_another_machine_drained_lately_is_left_to_it_unless_it_is_taken_over(node):
    state = drained_elsewhere(89)
    code, asked, said = node(["drain.yml"], state=state)
    assert code and asked == [] and "may be at work on another machine (ada@other/7-8-9)" in said
    assert "it no longer counts 5400 s after that, or at once with gpu_node_lease_take_over=true" in " ".join(
        said.split()
    )
    code, asked, said = node(["drain.yml", "resume.yml"], state=state, gpu_node_lease_take_over=True)
    assert code == 0 and asked == ["update nodename=gpu01 state=resume"], said


def test_a_run_on_another_machine_that_drained_a_node_long_ago_was_cut_off(node):
    code, asked, said = node(["drain.yml", "resume.yml"], state=drained_elsewhere(91))
    assert code == 0 and asked == ["update nodename=gpu01 state=resume"], said


@pytest.mark.parametrize(
    ("reason", "work", "resumed"),
    [
        # They have one record on the host.
        ("gpufleet.nvidia.upgrade ada@head/4711-9-8", "rollback", True),
        ("gpufleet.nvidia.upgrade ada@head/4711-9-8", "repartition", False),
        pytest.param("gpufleet.nvidia.repartition", "heal", False, marks=pytest.mark.slow),
        pytest.param("gpufleet.nvidia.site", "site", True, marks=pytest.mark.slow),
        pytest.param("gpufleet.nvidia.sites", "site", False, marks=pytest.mark.slow),
        ("gres/gpu count reported lower than configured (1 < 2)", "site", True),
        # An upgrade that failed left it drained.
        ("gpufleet.nvidia.upgrade", "site", False),
        ("broken fan", "repartition", False),
    ],
)
def test_only_what_the_collection_drained_is_resumed(node, reason, work, resumed):
    state = f"NodeName=gpu01 State=IDLE+DRAIN Reason={reason} [root]"
    code, asked, said = node(["drain.yml", "resume.yml"], state=state, work=work)
    assert code == 0, said
    assert asked == (["update nodename=gpu01 state=resume"] if resumed else [])
    assert ("gpu01: node gpu01 stays out of service in Slurm" in said and f"Reason={reason}" in said) is not resumed


def test_site_asks_a_controller_that_does_not_answer_once_and_a_playbook_of_day_two_stops(node, tmp_path):
    """Each question to a slurmctld that is away takes a minute. site brings it the files with which it starts."""
    away = tmp_path / "programs/scontrol"
    away.write_text(
        f"#!/bin/sh\necho asked >> {tmp_path}/asked\necho 'Unable to contact slurm controller' >&2\nexit 1\n"
    )
    (tmp_path / "programs/squeue").write_text(away.read_text())
    code, asked, said = node(["drain.yml"], work="site")
    assert code == 0 and asked == ["asked"], said
    code, asked, said = node(["drain.yml"])
    assert code and asked == ["asked"] and "Unable to contact slurm controller" in said


def test_a_host_of_another_pool_is_left_alone(node):
    code, asked, said = node(["main.yml"], work="site", gpu_slurm_controllers=["head"])
    assert code == 0, said
    assert asked == [] and "slurmd" not in said


@pytest.mark.parametrize(
    ("said", "drained"),
    [
        ("State=DOWN Reason=bad board", False),
        ("State=IDLE+FAIL Reason=bad board", False),
        ("State=DOWN* Reason=Not responding", True),
        pytest.param("State=DOWN Reason=gpufleet.nvidia.repartition", True, marks=pytest.mark.slow),
        pytest.param("State=DOWN Reason=gpufleet.nvidia.upgrade", False, marks=pytest.mark.slow),
        pytest.param("State=IDLE+POWERED_DOWN", True, marks=pytest.mark.slow),
    ],
)
def test_a_node_that_somebody_else_took_out_keeps_its_reason_and_is_not_resumed(node, said, drained):
    code, asked, out = node(["drain.yml", "resume.yml"], state=f"NodeName=gpu01 {said} [root]")
    assert code == 0, out
    assert [line.split()[2] for line in asked] == (["state=drain", "state=resume"] if drained else [])


@pytest.mark.by_name
def test_a_job_that_is_not_requeued_stops_the_drain_only_if_it_stays(node, tmp_path):
    program = tmp_path / "programs/scontrol"
    program.write_text(program.read_text().replace("requeue*) : > jobs ;;", "requeue*) {ended}; exit 1 ;;"))
    text = program.read_text()
    program.write_text(text.replace("{ended}", ": > jobs"))
    code, asked, said = node(["drain.yml"], jobs="12\n13\n", gpu_slurm_jobs="requeue")
    assert code == 0 and asked[1:] == ["requeue 12,13"], said
    program.write_text(text.replace("{ended}", "echo 13 > jobs"))
    code, _asked, said = node(["drain.yml"], jobs="12\n13\n", gpu_slurm_jobs="requeue")
    assert code and "jobs run on node gpu01: 13." in said


@pytest.fixture
def brought(tmp_path):
    """The variables of a node to which files are brought that slurmd was not started with."""
    tree = tmp_path / "tree/slurm/hpc"
    tree.mkdir(parents=True)
    (tree / "nodes.conf").write_text("NodeName=gpu01 Gres=gpu:x:1\n")
    entry = {"host": "gpu01", "scontrol": {"Gres": "gpu:x:1"}, "gres": {"gpu:x": 1}, "devices": []}
    (tree / "capacity.json").write_text(json.dumps({"schema": 1, "nodes": {"gpu01": entry}}))
    (tmp_path / "slurm.conf").write_text(f"Include {tmp_path}/files/nodes.conf\n")
    return {
        "work": "site",
        "gpu_slurm_cluster": "hpc",
        "gpu_slurm_controllers": ["gpu01"],
        "gpu_slurm_directory": f"{tmp_path}/files",
        "gpu_slurm_configuration": f"{tmp_path}/slurm.conf",
        "gpu_kubernetes_output_directory": f"{tmp_path}/tree",
    }


def test_a_node_is_returned_where_nothing_was_changed(node, brought):
    code, asked, said = node(["apply.yml"], jobs="12\n", **brought)
    assert code and "jobs run on node gpu01: 12." in said
    assert [line.split()[2] for line in asked] == ["state=drain", "state=resume"]


@pytest.mark.by_name
def test_a_node_stays_drained_that_slurm_drained_itself(node, brought):
    state = "NodeName=gpu01 State=IDLE+DRAIN Reason=gres/gpu count reported lower than configured (1 < 2) [slurm]"
    code, asked, said = node(["apply.yml"], state=state, jobs="12\n", **brought)
    assert code and "jobs run on node gpu01: 12." in said
    assert asked == []


def test_a_node_stays_drained_where_a_controller_was_changed_and_does_not_start(node, brought):
    code, asked, said = node(["apply.yml"], **brought)
    assert code and "Failed to bring Slurm its files" in said
    assert "Node gpu01 stays drained (gpufleet.nvidia.site). Run gpufleet.nvidia.site again" in said
    assert [line.split()[2] for line in asked] == ["state=drain"]


def test_a_node_that_cannot_be_returned_is_named_with_why_it_was_refused(node, brought, tmp_path):
    (tmp_path / "asked-away").touch()
    code, asked, said = node(["apply.yml"], jobs="12\n", **brought)
    assert code and "jobs run on node gpu01: 12." in said and "state=drain" in asked[0]
    assert "Unable to contact slurm controller. Node gpu01 stays drained (gpufleet.nvidia.site)" in said


def test_a_node_is_not_drained_for_a_controller_that_is_away(node, brought):
    code, asked, said = node(["apply.yml"], **{**brought, "gpu_slurm_controllers": ["head.invalid"]})
    assert code and "head.invalid" in said
    assert asked == []


@pytest.fixture
def proven(node, brought, tmp_path):
    """Prove a node with one GPU, which a repartition drained."""
    (tmp_path / "saw").write_text("print of the prolog\n0\n")
    (tmp_path / "allowed").write_text("")
    entry = {"host": "gpu01", "scontrol": {"Gres": "gpu:x:1"}, "gres": {"gpu:x": 1}}
    entry["devices"] = [{"type": "x", "files": ["/dev/nvidia0"]}]
    (tmp_path / "tree/slurm/hpc/capacity.json").write_text(json.dumps({"schema": 1, "nodes": {"gpu01": entry}}))
    state = "NodeName=gpu01 State=IDLE+DRAIN Partitions=gpu,all Reason=gpufleet.nvidia.repartition [root]"

    def run(**more):
        given = {**brought, "work": "repartition", "gpu_slurm_result": {"types": ["gpu:x"]}, **more}
        return node(["prove.yml"], state=state, __gpu_slurm_scontrol={"stdout": state}, **given)

    return run


RESERVED = (
    "create reservationname=gpufleet_gpu01 starttime=now duration=10 nodes=gpu01 users=root flags=maint,ignore_jobs"
)
FREED = "delete reservationname=gpufleet_gpu01"
SRUN_OF = (
    "srun --reservation=gpufleet_gpu01 --partition=gpu --nodelist=gpu01 --ntasks=1 --time=1 --immediate=60 --chdir=/"
)


def test_a_job_of_each_type_runs_on_the_node_before_it_is_for_others(proven):
    code, asked, said = proven()
    assert code == 0, said
    assert asked == [
        FREED,
        RESERVED,
        "update nodename=gpu01 state=resume",
        f"{SRUN_OF} --gres=gpu:x:1 printenv CUDA_VISIBLE_DEVICES",
        FREED,
    ]
    assert "gpu01: job with gpu:x:1: passed: 0" in said


@pytest.mark.parametrize(
    ("saw", "why"),
    [
        ("MIG-of-another\n", "MIG-of-another"),
        ("", "Unable to allocate resources"),
        ("\n", "no device of its type: nothing"),
    ],
)
def test_a_node_on_which_a_job_sees_another_device_is_drained_again_and_not_left_reserved(proven, tmp_path, saw, why):
    (tmp_path / "saw").write_text(saw)
    code, asked, said = proven()
    assert code and "gpu01: job with gpu:x:1: failed: " in said and why in said, said
    assert asked[-2:] == ["update nodename=gpu01 state=drain reason=gpufleet.nvidia.repartition", FREED]
    assert "Node gpu01 is drained again (gpufleet.nvidia.repartition)" in said


@pytest.mark.parametrize(
    ("file", "why"), [("no-reservation", "Access denied"), ("allowed", "allocation failure: Invalid user id")]
)
def test_a_site_where_the_user_may_run_no_job_has_its_node_back_and_is_told(proven, tmp_path, file, why):
    (tmp_path / file).write_text(f"{why}\n")
    (tmp_path / "saw").write_text("")
    code, asked, said = proven()
    assert code == 0, said
    assert "update nodename=gpu01 state=resume" in asked and asked[-1] == FREED
    assert (f"{SRUN_OF} --test-only true" in asked) is (file == "allowed")
    assert "gpu01: no job was run on node gpu01" in said and why in said and "gpu_slurm_jobs_user" in said
