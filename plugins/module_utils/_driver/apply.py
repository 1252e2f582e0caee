# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The driver stage from beginning to end: read, plan, apply, read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .._adapters.command import CommandError
from .._adapters.openpgp import fingerprints
from .._adapters.package_manager import PackageError
from .._health.hardware import judge_exit_status
from .._packages.transactions import package_appliers, with_newer_lists
from .._plan import Failure, NotInEffect, Plan, Step, carry_out
from .._steps import Kind
from .desired import DesiredDriver
from .dkms import with_modules
from .packages import closure
from .plan import DriverPlan, first_refusal, with_installed_version
from .post_install import PostInstall
from .reload import disruption_refusals
from .runner import apply_packages, ensure_repository, make_plan, package_diff, tried_repository
from .running import mismatch, not_built
from .selection import NotOffered
from .state import Host
from .steps import LOADS, PREFERENCES_NAME, preferences
from .system import DriverSystem


@dataclass(frozen=True)
class DriverReport:
    """What the stage did, or in check mode would do.

    :param reboot: why only a reboot loads the driver.
    :param pending: the steps that wait for it.
    :param files: the files that it writes by itself, each as a part of C(--diff).
    """

    changed: bool
    version: str
    steps: tuple[Step, ...]
    packages: Mapping[str, str]
    before: Mapping[str, str]
    after: Mapping[str, str]
    reboot: tuple[str, ...] = ()
    pending: tuple[Step, ...] = ()
    warnings: tuple[str, ...] = field(default=())
    files: tuple[Mapping[str, str], ...] = ()

    def diff_parts(self) -> list[Mapping[str, str]]:
        """Return what C(--diff) shows beside the steps: packages, and the files that were written."""
        return [_file("packages of the driver", _text(self.before), _text(self.after)), *self.files]


def run_stage(system: DriverSystem, desired: DesiredDriver, check: bool) -> DriverReport:
    """Apply the desired state to the driver of one host.

    :raises Refused: the desired state cannot be met; nothing was touched.
    :raises Failure: reading back does not show what was wanted, or a person has to do something first; in check mode that is a warning.
    """
    before = system.read()
    plan = plan_packages(system, before, desired, check)
    _refuse_disruption(system, before, desired, plan)
    repaired: tuple[Step, ...] = ()
    if before.interrupted and not check:
        # What is refused is refused above. The rest can only be planned from a package database that is whole.
        repaired = tuple(step for step in plan.plan.steps if step.kind is Kind.REPAIR_PACKAGE_DATABASE)
        for step in repaired:
            package_appliers(system.manager)[step.kind](before, step)
        before = system.read()
        plan = plan_packages(system, before, desired, check)
    if check:
        return _predicted(system, before, desired, tried_repository(system, before, desired, plan))
    plan = ensure_repository(system, before, desired, plan)
    files = _files(system, before, desired, plan)
    steps = [*repaired, *plan.plan.steps]
    wanted = "remove the driver" if desired.state == "absent" else f"install driver {plan.version}"
    try:
        installed, exactly = _install(system, before, desired, plan, wanted, steps)
        if plan.stop is not None:
            # What could be done is done, and a person has to do something before the driver can be installed.
            refusals = [plan.stop.as_dict()]
            raise Failure(plan.stop.message, changed=True, refusals=refusals, steps=[step.as_dict() for step in steps])
        if plan.not_offered is not None:
            system.write_not_offered(before.kernel, plan.not_offered)
        run = PostInstall(system, exactly)
        after, left = _take_effect(system, installed, run, wanted)
    except PackageError as error:
        raise PackageError(f"{str(error).rstrip('.')}{leads_on(system.read(), desired)}") from error
    except (NotInEffect, CommandError) as failure:
        message = f"{str(failure).rstrip('.')}{leads_on(system.read(), desired)}"
        raise Failure(message, steps=[step.as_dict() for step in steps]) from failure
    steps += run.done
    return DriverReport(
        changed=bool(steps),
        version=after.version or "",
        steps=tuple(steps),
        packages=closure(after.packages),
        before=closure(before.packages),
        after=closure(after.packages),
        reboot=run.reboot,
        pending=tuple(step for step in left if step.kind in LOADS and run.reboot),
        warnings=plan.plan.warnings,
        files=files,
    )


