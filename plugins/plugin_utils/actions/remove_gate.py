# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide on the controller, for all hosts of a run at once, whether the collection can be removed from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...module_utils._driver.refusals import FOREIGN
from ...module_utils._driver.reload import SERVICES
from ...module_utils._facts_view import Facts
from ...module_utils._plan import Refused
from ...module_utils._users import POD, holders_of, mps_pids, named, users_of
from ..action_options import takes
from ..descriptions import hosts_of, refusals_of_hosts, sentences
from ..host_facts import ControllerAction
from ..plain import is_true

_MIG, _MPS = "nvidia_mig_disruption", "nvidia_sharing_mps_disruption"
_FORCE = "force"
#: The kernel cuts the names of programs after 15 characters.
_NAME_LENGTH = 15
_MPS_PROGRAMS = ("nvidia-cuda-mps-control"[:_NAME_LENGTH], "nvidia-cuda-mps-server"[:_NAME_LENGTH])
#: Services of NVIDIA that hold the driver, and that the driver's removal stops.
_SERVICES = frozenset(SERVICES.values())


@dataclass(frozen=True)
class Removal:
    """What is asked for. C(driver): whether the driver goes too: then nothing can allow a process that uses it."""

    driver: bool = False
    mig_disruption: str = "refuse"
    mps_disruption: str = "refuse"

    @property
    def remedy(self) -> str:
        return (
            "No variable allows it while the driver is to be removed."
            if self.driver
            else f"Or allow it with {_MIG}: {_FORCE}."
        )


def reasons_to_stay(facts: Facts, removal: Removal) -> tuple[Refused, ...]:
    """Return why nothing is to be removed from a host now."""
    return (*_driver(facts, removal), *_clients(facts, removal), *_users(facts, removal))


def _driver(facts: Facts, removal: Removal) -> Iterator[Refused]:
    nvml, recorded = facts.nvml, facts.recorded.mig
    if recorded is not None and not nvml.available:
        yield Refused(
            "MIG",
            f"a layout is recorded, and the driver does not answer ({nvml.reason or 'no reason is given'}), so the original layout "
            "cannot be restored",
            "Repair the driver (gpufleet.nvidia.verify says how), or remove /etc/gpufleet/mig.json and /var/lib/gpufleet/mig-original.json on "
            "the host to leave the GPUs as they are.",
        )
    source = facts.driver.source
    if removal.driver and source in FOREIGN:
        who, remedy = FOREIGN[source]
        reason = f"the driver was installed by {who}, whose files no package manager knows"
        yield Refused("gpu_remove_driver", reason, f"Set it to false. {remedy}.")


def _clients(facts: Facts, removal: Removal) -> Iterator[Refused]:
    """Refuse MPS daemons with clients, whoever runs them: ours end, and the driver would end under the others."""
    for daemon in facts.mps or ():
        clients = daemon.clients
        if clients and (removal.driver or removal.mps_disruption != _FORCE):
            allow = "" if removal.driver else f", or allow it with {_MPS}: {_FORCE}"
            reason = f"it has {clients} {'client' if clients == 1 else 'clients'}, which would die with it"
            yield Refused(f"MPS daemon at {daemon.pipe_directory}", reason, f"End them{allow}.")


def _users(facts: Facts, removal: Removal) -> Iterator[Refused]:
    if removal.mig_disruption == _FORCE and not removal.driver:
        return
    servers = mps_pids(facts)
    known: set[int | None] = {*servers}
    for gpu in facts.gpus or ():
        found = [user for user in users_of(gpu).everybody if user.pid not in servers]
        known.update(user.pid for user in found)
        if found:
            first = "Drain the node. " if any(user.kind == POD for user in found) else "End what uses it. "
            yield Refused(gpu.title, f"it is in use by {named(found)}", first + removal.remedy)
    holders = holders_of(facts.holders, excused=(*_SERVICES, *_MPS_PROGRAMS))
    others = [user for user in holders if user.pid not in known]
    if others:
        pods = any(user.detail for user in others)
        remedy = "Drain the node, and end what else uses its GPUs." if pods else "End them."
        yield Refused("the driver", f"it is in use by {named(others)}", f"{remedy} {removal.remedy}")


