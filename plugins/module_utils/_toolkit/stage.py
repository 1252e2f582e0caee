# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stage C(toolkit), planned from the facts of a host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._adapters.cdi_specifications import GPU_KIND
from .._injection import VARIABLE, docker_warning
from .._plan import Refused, StagePlan, Step
from .._runtime.reload_risk import containers_at_risk
from .._steps import Kind
from .desired import PACKAGES, ToolkitState, from_variables
from .distributions import distribution_of
from .floors import check_floor
from .plan import hold_step, injection_step, low_level_reason, low_level_step, release_step


def stage(facts: Mapping[str, Any], desired: Mapping[str, Any]) -> StagePlan:
    """Return what the stage would do; see docs/architecture.md."""
    if desired["nvidia_toolkit_runtime"] == "none":
        return StagePlan("toolkit", needed=False)
    wanted = from_variables(desired)
    refusals: list[Refused] = []
    warnings: list[str] = []
    try:
        warning = check_floor(wanted.version, wanted.allow_vulnerable)
        warnings.extend([warning] if warning else [])
    except Refused as refusal:
        refusals.append(refusal)
    try:
        distribution_of((facts.get("host") or {}).get("distribution") or {})
    except Refused as refusal:
        refusals.append(refusal)
    if refusals:
        return StagePlan("toolkit", True, refusals=tuple(refusals), warnings=tuple(warnings))
    docker = docker_warning(wanted.injection, wanted.runtime)
    warnings.extend([docker] if docker else [])
    toolkit = facts.get("toolkit") or {}
    packages = toolkit.get("packages")
    if packages is None:
        return StagePlan("toolkit", True, unknown="the installed packages are not known", warnings=tuple(warnings))
    steps = [
        Step(
            Kind.INSTALL_TOOLKIT,
            name,
            f"installed is {found}" if found else "it is not installed",
            data={"version": wanted.version},
        )
        for name, found in ToolkitState(packages=packages).differing(wanted.version).items()
    ]
    if steps:
        warnings.extend(_reload_warning(facts, wanted.runtime))
    accepts = (toolkit.get("accept_envvar_unprivileged"), toolkit.get("accept_volume_mounts"))
    if steps or accepts != (wanted.injection.accepts_envvar, wanted.injection.accepts_volume_mounts):
        steps.append(injection_step(wanted.injection, bool(packages), VARIABLE))
    steps.extend(_low_level_steps(facts, wanted.runtime))
    held = toolkit.get("holds")
    if not steps and held is not None and wanted.hold and not set(held).issuperset(PACKAGES):
        steps.append(hold_step(sorted(set(PACKAGES) - set(held))))
    if not steps and held and not wanted.hold:
        steps.append(release_step(sorted(held), "nvidia_toolkit_hold is false"))
    if wanted.cdi:
        steps.extend(_cdi_steps(facts, bool(steps)))
    return StagePlan("toolkit", bool(steps), tuple(steps), warnings=tuple(warnings))


def _reload_warning(facts: Mapping[str, Any], runtime: str) -> list[str]:
    """Return what the packages' own scripts may do to containers: they reload systemd (host.md, section 8)."""
    named = containers_at_risk(facts, runtime)
    if not named:
        return []
    return [
        "the scripts of the packages reload systemd, which takes the GPUs from containers that NVIDIA's hook gave them to, but not from those that "
        f"got them by CDI. Running in containers: {named}. Drain the host first, or have them stopped"
    ]


def _low_level_steps(facts: Mapping[str, Any], runtime: str) -> list[Step]:
    """Return the step that names CRI-O's low-level runtime; facts of an older reading, without these keys, prove nothing."""
    wanted = ((facts.get("runtimes") or {}).get(runtime) or {}).get("low_level_runtime")
    found = (facts.get("toolkit") or {}).get("low_level_runtimes")
    if wanted is None or found is None or found[:1] == [wanted]:
        return []
    return [low_level_step(wanted, low_level_reason(found))]


def _cdi_steps(facts: Mapping[str, Any], changes: bool) -> list[Step]:
    gpus = facts.get("gpus")
    if not gpus:
        # Without a driver there is nothing to describe; the driver's stage makes this one run again.
        return []
    specifications = [entry for entry in facts.get("cdi") or [] if entry.get("kind") == GPU_KIND]
    if not specifications:
        return [Step(Kind.GENERATE_CDI_SPECIFICATION, GPU_KIND, "there is none")]
    wrong = [entry for entry in specifications if entry.get("missing") or entry.get("stale")]
    if wrong:
        return [Step(Kind.GENERATE_CDI_SPECIFICATION, GPU_KIND, f"{wrong[0].get('path')} describes other devices")]
    return [Step(Kind.GENERATE_CDI_SPECIFICATION, GPU_KIND, "the toolkit changes")] if changes else []
