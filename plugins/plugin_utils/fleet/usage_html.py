# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The use of GPUs as one HTML file that opens without a server: a picture of every GPU's slices, who is on them, and the room left. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from .inspection import Resources
from .pods import Pod
from .text import gib
from .usage import MEMORY, UNITS, GpuUsage, NodeUsage, PodShare
from .usage_text import parted, percent, requests

_WIDTH, _HEIGHT = 720, 44
#: A character of a label is about this wide.
_CHARACTER = 6.6

_STYLE = """
:root { --free: #e8ecef; --taken: #76b900; --part: #b9d97a; --line: #5b6670; --text: #1d2329; --back: #ffffff; --bad: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --free: #343b42; --taken: #5f9400; --part: #496b10; --line: #8d98a3; --text: #e8ecef; --back: #16191c; --bad: #ff8a80; }
}
body { font: 14px/1.45 system-ui, sans-serif; color: var(--text); background: var(--back); margin: 2rem; max-width: 1080px; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.gpu { display: grid; grid-template-columns: 250px 1fr; gap: 1rem; align-items: center; margin: .35rem 0; break-inside: avoid; }
.about { font-size: .8rem; } .about b { display: block; }
svg { width: 100%; height: auto; } rect { stroke: var(--line); } text { font-size: 11px; fill: var(--text); }
.free { fill: var(--free); } .taken { fill: var(--taken); } .part { fill: var(--part); } .none { fill: none; stroke-dasharray: 3 3; }
.key span { display: inline-block; width: 1em; height: 1em; border: 1px solid var(--line); vertical-align: -2px; margin: 0 .3em 0 1em; }
.note { color: var(--bad); margin: .2rem 0; }
summary { font-size: .8rem; cursor: pointer; }
table { border-collapse: collapse; font-size: .8rem; margin: .5rem 0; } td, th { text-align: left; padding: .1rem 1rem .1rem 0; }
"""


def page(
    nodes: Sequence[NodeUsage],
    title: str,
    when: str,
    unplaced: Sequence[Pod] = (),
    strangers: Sequence[str] = (),
    users: str = "pods",
    resources: Mapping[str, Resources] | None = None,
) -> str:
    """Return the whole file.

    :param users: what holds the GPUs: C(pods) of a cluster, or C(processes) of hosts without one.
    :param resources: by name of the node in C(nodes), what the cluster offers of it and what is expected.
    """
    taken, total = sum(node.taken(MEMORY) for node in nodes), sum(node.total(MEMORY) for node in nodes)
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{len(nodes)} nodes, {sum(len(node.gpus) for node in nodes)} GPUs, {gib(taken)} of {gib(total)} given to"
        f" {escape(users)} ({percent(taken, total)}%). Read {escape(when)}.</p>",
        '<p class="key"><span style="background:var(--taken)"></span>taken<span style="background:var(--part)"></span>'
        'partly taken<span style="background:var(--free)"></span>free<span style="border-style:dashed"></span>not divided</p>',
    ]
    if unplaced:
        body.append(f"<h2>Pods that wait for GPUs and are on no node: {len(unplaced)}</h2>")
        body.append(_table(("Pod", "Asks for"), [(pod.title, requests(pod)) for pod in unplaced]))
    if strangers:
        body.append(
            f'<p class="note">Nodes with GPUs that are not in the inventory: {escape(", ".join(strangers))}</p>'
        )
    body += [_node(node, users, (resources or {}).get(node.name)) for node in nodes]
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body>\n</html>\n"
    )


def _node(node: NodeUsage, users: str, resources: Resources | None) -> str:
    lines = [
        f"<h2>{escape(node.name)} <small>{escape(node.address)}: {gib(node.taken(MEMORY))} of"
        f" {gib(node.total(MEMORY))}</small></h2>"
    ]
    if resources is not None:
        lines.append(_resources(resources))
    lines += [f'<p class="note">{escape(note)}</p>' for note in node.notes]
    if node.waiting:
        waiting = "; ".join(f"{pod.title} ({requests(pod)})" for pod in node.waiting)
        lines.append(f'<p class="note">Pods without their devices yet: {escape(waiting)}</p>')
    lines += [_gpu(gpu) for gpu in node.gpus] or ["<p>No GPU could be read.</p>"]
    if node.titles:
        held = _table((users.capitalize(), "Hold"), [(title, "; ".join(_held(node, title))) for title in node.titles])
        lines.append(f"<details><summary>{users.capitalize()}: {len(node.titles)}</summary>{held}</details>")
    return "\n".join(lines)


