# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host whose systemd and MPS daemons are objects, and whose files are in a temporary directory."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.mps_control import MpsError, MpsNotRunning
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_library import GpuState
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.processes import ProgramProcess
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.mps_commands import limit_text
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused, carry_out
from ansible_collections.gpufleet.nvidia.plugins.module_utils._records import Daemon, HostSharing
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import apply as sharing_apply
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import mps_units
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import plan as sharing_plan
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.host import SHM


def daemon(name="node", **changes):
    made = Daemon(
        name=name,
        devices=("GPU-0", "GPU-1"),
        pipe_directory=f"/run/nvidia/mps/{name}/pipe",
        log_directory=f"/var/log/nvidia-mps/{name}",
        limits_mib=(4096, 8192),
        percentage=25.0,
        priority=1,
        multi_user=False,
        shm_directory=SHM,
    )
    return dataclasses.replace(made, **changes)


DESIRED = HostSharing(compute_mode="exclusive_process", daemons=(daemon(),))


class Machine:
    """Units, daemons and GPUs. Starting a unit starts a daemon with no settings, and then tells it those of its file."""

    def __init__(self):
        self.at_boot = set()
        self.masked = set()
        self.running = {}
        self.servers = {}
        self.log = []
        self.deaf = set()
        self.failing = None
        self.compute = {0: "default", 1: "default"}
        self.processes = {0: [], 1: []}
        self.lost = set()
        self.systemd = True
        self.multi_user = False
        self.protocol_3 = True
        self.programs = []
        # Questions that get no answer yet, and the shared memory of each daemon and what is mounted for pods.
        self.late = 0
        self.mounts = {"/dev/shm": "the host's"}

    # systemd
    def available(self):
        return self.systemd

    def unit(self, name):
        found = sharing_apply.configured(name.partition("@")[2].partition(".")[0])
        active = found is not None and found.pipe_directory in self.running
        return SimpleNamespace(active="active" if active else "inactive")

    def enabled(self, names):
        return self.at_boot & set(names)

    def reload_units(self, _names, changed):
        if self.failing == "reload":
            raise Refused("systemd on this host", "containers would lose their GPUs")
        if changed:
            self.log.append(f"reload {', '.join(sorted(changed))}")

    def enable(self, names):
        assert not self.masked & set(names)
        self.at_boot |= set(names)

    def unmask(self, name):
        self.masked.discard(name)

    def disable(self, names):
        self.at_boot -= set(names)

    def start(self, name):
        self.log.append(f"start {name}")

    def restart(self, name, timeout=120.0):
        assert timeout >= 120.0
        self.log.append(f"restart {name}")
        if self.failing == "restart":
            raise CommandError(["systemctl", "restart", name], "the unit is failed")
        if name == mps_units.SHM_UNIT:
            self.mounts[SHM] = f"tmpfs {len(self.log)}"
            return
        found = sharing_apply.configured(name.partition("@")[2].partition(".")[0])
        self.deaf.discard(found.pipe_directory)
        self.running[found.pipe_directory] = {"percentage": 100.0, "limits": {}, "priority": "0"}
        pid = 5000 + len(self.log)
        self.programs = [*self.others(found), ours(pid, found.pipe_directory)]
        self.mounts[f"/proc/{pid}/root/dev/shm"] = self.mounts[found.shm_directory or "/dev/shm"]
        sharing_apply.apply_settings(found)

    def stop(self, name):
        self.log.append(f"stop {name}")
        found = sharing_apply.configured(name.partition("@")[2].partition(".")[0])
        if found:
            self.running.pop(found.pipe_directory, None)
            self.programs = self.others(found)
        if name == mps_units.SHM_UNIT:
            self.mounts.pop(SHM)

    def others(self, daemon):
        return [
            one
            for one in self.programs
            if (one.environment or {}).get("CUDA_MPS_PIPE_DIRECTORY") != daemon.pipe_directory
        ]

    # Files
    def is_mount(self, path):
        return path in self.mounts

    def same(self, one, other):
        return None if one not in self.mounts else self.mounts[one] == self.mounts.get(other)

    # NVML
    def gpus(self):
        return [
            GpuState(
                {
                    "index": index,
                    "uuid": f"GPU-{index}",
                    "compute_mode": mode,
                    "processes": self.processes[index],
                    "lost": index in self.lost,
                }
            )
            for index, mode in self.compute.items()
        ]

    def set_compute_mode(self, _nvml, index, mode):
        self.compute[index] = mode


