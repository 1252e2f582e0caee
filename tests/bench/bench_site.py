# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run of C(site) costs that has nothing to do, and what reading a host takes, beside C(ansible -m ping) on the same lab hosts in the
same run.
"""

from __future__ import annotations

import datetime
import json
import statistics

from demo_lab import FLEET, OUTPUT, demo_lab, nothing_changed, timed

TURNS = 3
#: How often each of them is asked, for the medians.
_ASKED = 9
_HOST = "gpu-training-1"
#: What is asked: ping, the facts as the playbooks want them, and as users do who call the module.
_TASKS: dict[str, dict[str, dict[str, bool]]] = {
    "ping": {"ansible.builtin.ping": {}},
    "gpu_info": {"gpufleet.nvidia.gpu_info": {"as_text": True}},
    "as_data": {"gpufleet.nvidia.gpu_info": {}},
}


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
        tasks = _seconds_of_tasks(inventory)
    reading, answering = statistics.median(tasks["gpu_info"]), statistics.median(tasks["ping"])
    site_seconds, ping_seconds = statistics.median(times["site"]), statistics.median(times["ping"])
    return {
        "site.noop_ratio_to_ping": site_seconds / ping_seconds,
        "site.noop_seconds_3_hosts": site_seconds,
        "site.ping_seconds_3_hosts": ping_seconds,
        "gpu_info.wall_ratio_to_ping": reading / answering,
        "gpu_info.wall_ratio_to_ping_as_data": statistics.median(tasks["as_data"]) / answering,
        "gpu_info.seconds": reading,
    }


def _seconds_of_tasks(inventory: list[str]) -> dict[str, list[float]]:
    """Return how long each of these tasks takes on one host, in turns, without what a run does once for all of its hosts.

    That is the first turn: the connection is opened, and the controller packs each module for its hosts.
    """
    turns = [task for _turn in range(_ASKED + 1) for task in _TASKS.values()]
    play = [{"hosts": _HOST, "gather_facts": False, "become": True, "tasks": turns}]
    playbook = OUTPUT / "turns.json"
    playbook.write_text(json.dumps(play), encoding="utf-8")
    said = timed("ansible-playbook", *inventory, str(playbook), ANSIBLE_STDOUT_CALLBACK="json")
    found: dict[str, list[float]] = {name: [] for name in _TASKS}
    for number, task in enumerate(json.loads(said.output)["plays"][0]["tasks"]):
        start, end = (
            datetime.datetime.fromisoformat(task["task"]["duration"][at].rstrip("Z")) for at in ("start", "end")
        )
        if number >= len(_TASKS):
            found[list(_TASKS)[number % len(_TASKS)]].append((end - start).total_seconds())
    return found