def _refuse_disruption(system: DriverSystem, host: Host, desired: DesiredDriver, plan: DriverPlan) -> None:
    """Refuse before a package moves what would not be loaded in this run, by who has the driver open now. Raises Refused: it is so."""
    run = PostInstall(system, desired)
    changes = plan.transaction is not None or bool(plan.unknown)
    version = plan.version or with_installed_version(host, desired).version if desired.state != "absent" else ""
    # What stands in the way of the driver that there will be: nouveau stands in nobody's way before.
    there = with_modules(host, plan.plan.steps)
    if changes and desired.state != "absent":
        there = replace(host, on_disk=version or "another")
    follows = run.plan(there, changes)
    first_refusal(disruption_refusals(host, desired, version, (*plan.plan.steps, *follows.steps), run.noticed))


def _builds(step: Step) -> bool:
    return step.kind in (Kind.BUILD_MODULE, Kind.INSTALL_PREREQUISITES)


def _install(
    system: DriverSystem, before: Host, desired: DesiredDriver, plan: DriverPlan, wanted: str, steps: list[Step]
) -> tuple[Host, DesiredDriver]:
    """Carry out the plan of the packages; return the host with them, and what is wanted of it: the version that was resolved, not any of the branch.

    :param steps: all of the run so far, to which those are added that only show afterwards.
    :raises NotInEffect: they are not as planned, or the module was not built. The driver that runs is left alone then.
    """
    installed = before
    exactly = replace(desired, version=plan.version) if desired.state == "present" and plan.version else desired

    def plan_again() -> Plan:
        nonlocal installed
        installed = system.read()
        # The flavour of the facts is that of the loaded modules; which one is on disk its packages tell. A driver that was removed is still loaded.
        of_packages = replace(installed, flavour=None, source=None if desired.state == "absent" else installed.source)
        return make_plan(system, of_packages, exactly).plan

    if plan.stop is not None:
        apply_packages(system, before, desired, plan)
    elif plan.plan.changes:
        # Scripts of packages build for the running kernel, and not for every other one.
        _done, left = carry_out(
            wanted, plan.plan, lambda _plan: apply_packages(system, before, desired, plan), plan_again, waits=_builds
        )
        if left:
            rest = replace(plan, plan=Plan(tuple(left)), transaction=None)
            carry_out(wanted, rest.plan, lambda _plan: apply_packages(system, installed, desired, rest), plan_again)
            steps += left
    unbuilt = not_built(installed, exactly) if desired.state != "absent" and installed.gpus else ""
    if unbuilt and plan.stop is None:
        raise NotInEffect(f"Failed to {wanted}: {unbuilt}")
    return installed, exactly


def _take_effect(system: DriverSystem, host: Host, run: PostInstall, wanted: str) -> tuple[Host, list[Step]]:
    """Have what is installed run; return the host as it is then, and the steps that wait. Raises NotInEffect: it does not run."""
    plan, after = run.plan(host), host

    def plan_again() -> Plan:
        nonlocal after
        after = system.read()
        return run.plan(after)

    def waits(step: Step) -> bool:
        return not host.gpus or run.awaits_reboot(step)

    left: list[Step] = []
    try:
        if plan.changes:
            _done, left = carry_out(wanted, plan, lambda steps: run.apply(steps, host), plan_again, waits=waits)
    except NotInEffect as failure:
        raise NotInEffect(". ".join([str(failure), *run.problems])) from failure
    found = list(run.problems)
    smi = None if run.reboot or run.is_removal or not host.gpus else system.nvidia_smi()
    if smi:
        found.append(judge_exit_status(smi, "").evidence)
    if found and host.gpus and not run.reboot and not run.is_removal:
        raise NotInEffect(f"Failed to {wanted}: {'; '.join(found)}")
    return after, left


