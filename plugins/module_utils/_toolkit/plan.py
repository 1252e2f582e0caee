# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan the container toolkit of a host: sources, the four packages as one transaction, settings, CDI. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._adapters.package_manager import Change, Package, Transaction
from .._formats.cdi import GPU_KIND
from .._injection import VARIABLE, docker_warning
from .._packages.package_set import at_version, check_changes
from .._plan import Plan, Refused, Step
from .._steps import Kind
from .._versions import product_key, product_version
from .config import LINKS, PATH, edit
from .desired import DesiredToolkit
from .packages import IDENTIFIER, OLD_PACKAGES, PACKAGES, PREFIX, SET, TOOLKIT, check_version
from .state import ToolkitState


def plan(state: ToolkitState, desired: DesiredToolkit) -> Plan:
    """Return the steps from C(state) to C(desired). Raises Refused: the version is below the security floor, or none."""
    return _present(state, desired) if desired.present else _absent(state, desired)


def select(offers: Sequence[Package], version: str) -> tuple[Package, ...]:
    """Return the four packages at exactly C(version), of what the repositories offer.

    :raises Refused: one of them is not offered at it; names the versions that all four have.
    """
    chosen = at_version(offers, PACKAGES, version)
    if len(chosen) == len(PACKAGES):
        return chosen
    sets = [{product_version(o.version) or "" for o in offers if o.name == name} for name in PACKAGES]
    common = sorted(set.intersection(*sets) - {""}, key=product_key, reverse=True)
    missing = ", ".join(sorted(set(PACKAGES) - {package.name for package in chosen}))
    available = (
        f"All four packages are offered at {', '.join(common[:5])}."
        if common
        else "Check that it is the toolkit's repository."
    )
    raise Refused(f"{PREFIX}version", f"the repository has no {version} of {missing}", available)


def transaction(state: ToolkitState, packages: Sequence[Package]) -> Transaction:
    """Return the one transaction that brings the four packages, and takes their predecessors away."""
    old = tuple(name for name in OLD_PACKAGES if name in state.packages)
    return Transaction(install=tuple(packages), remove=old, allow_downgrades=True)


def check_simulation(changes: Sequence[Change], packages: Sequence[Package]) -> None:
    """Refuse a transaction that removes a package that is none of the toolkit's, or does what L(check_changes) refuses."""
    ours = (*PACKAGES, *OLD_PACKAGES)
    check_changes(
        changes, packages, lambda change: change.action == "remove" and change.name not in ours, "the container toolkit"
    )


def edited(state: ToolkitState, desired: DesiredToolkit) -> str:
    """Return what the toolkit's C(config.toml) becomes."""
    injection = desired.injection
    return edit(state.config, injection.accepts_envvar, injection.accepts_volume_mounts, state.low_level_runtime)


def _difference(differing: Mapping[str, str]) -> str:
    """Return why packages have to be installed: in one sentence where all four are the same."""
    found = set(differing.values())
    if len(differing) == len(PACKAGES) and len(found) == 1:
        (version,) = found
        return f"installed is {version}" if version else "it is not installed"
    return "; ".join(f"{name} is {version or 'not installed'}" for name, version in differing.items())


def _settings(state: ToolkitState, desired: DesiredToolkit) -> list[Step]:
    """Return what changes in C(config.toml): the toolkit is to accept exactly the way in which the pool's containers get their devices."""
    injection, runtimes = desired.injection, state.low_level_runtimes
    exactly = state.accepts == (injection.accepts_envvar, injection.accepts_volume_mounts)
    named = state.low_level_runtime in (None, *runtimes[:1])
    # Another setting of ours may be one that the file no longer needs.
    outdated = state.config is not None and edited(state, desired) != state.config
    steps = []
    if not named:
        why = f"CRI-O itself uses this one, but {PATH} has {', '.join(runtimes) or 'none'}"
        steps.append(Step(Kind.NAME_LOW_LEVEL_RUNTIME, PATH, why, (), {"runtime": str(state.low_level_runtime)}))
    if not exactly or (outdated and named):
        why = f"{PATH} says otherwise" if state.accepts else VARIABLE
        lost = (
            f"pods that start before the cluster's device plugin has deviceListStrategy {injection.strategy} get no GPU"
        )
        disturbs = (lost,) if state.packages else ()
        steps.append(Step(Kind.ACCEPT_DEVICES, PATH, why, disturbs, {"method": injection.method}))
    return steps


