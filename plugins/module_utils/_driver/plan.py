# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the facts, the desired state and what the repositories offer to the steps of the driver stage, in the order of host.md 11.2.

Packages are planned here; what follows from them (services, the reload) is in C(_driver/running.py), because it can only be
seen once the packages are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .._adapters.package_manager import Change, Package, Transaction
from .._distributions.distributions import APT_PIN
from .._formats.driver_versions import driver_version_in
from .._plan import Plan, Refused, Step
from .._records import PreviousDriver
from .._steps import Kind
from . import dkms, secure_boot
from .desired import PREFIX, DesiredDriver
from .dkms import as_recorded, build_warnings, lacking, not_offered, unread_warnings
from .fabric import imex_warnings
from .floors import shortfall, warnings
from .packages import DKMS, closure, of_other_branch, of_other_generation
from .refusals import board_warnings, foreign_refusals, judged_version, refusals, space_refusals, too_old
from .reload import Impact
from .selection import (
    NotOffered,
    Selection,
    archive_of,
    check_floor,
    follows_kernels,
    missing_fabric_packages,
    names_of,
    select,
)
from .state import Host, Remains
from .steps import (
    DRIVER,
    SET,
    driver_step,
    hold_prerequisites,
    hold_steps,
    pin_step,
    prerequisites_step,
    repository_step,
    stream_step,
)

_GPU_CLIENTS = "processes that open a GPU between the installation and the reload"
_UNASKED = "the exact packages are known once the repository is queried"


@dataclass(frozen=True)
class Repositories:
    """What is known of the repositories.

    :param configured: whether the one that is wanted is configured on the host.
    :param offered: what all of them offer of the names that were asked for; empty until the wanted one is configured.
    :param stream: the enabled stream of the dnf module nvidia-driver, or empty.
    :param streams: all that the repositories have of it; None where nobody asked.
    :param dkms_installed: whether dkms is there, or is not needed.
    :param disabled: repositories that are configured and not enabled.
    :param dkms: its version, installed or offered; empty where it is not known.
    """

    configured: bool = True
    offered: tuple[Package, ...] = ()
    stream: str = ""
    streams: tuple[str, ...] | None = None
    dkms_installed: bool = True
    disabled: tuple[str, ...] = ()
    dkms: str = ""


@dataclass(frozen=True)
class DriverPlan:
    """A L(Plan) and what its packages come to.

    :param version: the driver version that will be installed; empty for none, or when it is not known yet.
    :param transaction: the main transaction, or None when no package changes.
    :param unknown: why the plan cannot be complete yet, or empty.
    :param not_offered: packages with headers of later kernels that the repositories lack; None where nobody asked for them.
    :param stop: why the run ends behind these steps although the driver is not there yet, with what a person has to do; None for no reason.
    :param changes: what the transaction does, package by package, once the package manager has resolved it.
    """

    plan: Plan
    version: str = ""
    transaction: Transaction | None = None
    unknown: str = ""
    stop: Refused | None = None
    not_offered: tuple[str, ...] | None = None
    changes: tuple[Change, ...] = ()


def packages_differ(host: Host, desired: DesiredDriver) -> str:
    """Return why packages have to change for C(state: present), or an empty string when they are as wanted."""
    if host.interrupted:
        return f"an earlier transaction was cut off ({', '.join(host.interrupted)})"
    if not host.versions:
        return "no driver is installed"
    if host.version is None:
        return f"packages of different drivers are installed ({', '.join(host.versions)})"
    if not desired.met_by(host.version):
        return f"driver {host.version} is installed"
    if host.flavour is not None and host.flavour != desired.flavour:
        return f"the {host.flavour} kernel modules are installed"
    names = names_of(host, desired)
    loose = names.loose if follows_kernels(host, desired) else ()
    # A kernel that has its module may have lost the package that brought it.
    following = [name for name in loose if host.kernel not in name or host.kernel in host.unbuilt]
    missing = [name for name in (*names.required, *following) if name not in host.packages]
    if missing:
        return f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
    fabric = missing_fabric_packages(host, desired)
    if fabric:
        return f"{', '.join(fabric)} {'is' if len(fabric) == 1 else 'are'} not installed"
    below = shortfall(host.version, desired.floors)
    if below is not None and not desired.allow_vulnerable and not desired.version:
        return below[0]
    leftovers = left_over(host, desired)
    if leftovers:
        return f"{', '.join(leftovers)} of another branch are left over"
    return ""


