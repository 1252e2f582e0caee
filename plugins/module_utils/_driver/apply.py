# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The driver stage from beginning to end: read, plan, apply, read back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from .._adapters.openpgp import fingerprints
from .._adapters.packages import PackageError
from .._plan import Refused, Step
from .._steps import Kind
from .desired import DesiredDriver
from .packages import closure
from .plan import DriverPlan
from .post_install import PostInstall, PostInstallOutcome
from .runner import (
    PackageApplier,
    Resolved,
    ensure_repository,
    make_plan,
    package_diff,
    planned_steps,
    tried_repository,
)
from .selection import NotOffered
from .services import PREFERENCES_NAME, preferences
from .state import Host
from .system import DriverSystem
from .verification import absent_problems, package_problems, running_problems


class Failed(Exception):
    """Everything was carried out, and what was read back is not what was wanted."""

    def __init__(self, wanted: str, differences: Sequence[str], steps: Sequence[Step]) -> None:
        self.differences = tuple(differences)
        self.steps = [step.as_dict() for step in steps]
        super().__init__(f"Failed to {wanted}: {'; '.join(differences)}. Fix that and run again.")


class Stopped(Exception):
    """What could be done is done, and a person has to do something before the driver can be installed.

    :param refusal: why, and what.
    """

    def __init__(self, refusal: Refused, steps: Sequence[Step]) -> None:
        self.refusal = refusal
        self.steps = [step.as_dict() for step in steps]
        super().__init__(refusal.message)


@dataclass(frozen=True)
class DriverReport:
    """What the stage did, or in check mode would do.

    :param files: the files that it writes by itself, each as a part of C(--diff).
    """

    changed: bool
    version: str
    steps: tuple[Step, ...]
    packages: Mapping[str, str]
    before: Mapping[str, str]
    after: Mapping[str, str]
    reboot: tuple[str, ...] = ()
    warnings: tuple[str, ...] = field(default=())
    files: tuple[Mapping[str, str], ...] = ()

    def diff_parts(self) -> list[Mapping[str, str]]:
        """Return what C(--diff) shows beside the steps: packages, and the files that were written."""
        return [_file("packages of the driver", _text(self.before), _text(self.after)), *self.files]


def run_stage(system: DriverSystem, desired: DesiredDriver, check: bool) -> DriverReport:
    """Apply the desired state to the driver of one host.

    :raises Refused: the desired state cannot be met; nothing was touched.
    :raises Stopped: a person has to do something first; in check mode that is a warning.
    :raises Failed: reading back does not show what was wanted.
    """
    before = system.read()
    plan = plan_packages(system, before, desired, check)
    repaired: tuple[Step, ...] = ()
    if before.interrupted and not check:
        # What is refused is refused above. The rest can only be planned from a package database that is whole.
        repaired = tuple(step for step in plan.plan.steps if step.kind is Kind.REPAIR_PACKAGE_DATABASE)
        system.manager.repair()
        before = system.read()
        plan = plan_packages(system, before, desired, check)
    if check:
        plan, resolved = tried_repository(system, before, desired, plan)
    else:
        plan, resolved = ensure_repository(system, before, desired, plan)
    if check:
        return _predicted(system, before, desired, resolved)
    files = _files(system, before, desired, plan)
    if plan.plan.changes:
        PackageApplier(system, before, desired, resolved).apply()
    if plan.stop is not None:
        raise Stopped(plan.stop, (*repaired, *planned_steps(resolved)))
    if plan.not_offered is not None:
        system.write_not_offered(before.kernel, plan.not_offered)
    installed = system.read() if plan.plan.changes else before
    carried_out = (*repaired, *planned_steps(resolved))
    _prove_packages(installed, desired, plan, carried_out)
    outcome = PostInstall(system, desired, check=False).run(installed)
    after = system.read() if outcome.steps else installed
    steps = (*carried_out, *outcome.steps)
    _prove_running(system, after, desired, plan, outcome, steps)
    return DriverReport(
        changed=bool(steps),
        version=after.version or "",
        steps=steps,
        packages=closure(after.packages),
        before=closure(before.packages),
        after=closure(after.packages),
        reboot=tuple(outcome.reboot),
        warnings=plan.plan.warnings,
        files=files,
    )


def plan_packages(system: DriverSystem, host: Host, desired: DesiredDriver, check: bool) -> DriverPlan:
    """Plan; where the repositories' lists on the host do not have what is wanted, fetch them anew first.

    They may be older than the repositories, or missing: a run may have been cut off before it fetched them, and NVIDIA's
    local-repository package configures its repository without fetching anything.
    """
    try:
        return make_plan(system, host, desired)
    except NotOffered as refusal:
        if check:
            raise
        try:
            system.manager.refresh()
        except PackageError as error:
            raise PackageError(f"{refusal.message} Newer lists could not be fetched. {error}") from error
        return make_plan(system, host, desired)


def _predicted(system: DriverSystem, host: Host, desired: DesiredDriver, resolved: Resolved) -> DriverReport:
    """Return the report of check mode: the plan, resolved, and what would follow from it on the host as it would be."""
    plan = resolved.plan
    imagined = host
    if plan.transaction is not None or plan.unknown:
        imagined = replace(host, on_disk=plan.version or None, library=plan.version or None)
    outcome = PostInstallOutcome() if plan.stop else PostInstall(system, desired, check=True).run(imagined)
    notes = [*plan.plan.warnings, *([f"The plan is not complete: {plan.unknown}"] if plan.unknown else [])]
    if plan.stop is not None:
        notes.append(f"The run would stop after these steps. {plan.stop.message}")
    packages_before, packages_after = package_diff(host, resolved)
    steps = (*planned_steps(resolved), *outcome.steps)
    return DriverReport(
        changed=bool(steps),
        version=plan.version,
        steps=steps,
        packages=closure(host.packages),
        before=packages_before,
        after=packages_after,
        reboot=tuple(outcome.reboot),
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


def _prove_packages(host: Host, desired: DesiredDriver, plan: DriverPlan, steps: Sequence[Step]) -> None:
    """Refuse to touch the running driver when the packages did not come out as planned."""
    problems = absent_problems(host) if desired.state == "absent" else package_problems(host, desired, plan.version)
    if problems:
        raise Failed(_wanted(desired, plan), problems, steps)


def _prove_running(
    system: DriverSystem,
    host: Host,
    desired: DesiredDriver,
    plan: DriverPlan,
    outcome: PostInstallOutcome,
    steps: Sequence[Step],
) -> None:
    if desired.state == "absent" or outcome.reboot:
        return
    smi = system.nvidia_smi() if host.gpus else None
    problems = [*outcome.problems, *running_problems(host, desired, plan.version, smi)]
    if problems and host.gpus:
        raise Failed(_wanted(desired, plan), problems, steps)


def _wanted(desired: DesiredDriver, plan: DriverPlan) -> str:
    return "remove the driver" if desired.state == "absent" else f"install driver {plan.version}"


def _text(packages: Mapping[str, str]) -> str:
    return json.dumps(dict(packages), indent=2, sort_keys=True) + "\n" if packages else ""
