# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of Slurm on a real file system; systemd and Slurm's programs are recorded."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._slurm import apply
from ansible_collections.gpufleet.nvidia.plugins.module_utils._slurm.plan import DesiredSlurm

DATA = Path(__file__).parents[2] / "plugin_utils/render/data/slurm"
FILES = {name: (DATA / name).read_text() for name in ("nodes.conf", "gres.conf", "task-prolog.sh")}
OTHER = {**FILES, "nodes.conf": FILES["nodes.conf"].replace("1g.10gb:", "1g.10gb:1")}


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host whose site includes our files. C(says): what programs print; C(restarted): units, in order."""
    ours = tmp_path / "gpufleet"
    configuration = tmp_path / "slurm.conf"
    configuration.write_text(f"ClusterName=hpc\nInclude {ours}/nodes.conf\n")
    (tmp_path / "gres.conf").write_text("Include gpufleet/gres.conf\n")
    found = SimpleNamespace(ours=ours, site=tmp_path, active=True, restarted=[], says={"squeue": "", "sinfo": ""})
    found.asked, found.processes = [], {}

    def start(name):
        # Files have the time of the last tick of the kernel.
        time.sleep(0.02)
        found.processes[name] = (str(time.monotonic_ns()), time.time())
        time.sleep(0.02)

    def restart(name):
        found.restarted.append(name)
        start(name)

    def run(arguments, **_options):
        found.asked.append(arguments)
        said = found.says[arguments[0]]
        if isinstance(said, Exception):
            raise said
        return SimpleNamespace(stdout=said)

    monkeypatch.setattr(apply.systemd, "unit", lambda _name: SimpleNamespace(is_active=found.active))
    monkeypatch.setattr(apply.systemd, "restart", restart)
    monkeypatch.setattr(apply.systemd, "main_process", found.processes.get)
    monkeypatch.setattr(apply.command, "run", run)

    def bring(node="gpu01", files=FILES, under_jobs=False, check_mode=False):
        planned = apply.run_stage(DesiredSlurm(str(ours), node, files), str(configuration), under_jobs, check_mode)
        return [step.kind.key for step in planned.steps]

    found.bring, found.start = bring, start
    return found


def test_it_is_brought_once(host):
    assert host.bring()[-1] == "restart_service"
    assert (host.ours / "gres.conf").read_text() == FILES["gres.conf"]
    assert (host.ours / "task-prolog.sh").stat().st_mode & 0o777 == 0o755
    assert host.restarted == ["slurmd.service"]
    assert host.bring() == []
    assert host.restarted == ["slurmd.service"]


def test_a_daemon_is_started_anew_that_a_person_started_with_another_file_and_put_that_back(host):
    host.bring()
    shutil.copy2(host.ours / "gres.conf", host.site / "kept")
    (host.ours / "gres.conf").write_text("")
    host.start("slurmd.service")
    (host.site / "kept").replace(host.ours / "gres.conf")
    assert host.bring(check_mode=True) == host.bring() == ["restart_service"]
    assert host.bring() == []


def test_a_daemon_that_the_boot_started_is_not_started_anew_for_files_that_say_the_same_of_its_node(host):
    host.bring()
    host.start("slurmd.service")
    assert host.bring() == []
    of_others = {**FILES, "nodes.conf": f"{FILES['nodes.conf']}NodeName=gpu77 Gres=gpu:nvidia_l4:1\n"}
    assert host.bring(files=of_others) == ["write_file"]
    assert host.bring(files=of_others) == []
    assert host.restarted == ["slurmd.service"]


def test_check_mode_touches_nothing(host):
    assert host.bring(check_mode=True)[-1] == "restart_service"
    assert not host.ours.exists()
    assert not host.restarted


def test_a_node_under_jobs_is_refused_and_nothing_is_written(host):
    host.says["squeue"] = "17\n"
    with pytest.raises(Refused, match=r"jobs 17 run on gpu01.*gpu_slurm_restart_under_jobs: true"):
        host.bring()
    assert not host.ours.exists()
    assert host.bring(under_jobs=True)[-1] == "restart_service"


def test_a_controller_that_does_not_answer_is_no_answer_that_nobody_runs(host):
    host.says["squeue"] = CommandError(["squeue"], "exit status 1", "Unable to contact slurm controller")
    with pytest.raises(CommandError):
        host.bring()
    assert not host.ours.exists()
    # A daemon that has never run has no jobs.
    host.active = False
    assert host.bring()


@pytest.fixture
def job_here(host, monkeypatch):
    """A job of a user has a task on the host, as procfs shows it; and slurmd's own process of that name, which has none."""
    root = host.site / "root"
    for pid, parent, comm in ((10, 1, "slurmstepd"), (11, 10, "python3"), (12, 1, "slurmstepd")):
        (root / f"proc/{pid}").mkdir(parents=True)
        (root / f"proc/{pid}/comm").write_text(f"{comm}\n")
        (root / f"proc/{pid}/stat").write_text(f"{pid} ({comm}) S {parent} 0 0\n")
        (root / f"proc/{pid}/environ").write_text("SLURM_JOB_ID=17\0" if parent == 10 else "")
    monkeypatch.setattr(apply, "HostFiles", lambda: HostFiles(str(root)))
    return root / "proc/11"


