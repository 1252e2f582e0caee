# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What nvidia-smi says, asked in all of its ways that change nothing, and what the system's tools say."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from typing import Iterable, Iterator

from gpu_evidence.running import Folder, end_group, environment, run, which

_OF_INTEREST = re.compile(r"nvidia|NVRM|NVLINK|nvswitch|\bXid\b|fabric|cuda|10de:|vfio|nouveau", re.IGNORECASE)

#: Programs whose output is kept as it is: name of the file, command, seconds.
_SMI = (
    ("L", ["-L"], 30), ("q-x", ["-q", "-x"], 40), ("table", [], 30), ("topo-m", ["topo", "-m"], 30), ("topo-p2p", ["topo", "-p2p", "r"], 20),
    ("mig-lgip", ["mig", "-lgip"], 30), ("mig-lgipp", ["mig", "-lgipp"], 30), ("mig-lgi", ["mig", "-lgi"], 20), ("mig-lci", ["mig", "-lci"], 20),
    ("mig-lcip", ["mig", "-lcip"], 20), ("nvlink-s", ["nvlink", "-s"], 20), ("nvlink-c", ["nvlink", "-c"], 20), ("nvlink-p", ["nvlink", "-p"], 20),
    ("nvlink-e", ["nvlink", "-e"], 20), ("nvlink-h", ["nvlink", "-h"], 10), ("c2c-s", ["c2c", "-s"], 15), ("conf-compute-q", ["conf-compute", "-q"], 15),
    ("vgpu-q", ["vgpu", "-q"], 15), ("compute-apps", ["--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv"], 20),
    ("retired-pages", ["--query-retired-pages=gpu_uuid,retired_pages.address,retired_pages.cause", "--format=csv"], 15),
    ("remapped-rows", ["--query-remapped-rows=gpu_uuid,remapped_rows.correctable,remapped_rows.uncorrectable,remapped_rows.pending,remapped_rows.failure,"
                       "remapped_rows.histogram.max,remapped_rows.histogram.high,remapped_rows.histogram.partial,remapped_rows.histogram.low,"
                       "remapped_rows.histogram.none", "--format=csv"], 15),
    ("supported-clocks", ["--query-supported-clocks=memory,graphics", "--format=csv"], 15), ("q-d-PERFORMANCE", ["-q", "-d", "PERFORMANCE"], 15),
    ("dmon", ["dmon", "-c", "1"], 15), ("pmon", ["pmon", "-c", "1"], 15), ("gpm-h", ["gpm", "-h"], 10), ("pci", ["pci", "-h"], 10),
    ("power-profiles", ["power-profiles", "-l"], 10), ("help", ["--help"], 15), ("mig-h", ["mig", "-h"], 10), ("version", ["--version"], 15),
    ("help-query-gpu", ["--help-query-gpu"], 15), ("help-query-compute-apps", ["--help-query-compute-apps"], 10), ("no-such-option", ["--no-such-option"], 10),
    ("no-such-gpu", ["-i", "99"], 10), ("mig-no-such-gpu", ["mig", "-lgi", "-i", "99"], 10),
)  # fmt: skip


def commands(out: str, _work: str) -> int:
    """nvidia-smi in all of its read-only ways, and what the system's tools say."""
    folder = Folder(out)
    env = environment()
    kernel = run(["dmesg"], 10, env)
    lines = [line for line in kernel.out.splitlines() if _OF_INTEREST.search(line)]
    folder.write("dmesg.out", "\n".join(lines[:3000]) + f"\n[{kernel.said}]\n")
    for name, command in (
        ("ldconfig", ["ldconfig", "-p"]), ("lsmod", ["lsmod"]), ("modinfo-nvidia", ["modinfo", "nvidia"]), ("lspci", ["lspci", "-nnk", "-d", "10de:"]),
        ("dpkg", ["dpkg-query", "-W", "-f", "${Package} ${Version} ${Status}\\n"]), ("rpm", ["rpm", "-qa"]), ("unshare", ["unshare", "-m", "true"]),
        ("systemctl", ["systemctl", "list-units", "--all", "--no-pager", "nvidia*"]), ("nvidia-ctk", ["nvidia-ctk", "--version"]),
        ("mps-help", ["nvidia-cuda-mps-control", "--help"]),
    ):  # fmt: skip
        done = run([which(command[0]) or command[0], *command[1:]], 15, env)
        if name in ("ldconfig", "dpkg", "rpm"):
            done = type(done)(
                done.command, done.status, done.seconds, "\n".join(_only(done.out.splitlines())), done.err, done.reason
            )
        folder.keep(name, done)
    smi = which("nvidia-smi")
    if smi is None:
        return folder.answer("absent", "nvidia-smi is not installed")
    first = folder.keep("smi-L-first", run([smi, "-L"], 40, env))
    ended = 0
    # Without persistence mode every program wakes the GPU up anew: one that keeps NVML open spares the others that.
    with _awake(first.seconds > 1):
        ended = _ask_all(folder, smi, env)
    if ended:
        return folder.answer("failed", f"nvidia-smi does not answer: {ended}")
    return _all_fields(folder, smi, env)


