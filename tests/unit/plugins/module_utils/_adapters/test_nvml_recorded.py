# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The adapter of NVML on the answers of real GPUs (tests/real): every call that it makes is answered as it was recorded."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_gpus import Nvml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.nvml_library import Library

from .....real import RECORDINGS, Recording


class Recorded:
    """pynvml whose functions answer as they were recorded; a call that was not recorded ends the test."""

    def __init__(self, recording: Recording) -> None:
        self._answers: dict[str, dict[str, Any]] = {}
        for entry in recording.json_lines("nvml/calls.jsonl"):
            self._answers.setdefault(json.dumps([entry["call"], entry["args"]]), entry)
        for name, value in vars(pynvml).items():
            if not name.startswith("nvml") or name.startswith("nvmlMemory_v"):
                setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        return lambda *arguments, **options: self._answer(name, [*arguments, *options.values()])

    def _answer(self, name: str, arguments: list[Any]) -> Any:
        if name == "nvmlDeviceGetGpuInstancePossiblePlacements":
            return self._placements(*arguments)
        entry = self._answers.get(json.dumps([name, arguments])) or self._answers[json.dumps([name, arguments[:-1]])]
        if entry.get("code") != 0:
            raise pynvml.NVMLError(entry.get("code", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND))
        value = "gpu0" if entry["value"] == "<handle>" else entry["value"]
        return SimpleNamespace(**value) if isinstance(value, dict) else value

    def _placements(self, gpu: str, profile: int, places: Any, count: Any) -> None:
        said = json.loads(self._answers[json.dumps([f"placements of {gpu} {profile}", []])]["not_made"])
        count._obj.value = said["count"]
        for place, (start, size) in zip(places, said["places"]):
            place.start, place.size = start, size


def listed(recording: Recording) -> dict[str, tuple[int, int, float, list[tuple[int, int]]]]:
    """What nvidia-smi printed beside it: id, remaining, GiB and places of each profile."""
    printed = re.findall(
        r"Profile ID +(\d+) Placements? *: \{([\d,]+)\}:(\d+)", recording.text("commands/smi-mig-lgipp.out")
    )
    places = {int(number): [(int(start), int(size)) for start in starts.split(",")] for number, starts, size in printed}
    rows = re.findall(r"MIG (\S+) +(\d+) +(\d+)/\d+ +([\d.]+) ", recording.text("commands/smi-mig-lgip.out"))
    return {name: (int(number), int(left), float(gib), places[int(number)]) for name, number, left, gib in rows}


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda one: one.name)
def test_profiles_have_their_places_and_what_is_left_of_them_while_mig_is_off(recording: Recording):
    nvml = Nvml(Library(Recorded(recording)))
    nvml.open()
    found = {
        one["name"]: (
            one["id"],
            one["remaining"],
            # As nvidia-smi prints it.
            float(f"{one['memory_mib'] / 1024:.2f}"),
            [(start, one["size"]) for start in one["starts"] or ()],
        )
        for one in nvml.profiles(0)
    }
    assert found == listed(recording)
    assert len(found) >= 5