@pytest.mark.parametrize("check_mode", [True, False])
@pytest.mark.parametrize("active", [True, False])
def test_jobs_on_the_host_are_seen_where_slurmctld_and_even_slurmd_are_stopped(host, job_here, active, check_mode):
    host.active = active
    host.says["squeue"] = CommandError(["squeue"], "exit status 1", "Unable to contact slurm controller")
    with pytest.raises(Refused) as refused:
        host.bring(check_mode=check_mode)
    said = refused.value
    assert said.thing == "slurmd" and "jobs 17 run on gpu01" in said.reason and "Unable to contact" in said.reason
    assert (
        said.remedy
        == "Start slurmctld, so that they can be drained, or allow it with gpu_slurm_restart_under_jobs: true."
    )
    assert not host.ours.exists()
    assert host.bring(under_jobs=True, check_mode=check_mode)
    # What is left is no job: slurmd has a process of this name that only holds its cgroup.
    (job_here / "stat").write_text("11 (python3) S 1 0 0\n")
    host.active = False
    assert host.bring(files=OTHER, check_mode=check_mode)


@pytest.mark.parametrize("told", ["by its option", "by the DNS"])
def test_a_slurmd_without_a_file_of_its_own_is_told_what_it_needs(host, monkeypatch, told):
    root = host.site / "root"
    if told == "by the DNS":
        (root / "run/slurm/conf").mkdir(parents=True)
        (root / "run/slurm/conf/slurm.conf").write_text("")
    else:
        (root / "proc/10").mkdir(parents=True)
        (root / "proc/10/comm").write_text("slurmd\n")
        (root / "proc/10/cmdline").write_text("/usr/sbin/slurmd\0-D\0--conf-server\0head:6817\0")
    monkeypatch.setattr(apply, "HostFiles", lambda: HostFiles(str(root)))
    # Where there is a file, slurmd may still be started with it.
    assert host.bring()
    (host.site / "slurm.conf").unlink()
    with pytest.raises(Refused) as refused:
        host.bring()
    assert refused.value.thing == f"{host.site}/slurm.conf" and "(configless)" in refused.value.reason
    assert "Include" not in refused.value.remedy and "gpu_slurm_controllers: []" in refused.value.remedy
    with pytest.raises(Refused, match=r"it is not there\. Add the line"):
        host.bring("")


@pytest.mark.usefixtures("job_here")
def test_jobs_whose_slurmd_was_stopped_are_asked_for(host):
    host.active = False
    host.says["squeue"] = "17\n"
    # Where slurmctld answers, the node is drained before it comes to that.
    assert host.bring(check_mode=True)
    host.asked.clear()
    with pytest.raises(Refused, match=r"jobs 17 run on gpu01\. .*Run without --limit"):
        host.bring()
    assert [one[0] for one in host.asked] == ["squeue"]
    host.says["squeue"] = ""
    assert host.bring()


def test_a_slurmctld_that_somebody_stopped_is_not_started_with_other_files(host):
    host.bring("")
    host.restarted.clear()
    host.active = False
    for check_mode in (True, False):
        with pytest.raises(
            Refused, match=r"gpu01, gpu02 may have jobs, and slurmctld drains none: it does not run\. Start"
        ):
            host.bring("", OTHER, check_mode=check_mode)
    assert not host.restarted and (host.ours / "nodes.conf").read_text() == FILES["nodes.conf"]
    assert host.bring("", OTHER, under_jobs=True)[-1] == "restart_service"


@pytest.mark.parametrize(("state", "refused"), [("idle", True), ("drained", False), ("down*", False), ("mixed", True)])
def test_slurmctld_stays_until_each_node_that_changes_is_out_of_service(host, state, refused):
    host.bring("")
    host.restarted.clear()
    host.says["sinfo"] = f"gpu01 {state}\n"
    if refused:
        with pytest.raises(Refused, match="gpu01 can be given jobs"):
            host.bring("", OTHER)
        assert (host.ours / "nodes.conf").read_text() == FILES["nodes.conf"]
    else:
        host.bring("", OTHER)
    assert host.restarted == ([] if refused else ["slurmctld.service"])


