# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One step of a repair on the host: who is in the way, and what is read back."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import gpu_reset, systemd
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError, Result
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host import repair_run
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.repair_run import Repair
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure, Refused
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen

ADDRESS = "0000:18:00.0"


class Host:
    """A host with one GPU, and what was done to it."""

    def __init__(self, monkeypatch):
        self.gpu = {"index": 0, "minor": 0, "uuid": "GPU-0", "pci_address": ADDRESS, "recovery_action": "gpu_reset"}
        self.holders, self.recorded, self.done = [], {}, []
        self.answer, self.after = (0, "GPU 00000000:18:00.0 was successfully reset."), {"recovery_action": "none"}
        self.missing, self.broken = set(), set()
        monkeypatch.setattr(gpu_reset, "reset_gpus", self.reset)
        monkeypatch.setattr(systemd, "unit", lambda name: SimpleNamespace(exists=name not in self.missing))
        monkeypatch.setattr(systemd, "restart", self.restart)
        self.repair = Repair(None, 0, self.facts)

    def facts(self):
        return seen({"gpus": [dict(self.gpu)], "holders": list(self.holders), "mps": [], "recorded": self.recorded})

    def reset(self, names):
        self.done.append(tuple(names))
        self.gpu.update(self.after)
        if self.answer is None:
            raise CommandError(["nvidia-smi"], "no answer within 180 s")
        return Result(("nvidia-smi",), self.answer[0], self.answer[1], "")

    def restart(self, name, timeout):  # noqa: ARG002
        if name in self.broken:
            raise CommandError(["systemctl", "restart", name], "exit status 1")
        self.done.append(name)


@pytest.fixture
def host(monkeypatch):
    return Host(monkeypatch)


def test_a_reset_names_the_gpu_by_its_uuid(host):
    assert "successfully reset" in host.repair.reset([ADDRESS])
    assert host.done == [("GPU-0",)]


def test_a_gpu_in_use_is_not_reset(host):
    host.holders = [{"pid": 812, "command": "python3", "devices": ["/dev/nvidia0"]}]
    with pytest.raises(Refused, match=r"in use by python3 \(PID 812\)"):
        host.repair.reset([ADDRESS])
    assert host.done == []


def test_a_gpu_that_is_gone_cannot_be_reset(host):
    host.gpu["lost"] = True
    with pytest.raises(Refused, match="NVML does not see it"):
        host.repair.reset([ADDRESS])


@pytest.mark.parametrize(
    ("answer", "after", "said"),
    [
        ((0, "was successfully reset"), {}, r"asks for a reset \(gpu_reset\) of GPU .* after the reset"),
        ((0, "was successfully reset"), {"recovery_action": "node_reboot"}, "asks for a reboot"),
        ((0, "was successfully reset"), {"lost": True}, "is gone after the reset"),
        ((3, "could not be reset"), {"recovery_action": "none"}, "nvidia-smi did not reset it: could not be reset"),
        (None, {"recovery_action": None}, "no answer within 180 s"),
    ],
)
def test_what_is_read_back_counts_and_not_the_exit_status(host, answer, after, said):
    host.answer, host.after = answer, after
    with pytest.raises(Failure, match=said):
        host.repair.reset([ADDRESS])


def test_a_driver_that_does_not_tell_is_taken_at_the_tools_word(host):
    host.gpu["recovery_action"] = None
    host.after = {}
    assert host.repair.reset([ADDRESS])


def test_the_users_are_waited_for(host, monkeypatch):
    host.holders = [{"pid": 812, "command": "job", "devices": ["/dev/nvidia0"]}]
    monkeypatch.setattr(repair_run.time, "sleep", lambda _seconds: host.holders.clear())
    Repair(None, 60, host.facts).reset([ADDRESS])
    assert host.done == [("GPU-0",)]


def test_a_drain_is_done_when_the_driver_asks_for_nothing_any_more(host):
    with pytest.raises(Failure, match="asks for more"):
        host.repair.drain([ADDRESS])
    host.gpu["recovery_action"] = "none"
    assert host.repair.drain([ADDRESS]) == "no process uses them"


