# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Everything that C(site) puts on a host or changes there, in one table: which module takes it away again, and when; and what the other modules leave
when they have removed theirs: holds and pins of packages that stay, settings, records.

C(gpufleet.nvidia.remove) is made from it: L(folders) are what its last step removes. The test on a lab host holds every file against it that
differs after C(site).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, unique

from .._adapters.files import LOCK_PATH, read_bytes, read_text, remove, write_whole
from .._adapters.installed_packages import is_dcgm, is_kernel_package
from .._adapters.nvml_library import HOST_PROGRAM
from .._adapters.package_manager import PackageManager, Transaction
from .._adapters.packages_apt import Apt
from .._adapters.packages_dnf import Dnf
from .._adapters.packages_zypper import Zypper
from .._driver.desired import REPOSITORY_NAME
from .._driver.dkms import TOOLCHAIN_ENVIRONMENT, TOOLCHAIN_FILE
from .._driver.fabric import MODULES_FILE
from .._driver.packages import hold_names
from .._driver.running import NOUVEAU_FILE, PERSISTENCE_DROP_IN
from .._driver.state import PATH as PREVIOUS_DRIVER
from .._driver.steps import PREFERENCES_NAME
from .._formats import host_names
from .._formats.documents import read_record
from .._formats.host_names import (
    BOOT_UNITS,
    DCGM_UNIT,
    HEAL_RECORD,
    REPARTITION_RECORD,
    STOPPED_RECORD,
    UPGRADE_RECORD,
    UPGRADE_STEPS,
    wants_link,
)
from .._formats.module_parameters import FILE as PARAMETERS_FILE
from .._formats.toml_edit import is_marked, restore
from .._health.metric_units import METRICS_FILE, METRICS_SERVICE, METRICS_TIMER, TIMER_LINK
from .._health.repair_record import STEPS as HEAL_STEPS
from .._plan import Plan, Refused, Step
from .._runtime import containerd, crio, docker, rancher
from .._runtimes import DISTRIBUTIONS
from .._schema import has, of, text
from .._sharing import mps_instances, mps_units
from .._sharing.host import LOGS
from .._steps import Kind
from .._toolkit.config import LINKS
from .._toolkit.config import PATH as TOOLKIT_SETTINGS
from .._toolkit.packages import IDENTIFIER, OLD_PACKAGES, PACKAGES
from .units import RECORDED_MIG, RECORDED_SETTINGS, RECORDED_SHARING, UNIT_DIRECTORY


@unique
class RemovedWith(Enum):
    ALWAYS = "always"
    WITH_TOOLKIT = "with the toolkit"
    WITH_DRIVER = "with the driver"
    WITH_DCGM = "with DCGM"
    WITH_BOOT = "with the next boot"


@dataclass(frozen=True)
class Artifact:
    """What a host has of the collection, and the module that takes it away, or puts the file back. In a path an asterisk stands for anything."""

    path: str
    what: str
    remover: str
    goes: RemovedWith = RemovedWith.ALWAYS
    folder: bool = False


_PROGRAM_FOLDER = HOST_PROGRAM.rpartition("/")[0]
_RECORDS = RECORDED_MIG.rpartition("/")[0]
_JOURNALS = PREVIOUS_DRIVER.rpartition("/")[0]
_METRICS = (f"{UNIT_DIRECTORY}/{METRICS_SERVICE}", f"{UNIT_DIRECTORY}/{METRICS_TIMER}", TIMER_LINK, f"*/{METRICS_FILE}")
_MPS_UNITS = mps_instances.UNIT.replace("@", "@*")


def _each(
    paths: Iterable[str], what: str, remover: str, goes: RemovedWith = RemovedWith.ALWAYS
) -> tuple[Artifact, ...]:
    return tuple(Artifact(path, what, remover, goes) for path in paths)


def _repository(name: str, goes: RemovedWith, remover: str) -> tuple[Artifact, ...]:
    managers = (Apt, Dnf, Zypper)
    places = dict.fromkeys(file.format(name) for manager in managers for file in manager.repository_files)
    return _each(places, "repository, its key and credentials", remover, goes)


def _runtimes() -> tuple[Artifact, ...]:
    paths = [containerd.MAIN, f"/etc/containerd/conf.d/{containerd.DROP_IN}", docker.MAIN, crio.DROP_IN]
    for distribution in DISTRIBUTIONS:
        where = rancher.places(distribution)
        paths += [where.template, where.template_v3, where.default_runtime]
    return _each(paths, "the runtime nvidia", "container_runtime")