def left_over(host: Host, desired: DesiredDriver) -> tuple[str, ...]:
    """Return the installed packages of the driver that belong to another branch, or to another generation of names (SUSE)."""
    generation = archive_of(host, desired).generation
    found = {*of_other_branch(host.packages, desired.branch_number), *of_other_generation(host.packages, generation)}
    return tuple(sorted(found))


def with_installed_version(host: Host, desired: DesiredDriver) -> DesiredDriver:
    """Return the desired state with the version that it comes to when the installed one already meets it.

    A branch means "some version of it": what is there stays until the user names a version, or it falls below the floor.
    """
    if desired.version or host.version is None or not desired.met_by(host.version):
        return desired
    if shortfall(host.version, desired.floors) is not None:
        return desired
    return replace(desired, version=host.version)


def plan_present(
    host: Host, desired: DesiredDriver, repositories: Repositories | None, noticed: Impact | None = None
) -> DriverPlan:
    """Return the steps that bring the wanted driver.

    :param repositories: None where nobody has asked them yet, as on the controller: then the packages stay open.
    :param noticed: whom another driver disturbs, where more is known of it than that one is loaded.
    :raises Refused: it is not available on this host, or not from these repositories.
    """
    unasked = repositories is None
    first_refusal([*refusals(host, desired), *(() if unasked else secure_boot.module_refusals(host, desired))])
    notes = [
        *board_warnings(host),
        *unread_warnings(host),
        *imex_warnings(host, desired),
        *secure_boot.unread_warnings(host, desired),
    ]
    builds = names_of(host, desired).module == DKMS
    repositories = repositories or Repositories(offered=as_recorded(host) if builds else ())
    steps = SET.repair_steps(host.interrupted, "an earlier run was cut off")
    if not repositories.configured:
        steps.append(repository_step(desired))
    why = packages_differ(host, desired)
    keyless = secure_boot.lacks_key(host, desired)
    unavailable = not_offered(host, repositories.offered) if builds else ()
    if not why:
        if keyless:
            raise secure_boot.unsigned(host)
        if builds:
            steps.extend(_header_steps(host, lacking(host, host.unbuilt, repositories.offered)))
            steps.extend(dkms.build_steps(host, desired))
            notes.extend(build_warnings(host, repositories.offered))
        steps.extend(hold_steps(host, desired))
        notes.extend(_version_warnings(host.version or "", desired))
        return DriverPlan(_plan(host, steps, {}, notes), host.version or "", not_offered=unavailable)
    first_refusal(space_refusals(host))
    if unasked or not (repositories.configured or repositories.offered):
        unknown = _UNASKED if unasked else "the repository is not configured yet, so what it offers is not known"
        if builds and unasked:
            lacking(host, {host.kernel, *host.unbuilt}, repositories.offered)
        notes.extend(_version_warnings(judged_version(host, desired), desired))
        steps.extend(secure_boot.key_steps(host) if keyless else [_unresolved_step(host, desired, why, noticed)])
        return DriverPlan(_plan(host, steps, {}, notes), unknown=unknown)
    selection = select(host, with_installed_version(host, desired), repositories.offered)
    first_refusal(found for gpu in host.gpus for found in [too_old(gpu, desired, selection.version)] if found)
    _check_stream(selection, repositories)
    if selection.module == DKMS and not repositories.dkms_installed:
        names = {package.name for package in repositories.offered}
        enabling = dkms.repository_step(host, desired, names, repositories.disabled)
        if enabling is not None:
            steps.append(enabling)
            steps.extend(secure_boot.key_steps(host) if keyless else [_unresolved_step(host, desired, why)])
            return DriverPlan(
                _plan(host, steps, {}, notes), unknown="dkms comes from a repository that is not enabled yet"
            )
    if keyless:
        steps.extend(secure_boot.key_steps(host))
        return DriverPlan(_plan(host, steps, {}, notes), stop=secure_boot.stop(host))
    notes.extend(_version_warnings(selection.version, desired))
    if selection.module == DKMS:
        notes.extend(build_warnings(host, repositories.offered))
        steps.extend(dkms.toolchain_steps(host, repositories.dkms))
    leftovers = set(left_over(host, desired)) - {package.name for package in selection.packages}
    transaction = Transaction(
        selection.packages, tuple(sorted(leftovers)), allow_downgrades=True, recommends=desired.variant == "full"
    )
    headers = (
        _header_steps(host, lacking(host, {host.kernel, *host.unbuilt}, repositories.offered))
        if selection.module == DKMS
        else []
    )
    steps += [
        *_preparations(host, desired, selection.version, selection.stream, repositories, headers, selection.pinning),
        _main_step(host, selection.version, transaction, why),
        *_hold(desired),
    ]
    after = {package.name: package.version for package in selection.packages}
    return DriverPlan(_plan(host, steps, after, notes), selection.version, transaction, not_offered=unavailable)


