# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose job has which device, by what Slurm 22.05.8 gave its tasks and by the files of its node."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import processes
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.processes import (
    add_allocations,
    read_allocations,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.slurm_jobs import device_files, jobs_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu_facts import gpu_view
from ansible_collections.gpufleet.nvidia.plugins.module_utils._users import JOB, names, users_of
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.usage import node_usage, users_on_host

CONF = "NodeName=gpu01,gpu02 CPUs=64 Gres=gpu:big:1,gpu:small:2\nInclude more.conf\n"
GRES = "Include /etc/slurm/gpufleet/gres.conf\n"
OURS = """\
NodeName=gpu[01-02] Name=gpu Type=small MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap84,/dev/nvidia-caps/nvidia-cap85
NodeName=gpu[01-02] Name=gpu Type=small MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap93,/dev/nvidia-caps/nvidia-cap94
NodeName=gpu03 Name=gpu Type=small File=/dev/nvidia7
NodeName=gpu[01-02] Name=gpu Type=big File=/dev/nvidia1
"""
FILES = {"/etc/slurm/slurm.conf": CONF, "/etc/slurm/gres.conf": GRES, "/etc/slurm/gpufleet/gres.conf": OURS}
TASK = {"SLURM_JOB_ID": "4", "SLURM_JOB_USER": "ada", "SLURM_CONF": "/etc/slurm/slurm.conf", "SLURMD_NODENAME": "gpu01"}
SECOND = ",".join(sorted(device_files(0, 10, 0)))


def task(numbers, sees="", **more):
    return {**TASK, "SLURM_STEP_GPUS": numbers, "CUDA_VISIBLE_DEVICES": sees, **more}


def test_numbers_follow_the_types_of_slurm_conf_and_then_the_lines_of_gres_conf():
    found = jobs_of([task("2"), task("0", SLURM_JOB_ID="5", SLURM_JOB_USER="bob")], FILES.get)
    assert found == {
        SECOND: [{"job": "4", "user": "ada", "resource": "gpu:small"}],
        "/dev/nvidia1": [{"job": "5", "user": "bob", "resource": "gpu:big"}],
    }


def test_the_tasks_of_a_job_are_one_user_and_a_job_without_gpus_is_none():
    assert jobs_of([{**TASK}, task(""), task("x,9")], FILES.get) == {}
    assert [len(jobs) for jobs in jobs_of([task("1,2"), task("1")], FILES.get).values()] == [1, 1]


def test_ranges_of_files_and_lines_without_a_node_count_for_it():
    files = {"/etc/slurm/gres.conf": "Name=gpu File=/dev/nvidia[0-11]\n"}
    assert list(jobs_of([task("10")], files.get)) == ["/dev/nvidia10"]


def test_where_slurmd_finds_the_devices_itself_the_job_says_which():
    files = {"/etc/slurm/gres.conf": "AutoDetect=nvml\n"}
    found = jobs_of([task("0", "MIG-one,MIG-two")], files.get)
    assert found["MIG-one"] == found["MIG-two"] == [{"job": "4", "user": "ada", "resource": "gpu"}]


def host(root, sees, numbers="2"):
    """A host with slurmstepd and one task, as its procfs shows them."""
    for path, text in FILES.items():
        (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (root / path[1:]).write_text(text)
    environment = task(numbers, sees)
    for pid, parent, comm in ((10, 1, "slurmstepd"), (11, 10, "python3"), (12, 1, "bash")):
        folder = Path(root) / f"proc/{pid}"
        folder.mkdir(parents=True)
        (folder / "comm").write_text(f"{comm}\n")
        (folder / "stat").write_text(f"{pid} ({comm}) S {parent} 0 0\n")
        (folder / "environ").write_text("".join(f"{name}={value}\0" for name, value in environment.items()))
    return HostFiles(str(root))


def test_what_a_user_writes_into_an_environment_points_nowhere_and_breaks_nothing(tmp_path):
    found = read_allocations(host(tmp_path, "MIG-" + "x" * 5000))
    assert [list(one) for one in found.values()] == [[{"job": "4", "user": "ada", "resource": "gpu:small"}]]
    theirs = tmp_path / "home/gres.conf"
    theirs.parent.mkdir()
    theirs.write_text("Name=gpu File=/dev/nvidia[0-7]\n")
    environment = task("2", SLURM_CONF="/home/slurm.conf", SLURM_JOB_USER="\x1b[2J" * 99)
    (tmp_path / "proc/11/environ").write_text("".join(f"{name}={value}\0" for name, value in environment.items()))
    assert read_allocations(HostFiles(str(tmp_path))) == {SECOND: [{"job": "4", "user": None, "resource": "gpu:small"}]}
    assert jobs_of([task("\u0663"), task("1", SLURM_JOB_ID="4\n")], FILES.get) == {}


def test_a_process_of_anybody_that_has_the_name_of_slurmstepd_starts_no_job(tmp_path, monkeypatch):
    files = host(tmp_path, "")
    assert read_allocations(files) != {}
    monkeypatch.setattr(processes.os, "geteuid", lambda: 4711)
    assert read_allocations(files) == {}


def test_a_file_that_is_not_utf_8_is_read_as_slurm_reads_it(tmp_path):
    files = host(tmp_path, "")
    (tmp_path / "etc/slurm/slurm.conf").write_bytes(b"# B\xfcro\n" + CONF.encode())
    assert list(read_allocations(files)) == [SECOND]


def a_gpu():
    part = {"id": 0, "profile": "1g.10gb", "processes": []}
    instances = [
        {"id": number, "profile": "1g.10gb", "start": start, "size": 1, "processes": [], "memory_mib": 9984,
         "compute_instances": [{**part, "uuid": f"MIG-{number}"}]}
        for number, start in ((9, 0), (10, 1))
    ]  # fmt: skip
    mig = {"supported": True, "current": True, "pending": True}
    return {
        "index": 0,
        "minor": 0,
        "uuid": "GPU-0",
        "mig": mig,
        "memory_mib": 81559,
        "processes": [],
        "gpu_instances": instances,
    }


def test_a_job_uses_its_instance_and_no_other(tmp_path):
    gpu = a_gpu()
    add_allocations([gpu], read_allocations(host(tmp_path, "MIG-GPU-0/10/0")))
    users = users_of(gpu_view(gpu))
    assert users.on(9) == ()
    assert [user.kind for user in users.on(10)] == [JOB]
    assert names(users.everybody) == ("job 4 of ada (gpu:small)",)


def test_inspect_counts_a_job_as_it_counts_a_pod(tmp_path):
    gpu = a_gpu()
    add_allocations([gpu], read_allocations(host(tmp_path, "MIG-10")))
    facts = view_of({"gpus": [gpu]})
    usage = node_usage("gpu01", "", facts, {}, [], [], users_on_host(facts))
    assert usage.titles == ["job 4 of ada (gpu:small)"]
    assert usage.gpus[0].instances_taken == 1


@pytest.mark.parametrize(("sees", "wrong"), [("MIG-10", False), ("MIG-GPU-0/10/0", False), ("MIG-9", True)])
def test_a_job_that_sees_another_device_is_kept_as_such(tmp_path, sees, wrong):
    gpu = a_gpu()
    add_allocations([gpu], read_allocations(host(tmp_path, sees)))
    (one,) = gpu["gpu_instances"][1]["compute_instances"][0]["allocations"]
    assert one.get("sees") == (sees if wrong else None)


@pytest.mark.parametrize(
    ("plugin", "cgroup", "wrong"),
    [
        ("", None, True),
        ("TaskPlugin=task/affinity", "ConstrainDevices=yes", True),
        ("TaskPlugin=task/cgroup,task/affinity", "ConstrainDevices=no", True),
        ("TaskPlugin=task/cgroup,task/affinity", "Include ours.conf", False),
    ],
)
def test_a_number_is_the_first_mig_device_to_cuda_unless_cgroups_leave_a_job_its_own(plugin, cgroup, wrong):
    """That CUDA enumerates one MIG device: NVIDIA's user guide of MIG, CUDA Device Enumeration."""
    files = {**FILES, "/etc/slurm/slurm.conf": f"{CONF}{plugin}\n", "/etc/slurm/ours.conf": "ConstrainDevices=Yes\n"}
    if cgroup:
        files["/etc/slurm/cgroup.conf"] = f"{cgroup}\n"
    found = jobs_of([task("2", "1"), task("0", "0", SLURM_JOB_ID="5")], files.get)
    seen = "the first MIG device of the host (CUDA_VISIBLE_DEVICES=1)"
    assert found[SECOND][0].get("sees") == (seen if wrong else None)
    # A whole GPU has its number.
    assert "sees" not in found["/dev/nvidia1"][0]
