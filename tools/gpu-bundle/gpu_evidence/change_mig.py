# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What C(run.sh --change) does to MIG: every profile at every place, a journey through random layouts, and a change that is killed.

python3 -m gpu_evidence.change_mig UUID KEPT STEP DESIRED       a change that stops before a step, to be killed there
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from typing import Any, Iterator, Mapping, Sequence

from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_gpus import open_nvml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_library import NvmlError
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.board import Board, GpuInstanceProfile
from ansible_collections.gpufleet.nvidia.plugins.module_utils._boards.cards import board_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.apply import ApplyFailed
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.apply_machine import StepFailed
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.geometry import Geometry, geometry
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.journal_lines import REACHED
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.model import DesiredGpu, DesiredInstance
from ansible_collections.gpufleet.nvidia.plugins.module_utils._mig.state import NodeGpu, devices_of, present, record_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._records import PlacedInstance
from ansible_collections.gpufleet.nvidia.plugins.module_utils._schema import encode

from gpu_evidence.change_gpu import Kept, NotAsPlanned, OneGpu, carry_out, exactly, planned
from gpu_evidence.change_parts import end_with, part
from gpu_evidence.running import Folder

#: The journey is the same in every run, so that one that fails can be repeated.
_SEED = 1
#: After so many failed places of profiles the rest is not tried.
_MOST_FAILURES = 3
_JOURNEY_SECONDS = 840.0


@part
def profiles(folder: Folder, machine: OneGpu, _kept: Kept) -> int:
    """MIG on, and an instance of every profile at every place, one after the other."""
    if not machine.gpu().has_mig:
        return folder.answer("absent", "the board has no MIG")
    started = time.monotonic()
    carry_out(machine, planned(DesiredGpu(True)), "MIG on, no instances")
    on = round(time.monotonic() - started, 2)
    gpu, tried, failures = machine.gpu(), 0, []
    board = board_of(gpu.facts)
    folder.write_json("offered.json", machine.nvml.profiles(gpu.index))
    folder.write_json("table.json", [asdict(profile) for profile in board.profiles] if board else [])
    differ = table_differences(board, gpu.profiles)
    for profile in gpu.profiles:
        for start in profile.placements.starts if profile.placements else ():
            tried += 1
            failures += _at_a_place(folder, machine, gpu, profile, start)
        if len(failures) >= _MOST_FAILURES:
            break
    said = f"{tried} places of {len(gpu.profiles)} profiles, MIG on in {on} s"
    problems = [*differ, *failures]
    return folder.answer(
        "failed" if problems else "ran",
        "; ".join([said, *problems]),
        places=tried,
        differences=differ,
        failures=failures,
        seconds=on,
        resets=machine.done.reset,
    )


def _at_a_place(folder: Folder, machine: OneGpu, gpu: NodeGpu, profile: GpuInstanceProfile, start: int) -> list[str]:
    size = profile.placements.size if profile.placements else 0
    place = f"{profile.name} at {start}:{size}"
    record = record_of(gpu.facts, True, (PlacedInstance(profile.name, start, size, (profile.gpu_slices,)),))
    started, line = time.monotonic(), {"place": place}
    try:
        setbacks = carry_out(machine, exactly(record), place).setbacks
        found = machine.gpu()
        line.update(instances=encode(found.facts.gpu_instances), setbacks=setbacks)
        problems = [] if found.record == record else [f"{place}: read back as {found.record.instances}"]
    except (ApplyFailed, NotAsPlanned, NvmlError, StepFailed) as error:
        problems = [f"{place}: {error}"]
    _line(folder, "places.jsonl", {**line, "seconds": round(time.monotonic() - started, 3), "problems": problems})
    return problems


def table_differences(board: Board | None, offered: Sequence[GpuInstanceProfile]) -> list[str]:
    """Return where the table of boards and the driver contradict each other; what one of them does not tell contradicts nothing.

    Names, and MiB of memory, differ between releases of the driver, and are in the evidence alone.
    """
    if board is None:
        return ["the table of boards does not have this board"]
    differ = []
    rows = {row.nvml_enum: row for row in board.profiles}
    there = {profile.nvml_enum: profile for profile in offered}
    for enum in sorted({*rows, *there}, key=str):
        row, profile = rows.get(enum), there.get(enum)
        if row is None or profile is None:
            known = row or profile
            where = "the driver does not offer it" if profile is None else "the table of boards does not have it"
            differ.append(f"{known.name if known else enum}: {where}")
            continue
        for name in _COMPARED:
            ours, theirs = getattr(row, name), getattr(profile, name)
            if None not in (ours, theirs) and ours != theirs:
                differ.append(f"{profile.name}: {name} is {ours} in the table of boards, {theirs} by the driver")
    return differ


