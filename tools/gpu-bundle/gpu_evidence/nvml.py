# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVML, asked by a process of its own that may hang or die: the rest goes on without the call that it hung in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from gpu_evidence.running import Folder, end_group, environment, run, which


def part(out: str, work: str) -> int:
    """Every read-only call of NVML. A call that hangs or ends the process is left out, and the rest goes on."""
    folder = Folder(out)
    calls, skip = str(folder.path / "calls.jsonl"), f"{work}/nvml-skip"
    bad: list[str] = []
    for _attempt in range(12):
        Path(skip).write_text("\n".join(bad), encoding="utf-8")
        status = _collect(calls, skip)
        if status in (0, 4):
            break
        last = _unfinished(calls)
        if last is None or last in bad:
            break
        bad.append(last)
    entries = (
        [json.loads(line) for line in Path(calls).read_text(encoding="utf-8").splitlines()]
        if os.path.exists(calls)
        else []
    )
    made = [entry for entry in entries if "call" in entry]
    Path(calls).write_text("".join(json.dumps(entry) + "\n" for entry in made), encoding="utf-8")
    folder.write_json("unfinished.json", [json.loads(one) for one in bad])
    codes: dict[str, int] = {}
    for entry in made:
        codes[str(entry.get("code", "none"))] = codes.get(str(entry.get("code", "none")), 0) + 1
    said = f"{len(made)} calls" + (f"; {len(bad)} did not return: {', '.join(bad)}" if bad else "")
    if status == 4:
        return folder.answer(
            "failed", f"NVML does not answer: {made[0] if made else 'nvmlInit did not return'}", codes=codes
        )
    return folder.answer("ran" if status == 0 and not bad else "failed", said, codes=codes)


def _collect(calls: str, skip: str, patience: float = 25.0) -> int | None:
    """Run the collector until it ends, or until it has written nothing for so long: the status, None where it was ended."""
    with open(f"{calls}.log", "a", encoding="utf-8") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "gpu_evidence.nvml_calls", calls, skip],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    size, since = -1, time.monotonic()
    while process.poll() is None:
        now = os.path.getsize(calls) if os.path.exists(calls) else 0
        if now != size:
            size, since = now, time.monotonic()
        if time.monotonic() - since > patience:
            end_group(process)
            return None
        time.sleep(0.1)
    return process.returncode


def _unfinished(calls: str) -> str | None:
    """The call that was begun last and has no result."""
    last = None
    for line in Path(calls).read_text(encoding="utf-8").splitlines() if os.path.exists(calls) else ():
        entry = json.loads(line)
        last = json.dumps(entry["begin"]) if "begin" in entry else None
    return last


#: What depends on who uses the GPU.
_OF_USERS = "Process|Memory|Utilization|Accounting|PerformanceState|PowerUsage|P2P"


def in_use(folder: Folder, name: str) -> None:
    """What NVML and nvidia-smi say while a program of this run uses the GPU."""
    env = environment()
    path = folder.path / f"{name}-nvml.jsonl"
    run([sys.executable, "-m", "gpu_evidence.nvml_calls", str(path), "", _OF_USERS], 15, env)
    if path.exists():
        entries = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith('{"begin"')]
        path.write_text("\n".join(entries) + "\n", encoding="utf-8")
    smi = which("nvidia-smi")
    for title, words in (
        ("table", []),
        ("apps", ["--query-compute-apps=gpu_uuid,pid,process_name,used_memory", "--format=csv"]),
        ("pmon", ["pmon", "-c", "1"]),
        ("q", ["-q"]),
    ):
        if smi is not None:
            folder.keep(f"{name}-smi-{title}", run([smi, *words], 10, env))
