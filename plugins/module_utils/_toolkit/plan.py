# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan the container toolkit of a host: sources, the four packages as one transaction, settings, CDI. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .._adapters.packages import Change, Package, Transaction
from .._formats.cdi import GPU_KIND
from .._injection import VARIABLE, Injection, docker_warning
from .._plan import Plan, Refused, Step
from .._steps import Kind
from .._versions import product_key, product_version
from .config import PATH, edit
from .desired import OLD_PACKAGES, PACKAGES, TOOLKIT, DesiredToolkit
from .distributions import IDENTIFIER
from .floors import check_floor
from .state import ToolkitState


def plan(state: ToolkitState, desired: DesiredToolkit) -> Plan:
    """Return the steps from C(state) to C(desired).

    :raises Refused: the version is below the security floor, or none.
    """
    return _present(state, desired) if desired.present else _absent(state, desired)


def select(offers: Sequence[Package], version: str) -> tuple[Package, ...]:
    """Return the four packages at exactly C(version), of what the repositories offer.

    :raises Refused: one of them is not offered at it; names the versions that all four have.
    """
    chosen = []
    for name in PACKAGES:
        package = next((o for o in offers if o.name == name and product_version(o.version) == version), None)
        if package is not None:
            chosen.append(Package(name, package.version))
    if len(chosen) == len(PACKAGES):
        return tuple(chosen)
    sets = [{product_version(o.version) or "" for o in offers if o.name == name} for name in PACKAGES]
    common = sorted(set.intersection(*sets) - {""}, key=product_key, reverse=True)
    missing = ", ".join(sorted(set(PACKAGES) - {package.name for package in chosen}))
    available = (
        f"All four packages are offered at {', '.join(common[:5])}."
        if common
        else "Check that it is the toolkit's repository."
    )
    raise Refused("nvidia_toolkit_version", f"the repository has no {version} of {missing}", available)


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


def check_changes(
    changes: Sequence[Change], packages: Sequence[Package], is_too_much: Callable[[Change], bool], what: str
) -> None:
    """Refuse a transaction that does more than it was asked for.

    :param packages: those that are asked for.
    :param is_too_much: whether a change is of a package that has to stay as it is.
    :param what: the packages' product, for the message.
    :raises Refused: it makes such a change, or brings another version.
    """
    wanted = {package.name: package.version for package in packages}
    for change in changes:
        if is_too_much(change):
            raise Refused(
                "the package transaction",
                f"the package manager would {change.action} {change.name} {change.before} to install {what}",
                "Find the conflict with the package manager; nothing was installed.",
            )
        if change.name in wanted and change.action != "remove" and change.after != wanted[change.name]:
            raise Refused(
                "the package transaction",
                f"the package manager would install {change.name} {change.after} in place of {wanted[change.name]}",
                "Look for a pin or lock on it; nothing was installed.",
            )


def edited(state: ToolkitState, desired: DesiredToolkit) -> str:
    """Return what the toolkit's C(config.toml) becomes."""
    injection = desired.injection
    return edit(state.config, injection.accepts_envvar, injection.accepts_volume_mounts, state.low_level_runtime)


def injection_step(injection: Injection, in_use: bool, why: str) -> Step:
    """Return the step that makes the toolkit accept exactly the way in which the pool's containers get their devices.

    :param in_use: whether the toolkit is installed already, so that containers may get their devices in another way.
    """
    disturbs = (
        (f"pods that start before the cluster's device plugin has deviceListStrategy {injection.strategy} get no GPU",)
        if in_use
        else ()
    )
    return Step(Kind.ACCEPT_DEVICES, PATH, why, disturbs, {"method": injection.method})


def low_level_reason(runtimes: Sequence[str]) -> str:
    """Return why the first program that nvidia-container-runtime would look for is not the right one."""
    return f"CRI-O itself uses this one, but {PATH} has {', '.join(runtimes) or 'none'}"


def low_level_step(path: str, why: str) -> Step:
    """Return the step that has nvidia-container-runtime call the program C(path)."""
    return Step(Kind.NAME_LOW_LEVEL_RUNTIME, PATH, why, (), {"runtime": path})


def hold_step(packages: Iterable[str]) -> Step:
    why = "unattended upgrades must not move the container toolkit"
    return Step(Kind.HOLD_PACKAGES, TOOLKIT, why, (), {"packages": list(packages)})


def release_step(packages: Iterable[str], why: str) -> Step:
    return Step(Kind.RELEASE_PACKAGES, TOOLKIT, why, (), {"packages": list(packages)})


def _difference(differing: Mapping[str, str]) -> str:
    """Return why packages have to be installed: in one sentence where all four are the same."""
    found = set(differing.values())
    if len(differing) == len(PACKAGES) and len(found) == 1:
        (version,) = found
        return f"installed is {version}" if version else "it is not installed"
    return "; ".join(f"{name} is {version or 'not installed'}" for name, version in differing.items())


