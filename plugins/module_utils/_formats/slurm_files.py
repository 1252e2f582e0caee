# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names of nodes as Slurm writes them, ranges and all, and what the files of a site say of nodes that are described. Pure."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Callable

from .._plan import Refused

NODE_NAME = "gpu_slurm_node_name"
#: What slurmd compares with the short host name (C(gethostname_short)).
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")
#: Words with a meaning of their own where Slurm takes names of nodes.
_WORDS = ("default", "all", "localhost", "none")
_NUMBERED = re.compile(r"(.*?)([0-9]+)")
_SETTING = re.compile(r"""([A-Za-z_]+)\s*[+-]?=\s*("[^"]*"|'[^']*'|\S*)""")
_INCLUDE = re.compile(r"^\s*include\s+(\S+)", re.IGNORECASE | re.MULTILINE)
_LISTED = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
#: More nodes than any cluster has, in one name of a file of the site.
_MOST = 100_000
#: More files than any site has.
_MOST_FILES = 256
#: Resources that only one file may define for a node.
_OURS = ("gpu", "mps", "shard")


def refuse_name(host: str, name: str) -> None:
    """Refuse what Slurm does not take for the name of a node, or slurmd never finds."""
    if not _NAME.fullmatch(name) or name.isdigit() or name.lower() in _WORDS:
        words = ", ".join(_WORDS)
        reason = (
            f"{name!r} is no name of a node in Slurm: at most 63 letters, digits, '-' and '_', not digits alone, without a domain, "
            f"and none of {words}"
        )
        if "[" in name or "," in name:
            reason = f"{name!r} names several nodes of Slurm, all of which would be drained, and a host is one"
        thing = f"{host}: {NODE_NAME}" if host else NODE_NAME
        raise Refused(thing, reason, "Set it to what hostname -s prints on the host.")


def compressed(names: Iterable[str]) -> str:
    """Return names of nodes as one list of Slurm: C(gpu[01-03,07],login)."""
    groups: dict[tuple[str, int], list[int]] = {}
    others = []
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match and len(match[2]) < 10:
            groups.setdefault((match[1], len(match[2])), []).append(int(match[2]))
        else:
            others.append(name)
    found = []
    for (prefix, width), numbers in sorted(groups.items()):
        runs = []
        for _key, run in itertools.groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
            first, *_between = members = [number for _position, number in run]
            last = members[-1]
            runs.append(f"{first:0{width}}" if first == last else f"{first:0{width}}-{last:0{width}}")
        alone = len(numbers) == 1
        found.append(f"{prefix}{runs[0]}" if alone else f"{prefix}[{','.join(runs)}]")
    return ",".join([*found, *sorted(others)])


def expanded(text: str) -> set[str]:
    """Return the names that a list of Slurm means."""
    found: set[str] = set()
    for one in _LISTED.findall(text):
        # Every second part was in brackets.
        parts = [_numbers(part) if at % 2 else [part] for at, part in enumerate(re.split(r"\[([^\]]*)\]", one))]
        found.update(map("".join, itertools.islice(itertools.product(*parts), _MOST)))
    return found


def _numbers(ranges: str) -> list[str]:
    """Return the numbers of C(01-03,7); none for what is no range, with which Slurm does not start."""
    found: list[str] = []
    for first, last in (match.groups() for match in map(_RANGE.fullmatch, ranges.split(",")) if match):
        end = min(int(last or first), int(first) + _MOST)
        found += [f"{number:0{len(first)}}" for number in range(int(first), end + 1)]
    return found


def settings(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Give the settings of each line of one of Slurm's files, by lower-case name, with the number of the line; lines that go on count as one."""
    whole, begun = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        begun = begun if whole else number
        whole += re.sub(r"(?<!\\)#.*", "", line)
        if whole.rstrip().endswith("\\"):
            whole = whole.rstrip()[:-1] + " "
            continue
        found = {name.lower(): value.strip("\"'") for name, value in _SETTING.findall(whole)}
        if found:
            yield begun, found
        whole = ""


def included(text: str, folder: str) -> list[str]:
    """Return the files that one of Slurm's files includes. C(folder): where slurm.conf is."""
    return [posixpath.join(folder, path.strip("\"'")) for path in _INCLUDE.findall(text)]


def read_with_includes(paths: Iterable[str], folder: str, read: Callable[[str], str | None]) -> dict[str, str]:
    """Return the texts of files of Slurm that are there, and of what they include, by their path. C(folder): where slurm.conf is."""
    left, found = [*paths], dict[str, str]()
    while left and len(found) < _MOST_FILES:
        path = left.pop(0)
        text = None if path in found else read(path)
        if text is not None:
            found[path] = text
            left += included(text, folder)
    return found


def lines_of(files: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the L(settings) of each line of some files."""
    return [line for text in files.values() for _number, line in settings(text)]


def elsewhere(files: Mapping[str, str], nodes: Collection[str]) -> Iterator[Refused]:
    """Give the lines of the site that define one of the nodes, or its GPUs: Slurm takes the last definition, or does not start.

    :param files: by path, the text of slurm.conf, of gres.conf, and of what they include.
    """
    ours = set(nodes)
    for path, text in sorted(files.items()):
        for number, line in settings(text):
            thing = f"{path}, line {number}"
            named = expanded(line["nodename"]) if "nodename" in line else None
            of_gres = "name" in line or "autodetect" in line
            both = sorted(named & ours) if named is not None else []
            if "grestypes" in line:
                remedy = "Remove the line, and list what it names beside gpu in gpu_slurm_gres_types."
                yield Refused(thing, "it sets GresTypes, which the rendered nodes.conf sets", remedy)
            if both and not of_gres:
                reason = f"it defines the node {both[0]}, which the rendered nodes.conf defines"
                remedy = "Remove the node there, and set its parameters in gpu_slurm_node_parameters."
                yield Refused(thing, reason, remedy)
            detects = line.get("autodetect", "off").lower() != "off"
            if of_gres and (both or named is None) and (detects or line.get("name", "").lower() in _OURS):
                whose = both[0] if both else "every node"
                reason = f"it defines GPUs of {whose}, which the rendered gres.conf defines"
                yield Refused(thing, reason, "Remove it, or name the other nodes there (NodeName=).")
