# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask NVML everything that it can be asked without changing anything, and write down each call with arguments, code and time.

    nvml_calls.py OUT [SKIP [ONLY]]

OUT takes a line of JSON before each call and one after it, so that a call that hangs or kills the process is known, and a second
run goes on behind it: what OUT has already is not asked again. SKIP is a file with the calls, one a line, that are not made at all.
ONLY is a regular expression: no other calls are made than those that it finds in their names, and those that they need.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import os
import re
import sys
import time
from typing import Any, Iterator

from gpu_evidence import nvml_arguments
from gpu_evidence.nvml_values import plain

_FIELDS = range(1, 291)
_ROOM = 64
_GPM_METRICS = range(1, 100)


class Recorder:
    """Makes calls, and writes each of them down."""

    def __init__(self, pynvml: Any, out: str, skip: str = "", only: str = "") -> None:
        self.pynvml = pynvml
        self._only = re.compile(f"nvmlInit|nvmlShutdown|DeviceGetCount|HandleByIndex|{only}" if only else "")
        self._done = _finished(out)
        self._skipped = set(_lines(skip))
        self._out = open(out, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 (open as long as the process lives)

    def __call__(self, name: str, *arguments: Any, shown: tuple[Any, ...] = (), **options: Any) -> Any:
        """Call the function C(name) of pynvml; None where it fails.

        :param shown: the arguments as they are written down.
        """
        function = getattr(self.pynvml, name, None)
        if function is None:
            return self._note(name, shown, {"absent": "pynvml does not have it"})
        return self._made(name, [*shown, *options.values()], lambda: (0, function(*arguments, **options)))

    def raw(self, name: str, handle: Any | None, structure: Any, shown: tuple[Any, ...] = ()) -> Any:
        """Call the library's function C(name) itself with a structure by reference, and return that."""

        def call() -> tuple[int, Any]:
            pointer = self.pynvml._nvmlGetFunctionPointer(name)
            reference = ctypes.byref(structure)
            return int(pointer(reference) if handle is None else pointer(handle, reference)), structure

        return self._made(name, [*shown, type(structure).__name__], call)

    def _made(self, name: str, shown: list[Any], call: Any) -> Any:
        key = json.dumps([name, shown])
        if key in self._skipped or not self._only.search(name):
            return None
        quiet = key in self._done
        if not quiet:
            self._write({"begin": [name, shown]})
        entry: dict[str, Any] = {"call": name, "args": shown}
        value = None
        started = time.perf_counter()
        try:
            entry["code"], value = call()
        except self.pynvml.NVMLError as error:
            entry["code"] = int(getattr(error, "value", 999))
        except Exception as error:  # What pynvml itself cannot do is evidence, too.
            entry["exception"] = f"{type(error).__name__}: {error}"
        entry["us"] = round((time.perf_counter() - started) * 1e6, 1)
        if not quiet:
            entry["value"] = plain(value) if entry.get("code") == 0 else None
            self._write(entry)
            self._done.add(key)
        return value

    def _note(self, name: str, shown: tuple[Any, ...], said: dict[str, str]) -> None:
        key = json.dumps([name, list(shown)])
        if key not in self._done:
            self._done.add(key)
            self._write({"call": name, "args": list(shown), **said})

    def not_made(self, name: str, reason: str) -> None:
        self._note(name, (), {"not_made": reason})

    def _write(self, entry: dict[str, Any]) -> None:
        self._out.write(json.dumps(entry) + "\n")


def _lines(path: str) -> list[str]:
    if not path or not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return file.read().splitlines()


def _finished(path: str) -> set:
    found = set()
    for line in _lines(path):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if "call" in entry:
            found.add(json.dumps([entry["call"], entry["args"]]))
    return found


def needed(function: Any) -> int:
    """How many arguments a function of pynvml wants at least."""
    return sum(1 for one in inspect.signature(function).parameters.values() if one.default is one.empty)


def functions(pynvml: Any, *prefixes: str) -> Iterator[tuple[str, Any]]:
    for name in sorted(dir(pynvml)):
        function = getattr(pynvml, name)
        if name.startswith(prefixes) and inspect.isfunction(function) and name not in nvml_arguments.LEFT_OUT:
            yield name, function


def everything(record: Recorder) -> None:
    """All of it, GPU by GPU. The calls that our adapters make are among them, and come first."""
    count = record("nvmlDeviceGetCount") or 0
    handles = [record("nvmlDeviceGetHandleByIndex", index, shown=(index,)) for index in range(count)]
    record("nvmlDeviceGetHandleByIndex", count, shown=(count,))
    _system(record)
    for index, handle in enumerate(handles):
        if handle is not None:
            _gpu(record, f"gpu{index}", handle)
            _mig(record, f"gpu{index}", handle)
            _vgpu(record, f"gpu{index}", handle)
            _events(record, f"gpu{index}", handle)
            _gpm(record, f"gpu{index}", handle)
    for one, first in enumerate(handles):
        for other, second in enumerate(handles):
            if first is not None and second is not None:
                _pair(record, (f"gpu{one}", f"gpu{other}"), first, second)


def _system(record: Recorder) -> None:
    pynvml = record.pynvml
    for name, function in functions(
        pynvml, "nvmlSystemGet", "nvmlUnitGetCount", "nvmlGetExcludedDeviceCount", "nvmlGetVgpuVersion"
    ):
        if not needed(function):
            record(name)
    record("nvmlSystemGetProcessName", os.getpid(), shown=("<own pid>",))
    record("nvmlSystemGetProcessName", 999999999, shown=(999999999,))
    record("nvmlSystemGetTopologyGpuSet", 0, shown=(0,))
    settings = getattr(pynvml, "c_nvmlSystemConfComputeSettings_v1_t", None)
    if settings is not None:
        record.raw("nvmlSystemGetConfComputeSettings", None, settings())
    for capability in range(6):
        record("nvmlGetVgpuDriverCapabilities", capability, shown=(capability,))
    for code in [*range(31), 999]:
        record("nvmlErrorString", code, shown=(code,))


def _gpu(record: Recorder, gpu: str, handle: Any) -> None:
    pynvml = record.pynvml
    for name, function in functions(
        pynvml, "nvmlDeviceGet", "nvmlDeviceWorkloadPowerProfileGet", *nvml_arguments.ALSO_GPU
    ):
        if name in nvml_arguments.STRUCTURES:
            _by_structure(record, gpu, handle, name)
        elif name in nvml_arguments.BEHIND_GPU:
            for arguments in nvml_arguments.BEHIND_GPU[name]:
                record(name, handle, *arguments, shown=(gpu, *_shown(arguments)))
        elif needed(function) == 1:
            record(name, handle, shown=(gpu,))
    for version in (1, 2, 3):
        structure = getattr(pynvml, "nvmlMemory_v2", None) if version == 2 else None
        if structure is not None:
            record("nvmlDeviceGetMemoryInfo", handle, shown=(gpu,), version=structure)
    _handles_by_name(record, gpu, handle)
    for memory in record("nvmlDeviceGetSupportedMemoryClocks", handle, shown=(gpu,)) or ():
        record("nvmlDeviceGetSupportedGraphicsClocks", handle, memory, shown=(gpu, memory))
    record("nvmlDeviceGetSupportedGraphicsClocks", handle, 1, shown=(gpu, 1))
    record("nvmlDeviceGetFieldValues", handle, list(_FIELDS), shown=(gpu, "all"))
    for field in _FIELDS:
        record("nvmlDeviceGetFieldValues", handle, [field], shown=(gpu, [field]))
    for scope in range(1, 3):
        record(
            "nvmlDeviceGetFieldValues",
            handle,
            [(field, scope) for field in _FIELDS],
            shown=(gpu, f"all, scope {scope}"),
        )
    pci = record("nvmlDeviceGetPciInfo_v3", handle, shown=(gpu,))
    if pci is not None:
        record("nvmlDeviceQueryDrainState", pci, shown=(gpu,))


def _shown(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple("<own pid>" if one == os.getpid() else one for one in arguments)


def _by_structure(record: Recorder, gpu: str, handle: Any, name: str) -> None:
    for title in nvml_arguments.STRUCTURES[name]:
        made = getattr(record.pynvml, title, None)
        if made is None:
            record.not_made(name, f"pynvml has no {title}")
        elif name == "nvmlDeviceGetClockOffsets":
            for clock in range(3):
                structure = made()
                structure.type, structure.pstate = clock, 0
                record.raw(name, handle, structure, shown=(gpu, clock, 0))
        else:
            record.raw(name, handle, made(), shown=(gpu,))


def _handles_by_name(record: Recorder, gpu: str, handle: Any) -> None:
    for title, question in (("UUID", "nvmlDeviceGetUUID"), ("Serial", "nvmlDeviceGetSerial")):
        name = record(question, handle, shown=(gpu,))
        if name is not None:
            record(f"nvmlDeviceGetHandleBy{title}", name if title == "Serial" else _bytes(name), shown=(f"<{gpu}>",))
    record("nvmlDeviceGetHandleByUUID", b"GPU-00000000-0000-0000-0000-000000000000", shown=("<nobody's>",))
    pci = record("nvmlDeviceGetPciInfo_v3", handle, shown=(gpu,))
    if pci is not None:
        record("nvmlDeviceGetHandleByPciBusId", _bytes(pci.busId), shown=(f"<{gpu}>",))
    record("nvmlDeviceGetHandleByPciBusId", b"FFFF:FF:1F.0", shown=("FFFF:FF:1F.0",))


def _bytes(text: Any) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode()


def _mig(record: Recorder, gpu: str, handle: Any) -> None:
    """Profiles, places and capacity, also while MIG is off: what a driver answers then is a question of its own."""
    pynvml = record.pynvml
    profiles = set()
    for profile in range(getattr(pynvml, "NVML_GPU_INSTANCE_PROFILE_COUNT", 0x12) + 1):
        for version in (1, 2, 3):
            for name in ("nvmlDeviceGetGpuInstanceProfileInfo", "nvmlDeviceGetGpuInstanceProfileInfoV"):
                info = record(name, handle, profile, shown=(gpu, profile), version=version)
                if info is not None and hasattr(info, "id"):
                    profiles.add(info.id)
    for profile in sorted(profiles):
        places, count = (pynvml.c_nvmlGpuInstancePlacement_t * _ROOM)(), ctypes.c_uint(_ROOM)
        record(
            "nvmlDeviceGetGpuInstancePossiblePlacements",
            handle,
            profile,
            places,
            ctypes.byref(count),
            shown=(gpu, profile),
        )
        record.not_made(
            f"placements of {gpu} {profile}",
            json.dumps(
                {"count": count.value, "places": [[p.start, p.size] for p in places[: min(count.value, _ROOM)]]}
            ),
        )
        record("nvmlDeviceGetGpuInstanceRemainingCapacity", handle, profile, shown=(gpu, profile))
        _instances(record, gpu, handle, profile)
    for index in range(16):
        device = record("nvmlDeviceGetMigDeviceHandleByIndex", handle, index, shown=(gpu, index))
        if device is not None:
            _gpu(record, f"{gpu}/mig{index}", device)


def _instances(record: Recorder, gpu: str, handle: Any, profile: int) -> None:
    pynvml = record.pynvml
    room, count = (pynvml.c_nvmlGpuInstance_t * _ROOM)(), ctypes.c_uint(_ROOM)
    record("nvmlDeviceGetGpuInstances", handle, profile, room, ctypes.byref(count), shown=(gpu, profile))
    if count.value == _ROOM:
        return
    for number, instance in enumerate(room[: count.value]):
        title = f"{gpu}/profile{profile}/{number}"
        for name, function in functions(pynvml, "nvmlGpuInstanceGet"):
            if needed(function) == 1:
                record(name, instance, shown=(title,))
        for inner in range(getattr(pynvml, "NVML_COMPUTE_INSTANCE_PROFILE_COUNT", 9) + 1):
            for version in (1, 2, 3):
                info = record(
                    "nvmlGpuInstanceGetComputeInstanceProfileInfo",
                    instance,
                    inner,
                    0,
                    shown=(title, inner),
                    version=version,
                )
            if info is not None:
                _compute_instances(record, title, instance, info.id)


def _compute_instances(record: Recorder, title: str, instance: Any, profile: int) -> None:
    pynvml = record.pynvml
    record("nvmlGpuInstanceGetComputeInstanceRemainingCapacity", instance, profile, shown=(title, profile))
    room, count = (pynvml.c_nvmlComputeInstance_t * _ROOM)(), ctypes.c_uint(_ROOM)
    record("nvmlGpuInstanceGetComputeInstances", instance, profile, room, ctypes.byref(count), shown=(title, profile))
    if count.value < _ROOM:
        for number, one in enumerate(room[: count.value]):
            record("nvmlComputeInstanceGetInfo", one, shown=(f"{title}/{profile}/{number}",))
            record("nvmlComputeInstanceGetInfo_v2", one, shown=(f"{title}/{profile}/{number}",))


def _vgpu(record: Recorder, gpu: str, handle: Any) -> None:
    kinds = record("nvmlDeviceGetSupportedVgpus", handle, shown=(gpu,)) or ()
    for kind in list(kinds)[:3]:
        record("nvmlVgpuTypeGetMaxInstances", handle, kind, shown=(gpu, int(kind)))
        for name, function in functions(record.pynvml, "nvmlVgpuTypeGet"):
            if needed(function) == 1:
                record(name, kind, shown=(int(kind),))


def _events(record: Recorder, gpu: str, handle: Any) -> None:
    """An event set of this process alone, as the device plugin makes one; it is gone with it."""
    kinds = record("nvmlDeviceGetSupportedEventTypes", handle, shown=(gpu,))
    events = record("nvmlEventSetCreate", shown=(gpu,))
    if kinds is None or events is None:
        return
    record("nvmlDeviceRegisterEvents", handle, kinds, events, shown=(gpu, "<all>"))
    record("nvmlEventSetWait_v2", events, 10, shown=(gpu, 10))
    record("nvmlEventSetFree", events, shown=(gpu,))


def _gpm(record: Recorder, gpu: str, handle: Any) -> None:
    support = record("nvmlGpmQueryDeviceSupport", handle, shown=(gpu,))
    if not getattr(support, "isSupportedDevice", 0):
        return
    first, second = record("nvmlGpmSampleAlloc", shown=(gpu, 1)), record("nvmlGpmSampleAlloc", shown=(gpu, 2))
    if first is None or second is None:
        return
    record("nvmlGpmSampleGet", handle, first, shown=(gpu, 1))
    time.sleep(0.2)
    record("nvmlGpmSampleGet", handle, second, shown=(gpu, 2))
    question = record.pynvml.c_nvmlGpmMetricsGet_t()
    question.version = getattr(record.pynvml, "NVML_GPM_METRICS_GET_VERSION", 1)
    question.numMetrics, question.sample1, question.sample2 = len(_GPM_METRICS), first, second
    for index, metric in enumerate(_GPM_METRICS):
        question.metrics[index].metricId = metric
    record("nvmlGpmMetricsGet", question, shown=(gpu, "1 to 99"))
    record("nvmlGpmSampleFree", first, shown=(gpu, 1))
    record("nvmlGpmSampleFree", second, shown=(gpu, 2))


def _pair(record: Recorder, titles: tuple[str, str], first: Any, second: Any) -> None:
    for index in range(7):
        record("nvmlDeviceGetP2PStatus", first, second, index, shown=(*titles, index))
    record("nvmlDeviceGetTopologyCommonAncestor", first, second, shown=titles)
    record("nvmlDeviceOnSameBoard", first, second, shown=titles)


def untouched(record: Recorder) -> None:
    """Name the calls that read and were not made, with what they would want."""
    made = {json.loads(key)[0] for key in record._done}
    for name, function in functions(record.pynvml, "nvml"):
        if "Get" in name and name not in made:
            record.not_made(name, f"wants {', '.join(inspect.signature(function).parameters)}")
    for name, reason in nvml_arguments.LEFT_OUT.items():
        if name not in made:
            record.not_made(name, reason)


def main(out: str, skip: str = "", only: str = "") -> int:
    import pynvml

    record = Recorder(pynvml, out, skip, only)
    # Without NVML there is nothing to ask: each further call would say the same.
    record("nvmlInit")
    if not _works(pynvml):
        return 4
    everything(record)
    if not only:
        untouched(record)
    # After this one every call answers UNINITIALIZED.
    record("nvmlShutdown")
    record("nvmlDeviceGetCount", shown=("<after nvmlShutdown>",))
    return 0


def _works(pynvml: Any) -> bool:
    try:
        pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
