# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts and variables of hosts for the generator: those of this run, else those that an earlier run kept."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible.errors import AnsibleError
from ansible.utils.unsafe_proxy import wrap_var

from ...module_utils._adapters.files import read_text, write_whole
from ...module_utils._boards.cards import cards_on_bus
from ...module_utils._boards.lookup import is_complete
from ...module_utils._facts.schema import check_gpus
from ...module_utils._facts_view import CardFacts
from ...module_utils._formats.documents import read_json
from ...module_utils._gpu_facts import GpuFacts
from ...module_utils._plan import Refused
from ...module_utils._schema import Path, Unfit, anything, check, encode, has, mapping, needs, of
from ..fleet.capacity import gpus_of_inventory
from ..host_facts import without_injected
from ..plain import facts_of, plain
from ..role_variables import VariablesRefused, role_interface, validated
from .fleet import OF_HOST, REGISTERED

#: Where a run has registered what M(gpufleet.nvidia.gpu_info) returned: after the stages changed the host, else before them.
_READ_INTO = ("gpu_facts_now", "gpu_facts_host")
_SCHEMA = 1
#: The key of the overrides in the files that sites have of earlier releases.
_OVERRIDES = "told"
_KEPT = ("index", "name", "board", "device_id", "architecture", "memory_mib")


_VARIABLES = mapping(anything, 256)


