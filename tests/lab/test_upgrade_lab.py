# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The upgrade of a plain host whose GPUs are shared by the real nvidia-cuda-mps-control, and of its services that hold GPUs.

A server of MPS does not start without a GPU: beside each daemon runs a process of the lab that has the driver open as a server has. The
tests run in order: each begins with what the one before left.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root: run this as root"),
]

HOST = "upgrade-mps"
OLD, NEW = "580.126.09", "580.178.04"
DESIRED = {
    "nvidia_driver_allow_vulnerable": True,
    "nvidia_sharing_mode": "mps",
    "nvidia_sharing_mps_manager": "host",
    "nvidia_sharing_memory_slice": "4GiB",
    "gpu_node_kubernetes": False,
    "gpu_node_stop_services": ["gpu-metrics", "gpu-idle"],
}
DAEMON = "gpufleet-mps@node"
PIPE = "/run/nvidia/mps/nvidia.com/gpu/pipe"
STOPPED = "/var/lib/gpufleet/upgrade-stopped.json"
PROOF = "/usr/local/bin/cuda-proof"
#: A server of a daemon, one service that holds the GPUs and runs, and one that does not run.
UNITS = f"""
set -eu
install -d /etc/systemd/system/gpufleet-mps@.service.d
printf '[Service]\\nExecStartPost=/bin/sh -c "exec virtual-gpu hold >/dev/null &"\\n' > /etc/systemd/system/gpufleet-mps@.service.d/server.conf
for unit in gpu-metrics gpu-idle; do
    printf '[Service]\\nExecStart=/usr/bin/virtual-gpu hold\\n' > /etc/systemd/system/$unit.service
done
printf '#!/bin/sh\\n! grep -q {NEW} /sys/module/nvidia/version || test ! -e /etc/broken\\n' > {PROOF}
chmod +x {PROOF}
systemctl daemon-reload
systemctl restart {DAEMON} gpu-metrics
touch /run/not-rebooted
"""


@pytest.fixture(scope="module")
def fleet(make_fleet):
    made = make_fleet(
        "upgrade", {"name": HOST, "group": "shared", "boards": [{"board": "l40s", "count": 2}], "driver": "none"}
    )
    made.describe({"shared": {"hosts": [HOST], "vars": DESIRED}})
    site = made.play("site", "--skip-tags", "cluster", "-e", f"nvidia_driver_version={OLD}")
    assert site.rc == 0, site.text[-4000:]
    made.lab.sh(HOST, UNITS)
    return made


def upgrade(fleet, *options):
    """Run it; what it printed is kept beside the inventory."""
    run = fleet.play("upgrade", "-e", f"nvidia_driver_version={NEW}", *options)
    (fleet.folder / f"upgrade-{run.rc}.log").write_text(run.text)
    return run


def works(fleet, version):
    """The driver is loaded, without a reboot, and everything runs that ran before, with its settings."""
    assert fleet.lab.sh(HOST, "cat /sys/module/nvidia/version").strip() == version
    fleet.lab.sh(HOST, f"test -e /run/not-rebooted && systemctl is-active {DAEMON} gpu-metrics")
    assert fleet.lab.sh(HOST, "systemctl is-active gpu-idle", check=False).strip() == "inactive"
    asked = f"echo get_default_device_pinned_mem_limit 1 | CUDA_MPS_PIPE_DIRECTORY={PIPE} nvidia-cuda-mps-control"
    assert fleet.lab.sh(HOST, asked).strip() == "4G"
    modes = fleet.lab.sh(HOST, "nvidia-smi --query-gpu=compute_mode --format=csv,noheader")
    assert modes.split() == ["Exclusive_Process"] * 2
    assert fleet.lab.status(HOST, f"test -e {STOPPED}") != 0
    return json.loads(fleet.lab.sh(HOST, "cat /var/lib/gpufleet/upgrade.json"))


def started(fleet):
    """When the daemon and the service were started, as systemd says: another time after they were stopped."""
    asked = f"systemctl show --value --property=ActiveEnterTimestampMonotonic {DAEMON} gpu-metrics"
    return fleet.lab.sh(HOST, asked).split()


def test_a_driver_that_does_not_work_goes_back_and_mps_with_it(fleet):
    fleet.lab.sh(HOST, "touch /etc/broken")
    before = started(fleet)
    run = upgrade(fleet, "-e", json.dumps({"nvidia_health_cuda_check": [PROOF]}))
    assert run.rc != 0
    record = works(fleet, OLD)
    assert record["state"] == "failed", run.text[-3000:]
    assert f"Rolled back to driver {OLD}, which works" in record["failed_reason"]
    assert not set(before) & set(started(fleet)), "they were stopped: nothing of them had the driver open"


def test_services_that_a_killed_run_had_stopped_are_started_by_the_next(fleet):
    fleet.lab.sh(HOST, "rm /etc/broken")
    line, environment = fleet.command("upgrade", "-e", f"nvidia_driver_version={NEW}", "-e", "gpu_upgrade_retry=true")
    log = fleet.folder / "killed.log"
    with open(log, "w") as output:
        run = subprocess.Popen(
            line, env=environment, stdout=output, stderr=subprocess.STDOUT, cwd=fleet.folder, start_new_session=True
        )
    until = time.monotonic() + 900
    while fleet.lab.status(HOST, "! systemctl is-active --quiet gpu-metrics") != 0:
        assert run.poll() is None and time.monotonic() < until, log.read_text()[-3000:]
        time.sleep(0.3)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    assert json.loads(fleet.lab.sh(HOST, f"cat {STOPPED}")) == ["gpu-metrics"]

    again = upgrade(fleet, "-e", "gpu_node_lease_take_over=true")
    assert again.rc == 0, again.text[-3000:]
    assert works(fleet, NEW)["state"] == "done"
