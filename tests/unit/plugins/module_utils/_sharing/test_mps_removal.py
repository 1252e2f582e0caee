# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sharing taken off a host: everything that was written goes, and what others wrote stays."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._records import HostSharing
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import apply as sharing_apply
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import mps_removal, mps_units
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing import plan as sharing_plan
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._sharing import mps_machine as sharing

machine, DESIRED, bring = sharing.machine, sharing.DESIRED, sharing.bring


@pytest.fixture
def host(machine, monkeypatch, tmp_path):
    """The host of the tests of C(apply.py), with its logs in the temporary directory too."""
    machine.root = tmp_path
    monkeypatch.setattr(mps_removal, "LOGS", str(tmp_path / "logs"))
    monkeypatch.setattr(mps_removal, "systemd", machine)
    monkeypatch.setattr(mps_removal, "reload_units", machine.reload_units)
    return machine


def files(host):
    return sorted(str(path.relative_to(host.root)) for path in host.root.rglob("*") if path.is_file())


def planned(host, disruption="refuse", gpus=True):
    nvml = host if gpus else None
    return mps_removal.plan(sharing_apply.observe(nvml), mps_removal.leftovers(), disruption, gpus)


def removed(host, disruption="refuse", gpus=True):
    plan = planned(host, disruption, gpus)
    mps_removal.apply(plan, host if gpus else None)
    return [step.kind.key for step in plan.steps]


def test_all_that_was_written_and_set_goes_and_a_second_run_has_nothing_to_do(host):
    bring(host, DESIRED)
    log = host.root / "logs" / "node" / "control.log"
    log.parent.mkdir(parents=True)
    log.write_text("x")
    steps = removed(host)
    assert steps[0] == "stop_mps_daemon" and "set_compute_mode" in steps and "record_sharing" not in steps
    assert files(host) == [] and not (host.root / "logs").exists() and not (host.root / "mps").exists()
    assert host.compute == {0: "default", 1: "default"} and not host.running and not host.at_boot
    assert not [entry for entry in host.log[host.log.index("stop gpufleet-mps@node.service") :] if "reload" in entry]
    assert not planned(host).changes


def test_what_somebody_else_logs_stays(host):
    other = host.root / "logs" / "control.log"
    other.parent.mkdir()
    other.write_text("of a daemon that is not ours")
    bring(host, DESIRED)
    removed(host)
    assert files(host) == ["logs/control.log"]


def test_a_host_that_never_shared_is_left_alone(host):
    host.compute[0] = "exclusive_process"
    assert not planned(host).changes


def test_a_time_slice_is_set_back_and_gpus_of_the_device_plugins_daemon_are_left_alone(host, monkeypatch):
    said = []
    monkeypatch.setattr(sharing_apply, "set_time_slice", said.append)
    sharing_apply.apply(
        sharing_plan.plan(sharing_apply.observe(host), HostSharing("default", "long")),
        HostSharing("default", "long"),
        host,
    )
    removed(host)
    assert said == ["long", "default"]
    bring(host, HostSharing())
    host.compute[0] = "exclusive_process"
    removed(host)
    assert host.compute[0] == "exclusive_process" and said == ["long", "default"]


def test_clients_are_refused_unless_they_may_be_ended(host):
    bring(host, DESIRED)
    host.servers = {DESIRED.daemons[0].pipe_directory: {77: (78,)}}
    before = files(host)
    with pytest.raises(Refused, match=r"its clients: MPS client \(PID 78\)"):
        planned(host)
    assert files(host) == before
    removed(host, "force")
    assert files(host) == []


def test_without_a_driver_the_files_go_all_the_same(host):
    bring(host, DESIRED)
    host.running.clear()
    host.programs = []
    steps = removed(host, gpus=False)
    assert "set_compute_mode" not in steps and files(host) == []


def test_a_run_that_was_cut_off_is_finished_by_the_next(host, monkeypatch):
    bring(host, DESIRED)
    real = sharing_apply._stop

    def cut(name):
        real(name)
        raise KeyboardInterrupt

    monkeypatch.setattr(sharing_apply, "_stop", cut)
    with pytest.raises(KeyboardInterrupt):
        removed(host)
    monkeypatch.setattr(sharing_apply, "_stop", real)
    assert host.compute[0] == "exclusive_process"
    removed(host)
    assert files(host) == [] and host.compute == {0: "default", 1: "default"}
    assert mps_units.SHM_UNIT not in host.at_boot
