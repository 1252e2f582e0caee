# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the inventory says of one host, and what follows from it for the host's stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Callable

from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.imex import NODES
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused, StagePlan
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.assumed_host import assumed_host
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.fleet.text import shortened
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.imex_rack import Racks
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.pools import pool_of
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.role_variables import collect, refusals_of, value_of
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.stages import plan_stages

#: What C(site) may disturb on a host in service.
_DISRUPTIONS = ("nvidia_driver_disruption", "nvidia_mig_disruption")


@dataclass(frozen=True)
class Description:
    """The variables of one host, checked.

    :param pool: None where the host is in none, or in several.
    :param variables: those of all host roles, typed and complete; empty where something is refused.
    :param refusals: what cannot be taken as it is.
    """

    pool: str | None
    variables: Mapping[str, Any]
    refusals: tuple[Refused, ...] = ()

    def emptied(self) -> Description:
        """Return the description for a playbook of day two: it takes the host from its users first, and what it brings is what counts from then on."""
        allowed = {name: "force" for name in _DISRUPTIONS if self.variables.get(name) == "refuse"}
        return replace(self, variables={**self.variables, **allowed, "nvidia_driver_allow_downgrade": True})

    def stages(self, facts: Mapping[str, Any] | None) -> dict[str, StagePlan]:
        """Return the plan of every stage of C(site); one alone that says what is refused of the variables.

        :param facts: None where the host could not be read: then nothing is planned.
        """
        if self.refusals:
            return {"variables": StagePlan("variables", needed=True, refusals=self.refusals)}
        return plan_stages(facts, self.variables) if facts else {}

    def without_host(self) -> tuple[str, dict[str, StagePlan]]:
        """Return what is planned of a host that nobody has read, and refused of any, with what was assumed."""
        return ("", self.stages(None)) if self.refusals else assumed_host(self.variables)


def describe(
    host: str,
    variables: Mapping[str, Any],
    known: Mapping[str, Sequence[str]],
    template: Callable[[Any], Any] = lambda value: value,
    racks: Racks | None = None,
) -> Description:
    """Return the description of C(host). What is wrong with it is the mistake of one host, and is no error here.

    :param variables: all variables of the host, possibly holding templates.
    :param known: the pools of the inventory.
    :param template: renders a value that may hold templates.
    :param racks: those of the inventory.
    """
    pool = None
    try:
        pool = pool_of(host, known, value_of("gpu_facts_pool", variables, template))
        desired = collect(variables, template)
        return Description(pool, {**desired, NODES: (racks or Racks({})).nodes_of(host, desired)})
    except Refused as refusal:
        return Description(pool, {}, refusals_of(refusal))


def warnings_of(hosts: Iterable[tuple[str, Mapping[str, StagePlan]]]) -> list[str]:
    """Return every warning once, with the hosts that it is about.

    :param hosts: name and stages of each.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for host, stages in hosts:
        for stage in stages.values():
            for text in stage.warnings:
                found.setdefault((stage.stage, text), []).append(host)
    return [f"{shortened(where)}: {stage}: {text}" for (stage, text), where in found.items()]
