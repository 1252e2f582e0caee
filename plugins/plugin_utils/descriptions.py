# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts of a run: what the inventory says of each, what follows from it for the host's stages, and what was read of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Callable

from ..module_utils._distributions.distributions import DISTRIBUTIONS
from ..module_utils._driver.desired import COHERENT_BOARDS
from ..module_utils._facts_view import Facts, view_of
from ..module_utils._formats.imex import NODES
from ..module_utils._gpu_facts import GpuFacts
from ..module_utils._mig.desired import LAYOUT
from ..module_utils._plan import Refused, StagePlan
from ..module_utils._runtimes import RUNTIMES
from ..module_utils._schema import FACTS_SCHEMA
from ..module_utils._slurm.plan import UNDER_JOBS
from ..module_utils._slurm.stage import DESIRED as SLURM
from ..module_utils._toolkit.desired import HOOKS
from .fleet.capacity import gpus_of_inventory
from .fleet.text import shortened
from .host_facts import registered
from .plain import plain, read_facts
from .pools import Racks, pool_of, pools
from .recommend.seen import outdated
from .role_variables import collect, refusals_of, value_of
from .slurm_desired import slurm_desired
from .stages import PASSTHROUGH, plan_stages

#: The system that is assumed first of a host that nobody has read.
_FIRST = ("ubuntu", "24.04")
_BUSY = "nvidia_mig_busy_instances"
#: What C(site) may disturb on a host in service.
_DISRUPTIONS = ("nvidia_driver_disruption", "nvidia_mig_disruption", "nvidia_sharing_mps_disruption")


@dataclass(frozen=True)
class Description:
    """The variables of one host, checked.

    :param pool: None where the host is in none, or in several.
    :param variables: those of all host roles, typed and complete; empty where something is refused.
    """

    pool: str | None
    variables: Mapping[str, Any]
    refusals: tuple[Refused, ...] = ()

    def emptied(self) -> Description:
        """Return the description for a playbook of day two: it takes the host from its users first, and what it brings is what counts from then on."""
        allowed = {name: "force" for name in _DISRUPTIONS if self.variables.get(name) == "refuse"}
        return replace(self, variables={**self.variables, **allowed, "nvidia_driver_allow_downgrade": True})

    def stages(self, facts: Facts | None) -> dict[str, StagePlan]:
        """Return the plan of every stage of C(site); one alone that says what is refused of the variables.

        :param facts: None where the host could not be read: then nothing is planned.
        """
        if self.refusals:
            return {"variables": StagePlan("variables", needed=True, refusals=self.refusals)}
        return plan_stages(facts, self.variables) if facts else {}

    def stages_recommended(self, seen: Mapping[str, Any], host: str, facts: Facts | None) -> dict[str, StagePlan]:
        """Return the plan of every stage with what a recommendation saw of the host (L(seen_of)): of those that force may take, the MIG devices that it
        keeps go last, and a layout for another state of the host is refused.
        """
        keeps = [*(self.variables.get(_BUSY) or ()), *seen.get("keeps", ())]
        stages = replace(self, variables={**self.variables, _BUSY: keeps}).stages(facts)
        if seen and facts and "mig" in stages:
            mig = stages["mig"]
            stale = outdated(seen, host, facts, mig, self.variables.get(LAYOUT))
            stages["mig"] = replace(mig, refusals=(*mig.refusals, *stale))
        return stages

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
    """Return the description of C(host). What is wrong with it is the mistake of one host, and is no error here."""
    pool = None
    try:
        pool = pool_of(host, known, value_of("gpu_facts_pool", variables, template))
        desired = collect(variables, template)
        racks = racks or Racks({})
        hooks = racks.hooks_of(desired, known, lambda name: value_of(name, variables, template))
        own = {NODES: racks.nodes_of(host, desired), HOOKS: hooks, SLURM: slurm_desired(host, variables, template)}
        if own[SLURM] is not None:
            # No step says it, and a saved plan is held to it.
            own[UNDER_JOBS] = value_of(UNDER_JOBS, variables, template, False)
        return Description(pool, {**desired, **own})
    except Refused as refusal:
        return Description(pool, {}, refusals_of(refusal))


@dataclass
class RunHost:
    """One host of a run. C(task): under which name the task that read the hosts registered their answers."""

    name: str
    variables: Any
    task: str
    known: Mapping[str, Sequence[str]]
    racks: Racks

    @cached_property
    def _read(self) -> tuple[dict[str, Any] | None, Facts | None, str]:
        return read_facts(registered(self.variables, self.task))

    @cached_property
    def document(self) -> dict[str, Any] | None:
        """What was read of it as it was sent, to be kept."""
        return self._read[0]

    @property
    def facts(self) -> Facts | None:
        """What was read of it, or None."""
        return self._read[1]

    @property
    def unread(self) -> str:
        """Why there are no facts."""
        return self._read[2]

    @cached_property
    def description(self) -> Description:
        return describe(self.name, self.variables, self.known, racks=self.racks)


