# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The use of GPUs as one HTML file (usage_page.html.j2): a picture of every GPU's slices, who is on them, and the room left."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..fleet.inspection import Resources, parted, percent, requests
from ..fleet.pods import Pod
from ..fleet.text import gib
from ..fleet.usage import MEMORY, UNITS, GpuUsage, NodeUsage, PodShare
from .emit import filled

_WIDTH, _HEIGHT = 720, 44
#: A character of a label is about this wide.
_CHARACTER = 6.6


@dataclass(frozen=True)
class _Box:
    """One part of a GPU; its lines of text are what of them has room, and all of it is in the hint."""

    left: float
    width: float
    kind: str
    lines: tuple[str, ...]
    hint: str


def page(
    nodes: Sequence[NodeUsage],
    title: str,
    when: str = "",
    unplaced: Sequence[Pod] = (),
    strangers: Sequence[str] = (),
    users: str = "pods",
    resources: Mapping[str, Resources] | None = None,
) -> str:
    """Return the whole file.

    :param when: the GPUs were read; empty: now.
    :param users: what holds the GPUs: C(pods) of a cluster, or C(processes) of hosts without one.
    :param resources: by name of the node in C(nodes), what the cluster offers of it and what is expected.
    """
    return filled(
        "usage_page.html.j2",
        nodes=nodes,
        title=title,
        when=when or datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        unplaced=[(pod.title, requests(pod)) for pod in unplaced],
        strangers=strangers,
        users=users,
        resources=resources or {},
        memory=MEMORY,
        taken=sum(node.taken(MEMORY) for node in nodes),
        total=sum(node.total(MEMORY) for node in nodes),
        width=_WIDTH,
        height=_HEIGHT,
        boxes=_boxes,
        gib=gib,
        held=lambda node: [(one, "; ".join(_held(node, one))) for one in node.titles],
        percent=percent,
        requests=requests,
        room=_room,
    )


def _held(node: NodeUsage, title: str) -> list[str]:
    """What one pod has, as C(GPU 0: 3g.40gb) or C(GPU 1: 2 of 11 slices, 8 GiB)."""
    found = []
    for gpu in node.gpus:
        for share in gpu.shares:
            count = share.holders.get(title, 0)
            if count:
                part = f" {count} of {share.replicas} slices," if share.replicas > 1 else ""
                profile = f" {share.profile}," if share.profile else ""
                found.append(f"GPU {gpu.index}:{profile}{part} {gib(share.held(title, MEMORY))}")
    return found


def _room(gpu: GpuUsage) -> str:
    units, free = gpu.total(UNITS), gpu.total(UNITS) - gpu.taken(UNITS)
    unit = "instances" if gpu.mig else "slices" if units > 1 else "GPU"
    room = f"{gib(max(0, gpu.total(MEMORY) - gpu.taken(MEMORY)))} free, {free} of {units} {unit}"
    return room + (f"; {gpu.undivided} of {gpu.slices} memory slices not divided" if gpu.undivided else "")


def _boxes(gpu: GpuUsage) -> list[_Box]:
    if not gpu.mig:
        found = (_replicas(share) if share.replicas > 1 else [_share(share, 0, 1, 1)] for share in gpu.shares)
        return [box for boxes in found for box in boxes]
    covered = {place for share in gpu.shares for place in range(share.start, share.start + max(1, share.size))}
    free = [place for place in range(gpu.slices) if place not in covered]
    boxes = [_box(place, 1, gpu.slices, "none", ("", ""), "not divided") for place in free]
    places: dict[tuple[int, int], list[PodShare]] = {}
    for share in gpu.shares:
        places.setdefault((share.start, max(1, share.size)), []).append(share)
    for (start, size), shares in places.items():
        each = size / len(shares)
        boxes += [_share(one, start + number * each, each, gpu.slices) for number, one in enumerate(shares)]
    return boxes


def _share(share: PodShare, start: float, size: float, slices: int) -> _Box:
    users = ", ".join(share.holders) or "free"
    kind = "free" if not share.taken else "taken" if share.taken == share.replicas else "part"
    shared = f" {share.taken}/{share.replicas}" if share.replicas > 1 else ""
    about = f"{share.profile or gib(share.memory_mib)}{shared}"
    hint = f"{share.profile} {gib(share.memory_mib)}: {users}".strip()
    return _box(start, size, slices, kind, (about, _names(share.holders) or "free"), hint)


def _replicas(share: PodShare) -> list[_Box]:
    """A shared GPU as its replicas; which of them a pod has does not matter, how many does."""
    users = [title for title, count in share.holders.items() for _number in range(count)][: share.replicas]
    found = []
    for number in range(share.replicas):
        user = users[number] if number < len(users) else ""
        own = share.held_mib[user] // share.holders[user] if user in share.held_mib else share.amount(1, MEMORY)
        # Of HAMi's, what is free is not divided beforehand.
        each = "" if share.held_mib and not user else gib(own)
        hint = f"{each}: {user or 'free'}".lstrip(": ")
        label = (each, parted(user)[1] if user else "free")
        found.append(_box(number, 1, share.replicas, "taken" if user else "free", label, hint))
    return found


def _names(holders: Mapping[str, int]) -> str:
    return ", ".join(parted(title)[1] for title in holders)


def _box(start: float, size: float, slices: int, kind: str, label: tuple[str, str], hint: str) -> _Box:
    unit = _WIDTH / slices
    width = size * unit
    return _Box(start * unit, width, kind, tuple(_shortened(words, width - 8) for words in label), hint)


def _shortened(words: str, width: float) -> str:
    """Return what fits, the end of a name before its beginning: pods of one controller differ there."""
    most = int(width / _CHARACTER)
    if len(words) <= most:
        return words
    if most < 4:
        return ""
    kept = most - 1
    return f"{words[: kept - kept // 2]}…{words[len(words) - kept // 2 :]}"
