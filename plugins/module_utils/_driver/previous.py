# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The record of the driver that was there before the last change: what C(state: previous) goes back to.

It is written before a transaction and marked as pending until that succeeded. A run that is cut off and repeated finds the
mark and keeps the record: what is installed then is half a driver, and nothing to go back to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .._records import PreviousDriver
from .desired import REPOSITORY_NAME
from .packages import closure
from .state import Host

PATH = "/var/lib/gpufleet/driver-previous.json"


def to_write(host: Host, record: PreviousDriver | None, target: str, stream: str = "") -> PreviousDriver | None:
    """Return what has to be recorded before going to C(target), or None when the present record has to stay.

    :param target: the driver version that the change goes to; empty for a removal.
    """
    if record is not None and record.pending:
        return None if record.pending == (target or "absent") else replace(record, pending=target or "absent")
    if host.version is None or host.interrupted:
        return None
    return PreviousDriver(
        host.version,
        closure(host.packages),
        host.flavour or "",
        host.source or "",
        stream,
        target or "absent",
        host.toolkit,
    )


@dataclass(frozen=True)
class Remains:
    """What a host has of a driver besides its packages, which its removal takes away.

    :param preferences: whether the collection's preferences file pins a driver (apt).
    :param repository: whether the collection has configured a repository for the driver.
    :param stream: the enabled stream of the dnf module nvidia-driver, or empty.
    """

    preferences: bool = False
    repository: bool = False
    stream: str = ""

    @property
    def named(self) -> tuple[str, ...]:
        """Return what there is of them, for people."""
        found = (
            (self.preferences, "the preferences file"),
            (self.repository, f"the repository {REPOSITORY_NAME}"),
            (bool(self.stream), f"the module stream nvidia-driver:{self.stream}"),
        )
        return tuple(name for there, name in found if there)