def test_a_host_that_is_controller_and_node_restarts_both(host):
    host.bring("")
    assert host.bring() == ["restart_service"]
    assert host.restarted == ["slurmctld.service", "slurmd.service"]
    daemons = {"slurmctld", "slurmd", "slurmctld began", "slurmd began"}
    assert set(json.loads((host.ours / "applied.json").read_text())) == {*daemons, *FILES}


def test_what_a_person_wrote_restarts_each_daemon_that_may_have_been_started_with_it(host):
    host.bring("")
    host.bring()
    host.restarted.clear()
    (host.ours / "gres.conf").write_text("# nothing\n")
    assert host.bring("") == ["write_file", "restart_service"]
    assert host.bring() == ["restart_service"]
    assert host.restarted == ["slurmctld.service", "slurmd.service"]
    assert host.bring("") == host.bring() == []


def test_a_daemon_that_does_not_start_is_started_again_by_the_next_run(host, monkeypatch):
    def fails(_name):
        raise CommandError(["systemctl", "restart"], "the unit is failed")

    with monkeypatch.context() as broken:
        broken.setattr(apply.systemd, "restart", fails)
        with pytest.raises(CommandError):
            host.bring()
    assert host.bring() == ["restart_service"]


def test_a_record_that_a_power_cut_left_empty_is_none(host):
    host.bring()
    (host.ours / "applied.json").write_text("{")
    assert host.bring() == ["restart_service"]


def test_gpus_that_the_site_defines_elsewhere_are_refused_with_file_and_line(host):
    (host.site / "gres.conf").write_text("Include gpufleet/gres.conf\nInclude more.conf\n")
    (host.site / "more.conf").write_text("# ours\nNodeName=gpu[01-02] Name=gpu File=/dev/nvidia0\n")
    with pytest.raises(Refused) as refused:
        host.bring()
    assert refused.value.thing == f"{host.site}/more.conf, line 2"
    assert not host.ours.exists()


def test_a_node_that_is_no_longer_rendered_keeps_slurmctld_until_its_jobs_have_ended(host):
    both = {**FILES, "nodes.conf": f"{FILES['nodes.conf']}NodeName=gpu77 Gres=gpu:nvidia_l4:1\n"}
    host.bring("", both)
    host.says["squeue"] = "17\n"
    with pytest.raises(Refused, match="jobs 17 run on gpu77"):
        host.bring("")
    assert (host.ours / "nodes.conf").read_text() == both["nodes.conf"]
    host.says["squeue"] = ""
    assert host.bring("")[-1] == "restart_service"


def test_a_job_that_is_suspended_is_one(host):
    host.bring()
    (asked,) = (one for one in host.asked if one[0] == "squeue")
    assert "S" in asked[asked.index("-t") + 1].split(",")


@pytest.mark.parametrize("lost", ["the run was cut off", "no file of ours was there"])
def test_what_slurmctld_was_not_started_with_does_not_tell_whose_jobs_it_would_end(host, monkeypatch, lost):
    if lost == "the run was cut off":
        host.bring("")

        def cut_off(_name):
            raise KeyboardInterrupt

        with monkeypatch.context() as broken, pytest.raises(KeyboardInterrupt):
            broken.setattr(apply.systemd, "restart", cut_off)
            host.bring("", OTHER)
        host.restarted.clear()
    host.says.update(sinfo="gpu01 mixed\n", squeue="17\n")
    with pytest.raises(Refused, match="jobs 17 run on"):
        host.bring("", OTHER)
    assert not host.restarted
    # A cluster that nobody uses is none to wait for.
    host.says["squeue"] = ""
    assert host.bring("", OTHER)[-1] == "restart_service"


def test_all_who_have_to_can_read_the_files_and_run_the_prolog_whatever_the_umask_is(host):
    before = os.umask(0o077)
    try:
        host.bring()
    finally:
        os.umask(before)
    assert host.ours.stat().st_mode & 0o777 == 0o755
    for name, mode in (("nodes.conf", 0o600), ("task-prolog.sh", 0o744)):
        (host.ours / name).chmod(mode)
        assert host.bring() == ["write_file"]
    assert (host.ours / "nodes.conf").stat().st_mode & 0o777 == 0o644
    assert (host.ours / "task-prolog.sh").stat().st_mode & 0o777 == 0o755
