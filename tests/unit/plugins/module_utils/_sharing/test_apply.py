# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sharing applied to a host whose systemd and MPS daemons are objects, and whose files are in a temporary directory."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_library import NvmlError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.processes import ProgramProcess
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure, Plan, Refused, Step
from ansible_collections.gpufleet.nvidia.plugins.module_utils._records import HostSharing
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import apply as sharing_apply
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import mps_units
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import plan as sharing_plan
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.host import SHM
from ansible_collections.gpufleet.nvidia.plugins.module_utils._steps import Kind
from ansible_collections.gpufleet.nvidia.plugins.module_utils._users import names
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._sharing import mps_machine
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._sharing.mps_machine import (
    DESIRED,
    bring,
    daemon,
)

machine = mps_machine.machine


def test_a_host_is_brought_to_its_desired_state_and_stays_there(machine):
    assert "start MPS daemon node" in bring(machine, DESIRED)
    assert machine.at_boot == {"gpufleet-mps@node.service", mps_units.SHM_UNIT}
    assert machine.log == [
        f"reload gpufleet-mps@node.service, {mps_units.SHM_UNIT}",
        f"restart {mps_units.SHM_UNIT}",
        "restart gpufleet-mps@node.service",
    ]
    assert sharing_apply.recorded() == DESIRED
    assert bring(machine, DESIRED) == []


def test_a_gpu_that_fell_off_the_bus_keeps_nobody_from_sharing_the_others(machine):
    machine.lost.add(1)
    machine.compute[1] = None
    bring(machine, DESIRED)
    assert machine.compute == {0: "exclusive_process", 1: None}
    assert bring(machine, DESIRED) == []


def test_unit_files_that_are_right_need_no_reload(machine):
    bring(machine, DESIRED)
    bring(machine, HostSharing(compute_mode="default"))
    machine.log.clear()
    bring(machine, DESIRED)
    assert not [entry for entry in machine.log if entry.startswith("reload")]


def test_where_containers_would_lose_gpus_no_daemon_is_stopped(machine):
    bring(machine, DESIRED)
    machine.log.clear()
    machine.failing = "reload"
    other = HostSharing(compute_mode="exclusive_process", daemons=(daemon(shm_directory=None),))
    plan = sharing_plan.plan(sharing_apply.observe(machine), other, "refuse")
    assert {"stop_mps_daemon", "start_mps_daemon"} <= {step.kind.key for step in plan.steps}
    with pytest.raises(Refused):
        sharing_apply.apply(plan, other, machine)
    assert machine.log == []


def test_limits_are_told_to_the_running_daemon(machine):
    bring(machine, DESIRED)
    machine.log.clear()
    machine.servers[DESIRED.daemons[0].pipe_directory] = {910: [], 920: [1001]}
    other = HostSharing(compute_mode="exclusive_process", daemons=(daemon(limits_mib=(2048, 2048)),))
    done = bring(machine, other)
    assert done[:2] == ["set MPS defaults node", "end idle MPS server 910 of node"]
    assert machine.log == ["end 910"]
    assert sharing_apply.configured("node") == other.daemons[0]


def test_a_client_that_came_since_the_plan_keeps_its_server(machine):
    bring(machine, DESIRED)
    pipe = DESIRED.daemons[0].pipe_directory
    machine.servers[pipe] = {910: [1001]}
    late = Plan((Step(Kind.END_IDLE_MPS_SERVER, "node", "", data={"pid": 910}),))
    sharing_apply.apply(late, DESIRED, None)
    assert machine.servers[pipe] == {910: [1001]}
    machine.running.clear()
    sharing_apply.apply(late, DESIRED, None)


def test_a_daemon_that_is_not_described_goes(machine):
    bring(machine, DESIRED)
    bring(machine, HostSharing(compute_mode="default"))
    assert machine.running == {}
    # What only it needed goes with it.
    assert machine.at_boot == set()
    assert not machine.is_mount(SHM)
    assert machine.compute == {0: "default", 1: "default"}
    assert sharing_apply.observe(machine).daemons == ()


