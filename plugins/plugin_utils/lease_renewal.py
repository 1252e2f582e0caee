# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Renew a run's Lease while it lives. A step may take longer than the Lease holds, and Ansible has nothing that runs beside a task: so this is
a process of its own for each Lease, which ends with the run, however that ends, or when the Lease is another's. A run that ends in order gives back
what it has, whichever hosts it lost on the way. Where it is killed, or interrupted while it has a node half-way, tasks may still be at work on a host: as in
a leader election, the Lease is not released then, but expires.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    # Outside of Ansible nothing else finds the collection.
    sys.path.insert(0, str(Path(__file__).absolute().parents[5]))

from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import cluster_lease
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.cluster import ApiError, Cluster
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.upgrade import is_half_way

#: Seconds between two looks at the run.
_PAUSE = 1.0
#: How often a Lease is renewed while it holds.
_TIMES = 3
_PATIENCE = 30.0


def start(
    kubeconfig: str, context: str, namespace: str, holder: cluster_lease.Holder, seconds: int, folder: str
) -> None:
    """Start the process that renews a Lease of this run, unless the run has it.

    :param seconds: for which the Lease holds.
    :param folder: which Ansible removes when a run ends in order.
    """
    lease = json.dumps([kubeconfig, context, namespace]).encode()
    mark = os.path.join(folder, f"gpufleet-lease-renewal-{hashlib.sha256(lease).hexdigest()[:12]}")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with open(mark, "x", encoding="ascii"):
            pass
    except FileExistsError:
        return
    arguments = [kubeconfig, context, namespace, holder.where, holder.process, seconds, mark]
    subprocess.Popen(
        [sys.executable, __file__, json.dumps(arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )


def renew(cluster: Cluster, namespace: str, holder: cluster_lease.Holder, seconds: int, pause: float = _PAUSE) -> None:
    """Renew the Lease until the run has ended or has lost it. An API server that is away is asked again."""
    due = time.monotonic() + seconds / _TIMES
    while not cluster_lease.is_gone(str(holder), holder):
        time.sleep(pause)
        if time.monotonic() < due:
            continue
        try:
            if not cluster_lease.held(cluster, namespace, holder):
                return
            cluster_lease.take(cluster, namespace, holder, seconds, False)
            due = time.monotonic() + seconds / _TIMES
        except ApiError:
            continue
        except Failure:
            return


def main() -> None:
    kubeconfig, context, namespace, where, process, seconds, mark = json.loads(sys.argv[1])
    cluster, holder = Cluster(kubeconfig, context, _PATIENCE), cluster_lease.Holder(where, process)
    renew(cluster, namespace, holder, int(seconds))
    # What it wrote last, no cache needs to have.
    if not os.path.exists(mark) and not any(is_half_way(node, str(holder)) for node in cluster.nodes("").values()):
        cluster_lease.release(cluster, namespace, holder)


if __name__ == "__main__":
    main()
