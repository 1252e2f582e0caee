# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stage C(runtime), planned from the facts of a host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .. import _injection as injection
from .._facts_view import Facts
from .._plan import Refused, StagePlan, Step
from .._runtimes import RUNTIMES
from .._steps import Kind
from .desired import BINARY, DesiredRuntime, Effective, from_variables
from .plan import plan_effective
from .rancher import FORMER, former_refusal


def stage(facts: Facts, desired: Mapping[str, Any]) -> StagePlan:
    """Return what the stage would do; see docs/architecture.md."""
    runtime = desired["nvidia_toolkit_runtime"]
    if runtime == "none":
        return StagePlan("runtime", needed=False)
    runtimes = facts.runtimes or {}
    found = runtimes.get(runtime)
    if found is None:
        others = sorted(runtimes)
        installed = f"installed: {', '.join(others)}" if others else "no container runtime is"
        absent = Refused(
            "nvidia_toolkit_runtime",
            f"{runtime} is not installed ({installed})",
            "Install it first, name the one that is there, or set nvidia_toolkit_runtime to none.",
        )
        return StagePlan("runtime", True, refusals=(absent,))
    try:
        refusal = injection.refuse_runtime(injection.read(desired), runtime, found.version)
    except Refused:
        # Variables that contradict each other are the stage toolkit's to refuse; once is enough.
        return StagePlan("runtime", True, unknown=f"{injection.VARIABLE} is refused")
    if refusal is not None:
        return StagePlan("runtime", True, refusals=(refusal,))
    wanted, leftovers = from_variables(desired), found.leftovers or ()
    former = former_refusal(runtime, wanted.move_former) if FORMER in leftovers else None
    if former is not None:
        return StagePlan("runtime", True, refusals=(former,))
    why = f"it is in the way of {runtime}, and an earlier toolkit left it"
    steps = steps_from_facts(runtime, found, wanted)
    if steps and found.active is not False and desired.get("nvidia_toolkit_restart") != "never":
        steps = (replace(steps[0], disturbs=_restarted(runtime, steps)), *steps[1:])
    steps = (*steps, *(Step(Kind.MOVE_ASIDE, path, why) for path in leftovers))
    unread = None if steps or found.version else f"{runtime} does not say its version"
    return StagePlan("runtime", bool(steps) or unread is not None, steps, unread=unread)


def _restarted(runtime: str, steps: tuple[Step, ...]) -> tuple[str, ...]:
    """Return whom the restart disturbs with which the runtime takes the steps over."""
    if runtime != "docker":
        # Where a drop-in of the unit says otherwise (KillMode), the host refuses to restart it.
        return (f"starting containers while {RUNTIMES[runtime].title} restarts (running pods go on)",)
    if all(step.kind is not Kind.ENABLE_CDI for step in steps):
        # It takes runtimes over on SIGHUP.
        return ()
    return ("containers of Docker, which its restart stops where live-restore is off (nvidia_toolkit_disruption)",)


def steps_from_facts(runtime: str, found: Mapping[str, Any], desired: DesiredRuntime) -> tuple[Step, ...]:
    """Return what has to change according to the facts of a runtime."""
    # Facts of an older reading, without a key, prove nothing.
    binary = found.get("binary", BINARY) or "not named"
    effective = Effective(
        binary if found.get("nvidia") is True else None,
        found.get("default_runtime"),
        False if injection.is_switched_off(runtime, found) else None,
    )
    return plan_effective(runtime, desired, effective, found)
