# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One rollout at a time: a Lease in the cluster says who works on the fleet. Its times are the API server's."""

from __future__ import annotations

import datetime
import hashlib
import multiprocessing
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..module_utils._formats.documents import whole_number
from ..module_utils._formats.utc_time import lately
from ..module_utils._plan import Failure
from ..module_utils._printable import printable
from .cluster import Cluster, parse_time

NAME = "gpufleet-upgrade"
#: Seconds for which a lease is believed at most, whatever it says itself.
_LONGEST = 86400


@dataclass(frozen=True)
class Holder:
    """Who runs a rollout: C(user@machine/pid-start-space), where a number of C(space) means one process only."""

    where: str
    process: str

    def __str__(self) -> str:
        return f"{self.where}/{self.process}"


def this_run() -> Holder:
    """Return this run: the process that is the parent of Ansible's workers.

    :raises Failure: it has ended. A worker outlives a run that is killed, until its task ends.
    """
    # An action plugin runs in a worker process; the run is its parent.
    pid = os.getppid()
    run = multiprocessing.parent_process()
    if run is not None and run.pid != pid:
        # Its new parent, init, is never gone: the next run would wait until the lease expires.
        raise Failure("The run that this task belongs to has ended, so nothing is done for it any more.")
    user = os.environ.get("USER") or str(os.getuid())
    return Holder(f"{user}@{socket.gethostname()}", f"{pid}-{_start_of(pid) or 0}-{_space()}")


def _space() -> str:
    """Return what tells apart containers, and machines of one name: their processes have the same numbers."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as handle:
        boot = handle.read().strip()
    return hashlib.sha256(f"{boot} {os.readlink('/proc/self/ns/pid')}".encode()).hexdigest()[:12]


def _start_of(pid: int) -> str | None:
    """Return when a process began, in ticks since boot; None when there is none of that number, or only what its parent has yet to reap."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as handle:
            values = handle.read().rpartition(")")[2].split()
            return None if values[0] == "Z" else values[19]
    except (OSError, IndexError):
        return None


def is_gone(holder: str, here: Holder) -> bool:
    """Whether a holder was a run on this machine that has ended: its lease need not be waited for.

    Of one in another PID namespace, or of before a reboot, nothing is known.
    """
    return _goes_on(holder, here) is False


def is_at_work(holder: str, here: Holder) -> bool:
    """Whether a holder is another run on this machine that has not ended."""
    return holder != str(here) and _goes_on(holder, here) is True


def _goes_on(holder: str, here: Holder) -> bool | None:
    where, _slash, process = holder.rpartition("/")
    pid, start, space = [*process.split("-"), "", ""][:3]
    mine = where == here.where and space == here.process.rpartition("-")[2]
    number = whole_number(pid)
    return _start_of(number) == start if mine and number is not None else None


def may_take(lease: Mapping[str, Any] | None, here: Holder, now: datetime.datetime, force: bool) -> str | None:
    """Return why this run must not have the lease, or None when it may.

    :param now: by the API server's clock, as every moment in a lease: one of the future was written by nobody who took it.
    """
    spec = (lease or {}).get("spec") or {}
    holder = str(spec.get("holderIdentity") or "")
    if not holder or holder == str(here) or force or is_gone(holder, here):
        return None
    renewed = spec.get("renewTime")
    seconds = min(whole_number(str(spec.get("leaseDurationSeconds"))) or 0, _LONGEST)
    if lately(_moment(renewed), now, seconds):
        text = f"{holder} has held the fleet lock since {spec.get('acquireTime')}, and last renewed it at {renewed}"
        return str(printable(text))
    return None


def _moment(text: Any) -> datetime.datetime | None:
    """Return a moment of a lease, or None where it names none."""
    try:
        found = parse_time(str(text))
    except ValueError:
        return None
    return found if found.tzinfo else None


def take(cluster: Cluster, namespace: str, here: Holder, seconds: int, force: bool) -> None:
    """Take the lease, or renew it."""
    for _attempt in range(5):
        lease = cluster.lease(namespace, NAME)
        now = cluster.clock(namespace)
        refusal = may_take(lease, here, now, force)
        if refusal:
            raise Failure(
                f"{refusal}. Only one rollout runs at a time. Wait until it ends. If it is dead, "
                f"the lease {namespace}/{NAME} expires {seconds} s after it was last renewed, or take it over with "
                "gpu_node_lease_take_over=true."
            )
        present = (lease or {}).get("spec") or {}
        mine = present.get("holderIdentity") == str(here)
        spec = {
            "holderIdentity": str(here),
            "leaseDurationSeconds": seconds,
            "acquireTime": present.get("acquireTime") if mine else _format(now),
            "renewTime": _format(now),
        }
        version = ((lease or {}).get("metadata") or {}).get("resourceVersion")
        if cluster.write_lease(namespace, NAME, spec, version):
            return
    raise Failure(f"Failed to acquire the lease {namespace}/{NAME}: other clients keep changing it. Run again.")


def held(cluster: Cluster, namespace: str, here: Holder) -> dict[str, Any] | None:
    """Return the lease, if this run has it."""
    lease = cluster.lease(namespace, NAME) or {}
    return lease if (lease.get("spec") or {}).get("holderIdentity") == str(here) else None


def release(cluster: Cluster, namespace: str, here: Holder) -> None:
    """Give the lease back, if this run has it."""
    lease = held(cluster, namespace, here)
    if lease:
        cluster.write_lease(namespace, NAME, {"holderIdentity": None}, lease["metadata"]["resourceVersion"])


def _format(moment: datetime.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