def _resources(resources: Resources) -> str:
    if not resources.asked:
        return f"<p>Expected in the cluster, which was not asked: {escape(resources.expected_text)}.</p>"
    if resources.confirmed:
        return f"<p>Offered by the cluster, as expected: {escape(resources.offered_text)}.</p>"
    shown = f"Offered by the cluster: {escape(resources.offered_text)}. Expected: {escape(resources.expected_text)}."
    return f'<p class="note">MISMATCH. {shown}</p>' if resources.mismatches else f"<p>{shown}</p>"


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


def _gpu(gpu: GpuUsage) -> str:
    if gpu.lost:
        return f'<div class="gpu"><div class="about"><b>GPU {gpu.index}</b>lost</div></div>'
    units, free = gpu.total(UNITS), gpu.total(UNITS) - gpu.taken(UNITS)
    unit = "instances" if gpu.mig else "slices" if units > 1 else "GPU"
    room = f"{gib(max(0, gpu.total(MEMORY) - gpu.taken(MEMORY)))} free, {free} of {units} {unit}"
    if gpu.undivided:
        room += f"; {gpu.undivided} of {gpu.slices} memory slices not divided"
    about = f"<b>GPU {gpu.index}</b>{escape(gpu.name)}<br>{room}"
    return f'<div class="gpu"><div class="about">{about}</div>{_picture(gpu)}</div>'


def _picture(gpu: GpuUsage) -> str:
    shapes: list[str] = []
    if gpu.mig:
        covered = {place for share in gpu.shares for place in range(share.start, share.start + max(1, share.size))}
        free = [place for place in range(gpu.slices) if place not in covered]
        shapes += [_box(place, 1, gpu.slices, "none", ("", ""), "not divided") for place in free]
        places: dict[tuple[int, int], list[PodShare]] = {}
        for share in gpu.shares:
            places.setdefault((share.start, max(1, share.size)), []).append(share)
        for (start, size), shares in places.items():
            each = size / len(shares)
            shapes += [_share(one, start + number * each, each, gpu.slices) for number, one in enumerate(shares)]
    else:
        for share in gpu.shares:
            shapes += _replicas(share) if share.replicas > 1 else [_share(share, 0, 1, 1)]
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="GPU {gpu.index}">' + "".join(shapes) + "</svg>"
    )


def _share(share: PodShare, start: float, size: float, slices: int) -> str:
    users = ", ".join(share.holders) or "free"
    kind = "free" if not share.taken else "taken" if share.taken == share.replicas else "part"
    shared = f" {share.taken}/{share.replicas}" if share.replicas > 1 else ""
    about = f"{share.profile or gib(share.memory_mib)}{shared}"
    hint = f"{share.profile} {gib(share.memory_mib)}: {users}".strip()
    return _box(start, size, slices, kind, (about, _names(share.holders) or "free"), hint)


def _replicas(share: PodShare) -> list[str]:
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


def _box(start: float, size: float, slices: int, kind: str, label: tuple[str, str], hint: str) -> str:
    """One part of a GPU, with two lines of text as far as they have room; all of it is in the hint."""
    unit = _WIDTH / slices
    left, width = start * unit, size * unit
    texts = ""
    for line, words in enumerate(label):
        shown = _shortened(words, width - 8)
        if shown:
            texts += f'<text x="{left + 5:.1f}" y="{17 + 16 * line}">{escape(shown)}</text>'
    return (
        f'<g><title>{escape(hint)}</title><rect class="{kind}" x="{left + 1:.1f}" y="1" width="{width - 2:.1f}"'
        f' height="{_HEIGHT - 2}" rx="3"/>{texts}</g>'
    )


def _shortened(words: str, width: float) -> str:
    """Return what fits, the end of a name before its beginning: pods of one controller differ there."""
    most = int(width / _CHARACTER)
    if len(words) <= most:
        return words
    if most < 4:
        return ""
    kept = most - 1
    return f"{words[: kept - kept // 2]}…{words[len(words) - kept // 2 :]}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in header) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    return "<table>\n" + "\n".join(lines) + "\n</table>"
