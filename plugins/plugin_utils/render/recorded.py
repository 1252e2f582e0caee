# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts of hosts for the generator: those of this run, else those that an earlier run kept."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...module_utils._adapters.files import read_text, write_whole
from ...module_utils._boards.cards import cards_on_bus
from ...module_utils._boards.lookup import is_complete
from ...module_utils._facts.schema import check_gpus
from ...module_utils._facts_view import CardFacts
from ...module_utils._formats.documents import read_json
from ...module_utils._gpu_facts import GpuFacts
from ...module_utils._schema import Path, Unfit, anything, check, encode, has, mapping, needs, of
from ..fleet.capacity import gpus_of_inventory
from ..plain import facts_of
from .fleet import OF_HOST

#: Where a run has registered what M(gpufleet.nvidia.gpu_info) returned: after the stages changed the host, else before them.
REGISTERED = ("gpu_facts_now", "gpu_facts_host")
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
        for name in REGISTERED:
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
        """Write the facts of this run for later ones."""
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
