# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read, plan, resolve and apply the packages of the driver stage; what comes after the packages is in C(_driver/post_install.py).

NVIDIA's packages depend on each other with C(>=): asked for one package at one version, a resolver takes the newest of the
others. So a plan is resolved, looked at, and resolved again with every package that strayed named at its version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from .._adapters.command import CommandError
from .._adapters.installed_packages import is_kernel_package
from .._adapters.package_manager import Change, Package, PackageError, PackageManager, Transaction
from .._distributions.distributions import APT_PIN, MODULE_STREAM
from .._formats.driver_versions import driver_key, driver_version_in
from .._packages import transactions
from .._packages.transactions import Applier, configure, hold_again, package_appliers, packages_in
from .._plan import Refused, Step
from .._steps import Kind
from . import dkms
from .desired import PREFIX, REPOSITORY_NAME, DesiredDriver
from .dkms import header_names
from .packages import DKMS, LOOSE_NAMES, closure, hold_names, versioned
from .plan import DriverPlan, Repositories, packages_differ, plan_absent, plan_present, plan_previous
from .selection import by_version, names_of, names_to_ask
from .state import Host, to_write
from .steps import PACKAGES, PREFERENCES_NAME, preferences
from .system import MODULE, DriverSystem

#: File that NVIDIA's pinning packages ship.
_NVIDIA_PIN = "nvidia-driver-pin"
#: What no driver is worth, by the beginning of the name.
_PRECIOUS = (
    "linux-image",
    "kernel-core",
    "kernel-default",
    "containerd",
    "docker",
    "cri-o",
    "kubelet",
    "nvidia-container",
)
#: What has to be there before the packages of the driver are known.
_PREPARATIONS = (Kind.ADD_REPOSITORY, Kind.ENABLE_REPOSITORIES)


def make_plan(system: DriverSystem, host: Host, desired: DesiredDriver) -> DriverPlan:
    """Ask the repositories what the plan needs to know, and plan. Raises Refused: the desired state cannot be met."""
    if desired.state == "absent":
        return plan_absent(host, system.remains(desired))
    url = system.repository_url(host, desired)
    configured = not url or not desired.repository.manage or _is_configured(system, host, desired, url)
    if desired.state == "previous":
        return _plan_previous(system, host, desired)
    builds = names_of(host, desired).module == DKMS
    if not packages_differ(host, desired):
        # Headers come from the distribution's own repositories, which are there whatever else is.
        later = header_names(host, host.unbuilt) if builds else ()
        return plan_present(host, desired, Repositories(configured, system.manager.offered(later) if later else ()))
    asked = (*names_to_ask(host, desired), *(header_names(host, {host.kernel, *host.unbuilt}) if builds else ()))
    version = system.manager.installed().get(dkms.DKMS_PACKAGE, "")
    needs_dkms = builds and dkms.names(host) != () and not version
    offered = system.manager.offered((*asked, *(dkms.names(host) if needs_dkms else ()))) if configured else ()
    disabled = system.manager.disabled_repositories() if needs_dkms else ()
    version = version or next((package.version for package in offered if package.name == dkms.DKMS_PACKAGE), "")
    streams = None
    if configured and host.distribution.pinning == MODULE_STREAM:
        streams = system.manager.offered_streams(MODULE)
    known = Repositories(configured, offered, _stream(system, host), streams, not needs_dkms, disabled, version)
    return plan_present(host, desired, known)


def _is_configured(system: DriverSystem, host: Host, desired: DesiredDriver, url: str) -> bool:
    if url not in system.manager.repositories():
        return False
    if not system.manager.has_credentials(REPOSITORY_NAME, url, desired.repository.credentials):
        return False
    # NVIDIA's local-repository package names its own key, which nobody has compared with a fingerprint. apt reads nothing
    # until that key is put where apt looks for it; dnf and zypper would take it from beside the packages.
    foreign = desired.source == "local_repository" and host.distribution.manager != "apt"
    return not foreign or system.manager.has_repository(REPOSITORY_NAME)


def _plan_previous(system: DriverSystem, host: Host, desired: DesiredDriver) -> DriverPlan:
    record = system.record
    offered = system.manager.offered(record.packages) if record is not None else ()
    return plan_previous(host, desired, record, Repositories(True, offered, _stream(system, host)))


def _stream(system: DriverSystem, host: Host) -> str:
    if host.distribution.pinning != MODULE_STREAM:
        return ""
    return system.manager.streams().get(MODULE, "")


def resolve(system: DriverSystem, host: Host, plan: DriverPlan) -> DriverPlan:
    """Return the plan as the package manager resolves it, again and again until every package of the driver has its version.

    :raises PackageError: it cannot be resolved.
    :raises Refused: a package would go to another driver version, whatever is named.
    """
    if plan.transaction is None:
        return plan
    manager = system.manager

    def follow(asked: Transaction, changes: Sequence[Change]) -> Transaction:
        astray = strayed(changes, plan.version, host.packages) if plan.version else {}
        if not astray:
            return asked
        return in_lockstep(asked, astray, manager.offered(astray), plan.version, host.packages)

    try:
        transaction, changes = transactions.resolve(
            manager, _prepared(host, plan), lambda changes: _refuse_collateral(host, plan, changes), follow
        )
    except PackageError as error:
        hint = f" {host.distribution.hint}" if host.distribution.hint else ""
        raise PackageError(f"{error}{hint}") from error
    return _with_changes(plan, transaction, changes)