def _ask_all(folder: Folder, smi: str, env: dict[str, str]) -> str:
    ended = 0
    for name, words, seconds in _SMI:
        done = folder.keep(f"smi-{name}", run([smi, *words], seconds, env))
        ended += done.status is None
        if ended > 2:
            return f"{' '.join(words)}: {done.said}"
    return ""


@contextlib.contextmanager
def _awake(wanted: bool) -> Iterator[None]:
    if not wanted:
        yield
        return
    script = "import pynvml, time; pynvml.nvmlInit(); [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]; time.sleep(300)"
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        time.sleep(5)
        yield
    finally:
        end_group(process)


def _all_fields(folder: Folder, smi: str, env: dict[str, str]) -> int:
    help_text = (folder.path / "smi-help-query-gpu.out").read_text(encoding="utf-8")
    fields = sorted(set(re.findall(r'^"([a-z0-9_.]+)"', help_text, re.MULTILINE)))
    if not fields:
        return folder.answer(
            "ran", f"{len(_SMI)} questions to nvidia-smi, which does not list the fields that it knows", fields=0
        )
    done = folder.keep("smi-query-gpu-all", run([smi, f"--query-gpu={','.join(fields)}", "--format=csv"], 60, env))
    folder.write_json("query-gpu-fields.json", fields)
    said = f"{len(_SMI)} questions to nvidia-smi, and {len(fields)} fields"
    return folder.answer(
        "ran" if done.ok else "failed", said if done.ok else f"{said}: {done.said}", fields=len(fields)
    )


def _only(lines: Iterable[str]) -> list[str]:
    return [
        line
        for line in lines
        if re.search(r"nvidia|cuda|nvml|libnv|dcgm|datacenter-gpu|container-toolkit", line, re.IGNORECASE)
    ]


def settings(out: str, _work: str) -> int:
    """`nvidia-smi -q`, for the comparison of before and after."""
    folder = Folder(out)
    smi = which("nvidia-smi")
    if smi is None:
        return folder.answer("absent", "nvidia-smi is not installed")
    done = folder.keep("q", run([smi, "-q"], 45, environment()))
    return folder.answer(
        "ran" if done.ok else "failed", f"nvidia-smi -q: {done.said} after {done.seconds:.1f} s", seconds=done.seconds
    )


def compare(before: str, after: str) -> list[str]:
    """The settings that differ between two outputs of C(nvidia-smi -q): what a machine does by itself is left apart."""
    was, now = _settings(before), _settings(after)
    return [
        f"{path}: {was.get(path, 'absent')} before, {now.get(path, 'absent')} afterwards"
        for path in sorted({*was, *now})
        if was.get(path) != now.get(path)
    ]


#: Sections and lines of `nvidia-smi -q` that change by themselves: counters, clocks that follow the load, temperatures, processes.
_BY_ITSELF = re.compile(
    r"Timestamp|Utilization|Temperature/|Clocks/|Processes|Process |FB Memory Usage|BAR1 Memory Usage|Conf Compute Protected Memory|Accounting"
    r"|Clocks Event Reasons|Clocks Throttle|Performance State|Power Draw|Replay|ECC Errors|Throughput|GPU Power Readings/.*Draw|Module Power Readings/.*Draw"
    r"|Fan Speed|Current Temp|Voltage|Energy|Fabric/(State|Status|Health)|Encoder Stats|FBC Stats|Link Info/.*Current|GPU Link Info/.*Current"
    r"|Idle|Sparse Operation|Remapped Rows|Retired Pages|Counters|Violation"
)


def _settings(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    above: list[str] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        depth = (len(line) - len(line.lstrip())) // 4
        name, colon, value = line.strip().partition(" : ")
        above = [*above[:depth], name.strip()]
        path = "/".join(above)
        if colon and not _BY_ITSELF.search(path):
            found[path if path not in found else f"{path} (again)"] = value.strip()
    return found