def _settings(state: ToolkitState, desired: DesiredToolkit) -> list[Step]:
    """Return what changes in C(config.toml)."""
    injection = desired.injection
    exactly = state.accepts == (injection.accepts_envvar, injection.accepts_volume_mounts)
    named = state.low_level_runtime in (None, *state.low_level_runtimes[:1])
    # Another setting of ours may be one that the file no longer needs.
    outdated = state.config is not None and edited(state, desired) != state.config
    steps = []
    if not named:
        why = low_level_reason(state.low_level_runtimes)
        steps.append(low_level_step(str(state.low_level_runtime), why))
    if not exactly or (outdated and named):
        steps.append(
            injection_step(injection, bool(state.packages), f"{PATH} says otherwise" if state.accepts else VARIABLE)
        )
    return steps


def _repair(state: ToolkitState) -> list[Step]:
    if not state.interrupted:
        return []
    return [Step(Kind.REPAIR_PACKAGE_DATABASE, TOOLKIT, f"partially installed: {', '.join(state.interrupted)}")]


def _present(state: ToolkitState, desired: DesiredToolkit) -> Plan:
    warning = check_floor(desired.version, desired.allow_vulnerable)
    steps = _repair(state)
    differing = state.differing(desired.version)
    old = [name for name in OLD_PACKAGES if name in state.packages]
    if desired.manage_repository:
        steps += [
            Step(Kind.REMOVE_FILE, path, "it has the repository without its key (Conflicting Signed-By)")
            for path in state.old_sources
        ]
        if state.repository is False:
            steps.append(Step(Kind.ADD_REPOSITORY, IDENTIFIER, "it is not configured"))
    held = set(state.holds or ())
    if desired.hold and state.missing_for_holds and (differing or not held.issuperset(PACKAGES)):
        names = list(state.missing_for_holds)
        steps.append(Step(Kind.INSTALL_PREREQUISITES, TOOLKIT, "packages are held with it", (), {"packages": names}))
    if differing or old:
        why = _difference(differing)
        disturbs = ("containers that start during the transaction",) if any(differing.values()) else ()
        data: dict[str, Any] = {"packages": list(PACKAGES), "version": desired.version, "remove": old}
        why = why or f"{', '.join(old)} is its predecessor"
        steps.append(Step(Kind.INSTALL_TOOLKIT, TOOLKIT, why, disturbs, data))
    if desired.hold and (differing or not held.issuperset(PACKAGES)):
        steps.append(hold_step(PACKAGES))
    if not desired.hold and held & set(PACKAGES):
        steps.append(release_step(state.held, "nvidia_toolkit_hold is false"))
    steps += _settings(state, desired)
    if desired.cdi:
        if state.cdi_unit is False:
            why = "it keeps the CDI specification fresh after driver changes"
            steps.append(Step(Kind.ENABLE_SERVICE, "nvidia-cdi-refresh", why))
        stale = state.cdi.stale or ("the toolkit changes" if differing and state.driver_loaded else "")
        if stale:
            steps.append(Step(Kind.GENERATE_CDI_SPECIFICATION, GPU_KIND, stale))
        why = "it describes other devices or another driver than this host has, and runtimes read every specification"
        steps += [Step(Kind.MOVE_ASIDE, path, why) for path in state.cdi.leftovers]
    return Plan(
        tuple(steps),
        before={"packages": dict(state.packages), "config": state.config},
        after={"packages": dict.fromkeys(PACKAGES, desired.version), "config": edited(state, desired)},
        warnings=tuple(
            text for text in (warning, docker_warning(desired.injection, desired.runtime), *_unreadable(state)) if text
        ),
    )


def _unreadable(state: ToolkitState) -> list[str]:
    """Return which CDI specifications cannot be read: they may be of other devices, so nobody moves them."""
    return [f"{path} is no CDI specification that can be read: correct or remove it" for path in state.cdi.unreadable]


def _absent(state: ToolkitState, desired: DesiredToolkit) -> Plan:
    names = [name for name in (*PACKAGES, *OLD_PACKAGES) if name in state.packages]
    steps = _repair(state)
    if state.held:
        steps.append(release_step(state.held, "they are to be removed"))
    if names:
        disturbs = ("containers that use GPUs can no longer be started",)
        steps.append(Step(Kind.UNINSTALL_TOOLKIT, TOOLKIT, "it is not wanted", disturbs, {"packages": names}))
    # The packages' scripts make the file, so that no package manager takes it away.
    steps += [Step(Kind.REMOVE_FILE, PATH, "it is the toolkit's")] if state.config is not None else []
    steps += [
        Step(Kind.REMOVE_FILE, path, "it is what the toolkit generated for the driver") for path in state.specifications
    ]
    if desired.manage_repository and state.repository:
        steps.append(Step(Kind.REMOVE_REPOSITORY, IDENTIFIER, "it is not wanted"))
    return Plan(tuple(steps), before={"packages": dict(state.packages)}, after={"packages": {}})
