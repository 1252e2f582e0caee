# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether what serves GPUs to containers and clients works: the container runtime and MPS; and which recorded MPS daemons do not serve as recorded.

Facts: host.md, sections 7 to 9.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._sharing.host import Daemon
from .._sharing.state import sharing_of
from .report import Evidence, Outcome, failed, passed, skipped, warning


def runtime(evidence: Evidence) -> Outcome:
    """A container runtime with the NVIDIA runtime runs, where one has it."""
    runtimes = evidence.facts.get("runtimes") or {}
    configured = {name: facts for name, facts in runtimes.items() if facts.get("nvidia")}
    if not configured:
        return skipped("no container runtime has the NVIDIA runtime")
    running = {name: facts for name, facts in configured.items() if facts.get("active") is not False}
    if not running:
        names = ", ".join(configured)
        return failed(f"{names} does not run", f"Start {names} and look into its journal")
    return passed(
        ", ".join(f"{name} {facts.get('version') or 'of unknown version'}" for name, facts in running.items())
    )


def mps(evidence: Evidence) -> Outcome:
    """Every MPS daemon of the host answers."""
    running = mps_of_host(evidence.facts)
    dead = [str(daemon["pid"]) for daemon in running if daemon.get("responds") is False]
    if dead:
        return failed(
            f"the MPS daemon with pid {', '.join(dead)} does not answer",
            "Look into control.log in its log directory; restarting it ends its clients",
        )
    unsure = [str(daemon["pid"]) for daemon in running if daemon.get("responds") is None]
    if unsure:
        return warning(
            f"whether the MPS daemon with pid {', '.join(unsure)} answers is unknown", "Run as root on the host"
        )
    return passed(f"{len(running)} MPS daemons answer") if running else skipped("no MPS daemon of the host runs")


def mps_of_host(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the MPS daemons that are not in a container, as the device plugin's is: nothing is recorded of that."""
    return [daemon for daemon in facts.get("mps") or [] if not daemon.get("in_container")]


def broken_daemons(facts: Mapping[str, Any]) -> list[str]:
    """Return the recorded MPS daemons that do not run or do not answer; none where the record cannot be used.

    One that has other settings is not among them: it can be told the recorded ones, and a restart would end its clients.
    """
    answering = {one.get("pipe_directory") for one in mps_of_host(facts) if one.get("responds") is not False}
    return [one.name for one in _recorded_daemons(facts) if one.pipe_directory not in answering]


def recorded_pipe_directories(facts: Mapping[str, Any]) -> list[str]:
    """Return the pipe directories of the MPS daemons that are recorded; none where the record cannot be used."""
    return [daemon.pipe_directory for daemon in _recorded_daemons(facts)]


def _recorded_daemons(facts: Mapping[str, Any]) -> tuple[Daemon, ...]:
    found = sharing_of(facts)
    return found.daemons if found else ()
