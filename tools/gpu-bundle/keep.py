#!/usr/bin/env python3
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keep what came back from a real GPU as a fixture: tests/real/BOARD-DRIVER/evidence.tar.xz, and about.json beside it.

    keep.py OUT

OUT is where run.sh wrote. What tells of the GPU and its driver is kept; what tells of the machine around it (mounts, control groups, memory,
environment, the rest of its packages and libraries) is not. Made of the same evidence, the files are the same.
"""

from __future__ import annotations

import io
import json
import lzma
import re
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
REAL = HERE.parents[1] / "tests" / "real"
sys.path.insert(0, str(HERE))

from gpu_evidence.private import Replacements

_LEFT_OUT = re.compile(
    r"^evidence/(after|tests|playbooks/.*\.html|files/(system|libraries)\.json|commands/(ldconfig|dpkg|rpm|lsmod|lspci|systemctl|unshare"
    r"|modinfo-nvidia|nvidia-ctk|smi-.*-h|smi-help)\.out)|\.log$|(^|/)unfinished\.json$|/module-(all|plain)-[1-9]"
)
#: Of files/files.json: what the driver writes.
_OF_THE_DRIVER = re.compile(r"^/proc/(driver|devices)|^/etc/os-release$")
_MACHINE = (
    # A kernel that somebody built, by its version alone; who built it; which Python ran this; where it ran.
    (re.compile(r"\b(\d+\.\d+\.\d+)-[a-z][\w.-]*(?=[\s\"\\\\/:,;]|$)"), r"\1"),
    (re.compile(r"\([\w.-]*@[\w.-]*\)"), "(builder@host)"),
    (re.compile(r"(?:/[\w.-]+)+/bin/python3[\d.]*"), "/usr/bin/python3"),
    (re.compile(r"/tmp/gpu-evidence-\w+"), "/tmp/gpu-evidence"),
    # tmp.XXXX of a daemon's folder.
    (re.compile(r"/tmp/gpu-evidence/m\w{8}(?=/)"), "/tmp/gpu-evidence/mps"),
)


def kept(name: str, text: str) -> str:
    """One file of the evidence without what tells of the machine around the GPU."""
    if name == "evidence/files/files.json":
        found = {path: one for path, one in json.loads(text).items() if _OF_THE_DRIVER.search(path)}
        text = json.dumps(found, indent=1, sort_keys=True) + "\n"
    for pattern, new in _MACHINE:
        text = pattern.sub(new, text)
    return text


def main(out: Path) -> int:
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    replaced = Replacements(())
    files: dict[str, str] = {}
    with tarfile.open(out / "evidence.tar.gz") as packed:
        for member in packed:
            content = packed.extractfile(member) if member.isfile() and not _LEFT_OUT.search(member.name) else None
            if content is not None:
                files[member.name] = content.read().decode()
    for text in files.values():
        replaced.learn(text)
    files = {name: replaced.clean(kept(name, text)) for name, text in files.items() if text.strip()}
    facts = json.loads(files["evidence/facts/facts.json"])["gpu"]
    gpus = facts["gpus"]
    about = {
        "board": gpus[0]["board"],
        "gpus": len(gpus),
        "date": report["started"][:10],
        "driver": facts["driver"]["loaded_version"],
        "flavour": facts["driver"]["flavour"],
        "kernel": facts["host"]["kernel"],
        "distribution": f"{facts['host']['distribution']['id']} {facts['host']['distribution']['version']}",
        "root": report["root"],
        "parts": {part["name"]: part["status"] for part in report["parts"]},
        "settings_changed": report["settings_changed"],
    }
    folder = REAL / f"{about['board']}-{about['driver']}"
    folder.mkdir(parents=True, exist_ok=True)
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name in sorted(files):
            content = files[name].encode()
            entry = tarfile.TarInfo(name.removeprefix("evidence/"))
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    (folder / "evidence.tar.xz").write_bytes(lzma.compress(raw.getvalue(), preset=9 | lzma.PRESET_EXTREME))
    (folder / "about.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    print(f"{folder}: {len(files)} files, {(folder / 'evidence.tar.xz').stat().st_size / 1024:.0f} KiB")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1])))
