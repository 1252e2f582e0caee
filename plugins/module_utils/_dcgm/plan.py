# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan DCGM on a host: its packages as one transaction, their holds, the host engine. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .._adapters.installed_packages import is_dcgm
from .._adapters.package_manager import Change, Package, Transaction
from .._formats.driver_versions import branch_of
from .._formats.host_names import DCGM_UNIT
from .._packages.package_set import at_version, check_changes
from .._plan import Plan, Refused, Step
from .._steps import Kind
from .._versions import product_version
from .desired import DesiredDcgm
from .packages import CORE, DCGM, OLD_PACKAGES, PREFIX, check_version, cuda_of_branch, is_of_cuda, names
from .state import DcgmState


def cuda_of(state: DcgmState, desired: DesiredDcgm) -> tuple[str, ...]:
    """Return the major versions of CUDA whose packages a host gets.

    :raises Refused: they are to follow the driver, and there is none, or no source says its CUDA version.
    """
    if desired.cuda:
        return desired.cuda
    if state.driver is None:
        raise Refused(
            f"{PREFIX}cuda",
            "DCGM's packages are named by the CUDA version of the driver, and no driver is installed for the running kernel",
            f"Run gpufleet.nvidia.nvidia_driver first, or give the major version: {PREFIX}cuda: ['13'].",
        )
    return (cuda_of_branch(branch_of(state.driver)),)


def plan(state: DcgmState, desired: DesiredDcgm) -> Plan:
    """Return the steps from C(state) to C(desired). Raises Refused: it cannot be met."""
    return _present(state, desired) if desired.present else _absent(state)


def select(offers: Sequence[Package], wanted: Sequence[str], version: str) -> tuple[Package, ...]:
    """Return the wanted packages at exactly C(version), of what the repositories offer. Raises Refused: one of them is not offered at it; says what is."""
    chosen = at_version(offers, wanted, version)
    if len(chosen) == len(wanted):
        return chosen
    missing = ", ".join(name for name in wanted if name not in {package.name for package in chosen})
    there = sorted({product_version(one.version) or one.version for one in offers if one.name == CORE}, reverse=True)
    if not there:
        raise Refused(
            f"{PREFIX}state",
            f"no repository configured on this host has {CORE}",
            "DCGM is in NVIDIA's CUDA repository, which nvidia_driver configures with nvidia_driver_source: nvidia; or configure a mirror with it.",
        )
    raise Refused(
        f"{PREFIX}version",
        f"the repositories have no {version} of {missing}",
        f"{CORE} is offered at {', '.join(there)}.",
    )


def transaction(state: DcgmState, packages: Sequence[Package]) -> Transaction:
    """Return the one transaction that brings the packages, and takes away what cannot stand beside them: DCGM 3, and DCGM 4 of another version."""
    wanted = {package.name for package in packages}
    versions = {product_version(package.version) for package in packages}
    stale = [
        name
        for name, version in state.packages.items()
        if name not in wanted
        and (name in OLD_PACKAGES or (is_of_cuda(name) and product_version(version) not in versions))
    ]
    return Transaction(install=tuple(packages), remove=tuple(sorted(stale)), allow_downgrades=True)


def check_simulation(changes: Sequence[Change], packages: Sequence[Package]) -> None:
    """Refuse a transaction that touches packages that are none of DCGM's and were there, or does what L(check_changes) refuses."""
    check_changes(changes, packages, lambda change: change.action != "install" and not is_dcgm(change.name), DCGM.title)


def _present(state: DcgmState, desired: DesiredDcgm) -> Plan:
    warning = check_version(desired.version, desired.allow_vulnerable)
    cuda = cuda_of(state, desired)
    wanted = names(cuda)

    def install(differing: Mapping[str, str], old: Sequence[str]) -> Step:
        why = "; ".join(f"{name} {f'is {found}' if found else 'is not installed'}" for name, found in differing.items())
        disturbs = ("clients of the host engine, which is stopped for the change",) if state.active else ()
        data = {"version": desired.version, "cuda": list(cuda)}
        return Step(Kind.INSTALL_DCGM, DCGM.target, why or f"{', '.join(old)} is DCGM 3", disturbs, data)

    steps = [
        *DCGM.repair_steps(state.interrupted),
        *DCGM.present_steps(state, wanted, desired.version, desired.hold, state.held, install),
    ]
    # The transaction stops the host engine.
    runs = state.active and not any(step.kind is Kind.INSTALL_DCGM for step in steps)
    if not state.enabled:
        steps.append(Step(Kind.ENABLE_SERVICE, DCGM_UNIT, "the host engine has to run after a reboot too"))
    if not runs:
        steps.append(Step(Kind.START_SERVICE, DCGM_UNIT, "dcgmi asks the host engine"))
    return Plan(
        tuple(steps),
        before={"packages": dict(state.packages), "host engine": state.active},
        after={"packages": dict.fromkeys(wanted, desired.version), "host engine": True},
        warnings=(warning,) if warning else (),
    )


def _absent(state: DcgmState) -> Plan:
    installed = sorted(state.packages)
    steps = DCGM.repair_steps(state.interrupted)
    if state.active or state.enabled:
        disturbs = ("clients of the host engine",) if state.active else ()
        steps.append(Step(Kind.DISABLE_SERVICE, DCGM_UNIT, "DCGM is to be removed", disturbs))
    if state.held:
        steps.append(DCGM.release_step(state.held, "they are to be removed"))
    if installed:
        steps.append(DCGM.step(Kind.UNINSTALL_PACKAGES, "DCGM is not wanted", installed))
    return Plan(tuple(steps), before={"packages": dict(state.packages)}, after={"packages": {}})