def plan_absent(host: Host, remains: Remains, noticed: Impact | None = None) -> DriverPlan:
    """Return the steps that remove the driver, its holds, its pins and its repository.

    Each is looked for by itself: a removal that was cut off may have left any of them without the others.
    """
    first_refusal(foreign_refusals(host, f"{PREFIX}state"))
    installed = closure(host.packages)
    steps = SET.repair_steps(host.interrupted, "an earlier run was cut off")
    if host.held:
        steps.append(SET.release_step(host.held, "state is absent"))
    transaction = Transaction(remove=tuple(sorted(installed))) if installed else None
    if transaction is not None:
        steps.append(_main_step(host, "", transaction, "state is absent", noticed=noticed))
    if remains.named:
        steps.append(Step(Kind.REMOVE_REMAINS, DRIVER, "state is absent", (), {"remains": list(remains.named)}))
    return DriverPlan(_plan(host, steps, {}, []), "", transaction, not_offered=())


def plan_previous(
    host: Host, desired: DesiredDriver, record: PreviousDriver | None, repositories: Repositories
) -> DriverPlan:
    """Return the steps back to the recorded package set, as one transaction.

    :raises Refused: nothing is recorded, or the repositories do not have it any more.
    """
    if record is None:
        raise Refused(
            f"{PREFIX}state",
            "no previous driver is recorded on this host",
            f"Name the version instead, with {PREFIX}version.",
        )
    installed = closure(host.packages)
    notes = []
    below = shortfall(record.version, desired.floors) if record.version else None
    if below is not None:
        notes.append(f"GOING BACK TO A VULNERABLE DRIVER: {below[0]}")
    offered = {(package.name, package.version): package for package in repositories.offered}
    wanted, gone, kept = [], [], {}
    for name, version in sorted(record.packages.items()):
        if installed.get(name) == version:
            kept[name] = version
        elif (name, version) in offered:
            wanted.append(offered[name, version])
        elif name in installed and driver_version_in(version) != record.version:
            # nvidia-modprobe and nvidia-persistenced of the archives have versions of their own: they stay as they are.
            kept[name] = installed[name]
        else:
            gone.append(f"{name} {version}")
    if gone:
        raise NotOffered(
            f"{PREFIX}state",
            f"the repositories no longer offer the previous driver: {', '.join(gone)}",
            "Configure a mirror that keeps old versions, or name an offered version.",
        )
    extra = tuple(sorted(name for name in installed if name not in record.packages and "pinning" not in name))
    steps = SET.repair_steps(host.interrupted, "an earlier run was cut off")
    if not wanted and not extra:
        steps.extend(hold_steps(host, desired))
        return DriverPlan(_plan(host, steps, {}, notes), record.version)
    transaction = Transaction(tuple(wanted), extra, allow_downgrades=True)
    steps += [
        *_preparations(host, desired, record.version, record.stream, repositories),
        _main_step(host, record.version, transaction, "state is previous", record=False),
        *_hold(desired),
    ]
    return DriverPlan(_plan(host, steps, dict(record.packages), notes), record.version, transaction)