ARTIFACTS: tuple[Artifact, ...] = (
    # What runs and restores at boot.
    *_each((f"{UNIT_DIRECTORY}/{name}" for name in BOOT_UNITS), "unit that restores at boot", "host_program"),
    *_each(map(wants_link, BOOT_UNITS), "unit that restores at boot", "host_program"),
    *_each(_METRICS, "metrics for node_exporter", "host_program"),
    Artifact(f"{UNIT_DIRECTORY}/{_MPS_UNITS}", "unit of the MPS daemons", "mps"),
    Artifact(f"{UNIT_DIRECTORY}/{_MPS_UNITS}.d", "settings of an MPS daemon's unit", "mps", folder=True),
    Artifact(wants_link(_MPS_UNITS), "unit of the MPS daemons", "mps"),
    Artifact(f"{UNIT_DIRECTORY}/{mps_units.SHM_UNIT}", "shared memory of MPS", "mps"),
    Artifact(wants_link(mps_units.SHM_UNIT), "shared memory of MPS", "mps"),
    Artifact(mps_units.FOLDER, "settings of the MPS daemons", "mps", folder=True),
    Artifact(LOGS, "logs of the MPS daemons", "mps", folder=True),
    Artifact(RECORDED_SHARING, "recorded sharing", "mps"),
    Artifact(RECORDED_MIG, "recorded MIG layout", "mig"),
    Artifact(RECORDED_SETTINGS, "recorded settings of the GPUs", "gpu_settings"),
    # Containers.
    *_runtimes(),
    *_each(LINKS, "hooks for the GPU Operator's device plugin", "container_toolkit", RemovedWith.WITH_TOOLKIT),
    Artifact(TOOLKIT_SETTINGS, "how the toolkit accepts devices", "host_remains"),
    *_repository(IDENTIFIER, RemovedWith.WITH_TOOLKIT, "container_toolkit"),
    # The driver.
    Artifact(f"/etc/apt/preferences.d/{PREFERENCES_NAME}", "pin of the driver", "host_remains"),
    Artifact(PERSISTENCE_DROP_IN, "persistence daemon", "driver", RemovedWith.WITH_DRIVER),
    Artifact(NOUVEAU_FILE, "block of nouveau", "driver", RemovedWith.WITH_DRIVER),
    Artifact(PARAMETERS_FILE, "parameters of the kernel module", "driver", RemovedWith.WITH_DRIVER),
    Artifact(MODULES_FILE, "kernel modules of NVLink 5", "driver", RemovedWith.WITH_DRIVER),
    *_each((TOOLCHAIN_FILE, TOOLCHAIN_ENVIRONMENT), "compiler for DKMS", "driver", RemovedWith.WITH_DRIVER),
    *_each(
        (host_names.IMEX_NODES_FILE, host_names.IMEX_MASK, host_names.IMEX_WANTS),
        "IMEX",
        "driver",
        RemovedWith.WITH_DRIVER,
    ),
    *_repository(REPOSITORY_NAME, RemovedWith.WITH_DRIVER, "driver"),
    # DCGM.
    Artifact(wants_link(DCGM_UNIT), "host engine of DCGM", "dcgm", RemovedWith.WITH_DCGM),
    # The folders of the collection's own, after all others: their journals say how far a run came.
    Artifact(_RECORDS, "records", "host_remains", folder=True),
    Artifact(_JOURNALS, "journals, previous packages, progress of upgrades", "host_remains", folder=True),
    Artifact(_PROGRAM_FOLDER, "host program", "host_remains", folder=True),
    Artifact(LOCK_PATH.rpartition("/")[0], "lock", "nothing", RemovedWith.WITH_BOOT, folder=True),
)


def folders() -> tuple[str, ...]:
    """Return the folders that go as a whole when everything else is gone."""
    return tuple(trace.path for trace in ARTIFACTS if trace.folder and trace.remover == "host_remains")


_PINNING = "nvidia-driver-pinning-"
_UNFINISHED = (REPARTITION_RECORD, STOPPED_RECORD)
_PREFERENCES = f"/etc/apt/preferences.d/{PREFERENCES_NAME}"


