# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The systemd service and timer that write the metrics, as text, and what is in them."""

from __future__ import annotations

from collections.abc import Mapping

from .._adapters.nvml_library import HOST_PROGRAM
from .._formats.unit_sandbox import sandbox, unit_text

METRICS_SERVICE = "gpufleet-metrics.service"
METRICS_TIMER = "gpufleet-metrics.timer"
#: The link that C(systemctl enable) makes for the timer.
TIMER_LINK = f"/etc/systemd/system/timers.target.wants/{METRICS_TIMER}"
VERB = "write-metrics"
#: In the directory that node_exporter reads.
METRICS_FILE = "gpufleet.prom"

#: How often a host is read: as node_exporter is scraped, about.
_SECONDS = 60
# nvidia-smi and NVML have 60 seconds each before they are given up.
_TIMEOUT = 300


def metric_units(python: str, directory: str) -> Mapping[str, str]:
    """Return the text of the service and of its timer by their names. C(directory): checked by L(refused_directory)."""
    service = [
        "[Service]",
        "Type=oneshot",
        f"ExecStart={python} {HOST_PROGRAM} {VERB} {directory}",
        f"TimeoutStartSec={_TIMEOUT}",
        "# What hangs in the driver does not end when it is killed, and is not waited for.",
        "TimeoutStopSec=5",
        "Nice=10",
        *sandbox([directory]),
    ]
    timer = ["[Timer]", f"OnActiveSec={_SECONDS}", f"OnUnitInactiveSec={_SECONDS}", "AccuracySec=5"]
    what = "Write metrics of the NVIDIA GPUs for node_exporter"
    return {
        METRICS_SERVICE: unit_text(what, ["After=gpufleet-sharing.service"], service),
        METRICS_TIMER: unit_text(f"{what} every minute", (), timer, ["[Install]", "WantedBy=timers.target"]),
    }


def directory_of(service: str | None) -> str | None:
    """Return the directory that the text of the service names, or None where there is no such service."""
    for line in (service or "").splitlines():
        before, verb, directory = line.partition(f" {VERB} ")
        if verb and before.startswith("ExecStart="):
            return directory.strip()
    return None


def refused_directory(directory: str) -> str | None:
    """Return why the metrics cannot be written to C(directory), or None. The name stands in a unit file, where blanks separate arguments and some
    characters mean something to systemd.
    """
    allowed = all(letter.isalnum() or letter in "/._-+@" for letter in directory)
    if not directory.startswith("/") or not allowed or ".." in directory.split("/"):
        return "it must be an absolute path of letters, digits and the characters . _ - + @"
    return None
