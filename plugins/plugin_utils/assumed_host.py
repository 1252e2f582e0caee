# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host that nobody has read, as its description has it: bare, with these boards. What is refused of it no host can meet. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.gpufleet.nvidia.plugins.module_utils._distributions.distributions import DISTRIBUTIONS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.parameters import COHERENT_BOARDS
from ansible_collections.gpufleet.nvidia.plugins.module_utils._facts.schema_version import SCHEMA
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused, StagePlan
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes import RUNTIMES
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.capacity import gpus_of_inventory
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.stages import plan_stages

_FIRST = ("ubuntu", "24.04")


def assumed_host(desired: Mapping[str, Any]) -> tuple[str, dict[str, StagePlan]]:
    """Plan a host by its variables alone.

    :param desired: the variables of all host roles, typed and complete.
    :return: what was assumed, for people, and the stages, on the first system on which nothing is refused. Where there is none, what is refused on every
        one of them: what depends on the system only the host itself can tell.
    """
    try:
        gpus = gpus_of_inventory(desired.get("gpu_facts_gpus") or ())
    except Refused as refusal:
        return "", {"hardware": StagePlan("hardware", needed=True, refusals=(refusal,))}
    everywhere: list[tuple[str, dict[str, StagePlan]]] = []
    said: set[tuple[str, ...]] = set()
    arm = any(gpu["board"] in COHERENT_BOARDS for gpu in gpus)
    for host in _systems(("aarch64", "x86_64") if arm else ("x86_64", "aarch64")):
        found = _text(host, desired), plan_stages(_facts(host, gpus, desired), desired)
        here = {refusal.args for stage in found[1].values() for refusal in stage.refusals}
        if not here:
            return found
        said = said & here if everywhere else here
        everywhere.append(found)
    text, stages = everywhere[0]
    return text, {
        name: replace(stage, refusals=tuple(one for one in stage.refusals if one.args in said))
        for name, stage in stages.items()
    }


def _systems(machines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Return C(host) of the facts for every system that has drivers, the most common first."""
    for machine in machines:
        for (name, version), row in sorted(DISTRIBUTIONS.items(), key=lambda entry: entry[0] != _FIRST):
            if machine in row.machines:
                distribution = {"id": name, "version": version}
                yield {"distribution": distribution, "architecture": machine, "kernel_headers": True}


def _facts(host: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]], desired: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a bare host. What is null there was not read, such as the cards of a host whose boards nobody describes."""
    known = ("device_id", "board", "architecture")
    # One address for all of them, which messages show: their order is that of the description.
    cards = [{"address": "gpu_facts_gpus", "kind": "gpu", **{name: gpu[name] for name in known}} for gpu in gpus]
    runtime = RUNTIMES.get(desired["nvidia_toolkit_runtime"])
    there = {"version": ".".join(map(str, runtime.first_with_cdi)), "nvidia": False} if runtime else None
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
    there = f"{system} on {host['architecture']}{f', {runtime.title}' if runtime else ''} and no software of NVIDIA"
    return f"a host with {gpus} (gpu_facts_gpus), {there}"