def _prepared(host: Host, plan: DriverPlan) -> Transaction:
    held = any(step.kind is Kind.RELEASE_PACKAGES for step in plan.plan.steps)
    transaction = replace(plan.transaction or Transaction(), ignore_holds=held)
    if plan.version and host.distribution.pinning == APT_PIN:
        return replace(
            transaction,
            preferences=preferences(plan.version),
            replaces=(PREFERENCES_NAME, _NVIDIA_PIN, _NVIDIA_PIN + ".pref"),
        )
    stream = next((str(step.data["stream"]) for step in plan.plan.steps if step.kind is Kind.ENABLE_MODULE_STREAM), "")
    return replace(transaction, stream=f"{MODULE}:{stream}") if stream else transaction


def _refuse_collateral(host: Host, plan: DriverPlan, changes: Sequence[Change]) -> None:
    """Refuse a resolution that removes what is not the driver's: a kernel, a container runtime, a desktop."""
    installed = closure(host.packages)
    lost = [
        change.name
        for change in changes
        if change.action == "remove"
        and change.name not in installed
        and (change.name.startswith(_PRECIOUS) or change.name in ("systemd", "openssh-server", "k3s"))
    ]
    if lost:
        raise Refused(
            f"driver {plan.version or 'removal'}",
            f"the package manager would also remove {', '.join(lost)}",
            "Remove what conflicts with the driver by hand, or choose another source.",
        )


def strayed(changes: Iterable[Change], version: str, installed: Mapping[str, str]) -> dict[str, str]:
    """Return the driver's packages that would be at another driver version than C(version) afterwards.

    Both kinds count: those that a resolution brings to another version, and those that it leaves where they are because
    the old version still satisfies a C(>=).

    :param installed: all installed packages of the driver.
    :returns: the package versions that they would have, by name.
    """
    after = dict(installed)
    for change in changes:
        if change.action == "remove":
            after.pop(change.name, None)
        else:
            after[change.name] = change.after
    loose = {name: driver_version_in(after[name]) for name in LOOSE_NAMES if name in after}
    found = {**versioned(after), **loose}
    return {name: after[name] for name, driver in sorted(found.items()) if driver not in (version, None)}


def in_lockstep(
    transaction: Transaction,
    astray: Mapping[str, str],
    offered: Iterable[Package],
    version: str,
    installed: Mapping[str, str],
) -> Transaction:
    """Return C(transaction) with every package that strayed named at the version of the others.

    One that is installed, and that the repositories do not offer at that version, does not belong to the driver any
    more and is removed.

    :param astray: what L(strayed) returned.
    :param offered: what the repositories have of those packages.
    :raises Refused: a package would go to a newer driver, and the repositories do not offer it at C(version).
    """
    available = by_version(offered)
    named = {package.name for package in transaction.install if package.version}
    added, removed = [], []
    for name, package_version in astray.items():
        package = available.get((name, version))
        if package is None and name in LOOSE_NAMES:
            # In the distributions' archives these have versions of their own.
            continue
        found = driver_version_in(package_version)
        if package is not None and name not in named:
            added.append(package)
        elif found is not None and driver_key(found) > driver_key(version) and installed.get(name) != package_version:
            raise Refused(
                f"{PREFIX}version",
                f"driver {version} would pull in {name} {package_version} of a newer driver, and the repositories do not "
                f"offer {name} at {version}",
                "Complete the mirror, or choose the version that the repositories offer completely.",
            )
        elif name not in transaction.remove and name not in named:
            removed.append(name)
    return replace(transaction, install=(*transaction.install, *added), remove=(*transaction.remove, *removed))


def _with_changes(plan: DriverPlan, transaction: Transaction, changes: tuple[Change, ...]) -> DriverPlan:
    shown = {"changes": [change.as_dict() for change in changes]} if changes else {}
    steps = tuple(
        replace(step, data={**step.data, **shown}) if step.kind in PACKAGES else step for step in plan.plan.steps
    )
    return replace(plan, plan=replace(plan.plan, steps=steps), transaction=transaction, changes=changes)


def package_diff(host: Host, plan: DriverPlan) -> tuple[dict[str, str], dict[str, str]]:
    """Return the driver's package set before and after, for C(--diff)."""
    before = {**closure(host.packages)}
    after = dict(before)
    for change in plan.changes:
        if change.before:
            before[change.name] = change.before
        if change.action == "remove":
            after.pop(change.name, None)
        else:
            after[change.name] = change.after
    return before, after


