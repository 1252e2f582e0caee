# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stages of C(site), each with the pure function that plans it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Callable

from ansible import constants as C
from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm.stage import stage as dcgm
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.stage import stage as driver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.stage import PROGRAM
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host.stage import stage as boot
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.stage import stage as mig
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused, StagePlan
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.reload_risk import refused_reload
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtime.stage import stage as runtime
from ansible_collections.gpufleet.nvidia.plugins.module_utils._settings.stage import stage as settings
from ansible_collections.gpufleet.nvidia.plugins.module_utils._sharing.stage import stage as sharing
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.stage import stage as toolkit
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.driver_advisories import VARIABLE, read_folder
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.host_program import program_identity

StageFunction = Callable[[Mapping[str, Any], Mapping[str, Any]], StagePlan]

#: In the order in which they run.
STAGES: dict[str, StageFunction] = {
    "driver": driver,
    "toolkit": toolkit,
    "runtime": runtime,
    # Units of the stages after it call the host program.
    "boot": boot,
    "settings": settings,
    "mig": mig,
    "sharing": sharing,
    "dcgm": dcgm,
}
#: Those that write units of systemd.
_WRITE_UNITS = ("driver", "boot", "sharing")


def plan_stages(facts: Mapping[str, Any], desired: Mapping[str, Any]) -> dict[str, StagePlan]:
    """Return the plan of every stage; a refusal that a stage raises becomes one that it reports.

    :param facts: the facts document of C(gpu_info).
    :param desired: the variables of all host roles.
    :return: plans by stage; of a host that was read without root, or has no GPUs or others than described, only one, that says so.
    """
    for name, refusal in (("privileges", _without_root(facts)), ("hardware", _other_gpus(facts, desired))):
        if refusal:
            return {name: StagePlan(name, needed=True, refusals=(refusal,))}
    plans = {}
    try:
        given = {
            **desired,
            VARIABLE: read_folder(str(desired.get(VARIABLE) or "")),
            PROGRAM: program_identity(C.DEFAULT_LOCAL_TMP),
        }
    except Refused as refusal:
        return {"driver": StagePlan("driver", needed=True, refusals=(refusal,))}
    for name, function in STAGES.items():
        try:
            plans[name] = function(facts, given)
        except Refused as refusal:
            plans[name] = StagePlan(name, needed=True, refusals=(refusal,))
    writing = next((plan for name, plan in plans.items() if name in _WRITE_UNITS and plan.steps), None)
    if writing is not None:
        plans[writing.stage] = replace(writing, warnings=(*writing.warnings, *refused_reload(facts, desired)))
    return plans


def _without_root(facts: Mapping[str, Any]) -> Refused | None:
    """Without root a daemon that runs seems dead, and a plan would want to start it: nothing is concluded from such facts."""
    if (facts.get("host") or {}).get("root") is not False:
        return None
    return Refused(
        "become",
        "this host was read without root, which hides its daemons and who uses its GPUs",
        "Let Ansible become root on it: remove ansible_become: false and ansible_become_user from its variables, and give "
        "--ask-become-pass where sudo asks for a password.",
    )


def _other_gpus(facts: Mapping[str, Any], desired: Mapping[str, Any]) -> Refused | None:
    """Nothing is installed for GPUs that are not there. What could not be read is not taken for absent."""
    cards = facts.get("pci")
    if cards is None:
        return None
    there = sum(1 for card in cards if card.get("kind") == "gpu")
    described = sum(int(entry["count"]) for entry in desired.get("gpu_facts_gpus") or ())
    if there and described and there != described:
        return Refused(
            "gpu_facts_gpus",
            f"the host is described with {described} GPUs, and its PCI bus shows {there}",
            "Correct the variable, or look for the missing board: lspci -d 10de:",
        )
    if there or facts.get("gpus"):
        return None
    return Refused(
        "the group gpu_hosts",
        "this host has no NVIDIA GPU on its PCI bus",
        "Take it out of the group, or see whether the board is seated and powered: lspci -d 10de:",
    )
