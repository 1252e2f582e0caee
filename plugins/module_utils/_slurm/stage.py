# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stage C(slurm), planned from the facts of a host and the rendered files. It runs last: what is rendered follows from the stages before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._facts_view import Facts
from .._plan import StagePlan
from .plan import SlurmState, from_options, plan

STAGE = "slurm"
#: Of a host to which the role gpu_slurm brings files: the options of L(from_options), or why there are none yet. Plain, as all that describes a host.
DESIRED = "slurm_desired"


def stage(facts: Facts, desired: Mapping[str, Any]) -> StagePlan:
    """Return what the stage would do; see docs/architecture.md."""
    wanted: Mapping[str, Any] | str | None = desired.get(DESIRED)
    if wanted is None:
        return StagePlan(STAGE, needed=False)
    if isinstance(wanted, str):
        return StagePlan(STAGE, needed=True, unknown=wanted)
    if facts.slurm is None:
        return StagePlan(STAGE, needed=True, unread="the files of Slurm on the host were not read")
    planned = plan(SlurmState(facts.slurm.files or {}, facts.slurm.applied or {}), from_options(wanted))
    return StagePlan(STAGE, planned.changes, planned.steps)
