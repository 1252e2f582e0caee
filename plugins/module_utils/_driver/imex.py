# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps to the desired state of IMEX. Pure.

When the service ends, the exports of its host end for the importers on other hosts (NVIDIA's IMEX guide, signals). Where ComputeDomains run it, the host has
its package and the service is masked (cloud-native-docs#453).
"""

from __future__ import annotations

from collections.abc import Sequence

from .._formats.imex import HOST, MASKED, VARIABLE, DesiredImex, Imex, few
from .._formats.imex_files import NODES_FILE
from .._formats.unit_names import IMEX_UNIT
from .._plan import Refused, Step
from .._steps import Kind

_RESTARTS = "it reads its nodes only when it starts"
_IMPORTERS = "jobs of the rack that have imported memory of this host's GPUs"


def plan(found: Imex, wanted: DesiredImex, users: Sequence[str]) -> tuple[Step, ...]:
    """Return the steps to what is wanted.

    :param users: processes that use the GPUs of the host, by name: memory of theirs may be imported by other hosts.
    :raises Refused: a service that runs has to stop for it, somebody uses the GPUs, and that is not allowed.
    """
    if wanted.mode == MASKED:
        return _masked(found, wanted, users)
    if wanted.mode != HOST:
        return ()
    steps = [Step(Kind.UNMASK_SERVICE, IMEX_UNIT, "this host runs it")] if found.masked else []
    moved = found.nodes != wanted.nodes
    if moved:
        steps.append(Step(Kind.WRITE_FILE, NODES_FILE, f"the rack has {few(wanted.nodes)}"))
    if not found.enabled:
        steps.append(Step(Kind.ENABLE_SERVICE, IMEX_UNIT, "it has to run after a reboot too"))
    if not found.active:
        steps.append(Step(Kind.START_SERVICE, IMEX_UNIT, "jobs of several hosts share GPU memory through it"))
    elif moved:
        _check_allowed(wanted, users, _RESTARTS)
        steps.append(Step(Kind.RESTART_SERVICE, IMEX_UNIT, _RESTARTS, _disturbed(users)))
    return tuple(steps)


def _masked(found: Imex, wanted: DesiredImex, users: Sequence[str]) -> tuple[Step, ...]:
    if found.masked and not found.active:
        return ()
    if found.active:
        _check_allowed(wanted, users, "ComputeDomains run their own")
    disturbed = _disturbed(users) if found.active else ()
    return (Step(Kind.MASK_SERVICE, IMEX_UNIT, "ComputeDomains run their own", disturbed),)


def _check_allowed(wanted: DesiredImex, users: Sequence[str], why: str) -> None:
    if not users or wanted.restart:
        return
    raise Refused(
        f"{VARIABLE}_restart",
        f"{IMEX_UNIT} has to stop ({why}), which takes memory from {_IMPORTERS}, and "
        f"{', '.join(users)} {'uses' if len(users) == 1 else 'use'} the GPUs",
        f"Drain the rack first, or set {VARIABLE}_restart: true.",
    )


def _disturbed(users: Sequence[str]) -> tuple[str, ...]:
    return (_IMPORTERS,) if users else ()