def apply_packages(system: DriverSystem, host: Host, desired: DesiredDriver, plan: DriverPlan) -> None:
    """Carry out every step of a resolved plan, in order.

    :raises PackageError: the package manager failed; what it said is in the message. Where it failed before it changed
        anything (a server that died, a full disk), what was held is held again.
    """
    manager, steps = system.manager, plan.plan.steps

    def change(_host: Host, _step: Step) -> None:
        if plan.transaction is not None:
            manager.apply(plan.transaction)

    appliers: dict[Kind, Applier[Host]] = {
        **package_appliers(manager),
        Kind.ADD_REPOSITORY: lambda _host, _step: configure(manager, system.repository(host, desired)),
        Kind.ENABLE_REPOSITORIES: lambda _host, step: dkms.enable(manager, step),
        Kind.ENABLE_MODULE_STREAM: lambda _host, step: manager.enable_stream(MODULE, str(step.data["stream"])),
        Kind.CREATE_FILE: lambda _host, step: system.write_file(str(step.data["path"]), str(step.data["text"])),
        Kind.BUILD_MODULE: lambda _host, step: system.build_module(step),
        Kind.CREATE_SIGNING_KEY: lambda _host, _step: system.create_signing_key(host),
        Kind.PIN_DRIVER: lambda _host, step: _pin(system, step),
        **dict.fromkeys(PACKAGES, change),
        Kind.HOLD_DRIVER: lambda _host, _step: _hold(manager),
        Kind.REMOVE_REMAINS: lambda _host, _step: _remove_remains(system, host, desired),
    }
    for step in steps:
        if step.data.get("record"):
            # Before the first step: a step may already change the module stream.
            record = to_write(host, system.record, str(step.data["version"]), _stream(system, host))
            if record is not None:
                system.write_record(record)
    try:
        for step in steps:
            appliers[step.kind](host, step)
    except (CommandError, PackageError):
        # A package database that is half done must be free to move packages when it is repaired.
        if not manager.interrupted():
            hold_again(manager, host.holds)
        raise
    record = system.record
    if record is not None and record.pending:
        system.write_record(replace(record, pending=""))


def _pin(system: DriverSystem, step: Step) -> None:
    wanted = packages_in([step.data["package"]] if step.data["package"] else [])
    stale = tuple(str(name) for name in step.data["remove"])
    if wanted or stale:
        # A transaction of its own: apt reads preferences when it starts, so the pin only counts from the next one on.
        system.manager.apply(Transaction(wanted, stale, allow_downgrades=True))
    system.write_preferences(None if wanted else preferences(str(step.data["version"])))


def _hold(manager: PackageManager) -> None:
    """Hold all of the driver that is installed, at its version."""
    installed = manager.installed()
    hold_again(manager, hold_names(installed, filter(is_kernel_package, installed)))


def _remove_remains(system: DriverSystem, host: Host, desired: DesiredDriver) -> None:
    system.write_preferences(None)
    if desired.repository.manage:
        system.manager.remove_repository(REPOSITORY_NAME)
    if _stream(system, host):
        system.manager.reset_stream(MODULE)


def ensure_repository(system: DriverSystem, host: Host, desired: DesiredDriver, plan: DriverPlan) -> DriverPlan:
    """Resolve the plan; when repositories that it needs are not there yet, configure them first and plan again.

    :raises Refused: what is wanted is not available from them; the driver's is removed again, and EPEL stays.
    """
    done: list[Step] = []
    try:
        while plan.unknown:
            step = next((step for step in plan.plan.steps if step.kind in _PREPARATIONS and step not in done), None)
            if step is None:
                raise Refused(
                    dkms.DKMS_PACKAGE,
                    "the repositories that should have it are enabled, but none of them offers it",
                    "See dnf repolist --all and dnf list --all dkms: a mirror may lack it.",
                )
            if step.kind is Kind.ADD_REPOSITORY:
                configure(system.manager, system.repository(host, desired))
            else:
                dkms.enable(system.manager, step)
            done.append(step)
            plan = make_plan(system, host, desired)
        plan = replace(plan, plan=replace(plan.plan, steps=(*done, *plan.plan.steps)))
        return resolve(system, host, plan)
    except (Refused, PackageError):
        if any(step.kind is Kind.ADD_REPOSITORY for step in done):
            system.manager.remove_repository(REPOSITORY_NAME)
        raise


def tried_repository(system: DriverSystem, host: Host, desired: DesiredDriver, plan: DriverPlan) -> DriverPlan:
    """Resolve the plan with the repository that it needs as it would be, and leave the host as it is: for check mode.

    :raises Refused: what is wanted is not available from it.
    :raises PackageError: it cannot be read, or the plan cannot be resolved.
    """
    if not plan.unknown:
        return resolve(system, host, plan)
    first = [step for step in plan.plan.steps if step.kind is Kind.ADD_REPOSITORY]
    if not first:
        return resolve(system, host, plan)
    with system.manager.trial(system.repository(host, desired)) as manager:
        if manager is None:
            return resolve(system, host, plan)
        tried = system.over(manager)
        plan = make_plan(tried, host, desired)
        plan = replace(plan, plan=replace(plan.plan, steps=(*first, *plan.plan.steps)))
        return resolve(tried, host, plan)
