# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ledger as one HTML file that opens without a server: a picture of every GPU's slices, who is on them, and the room left. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .ledger import MEMORY, UNITS, GpuLedger, NodeLedger, Share

#: Memory slices of a GPU with MIG.
_SLICES = 8
_WIDTH, _HEIGHT = 640, 34

_STYLE = """
:root { --free: #e8ecef; --taken: #76b900; --part: #b9d97a; --line: #5b6670; --text: #1d2329; --back: #ffffff; }
@media (prefers-color-scheme: dark) {
  :root { --free: #343b42; --taken: #5f9400; --part: #496b10; --line: #8d98a3; --text: #e8ecef; --back: #16191c; }
}
body { font: 14px/1.45 system-ui, sans-serif; color: var(--text); background: var(--back); margin: 2rem; max-width: 1000px; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.gpu { display: grid; grid-template-columns: 240px 1fr; gap: 1rem; align-items: center; margin: .35rem 0; }
.about { font-size: .85rem; } .about b { display: block; }
svg { width: 100%; height: auto; } rect { stroke: var(--line); } text { font-size: 11px; fill: var(--text); }
.free { fill: var(--free); } .taken { fill: var(--taken); } .part { fill: var(--part); } .none { fill: none; stroke-dasharray: 3 3; }
.key span { display: inline-block; width: 1em; height: 1em; border: 1px solid var(--line); vertical-align: -2px; margin: 0 .3em 0 1em; }
.pending { color: #c0392b; }
"""


def page(nodes: Sequence[NodeLedger], title: str, when: str) -> str:
    """Return the whole file.

    :param when: when it was read, for people.
    """
    taken, total = sum(node.taken(MEMORY) for node in nodes), sum(node.total(MEMORY) for node in nodes)
    percent = taken * 100 // total if total else 0
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{len(nodes)} nodes, {sum(len(node.gpus) for node in nodes)} GPUs, {_gib(taken)} of {_gib(total)} given to pods"
        f" ({percent}%). Read {escape(when)}.</p>",
        '<p class="key"><span style="background:var(--taken)"></span>taken<span style="background:var(--part)"></span>'
        'partly taken<span style="background:var(--free)"></span>free</p>',
        *(_node(node) for node in nodes),
    ]
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body>\n</html>\n"
    )


def _node(node: NodeLedger) -> str:
    lines = [
        f"<h2>{escape(node.name)} <small>{escape(node.address)}: {_gib(node.taken(MEMORY))} of"
        f" {_gib(node.total(MEMORY))}</small></h2>"
    ]
    if node.pending:
        waiting = ", ".join(f"{escape(name)}: {count}" for name, count in sorted(node.pending.items()))
        lines.append(f'<p class="pending">Pods without their devices yet: {waiting}</p>')
    lines += [_gpu(gpu) for gpu in node.gpus] or ["<p>No GPU could be read.</p>"]
    return "\n".join(lines)


def _gpu(gpu: GpuLedger) -> str:
    free = gpu.total(UNITS) - gpu.taken(UNITS)
    unit = "instances" if gpu.mig else "slices" if gpu.total(UNITS) > 1 else "GPU"
    room = f"{free} of {gpu.total(UNITS)} {unit} free"
    about = f"<b>GPU {gpu.index}</b>{escape(gpu.name)}<br>{room}"
    return f'<div class="gpu"><div class="about">{about}</div>{_picture(gpu)}</div>'


def _picture(gpu: GpuLedger) -> str:
    shapes: list[str] = []
    if gpu.mig:
        shapes += [_box(index, 1, _SLICES, "none", "", "not divided") for index in range(_SLICES)]
        shapes += [_share(share, share.start, max(1, share.size), _SLICES) for share in gpu.shares]
    else:
        for share in gpu.shares:
            shapes += _replicas(share)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="GPU {gpu.index}">' + "".join(shapes) + "</svg>"
    )


def _share(share: Share, start: int, size: int, slices: int) -> str:
    users = ", ".join(share.holders) or "free"
    kind = "free" if not share.taken else "taken" if share.taken == share.replicas else "part"
    shared = f", {share.taken}/{share.replicas}" if share.replicas > 1 else ""
    names = ", ".join(title.partition("/")[2] or title for title in share.holders)
    label = f"{share.profile}{shared}" + (f": {names}" if names else "")
    return _box(start, size, slices, kind, label, f"{share.profile} {_gib(share.memory_mib)}: {users}")


def _replicas(share: Share) -> list[str]:
    """A shared GPU as its replicas; which of them a pod has does not matter, how many does."""
    users = [title for title, count in share.holders.items() for _number in range(count)][: share.replicas]
    each = _gib(share.memory_mib // share.replicas)
    return [
        _box(
            number,
            1,
            share.replicas,
            "taken" if number < len(users) else "free",
            (users[number].partition("/")[2] if number < len(users) else each) if share.replicas <= _SLICES else "",
            f"{each}: {users[number] if number < len(users) else 'free'}",
        )
        for number in range(share.replicas)
    ]


def _box(start: int, size: int, slices: int, kind: str, label: str, hint: str) -> str:
    unit = _WIDTH / slices
    left, width = start * unit, size * unit
    # A character of the label is about 6.2 wide.
    shown = (
        label
        if len(label) * 6.2 < width - 6
        else label[: max(0, int((width - 12) / 6.2))] + ("…" if width > 30 and label else "")
    )
    text = f'<text x="{left + 5:.1f}" y="{_HEIGHT / 2 + 4:.0f}">{escape(shown)}</text>' if shown else ""
    return (
        f'<g><title>{escape(hint)}</title><rect class="{kind}" x="{left + 1:.1f}" y="1" width="{width - 2:.1f}"'
        f' height="{_HEIGHT - 2}" rx="3"/>{text}</g>'
    )


def _gib(mib: int) -> str:
    return f"{mib / 1024:.1f}".rstrip("0").rstrip(".") + " GiB"
