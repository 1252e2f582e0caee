# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the hosts' time in a run of C(site) was spent on, by stage. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .text import table

#: The results that the stages register, in the order in which they run.
REGISTERED = {
    "facts": "gpu_facts_host",
    "driver": "nvidia_driver_result",
    "reboot": "__gpu_facts_rebooted",
    "toolkit": "nvidia_toolkit_result",
    "runtime": "nvidia_toolkit_runtime_result",
    "boot": "nvidia_boot_result",
    "settings": "nvidia_settings_result",
    "mig": "nvidia_mig_result",
    "sharing": "nvidia_sharing_result",
    "dcgm": "nvidia_dcgm_result",
    "health": "nvidia_health_result",
}
#: What a stage waits for, as L(gpufleet.nvidia.driver#module) calls it, and the column that shows it.
_WAITS = {"download": "DOWNLOAD", "build": "BUILD", "packages": "PACKAGES", "programs": "PROGRAMS", "nvml": "NVML"}
#: The connection, and the wait for a busy controller: what is left of the time where the host says how long its module was at work.
_ANSIBLE = "ansible"
_COLUMNS = {**_WAITS, _ANSIBLE: "ANSIBLE"}
#: A reboot is the host's own.
_OF_HOST = frozenset({"reboot"})


@dataclass(frozen=True)
class StageTime:
    """What one stage of one host took.

    :param elapsed: seconds from the controller's question to the host's answer.
    :param waits: seconds of that which were spent otherwise than by the collection, by what for. What a host says is not more than C(elapsed) in all.
    """

    elapsed: float
    waits: Mapping[str, float] = field(default_factory=dict)

    @property
    def ours(self) -> float:
        return max(0.0, self.elapsed - sum(self.waits.values()))


def stage_time(stage: str, answer: Any) -> StageTime | None:
    """Return what a stage took by what its task registered; None where it did not run."""
    elapsed = _seconds(answer.get("elapsed")) if isinstance(answer, Mapping) else 0.0
    if not elapsed:
        return None
    if stage in _OF_HOST:
        return StageTime(elapsed, {"programs": elapsed})
    said = answer.get("seconds")
    if not isinstance(said, Mapping) or not said:
        return StageTime(elapsed)
    waits = {name: _seconds(said.get(name)) for name in _WAITS}
    at_work = sum(waits.values()) + _seconds(said.get("own"))
    # The host's clock is not the controller's, and what a host says is data.
    return StageTime(elapsed, {**waits, _ANSIBLE: elapsed - at_work}) if at_work <= elapsed else StageTime(elapsed)


def sum_seconds(first: Any, second: Any) -> dict[str, float]:
    """Return the seconds of two calls of a module in one task, by what for, each as its host said them."""
    said = [one for one in (first, second) if isinstance(one, Mapping)]
    return {
        name: round(sum(_seconds(one.get(name)) for one in said), 1)
        for name in dict.fromkeys(name for one in said for name in one)
    }


def shown(hosts: Mapping[str, Mapping[str, StageTime]]) -> str:
    """Return a line for each stage that ran, with the seconds of its slowest host, and what of all hosts' time was ours."""
    stages = [stage for stage in REGISTERED if any(stage in times for times in hosts.values())]
    rows = []
    for stage in stages:
        times = [found[stage] for found in hosts.values() if stage in found]
        slowest = max(times, key=lambda one: one.elapsed)
        rows.append(
            [
                stage,
                str(len(times)),
                f"{slowest.elapsed:.0f}",
                *(f"{slowest.waits.get(name, 0.0):.0f}" for name in _COLUMNS),
                f"{slowest.ours:.0f}",
            ]
        )
    whole = sum(time.elapsed for times in hosts.values() for time in times.values())
    ours = sum(time.ours for times in hosts.values() for time in times.values())
    header = ["STAGE", "HOSTS", "SECONDS", *_COLUMNS.values(), "OURS"]
    return (
        "Seconds of the slowest host of each stage:\n"
        + table(header, rows)
        + f"Of {whole:.0f} s on {len(hosts)} hosts, {ours:.0f} s ({100 * ours / whole if whole else 0:.0f} %) are this collection's own.\n"
    )


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return 0.0
    return max(0.0, float(value))
