# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wanted of a fleet: the variable C(gpu_recommend_demand), pods that wait, and files of requests over time. Pure.

All become the same lines; C(wanted) says what of a fleet serves each of them.
"""

from __future__ import annotations

import csv
import datetime
import io
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil
from typing import Any, NamedTuple

from ...module_utils._boards.board import GpuInstanceProfile
from ...module_utils._boards.lookup import keyed
from ...module_utils._formats.documents import read_json, whole_number
from ...module_utils._mig.geometry import ENGINES
from ...module_utils._mig.model import parse, resolve
from ...module_utils._plan import Refused
from ...module_utils._schema import check, has, items, mapping, needs, not_null, number, of, row
from ...module_utils._schema import text as text_of
from ...module_utils._sharing.modes import memory_mib
from ...module_utils._sharing.mps_instances import GPU, mig_resource
from ..fleet import claims, pods
from ..fleet.objects import metadata
from .problem import WHOLE, UnitKind, WantedUnits

VARIABLE = "gpu_recommend_demand"
_KEYS = ("profile", "memory", "count", "priority", "pool")
_COLUMNS = ("submitted", "ended", "profile", "memory", "priority")
#: As Prometheus writes a number of requests, which may be a mean.
_COUNT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,18})?([eE][-+]?0?[0-9])?")
#: The least and the most that Kubernetes gives a pod (kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption).
LOWEST, _HIGHEST = -(2**31), 2 * 10**9 + 1000


@dataclass(frozen=True)
class DemandLine:
    """Requests that are alike.

    :param path: where they are asked for, for messages.
    :param profile: a MIG profile, C(gpu) for a whole GPU, or None where only memory is asked for.
    :param pool: the pool that serves it; None: any.
    :param pods: pods that wait: nothing but the resource that they ask for serves them, and nothing is refused because of them.
    :param claimed: the pods ask for it by a ResourceClaim.
    :param devices: how many of it each pod asks for. What else it asks for has lines with the same path.
    """

    path: str
    profile: str | None
    memory_mib: int | None
    count: int = 1
    priority: int = 0
    pool: str | None = None
    pods: bool = False
    claimed: bool = False
    devices: int = 1


def described(value: Any) -> list[DemandLine]:
    """Return the demand of the variable. Raises Refused: it is none, with the path."""
    if not isinstance(value, (list, tuple)):
        raise Refused(VARIABLE, "must be a list", "For example [{profile: 1g.10gb, count: 4}].")
    found = []
    for place, item in enumerate(value):
        path = f"{VARIABLE}[{place}]"
        if not isinstance(item, Mapping):
            raise Refused(path, "every entry must be a mapping", "For example {profile: 1g.10gb, count: 4}.")
        strange = sorted(str(key) for key in item if key not in _KEYS)
        if strange:
            raise Refused(f"{path}.{strange[0]}", "is not a key of a demand", f"The keys are {', '.join(_KEYS)}.")
        count = _integer(item.get("count", 1), f"{path}.count", 1, 10**6)
        priority = _integer(item.get("priority", 0), f"{path}.priority", LOWEST, _HIGHEST)
        pool = item.get("pool")
        if pool is not None and not isinstance(pool, str):
            raise Refused(f"{path}.pool", f"{pool!r} is not the name of a pool", "Name a group below gpu_hosts.")
        found.append(DemandLine(path, *_what(item, path), count, priority, pool))
    return found


def _integer(value: Any, path: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Refused(path, f"{value!r} must be an integer from {least} to {most}", "")
    return value


def _what(item: Mapping[str, Any], path: str) -> tuple[str | None, int | None]:
    """Return the profile and the memory of a request, of which it has one."""
    given = {key: item[key] for key in ("profile", "memory") if item.get(key) not in (None, "")}
    if len(given) != 1:
        reason = "has both profile and memory" if given else "has neither profile nor memory"
        raise Refused(path, reason, "Give one: profile: 1g.10gb, profile: gpu for a whole GPU, or memory: 10GiB.")
    if "memory" in given:
        return None, memory_mib(str(given["memory"]), f"{path}.memory")
    profile = str(given["profile"])
    return (WHOLE if profile == WHOLE else parse(profile, f"{path}.profile").gpu_instance), None


def waiting(
    found_pods: Iterable[tuple[pods.Pod, Mapping[str, Any]]], resource_claims: Iterable[Mapping[str, Any]] = ()
) -> list[DemandLine]:
    """Return what the pods ask for that no node has taken yet, by the priority that Kubernetes has given each.

    :param found_pods: each with the object of the API of which it was read. C(resource_claims): objects of the API.
    """
    named = {(str(metadata(one).get("namespace")), str(metadata(one).get("name"))): one for one in resource_claims}
    counted: set[tuple[str, str]] = set()
    found: Counter[tuple[int, tuple[tuple[str, int], ...]]] = Counter()
    for pod, document in found_pods:
        spec = document.get("spec") or {}
        if pod.phase == "Pending" and not spec.get("nodeName") and not pod.terminating:
            devices = (*pod.devices.items(), *claims.waiting(document, named, counted).items())
            found[int(spec.get("priority") or 0), devices] += bool(devices)
    lines = []
    for (priority, devices), count in sorted((+found).items()):
        asked = ", ".join(f"{each} x {resource}" for resource, each in devices)
        path = f"pods of priority {priority} that wait for {asked}"
        for resource, each in devices:
            claimed = resource.startswith((claims.GPU_CLASS, claims.MIG_CLASS))
            what = profile_of_resource(resource), None
            lines.append(DemandLine(path, *what, count, priority, pods=True, claimed=claimed, devices=each))
    return lines


def free(value: Mapping[str, Any]) -> list[DemandLine]:
    """Return what is to stay free, by profile (C(gpu_recommend_free)): requests that come after all others."""
    found = []
    for name, count in value.items():
        path = f"gpu_recommend_free['{name}']"
        profile, memory = _what({"profile": name}, path)
        found.append(DemandLine(path, profile, memory, _integer(count, path, 0, 10**6), LOWEST))
    return found


def profile_of_resource(resource: str) -> str:
    """Return the profile of an extended resource or of devices that are claimed, C(gpu) for whole GPUs, and the resource itself where it is of neither."""
    name = resource[: -len(".shared")] if resource.endswith(".shared") else resource
    if name in (GPU, claims.GPU_CLASS):
        return WHOLE
    return name.removeprefix(claims.mig_devices("")).removeprefix(mig_resource("")).replace("gb.", "gb+", 1)


def over_time(text: str, path: str, headroom: int = 0) -> list[DemandLine]:
    """Return the most requests of each kind, priority and pool that a file had at once.

    :param text: JSON as Prometheus answers a query, or CSV with a header: C(submitted), C(ended) (empty: still there), C(profile) or C(memory), and maybe
        C(priority). Moments are seconds, or ISO 8601 with a zone.
    :param headroom: how many percent more are wanted, rounded up.
    :raises Refused: the file is malformed; the path has the line and the column, or the place in the answer.
    """
    read = _of_prometheus if text.lstrip().startswith("{") else _of_csv
    most = read(text.removeprefix("\ufeff"), path).items()
    # A hundredth of a percent keeps what floating point adds from being a request more.
    counts = ((key, ceil(round(count * (100 + headroom), 2) / 100)) for key, count in most)
    return [DemandLine(path, key.profile, key.memory, count, key.rank, key.pool) for key, count in counts if count]


class _Asked(NamedTuple):
    profile: str | None
    memory: int | None
    rank: int
    pool: str | None = None


def _of_csv(text: str, path: str) -> dict[_Asked, float]:
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        (_line, header), *rows = [(reader.line_num, cells) for cells in reader if cells] or [(1, [])]
    except csv.Error as malformed:
        raise Refused(f"{path}:{reader.line_num}", f"invalid CSV: {malformed}", "") from None
    strange = [number for number, name in enumerate(header) if name not in _COLUMNS or name in header[:number]]
    if strange or not {"submitted", "ended"} <= set(header) or not {"profile", "memory"} & set(header):
        where = f"{path}:1, column {strange[0] + 1}" if strange else f"{path}:1"
        remedy = f"The columns are {', '.join(_COLUMNS)}, each once; profile or memory."
        raise Refused(where, f"the header is {','.join(header)!r}", remedy)
    events: dict[_Asked, list[tuple[float, int]]] = {}
    for line, cells in rows:
        if len(cells) != len(header):
            reason = f"has {len(cells)} columns, and the header has {len(header)}"
            raise Refused(f"{path}:{line}, column {min(len(cells), len(header)) + 1}", reason, "")
        item = dict(zip(header, cells))
        place = {name: f"{path}:{line}, column {number}" for number, name in enumerate(header, 1)}
        start = _moment(item["submitted"], place["submitted"])
        end = _moment(item["ended"], place["ended"]) if item["ended"] else float("inf")
        if end < start:
            raise Refused(place["ended"], f"{item['ended']} is before {item['submitted']}, when it was submitted", "")
        what = _what(item, place["profile" if item.get("profile") or "memory" not in place else "memory"])
        key = _Asked(*what, _rank(item.get("priority"), place.get("priority", "")))
        events.setdefault(key, []).extend([(start, 1), (end, -1)])
    # Who ends at a moment makes room for who comes then.
    return {key: max(accumulate(change for _at, change in sorted(changes))) for key, changes in events.items()}


_SAMPLE = row(number(0, real=True), text_of())


@dataclass(frozen=True)
class _Series:
    metric: Mapping[str, str] = needs(mapping(not_null(text_of())))
    value: tuple[float, str] | None = has(_SAMPLE)
    values: tuple[tuple[float, str], ...] | None = has(items(_SAMPLE))


@dataclass(frozen=True)
class _Result:
    result: tuple[_Series, ...] = needs(items(of(_Series)))


def _of_prometheus(text: str, path: str) -> dict[_Asked, float]:
    """Read an answer (prometheus.io/docs/prometheus/latest/querying/api): labels say what is asked for, and samples how many there were.

    Series with equal labels of these add up.
    """
    try:
        series = check(of(_Result), read_json(text).get("data"), f"{path}: data").result
    except json.JSONDecodeError as malformed:
        where = f"{path}:{malformed.lineno}, column {malformed.colno}"
        raise Refused(where, f"invalid JSON: {malformed.msg}", "") from None
    except ValueError as malformed:
        raise Refused(path, str(malformed), "") from None
    found: dict[_Asked, dict[float, float]] = {}
    for position, one in enumerate(series):
        place, labels = f"{path}: data.result[{position}]", one.metric
        # As kube-state-metrics writes nvidia.com/mig-1g.10gb: nvidia_com_mig_1g_10gb.
        resource = labels.get("resource", "").replace("nvidia_com_", "nvidia.com/").replace("/mig_", "/mig-")
        profile = labels.get("profile") or (profile_of_resource(resource.replace("_", ".")) if resource else "")
        what = _what({"profile": profile, "memory": labels.get("memory")}, f"{place}.metric")
        key = _Asked(*what, _rank(labels.get("priority"), f"{place}.metric.priority"), labels.get("pool") or None)
        samples = one.values if one.value is None else (one.value,)
        if not samples:
            raise Refused(place, "it has neither value nor values", "Save the answer of query or query_range.")
        for moment, count in samples:
            if not _COUNT.fullmatch(count):
                raise Refused(place, f"its value {count!r} at {moment} must be a number from 0 on", "")
            moments = found.setdefault(key, {})
            moments[moment] = moments.get(moment, 0.0) + float(count)
    return {key: max(counts.values()) for key, counts in found.items()}


def _rank(text: str | None, path: str) -> int:
    """Return a priority that is written as text; 0 where there is none."""
    rank = whole_number((text or "0").removeprefix("-"))
    if rank is None:
        raise Refused(path, f"{text!r} must be an integer", "")
    return _integer(-rank if str(text).startswith("-") else rank, path, LOWEST, _HIGHEST)


def _moment(text: str, path: str) -> float:
    try:
        seconds = whole_number(text.replace(".", "", 1)) is not None
        moment = None if seconds else datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
        if moment is None or moment.tzinfo is not None:
            return float(text) if moment is None else moment.timestamp()
    except ValueError:
        pass
    raise Refused(path, f"{text!r} is not a moment", "Write seconds, or 2026-11-27T18:00:00+00:00.")


def wanted(
    lines: Sequence[DemandLine],
    pools: Mapping[str, Iterable[str]],
    boards: Mapping[str, tuple[GpuInstanceProfile, ...]],
    larger: bool = False,
    by_claims: Collection[str] = (),
) -> tuple[list[WantedUnits], dict[str, str]]:
    """Return the demand with what serves each request, and why pods that wait are left out.

    :param pools: the boards of each pool. C(boards): their profiles.
    :param larger: whether a larger profile may serve a smaller request.
    :param by_claims: the pools that serve claims; pods that wait for a MIG device as an extended resource are served by the others.
    :raises Refused: nothing in the fleet can serve a request, whatever its layouts are.
    """
    found, left_out, gone = [], {}, set()
    for line in lines:
        if line.pool is not None and line.pool not in pools:
            remedy = f"It has {', '.join(sorted(pools))}."
            raise Refused(f"{line.path}.pool", f"the fleet has no pool {line.pool}", remedy)
        there = [
            (pool, name)
            for pool in ([line.pool] if line.pool is not None else sorted(pools))
            for name in sorted(set(pools[pool]))
            if not line.pods or line.claimed == (pool in by_claims) or (line.profile == WHOLE and not line.claimed)
        ]
        kinds = [
            UnitKind(pool, name, profile)
            for pool, name in there
            for profile in serving(line, name, boards[name], larger and not line.pods)
        ]
        if not kinds:
            names = sorted({profile.name for _pool, name in there for profile in boards[name]})
            reason = f"no GPU of {line.pool or 'the fleet'} offers {line.profile or f'{line.memory_mib}MiB'}"
            if not there:
                reason = f"no pool serves {'claims' if line.claimed else 'extended resources'}"
            if not line.pods:
                raise Refused(line.path, reason, f"Its profiles are {', '.join(names) or 'none'}.")
            left_out[f"{line.count} {line.path}"] = reason
            gone.add(line.path)
            continue
        each, pod = line.devices, line.path if line.pods else ""
        found.append(WantedUnits(tuple(kinds), line.count * each, line.priority, line.pods, each, pod))
    # Of a pod all is served or nothing.
    return [one for one in found if one.pod not in gone], left_out


def serving(line: DemandLine, board: str, profiles: Sequence[GpuInstanceProfile], larger: bool) -> list[str]:
    """Return the profiles of a board that serve a request; where a larger one may, the whole GPU as well."""
    if line.profile == WHOLE:
        return [WHOLE]
    plain = [one for one in profiles if one.memory_mib is not None and not {"+", "-"} & set(one.name)]
    if line.profile is not None:
        try:
            least = resolve(line.profile, profiles)
        except Refused:
            return []
        more = [one for one in plain if one.gpu_slices >= least.gpu_slices]
        for size in ("memory_mib", *ENGINES):
            more = [one for one in more if (getattr(one, size) or 0) >= (getattr(least, size) or 0)]
        names = [least.name, *(one.name for one in more), WHOLE]
    else:
        asked, known = line.memory_mib or 0, keyed(board)
        fits = [one for one in plain if (one.memory_mib or 0) >= asked]
        names = [one.name for one in sorted(fits, key=lambda one: (one.memory_mib or 0, one.gpu_slices))]
        names += [WHOLE] if known is not None and (known.total_memory_mib or 0) >= asked else []
    return list(dict.fromkeys(names if larger else names[:1]))
