# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run of C(site) costs that has nothing to do, beside C(ansible -m ping) on the same lab hosts in the same run."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from unavailable import Unavailable

REPOSITORY = Path(__file__).resolve().parents[2]
BINARIES = Path(sys.executable).parent
LAB = REPOSITORY / "tests" / "lab" / "lab"
NAME = "bench"
TURNS = 3


def run() -> dict[str, object]:
    """Boot the demo's three hosts, bring them up, and time both commands in turns; the medians are compared."""
    if os.geteuid() != 0:
        raise Unavailable("it boots lab hosts and needs root: sudo make bench")
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "build" / "collections"),
        "ANSIBLE_CONFIG": str(REPOSITORY / "examples" / "ansible.cfg"),
    }
    subprocess.run([LAB, "up", "--name", NAME], check=True, stdout=subprocess.DEVNULL)
    try:
        path = subprocess.run(
            [LAB, "inventory", "--name", NAME], check=True, capture_output=True, text=True
        ).stdout.strip()
        inventory = ["-i", str(REPOSITORY / "examples" / "fleet"), "-i", path]
        output = REPOSITORY / "build" / "bench" / "gitops"
        site = [
            str(BINARIES / "ansible-playbook"),
            *inventory,
            "-e",
            f"gpu_kubernetes_output_directory={output}",
            "gpufleet.nvidia.site",
        ]
        ping = [str(BINARIES / "ansible"), *inventory, "gpu_hosts", "-m", "ansible.builtin.ping"]
        _timed(site, environment)
        times: dict[str, list[float]] = {"site": [], "ping": []}
        for _turn in range(TURNS):
            times["ping"].append(_timed(ping, environment)[0])
            seconds, text = _timed(site, environment)
            times["site"].append(seconds)
            recap = [line for line in text.partition("PLAY RECAP")[2].splitlines() if "changed=" in line]
            if not recap or any("changed=0 " not in line for line in recap):
                raise RuntimeError(f"site changed something, so this is no measure of a run without work:\n{text}")
    finally:
        subprocess.run([LAB, "down", "--name", NAME], check=False, stdout=subprocess.DEVNULL)
    site_seconds, ping_seconds = statistics.median(times["site"]), statistics.median(times["ping"])
    return {
        "site.noop_ratio_to_ping": site_seconds / ping_seconds,
        "site.noop_seconds_3_hosts": site_seconds,
        "site.ping_seconds_3_hosts": ping_seconds,
    }


def _timed(command: list[str], environment: dict[str, str]) -> tuple[float, str]:
    started = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return time.monotonic() - started, done.stdout