def leads_on(host: Host, desired: DesiredDriver) -> str:
    """Return in which state a failure leaves the driver, and the one thing that leads on."""
    if host.interrupted:
        half = ", ".join(host.interrupted)
        return f". The package manager was cut off at {half}. Run again: its database is repaired first."
    if host.loaded in (None, *host.versions) or not host.versions:
        return ". Fix that and run again."
    if desired.state != "absent" and not_built(host, desired):
        return (
            f". The packages are of driver {', '.join(host.versions)}, for which the kernel has no module, and driver {host.loaded} is still loaded. Do "
            "not reboot: correct that and run again, or run gpufleet.nvidia.rollback."
        )
    return f". {mismatch(host)}."


def plan_packages(system: DriverSystem, host: Host, desired: DesiredDriver, check: bool) -> DriverPlan:
    """Plan; where the repositories' lists on the host do not have what is wanted, fetch them anew first.

    They may be older than the repositories, or missing: a run may have been cut off before it fetched them, and NVIDIA's
    local-repository package configures its repository without fetching anything.
    """
    if check:
        return make_plan(system, host, desired)
    return with_newer_lists(system.manager, lambda: make_plan(system, host, desired), NotOffered)


def _predicted(system: DriverSystem, host: Host, desired: DesiredDriver, plan: DriverPlan) -> DriverReport:
    """Return the report of check mode: the plan, resolved, and what would follow from it on the host as it would be."""
    imagined = with_modules(host, plan.plan.steps)
    if plan.transaction is not None or plan.unknown:
        imagined = replace(host, on_disk=plan.version or None, library=plan.version or None)
    run = PostInstall(system, desired)
    follows = Plan() if plan.stop else run.plan(imagined, bool(plan.unknown))
    notes = [
        *plan.plan.warnings,
        *run.problems,
        *([f"The plan is not complete: {plan.unknown}"] if plan.unknown else []),
    ]
    if plan.stop is not None:
        notes.append(f"The run would stop after these steps. {plan.stop.message}")
    packages_before, packages_after = package_diff(host, plan)
    waiting = tuple(step for step in follows.steps if step.kind in LOADS and run.reboot)
    steps = (*plan.plan.steps, *(step for step in follows.steps if step not in waiting))
    return DriverReport(
        changed=bool(steps),
        version=plan.version,
        steps=steps,
        packages=closure(host.packages),
        before=packages_before,
        after=packages_after,
        reboot=run.reboot,
        pending=waiting,
        warnings=tuple(notes),
        files=_files(system, host, desired, plan),
    )


def _files(system: DriverSystem, host: Host, desired: DesiredDriver, plan: DriverPlan) -> tuple[Mapping[str, str], ...]:
    """Return the repository and the pin that the plan writes, as parts of C(--diff)."""
    found = []
    for step in plan.plan.steps:
        if step.kind is Kind.ADD_REPOSITORY:
            repository = system.repository(host, desired)
            text = f"{repository.url}\nsigned by {', '.join(fingerprints(repository.key))}\n"
            found.append(_file(f"repository {repository.identifier}", "", text))
        elif step.kind is Kind.PIN_DRIVER and not step.data["package"]:
            found.append(_file(PREFERENCES_NAME, system.preferences() or "", preferences(str(step.data["version"]))))
        elif step.kind is Kind.REMOVE_REMAINS and system.preferences():
            found.append(_file(PREFERENCES_NAME, system.preferences() or "", ""))
    return tuple(found)


def _file(name: str, before: str, after: str) -> dict[str, str]:
    return {"before_header": name, "after_header": name, "before": before, "after": after}


def _text(packages: Mapping[str, str]) -> str:
    return json.dumps(dict(packages), indent=2, sort_keys=True) + "\n" if packages else ""
