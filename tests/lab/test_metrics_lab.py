# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The timer on a lab host: what the role installs writes, every minute, what promtool takes; and nothing is left when it is off."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.lab,
    pytest.mark.by_name,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]

PROMTOOL = Path(__file__).resolve().parents[1] / "charts" / "promtool.sh"
HOST = "metrics-host"
DIRECTORY = "/var/lib/prometheus/node-exporter"
FILE = f"{DIRECTORY}/gpufleet.prom"
#: The collector's directory is node_exporter's. Two GPUs on an NVLink fabric; one MIG layout is recorded by the role.
VARIABLES = {
    "nvidia_driver_state": "unmanaged",
    "nvidia_mig_strategy": "mixed",
    "nvidia_mig_layout": [{"devices": "all", "instances": {"1g.10gb": 7}}],
    "nvidia_health_metrics": True,
}
PLAYBOOK = """
- hosts: gpu_hosts
  gather_facts: false
  become: true
  roles: [gpufleet.nvidia.nvidia_mig, gpufleet.nvidia.nvidia_health]
"""


@pytest.fixture(scope="module")
def fleet(make_fleet):
    made = make_fleet(
        "metrics",
        {"name": HOST, "group": "g", "boards": [{"board": "h100-80gb-sxm", "count": 2}], "driver": "installed"},
    )
    made.lab.sh(HOST, f"install -d {DIRECTORY}")
    (made.folder / "metrics.yml").write_text(PLAYBOOK, encoding="utf-8")
    return made


def play(fleet, *options, **variables):
    fleet.describe({"g": {"hosts": [HOST], "vars": {**VARIABLES, "nvidia_health_fail": False, **variables}}})
    return fleet.play(fleet.folder / "metrics.yml", *options)


def metrics(fleet):
    """The metrics of a run that begins now, by series."""
    fleet.lab.sh(HOST, "systemctl reset-failed gpufleet-metrics.service; systemctl start gpufleet-metrics.service")
    return fleet.lab.sh(HOST, f"cat {FILE}")


def test_it_is_applied(fleet):
    """The timer waits a minute before its first run, in which the tests that follow go on."""
    done = play(fleet)
    assert done.recap[HOST]["failed"] == 0, done.text


def test_a_directory_that_is_not_there_is_warned_of(fleet):
    done = play(fleet, "--check", nvidia_health_metrics_directory="/srv/none")
    assert "no metrics are written: /srv/none does not exist" in done.text


def test_a_second_run_changes_nothing(fleet):
    assert play(fleet).quiet(HOST)


def test_the_services_are_confined(fleet):
    """By systemd's own measure (0 to 10, less is better), beside one that may do everything."""
    exposure = {
        name: float(
            re.search(
                r"([\d.]+) \w+", fleet.lab.sh(HOST, f"systemd-analyze security --no-pager {name} | tail -1")[-60:]
            )[1]
        )
        for name in (
            *(f"gpufleet-{verb}.service" for verb in ("metrics", "mig", "cdi", "sharing")),
            "emergency.service",
        )
    }
    everything = exposure.pop("emergency.service")
    assert max(exposure.values()) < 7 < everything, exposure


def test_the_timer_writes_a_file_that_promtool_takes(fleet):
    until = time.monotonic() + 90
    while fleet.lab.status(HOST, f"test -e {FILE}"):
        assert time.monotonic() < until, fleet.lab.sh(HOST, "journalctl -u 'gpufleet-metrics*' --no-pager")
        time.sleep(0.5)
    assert fleet.lab.sh(HOST, f"stat -c %a {FILE}").strip() == "644"
    text = fleet.lab.sh(HOST, f"cat {FILE}")
    found = subprocess.run([PROMTOOL], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    checked = subprocess.run([found, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, ""), text
    for line in (
        'gpufleet_read_success{source="nvml"} 1',
        "gpufleet_driver_versions_agree 1",
        'gpufleet_gpus{seen_by="nvml"} 2',
        'gpufleet_drift{record="mig"} 0',
        'gpufleet_health_check_status{check="nvml",status="passed"} 1',
    ):
        assert f"{line}\n" in text, text


def test_drift_shows_in_the_next_run(fleet):
    fleet.lab.sh(HOST, "nvidia-smi mig -dci && nvidia-smi mig -dgi")
    text = metrics(fleet)
    assert 'gpufleet_drift{record="mig"} 1\n' in text
    fleet.lab.sh(HOST, "systemctl restart gpufleet-mig.service")
    assert 'gpufleet_drift{record="mig"} 0\n' in metrics(fleet)


def test_what_the_driver_asks_for_shows(fleet):
    fleet.lab.sh(HOST, "virtual-gpu recovery --gpu 1 --action 1")
    assert ',action="gpu_reset"} 1\n' in metrics(fleet)
    fleet.lab.sh(HOST, "virtual-gpu recovery --gpu 1 --action 0")


@pytest.mark.parametrize("fault", ["kill", "UNKNOWN"])
def test_a_library_that_kills_or_fails_still_gives_a_file(fleet, fault):
    fleet.lab.sh(HOST, f"virtual-gpu fail nvmlDeviceGetCount_v2 {fault}")
    text = metrics(fleet)
    fleet.lab.sh(HOST, "virtual-gpu fail --clear")
    assert 'gpufleet_read_success{source="nvml"} 0\n' in text, text
    assert 'gpufleet_health_check_status{check="nvml",status="failed"} 1\n' in text
    assert 'gpufleet_gpus{seen_by="pci"} 2\n' in text and 'seen_by="nvml"' not in text
    assert "gpufleet_last_run_timestamp_seconds" in text


def test_off_leaves_nothing_but_what_restores_at_boot(fleet):
    done = play(fleet, nvidia_health_metrics=False)
    assert done.recap[HOST]["failed"] == 0, done.text
    assert fleet.lab.status(HOST, f"test -e {FILE}") == 1
    assert not fleet.lab.sh(HOST, "systemctl list-timers --all --no-legend 'gpufleet-*'").strip()
    assert fleet.lab.sh(HOST, "systemctl is-enabled gpufleet-mig.service").strip() == "enabled"
    assert play(fleet, nvidia_health_metrics=False).quiet(HOST)


def reloads(fleet):
    """How often systemd has read its unit files again since the boot."""
    lines = fleet.lab.sh(HOST, "journalctl -b -o cat _PID=1 | grep -c '^Reloading' || true")
    return int(lines)


def test_on_a_host_in_service_systemd_does_not_reload(fleet):
    """A reload can take the GPUs from running containers."""
    fleet.lab.sh(HOST, "systemctl daemon-reload")
    before = reloads(fleet)
    assert before > 0, "one that was asked for is counted"
    for metrics in (True, False, True):
        done = play(fleet, nvidia_health_metrics=metrics)
        assert done.recap[HOST]["failed"] == 0 and done.recap[HOST]["changed"] > 0, done.text
        assert fleet.lab.status(HOST, "systemctl is-active --quiet gpufleet-metrics.timer") == (0 if metrics else 3)
    assert reloads(fleet) == before
    fleet.lab.run("reboot", HOST)
    assert fleet.lab.status(HOST, "systemctl is-active --quiet gpufleet-metrics.timer") == 0
    # From the boot on timers.target keeps the timer in systemd's memory, which says for ever that it is enabled.
    assert play(fleet, nvidia_health_metrics=False).recap[HOST]["failed"] == 0
    assert fleet.lab.status(HOST, "systemctl is-active --quiet gpufleet-metrics.timer") == 3
    assert play(fleet, nvidia_health_metrics=False).quiet(HOST)
