# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan the rendered files of Slurm on a host, and which daemon has to take them up. Pure.

A node's slurmd has to be restarted for what the files say of that node, and slurmctld for all of them. C(scontrol reconfigure) takes up neither number
nor devices of a node (measured with 22.05.8). So a record beside the files says what each daemon was last started with.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from .._formats.slurm_files import expanded, included, settings
from .._plan import Plan, Refused, Step
from .._steps import Kind

SLURMD, SLURMCTLD = "slurmd", "slurmctld"
#: The files of the site in which ours of the same purpose are included.
INCLUDED_IN = {"nodes.conf": "slurm.conf", "gres.conf": "gres.conf", "cgroup.conf": "cgroup.conf"}
PROLOG = "task-prolog.sh"
NAMES = (*INCLUDED_IN, PROLOG)
RECORD = "applied.json"
UNDER_JOBS = "gpu_slurm_restart_under_jobs"


@dataclass(frozen=True)
class DesiredSlurm:
    """What a host of a Slurm cluster has.

    :param node: its name in Slurm; empty on a controller, which runs slurmctld.
    :param files: the texts of the rendered files, by name.
    """

    directory: str
    node: str
    files: Mapping[str, str]

    @property
    def service(self) -> str:
        return SLURMD if self.node else SLURMCTLD

    @cached_property
    def digest(self) -> str:
        """What the daemon has to be started with."""
        said = said_of_nodes(self.files)
        mine = said.get(self.node, []) if self.node else said
        return _sha256(json.dumps(mine, sort_keys=True))


def from_options(given: Mapping[str, Any]) -> DesiredSlurm:
    """Return what the options of the module say."""
    return DesiredSlurm(given["directory"].rstrip("/"), given["node"], given["files"])


@dataclass(frozen=True)
class SlurmState:
    """What a host has: by name the digests of its files (L(digest_of)), and by daemon what that was last started with, beside the
    digests of the files as they were written.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    applied: Mapping[str, str] = field(default_factory=dict)


def mode_of(name: str) -> int:
    """Return the mode of a file: slurmctld and the users of jobs read them; a job whose prolog is no program fails."""
    return 0o755 if name == PROLOG else 0o644


def digest_of(name: str, text: str, usable: bool) -> str:
    """Return what tells a file from another. C(usable): all can use it, who have to."""
    return _sha256(text) + ("x" if usable and name == PROLOG else "" if usable else "-")


def said_of_nodes(files: Mapping[str, str]) -> dict[str, list[dict[str, str]]]:
    """Return the settings that each node of C(nodes.conf) has in the files, those of every node among them."""
    return _said(*(files.get(name, "") for name in INCLUDED_IN))


# All hosts of a cluster have the same files.
@lru_cache(maxsize=4)
def _said(*texts: str) -> dict[str, list[dict[str, str]]]:
    of_all: list[dict[str, str]] = []
    found: dict[str, list[dict[str, str]]] = defaultdict(list)
    for text in texts:
        for _number, line in settings(text):
            nodes = line.pop("nodename", None)
            if nodes is None:
                of_all.append(line)
            for node in sorted(expanded(nodes or "")):
                found[node].append(line)
    return {node: [*of_all, *lines] for node, lines in found.items()}


def changed_nodes(before: Mapping[str, str], files: Mapping[str, str]) -> list[str]:
    """Return the nodes that were in the files and of which other files say something else, or nothing, which ends their jobs."""
    former, now = said_of_nodes(before), said_of_nodes(files)
    return sorted(node for node in former if former[node] != now.get(node))


def edited(state: SlurmState) -> bool:
    """Whether a person wrote a file, with which each daemon of the host may have been started. Its mode alone is no other text."""
    there = {name: state.files[name].rstrip("-") for name in INCLUDED_IN if name in state.files}
    return any(digest != state.applied.get(name) for name, digest in there.items())


def plan(state: SlurmState, desired: DesiredSlurm) -> Plan:
    """Return the steps from C(state) to C(desired)."""
    steps = []
    for name, text in sorted(desired.files.items()):
        there = state.files.get(name)
        if there != digest_of(name, text, True):
            why = "it differs from what is rendered" if there else "it is not there"
            steps.append(Step(Kind.WRITE_FILE, f"{desired.directory}/{name}", why, data={"name": name}))
    for name in sorted(set(state.files) - set(desired.files)):
        path = f"{desired.directory}/{name}"
        steps.append(Step(Kind.REMOVE_FILE, path, "it is no longer rendered", data={"name": name}))
    if edited(state) or state.applied.get(desired.service) != desired.digest:
        first = f": Slurm drains the whole node {desired.node} first" if desired.node else ""
        why = f"it was started with something else, and scontrol reconfigure does not take it up{first}"
        steps.append(Step(Kind.RESTART_SERVICE, desired.service, why, data={"digest": desired.digest}))
    return Plan(
        tuple(steps),
        before={"files": dict(state.files)},
        after={"files": {name: digest_of(name, text, True) for name, text in desired.files.items()}},
    )


def refuse_includes(site: Mapping[str, str], folder: str, desired: DesiredSlurm) -> None:
    """Refuse a host whose own files do not include ours, or one that is no longer rendered: either way Slurm has something else than the files say.

    :param site: by path, the text of the site's own files, and of what they include.
    :param folder: where slurm.conf is.
    """
    for name, own in INCLUDED_IN.items():
        path, there = f"{desired.directory}/{name}", f"{folder}/{own}"
        found = any(path in included(text, folder) for text in site.values())
        if found and name not in desired.files:
            raise Refused(there, f"it includes {path}, which is no longer rendered", f"Remove the line: Include {path}")
        if not found and name in desired.files:
            reason = f"it does not include {path}" if there in site else "it is not there"
            raise Refused(there, reason, f"Add the line to it, which this collection never changes: Include {path}")


def refuse_jobs(
    service: str, nodes: Collection[str], jobs: Collection[str], offered: Collection[str], silent: str = ""
) -> None:
    """Refuse to restart a daemon for C(nodes) of which the files say something else.

    :param jobs: the jobs that run on them.
    :param offered: those that may be given jobs at any moment.
    :param silent: why slurmctld, without which no node can be drained, does not answer.
    """
    if jobs or offered:
        why = (
            f"jobs {', '.join(sorted(jobs)[:5])} run on {', '.join(sorted(nodes)[:5])}"
            if jobs
            else f"{', '.join(sorted(offered)[:5])} {'may have jobs' if silent else 'can be given jobs'}"
        )
        first = "Run without --limit, or drain it and let its jobs end"
        if silent:
            why, first = f"{why}, and slurmctld drains none: {silent}", "Start slurmctld, so that they can be drained"
        raise Refused(
            service,
            f"the files say something else of {'the node' if len(nodes) == 1 else 'nodes'}, and {why}",
            f"{first}, or allow it with {UNDER_JOBS}: true.",
        )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