_COMPARED = (
    "profile_id",
    "gpu_slices",
    "max_instances",
    "multiprocessors",
    "copy_engines",
    "decoders",
    "encoders",
    "jpeg",
    "ofa",
    "placements",
)


@part
def journey(folder: Folder, machine: OneGpu, _kept: Kept) -> int:
    """Random layouts one after the other: planned, applied, and read back after each."""
    if not machine.gpu().has_mig:
        return folder.answer("absent", "the board has no MIG")
    wanted, started, setbacks = int(os.environ["GPU_CHANGE_TRANSITIONS"]), time.monotonic(), 0
    carry_out(machine, planned(DesiredGpu(True)), "MIG on")
    shape, chooser = geometry(machine.gpu().profiles), random.Random(_SEED)
    for number in range(1, wanted + 1):
        if time.monotonic() - started > _JOURNEY_SECONDS:
            return folder.answer(
                "failed", f"{number - 1} of {wanted} layouts in {_JOURNEY_SECONDS:.0f} s", reached=number - 1
            )
        line = transition(machine, random_layout(shape, chooser))
        setbacks += len(line["setbacks"])
        _line(folder, "journey.jsonl", line)
        said = f"{number} of {wanted} layouts, {setbacks} setbacks"
        if line["problems"]:
            return folder.answer(
                "failed", f"{said}; {line['to']}: {'; '.join(line['problems'])}", reached=number - 1, seed=_SEED
            )
        # A run that is cut off says how far it came.
        folder.answer("failed", f"{said}: it was cut off", reached=number)
    return folder.answer("ran", said, reached=wanted, setbacks=setbacks, seed=_SEED)


def transition(machine: OneGpu, desired: DesiredGpu) -> dict[str, Any]:
    """Change the GPU to a layout, and compare what is read back with the layout and with the plan."""
    started, before = time.monotonic(), machine.gpu()
    make = planned(desired)
    plan = make(machine)([before], {}).changes[0].plan
    stays = {one.uuid for keep_ in plan.keep for one in keep_.instance.compute if one not in keep_.change.destroy}
    line: dict[str, Any] = {
        "from": str(present(before.facts)),
        "to": str(desired),
        "kept": len(plan.keep),
        "destroyed": len(plan.destroy),
        "created": len(plan.create),
        "setbacks": [],
    }
    try:
        line["setbacks"] = list(carry_out(machine, make, str(desired)).setbacks)
    except (ApplyFailed, NotAsPlanned) as error:
        return {**line, "problems": [str(error)], "seconds": round(time.monotonic() - started, 3)}
    after = machine.gpu()
    problems = [] if present(after.facts) == desired else [f"read back as {present(after.facts)}"]
    gone = stays - {*devices_of(after.facts)}
    if gone:
        problems.append(f"devices that the plan keeps are gone: {', '.join(sorted(map(str, gone)))}")
    return {**line, "problems": problems, "seconds": round(time.monotonic() - started, 3)}


def random_layout(shape: Geometry, chooser: random.Random) -> DesiredGpu:
    """Return a layout that fits: instances are added until none fits or there are enough; a third of them is divided into compute instances."""
    request = [0] * len(shape.profiles)
    for _number in range(chooser.randint(0, 7)):
        fitting = []
        for number in range(len(request)):
            more = (*request[:number], request[number] + 1, *request[number + 1 :])
            if shape.layouts_of(more):
                fitting.append(list(more))
        if not fitting:
            break
        request = chooser.choice(fitting)
    return DesiredGpu(True, tuple(sorted(_instances(shape, request, chooser))))


def _instances(shape: Geometry, request: Sequence[int], chooser: random.Random) -> Iterator[DesiredInstance]:
    for profile, count in zip(shape.profiles, request):
        for _number in range(count):
            parts = chooser.random() < 1 / 3
            yield DesiredInstance(profile.name, (1,) * profile.gpu_slices if parts else (profile.gpu_slices,))


