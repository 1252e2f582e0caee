# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From what was read of a host to its metrics."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts_view import CardFacts, Sxid, Xid, view_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health import metrics
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health import metrics as readings_module
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.metrics import (
    COUNTER,
    METRICS,
    ErrorCounts,
    Metrics,
    Sample,
    expose,
    parse_counts,
    readings,
    unread,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.report import Evidence, HealthReport
from ansible_collections.gpufleet.nvidia.plugins.module_utils._health.xid import (
    QUIET_ACTIONS,
    action_of,
    severity_of_sxid,
)
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._health.faults import (
    FAULTS,
    HEALTHY,
    Fault,
    record,
)
from hypothesis import strategies as st

from ....mutation import examples_of, property_of

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
    found = samples(expose(readings(Evidence(view_of({})), HealthReport(), ErrorCounts(""), 0.0, 0.0, {})))
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
    found = samples(expose(list(readings_module._mps(seen({"mps": daemons})))))
    assert found == {
        'gpufleet_mps_daemon_serving{pipe_directory="/run/x"}': 1,
        'gpufleet_mps_clients{pipe_directory="/run/x"}': clients,
    }
    # It does not stand in for one that is down.
    alone = samples(expose(list(readings_module._mps(seen({"mps": [_daemon(**impostor)]})))))
    assert alone['gpufleet_mps_daemon_serving{pipe_directory="/run/x"}'] == 0


XID = "NVRM: Xid (PCI:0000:18:00): 119, pid=1, Timeout"
KEY = ("0000:18:00", 119, "reset_gpu")


CARDS = [CardFacts("0000:18:00.0", kind="gpu"), CardFacts("0000:05:00.0", kind="nvswitch")]


def counted(before, log):
    return metrics.counted(before, log, CARDS)


def test_an_error_that_comes_again_counts_again_and_is_never_counted_twice():
    log = record(5, XID) + record(6, "usb: connected") + record(7, XID)
    first = counted(ErrorCounts("boot"), log)
    assert (first.xids, first.last) == (((*KEY, 2),), 7)
    assert counted(first, log) == first
    assert counted(first, log + record(8, XID)).xids == ((*KEY, 3),)


def test_what_was_overwritten_in_the_log_stays_counted():
    first = counted(ErrorCounts("boot"), record(5, XID))
    assert counted(first, record(900, "usb: connected")).xids == ((*KEY, 1),)


def test_lines_that_go_on_with_a_record_and_text_that_looks_like_one():
    log = record(5, XID) + " SUBSYSTEM=pci\n DEVICE=+pci:0000:18:00.0\n" + record(6, f"5,9,1,-;{XID}")
    found = counted(ErrorCounts("boot"), log)
    assert (found.xids, found.last) == (((*KEY, 1),), 5)


def test_counts_survive_in_a_file_until_the_next_boot():
    sxid = "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32"
    found = counted(ErrorCounts("boot"), record(1, XID) + record(2, sxid))
    assert parse_counts(found.as_text(), "boot") == found
    assert found.sxids == (("0000:05:00.0", 12028, "non_fatal", 1),)
    assert parse_counts(found.as_text(), "next") == ErrorCounts("next")


@pytest.mark.parametrize("text", [None, "", "[]", "{", '{"schema": 1, "boot_id": "boot"}', '{"schema": 2}'])
def test_a_file_that_cannot_be_used_counts_anew(text):
    assert parse_counts(text, "boot") == ErrorCounts("boot")


def test_a_flood_of_different_errors_makes_no_flood_of_series(monkeypatch):
    monkeypatch.setattr(metrics, "_MOST", 2)
    log = "".join(record(n, f"NVRM: Xid (PCI:0000:18:00): {n}, x") for n in (13, 31, 48, 13))
    assert [(number, count) for _pci, number, _action, count in counted(ErrorCounts("b"), log).xids] == [
        (13, 2),
        (31, 1),
    ]


@pytest.mark.parametrize(
    ("number", "text", "action"),
    [
        (79, "", "restart_bm"),
        (31, "", "restart_app"),
        (63, "", "ignore"),
        (145, "RLW_REMAP Nonfatal XC0", "ignore"),
        (145, "RLW_REMAP Fatal XC0", "workflow_nvlink5_err"),
        (167, "", "unnamed"),
        (999, "", "unknown"),
    ],
)
def test_the_action_of_an_xid(number, text, action):
    assert action_of(Xid(number, "0000:18:00", text)) == action


def test_what_applications_cause_is_quiet():
    assert QUIET_ACTIONS == ("ignore", "restart_app", "workflow_xid_45", "xid_154")


def test_the_severity_of_an_sxid():
    assert severity_of_sxid(Sxid(12028, "x", "Non-fatal, Link 32")) == "non_fatal"
    assert severity_of_sxid(Sxid(22003, "x", "Non-fatal, Link 32")) == "fatal", "always fatal by NVIDIA's guide"
    assert severity_of_sxid(Sxid(20034, "x", "")) == "fatal"


GPUS, GPU = Metrics.GPUS.value, Metrics.GPU.value


def test_the_format():
    text = expose([Sample(GPUS, 8.0, ("pci",)), Sample(GPUS, 7, ("nvml",)), Sample(Metrics.RUN_DURATION.value, 0.25)])
    assert text == (
        "# HELP gpufleet_last_run_duration_seconds How long reading the host took, in seconds.\n"
        "# TYPE gpufleet_last_run_duration_seconds gauge\n"
        "gpufleet_last_run_duration_seconds 0.25\n"
        "# HELP gpufleet_gpus How many GPUs the PCI bus shows and NVML can reach.\n"
        "# TYPE gpufleet_gpus gauge\n"
        'gpufleet_gpus{seen_by="nvml"} 7\n'
        'gpufleet_gpus{seen_by="pci"} 8\n'
    )


def test_labels_are_escaped_and_what_is_not_known_is_empty():
    text = expose([Sample(GPU, 1, ("0", None, 'a"b', "c\\d", "e\nf"))])
    assert r'{gpu="0",uuid="",pci_address="a\"b",board="c\\d",name="e\nf"} 1' in text
    assert text.count("\n") == 3


def test_a_number_that_does_not_fit_into_a_whole_one_keeps_its_parts():
    assert expose([Sample(Metrics.LAST_RUN.value, 1795404000)]).endswith(" 1795404000\n")


def test_a_sample_with_other_labels_than_its_metric_is_refused():
    with pytest.raises(ValueError, match="gpufleet_gpus"):
        expose([Sample(GPUS, 1)])


_SAMPLES = st.lists(
    st.builds(
        Sample,
        st.just(Metrics.MPS_CLIENTS.value),
        st.integers(0, 99),
        st.tuples(st.text(st.characters(categories=None), max_size=3)),
    )
)


@examples_of()
def test_whatever_users_call_things_each_series_has_one_value(examples):
    @property_of(_SAMPLES, examples)
    def check(samples):
        lines = expose(samples).encode().decode().removesuffix("\n").split("\n")[2:]
        assert len({line.rpartition(" ")[0] for line in lines}) == len(lines)
        assert sum(int(line.rpartition(" ")[2]) for line in lines) == sum(sample.value for sample in samples)


def test_the_table_follows_prometheus_conventions():
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"gpufleet_[a-z]+(_[a-z]+)*", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == COUNTER), metric.name
        assert metric.help.endswith(".") and "\n" not in metric.help
        assert all(re.fullmatch(r"[a-z_]+", label) for label in metric.labels)
