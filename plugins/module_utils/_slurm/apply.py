# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read, plan, apply and read back the files of Slurm on a host. Every step can be repeated after a cut: a daemon is recorded once it runs again."""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Mapping
from dataclasses import replace

from .._adapters import command, files, systemd
from .._adapters.files import HostFiles
from .._adapters.processes import job_tasks, process_names, program_processes
from .._formats.documents import read_record
from .._formats.slurm_files import elsewhere, read_with_includes
from .._plan import Plan, Refused, carry_out
from .._printable import LONGEST_OUTPUT
from .._schema import mapping, not_null, text
from .._steps import Kind
from .plan import (
    INCLUDED_IN,
    NAMES,
    RECORD,
    SLURMCTLD,
    SLURMD,
    DesiredSlurm,
    SlurmState,
    changed_nodes,
    digest_of,
    edited,
    mode_of,
    plan,
    refuse_includes,
    refuse_jobs,
    said_of_nodes,
)

_RECORD = mapping(not_null(text(256)), 8)
#: In the record, which process of a daemon was started with what is written there.
_BEGAN = "{} began"
_PATIENCE = 15.0
_MOST_FILES = 64
#: How C(sinfo) calls a node that is given no job.
_OUT = ("drain", "down", "inval", "fail")


def read_files(folder: str) -> dict[str, dict[str, str]]:
    """Return the part C(slurm) of the facts: what L(SlurmState) holds."""
    found = {}
    for name, content in _texts(folder).items():
        # Root may run what users may not, as whom a prolog runs.
        usable = mode_of(name) & 0o555
        found[name] = digest_of(name, content, os.lstat(f"{folder}/{name}").st_mode & usable == usable)
    # What a cut left of it is nothing: the daemon is started once more.
    record = dict(read_record(_RECORD, files.read_text(f"{folder}/{RECORD}", links=False) or "{}") or {})
    changed = max((os.lstat(f"{folder}/{name}").st_ctime for name in found if name in INCLUDED_IN), default=0)
    for service in {SLURMD, SLURMCTLD} & {*record}:
        process, began = systemd.main_process(f"{service}.service") or ("", changed)
        if began >= changed:
            record[_BEGAN.format(service)] = process
        elif record.get(_BEGAN.format(service)) != process:
            # A person started it before a file became what it is: perhaps with another text, which was put back.
            del record[service]
    return {"files": found, "applied": record}


def ask_daemons(node: str) -> dict[str, str]:
    """Return what both programs print of a node, or why they print nothing. Nothing is changed. A controller that is away is not waited for."""
    said = {}
    for name, arguments in (("slurmd", ["slurmd", "-G"]), ("scontrol", ["scontrol", "show", "node", node])):
        try:
            answer = command.run(arguments, timeout=_PATIENCE)
            said[name] = f"{answer.stdout}\n{answer.stderr}"
        except command.CommandError as error:
            said[name] = str(error)
    return said


def run_stage(desired: DesiredSlurm, configuration: str, under_jobs: bool, check_mode: bool) -> Plan:
    """Bring the files to a host, and restart its daemon where it has to take them up. Return the plan.

    :param configuration: the path of slurm.conf.
    :raises Refused: the site's own files contradict ours, or jobs run on what changes; nothing was changed.
    :raises CommandError: the daemon does not start, or Slurm does not say who runs.
    :raises NotInEffect: what is read back is something else.
    """
    before, state = _texts(desired.directory), _state(desired)
    planned = plan(state, desired)
    folder = posixpath.dirname(configuration)
    site = _site_files(configuration, desired.directory)
    if desired.node and configuration not in site and _is_sent():
        reason = "slurmctld sends slurmd its configuration (configless), and nothing can be included in that"
        remedy = "Start slurmd without --conf-server, with a slurm.conf of its own; or bring the files yourself, and set gpu_slurm_controllers: []."
        raise Refused(configuration, reason, remedy)
    refuse_includes(site, folder, desired)
    for refusal in elsewhere(site, [desired.node] if desired.node else said_of_nodes(desired.files)):
        raise refusal
    restarts = any(step.kind is Kind.RESTART_SERVICE for step in planned.steps)
    if restarts and not under_jobs:
        # Files that the daemon was not started with, because a run was cut off, or the record or all of them are lost, do not tell what it has of the nodes.
        known = desired.node or state.applied.get(desired.service) == replace(desired, files=before).digest
        active, here = systemd.unit(f"{desired.service}.service").is_active, _jobs_here() if desired.node else []
        nodes = [desired.node] if desired.node else changed_nodes(before, desired.files) if known else []
        if nodes and not active and not desired.node:
            refuse_jobs(desired.service, nodes, (), nodes, "it does not run")
        if here or (active and not check_mode):
            nodes = nodes if known else sorted({line[0] for line in _lines("sinfo", "-h", "-N", "-o", "%N")})
            try:
                # A job that is suspended keeps its GPUs.
                asked = ["squeue", "-h", "-o", "%A", "-t", "R,S,CF,CG", "-w", ",".join(nodes)]
                jobs = [line[0] for line in _lines(*asked)] if nodes else []
            except command.CommandError as error:
                refuse_jobs(desired.service, nodes, here, (), str(error))
                raise
            # In check mode jobs are no reason to refuse, where whoever applies it can drain the node first.
            if nodes and not check_mode:
                refuse_jobs(desired.service, nodes, jobs, _offered(nodes) if known and not desired.node else ())
    if not check_mode and planned.changes:
        carry_out(
            "bring Slurm its files", planned, lambda one: _apply(one, desired), lambda: plan(_state(desired), desired)
        )
    return planned