def test_a_daemon_that_would_not_start_at_boot_is_enabled(machine):
    bring(machine, DESIRED)
    machine.at_boot.discard("gpufleet-mps@node.service")
    machine.masked.add("gpufleet-mps@node.service")
    machine.log.clear()
    assert bring(machine, DESIRED) == ["enable MPS daemon node"]
    assert machine.at_boot >= {"gpufleet-mps@node.service"}
    assert machine.log == [], "it runs on"


@pytest.mark.parametrize("how", ["dead", "deaf", "damaged"])
def test_a_daemon_that_does_not_answer_is_seen(machine, how):
    bring(machine, DESIRED)
    if how == "dead":
        machine.running.clear()
    elif how == "deaf":
        machine.deaf.add(DESIRED.daemons[0].pipe_directory)
    else:
        machine.running.clear()
        damage()
    (found,) = sharing_apply.observe(machine).daemons
    assert not found.responds
    assert found.enabled
    assert (found.configured is None) is (how == "damaged")
    assert bring(machine, DESIRED)[0] == "start MPS daemon node"


def damage(text="# nobody's\n"):
    with open(mps_units.environment_path("node"), "w", encoding="utf-8") as handle:
        handle.write(text)


@pytest.mark.parametrize("line", [None, "CUDA_VISIBLE_DEVICES=GPU-7"])
def test_a_file_that_somebody_changed_does_not_cost_clients_their_daemon(machine, line):
    bring(machine, DESIRED)
    machine.servers[DESIRED.daemons[0].pipe_directory] = {910: [1001]}
    damage(*([mps_units.environment_text(DESIRED.daemons[0]) + line] if line else []))
    with pytest.raises(Refused, match=r"its clients: MPS client \(PID 1001\)"):
        bring(machine, DESIRED)
    assert bring(machine, DESIRED, "force")[:2] == ["stop MPS daemon node", "start MPS daemon node"]
    assert sharing_apply.configured("node") == DESIRED.daemons[0]


def process(*words, foreign=False, unit=None, **environment):
    return ProgramProcess(4711, 1, ("nvidia-cuda-mps-control", *words), environment, foreign, unit)


@pytest.mark.parametrize(
    ("found", "refused"),
    [
        (process("-f", CUDA_MPS_PIPE_DIRECTORY="/mps/nvidia.com/gpu/pipe", foreign=True), True),
        (process("-d"), True),
        (process("-d", CUDA_VISIBLE_DEVICES="GPU-1,GPU-9"), True),
        (process("-d", CUDA_VISIBLE_DEVICES="9"), True),
        (process("-d", CUDA_VISIBLE_DEVICES="GPU-9"), False),
        (process(), False),
        (process("-d", CUDA_MPS_PIPE_DIRECTORY="/run/nvidia/mps/node/pipe"), False),
        # Only ours have a mount namespace and are not in a container.
        (process("-d", foreign=True, unit="gpufleet-mps@gpu7.service"), False),
        (process("-d", foreign=True, unit="nvidia-mps.service"), True),
        # Anybody can call a program so, in a mount namespace of his own, too.
        (replace(process("-d"), user=1000), False),
        (replace(process("-d", foreign=True), user=1000), False),
        (replace(process("-d"), user=0), True),
    ],
)
def test_never_two_daemons_on_one_gpu(machine, found, refused):
    bring(machine, DESIRED)
    machine.programs = [found]
    machine.running.clear()
    if not refused:
        assert bring(machine, DESIRED) == ["start MPS daemon node"]
        return
    machine.log.clear()
    with pytest.raises(Refused, match="process 4711 is another MPS control daemon") as refusal:
        bring(machine, DESIRED)
    assert ("nvidia_sharing_mps_manager: device_plugin" in refusal.value.remedy) is found.foreign
    assert ("echo quit" in refusal.value.remedy) is not found.foreign
    assert machine.log == []
    # What runs no daemon of its own is not concerned.
    bring(machine, HostSharing())


