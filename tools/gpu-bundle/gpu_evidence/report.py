# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report as a person reads it."""

from __future__ import annotations

import html as escaping
import json
from pathlib import Path
from typing import Any

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}
table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid #d8dee4;padding:.4rem .6rem;text-align:left;vertical-align:top}
.ran{color:#116329}.absent{color:#57606a}.failed{color:#a40e26}pre{background:#f6f8fa;padding:.7rem;overflow:auto;font-size:12px}
"""
_WORDS = {
    0: "Everything that could run here passed.",
    1: "A part failed.",
    2: "Wrong use.",
    3: "There is no NVIDIA GPU on this host.",
    4: "The driver does not answer.",
    5: "A setting of the GPU differs afterwards.",
}
_SHOWN = (
    "playbooks/doctor.out",
    "playbooks/inspect.out",
    "playbooks/plan-adopted.out",
    "commands/smi-table.out",
    "commands/smi-topo-m.out",
    "commands/smi-mig-lgip.out",
)


def has_gpu(evidence: Path) -> bool:
    """Whether the evidence shows a GPU, on the bus or as a device node."""
    try:
        functions = json.loads((evidence / "files" / "pci.json").read_text(encoding="utf-8"))
        nodes = json.loads((evidence / "files" / "device-nodes.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    on_bus = any(str(one.get("class", "")).strip().startswith(("0x0300", "0x0302")) for one in functions.values())
    return on_bus or any(node["path"] == "/dev/nvidiactl" for node in nodes)


def summary(says: dict[str, Any]) -> str:
    lines = [f"{one['status']:7} {one['title']}: {one.get('said', '')[:160]}" for one in says["parts"]]
    lines += [f"changed {one}" for one in says.get("settings_changed", [])]
    lines.append(_WORDS.get(says.get("exit_status", 1), ""))
    return "\n".join(lines)


def html(says: dict[str, Any], files: dict[str, str]) -> str:
    status = says.get("exit_status")
    rows = "".join(
        f"<tr><td>{_safe(one['title'])}</td><td class={_safe(one.get('status', ''))}>{_safe(one.get('status', ''))}</td>"
        f"<td>{_safe(one.get('said', ''))}</td><td>{one.get('seconds', 0):.1f} s</td></tr>"
        for one in says["parts"]
        if "status" in one
    )
    changed = says.get("settings_changed")
    settings = (
        "not compared yet"
        if changed is None
        else "<br>".join(map(_safe, changed)) or "The settings are the same as before."
    )
    shown = "".join(
        f"<h2>{_safe(name)}</h2><pre>{_safe(files[name][:20000])}</pre>"
        for name in _SHOWN
        if files.get(name, "").strip()
    )
    facts = {
        name: says[name]
        for name in ("started", "seconds", "python", "kernel", "machine", "root", "bundle", "replaced")
        if name in says
    }
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>GPU report</title><style>{_STYLE}</style>"
        f"<h1>GPU report</h1><p><b>{_safe(_WORDS.get(status, 'It is still being made, or was ended before its end.'))}</b></p>"
        f"<table><tr><th>part<th>status<th>what it says<th>time</tr>{rows}</table><h2>Settings</h2><p>{settings}</p>{shown}"
        f"<h2>This run</h2><pre>{_safe(json.dumps(facts, indent=1))}</pre><p>The raw evidence is in evidence.tar.gz.</p></html>\n"
    )


def _safe(text: Any) -> str:
    return escaping.escape(str(text))