@dataclass(frozen=True)
class Leftovers:
    """What a host still has. C(unfinished): records of upgrades, repairs and changes of layout that were cut off."""

    packages: Mapping[str, str]
    holds: tuple[str, ...] = ()
    pinned: bool = False
    settings: str | None = None
    folders: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()


def read(manager: PackageManager) -> Leftovers:
    """Return what the host still has. Raises PackageError: the package manager does not answer."""
    settings = read_bytes(TOOLKIT_SETTINGS)
    progress = ((UPGRADE_RECORD, UPGRADE_STEPS), (HEAL_RECORD, HEAL_STEPS))
    return Leftovers(
        packages=manager.installed(),
        holds=manager.holds(),
        pinned=isinstance(manager, Apt) and manager.preferences(PREFERENCES_NAME) is not None,
        settings=None if settings is None else settings.decode("utf-8", "surrogateescape"),
        folders=tuple(path for path in folders() if os.path.isdir(path)),
        unfinished=(
            *(path for path in _UNFINISHED if os.path.exists(path)),
            *(path for path, steps in progress if _is_cut_off(path, steps)),
        ),
    )


def plan(present: Leftovers, toolkit: bool, driver: bool, dcgm: bool = False) -> Plan:
    """Return the steps after which nothing of the collection is left. What C(toolkit), C(driver) or C(dcgm) names is removed by its own module, with
    its holds.
    """
    if present.unfinished:
        reason = "an upgrade, a rollback, a repair or a change of layout was cut off on this host, and this record says what it still has to do"
        remedy = "Run that playbook again until it succeeds, or gpufleet.nvidia.rollback, and then this one."
        raise Refused(", ".join(present.unfinished), reason, remedy)
    steps = []
    if not toolkit:
        held = [name for name in (*PACKAGES, *OLD_PACKAGES) if name in present.holds and name in present.packages]
        steps += _release(held)
        if present.settings is not None and is_marked(present.settings):
            steps.append(Step(Kind.CHANGE_FILE, TOOLKIT_SETTINGS, "its former contents are restored"))
    if not dcgm:
        steps += _release([name for name in present.holds if is_dcgm(name) and name in present.packages])
    if not driver:
        own = hold_names(present.packages, filter(is_kernel_package, present.packages))
        steps += _release([name for name in own if name in present.holds])
        pins = sorted(name for name in present.packages if name.startswith(_PINNING))
        if pins:
            steps.append(Step(Kind.UNINSTALL_PACKAGES, "driver", "they pin the driver", (), {"packages": pins}))
        if present.pinned:
            steps.append(Step(Kind.REMOVE_FILE, _PREFERENCES, "it pins the driver"))
    steps += [Step(Kind.REMOVE_FOLDER, path, "it is the collection's own") for path in present.folders]
    released = {name for step in steps if step.kind is Kind.RELEASE_PACKAGES for name in step.data["packages"]}
    return Plan(
        tuple(steps),
        before={"holds": list(present.holds), "folders": list(present.folders)},
        after={"holds": [name for name in present.holds if name not in released], "folders": []},
    )


def apply(steps: Plan, manager: PackageManager, present: Leftovers) -> None:
    """Carry out C(steps). Each can be repeated after a cut."""
    for step in steps.steps:
        if step.kind is Kind.RELEASE_PACKAGES:
            manager.unhold(list(step.data["packages"]))
        elif step.kind is Kind.UNINSTALL_PACKAGES:
            manager.apply(Transaction(remove=tuple(step.data["packages"])))
        elif step.kind is Kind.CHANGE_FILE:
            text = restore(present.settings or "").encode("utf-8", "surrogateescape")
            write_whole(step.target, text, os.stat(step.target).st_mode & 0o7777)
        elif step.kind is Kind.REMOVE_FILE:
            remove(step.target)
        elif step.kind is Kind.REMOVE_FOLDER:
            shutil.rmtree(step.target)


@dataclass(frozen=True)
class Progress:
    """What of the record of an upgrade or of a repair says how far it came."""

    state: str = has(text(64), "")


_PROGRESS = of(Progress)


def _is_cut_off(path: str, steps: Sequence[str]) -> bool:
    written = read_text(path, links=False)
    found: Progress | None = read_record(_PROGRESS, written)
    return bool(written) and (found is None or found.state in steps)


def _release(names: list[str]) -> list[Step]:
    why = "they stay installed, and nothing needs to hold them"
    return [Step(Kind.RELEASE_PACKAGES, names[0], why, (), {"packages": names})] if names else []