def test_a_daemon_of_protocol_3_is_told_its_servers_settings(machine):
    machine.protocol_3 = False
    wanted = HostSharing("exclusive_process", daemons=(daemon(protocol=3, multi_user=True, limits_mib=(4096,)),))
    with pytest.raises(Refused, match="does not speak protocol 3"):
        bring(machine, wanted)
    assert machine.log == []
    machine.protocol_3 = True
    bring(machine, wanted)
    assert "server of protocol 3" in machine.log
    assert bring(machine, wanted) == []
    machine.log.clear()
    machine.servers[wanted.daemons[0].pipe_directory] = {910: []}
    other = HostSharing("exclusive_process", daemons=(daemon(protocol=3, multi_user=True, limits_mib=(8192,)),))
    assert bring(machine, other) == ["set MPS defaults node", "record the sharing of this host"]
    # No command of protocol 3 lifts a limit, or changes the protocol.
    for change in ({"limits_mib": (0,)}, {"protocol": 2, "limits_mib": (8192,)}):
        machine.multi_user = True
        new = HostSharing("exclusive_process", daemons=(daemon(**{"protocol": 3, "multi_user": True, **change}),))
        assert bring(machine, new)[:2] == ["stop MPS daemon node", "start MPS daemon node"]
        bring(machine, other)


def test_processes_that_are_no_clients_of_ours_are_foreign(machine):
    bring(machine, DESIRED)
    machine.servers[DESIRED.daemons[0].pipe_directory] = {910: [1001]}
    machine.processes[0] = [
        {"pid": pid, "type": kind, "name": "train"} for pid, kind in ((910, "C"), (1001, "C"), (5, "G"), (6, "C"))
    ]
    machine.processes[1] = None
    assert [names(gpu.foreign) for gpu in sharing_apply.observe(machine).gpus] == [("train (PID 6)",), ()]


def test_a_host_without_driver_or_systemd_can_be_observed(machine):
    bring(machine, DESIRED)
    machine.systemd = False
    observed = sharing_apply.observe(None)
    assert observed.gpus == ()
    assert not observed.daemons[0].enabled


@pytest.mark.parametrize("text", ["{", "[]", '{"daemons": [{}]}', '{"daemons": 3}'])
def test_a_record_that_cannot_be_read_is_written_anew(machine, text):
    with open(sharing_apply.RECORD, "w", encoding="utf-8") as handle:
        handle.write(text)
    assert bring(machine, HostSharing()) == ["record the sharing of this host"]
    assert sharing_apply.recorded() == HostSharing()


@pytest.mark.usefixtures("machine")
def test_an_empty_record_is_none():
    with open(sharing_apply.RECORD, "w", encoding="utf-8"):
        pass
    assert sharing_apply.recorded() is None


def test_a_step_that_fails_says_which(machine):
    machine.failing = "restart"
    with pytest.raises(Failure, match=r"Failed to start MPS daemon node: .* the unit is failed"):
        bring(machine, DESIRED)
    # Cut off before the record was written: the next run goes on from there.
    assert sharing_apply.recorded() is None
    machine.failing = "priority"
    with pytest.raises(Failure, match="it is 0"):
        bring(machine, DESIRED)
    machine.failing = None
    assert "set MPS defaults node" in bring(machine, DESIRED)


def test_a_daemon_that_answers_late_is_waited_for(machine):
    bring(machine, DESIRED)
    # A daemon that runs is asked again before it is taken for dead: starting it anew would end its clients.
    machine.late = 3
    machine.log.clear()
    assert bring(machine, DESIRED) == []
    assert machine.log == []
    # One that was just started is told its settings when it answers.
    sharing_apply.apply(Plan((Step(Kind.STOP_MPS_DAEMON, "node", ""),)), DESIRED, None)
    machine.late = 3
    sharing_apply.apply(Plan((Step(Kind.START_MPS_DAEMON, "node", ""),)), DESIRED, None)
    assert machine.running[DESIRED.daemons[0].pipe_directory]["percentage"] == 25.0


def test_a_daemon_that_never_answers_is_waited_for_within_a_bound(machine):
    machine.late = 10**9
    with pytest.raises(Failure, match=r"Failed to start MPS daemon node: No answer .* within 0\.2 s"):
        sharing_apply.apply(sharing_plan.plan(sharing_apply.observe(machine), DESIRED), DESIRED, machine)
    # A unit that does not run is not waited for.
    machine.running.clear()
    left = machine.late
    assert not sharing_apply.observe(machine).daemons[0].responds
    assert left - machine.late == 1


