# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run of C(site) costs that has nothing to do, beside C(ansible -m ping) on the same lab hosts in the same run."""

from __future__ import annotations

import statistics

from demo_lab import FLEET, OUTPUT, demo_lab, nothing_changed, timed

TURNS = 3


def run() -> dict[str, object]:
    """Boot the demo's three hosts, bring them up, and time both commands in turns; the medians are compared."""
    with demo_lab("bench") as path:
        inventory = ["-i", str(FLEET), "-i", str(path)]
        site = [*inventory, "-e", f"gpu_kubernetes_output_directory={OUTPUT / 'gitops'}", "gpufleet.nvidia.site"]
        timed("ansible-playbook", *site)
        times: dict[str, list[float]] = {"site": [], "ping": []}
        for _turn in range(TURNS):
            times["ping"].append(timed("ansible", *inventory, "gpu_hosts", "-m", "ansible.builtin.ping").seconds)
            cost = timed("ansible-playbook", *site)
            nothing_changed(cost.output)
            times["site"].append(cost.seconds)
    site_seconds, ping_seconds = statistics.median(times["site"]), statistics.median(times["ping"])
    return {
        "site.noop_ratio_to_ping": site_seconds / ping_seconds,
        "site.noop_seconds_3_hosts": site_seconds,
        "site.ping_seconds_3_hosts": ping_seconds,
    }