@part
def killed(folder: Folder, machine: OneGpu, kept: Kept) -> int:
    """A process that is killed in the middle of a change, and the run after it, which finishes from the journal: at three of its steps."""
    gpu = machine.gpu()
    if not gpu.has_mig:
        return folder.answer("absent", "the board has no MIG")
    small, large = _layouts_apart(geometry(gpu.profiles))
    carry_out(machine, planned(small), str(small))
    # Each instance and each compute instance is a step.
    steps = 2 * (len(small.instances) + len(large.instances))
    said = []
    for number in sorted({2, steps // 2, steps}):
        carry_out(machine, planned(small), str(small))
        former = machine.gpu().record
        _kill_at(machine, kept, number, large)
        cut, between = machine.journal.last(), machine.gpu()
        if cut is None or cut.outcome is not None or len(cut.steps) != number or cut.previous != (former,):
            return folder.answer("failed", f"the journal of the change killed at step {number} says otherwise: {cut}")
        if present(between.facts) in (small, large):
            return folder.answer(
                "failed", f"the change was killed at step {number} and is not in its middle: {present(between.facts)}"
            )
        carry_out(machine, planned(large), str(large))
        end, after = machine.journal.last(), machine.gpu()
        if end is None or end.outcome != REACHED or end.previous != (former,) or present(after.facts) != large:
            return folder.answer(
                "failed", f"after the kill at step {number} the next run reached {present(after.facts)}: {end}"
            )
        said.append({"step": number, "of": steps, "step_text": cut.steps[-1], "between": str(present(between.facts))})
    folder.write_json("killed.json", said)
    return folder.answer(
        "ran",
        f"killed at steps {', '.join(str(one['step']) for one in said)} of {steps}, from {small} to {large}",
        kills=said,
    )


def _layouts_apart(shape: Geometry) -> tuple[DesiredGpu, DesiredGpu]:
    """Return the layout of the most instances, and that of one instance as large as the GPU."""
    most = max(shape.profiles, key=lambda one: one.max_instances)
    count = max(
        number for number in range(most.max_instances + 1) if shape.layouts_of(shape.request({most.name: number}))
    )
    whole = max((one for one in shape.profiles if one.placements), key=lambda one: one.gpu_slices)
    small = DesiredGpu(True, (DesiredInstance(most.name, (most.gpu_slices,)),) * count)
    return small, DesiredGpu(True, (DesiredInstance(whole.name, (whole.gpu_slices,)),))


def _kill_at(machine: OneGpu, kept: Kept, number: int, desired: DesiredGpu) -> None:
    """Start a change in a process of its own, and kill it when its journal has so many steps."""
    instances = json.dumps([[one.profile, list(one.compute)] for one in desired.instances])
    words = [machine.uuid, kept.folder, str(number), instances]
    command = [sys.executable, "-m", "gpu_evidence.change_mig", *words]
    env = {**os.environ, "GPU_CHANGE_PARENT": str(os.getpid())}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=env)
    try:
        ready, _writable, _failed = select.select([process.stdout], [], [], 60)
        said = process.stdout.readline() if ready and process.stdout else b""
    finally:
        process.kill()
        process.wait(timeout=30)
        if process.stdout is not None:
            process.stdout.close()
    if said.strip() != b"now" or process.returncode != -signal.SIGKILL:
        raise NotAsPlanned(f"the change that was to be killed at step {number} ended by itself ({process.returncode})")


class _Stopping(OneGpu):
    """A GPU whose change stops before a step, when the journal has it."""

    def __init__(self, *arguments: Any, number: int) -> None:
        super().__init__(*arguments)
        self._left = number

    def _step(self, text: str) -> None:
        super()._step(text)
        self._left -= 1
        if self._left == 0:
            print("now", flush=True)
            time.sleep(300)


def _to_be_killed(uuid: str, path: str, number: int, instances: Sequence[Any]) -> int:
    """The process that is killed. Its parent has the lock."""
    end_with(int(os.environ["GPU_CHANGE_PARENT"]))
    desired = DesiredGpu(True, tuple(DesiredInstance(str(name), tuple(parts)) for name, parts in instances))
    with open_nvml() as nvml:
        carry_out(_Stopping(nvml, Kept(path).journal, uuid, number=number), planned(desired), str(desired))
    return 0


def _line(folder: Folder, name: str, line: Mapping[str, Any]) -> None:
    with open(folder.path / name, "a", encoding="utf-8") as file:
        file.write(json.dumps(line, default=str) + "\n")


if __name__ == "__main__":
    sys.exit(_to_be_killed(sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])))