def hosts_of(
    names: Iterable[str], task_vars: Mapping[str, Any], task: str = "gpu_facts_host", alone: bool = False
) -> Iterator[RunHost]:
    """Give the hosts of a run one after the other. A mistake of one, or an answer that it did not give, is no error here.

    :param task: under which name the task that read the hosts registered their answers.
    :param alone: whether a host that is in no pool is taken as if it were alone in one.
    """
    known, racks = pools(plain(task_vars.get("groups") or {})), Racks(task_vars)
    members = {host for hosts in known.values() for host in hosts}
    for name in names:
        variables = task_vars["hostvars"][name]
        mine = {**known, name: [name]} if alone and name not in members else known
        yield RunHost(name, variables, task, mine, racks)


def warnings_of(hosts: Iterable[tuple[str, Mapping[str, StagePlan]]]) -> list[str]:
    """Return every warning once, with the hosts that it is about."""
    found: dict[tuple[str, str], list[str]] = {}
    for host, stages in hosts:
        for stage in stages.values():
            for text in stage.warnings:
                found.setdefault((stage.stage, text), []).append(host)
    return [f"{shortened(where)}: {stage}: {text}" for (stage, text), where in found.items()]


def assumed_host(desired: Mapping[str, Any]) -> tuple[str, dict[str, StagePlan]]:
    """Plan a host that nobody has read, by its variables alone: bare, with its boards. What is refused of it no host can meet.

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
    arm = any(gpu.board in COHERENT_BOARDS for gpu in gpus)
    # Which GPUs virtual machines have, only the host tells.
    of_host = {**desired, PASSTHROUGH: []}
    for host in _assumed_systems(("aarch64", "x86_64") if arm else ("x86_64", "aarch64")):
        found = _assumed_text(host, desired), plan_stages(_assumed_facts(host, gpus, desired), of_host)
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


def _assumed_systems(machines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Return C(host) of the facts for every system that has drivers, the most common first."""
    for machine in machines:
        for (name, version), row in sorted(DISTRIBUTIONS.items(), key=lambda entry: entry[0] != _FIRST):
            if machine in row.machines:
                distribution = {"id": name, "version": version}
                yield {"distribution": distribution, "architecture": machine, "kernel_headers": True}


def _assumed_facts(host: Mapping[str, Any], gpus: Sequence[GpuFacts], desired: Mapping[str, Any]) -> Facts:
    """Return the facts of a bare host. What is null there was not read, such as the cards of a host whose boards nobody describes."""
    known = ("device_id", "board", "architecture")
    # One address for all of them, which messages show: their order is that of the description.
    cards = [
        {"address": "gpu_facts_gpus", "kind": "gpu", **{name: getattr(gpu, name) for name in known}} for gpu in gpus
    ]
    runtime = RUNTIMES.get(desired["nvidia_toolkit_runtime"])
    there = {"version": ".".join(map(str, runtime.first_with_cdi)), "nvidia": False} if runtime else None
    return view_of(
        {
            "schema": FACTS_SCHEMA,
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
    )


def _assumed_text(host: Mapping[str, Any], desired: Mapping[str, Any]) -> str:
    gpus = ", ".join(f"{entry['count']} x {entry['board']}" for entry in desired.get("gpu_facts_gpus") or ())
    system = DISTRIBUTIONS[host["distribution"]["id"], host["distribution"]["version"]].name
    runtime = RUNTIMES.get(desired["nvidia_toolkit_runtime"])
    there = f"{system} on {host['architecture']}{f', {runtime.title}' if runtime else ''} and no software of NVIDIA"
    return f"a host with {gpus} (gpu_facts_gpus), {there}"


def refusals_of_hosts(found: Iterable[tuple[str, Refused]]) -> list[dict[str, Any]]:
    """Return every refusal once, in the shape of every module, with the hosts that it is about."""
    refusals: dict[str, dict[str, Any]] = {}
    for host, refusal in found:
        refusals.setdefault(refusal.message, {**refusal.as_dict(), "hosts": []})["hosts"].append(str(host))
    return list(refusals.values())


def sentences(refusals: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return such refusals for people."""
    return [f"{shortened(refusal['hosts'])}: {refusal['message']}" for refusal in refusals]
