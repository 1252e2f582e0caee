# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stage C(boot) of C(site): the host program, and the units that restore at boot and write metrics, from facts alone.

What is restored is recorded by the stages that set it, which also plan for their records.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from .._facts_view import Facts
from .._health.metric_units import refused_directory
from .._plan import Refused, StagePlan
from .._records import Settings
from .._settings import desired as settings
from .._sharing import desired as sharing
from .._sharing.host import host_sharing
from .plan import is_installed, plan

STAGE = "boot"
#: The controller's host program among the variables of a host: its version and SHA-256, or why it cannot be built.
PROGRAM = "host_program"


def metrics_directory(desired: Mapping[str, Any]) -> str:
    """Return where the host writes its metrics; empty where it writes none. Raises Refused: no unit file can name the directory."""
    if not desired.get("nvidia_health_metrics"):
        return ""
    directory = str(desired.get("nvidia_health_metrics_directory") or "")
    reason = refused_directory(directory)
    if reason:
        remedy = "Set it to the directory that node_exporter is started with (--collector.textfile.directory)."
        raise Refused("nvidia_health_metrics_directory", f"{directory!r} cannot be written to: {reason}", remedy)
    return directory


def stage(facts: Facts, desired: Mapping[str, Any]) -> StagePlan:
    """Plan the program and its units. Raises Refused: the directory of the metrics cannot be used."""
    directory = metrics_directory(desired)
    present = facts.host_program
    if not (directory or is_installed(present) or _restores(facts, desired)):
        return StagePlan(STAGE, needed=False)
    program = desired.get(PROGRAM)
    if not present.says("units"):
        why = "the facts are of an earlier release, which did not read the units of the host program"
        return StagePlan(STAGE, needed=True, unread=why)
    if not isinstance(program, Mapping):
        return StagePlan(STAGE, needed=True, unread=str(program or "the controller's host program is not known"))
    found = plan(present, program["version"], program["sha256"], directory)
    return StagePlan(STAGE, needed=found.changes, steps=found.steps, warnings=found.warnings)


def _restores(facts: Facts, desired: Mapping[str, Any]) -> bool:
    """Whether something is restored at boot: what is recorded, and what other stages are about to record."""
    former, shared = facts.recorded.settings, facts.recorded.sharing
    restored = isinstance(former, Settings) and former.anything
    if facts.recorded.mig or restored or (shared and not shared.is_default):
        return True
    if desired.get("nvidia_mig_layout") and desired.get("nvidia_mig_restore", True):
        return True
    # What is refused of these variables their own stages say.
    with suppress(Refused):
        if settings.read(desired).anything:
            return True
    with suppress(Refused):
        wanted = sharing.read(desired)
        with_daemons = wanted.mode == "mps" and wanted.mps_manager == "host" and not wanted.claims_shared
        return with_daemons or not host_sharing(wanted, ()).is_default
    return False
