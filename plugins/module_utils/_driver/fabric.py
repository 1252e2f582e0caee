# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the NVLink fabric needs: beside the fabric manager of an HGX B200 or B300, and IMEX on the hosts of a rack. Pure.

When the service of IMEX ends, the exports of its host end for the importers on other hosts (NVIDIA's IMEX guide, signals). Where ComputeDomains run it,
the host has its package and the service is masked (cloud-native-docs#453).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from .._boards.board import NVLINK5, NVLINK5_MODULES, SWITCHES_IN_HOST, SWITCHES_IN_RACK
from .._boards.lookup import nvlink5_switches
from .._facts_view import ImexFacts
from .._formats import host_names, imex
from .._formats.host_names import IMEX_UNIT
from .._plan import Refused, Step
from .._steps import Kind
from .desired import PREFIX, DesiredDriver
from .packages import archive_for
from .state import Host

#: NVIDIA's NVLink subnet manager and the tools that the fabric manager's start asks the switches with, with versions of their own
#: (gpu-driver-container, install.sh of every distribution).
SUBNET_MANAGER = "nvlsm"
PACKAGES = (SUBNET_MANAGER, "infiniband-diags")
MODULES_FILE = "/etc/modules-load.d/gpufleet-nvlink5.conf"
MODULES_TEXT = "# Written by gpufleet.nvidia; changes are overwritten.\n" + "".join(
    f"{name}\n" for name in NVLINK5_MODULES
)


def is_in_rack(host: Host) -> bool:
    """Return whether the host's GPUs are on the switches of a rack."""
    return any(nvlink5_switches(gpu.board) == SWITCHES_IN_RACK for gpu in host.gpus)


def wants_fabric_manager(host: Host, desired: DesiredDriver) -> bool:
    """Return whether the fabric manager is wanted: always, never, or where the host has switches."""
    if desired.fabric_manager == "auto":
        return host.switches is not None
    return desired.fabric_manager == "always"


def serves_nvlink5(host: Host, desired: DesiredDriver) -> bool:
    """Return whether a fabric manager here is one of NVLink 5: of the host's switches, or by its boards where it is wanted always."""
    on_boards = any(nvlink5_switches(gpu.board) == SWITCHES_IN_HOST for gpu in host.gpus)
    return host.switches == NVLINK5 or (desired.fabric_manager == "always" and on_boards)


def needs_modules(host: Host, desired: DesiredDriver) -> bool:
    """Return whether the kernel modules of NVLink 5 have to be loaded, now and at every boot."""
    return serves_nvlink5(host, desired) and wants_fabric_manager(host, desired)


def optional_packages(host: Host) -> tuple[str, ...]:
    """Return packages that are installed where they are offered, for the modules."""
    return (f"linux-modules-extra-{host.kernel}",) if host.distribution.names == "ubuntu" else ()


def modules_step(names: Sequence[str]) -> Step:
    why = "the fabric manager does not start without them"
    return Step(Kind.LOAD_KERNEL_MODULES, "fabric", why, (), {"modules": list(names)})


def wants_imex(host: Host, desired: DesiredDriver) -> bool:
    """Return whether IMEX is brought here: its package in both modes, because ComputeDomains need it too.

    With C(state: previous) its package follows the record; for its service see L(wanted_imex).
    """
    return desired.state == "present" and desired.imex.managed and is_in_rack(host)


def wanted_imex(host: Host, desired: DesiredDriver) -> imex.DesiredImex | None:
    """Return what is wanted of the service of IMEX; None where it is left alone.

    On the way back to the previous driver a service that runs is stopped and started with the driver. One that ended with the new driver has to run again,
    with the nodes that it has: a rollback does not ask who is in the rack.
    """
    if wants_imex(host, desired):
        return desired.imex
    found = host.imex
    runs_here = desired.imex.mode == imex.HOST and found.enabled and not found.masked and found.nodes
    if desired.state == "previous" and runs_here and is_in_rack(host):
        return replace(desired.imex, nodes=found.nodes or ())
    return None


def imex_packages(host: Host, desired: DesiredDriver) -> tuple[str, ...]:
    """Return by which names the package of IMEX is called, with their placeholders; empty where no source says it."""
    names = host.distribution.archive if desired.archive_source == "distribution" else host.distribution.names
    archive = archive_for(desired.archive_source, names, desired.branch_number)
    return archive.imex if archive else ()


def imex_warnings(host: Host, desired: DesiredDriver) -> list[str]:
    """Return that nobody said what a rack's host does with IMEX: without it no job gets memory of another host's GPUs."""
    if desired.imex.managed or not is_in_rack(host):
        return []
    return [
        f"{imex.VARIABLE} is {imex.UNMANAGED}: jobs that span hosts of the rack need IMEX, on the hosts ({imex.HOST}) or in ComputeDomains ({imex.MASKED})"
    ]


def fabric_refusals(host: Host, desired: DesiredDriver) -> Iterator[Refused]:
    """Yield why the wanted fabric manager, or IMEX, is not available on this host."""
    boards, in_rack = ", ".join(sorted({str(gpu.board or gpu.device_id) for gpu in host.gpus})), is_in_rack(host)
    if desired.fabric_manager == "always" and in_rack:
        yield Refused(
            f"{PREFIX}fabric_manager",
            f"it is always, but the NVLink switches of {boards} belong to the rack and have a fabric manager of their own",
            f"Set {PREFIX}fabric_manager: auto.",
        )
    if not desired.imex.managed or not host.gpus:
        return
    if not in_rack:
        yield Refused(
            imex.VARIABLE,
            f"it is {desired.imex.mode}, but IMEX is for boards on the NVLink switches of a rack (GB200, GB300), not {boards}",
            f"Set {imex.VARIABLE}: {imex.UNMANAGED}.",
        )
    elif not imex_packages(host, desired):
        yield Refused(
            imex.VARIABLE,
            f"no source confirms what the package of IMEX is called for {host.distribution.name} with {PREFIX}source: {desired.source}",
            f"Install it yourself at the driver's version, and set {imex.VARIABLE}: {imex.UNMANAGED}.",
        )
    else:
        yield from _removed_nodes(host.imex, desired)


def _removed_nodes(found: ImexFacts, desired: DesiredDriver) -> Iterator[Refused]:
    removed = imex.removed(found, desired.imex)
    if desired.state == "present" and removed and not desired.imex.remove_nodes:
        yield Refused(
            f"{imex.VARIABLE}_group",
            f"the inventory has fewer hosts of the rack ({len(desired.imex.nodes)}) than {host_names.IMEX_NODES_FILE} of the host: IMEX would no longer "
            f"reach {imex.few(removed)}, and does not start among hosts whose files differ",
            "Run with an inventory that has the whole rack: a sliced job of AWX has a part of it, --limit keeps all. If these hosts have left the "
            f"rack, set {imex.VARIABLE}_remove_nodes: true for this run.",
        )


_RESTARTS = "it reads its nodes only when it starts"
_IMPORTERS = "jobs of the rack that have imported memory of this host's GPUs"


def imex_steps(found: ImexFacts, wanted: imex.DesiredImex, users: Sequence[str]) -> tuple[Step, ...]:
    """Return the steps to what is wanted.

    :param users: processes that use the GPUs of the host, by name: memory of theirs may be imported by other hosts.
    :raises Refused: a service that runs has to stop for it, somebody uses the GPUs, and that is not allowed.
    """
    if wanted.mode == imex.MASKED:
        return _masked(found, wanted, users)
    if wanted.mode != imex.HOST:
        return ()
    steps = [Step(Kind.UNMASK_SERVICE, IMEX_UNIT, "this host runs it")] if found.masked else []
    moved = found.nodes != wanted.nodes
    if moved:
        steps.append(Step(Kind.WRITE_FILE, host_names.IMEX_NODES_FILE, f"the rack has {imex.few(wanted.nodes)}"))
    if not found.enabled:
        steps.append(Step(Kind.ENABLE_SERVICE, IMEX_UNIT, "it has to run after a reboot too"))
    if not found.active:
        steps.append(Step(Kind.START_SERVICE, IMEX_UNIT, "jobs of several hosts share GPU memory through it"))
    elif moved:
        _check_allowed(wanted, users, _RESTARTS)
        steps.append(Step(Kind.RESTART_SERVICE, IMEX_UNIT, _RESTARTS, _disturbed(users)))
    return tuple(steps)


def _masked(found: ImexFacts, wanted: imex.DesiredImex, users: Sequence[str]) -> tuple[Step, ...]:
    if found.masked and not found.active:
        return ()
    if found.active:
        _check_allowed(wanted, users, "ComputeDomains run their own")
    disturbed = _disturbed(users) if found.active else ()
    return (Step(Kind.MASK_SERVICE, IMEX_UNIT, "ComputeDomains run their own", disturbed),)


def _check_allowed(wanted: imex.DesiredImex, users: Sequence[str], why: str) -> None:
    if not users or wanted.restart:
        return
    raise Refused(
        f"{imex.VARIABLE}_restart",
        f"{IMEX_UNIT} has to stop ({why}), which takes memory from {_IMPORTERS}, and "
        f"{', '.join(users)} {'uses' if len(users) == 1 else 'use'} the GPUs",
        f"Drain the rack first, or set {imex.VARIABLE}_restart: true.",
    )


def _disturbed(users: Sequence[str]) -> tuple[str, ...]:
    return (_IMPORTERS,) if users else ()