#: What stays on a host unless it is asked for, by its name in the facts and in C(gpu_remove_*).
STAYS = {"toolkit": "the container toolkit", "driver": "the driver", "dcgm": "DCGM"}


def left_in_clusters(hosts: Sequence[str], kept: Mapping[str, Sequence[str]]) -> list[str]:
    """Return what is left to do by people after the hosts are done, a line each.

    :param kept: the hosts on which one of L(STAYS) is installed and stays.
    """
    lines = [
        "Left to do, because nothing outside of these hosts is touched:",
        f"  1. Take {', '.join(hosts)} out of the inventory.",
        "  2. Run gpufleet.nvidia.render and push the tree: the cluster then expects no GPUs of them.",
        "  3. Remove the labels of the pool from their nodes, or the nodes from the cluster.",
    ]
    lines += [
        f"Left installed, with its repository but no longer held: {STAYS[name]} on {', '.join(where)}."
        for name, where in kept.items()
        if where
    ]
    return lines


#: What the tasks of the removal need of the variables of the host roles, whose defaults are filled in here.
_PASSED = (
    "nvidia_driver_imex",
    "nvidia_driver_manage_repository",
    "nvidia_driver_reload",
    "nvidia_driver_reboot",
    "nvidia_driver_lock_timeout",
    "nvidia_toolkit_runtime",
    "nvidia_toolkit_manage_repository",
    "nvidia_toolkit_restart",
    "nvidia_toolkit_disruption",
    "nvidia_mig_disruption",
    "nvidia_mig_reset",
    "nvidia_mig_reboot",
    "nvidia_mig_reboot_timeout",
    "nvidia_mig_busy_instances",
    "nvidia_mig_restart_services",
    "nvidia_mig_lock_timeout",
    "nvidia_sharing_mps_disruption",
    "nvidia_dcgm_state",
    "nvidia_dcgm_lock_timeout",
)


class ActionModule(ControllerAction):
    OPTIONS = takes("fleet", needs="hosts")

    def act(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        passed: dict[str, Any] = {}
        refused: list[tuple[str, Refused]] = []
        hosts = arguments["hosts"]
        kept: dict[str, list[str]] = {name: [] for name in STAYS}
        for one in hosts_of(hosts, task_vars):
            host, facts, description = one.name, one.facts, one.description
            asked = {name: is_true(one.variables.get(f"gpu_remove_{name}")) for name in kept}
            found = list(description.refusals)
            if not found and facts is None:
                found = [Refused("the host", f"it could not be read: {one.unread}", "")]
            elif not found and facts is not None:
                allowed = (description.variables[name] for name in (_MIG, _MPS))
                found = list(reasons_to_stay(facts, Removal(asked["driver"], *allowed)))
            if found:
                refused += [(host, refusal) for refusal in found]
                continue
            for name, where in kept.items():
                part = getattr(facts, name)
                if not asked[name] and part and part.packages:
                    where.append(host)
            runtimes = (facts and facts.runtimes) or {}
            runtime = description.variables["nvidia_toolkit_runtime"]
            passed[host] = {
                **{name: description.variables[name] for name in _PASSED},
                # A runtime that is not installed has nothing to be taken out of.
                "nvidia_toolkit_runtime": runtime if runtime in runtimes else "none",
            }
        result: dict[str, Any] = {
            "hosts": passed,
            "refusals": refusals_of_hosts(refused),
            "left": left_in_clusters(hosts, kept),
            "msg": f"gpufleet.nvidia can be removed from {len(hosts)} {'host' if len(hosts) == 1 else 'hosts'}.",
        }
        if refused:
            result["failed"] = True
            end = "Nothing is removed from any host. Correct it, or leave these hosts out with --limit."
            result["msg"] = "\n".join([*sentences(result["refusals"]), end])
        return result
