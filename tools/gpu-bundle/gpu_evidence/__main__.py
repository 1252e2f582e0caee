# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report: parts one after the other, each in a process and a time of its own, and what they left, packed as it comes.

python3 -m gpu_evidence OUT BUNDLE             all of it
python3 -m gpu_evidence part NAME OUT WORK     one part, called by the above
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import shutil
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from gpu_evidence import pack, report, smi
from gpu_evidence.running import MARK, Folder, end_marked, environment, run

_WHOLE = 480.0
#: For what comes last: the settings once more, the processes that are left, and the report.
_RESERVED = 50.0
PASSED, FAILED, USAGE, NO_GPU, NO_ANSWER, CHANGED = range(6)


@dataclass(frozen=True)
class Part:
    """One part of the report.

    :param where: module and function that do it.
    :param seconds: after which it is ended.
    :param needs: C(nvml) where it is pointless without NVML, C(product) where the collection has to run on this Python.
    """

    name: str
    title: str
    where: str
    seconds: float
    needs: tuple[str, ...] = ()


PARTS = (
    Part("before", "nvidia-smi -q, before", "smi:settings", 60),
    Part("files", "Files of kernel, driver and PCI bus", "host:files", 25),
    Part("nvml", "Every read-only call of NVML", "nvml:part", 110),
    Part("facts", "The facts document, and how long it takes", "product:facts", 90, ("product",)),
    Part("user", "The facts and NVML as a user without rights", "product:user", 80, ("nvml", "product")),
    Part("commands", "nvidia-smi and the system's tools", "smi:commands", 110),
    Part("playbooks", "doctor, adopt, plan, verify and inspect", "product:playbooks", 150, ("product",)),
    Part("cuda", "A CUDA program: vector addition and memory", "cuda:part", 80, ("nvml",)),
    Part("cdi", "nvidia-ctk cdi generate, and our reading of it", "cluster:cdi", 40, ("nvml",)),
    Part("plugin", "The device plugin before a stand-in kubelet", "cluster:plugin", 110, ("nvml",)),
    Part("mps", "An MPS daemon with limits, and its clients", "mps:part", 120, ("nvml",)),
    Part("tests", "The collection's tests for real GPUs", "product:tests", 100, ("nvml", "product")),
)
AFTER = Part("after", "nvidia-smi -q, afterwards", "smi:settings", 40)


def main(out: str, bundle: str) -> int:
    return make(Report, out, bundle)


def make(kind: Callable[..., Report], out: str, bundle: str) -> int:
    """Make a report of a kind, with a folder of its own for what it needs."""
    started = time.monotonic()
    target = Path(out)
    target.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="gpu-evidence-"))
    # Clients of MPS of another user go through it.
    work.chmod(0o755)
    mark = uuid.uuid4().hex
    try:
        return kind(target, Path(bundle), work, mark, started).make()
    finally:
        end_marked(mark)
        shutil.rmtree(work, ignore_errors=True)