def _present(state: ToolkitState, desired: DesiredToolkit) -> Plan:
    warning = check_version(desired.version, desired.allow_vulnerable)

    def install(differing: Mapping[str, str], old: Sequence[str]) -> Step:
        disturbs = ("containers that start during the transaction",) if any(differing.values()) else ()
        data: dict[str, Any] = {"packages": list(PACKAGES), "version": desired.version, "remove": list(old)}
        why = _difference(differing) or f"{', '.join(old)} is its predecessor"
        return Step(Kind.INSTALL_TOOLKIT, TOOLKIT, why, disturbs, data)

    steps = SET.repair_steps(state.interrupted)
    if desired.repository.manage:
        steps += [
            Step(Kind.REMOVE_FILE, path, "it has the repository without its key (Conflicting Signed-By)")
            for path in state.old_sources
        ]
        if state.repository is False:
            steps.append(Step(Kind.ADD_REPOSITORY, IDENTIFIER, "it is not configured"))
    releasable = state.held if set(state.holds) & set(PACKAGES) else ()
    steps += SET.present_steps(state, PACKAGES, desired.version, desired.hold, releasable, install)
    steps += _settings(state, desired)
    if desired.hooks == "present":
        why = "the GPU Operator's device plugin has containers run it there"
        steps += [Step(Kind.CREATE_FILE, path, why) for path in LINKS if path not in state.hooks]
    if desired.cdi:
        if state.cdi_unit is False:
            why = "it keeps the CDI specification fresh after driver changes"
            steps.append(Step(Kind.ENABLE_SERVICE, "nvidia-cdi-refresh", why))
        stale = state.cdi.stale or (
            "the toolkit changes" if state.driver_loaded and state.differing(PACKAGES, desired.version) else ""
        )
        if stale:
            steps.append(Step(Kind.GENERATE_CDI_SPECIFICATION, GPU_KIND, stale))
        why = "it describes other devices or another driver than this host has, and runtimes read every specification"
        steps += [Step(Kind.MOVE_ASIDE, path, why) for path in state.cdi.leftovers]
        why = "it has the devices of another specification of its folder, and runtimes take neither then"
        steps += [Step(Kind.MOVE_ASIDE, path, why) for path in state.cdi.doubles]
    # They may be of other devices, so nobody moves them.
    unreadable = [
        f"{path} is no CDI specification that can be read: correct or remove it" for path in state.cdi.unreadable
    ]
    return Plan(
        tuple(steps),
        before={"packages": dict(state.packages), "config": state.config},
        after={"packages": dict.fromkeys(PACKAGES, desired.version), "config": edited(state, desired)},
        warnings=tuple(
            text for text in (warning, docker_warning(desired.injection, desired.runtime), *unreadable) if text
        ),
    )


def _absent(state: ToolkitState, desired: DesiredToolkit) -> Plan:
    names = [name for name in (*PACKAGES, *OLD_PACKAGES) if name in state.packages]
    steps = SET.repair_steps(state.interrupted)
    if state.held:
        steps.append(SET.release_step(state.held, "they are to be removed"))
    if names:
        disturbs = ("containers that use GPUs can no longer be started",)
        steps.append(SET.step(Kind.UNINSTALL_TOOLKIT, "it is not wanted", names, disturbs))
    # The packages' scripts make the file, so that no package manager takes it away.
    steps += [Step(Kind.REMOVE_FILE, PATH, "it is the toolkit's")] if state.config is not None else []
    steps += [
        Step(Kind.REMOVE_FILE, path, "it is what the toolkit generated for the driver") for path in state.specifications
    ]
    why = "it was for the GPU Operator's device plugin"
    steps += [Step(Kind.REMOVE_FILE, path, why) for path, of_host in state.hooks.items() if of_host]
    if desired.repository.manage and state.repository:
        steps.append(Step(Kind.REMOVE_REPOSITORY, IDENTIFIER, "it is not wanted"))
    return Plan(tuple(steps), before={"packages": dict(state.packages)}, after={"packages": {}})
