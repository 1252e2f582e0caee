# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the other modules leave when they have removed theirs: holds and pins of packages that stay, settings, records."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .._adapters.files import read_bytes, read_text, remove, write_whole
from .._adapters.installed_packages import is_dcgm, is_kernel_package
from .._adapters.packages import PackageManager, Transaction
from .._adapters.packages_apt import Apt
from .._driver.steps import PREFERENCES_NAME, hold_names
from .._formats.documents import read_json
from .._formats.run_records import HEAL_RECORD, REPARTITION_RECORD, STOPPED_RECORD, UPGRADE_RECORD, UPGRADE_STEPS
from .._formats.toml_edit import is_marked, restore
from .._health.repair_record import STEPS as HEAL_STEPS
from .._plan import Plan, Refused, Step
from .._steps import Kind
from .._toolkit.config import PATH as TOOLKIT_SETTINGS
from .._toolkit.packages import OLD_PACKAGES, PACKAGES
from .artifacts import folders

_PINNING = "nvidia-driver-pinning-"
_UNFINISHED = (REPARTITION_RECORD, STOPPED_RECORD)
_PREFERENCES = f"/etc/apt/preferences.d/{PREFERENCES_NAME}"


class LeftoversError(Exception):
    """Something is still there after everything was carried out."""


@dataclass(frozen=True)
class Leftovers:
    """What a host still has.

    :param packages: installed packages with their versions.
    :param holds: names that the package manager holds.
    :param pinned: whether the collection's preferences file pins the driver.
    :param settings: text of the toolkit's settings; None where there are none.
    :param folders: the collection's own folders that are there.
    :param unfinished: records of upgrades, repairs and changes of layout that were cut off.
    """

    packages: Mapping[str, str]
    holds: tuple[str, ...] = ()
    pinned: bool = False
    settings: str | None = None
    folders: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()


def read(manager: PackageManager) -> Leftovers:
    """Return what the host still has.

    :raises PackageError: the package manager does not answer.
    """
    settings = read_bytes(TOOLKIT_SETTINGS)
    return Leftovers(
        packages=manager.installed(),
        holds=manager.holds(),
        pinned=isinstance(manager, Apt) and manager.preferences(PREFERENCES_NAME) is not None,
        settings=None if settings is None else settings.decode("utf-8", "surrogateescape"),
        folders=tuple(path for path in folders() if os.path.isdir(path)),
        unfinished=(
            *(path for path in _UNFINISHED if os.path.exists(path)),
            *(
                path
                for path, steps in ((UPGRADE_RECORD, UPGRADE_STEPS), (HEAL_RECORD, HEAL_STEPS))
                if _is_cut_off(path, steps)
            ),
        ),
    )


def plan(present: Leftovers, toolkit: bool, driver: bool, dcgm: bool = False) -> Plan:
    """Return the steps after which nothing of the collection is left.

    :param toolkit: whether the toolkit is removed by its own module, with its holds and settings.
    :param driver: whether the driver is, with its holds and pins.
    :param dcgm: whether DCGM is, with its holds.
    :raises TomlError: the toolkit's settings cannot be read.
    :raises Refused: a record says what another run still has to do.
    """
    if present.unfinished:
        raise Refused(
            ", ".join(present.unfinished),
            "an upgrade, a rollback, a repair or a change of layout was cut off on this host, and this record says what it still has to do",
            "Run that playbook again until it succeeds, or gpufleet.nvidia.rollback, and then this one.",
        )
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
    """Carry out C(steps). Each can be repeated after a cut.

    :raises PackageError: the package manager failed.
    :raises OSError: something cannot be removed.
    """
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


def read_back(left: Plan) -> None:
    """Compare: planned anew, nothing may be left to do.

    :raises LeftoversError: something is.
    """
    if left.changes:
        raise LeftoversError(
            "Failed to remove what is left: every step was carried out, but these are still needed: "
            + "; ".join(str(step) for step in left.steps)
        )


def _is_cut_off(path: str, steps: Sequence[str]) -> bool:
    try:
        record = read_json(read_text(path, links=False) or "null")
    except ValueError:
        return True
    return isinstance(record, dict) and record.get("state") in steps


def _release(names: list[str]) -> list[Step]:
    why = "they stay installed, and nothing needs to hold them"
    return [Step(Kind.RELEASE_PACKAGES, names[0], why, (), {"packages": names})] if names else []