class Report:
    """One run."""

    #: Seconds of all of it.
    whole = _WHOLE

    def __init__(self, target: Path, bundle: Path, work: Path, mark: str, started: float) -> None:
        self._started, self._work, self._mark, self._target = started, work, mark, target
        self._evidence = work / "evidence"
        self._packed = pack.Packed(target, self._evidence)
        self._env = environment(
            **{
                MARK: mark,
                "GPU_EVIDENCE_BUNDLE": str(bundle),
                "PYTHONPATH": os.pathsep.join([str(bundle), str(work / "site"), str(work / "collections")]),
                "PYTHONPYCACHEPREFIX": str(work / "compiled"),
                "HOME": str(work / "home"),
                "TMPDIR": str(work / "tmp"),
            }
        )
        self._says: dict[str, Any] = {
            "format": 1,
            "bundle": json.loads((bundle / "bundle.json").read_text(encoding="utf-8")),
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "python": platform.python_version(),
            "kernel": platform.release(),
            "machine": platform.machine(),
            "root": os.geteuid() == 0,
            "parts": [],
        }
        for name in ("home", "tmp", "site", "evidence"):
            (work / name).mkdir()

    def make(self) -> int:
        self._unpack()
        for part in PARTS:
            self._one(part, self._left() - _RESERVED)
        self._one(AFTER, self._left() - 10)
        self._says["settings_changed"] = changed = self._changed()
        self._says["exit_status"] = status = self._status(changed)
        self._says["seconds"] = round(time.monotonic() - self._started, 1)
        self._write()
        print(report.summary(self._says))
        return status

    def _left(self) -> float:
        return self.whole - (time.monotonic() - self._started)

    def _unpack(self) -> None:
        """The wheels for this Python, the collection and the programs, into the folder of this run."""
        done = run([sys.executable, "-m", "gpu_evidence.unpack", str(self._work)], 60, self._env)
        self._says["unpacked"] = done.out.strip() or done.said
        self._product = "" if done.ok else done.said or "it could not be unpacked"
        if done.ok:
            self._product = json.loads(done.out).get("product", "")

    def _one(self, part: Part, left: float) -> None:
        says: dict[str, Any] = {"name": part.name, "title": part.title}
        self._says["parts"].append(says)
        reason = self._pointless(part)
        if reason or left < 5:
            says.update(
                status="absent" if reason else "failed",
                said=reason or "there was no time left",
                seconds=0.0,
                findings={},
            )
            self._write()
            return
        out = self._evidence / part.name
        folder = Folder(str(out))
        print(f"{part.title} ...", flush=True)
        done = run(
            [sys.executable, "-m", "gpu_evidence", "part", part.where, str(out), str(self._work)],
            min(part.seconds, left),
            self._env,
        )
        folder.write("part.log", done.out + done.err)
        left_behind = end_marked(self._mark)
        if left_behind:
            says["left_behind"] = left_behind
        answer = self._answer(out)
        if done.status != 0 and (answer is None or answer["status"] == "ran"):
            before = f"; before, it said: {answer['said']}" if answer else ""
            findings = answer["findings"] if answer else {}
            answer = {"status": "failed", "said": f"{done.said}{before}", "findings": findings}
        says.update(answer or {"status": "failed", "said": "it said nothing", "findings": {}}, seconds=done.seconds)
        print(f"    {says['status']}: {says['said'][:200]} ({done.seconds:.0f} s)", flush=True)
        self._write()

    @staticmethod
    def _answer(out: Path) -> dict[str, Any] | None:
        try:
            return json.loads((out / "answer.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def _pointless(self, part: Part) -> str:
        if "product" in part.needs and self._product:
            return self._product
        nvml = next((one for one in self._says["parts"] if one["name"] == "nvml"), None)
        if "nvml" in part.needs and nvml is not None and not nvml.get("findings", {}).get("codes", {}).get("0"):
            return f"NVML does not answer ({nvml.get('said', '')[:120]})"
        return ""

    def _changed(self) -> list[str]:
        texts = [self._settings_text(name) for name in ("before", "after")]
        return smi.compare(*texts) if all(texts) else []

    def _settings_text(self, part: str) -> str:
        path = self._evidence / part / "q.out"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def _status(self, changed: list[str]) -> int:
        parts = {one["name"]: one for one in self._says["parts"]}
        if changed:
            return CHANGED
        if not parts["nvml"].get("findings", {}).get("codes", {}).get("0"):
            return NO_ANSWER if report.has_gpu(self._evidence) else NO_GPU
        return FAILED if any(one["status"] == "failed" for one in parts.values()) else PASSED

    def _write(self) -> None:
        self._packed.write(self._says)


def part(where: str, out: str, work: str) -> int:
    module, function = where.split(":")
    return int(getattr(importlib.import_module(f"gpu_evidence.{module}"), function)(out, work))


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] == "part":
        sys.exit(part(*sys.argv[2:]))
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        sys.exit(USAGE)
    sys.exit(main(sys.argv[1], sys.argv[2]))
