# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The host program writes metrics: what ends up in the directory of node_exporter, whatever state the host is in."""

from __future__ import annotations

import json
import os

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.files import LOCK_PATH, HostFiles, exclusive
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.metric_units import (
    METRICS_SERVICE,
    METRICS_TIMER,
    directory_of,
    metric_units,
    refused_directory,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host import main, write_metrics
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.stage import metrics_directory
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._health.faults import FAULTS, HEALTHY, record

LOG = record(5, "NVRM: Xid (PCI:0000:18:00): 119, pid=1, Timeout")
SERVICE_GROUP = f"0::/system.slice/{METRICS_SERVICE}\n"


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write the metrics of a host and return the text of the file, with the exit status."""
    folder = tmp_path / "textfile"
    folder.mkdir()
    monkeypatch.setattr(write_metrics, "COUNTS", str(tmp_path / "counts.json"))
    monkeypatch.setattr(write_metrics, "LOCK_PATH", str(tmp_path / "lock"))

    def run(fault=HEALTHY, log=LOG):
        monkeypatch.setattr(write_metrics, "collect", lambda *_given: fault.evidence())
        monkeypatch.setattr(write_metrics, "kernel_log", lambda: log)
        status = write_metrics.write_metrics(str(folder))
        names = [path.name for path in folder.iterdir()]
        assert names in ([], ["gpufleet.prom"]), "node_exporter reads whole files only"
        path = folder / "gpufleet.prom"
        return status, path.read_text() if path.exists() else ""

    return run


def test_a_file_that_node_exporter_can_read(write, tmp_path, capsys):
    status, text = write()
    assert status == 0 and "gpufleet_driver_versions_agree 1\n" in text
    assert (tmp_path / "textfile" / "gpufleet.prom").stat().st_mode & 0o777 == 0o644
    assert "Every check passed" in capsys.readouterr().out


def test_a_host_that_is_not_healthy_is_told_of_and_no_failure_of_the_service(write, capsys):
    status, text = write(FAULTS["GpufleetNvmlNotRead"])
    assert status == 0 and 'gpufleet_read_success{source="nvml"} 0\n' in text
    assert "The check nvml failed: no answer within 60 s" in capsys.readouterr().out


@pytest.mark.parametrize("what", ["link", "dangling link", "fifo"])
def test_what_is_in_the_place_of_the_file_is_replaced_and_not_followed(write, tmp_path, what):
    path, secret = tmp_path / "textfile" / "gpufleet.prom", tmp_path / "secret"
    secret.write_text("of somebody else")
    if what == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(secret if what == "link" else tmp_path / "none")
    status, text = write()
    assert status == 0 and "gpufleet_driver_versions_agree 1\n" in text
    assert not path.is_symlink() and path.is_file()
    assert secret.read_text() == "of somebody else" and not (tmp_path / "none").exists()


def test_errors_are_counted_over_the_runs(write, tmp_path):
    series = 'gpufleet_xid_errors_total{pci_address="0000:18:00",xid="119",action="reset_gpu"}'
    assert f"{series} 1\n" in write()[1]
    assert f"{series} 1\n" in write()[1]
    _status, text = write(log=LOG + LOG.replace("4,5,", "4,6,"))
    assert f"{series} 2\n" in text
    # Where the log cannot be read, what was counted stays.
    assert f"{series} 2\n" in write(log=None)[1]
    assert json.loads((tmp_path / "counts.json").read_text())["last"] == 6


def test_nothing_is_read_while_a_change_is_under_way(write, tmp_path, capsys):
    with exclusive(0, str(tmp_path / "lock")):
        assert write() == (0, "")
    assert "while the GPUs are being changed" in capsys.readouterr().out
    assert write()[1]


def test_a_directory_that_is_not_there_is_not_made(tmp_path, capsys):
    assert write_metrics.write_metrics(str(tmp_path / "none")) == 1
    assert "nvidia_health_metrics_directory" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_while_an_earlier_reader_hangs_no_other_is_started(write, monkeypatch, capsys):
    monkeypatch.setattr(write_metrics, "left_over_processes", lambda: [812])
    status, text = write(log=None)
    assert status == 1 and "process 812 of an earlier run still hangs" in capsys.readouterr().err
    assert 'gpufleet_read_success{source="nvml"} 0\n' in text and "gpufleet_driver" not in text
    assert "gpufleet_last_run_timestamp_seconds" in text


@pytest.mark.parametrize(
    ("group", "procs", "found"),
    [
        (SERVICE_GROUP, f"sys/fs/cgroup/system.slice/{METRICS_SERVICE}", [812]),
        (
            f"3:cpu:/x\n1:name=systemd:/system.slice/{METRICS_SERVICE}\n",
            f"sys/fs/cgroup/systemd/system.slice/{METRICS_SERVICE}",
            [812],
        ),
        ("0::/user.slice/session-1.scope\n", "sys/fs/cgroup/user.slice/session-1.scope", []),
        (SERVICE_GROUP, "elsewhere", []),
    ],
    ids=["version 2", "version 1", "by hand", "not shown"],
)
def test_processes_of_earlier_runs(tmp_path, group, procs, found):
    for path, text in (("proc/self/cgroup", group), (f"{procs}/cgroup.procs", "812\n900\n")):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    assert write_metrics.left_over_processes(HostFiles(str(tmp_path)), own=900) == found


def test_this_process_is_left_over_by_nobody():
    assert os.getpid() not in write_metrics.left_over_processes()


def test_the_units_call_a_verb_that_exists_and_say_where_to():
    texts = metric_units("/usr/bin/python3", "/var/lib/metrics")
    (start,) = [line for line in texts[METRICS_SERVICE].splitlines() if line.startswith("ExecStart=")]
    verb, directory = start.split()[2:]
    assert main.VERBS[verb][1] == ("DIRECTORY",) and directory == directory_of(texts[METRICS_SERVICE])
    assert "WantedBy=timers.target" in texts[METRICS_TIMER] and "[Install]" not in texts[METRICS_SERVICE]
    assert directory_of("[Service]\nExecStart=/bin/true\n") is None and directory_of(None) is None


def test_the_service_may_write_what_the_program_writes_and_sees_the_devices():
    lines = metric_units("/usr/bin/python3", "/var/lib/metrics")[METRICS_SERVICE].splitlines()
    settings = dict(line.split("=", 1) for line in lines if "=" in line)
    assert settings["ProtectSystem"] == "strict"
    assert {f"/run/{settings['RuntimeDirectory']}", f"/var/lib/{settings['StateDirectory']}"} == {
        os.path.dirname(LOCK_PATH),
        os.path.dirname(write_metrics.COUNTS),
    }
    assert settings["ReadWritePaths"] == "-/var/lib/metrics"
    # Any of these makes systemd close all devices that are not listed (systemd.exec(5), systemd.resource-control(5)).
    assert not {"PrivateDevices", "ProtectClock", "DeviceAllow", "DevicePolicy", "ProtectKernelLogs"} & set(settings)


@pytest.mark.parametrize("directory", ["", "metrics", "/a b", "/a%h", "/a/../b", "/a\nExecStart=/bin/sh", "/$HOME"])
def test_directories_that_a_unit_cannot_name(directory):
    assert refused_directory(directory)
    with pytest.raises(Refused, match="nvidia_health_metrics_directory"):
        metrics_directory({"nvidia_health_metrics": True, "nvidia_health_metrics_directory": directory})
    assert metrics_directory({"nvidia_health_metrics": False, "nvidia_health_metrics_directory": directory}) == ""