def first_refusal(found: Iterable[Refused]) -> None:
    """Raise what was refused: alone as it is, several as one that names them all."""
    several = list(found)
    if len(several) == 1:
        raise several[0]
    if several:
        raise Refused(
            several[0].thing, "; ".join(f"{item.thing}: {item.reason}" for item in several), several[0].remedy
        )


def _preparations(
    host: Host,
    desired: DesiredDriver,
    version: str,
    stream: str,
    repositories: Repositories,
    headers: Iterable[Step] = (),
    pinning: Package | None = None,
) -> list[Step]:
    return [
        *([stream_step(stream)] if stream and stream != repositories.stream else []),
        *hold_prerequisites(host, desired),
        *headers,
        *([SET.release_step(host.held, "held packages cannot be changed")] if host.held else []),
        *([pin_step(host, version, pinning)] if desired.hold and host.distribution.pinning == APT_PIN else []),
    ]


def _hold(desired: DesiredDriver) -> list[Step]:
    return [Step(Kind.HOLD_DRIVER, DRIVER, "unattended upgrades must not move it")] if desired.hold else []


def _check_stream(selection: Selection, repositories: Repositories) -> None:
    if not selection.stream or repositories.streams is None or selection.stream in repositories.streams:
        return
    found = ", ".join(repositories.streams)
    raise NotOffered(
        f"{PREFIX}repository_url",
        f"the repositories have no module stream nvidia-driver:{selection.stream}",
        f"They have {found}."
        if found
        else "A mirror has to carry the module metadata (modules.yaml) of NVIDIA's repository too.",
    )


def _header_steps(host: Host, missing: Sequence[Package]) -> list[Step]:
    which = "every later kernel" if host.headers else f"kernel {host.kernel}"
    return [prerequisites_step(missing, f"modules are built for {which}")] if missing else []


def _main_step(
    host: Host, version: str, transaction: Transaction, why: str, record: bool = True, noticed: Impact | None = None
) -> Step:
    data = {
        "version": version,
        "record": record,
        "install": [[package.name, package.version] for package in transaction.install],
        "remove": list(transaction.remove),
    }
    return _noticed_step(host, why, data, noticed, bool(version))


def _unresolved_step(host: Host, desired: DesiredDriver, why: str, noticed: Impact | None = None) -> Step:
    return _noticed_step(host, why, {"version": desired.version, "branch": desired.branch}, noticed)


def _noticed_step(host: Host, why: str, data: Mapping[str, Any], noticed: Impact | None, present: bool = True) -> Step:
    noticed = noticed or Impact((_GPU_CLIENTS,) if host.loaded else ())
    return driver_step(host, why, noticed.who, {**data, **noticed.data}, present)


def _version_warnings(version: str, desired: DesiredDriver) -> list[str]:
    """Return what is known against a version, or against the wanted branch where none is known yet.

    :raises Refused: it is below the security floor, and that is not allowed.
    """
    below = check_floor(version, desired) if version else None
    return [
        *([below] if below else []),
        *warnings(version or f"{desired.branch_number}.00", desired.floors, desired.branches),
    ]


def _plan(host: Host, steps: Iterable[Step], after: Mapping[str, str], notes: Iterable[str]) -> Plan:
    return Plan(tuple(steps), closure(host.packages) if after else {}, after, tuple(notes))
