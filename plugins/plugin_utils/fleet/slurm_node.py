# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: RUF009 (the functions declare fields)

"""Whether Slurm offers of a node what is described: C(slurmd -G) and C(scontrol show node) beside a rendered C(capacity.json). Pure.

Fewer devices than configured drain a node as INVALID_REG. One more is ignored with a warning of slurmd alone, and is lost while the node looks idle.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...module_utils._formats.documents import read_record, whole_number
from ...module_utils._formats.slurm_jobs import device_files
from ...module_utils._gpu_facts import ComputeInstanceFacts, GpuFacts
from ...module_utils._health.report import FAILED, PASSED, WARNING, Check
from ...module_utils._plan import Refused
from ...module_utils._printable import printable
from ...module_utils._schema import has, items, mapping, needs, number, of, text

_TEXT = text(4096)
#: C(slurmd: Gres Name=gpu Type=... Count=1 Index=0 ID=7696487 File=/dev/nvidia0 (null)); what is not set is left out, and later releases add flags.
_LINE = re.compile(r"Gres Name=(\S+)(.*)")
_SETTING = re.compile(r"(Type|Count|File)=(\S+)")
_IGNORED = re.compile(r"for GRES (gpu:\S+|gpu) has (\d+) more configured than expected")
#: C(gpu:a100:8(S:0-1,3)): scontrol adds the sockets, counts in C(K) and more, and has an order of its own.
_OFFER = re.compile(r"(?:^|,)([^,()]+?)(?::([0-9]+)([KMGTP]?))?(?:\([^)]*\))?(?=,|$)")
_SCALES = "KMGTP"
#: What slurmd says without a slurm.conf, and where it does not find who sends it one.
_UNREAD = re.compile(r".*(s_p_parse_file|_establish_configuration).*")
_FIELD = re.compile(r"(?:^|\s)(Gres|State|Reason)=(.*?)(?=\s+[A-Z][A-Za-z]+=|\s*$)")
#: The order that heals (C(scontrol reconfigure) does not).
_RESTART = "Restart slurmctld, then slurmd on the node, and resume it: scontrol update nodename={node} state=resume"
_TOLD = "See whether slurm.conf has the rendered TaskProlog, or ConstrainDevices works"
_FILES = "Render, bring the files to the controllers and the node, and restart both daemons"


@dataclass(frozen=True)
class ShownDevice:
    """A device as a rendered C(capacity.json) says it. Where slurmd finds it itself, its files are not compared."""

    type: str = needs(_TEXT)
    files: tuple[str, ...] = has(items(_TEXT, 64), ())


@dataclass(frozen=True)
class ShownByScontrol:
    gres: str = needs(_TEXT, called="Gres")


@dataclass(frozen=True)
class ShownSlurmNode:
    """A node as a rendered C(capacity.json) says it."""

    host: str = needs(_TEXT)
    scontrol: ShownByScontrol = needs(of(ShownByScontrol))
    gres: Mapping[str, int] = needs(mapping(number(), 4096))
    devices: tuple[ShownDevice, ...] = needs(items(of(ShownDevice), 4096))


@dataclass(frozen=True)
class ShownSlurmCluster:
    nodes: Mapping[str, ShownSlurmNode] = needs(mapping(of(ShownSlurmNode), 10**5))


_CLUSTER = of(ShownSlurmCluster)


def read_nodes(text: str | None, source: str) -> Mapping[str, ShownSlurmNode]:
    """Return the nodes of a rendered C(capacity.json); none where there is no file. Raises Refused: it is no such file."""
    if text is None:
        return {}
    found: ShownSlurmCluster | None = read_record(_CLUSTER, text)
    if found is None:
        reason = "it is not a capacity.json that gpufleet.nvidia.render wrote for a Slurm cluster"
        raise Refused(source, reason, "Restore the file from version control, or render into another directory.")
    return found.nodes


@dataclass(frozen=True)
class FoundBySlurmd:
    """What C(slurmd -G) prints: how many devices it has, by name and type, their files in the order of their numbers, and how many more it ignores."""

    counts: Counter[str]
    devices: tuple[ShownDevice, ...]
    ignored: Counter[str]


def found_by_slurmd(printed: str) -> FoundBySlurmd:
    """Return what C(slurmd -G) printed. What it says of resources that are not GPUs is left out."""
    counts: Counter[str] = Counter()
    ignored: Counter[str] = Counter()
    devices = []
    for line in printed.splitlines():
        match = _LINE.search(line)
        if match and match[1] in ("gpu", "mps", "shard"):
            said = dict(_SETTING.findall(match[2]))
            kind = ":".join([match[1], *([said["Type"]] if "Type" in said else [])])
            count = whole_number(said.get("Count", "1")) or 0
            counts[kind] += count
            if match[1] == "gpu" and count:
                devices.append(ShownDevice(said.get("Type", ""), tuple(said.get("File", "").split(","))))
        more = _IGNORED.search(line)
        if more:
            ignored[more[1]] += whole_number(more[2]) or 0
    return FoundBySlurmd(+counts, tuple(devices), ignored)


def checks(name: str, expected: ShownSlurmNode, slurmd: str, scontrol: str) -> tuple[Check, ...]:
    """Return what Slurm offers of the node beside what it must. The first failure is the one to fix.

    :param slurmd: what C(slurmd -G) printed on the node.
    :param scontrol: what C(scontrol show node) printed.
    """
    return (_slurmd(expected, found_by_slurmd(slurmd), slurmd), *_scontrol(name, expected, scontrol))


def job_checks(
    expected: ShownSlurmNode, gpus: Sequence[GpuFacts], jobs: Mapping[str, str], constrained: bool
) -> tuple[Check, ...]:
    """Return whether a job of each type saw a device of its type.

    :param jobs: by name and type, C(CUDA_VISIBLE_DEVICES) of its job, or why that did not run.
    :param constrained: whether cgroups leave a job its own device alone, which has a number then.
    """
    names: dict[tuple[str, ...], tuple[str | None, ...]] = {}
    for gpu in gpus:
        names[device_files(gpu.minor or 0)] = (gpu.uuid,)
        for ids, part in (((one.id, part.id), part) for one in gpu.gpu_instances for part in one.compute_instances):
            names[device_files(gpu.minor or 0, *ids)] = (part.uuid, f"MIG-{gpu.uuid}/{ids[0]}/{ids[1]}")
    found = []
    for kind, seen in jobs.items():
        mine = [one.files for one in expected.devices if one.type == kind.partition(":")[2]]
        if whole_number(seen) is not None:
            right = constrained or all(len(files) < 2 for files in mine)
        else:
            # What slurmd finds itself has no files here.
            right = any(seen in known for files, known in names.items() if files in mine or () in mine)
        said = printable(seen) if right else f"no device of its type: {printable(seen) or 'nothing'}"
        found.append(Check(f"job with {kind}:1", PASSED if right else FAILED, said, _TOLD))
    return tuple(found)


def jobs_elsewhere(gpus: Sequence[GpuFacts]) -> tuple[Check, ...]:
    """Return which jobs were told another device than Slurm gave them. A user may tell a job so, which is no fault of the host."""
    parts: list[GpuFacts | ComputeInstanceFacts] = [*gpus]
    parts += (part for gpu in gpus for one in gpu.gpu_instances for part in one.compute_instances)
    wrong = [
        f"job {one.job} of {one.user or 'an unknown user'} has {one.resource} ({part.uuid}) and sees {one.sees}"
        for part in parts
        for one in part.allocations
        if one.job and one.sees
    ]
    step = f"{_TOLD}, and requeue the jobs: scontrol requeue"
    return (Check("slurm jobs", WARNING, "; ".join(wrong), step),) if wrong else ()


def _slurmd(expected: ShownSlurmNode, found: FoundBySlurmd, printed: str) -> Check:
    title = "slurmd -G"
    unread = _UNREAD.search(printed)
    if unread and not found.counts:
        step = "See whether slurm.conf is there. A slurmd that slurmctld sends its configuration has none: ask it with --conf-server, as it is started"
        return Check(title, FAILED, f"it has no configuration: {printable(unread[0].strip())}", step)
    if found.ignored:
        lost = ", ".join(f"{kind} x{count}" for kind, count in sorted(found.ignored.items()))
        why = f"slurmd ignores devices of gres.conf that slurm.conf does not have, and no job gets them: {lost}"
        return Check(title, FAILED, why, _FILES)
    there, mine = found.counts, Counter(expected.gres)
    kinds = (kind for kind in sorted({*mine, *there}) if there[kind] != mine[kind])
    wrong = [f"{kind} {there[kind]} instead of {mine[kind]}" for kind in kinds]
    if wrong:
        return Check(title, FAILED, f"it finds {', '.join(wrong)}", _FILES)
    told = all(one.files for one in expected.devices)
    if told and expected.devices != found.devices:
        what = "its devices are in another order"
        for one in (one for one in expected.devices if one not in found.devices):
            what = f"{one.type} with {', '.join(one.files)} is not among its devices"
            break
        return Check(title, FAILED, f"{what}: a job would get another device, or none", _FILES)
    return Check(title, PASSED, expected.scontrol.gres)


def _offered(gres: str) -> Counter[str]:
    """Return how many a node has, by name and type."""
    counts: Counter[str] = Counter()
    for name, many, scale in _OFFER.findall(gres):
        counts[name] += (whole_number(many or "1") or 0) * 1024 ** (_SCALES.find(scale) + 1 if scale else 0)
    return counts


def _scontrol(name: str, expected: ShownSlurmNode, printed: str) -> tuple[Check, ...]:
    title = "scontrol show node"
    said = {key: value for line in printed.splitlines() for key, value in _FIELD.findall(line)}
    if "State" not in said:
        step = "See whether slurm.conf includes nodes.conf, and restart slurmctld"
        why = f"the cluster has no node {name}"
        if not re.search(r"\bNode \S+ not found", printed):
            step = "See whether scontrol is installed on the host, its slurm.conf names the controller, and slurmctld runs there"
            line = next((line.strip() for line in printed.splitlines() if line.strip()), "it printed nothing")
            why = f"slurmctld gave no answer: {printable(line)}"
        return (Check(title, FAILED, why, step),)
    state, reason = said["State"].split("+"), said.get("Reason", "").strip()
    because = f": {reason}" if reason else ""
    if "INVALID_REG" in state:
        step = f"{_RESTART.format(node=name)}. If it stays, slurmd -G says what is missing"
        return (Check(title, FAILED, f"{said['State']}{because}", step),)
    if _offered(said.get("Gres", "").strip()) != _offered(expected.scontrol.gres):
        why = f"it offers {said.get('Gres', 'nothing')} instead of {expected.scontrol.gres}"
        return (Check(title, FAILED, why, _RESTART.format(node=name)),)
    out = {"DRAIN", "DOWN", "FAIL", "UNKNOWN"} & {part.rstrip("*$@^!%~#-") for part in state}
    return (Check(title, WARNING if out else PASSED, f"{said['State']}{because}", ""),)
