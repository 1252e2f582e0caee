# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading objects in which anything may stand anywhere: what is not of the type that was expected counts as empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: A file with one of them is a configuration of the device plugin, whatever else is in it.
OF_A_CONFIGURATION = {"version", "flags", "sharing"}


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def sequence(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def below(value: Any, *keys: str) -> Any:
    """Return what stands below keys, one in the other; None where one of them is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def group_of(document: Mapping[str, Any]) -> str:
    """Return the group of the API that an object belongs to, such as C(resource.k8s.io)."""
    return str(document.get("apiVersion")).partition("/")[0]
