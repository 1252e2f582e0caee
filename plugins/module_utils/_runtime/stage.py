# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stage C(runtime), planned from the facts of a host, and what a plan says of a reload of systemd."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .. import _injection as injection
from .._facts_view import Facts, RuntimeFacts
from .._formats.cdi import DEFAULT_PATH
from .._migration import FORMER, OPERATOR, TOOLKIT, VARIABLES, is_left, is_of
from .._plan import STOPPED, Refused, StagePlan, Step
from .._runtimes import RUNTIMES, UNCONFIGURED
from .._steps import Kind
from .._users import holders_of, named
from .._versions import numbers, product_version
from .desired import BINARY, from_variables, refuse
from .plan import move_disturbs, plan_effective
from .rancher import refuse_former

#: The package with the runtime's program.
OWNER = "nvidia-container-toolkit-base"


def refuse_elsewhere(facts: Facts, runtime: str) -> Refused | None:
    """Return that the pods for which a runtime would be set up run in another containerd. Docker's containers are no pods."""
    runtimes = facts.runtimes or {}
    for name in UNCONFIGURED if runtime in ("containerd", "crio") else ():
        if name in runtimes and runtimes[name].active and runtimes[name].own:
            reason = f"the pods of this host run in the containerd of {name}, which is not configured from here, and not in {runtime}"
            return Refused("nvidia_toolkit_runtime", reason, f"Set it to none, and {UNCONFIGURED[name].remedy}.")
    return None


def stage(facts: Facts, desired: Mapping[str, Any]) -> StagePlan:
    """Return what the stage would do; see docs/architecture.md."""
    runtime = desired["nvidia_toolkit_runtime"]
    if runtime == "none":
        return StagePlan("runtime", needed=False)
    runtimes = facts.runtimes or {}
    foreign = refuse_elsewhere(facts, runtime)
    if foreign:
        return StagePlan("runtime", True, refusals=(foreign,))
    found = runtimes.get(runtime)
    if found is None:
        others = sorted({*runtimes} & {*RUNTIMES})
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
    try:
        if is_left(facts, desired, TOOLKIT):
            return StagePlan("runtime", needed=False)
    except Refused:
        return StagePlan("runtime", True, unknown=f"{VARIABLES[TOOLKIT]} is refused")
    wanted, leftovers = from_variables(desired), found.leftovers or ()
    restart, disruption = (str(desired.get(f"nvidia_toolkit_{name}")) for name in ("restart", "disruption"))
    disturbed: tuple[str, ...] = ()
    try:
        refuse(found.fault, runtime, wanted.default)
        if FORMER in leftovers:
            refuse_former(runtime, wanted.move_former)
            used = sum(is_of(one.program, OPERATOR) for one in found.containers)
            disturbed = move_disturbs(FORMER, runtime, found.active is True, used, restart, disruption)
    except Refused as refused:
        return StagePlan("runtime", True, refusals=(refused,))
    unusable = _absent(facts, runtime, found, desired) or _unread_specification(facts, runtime, found, desired)
    if unusable is not None:
        return StagePlan("runtime", True, refusals=(unusable,))
    why = f"it is in the way of {runtime}, and an earlier toolkit left it"
    steps = plan_effective(runtime, wanted, found)
    if steps and found.active is not False and restart != "never":
        restarted = _restarted(runtime, steps)
        data = {
            **steps[0].data,
            **({} if RUNTIMES[runtime].keeps_containers or not restarted else {"containers": STOPPED}),
        }
        steps = (replace(steps[0], disturbs=restarted, data=data), *steps[1:])
    steps = (*steps, *(Step(Kind.MOVE_ASIDE, path, why, disturbed) for path in leftovers))
    unread = None if steps or found.version else f"{runtime} does not say its version"
    return StagePlan("runtime", bool(steps) or unread is not None, steps, unread=unread)


