# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Loopback ports of a lab: free ones, and not those that another lab has been given."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable

from .paths import labs
from .progress import LabError

_FIRST, _LAST = 2201, 2999


def given_ports() -> set[int]:
    """The ports in the state files of all labs."""
    given: set[int] = set()
    for state in labs().glob("*/lab.json"):
        data = json.loads(state.read_text(encoding="utf-8"))
        given.update(data["ports"].values())
        given.add(data["repository_port"])
    return given


def free_ports(count: int, given: Iterable[int]) -> list[int]:
    """C(count) ports that nobody listens on."""
    taken = set(given)
    found: list[int] = []
    for port in range(_FIRST, _LAST + 1):
        if port not in taken and _is_free(port):
            found.append(port)
            if len(found) == count:
                return found
    raise LabError(
        f"Failed to find {count} free loopback ports from {_FIRST} to {_LAST}. Take a lab down: 'lab status'."
    )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
