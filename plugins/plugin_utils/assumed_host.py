# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host that nobody has read, as its description has it: bare, with these boards. What is refused of it no host can meet. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.module_utils._distributions.distributions import DISTRIBUTIONS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.parameters import COHERENT_BOARDS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.schema_version import SCHEMA
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused, StagePlan
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes import RUNTIMES
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.capacity import gpus_of_inventory
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.stages import plan_stages

_FIRST = ("ubuntu", "24.04")


@dataclass(frozen=True)
class AssumedHost:
    """A host as it was planned without being read.

    :param text: what was assumed, for people.
    """

    text: str
    stages: Mapping[str, StagePlan]

    @property
    def refusals(self) -> tuple[Refused, ...]:
        return tuple(refusal for stage in self.stages.values() for refusal in stage.refusals)


def assumed_host(desired: Mapping[str, Any]) -> AssumedHost:
    """Plan a host by its variables alone.

    :param desired: the variables of all host roles, typed and complete.
    :return: with the first system on which nothing is refused; where there is none, what is refused on every one of them.
    """
    try:
        gpus = gpus_of_inventory(desired.get("gpu_facts_gpus") or ())
    except Refused as refusal:
        return AssumedHost("", {"hardware": StagePlan("hardware", needed=True, refusals=(refusal,))})
    everywhere: AssumedHost | None = None
    arm = any(gpu["board"] in COHERENT_BOARDS for gpu in gpus)
    for host in _systems(("aarch64", "x86_64") if arm else ("x86_64", "aarch64")):
        found = AssumedHost(_text(host, desired), plan_stages(_facts(host, gpus, desired), desired))
        if not found.refusals:
            return found
        everywhere = found if everywhere is None else _in_both(everywhere, found)
    assert everywhere is not None
    return everywhere


def _in_both(one: AssumedHost, other: AssumedHost) -> AssumedHost:
    """Return the plan of the first with the refusals that both have: what depends on the system only the host itself can tell."""
    said = {refusal.message for refusal in other.refusals}
    stages = {}
    for name, stage in one.stages.items():
        kept = tuple(refusal for refusal in stage.refusals if refusal.message in said)
        stages[name] = replace(stage, refusals=kept)
    return AssumedHost(one.text, stages)


def _systems(machines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Return C(host) of the facts for every system that has drivers, the most common first."""
    for machine in machines:
        for (name, version), row in sorted(DISTRIBUTIONS.items(), key=lambda entry: entry[0] != _FIRST):
            if machine in row.machines:
                distribution = {"id": name, "version": version}
                yield {"distribution": distribution, "architecture": machine, "kernel_headers": True}


def _facts(host: Mapping[str, Any], gpus: list[dict[str, Any]], desired: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a bare host. What is null there was not read, such as the cards of a host whose boards nobody describes."""
    cards = [
        {
            "address": f"described {gpu['index']:02}",
            "kind": "gpu",
            **{key: gpu[key] for key in ("device_id", "board", "architecture")},
        }
        for gpu in gpus
    ]
    runtime = RUNTIMES.get(desired["nvidia_toolkit_runtime"])
    there = {"version": ".".join(map(str, runtime.first_with_cdi)), "nvidia": False} if runtime else {}
    return {
        "schema": SCHEMA,
        "host": host,
        "pci": cards or None,
        "driver": {},
        "nvml": {"available": False, "reason": "no driver is installed"},
        "toolkit": {"packages": {}, "holds": []},
        "runtimes": {desired["nvidia_toolkit_runtime"]: there} if there else {},
        "host_program": {"units": {}},
        "recorded": {},
        # An image may have brought DCGM where the description leaves it to others.
        **({"dcgm": {"packages": {}, "holds": []}} if desired["nvidia_dcgm_state"] == "present" else {}),
    }


def _text(host: Mapping[str, Any], desired: Mapping[str, Any]) -> str:
    gpus = ", ".join(f"{entry['count']} x {entry['board']}" for entry in desired.get("gpu_facts_gpus") or ())
    system = DISTRIBUTIONS[host["distribution"]["id"], host["distribution"]["version"]].name
    runtime = RUNTIMES.get(desired["nvidia_toolkit_runtime"])
    installed = f", {runtime.title}" if runtime else ""
    return (
        f"a host with {gpus} (gpu_facts_gpus), {system} on {host['architecture']}{installed} and no software of NVIDIA"
    )