def _overrides(value: Any, path: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = _VARIABLES(value, path) or {}
    for name in found:
        if not name.startswith(OF_HOST):
            raise Unfit((path, name), "no such variable describes a host")
    return found


@dataclass(frozen=True)
class KeptHost:
    """What a run kept of a host: its GPUs, and the overrides, under the name that they have in the files of earlier releases."""

    gpus: Sequence[GpuFacts] = needs(lambda value, _path: check_gpus(value))
    overrides: Mapping[str, Any] | None = has(_overrides, called=_OVERRIDES)


_FILE = of(KeptHost, _SCHEMA)


class KeptFacts:
    """Answers which GPUs a host had when it was last read; facts are kept between runs in a directory, if there is one."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._fresh: dict[str, Sequence[GpuFacts]] = {}
        #: Hosts of a pool have the same GPUs: those of 10,000 are one object for each kind of host.
        self._equal: dict[str, Sequence[GpuFacts]] = {}
        #: What was read of files, by their text: it is the same for hosts of a pool.
        self._documents: dict[str, KeptHost] = {}
        self._overrides: dict[str, Mapping[str, Any]] = {}
        self._unread: dict[str, str] = {}
        self._kept = set(os.listdir(directory)) if directory and os.path.isdir(directory) else set()

    def leave_out(self, host: str, reason: str) -> None:
        """Note that nothing is known of C(host), which is no reason to leave the others out."""
        self._unread.setdefault(host, reason)

    @property
    def unread(self) -> dict[str, str]:
        """Why what was said of a host is not taken, by host, as far as L(gpus) and L(earlier) were asked for it."""
        return dict(self._unread)

    def gpus(self, host: str, variables: Mapping[str, Any]) -> Sequence[GpuFacts] | None:
        """Return the GPUs of C(host), or None when it was never read."""
        cards: list[CardFacts] = []
        for name in _READ_INTO:
            answer = variables.get(name)
            if not isinstance(answer, Mapping) or not (answer.get("gpu") or answer.get("gpu_text")):
                continue
            facts, unread = facts_of(answer)
            if facts is None:
                self._unread[host] = unread
            elif facts.gpus:
                gpus = [_essentials(gpu) for gpu in facts.gpus]
                key = json.dumps(gpus, sort_keys=True)
                if key not in self._equal:
                    self._equal[key] = check_gpus(gpus)
                self._fresh[host] = self._equal[key]
                return self._fresh[host]
            else:
                cards = cards_on_bus(facts)
        kept = self._read(host)
        return list(kept.gpus) if kept else _of_bus(cards)

    def earlier(self, host: str) -> Mapping[str, Any]:
        """Return the overrides of the run that last read C(host)."""
        kept = self._read(host)
        return dict(kept.overrides or {}) if kept else {}

    def is_fresh(self, host: str) -> bool:
        """Whether this run has read C(host), as far as L(gpus) was asked for it."""
        return host in self._fresh

    def note_overrides(self, host: str, overrides: Mapping[str, Any]) -> None:
        """Note the overrides of C(host) in this run; they are kept if the run has read the host."""
        self._overrides[host] = overrides

    def outdated(self) -> Iterator[tuple[str, str]]:
        """Give the path and the text of the file of each host whose facts of this run are not on disk yet."""
        texts: dict[tuple[int, str], str] = {}
        for host, gpus in sorted(self._fresh.items()) if self._directory else ():
            path = os.path.join(self._directory, f"{host}.json")
            overrides = {_OVERRIDES: self._overrides[host]} if self._overrides.get(host) else {}
            # Equal GPUs are one object here (L(gpus)).
            key = id(gpus), json.dumps(overrides, sort_keys=True)
            if key not in texts:
                document = {"schema": _SCHEMA, "gpus": encode(gpus), **overrides}
                texts[key] = json.dumps(document, indent=1, sort_keys=True) + "\n"
            if read_text(path, links=False) != texts[key].strip():
                yield path, texts[key]

    def keep(self) -> None:
        for path, text in self.outdated():
            write_whole(path, text)

    def _read(self, host: str) -> KeptHost | None:
        """Return what an earlier run kept of a host, or None where there is nothing, or it cannot be taken."""
        if f"{host}.json" not in self._kept:
            return None
        path = os.path.join(self._directory, f"{host}.json")
        text = read_text(path, links=False) or ""
        if text in self._documents:
            return self._documents[text]
        try:
            found: KeptHost = check(_FILE, read_json(text))
        except (ValueError, TypeError, RecursionError, Unfit) as error:
            reason = error.message if isinstance(error, Unfit) else f"{error}."
            self._unread[host] = f"{path}: the recorded facts cannot be read: {reason} Remove the file, or run site.yml"
            return None
        self._documents[text] = found
        return found


def _of_bus(cards: Sequence[CardFacts]) -> list[GpuFacts] | None:
    """Return the GPUs that a host without a driver will have, or None unless the table has the board of every one.

    They are not kept: what a driver says of them later is more exact.
    """
    boards = [str(card.board) for card in cards if card.board]
    if not boards or len(boards) != len(cards):
        return None
    return gpus_of_inventory([{"board": board, "count": 1} for board in boards])


def _essentials(gpu: GpuFacts) -> dict[str, Any]:
    """Return what of a GPU decides the files. Who uses it changes all the time and decides nothing."""
    kept = {name: getattr(gpu, name) for name in _KEPT if gpu.says(name)}
    if gpu.minor not in (None, gpu.index):
        # It is in the names of device files, and hardly ever another one.
        kept["minor"] = gpu.minor
    kept["mig"] = {"supported": gpu.mig.supported, "current": gpu.mig.current}
    kept["gpu_instances"] = [
        {
            **{name: getattr(instance, name) for name in ("id", "profile", "start", "size", "memory_mib")},
            "compute_instances": [{"id": part.id, "profile": part.profile} for part in instance.compute_instances],
        }
        for instance in gpu.gpu_instances
    ]
    if gpu.profiles and not is_complete(gpu.board):
        # What the table does not say of the board is known from its driver alone. How many are left changes all the time.
        kept["profiles"] = [
            {name: value for name, value in encode(one).items() if name != "remaining"} for one in gpu.profiles
        ]
    return kept


# The variables of every host for the generator, where a run overrides some in the inventory.
# Variables given with C(-e) stand above the inventory for every host of it, those outside of C(--limit) among them. The tree describes the
# whole cluster, so to such a host they must not apply: it has what the inventory says, or the overrides of an earlier run.

#: Options of the cluster, which is one, whatever hosts a run has.
_OF_CLUSTER = "gpu_kubernetes_"
#: Options of the run, which renders one tree.
OF_RUN = tuple(
    f"{_OF_CLUSTER}{name}"
    for name in ("output_directory", "facts_directory", "overwrite", "prune", "remove_nodes", "remove_clusters")
)
_ABSENT = object()

Variables = Mapping[str, Any]
Template = Callable[[Any, Variables], Any]


class HostVariables:
    """Answers which variables a host has.

    :param extra: those given with C(-e).
    :param hosts: the hosts of this run; empty for all of the inventory.
    """

    def __init__(
        self, hostvars: Any, extra: Variables, hosts: Collection[str], earlier: Callable[[str], Variables]
    ) -> None:
        self._hostvars = without_injected(hostvars)
        self._extra = extra
        self._hosts = frozenset(hosts)
        self._earlier = earlier
        self._inventory = without_injected(hostvars, {})
        self._of_run: tuple[str, dict[str, Any]] = "", {}

    def of(self, host: str) -> Variables:
        """Return the variables of C(host), raw."""
        if not self._hosts or host in self._hosts:
            found: Variables = self._hostvars.raw_get(host)
            return found
        cluster = {name: value for name, value in self._extra.items() if name.startswith(_OF_CLUSTER)}
        return {**self._inventory.raw_get(host), **cluster, **wrap_var(dict(self._earlier(host)))}

    def of_run(self, task_vars: Variables, hosts: Sequence[str], template: Template) -> dict[str, Any]:
        """Return the options of the run (L(OF_RUN)): the same in every playbook, whichever host its task runs on.

        What a play or a role sets (C(task_vars), raw) stands above the inventory. Of the inventory C(hosts), those of C(gpu_hosts), decide, all of which
        have to say what the first one says (L(refuse_other_run)), and localhost where they say nothing.
        """
        role = role_interface("gpu_kubernetes")
        here, local = (self._hostvars.raw_get(str(name)) for name in (task_vars["inventory_hostname"], "localhost"))
        of_play = {
            name: task_vars[name]
            for name in OF_RUN
            if name in task_vars and task_vars[name] not in (here.get(name, _ABSENT), role.defaults[name])
        }
        first = self._hostvars.raw_get(hosts[0]) if hosts else {}
        self._of_run = (hosts[0] if hosts else "", _run_variables(first, first, template))
        found = {
            **role.defaults,
            **_run_variables(
                {name: local[name] for name in OF_RUN if name in local and name not in first}, local, template
            ),
            **self._of_run[1],
            **_run_variables(of_play, task_vars, template),
        }
        options = {name: role.options[name] for name in OF_RUN}
        values, wrong = validated(replace(role, options=options), {name: found[name] for name in OF_RUN})
        if wrong:
            raise VariablesRefused(wrong)
        return {name[len(_OF_CLUSTER) :]: value for name, value in values.items()}

    def refuse_other_run(self, host: str, variables: Variables, template: Template) -> None:
        """Refuse a host whose raw variables say something else of the run than the first one's."""
        first, said = self._of_run
        mine = _run_variables(variables, variables, template)
        for name in OF_RUN if mine != said else ():
            if mine.get(name) != said.get(name):
                raise Refused(
                    name,
                    f"{first} has {said.get(name)!r} and {host} has {mine.get(name)!r}, and it is an option of the run",
                    "Set it for all hosts alike, best in group_vars/gpu_hosts.yml or group_vars/all.yml.",
                )

    def overrides(self, host: str, template: Template) -> dict[str, Any]:
        """Return the variables of C(host) that differ in this run from the inventory, templates resolved."""
        if not self._extra or (self._hosts and host not in self._hosts):
            return {}
        now, inventory = self.of(host), self._inventory.raw_get(host)
        found = {}
        for name in sorted(name for name in now if name.startswith(OF_HOST) and name not in REGISTERED):
            value = _value(now, name, template)
            if value is not _ABSENT and value != _value(inventory, name, template):
                found[name] = value
        return found


def _run_variables(said: Variables, variables: Variables, template: Template) -> dict[str, Any]:
    """Return the options of the run in C(said), which are resolved with C(variables)."""
    found = {name: said[name] for name in OF_RUN if name in said}
    return {name: plain(template(value, variables) if "{" in str(value) else value) for name, value in found.items()}


def _value(variables: Variables, name: str, template: Template) -> Any:
    if name not in variables:
        return _ABSENT
    try:
        return plain(template(variables[name], variables))
    except (AnsibleError, TypeError):
        # Its template uses what only -e gives.
        return _ABSENT
