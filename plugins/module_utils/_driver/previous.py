# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The record of the driver that was there before the last change: what C(state: previous) goes back to.

It is written before a transaction and marked as pending until that succeeded. A run that is cut off and repeated finds the
mark and keeps the record: what is installed then is half a driver, and nothing to go back to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .._formats.documents import read_json
from .._schema import Unfit, check, encode, fields, mapping, not_null, number, text
from .desired import REPOSITORY_NAME
from .packages import closure
from .state import Host

PATH = "/var/lib/gpufleet/driver-previous.json"
SCHEMA = 1


@dataclass(frozen=True)
class PreviousDriver:
    """A package set that worked.

    :param version: of the driver.
    :param packages: the driver's packages with their package versions.
    :param stream: the enabled dnf module stream, or empty.
    :param pending: the version that the change which wrote this was going to, or empty when it succeeded.
    :param toolkit: the version of the container toolkit that was there with it, or empty; a rollback by hand goes back to both.
    """

    version: str
    flavour: str = ""
    source: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    stream: str = ""
    pending: str = ""
    toolkit: str = ""

    def as_text(self) -> str:
        return json.dumps({"schema": SCHEMA, **encode(self)}, indent=2, sort_keys=True) + "\n"


_RECORD = fields(
    {
        "schema": number(SCHEMA, SCHEMA),
        **dict.fromkeys(("version", "flavour", "source", "stream", "pending", "toolkit"), text(256)),
        "packages": mapping(not_null(text(256))),
    },
    required=("schema", "version", "packages"),
    into=PreviousDriver,
)


def parse(text: str | None) -> PreviousDriver | None:
    """Return the record in the file's text; None where there is none or it was written by another version of this."""
    try:
        return from_values(read_json(text)) if text else None
    except ValueError:
        return None


def from_values(document: Any) -> PreviousDriver | None:
    """Return the record of which these are the values; None where they are none of this version's."""
    try:
        found: PreviousDriver = check(_RECORD, document)
    except Unfit:
        return None
    return found if found.packages else None


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
        host.flavour or "",
        host.source or "",
        closure(host.packages),
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
