# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a pool wants of DCGM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .packages import DEFAULT_VERSION, PREFIX


@dataclass(frozen=True)
class DesiredDcgm:
    """What a host is to have.

    :param version: of all packages, without epoch and package revision.
    :param cuda: major versions of CUDA whose packages are installed; empty for that of the driver on disk.
    """

    present: bool = True
    version: str = DEFAULT_VERSION
    cuda: tuple[str, ...] = ()
    hold: bool = True
    allow_vulnerable: bool = False


def from_variables(variables: Mapping[str, Any]) -> DesiredDcgm:
    """Return the desired state in the role's variables, under their full names."""
    names = ("state", "version", "cuda", "hold", "allow_vulnerable")
    return from_options({name: variables[f"{PREFIX}{name}"] for name in names})


def from_options(options: Mapping[str, Any]) -> DesiredDcgm:
    return DesiredDcgm(
        present=options["state"] == "present",
        version=str(options["version"]),
        cuda=tuple(options["cuda"]),
        hold=options["hold"],
        allow_vulnerable=options["allow_vulnerable"],
    )
