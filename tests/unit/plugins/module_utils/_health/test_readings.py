# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From what was read of a host to its metrics."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health import metrics as readings_module
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.metrics import (
    METRICS,
    ErrorCounts,
    expose,
    readings,
    unread,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.report import Evidence, HealthReport
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._health.faults import (
    FAULTS,
    HEALTHY,
    Fault,
    record,
)

SXID = "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30"


def samples(text):
    """The values by series."""
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}


def test_a_healthy_host():
    found = samples(HEALTHY.text(now=1000.9))
    assert found["gpufleet_last_run_timestamp_seconds"] == 1000
    assert found["gpufleet_driver_versions_agree"] == 1
    assert {name: found[f'gpufleet_gpus{{seen_by="{name}"}}'] for name in ("pci", "nvml")} == {"pci": 2, "nvml": 2}
    assert found['gpufleet_gpu_recovery_action{gpu="0",uuid="GPU-0",action="none"}'] == 1
    assert found['gpufleet_gpu_fabric_state{gpu="1",uuid="GPU-1",state="completed"}'] == 1
    assert {name: found[f'gpufleet_drift{{record="{name}"}}'] for name in ("mig", "sharing", "compute_mode")} == {
        "mig": 0,
        "sharing": 0,
        "compute_mode": 0,
    }
    assert found['gpufleet_mps_daemon_serving{pipe_directory="/run/nvidia/mps/nvidia.com/gpu/pipe"}'] == 1
    assert found['gpufleet_gpu_remapped_rows_total{gpu="0",uuid="GPU-0",cause="correctable"}'] == 0
    assert not [name for name in found if "failed" in name and "status" in name and found[name]]


def test_every_metric_of_the_table_is_written_by_some_host():
    def unfinished(facts):
        facts["recorded"]["mig_unfinished"] = False

    log = record(1, SXID) + record(2, "NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus")
    text = Fault("none", unfinished, log=log).text()
    assert [metric.name for metric in METRICS if f"# TYPE {metric.name} {metric.kind}" not in text] == []


@pytest.mark.parametrize(
    ("alert", "series", "value"),
    [
        ("GpufleetDriverVersionsDiffer", "gpufleet_driver_versions_agree", 0),
        (
            "GpufleetDriverVersionsDiffer",
            'gpufleet_driver_info{loaded="580.126.09",on_disk="580.126.09",library="580.178.04",flavour="open"}',
            1,
        ),
        ("GpufleetNvidiaSmiFails", 'gpufleet_health_check_status{check="nvidia_smi",status="failed"}', 1),
        ("GpufleetNvmlNotRead", 'gpufleet_read_success{source="nvml"}', 0),
        ("GpufleetNvmlNotRead", 'gpufleet_gpus{seen_by="pci"}', 2),
        ("GpufleetNvmlNotRead", 'gpufleet_health_check_status{check="mps",status="skipped"}', 1),
        ("GpufleetGpuLost", 'gpufleet_gpus{seen_by="nvml"}', 1),
        ("GpufleetRecoveryNeeded", 'gpufleet_gpu_recovery_action{gpu="0",uuid="GPU-0",action="gpu_reset"}', 1),
        ("GpufleetXid", 'gpufleet_xid_errors_total{pci_address="0000:18:00",xid="119",action="reset_gpu"}', 1),
        ("GpufleetSxid", 'gpufleet_sxid_errors_total{pci_address="0000:05:00.0",sxid="20034",severity="fatal"}', 1),
        ("GpufleetRemapFailed", 'gpufleet_gpu_memory_remap_failed{gpu="0",uuid="GPU-0"}', 1),
        ("GpufleetRemapFailed", 'gpufleet_gpu_remapped_rows_total{gpu="0",uuid="GPU-0",cause="uncorrectable"}', 512),
        ("GpufleetRemapPending", 'gpufleet_gpu_memory_remap_pending{gpu="0",uuid="GPU-0"}', 1),
        ("GpufleetFabricNotReady", 'gpufleet_gpu_fabric_state{gpu="0",uuid="GPU-0",state="in_progress"}', 1),
        ("GpufleetMigNotAsRecorded", 'gpufleet_drift{record="mig"}', 1),
        (
            "GpufleetMpsNotServing",
            'gpufleet_mps_daemon_serving{pipe_directory="/run/nvidia/mps/nvidia.com/gpu/pipe"}',
            0,
        ),
        ("GpufleetComputeModeNotAsRecorded", 'gpufleet_drift{record="compute_mode"}', 1),
        ("GpufleetContainersNotServed", 'gpufleet_drift{record="cdi"}', 1),
    ],
)
def test_what_a_fault_shows(alert, series, value):
    assert samples(FAULTS[alert].text())[series] == value
    assert samples(HEALTHY.text()).get(series) != value or series.endswith('"pci"}')


