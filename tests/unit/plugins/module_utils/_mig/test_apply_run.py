# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs in this process against the virtual NVML: what they do, and how they go back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import HostFiles
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_gpus import open_nvml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_library import ComputeInstanceProfile
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig import apply, apply_machine, apply_run
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.apply import ApplyFailed
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.apply_machine import (
    Machine,
    ServicesFailed,
    StepFailed,
    widest,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.desired import variables_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.journal import Journal
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.journal_lines import NOT_RESTORED, RESTORED
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure, NotInEffect, Refused
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._mig.virtual_gpus import (
    VirtualHost,
    build,
    variables,
)


@pytest.fixture(scope="module", autouse=True)
def virtual_nvml():
    build()


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.setattr(apply, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(apply_run, "RECORD_PATH", str(tmp_path / "mig.json"))
    monkeypatch.setattr(apply_run.cdi_generator, "available", lambda: False)
    monkeypatch.setattr(apply_run, "to_notify", lambda _services: ())

    def create(board="h100-80gb-sxm", count=1):
        host = VirtualHost.create(tmp_path / "host", board, count)
        monkeypatch.setenv("VIRTUAL_GPU_ROOT", str(host.root))
        return host

    return create


def run(host, layout, by=None, files=None, check=False, to_original=False, **asked):
    with open_nvml() as nvml:
        machine = Machine(
            nvml,
            Journal(str(host.root / "journal")),
            variables(layout, **asked),
            files=files or HostFiles(str(host.root / "nobody")),
            reset=by or host._reset,
        )
        prepared = apply_run.plan(machine, machine.read(), to_original)
        return apply_run.report(prepared) if check else apply_run.carry_out(machine, prepared)


def one(**counts):
    return [{"devices": "all", "instances": {name.replace("_", "."): count for name, count in counts.items()}}]


def test_a_run_reports_what_it_did_and_the_second_changes_nothing(make):
    host = make(count=2)
    first = run(host, "all-balanced")
    assert first["changed"] and len(first["created"]) == 8 and not first["destroyed"]
    assert [gpu["mig"] for gpu in first["after"]] == [True, True]
    assert host.counts(1) == {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}
    second = run(host, "all-balanced")
    assert not second["changed"] and len(second["kept"]) == 8 and not second["steps"]


def test_the_layout_is_recorded_with_its_places(make, tmp_path):
    host = make()
    run(host, one(**{"3g_40gb": 1}))
    recorded = json.loads((tmp_path / "mig.json").read_text())
    assert recorded["request"]["strategy"] == "mixed"
    assert recorded["gpus"][0]["instances"] == [{"profile": "3g.40gb", "start": 4, "size": 4, "compute": [3]}]
    (tmp_path / "mig.json").write_text("{")
    again = run(host, one(**{"3g_40gb": 1}))
    assert [step["kind"] for step in again["steps"]] == ["record_layout"] and again["changed"]
    (tmp_path / "mig.json").unlink()
    assert not run(host, one(**{"3g_40gb": 1}), restore=False)["changed"]


def test_a_task_for_other_gpus_leaves_the_record_of_the_first(make, tmp_path):
    host = make(count=2)
    first = [{"devices": [0], "instances": {"3g.40gb": 1}}]
    second = [{"devices": [1], "instances": {"1g.10gb": 2}}]
    run(host, first)
    run(host, second)
    recorded = json.loads((tmp_path / "mig.json").read_text())["gpus"]
    assert [[one["profile"] for one in gpu["instances"]] for gpu in recorded] == [["3g.40gb"], ["1g.10gb"] * 2]
    assert not run(host, first)["changed"] and not run(host, second)["changed"]


def test_a_gpu_that_fell_off_the_bus_keeps_its_record_and_no_other_from_its_layout(make, tmp_path):
    host = make(count=2)
    run(host, one(**{"3g_40gb": 1}))
    host.control("lose", "--gpu", "1")
    found = run(host, one(**{"1g_10gb": 2}))
    assert found["changed"] and host.counts(0) == {"1g.10gb": 2}
    recorded = json.loads((tmp_path / "mig.json").read_text())["gpus"]
    assert [[place["profile"] for place in gpu["instances"]] for gpu in recorded] == [["1g.10gb"] * 2, ["3g.40gb"]]
    assert not run(host, one(**{"1g_10gb": 2}))["changed"]
    # Nor is one that is named passed over.
    with pytest.raises(Refused, match="the host has no GPU 1"):
        run(host, [{"devices": [1], "enabled": False}])


def test_only_what_has_to_go_goes(make):
    host = make()
    run(host, one(**{"3g_40gb": 1, "2g_20gb": 1, "1g_10gb": 2}))
    kept = next(i for i in host.gpus()[0]["gpu_instances"] if i["profile"] == "3g.40gb")
    found = run(host, one(**{"3g_40gb": 1, "2g_20gb": 1, "1g_10gb": 1}))
    assert len(found["destroyed"]) == 1 and not found["created"] and len(found["stale_uuids"]) == 1
    assert kept in host.gpus()[0]["gpu_instances"]


def test_the_compute_instance_has_the_most_sms(make):
    host = make()
    run(host, one(**{"1g_20gb": 1}))
    assert host.gpus()[0]["gpu_instances"][0]["compute_instances"][0]["multiprocessors"] == 26


def test_parts_of_a_gpu_instance_are_made_and_changed_inside_it(make):
    host = make()
    run(host, one(**{"1c.3g_40gb": 3}))
    first = host.gpus()[0]["gpu_instances"][0]
    assert [inner["profile"] for inner in first["compute_instances"]] == ["1c.3g.40gb"] * 3
    run(host, one(**{"3g_40gb": 1}))
    second = host.gpus()[0]["gpu_instances"][0]
    assert second["id"] == first["id"] and len(second["compute_instances"]) == 1


def test_an_ampere_gpu_is_reset_alone(make):
    host = make("a100-40gb", 2)
    layout = [{"devices": [1], "instances": {"3g.20gb": 2}}]
    found = run(host, layout)
    assert len(found["reset"]) == 1 and found["reset"][0].startswith("GPU 1 ")
    assert [gpu["mig"]["current"] for gpu in host.gpus()] == [False, True]
    assert found["unselected"] == [0]


def test_a_gpu_that_is_held_waits_for_a_reboot(make, tmp_path):
    host = make("a100-40gb")
    root = tmp_path / "proc-root"
    (root / "proc/77/fd").mkdir(parents=True)
    (root / "proc/77/comm").write_text("nv-hostengine\n")
    (root / "proc/77/cgroup").write_text("0::/system.slice/nvidia-dcgm.service\n")
    (root / "proc/77/fd/3").symlink_to("/dev/nvidia0")
    files = HostFiles(str(root))
    found = run(host, one(**{"3g_20gb": 1}), files=files)
    assert found["reboot_required"] and "nv-hostengine (PID 77)" in found["reboot_reason"]
    assert host.gpus()[0]["mig"]["pending"] and not host.gpus()[0]["mig"]["current"]
    recorded = json.loads((tmp_path / "mig.json").read_text())["gpus"][0]
    assert recorded["mig"] and recorded["instances"][0]["profile"] == "3g.20gb"
    again = run(host, one(**{"3g_20gb": 1}), files=files)
    assert again["reboot_required"] and not again["changed"]
    with pytest.raises(Refused, match="nv-hostengine"):
        run(host, one(**{"3g_20gb": 1}), reboot=False, files=files)
    # Its service is stopped for the change, so that it holds nothing then.
    mine = {"restart_services": ["nvidia-dcgm.service"]}
    assert run(host, one(**{"3g_20gb": 1}), files=files, **mine)["reset"]


def holding(root, pid, command):
    """The files of a host on which a process has the first GPU open."""
    (root / f"proc/{pid}/fd").mkdir(parents=True)
    (root / f"proc/{pid}/comm").write_text(f"{command}\n")
    (root / f"proc/{pid}/fd/3").symlink_to("/dev/nvidia0")
    return HostFiles(str(root))


def test_this_process_does_not_stand_in_its_own_way(make, tmp_path):
    host = make("a100-40gb")
    files = holding(tmp_path / "proc-root", os.getpid(), "python3")
    assert run(host, one(**{"3g_20gb": 1}), files=files)["reset"]


@pytest.mark.parametrize("daemon", ["nvidia-persiste", "nv-fabricmanage"])
def test_daemons_that_keep_running_during_a_reset_are_not_in_its_way(make, tmp_path, daemon):
    """The fabric manager of an HGX A100 has to run while one of its GPUs is reset."""
    host = make("a100-40gb")
    found = run(host, one(**{"3g_20gb": 1}), files=holding(tmp_path / "proc-root", 78, daemon))
    assert found["reset"] and not found["reboot_required"]


@pytest.mark.parametrize("shown", [True, False])
def test_who_is_on_an_instance_and_not_in_nvmls_list_loses_nothing(make, tmp_path, shown):
    host = make()
    run(host, one(**{"3g_40gb": 1, "1g_10gb": 2}))
    before = host.layout()
    instance = next(one for one in host.gpus()[0]["gpu_instances"] if one["profile"] == "3g.40gb")
    host.control(
        "run", "--gpu", "0", "--gi", str(instance["id"]), "--ci", "0", "--pid", str(os.getpid()), "--type", "N"
    )
    files = holding(tmp_path / "proc-root", 78, "secret") if shown else None
    expected = "it may be secret \\(PID 78\\)" if shown else "/proc does not show which"
    with pytest.raises(
        ApplyFailed, match=f"a process that NVML does not list.*{expected}.*The former layout is restored"
    ) as failed:
        run(host, one(**{"7g_80gb": 1}), files=files)
    assert failed.value.outcome == RESTORED and host.layout() == before
    assert instance in host.gpus()[0]["gpu_instances"]


def test_what_the_kubelet_gave_to_a_pod_is_not_destroyed_unless_forced(make, tmp_path):
    """The module reads the kubelet's record at that moment: a pod may have come since the host was read."""
    host = make()
    run(host, one(**{"3g_40gb": 1, "1g_10gb": 2}))
    before = host.layout()
    given = next(one for one in host.gpus()[0]["gpu_instances"] if one["profile"] == "3g.40gb")
    entry = {"PodUID": "u1", "ContainerName": "main", "ResourceName": "nvidia.com/mig-3g.40gb"}
    entry["DeviceIDs"] = {"0": [given["compute_instances"][0]["uuid"]]}
    root = tmp_path / "kubelet"
    (root / "var/lib/kubelet/device-plugins").mkdir(parents=True)
    (root / "var/lib/kubelet/pods/u1").mkdir(parents=True)
    (root / "var/log/pods/team_notebook_u1").mkdir(parents=True)
    record = root / "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
    record.write_text(json.dumps({"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {}}}))
    files, seven = HostFiles(str(root)), one(**{"7g_80gb": 1})
    with pytest.raises(
        Refused, match=r"3g.40gb at 4:4 .* by pod team/notebook \(nvidia.com/mig-3g.40gb\).*repartition"
    ):
        run(host, seven, allocations="read", files=files)
    left = run(host, seven, disruption="idle_only", allocations="read", files=files)
    assert host.layout() == before and "pod team/notebook" in left["left_alone"]["0"]["reason"]
    whole = record.read_text()
    record.write_text("{")
    with pytest.raises(Refused, match=r"by unknown .*it is not what a kubelet writes"):
        run(host, seven, allocations="read", files=files)
    assert host.layout() == before
    record.write_text(whole)
    # Another layout that keeps the instance goes on, and so does one that is allowed to destroy it.
    run(host, one(**{"3g_40gb": 1, "2g_20gb": 1}), allocations="read", files=files)
    assert host.counts(0) == {"3g.40gb": 1, "2g.20gb": 1}
    run(host, seven, disruption="force", allocations="read", files=files)
    assert host.counts(0) == {"7g.80gb": 1}


def test_a_hopper_gpu_that_somebody_holds_unseen_keeps_its_mode(make):
    host = make()
    host.control("run", "--gpu", "0", "--pid", str(os.getpid()), "--type", "N")
    desired = one(**{"3g_40gb": 1})
    with pytest.raises(ApplyFailed, match=r"(?s)cannot be reset.*The former layout is restored"):
        run(host, desired, reboot=False)
    assert host.layout() == [(False, False, ())]
    waiting = run(host, desired)
    assert waiting["reboot_required"] and "nvidia-smi -r" in waiting["reboot_reason"]


def test_a_reset_that_does_nothing_waits_for_a_reboot(make):
    host = make("a100-40gb")
    found = run(host, one(**{"3g_20gb": 1}), by=lambda address: f"GPU {address} could not be reset")
    assert "could not be reset" in found["reboot_reason"]
    assert "nvidia_mig_reset is never" in run(host, one(**{"3g_20gb": 1}), reset="never")["reboot_reason"]


def test_switching_off_destroys_first(make):
    host = make()
    run(host, "all-balanced")
    found = run(host, "all-disabled")
    assert len(found["destroyed"]) == 4 and host.layout() == [(False, False, ())]


def test_what_is_in_use_is_refused_and_nothing_is_touched(make):
    host = make()
    run(host, one(**{"3g_40gb": 1, "2g_20gb": 1}))
    host.occupy("2g.20gb")
    before = host.layout()
    with pytest.raises(Refused, match="in use"):
        run(host, one(**{"7g_80gb": 1}))
    assert host.layout() == before
    alone = run(host, one(**{"7g_80gb": 1}), disruption="idle_only")
    assert list(alone["left_alone"]) == ["0"] and host.layout() == before


def test_force_ends_the_processes_on_what_goes(make):
    host = make()
    run(host, one(**{"3g_40gb": 1}))
    instance = host.gpus()[0]["gpu_instances"][0]
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    # A zombie would still count as a process of the GPU.
    reaper = threading.Thread(target=victim.wait)
    reaper.start()
    try:
        place = ("--gpu", "0", "--gi", str(instance["id"]), "--ci", "0", "--pid", str(victim.pid))
        host.control("run", *place, "--memory", "10")
        found = run(host, one(**{"7g_80gb": 1}), disruption="force")
        assert found["terminated"] == [victim.pid]
        reaper.join(timeout=10)
        assert victim.returncode is not None and victim.returncode < 0
    finally:
        victim.kill()
        reaper.join(timeout=10)
    assert host.counts() == {"7g.80gb": 1}


def test_an_error_that_stays_brings_the_former_layout_back(make):
    host = make()
    run(host, one(**{"3g_40gb": 1, "1g_10gb": 2}))
    before = host.layout()
    host.control(
        "fail", "nvmlDeviceCreateGpuInstanceWithPlacement", "INSUFFICIENT_RESOURCES", "--nth", "1", "--count", "3"
    )
    with pytest.raises(ApplyFailed, match="The former layout is restored") as failed:
        run(host, one(**{"7g_80gb": 1}))
    assert failed.value.outcome == RESTORED and host.layout() == before
    host.control("fail", "--clear")
    assert run(host, one(**{"7g_80gb": 1}))["interrupted_run"] is None


def test_a_driver_that_refuses_everything_leaves_the_way_back_in_the_journal(make):
    host = make()
    run(host, one(**{"3g_40gb": 1, "1g_10gb": 2}))
    before = host.layout()
    host.control("fail", "nvmlDeviceCreateGpuInstanceWithPlacement", "INSUFFICIENT_RESOURCES")
    with pytest.raises(ApplyFailed, match="Failed to restore the former layout") as failed:
        run(host, one(**{"7g_80gb": 1}))
    assert failed.value.outcome == NOT_RESTORED
    host.control("fail", "--clear")
    # The next run fails too, but can go back: to where the first one began.
    host.control(
        "fail", "nvmlDeviceCreateGpuInstanceWithPlacement", "INSUFFICIENT_RESOURCES", "--nth", "1", "--count", "3"
    )
    with pytest.raises(ApplyFailed, match="The former layout is restored"):
        run(host, one(**{"4g_40gb": 1}))
    assert host.layout() == before


def test_a_run_that_was_cut_off_is_reported_and_closed(make):
    host = make()
    run(host, one(**{"3g_40gb": 1}))
    journal = Journal(str(host.root / "journal"))
    journal.begin(journal.last())
    journal.step("destroy GPU instance 1")
    found = run(host, one(**{"3g_40gb": 1}))
    assert found["interrupted_run"]["steps"] == ["destroy GPU instance 1"]
    # As the plan of the stage says.
    assert [step["kind"] for step in found["steps"]] == ["finish_mig_change"]
    assert not run(host, one(**{"3g_40gb": 1}))["changed"]
    assert journal.last().outcome == "reached"


def test_a_failure_on_the_way_is_reported_as_a_setback(make):
    host = make()
    host.control("fail", "nvmlGpuInstanceCreateComputeInstance", "UNKNOWN", "--nth", "1")
    found = run(host, one(**{"3g_40gb": 1}))
    assert len(found["setbacks"]) == 1 and "nvmlGpuInstanceCreateComputeInstance" in found["setbacks"][0]


def test_what_nvml_stops_telling_is_a_failure_of_that_reading(make):
    host = make()
    with open_nvml() as nvml:
        machine = Machine(nvml, Journal(str(host.root / "journal")), {})
        machine.read()
        host.control("fail", "nvmlDeviceGetMigMode", "UNKNOWN")
        with pytest.raises(StepFailed, match="GPU 0"):
            machine.read()


def test_gpus_without_mig_in_the_same_host(make, monkeypatch):
    host = VirtualHost(make().root.parent / "mixed")
    host.control("create", "--board", "h100-80gb-sxm", "--count", "1", "--board", "l40s-48gb", "--count", "1")
    host.control("boot")
    host.control("load", "580.126.09", "open")
    monkeypatch.setenv("VIRTUAL_GPU_ROOT", str(host.root))
    found = run(host, [{"devices": [0], "instances": {"3g.40gb": 2}}])
    assert found["changed"] and found["unselected"] == [1]
    assert not run(host, "all-disabled", check=True)["after"]


def test_totals_over_a_host(make):
    host = make(count=2)
    run(host, [{"node": {"3g.40gb": 3, "1g.10gb": 2}}])
    total = {}
    for index in (0, 1):
        for name, count in host.counts(index).items():
            total[name] = total.get(name, 0) + count
    assert total == {"3g.40gb": 3, "1g.10gb": 2}


@pytest.mark.parametrize("before", ["MIG-of-before", "0:1", "0"])
def test_cdi_follows_a_change_and_a_stale_specification(make, monkeypatch, tmp_path, before):
    host = make()
    written = []
    specification = tmp_path / "nvidia.yaml"

    def names(*devices):
        listed = "".join(f"- name: '{device}'\n" for device in (*devices, "all"))
        specification.write_text(f"kind: nvidia.com/gpu\ncdiVersion: 0.5.0\ndevices:\n{listed}")

    monkeypatch.setattr(apply_run.cdi_generator, "path", lambda *_files: str(specification))
    monkeypatch.setattr(apply_run.cdi_generator, "available", lambda: True)

    def refresh():
        written.append(1)
        if specification.exists():
            names(compute["uuid"])

    monkeypatch.setattr(apply_run.cdi_generator, "refresh", refresh)
    run(host, one(**{"3g_40gb": 1}))
    assert not run(host, one(**{"3g_40gb": 1}))["changed"] and len(written) == 1
    (compute,) = host.gpus()[0]["gpu_instances"][0]["compute_instances"]
    names(compute["uuid"] if before.startswith("MIG-") else "0:0")
    assert not run(host, one(**{"3g_40gb": 1}))["changed"] and len(written) == 1
    names(before)
    assert run(host, one(**{"3g_40gb": 1}))["changed"] and len(written) == 2
    names(before)
    monkeypatch.setattr(apply_run.cdi_generator, "refresh", lambda: "/run/cdi/nvidia.yaml")
    with pytest.raises(NotInEffect, match="still needed: generate the CDI specification"):
        run(host, one(**{"3g_40gb": 1}))

    def broken():
        raise OSError("no space")

    monkeypatch.setattr(apply_run.cdi_generator, "refresh", broken)
    with pytest.raises(Failure, match="no space"):
        run(host, one(**{"3g_40gb": 1}))


class Services:
    """systemd with one service that runs; C(killed) is the verb at which the run is cut off."""

    def __init__(self, monkeypatch):
        self.calls = []
        self.broken = None
        monkeypatch.setattr(apply_run, "active", lambda services: services)
        for verb in ("start", "stop", "restart"):
            monkeypatch.setattr(apply_machine.systemd, verb, lambda name, verb=verb: self.call(verb, name))

    def call(self, verb, name):
        self.calls.append((verb, name))
        if verb == self.broken:
            raise CommandError(["systemctl", verb, name], "it failed")


@pytest.fixture
def services(monkeypatch):
    return Services(monkeypatch)


DCGM = {"restart_services": ["dcgm.service"]}


def test_services_are_stopped_where_something_goes_and_restarted_otherwise(make, services):
    """DCGM may keep an instance open, so that the driver does not let it go."""
    host = make()
    found = [run(host, one(**{"3g_40gb": count}), **DCGM) for count in (1, 2, 1)]
    verbs = ["stop", "start", "restart", "stop", "start"]
    assert services.calls == [(verb, "dcgm.service") for verb in verbs]
    assert [one["restarted_services"] for one in found] == [["dcgm.service"]] * 3
    assert not run(host, one(**{"3g_40gb": 1}), **DCGM)["changed"] and len(services.calls) == 5


def test_services_that_a_killed_run_left_stopped_are_started_by_the_next(make, services):
    host = make()
    journal = Journal(str(host.root / "journal"))
    run(host, one(**{"3g_40gb": 1}), **DCGM)
    # What is left of a run that was killed after its last step, and before it started the service again.
    lines = Path(journal.path).read_text().splitlines(keepends=True)
    assert json.loads(lines.pop()) == {"followed": True}
    Path(journal.path).write_text("".join(lines))
    services.calls.clear()
    found = run(host, one(**{"3g_40gb": 1}))
    assert services.calls == [("restart", "dcgm.service")]
    assert found["changed"] and found["restarted_services"] == ["dcgm.service"]
    assert [step["kind"] for step in found["steps"]] == ["restart_service"]
    assert not run(host, one(**{"3g_40gb": 1}))["changed"]


def test_a_service_that_does_not_stop_keeps_the_gpus_as_they_are(make, services):
    host = make()
    before = host.layout()
    services.broken = "stop"
    with pytest.raises(ServicesFailed):
        run(host, one(**{"3g_40gb": 1}), **DCGM)
    assert host.layout() == before and services.calls[-1] == ("start", "dcgm.service")
    last = Journal(str(host.root / "journal")).last()
    assert (last.outcome, last.unfinished, last.followed) == (RESTORED, False, True)


def test_a_service_that_does_not_come_back_is_tried_again_by_the_next_run(make, services):
    host = make()
    services.broken = "start"
    with pytest.raises(Failure, match="The MIG layout is reached"):
        run(host, one(**{"3g_40gb": 1}), **DCGM)
    assert host.counts() == {"3g.40gb": 1}
    assert run(host, one(**{"3g_40gb": 1}), **DCGM)["restarted_services"] == ["dcgm.service"]


def test_a_change_that_is_taken_back_is_followed_too(make, services, monkeypatch):
    host = make()
    run(host, one(**{"3g_40gb": 1, "1g_10gb": 2}))
    written = []
    monkeypatch.setattr(apply_run.cdi_generator, "available", lambda: True)
    monkeypatch.setattr(apply_run.cdi_generator, "refresh", lambda: written.append(1))
    host.control(
        "fail", "nvmlDeviceCreateGpuInstanceWithPlacement", "INSUFFICIENT_RESOURCES", "--nth", "1", "--count", "3"
    )
    with pytest.raises(ApplyFailed, match="The former layout is restored"):
        run(host, one(**{"7g_80gb": 1}), **DCGM)
    assert written == [1] and services.calls == [("stop", "dcgm.service"), ("start", "dcgm.service")]
    host.control("fail", "--clear")

    def broken():
        raise OSError("no space for it")

    monkeypatch.setattr(apply_run.cdi_generator, "refresh", broken)
    host.control(
        "fail", "nvmlDeviceCreateGpuInstanceWithPlacement", "INSUFFICIENT_RESOURCES", "--nth", "1", "--count", "3"
    )
    with pytest.raises(ApplyFailed, match=r"The former layout is restored\. no space for it"):
        run(host, one(**{"7g_80gb": 1}))


def test_a_journal_that_cannot_be_written_leaves_no_service_stopped(make, services, monkeypatch):
    host = make()

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(Journal, "end", full)
    with pytest.raises(OSError, match="no space left"):
        run(host, one(**{"3g_40gb": 1}), **DCGM)
    assert services.calls == [("stop", "dcgm.service"), ("start", "dcgm.service")]


def test_widest_takes_the_most_sms_that_still_fit():
    small = ComputeInstanceProfile(0, 0, "1g.20gb", 1, 1, 16, remaining=1)
    large = ComputeInstanceProfile(7, 7, "1g.20gb", 1, 1, 26, remaining=1)
    full = ComputeInstanceProfile(7, 7, "1g.20gb", 1, 1, 26, remaining=0)
    assert widest([small, large], 1) is large
    assert widest([small, full], 1) is small
    assert widest([small], 2) is None


PARAMETERS = {
    "state": "present",
    "layout": None,
    "strategy": "none",
    "unselected": "leave",
    "record": True,
    "restart_services": ["nvidia-dcgm"],
    "disruption": "refuse",
    "reset": "auto",
    "reboot": "allow",
    "busy_instances": [],
    "allocations": "read",
}


def test_requests_of_parameters():
    with pytest.raises(Refused, match="needed"):
        variables_of(PARAMETERS)
    with pytest.raises(Refused, match="takes no layout"):
        variables_of({**PARAMETERS, "state": "absent", "layout": "all-balanced"})
    assert variables_of({**PARAMETERS, "state": "absent"})["nvidia_mig_layout"] == "all-disabled"
    assert variables_of({**PARAMETERS, "layout": "all-balanced"})["nvidia_mig_restart_services"] == [
        "nvidia-dcgm.service"
    ]


@pytest.mark.parametrize("recorded", [True, False])
def test_gpus_that_no_entry_selects_are_left_alone_or_disabled(make, tmp_path, recorded):
    host = make()
    run(host, one(**{"3g_40gb": 2}), restore=recorded)
    wanted = {"strategy": "none", "unselected": "leave"}
    assert not run(host, [], **wanted)["changed"]
    found = run(host, [], **{**wanted, "unselected": "disable"})
    assert len(found["destroyed"]) == 2 and [gpu["mig"] for gpu in found["after"]] == [False]
    # An earlier layout would come back at boot; otherwise there is nothing to restore.
    assert (tmp_path / "mig.json").exists() == recorded
    if recorded:
        assert json.loads((tmp_path / "mig.json").read_text())["gpus"][0]["mig"] is False
    assert not run(host, [], **{**wanted, "unselected": "disable"})["changed"]
