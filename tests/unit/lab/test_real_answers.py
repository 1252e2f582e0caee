# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The virtual NVML and nvidia-smi are held to what real GPUs answered: tests/real/BOARD-DRIVER, recorded by run.sh of the bundle.

Both are asked by the same collector. Where they differ is in deviations.txt of the recording, one line a call and kind:
C(CALL | REAL | VIRTUAL | ARGUMENTS). The list only shrinks: a deviation that is not in it fails, and so does one that is gone.
RECORD_DEVIATIONS=1 writes it anew, for after a mend.
"""

from __future__ import annotations

import collections
import csv
import io
import json
import os
import re
import sys
from pathlib import Path

import pytest
from virtual_machine import PYNVML, REPOSITORY

from ...real import RECORDINGS, Recording

BUNDLE = REPOSITORY / "tools" / "gpu-bundle"
#: Answers whose values are those of the board or of the driver, and not of the one machine: compared as they are.
EXACT = (
    "nvmlDeviceGetArchitecture", "nvmlDeviceGetBrand", "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetEccMode",
    "nvmlDeviceGetGpuInstanceProfileInfo", "nvmlDeviceGetGpuInstanceRemainingCapacity", "nvmlDeviceGetGpuInstances", "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetMemoryBusWidth", "nvmlDeviceGetMigMode", "nvmlDeviceGetName", "nvmlDeviceGetNumGpuCores", "nvmlDeviceGetPowerManagement",
    "nvmlDeviceGetSupportedMemoryClocks", "nvmlDeviceGetSupportedEventTypes", "nvmlErrorString", "nvmlSystemGetCudaDriverVersion",
    "nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion", "placements of",
)  # fmt: skip
#: What depends on the machine around the GPU, or is not asked of one that has other clocks.
MACHINE = ("nvmlSystemGetProcessName", "nvmlDeviceGetSupportedGraphicsClocks", "nvmlDeviceGetCpuAffinity")


def shape(value: object) -> object:
    """What a program that reads the answer relies on: names, kinds, how many, and in which order numbers are."""
    if isinstance(value, dict):
        # Of a field: whether it has a value, and of which kind; the kind beside an error means nothing.
        if "nvmlReturn" in value:
            kind = value.get("valueType") if value["nvmlReturn"] == 0 else None
            return {"fieldId": value.get("fieldId"), "nvmlReturn": value["nvmlReturn"], "valueType": kind}
        return {name: shape(one) for name, one in value.items()}
    if isinstance(value, list):
        numbers = [one for one in value if isinstance(one, (int, float))]
        order = ""
        if len(numbers) == len(value) > 1 and len(set(numbers)) > 1:
            order = (
                "rising" if numbers == sorted(numbers) else "falling" if numbers == sorted(numbers)[::-1] else "mixed"
            )
        return [order, *(shape(one) for one in value)]
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def answer(entry: dict | None, exact: bool) -> object:
    if entry is None:
        return "not asked"
    if entry.get("code") != 0:
        return entry.get("code", entry.get("not_made", entry.get("absent", entry.get("exception"))))
    return [0, entry["value"] if exact else shape(entry["value"])]


def calls(text: str) -> dict[str, dict]:
    entries = [json.loads(line) for line in text.splitlines()]
    return {json.dumps([one["call"], one["args"]]): one for one in entries if "call" in one}


def brief(one: object, other: object) -> str:
    """An answer in one word: its code, or the code with what is different of it."""
    if not isinstance(one, list):
        return str(one)
    return "0" if not isinstance(other, list) else f"0 {json.dumps(one[1])}"


def deviations(real: dict[str, dict], virtual: dict[str, dict]) -> dict[tuple[str, str, str], list[str]]:
    found: dict[tuple[str, str, str], list[str]] = collections.defaultdict(list)
    for key in sorted({*real, *virtual}):
        name, arguments = json.loads(key)
        if name.startswith(MACHINE):
            continue
        exact = name.startswith(EXACT)
        one, other = answer(real.get(key), exact), answer(virtual.get(key), exact)
        if one != other:
            # All fields in one call are the fields one by one.
            said = (
                ("fields", "fields")
                if arguments[1:2] and str(arguments[1]).startswith("all")
                else (brief(one, other), brief(other, one))
            )
            found[name, said[0], said[1]].append(json.dumps(arguments))
    return found


def written(found: dict[tuple[str, str, str], list[str]]) -> str:
    return "".join(
        f"{name} | {real} | {virtual} | {' '.join(cases)}\n" for (name, real, virtual), cases in sorted(found.items())
    )


def hold(recording: Recording, name: str, found: str) -> None:
    """Compare what deviates with the list of the recording, both ways."""
    path = recording.folder / name
    if os.environ.get("RECORD_DEVIATIONS"):
        path.write_text(found, encoding="utf-8")
    was, now = set(path.read_text(encoding="utf-8").splitlines()), set(found.splitlines())
    assert not now - was, "it deviates where it did not:\n" + "\n".join(sorted(now - was))
    assert not was - now, f"no deviation any more, take it out of {path.relative_to(REPOSITORY)}:\n" + "\n".join(
        sorted(was - now)
    )


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda one: one.name)
def test_nvml_answers_as_the_real_one_but_for_what_is_listed(machine, tmp_path: Path, recording: Recording):
    # A recorded machine that has its GPU passed through.
    machine.start(recording.about["board"], "--passthrough", driver=recording.about["driver"])
    out = tmp_path / "calls.jsonl"
    done = machine.run(
        sys.executable, "-m", "gpu_evidence.nvml_calls", str(out),
        PYTHONPATH=os.pathsep.join([str(BUNDLE), str(PYNVML)]), PYTHONDONTWRITEBYTECODE="1", VIRTUAL_GPU_LIBRARY_VERSION=recording.about["driver"],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    real = calls(recording.text("nvml/calls.jsonl"))
    assert len(real) > 1000
    found = written(deviations(real, calls(out.read_text(encoding="utf-8"))))
    hold(recording, "deviations.txt", found)


#: What is of one machine in the output of nvidia-smi.
_OF_THE_MACHINE = re.compile(r"GPU-[0-9a-f-]{36}|[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.0")


def form(text: str) -> str:
    """The form of a value: its unit, its kind of missing, not its number."""
    return re.sub(r"[0-9A-Fa-f.]*[0-9][0-9A-Fa-f.]*", "N", _OF_THE_MACHINE.sub("<id>", text.strip()))


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda one: one.name)
def test_nvidia_smi_prints_and_ends_as_the_real_one_but_for_what_is_listed(machine, recording: Recording):
    machine.start(recording.about["board"], "--passthrough", driver=recording.about["driver"])
    version = {"VIRTUAL_GPU_LIBRARY_VERSION": recording.about["driver"]}
    found = []
    for command in recording.json_lines("commands/commands.jsonl"):
        title, words = command["name"], command["command"][1:]
        if title.startswith("smi-") and "--format=csv" not in words:
            done = machine.smi(*words, **version)
            real, virtual = (
                _OF_THE_MACHINE.sub("<id>", text.strip())
                for text in (recording.files.get(f"commands/{title}.out", ""), done.stdout)
            )
            if (command["status"], real) != (done.returncode, virtual):
                found.append(
                    f"nvidia-smi {' '.join(words)} | status {command['status']} | status {done.returncode} | {'text' if real != virtual else ''}\n"
                )
    heads, values = csv.reader(io.StringIO(recording.text("commands/smi-query-gpu-all.out")), skipinitialspace=True)
    for field, head, value in zip(recording.json("commands/query-gpu-fields.json"), heads, values):
        done = machine.smi(f"--query-gpu={field}", "--format=csv", **version)
        lines = [*done.stdout.splitlines(), "", ""]
        said = "unknown" if done.returncode else f"{lines[0]}: {form(lines[1])}"
        if said != f"{head}: {form(value)}":
            found.append(f"--query-gpu={field} | {head}: {form(value)} | {said}\n")
    hold(recording, "nvidia-smi-deviations.txt", "".join(sorted(set(found))))