def test_a_daemon_that_systemd_is_starting_anew_is_waited_for(machine, monkeypatch):
    bring(machine, DESIRED)
    pipe_directory = DESIRED.daemons[0].pipe_directory
    stopped = machine.running.pop(pipe_directory)
    states = iter(["deactivating", "activating", "activating", "active"])

    def unit(_name):
        state = next(states)
        if state == "active":
            machine.running[pipe_directory] = stopped
        return SimpleNamespace(active=state)

    monkeypatch.setattr(machine, "unit", unit)
    assert sharing_apply.observe(machine).daemons[0].responds


@pytest.mark.parametrize("how", ["unmounted", "the host's"])
def test_a_daemon_with_other_shared_memory_than_its_clients_is_replaced(machine, how):
    bring(machine, DESIRED)
    if how == "unmounted":
        machine.mounts.pop(SHM)
    else:
        machine.mounts[SHM] = machine.mounts["/dev/shm"]
    machine.servers[DESIRED.daemons[0].pipe_directory] = {910: [1001]}
    with pytest.raises(
        Refused, match=r"its shared memory is not that of its clients.* its clients: MPS client \(PID 1001\)"
    ):
        bring(machine, DESIRED)
    machine.log.clear()
    assert bring(machine, DESIRED, "force") == ["stop MPS daemon node", "start MPS daemon node"]
    assert f"restart {mps_units.SHM_UNIT}" in machine.log
    assert machine.mounts[SHM].startswith("tmpfs")


def test_what_the_device_plugin_mounts_is_left_to_it(machine):
    machine.mounts[SHM] = "the plugin's"
    assert bring(machine, HostSharing()) == []
    assert machine.is_mount(SHM)


def test_daemons_for_clients_on_the_host_have_its_shared_memory(machine):
    bring(machine, DESIRED)
    own = daemon("gpu0", devices=("GPU-0",), limits_mib=(4096,), shm_directory="")
    done = bring(machine, HostSharing(compute_mode="exclusive_process", daemons=(own,)))
    assert done[:2] == ["stop MPS daemon node", f"unmount shared memory {SHM}"]
    assert not machine.is_mount(SHM)


def test_the_option_is_written_as_the_release_spells_it(machine, monkeypatch):
    monkeypatch.setattr(sharing_apply.mps_control, "multi_user_option", lambda: "-multiuser-server")
    wanted = dataclasses.replace(DESIRED, daemons=(daemon(multi_user=True),))
    bring(machine, wanted)
    with open(mps_units.environment_path("node"), encoding="utf-8") as handle:
        assert "MPS_OPTIONS=-multiuser-server\n" in handle.read()
    assert bring(machine, wanted) == []


def test_a_release_without_multi_user_server_is_known_before_anything_is_touched(machine):
    wanted = dataclasses.replace(DESIRED, daemons=(daemon(multi_user=True),))
    with pytest.raises(Refused, match="no multi-user server"):
        bring(machine, wanted)
    assert machine.log == []
    machine.multi_user = True
    bring(machine, wanted)


def test_nvml_that_refuses_says_at_which_step(machine, monkeypatch):
    def refuse(*_arguments):
        raise NvmlError("nvmlDeviceSetComputeMode", 3, "NOT_SUPPORTED", "Not Supported")

    monkeypatch.setattr(sharing_apply.nvml_gpus, "set_compute_mode", refuse)
    with pytest.raises(Failure, match="Failed to set compute mode GPU 0: "):
        bring(machine, DESIRED)


def test_the_time_slice_is_set_by_nvidia_smi(machine, monkeypatch):
    calls = []
    monkeypatch.setattr(sharing_apply.command, "run", lambda command, allowed: calls.append((command, allowed)))
    wanted = HostSharing(compute_mode="default", time_slice="long")
    bring(machine, wanted)
    assert calls == [(["nvidia-smi", "compute-policy", "--set-timeslice=3"], (0,))]
    with open(sharing_apply.RECORD, encoding="utf-8") as handle:
        assert json.load(handle)["time_slice"] == "long"