def ours(pid, pipe):
    """A daemon of our unit: it has a mount namespace of its own, because of its shared memory."""
    environment = {"CUDA_MPS_PIPE_DIRECTORY": pipe}
    return ProgramProcess(
        pid, 1, ("nvidia-cuda-mps-control", "-d"), environment, foreign=True, unit="gpufleet-mps@node.service"
    )


class Control:
    machine: Machine

    def __init__(self, pipe):
        self.pipe = self.pipe_directory = pipe

    def _found(self):
        if self.machine.late:
            self.machine.late -= 1
            raise MpsNotRunning(self.pipe)
        if self.pipe not in self.machine.running:
            raise MpsNotRunning(self.pipe)
        return self.machine.running[self.pipe]

    def thread_percentage(self):
        found = self._found()
        return None if self.pipe in self.machine.deaf else found["percentage"]

    def set_thread_percentage(self, value):
        self._found()["percentage"] = value

    def memory_limit(self, ordinal):
        return self._found()["limits"].get(ordinal, "")

    def set_memory_limit(self, ordinal, mib):
        self._found()["limits"][ordinal] = limit_text(mib)

    def priority(self):
        return self._found()["priority"]

    def set_priority(self, value):
        if self.machine.failing == "priority":
            raise MpsError("it is 0")
        self._found()["priority"] = str(value)

    def servers(self):
        self._found()
        return tuple(self.machine.servers.get(self.pipe, {}))

    def clients(self, server):
        return tuple(self.machine.servers[self.pipe][server])

    def stop_idle_server(self, server):
        self.machine.log.append(f"end {server}")
        del self.machine.servers[self.pipe][server]


class Control3(Control):
    def ensure_server(self):
        self._found()
        self.machine.log.append("server of protocol 3")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    made = Machine()
    Control.machine = made
    monkeypatch.setattr(sharing_apply, "MpsControl", Control)
    monkeypatch.setattr(sharing_apply.mps_control, "installed", lambda: True)
    monkeypatch.setattr(sharing_apply.mps_control, "multi_user_option", lambda: "-M" if made.multi_user else None)
    monkeypatch.setattr(sharing_apply, "MpsControl3", Control3)
    monkeypatch.setattr(sharing_apply.mps_control, "has_protocol_3", lambda: made.protocol_3)
    # The processes of this machine are not those of the host.
    monkeypatch.setattr(sharing_apply, "program_processes", lambda _files, _program: tuple(made.programs))
    monkeypatch.setattr(sharing_apply, "systemd", made)
    monkeypatch.setattr(sharing_apply, "reload_units", made.reload_units)
    monkeypatch.setattr(sharing_apply.files, "is_mount", made.is_mount)
    monkeypatch.setattr(sharing_apply.files, "same", made.same)
    monkeypatch.setattr(sharing_apply, "_PAUSE", 0.001)
    monkeypatch.setattr(mps_units, "READY_SECONDS", 0.2)
    monkeypatch.setattr(sharing_apply.nvml_gpus, "set_compute_mode", made.set_compute_mode)
    monkeypatch.setattr(sharing_apply, "RECORD", str(tmp_path / "sharing.json"))
    monkeypatch.setattr(sharing_apply, "UNITS", str(tmp_path / "units"))
    monkeypatch.setattr(mps_units, "FOLDER", str(tmp_path / "mps"))
    return made


def bring(machine, wanted, disruption="refuse"):
    def planned():
        return sharing_plan.plan(sharing_apply.observe(machine), wanted, disruption)

    done, _waiting = carry_out("share", planned(), lambda plan: sharing_apply.apply(plan, wanted, machine), planned)
    return [step.what for step in done]