def _state(desired: DesiredSlurm) -> SlurmState:
    found = read_files(desired.directory)
    return SlurmState(found["files"], found["applied"])


def _texts(folder: str) -> dict[str, str]:
    texts = {name: _text(f"{folder}/{name}", links=False) for name in NAMES}
    return {name: text for name, text in texts.items() if text is not None}


def read_site() -> dict[str, str]:
    """Return the files of a site that nobody described yet, for C(adopt); none where the host has no Slurm."""
    folder = "/etc/slurm"
    found = _site_files(f"{folder}/slurm.conf", f"{folder}/gpufleet").items()
    return {path: text for path, text in [*found][:_MOST_FILES] if len(text) <= LONGEST_OUTPUT}


def _site_files(configuration: str, ours: str) -> Mapping[str, str]:
    """Return the site's own files by their path, and what they include, but for ours."""
    folder = posixpath.dirname(configuration)
    paths = [configuration, *(f"{folder}/{own}" for own in sorted(set(INCLUDED_IN.values()) - {"slurm.conf"}))]
    return read_with_includes(paths, folder, lambda path: None if path.startswith(f"{ours}/") else _text(path))


def _text(path: str, links: bool = True) -> str | None:
    data = files.read_bytes(path, links=links)
    return None if data is None else data.decode(errors="replace")


def _lines(*words: str) -> list[list[str]]:
    """Return the words of each line that a program of Slurm prints."""
    return [line for line in map(str.split, command.run([*words], allowed=(0,)).stdout.splitlines()) if line]


def _is_sent() -> bool:
    """Return whether slurmd has its configuration from slurmctld, which it was told, or found in the DNS."""
    host = HostFiles()
    told = (one for slurmd in program_processes(host, "slurmd") for one in slurmd.command_line)
    return host.exists("/run/slurm/conf/slurm.conf") or any(one.startswith("--conf-server") for one in told)


def _jobs_here() -> list[str]:
    """Return the jobs whose tasks run on the host, which slurmd leaves running when it stops."""
    host = HostFiles()
    return sorted({task.get("SLURM_JOB_ID", "of an unknown number") for task in job_tasks(host, process_names(host))})


def _offered(nodes: list[str]) -> list[str]:
    """Return which nodes may be given jobs."""
    states = _lines("sinfo", "-h", "-N", "-o", "%N %T", "-n", ",".join(nodes))
    return sorted({one[0] for one in states if len(one) > 1 and not one[1].startswith(_OUT)})


def _apply(planned: Plan, desired: DesiredSlurm) -> None:
    state = _state(desired)
    # The other daemon of the host may have been started with what a person wrote, too, and after a cut both.
    applied = dict(state.files if edited(state) else state.applied)
    _record(desired, applied)
    for step in planned.steps:
        name = step.data.get("name", "")
        if step.kind is Kind.WRITE_FILE:
            files.write_whole(step.target, desired.files[name], mode_of(name))
            applied[name] = digest_of(name, desired.files[name], True)
        elif step.kind is Kind.REMOVE_FILE:
            files.remove(step.target)
        else:
            systemd.restart(f"{step.target}.service")
            began = systemd.main_process(f"{step.target}.service") or ("", 0)
            applied.update({step.target: step.data["digest"], _BEGAN.format(step.target): began[0]})
        _record(desired, applied)


def _record(desired: DesiredSlurm, applied: Mapping[str, str]) -> None:
    files.write_whole(f"{desired.directory}/{RECORD}", json.dumps(applied, sort_keys=True) + "\n")
