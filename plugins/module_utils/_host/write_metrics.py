# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the host and write its metrics for the textfile collector of node_exporter: whole files only, also where NVML does not answer.

https://github.com/prometheus/node_exporter#textfile-collector

Whether the host differs from what was recorded on it is one of them: the planners of C(site) over the records, for nobody describes the host there.
"""

from __future__ import annotations

import os
import time

from .._adapters.files import LOCK_PATH, HostFiles, Locked, exclusive, read_text, write_whole
from .._adapters.host_reader import HostReader
from .._adapters.processes import unit_of
from .._facts.evidence import collect
from .._facts.health import kernel_log
from .._facts_view import Facts
from .._formats.documents import whole_number
from .._health.checks import CHECKS
from .._health.metric_units import METRICS_FILE, METRICS_SERVICE
from .._health.metrics import counted, expose, parse_counts, readings, unread
from .._health.records import cdi_difference, record_differences
from .._health.report import evaluate
from .._plan import Refused
from .plan import VERSION_FILE
from .plan import plan as plan_boot
from .restore import fail, say


def drift(facts: Facts) -> dict[str, bool]:
    """Return whether there is something to do, by what was recorded, as in L(record_differences); and C(boot), the units that restore it, and C(cdi),
    the CDI specification of the devices. What is not recorded, or cannot be compared because NVML does not answer, is missing. A record that cannot
    be used differs.
    """
    found = {record: bool(text) for record, text in record_differences(facts).items()}
    cdi = cdi_difference(facts)
    if cdi is not None:
        found["cdi"] = bool(cdi)
    present = facts.host_program
    if present.units is not None and present.sha256 and present.version:
        found["boot"] = plan_boot(present, present.version, present.sha256).changes
    return found


COUNTS = "/var/lib/gpufleet/error-counts.json"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
#: Where systemd keeps the processes of a service, by the version of control groups.
_CGROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified")


def write_metrics(directory: str) -> int:
    """Write the metrics of this host into C(directory) and return the exit status."""
    if not os.path.isdir(directory):
        fail(
            f"Failed to write metrics: the directory {directory} is not there. Install node_exporter, or set "
            "nvidia_health_metrics_directory to the directory that its textfile collector reads"
        )
        return 1
    path = os.path.join(directory, METRICS_FILE)
    hanging = left_over_processes()
    if hanging:
        fail(f"Failed to read the GPUs: process {', '.join(map(str, hanging))} of an earlier run still hangs")
        write_whole(path, expose(unread(time.time(), read_text(VERSION_FILE, links=False))))
        return 1
    try:
        # Only asked, not held: a change must not wait for this. What is read during a change would be neither old nor new.
        with exclusive(0, LOCK_PATH):
            pass
    except Locked as error:
        say(f"nothing is read while the GPUs are being changed: {error}")
        return 0
    began = time.monotonic()
    try:
        evidence = collect(HostReader(HostFiles()), None, (), 0.0)
    except Refused as refusal:
        fail(f"Failed to read the host: {refusal.message}")
        write_whole(path, expose(unread(time.time(), read_text(VERSION_FILE, links=False))))
        return 1
    report = evaluate(CHECKS, evidence)
    errors = parse_counts(read_text(COUNTS, links=False), read_text(_BOOT_ID) or "")
    log = kernel_log()
    if log is not None:
        errors = counted(errors, log, evidence.facts.pci or ())
        write_whole(COUNTS, errors.as_text(), mode=0o600)
    took = time.monotonic() - began
    write_whole(path, expose(readings(evidence, report, errors, time.time(), took, drift(evidence.facts))))
    say(report.message)
    return 0


def left_over_processes(files: HostFiles | None = None, own: int | None = None) -> list[int]:
    """Return the processes of earlier runs that are still in this service's control group. A process that waits inside the driver of a broken GPU
    survives SIGKILL; another one every minute would fill the host with them. C(own): process id of this process.
    """
    host = files or HostFiles()
    groups = host.read("/proc/self/cgroup") or ""
    if unit_of(groups, ".service") != METRICS_SERVICE:
        return []
    found: set[int] = set()
    for line in groups.splitlines():
        _number, controllers, group = (*line.split(":", 2), "", "")[:3]
        if controllers not in ("", "name=systemd"):
            continue
        for root in _CGROUPS:
            listed = (host.read(f"{root}{group}/cgroup.procs") or "").split()
            found.update(pid for pid in map(whole_number, listed) if pid is not None)
    return sorted(found - {os.getpid() if own is None else own})