def _restarted(runtime: str, steps: tuple[Step, ...]) -> tuple[str, ...]:
    """Return whom the restart disturbs with which the runtime takes the steps over."""
    if RUNTIMES[runtime].keeps_containers:
        # Where a drop-in of the unit says otherwise (KillMode), the host refuses to restart it.
        return (f"starting containers while {RUNTIMES[runtime].title} restarts (running pods go on)",)
    if all(step.kind is not Kind.ENABLE_CDI for step in steps):
        # It takes runtimes over on SIGHUP.
        return ()
    return ("containers of Docker, which its restart stops where live-restore is off (nvidia_toolkit_disruption)",)


def _absent(facts: Facts, runtime: str, found: RuntimeFacts, desired: Mapping[str, Any]) -> Refused | None:
    """Return which program of the configured runtime is gone, where neither this stage nor the toolkit's brings it."""
    version = product_version((facts.toolkit.packages or {}).get(OWNER, ""))
    there = version == desired.get("nvidia_toolkit_version")
    lost = [path for path in found.absent or () if path != found.binary or (path == BINARY and there)]
    if not lost:
        return None
    owner = f"{OWNER} (apt-get install --reinstall, dnf reinstall, zypper install --force)"
    return Refused(
        lost[0],
        f"the runtime nvidia of {runtime} starts it, and it is not there",
        f"Install {owner if lost[0] == BINARY else 'its package'} again.",
    )


def _unread_specification(
    facts: Facts, runtime: str, found: RuntimeFacts, desired: Mapping[str, Any]
) -> Refused | None:
    """Return that a runtime which injects by CDI does not read what, or where, the toolkit writes: containers would get no GPU."""
    if injection.read(desired).method != injection.CDI:
        return None
    version = next((one.version or "" for one in facts.cdi or () if one.own), "")
    first = RUNTIMES[runtime].first_with_groups
    # The toolkit writes 0.7.0 where a device belongs to a group (/dev/dri). What a runtime is that does not tell its version, is not known.
    if numbers(version) >= (0, 7) and () < numbers(found.version or "") < first:
        return Refused(
            f"{runtime} {found.version}",
            f"it refuses CDI specifications of version {version}, which the toolkit writes for this host: containers would get no GPU",
            f"Upgrade it to {'.'.join(map(str, first))} or later, or set {injection.VARIABLE}: {injection.VOLUME_MOUNTS}.",
        )
    own = next((one.path for one in facts.cdi or () if one.own), DEFAULT_PATH)
    folder = own.rpartition("/")[0]
    if not found.cdi_folders or folder in found.cdi_folders:
        return None
    return Refused(
        f"the CDI folders of {runtime}",
        f"they are {', '.join(found.cdi_folders)}, and the toolkit writes {own}: containers would get no GPU",
        f"Add {folder} to them, or have the toolkit write there (NVIDIA_CTK_CDI_OUTPUT_FILE_PATH in nvidia-cdi-refresh.env).",
    )


# What a plan says of a reload of systemd, from facts alone.
# Which containers lose their GPUs is known on the host only, where C(_runtime/unit_reload.py) refuses such a reload.


def containers_at_risk(facts: Facts, runtime: str) -> str:
    """Return the programs in containers that use GPUs on a host whose runtime leaves cgroups to systemd; empty where there are none."""
    found = (facts.runtimes or {}).get(runtime, RuntimeFacts())
    if "systemd" not in (found.cgroup_drivers or {}).values():
        return ""
    return named(holders_of(one for one in facts.holders or () if one.container_id))


def refused_reload(facts: Facts, desired: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what to know before units of the collection change on a host; containers that got their GPUs by CDI keep them.

    :param desired: C(nvidia_toolkit_runtime) and C(nvidia_toolkit_device_injection).
    """
    if desired.get("nvidia_toolkit_device_injection") == "cdi":
        return ()
    named = containers_at_risk(facts, str(desired.get("nvidia_toolkit_runtime") or ""))
    if not named:
        return ()
    return (
        "if a unit changes that systemd already knows, systemd has to be reloaded, which takes the GPUs from containers that NVIDIA's hook gave them "
        f"to; the host refuses that while they run. Running in containers: {named}. Drain the host first, or have them stopped",
    )