def test_services_are_restarted_in_order_and_have_to_be_there(host):
    host.repair.restart(["a.service", "b.service"], [])
    assert host.done == ["a.service", "b.service"]
    host.missing = {"c.service"}
    with pytest.raises(Failure, match=r"c.service is not installed. Run gpufleet.nvidia.site"):
        host.repair.restart(["c.service"], [])
    host.broken = {"a.service"}
    with pytest.raises(Failure, match="exit status 1"):
        host.repair.restart(["a.service"], [])


def test_what_is_recorded_is_brought_back_in_the_order_of_a_boot(host):
    assert host.repair.bring_back() == "nothing is recorded"
    daemon = {
        "name": "node",
        "devices": ["GPU-0"],
        "pipe_directory": "/run/x",
        "log_directory": "/run/y",
        "limits_mib": [0],
        "percentage": 25,
        "priority": 0,
        "multi_user": False,
    }
    host.recorded = {"mig": {"schema": 1}, "sharing": {"schema": 1, "daemons": [daemon]}}
    host.missing = {"gpufleet-cdi.service"}
    host.repair.bring_back()
    assert host.done == ["gpufleet-mig.service", "gpufleet-sharing.service", "gpufleet-mps@node.service"]
    host.recorded = {"sharing": {"daemons": [{}]}}
    with pytest.raises(Failure, match=r"sharing\.json cannot be used"):
        host.repair.bring_back()


@pytest.fixture
def bundle(tmp_path, monkeypatch):
    facts = {"nvml": {"available": True}, "gpus": []}
    monkeypatch.setattr(repair_run, "read_document", lambda *_arguments: facts)
    monkeypatch.setattr(
        repair_run, "kernel_log", lambda: "4,1,1,-;NVRM: Xid (PCI:0000:18:00): 79, x\n6,2,2,-;eth0 up\n"
    )
    calls = []

    def run(command, timeout):  # noqa: ARG001
        calls.append(command)
        if command[0] == "nvidia-bug-report.sh":
            with open(f"{command[-1]}.gz", "w") as report:
                report.write("report")
            os.chmod(f"{command[-1]}.gz", 0o644)
        return Result(tuple(command), 0, "serial 1234\n", "")

    monkeypatch.setattr(repair_run, "run", run)
    monkeypatch.setattr(repair_run, "find", lambda name: f"/usr/bin/{name}")

    def write():
        folder, lacking = repair_run.write_bundle("broken", {"attempts": [1]}, None, str(tmp_path / "bundles"))
        return folder, lacking, calls

    write.facts = facts
    return write


def test_only_root_can_read_a_bundle(bundle, tmp_path):
    folder, lacking, _calls = bundle()
    assert lacking == []
    assert os.stat(folder).st_mode & 0o777 == os.stat(tmp_path / "bundles").st_mode & 0o777 == 0o700
    names = sorted(os.listdir(folder))
    assert names == [
        "attempts.json", "facts.json", "kernel-log.txt", "nvidia-bug-report.log.gz", "nvidia-smi-q.txt", "reason.txt", "serial-numbers.csv",
    ]  # fmt: skip
    assert {os.stat(os.path.join(folder, name)).st_mode & 0o777 for name in names} == {0o600}
    with open(os.path.join(folder, "kernel-log.txt")) as log:
        assert "Xid" in (text := log.read()) and "eth0" not in text
    with open(os.path.join(folder, "attempts.json")) as attempts:
        assert json.load(attempts) == {"attempts": [1]}
    other, _lacking, _calls = bundle()
    assert other != folder


def test_nvidias_script_is_run_safely_where_the_driver_hangs(bundle):
    bundle.facts["nvml"] = {"available": False}
    _folder, _lacking, calls = bundle()
    assert calls[-1][:2] == ["nvidia-bug-report.sh", "--safe-mode"]


def test_what_a_bundle_lacks_is_said(bundle, monkeypatch):
    def run(command, timeout):
        raise CommandError(command, f"no answer within {timeout:g} s")

    monkeypatch.setattr(repair_run, "run", run)
    monkeypatch.setattr(repair_run, "find", lambda _name: None)
    monkeypatch.setattr(repair_run, "kernel_log", lambda: None)
    folder, lacking, _calls = bundle()
    assert "kernel log: it cannot be read" in lacking and "nvidia-bug-report.sh is not installed" in lacking
    assert any(line.startswith("serial-numbers.csv: no answer") for line in lacking)
    assert "facts.json" in os.listdir(folder)