def test_what_is_not_known_has_no_sample():
    found = samples(expose(readings(Evidence({}), HealthReport(), ErrorCounts(""), 0.0, 0.0, {})))
    assert {name.partition("{")[0] for name in found} == {
        "gpufleet_last_run_timestamp_seconds",
        "gpufleet_last_run_duration_seconds",
        "gpufleet_host_program_info",
        "gpufleet_read_success",
    }
    assert found['gpufleet_read_success{source="kernel_log"}'] == 0


def test_a_host_on_which_nothing_is_recorded():
    def bare(facts):
        facts["recorded"] = {"mig": None, "sharing": None, "mig_unfinished": False}
        facts |= {"mps": [], "cdi": []}

    found = samples(Fault("none", bare).text())
    assert not [name for name in found if "drift" in name or "gpufleet_mps" in name]
    assert found["gpufleet_mig_change_unfinished"] == 0


def test_a_host_that_was_not_asked_says_so():
    found = samples(expose(unread(60.0, "0.1.0")))
    assert (found["gpufleet_last_run_timestamp_seconds"], found['gpufleet_read_success{source="nvml"}']) == (60, 0)


def test_a_recorded_daemon_that_does_not_run_serves_nobody():
    def gone(facts):
        facts["mps"] = [{"pid": 3, "pipe_directory": "/tmp/other", "responds": None, "clients": None}, {"pid": 4}]

    found = samples(Fault("sharing", gone).text())
    assert {name: value for name, value in found.items() if "mps_daemon" in name} == {
        'gpufleet_mps_daemon_serving{pipe_directory="/run/nvidia/mps/nvidia.com/gpu/pipe"}': 0
    }
    assert found['gpufleet_drift{record="sharing"}'] == 1


def _daemon(**parts):
    whole = {"pipe_directory": "/run/x", "in_container": False, "responds": True, "clients": 2}
    return {**whole, **parts}


@pytest.mark.parametrize(
    ("impostor", "clients"),
    [
        ({"in_container": True, "clients": 1}, 3),
        ({"in_container": True, "responds": False, "clients": None}, 2),
        ({"responds": None, "clients": None}, 2),
        ({"responds": False, "clients": None}, 2),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_program_that_says_it_is_the_daemon_changes_no_other_metric(monkeypatch, impostor, clients, first):
    """Anybody can start a program of the daemon's name with the daemon's pipe, in a container or on the host."""
    monkeypatch.setattr(readings_module, "recorded_daemons", lambda _facts: [SimpleNamespace(pipe_directory="/run/x")])
    daemons = [_daemon(**impostor), _daemon()] if first else [_daemon(), _daemon(**impostor)]
    found = samples(expose(list(readings_module._mps({"mps": daemons}))))
    assert found == {
        'gpufleet_mps_daemon_serving{pipe_directory="/run/x"}': 1,
        'gpufleet_mps_clients{pipe_directory="/run/x"}': clients,
    }
    # It does not stand in for one that is down.
    alone = samples(expose(list(readings_module._mps({"mps": [_daemon(**impostor)]}))))
    assert alone['gpufleet_mps_daemon_serving{pipe_directory="/run/x"}'] == 0
