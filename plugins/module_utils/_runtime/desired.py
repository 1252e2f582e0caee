# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wanted of a container runtime, what its files become, and what it effectively has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: The runtimes that can be configured.
RUNTIMES = ("containerd", "docker", "crio", "k3s", "rke2")
#: The name under which pods ask for it (C(runtimeClassName)), and which the GPU Operator and k3s use, too.
NAME = "nvidia"
#: Where the packages of the NVIDIA Container Toolkit put the runtime.
BINARY = "/usr/bin/nvidia-container-runtime"


@dataclass(frozen=True)
class DesiredRuntime:
    """What a container runtime is to have.

    :param present: whether the runtime C(nvidia) is to be there at all.
    :param default: whether it is the one that containers get that ask for none.
    :param enable_cdi: whether CDI devices are to be enabled where the runtime does not enable them by itself.
    :param binary: absolute path of nvidia-container-runtime.
    """

    present: bool = True
    default: bool = False
    enable_cdi: bool = True
    binary: str = BINARY


@dataclass(frozen=True)
class FileChange:
    """A file before and after; None means that it is not there."""

    path: str
    before: str | None
    after: str | None

    @property
    def changes(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True)
class Files:
    """The outcome of an editor: every file it looked at, and what the user should know."""

    changes: tuple[FileChange, ...]
    warnings: tuple[str, ...] = ()

    @property
    def changed(self) -> tuple[FileChange, ...]:
        return tuple(change for change in self.changes if change.changes)


@dataclass(frozen=True)
class Effective:
    """What a runtime has in force, whichever files that comes from.

    :param binary: of the runtime C(nvidia); None when it has no such runtime.
    :param default_runtime: the name of the default runtime; None when it is not known.
    :param cdi: whether CDI devices are enabled; None when it is not known.
    :param runtimes: the names of all runtimes.
    """

    binary: str | None = None
    default_runtime: str | None = None
    cdi: bool | None = None
    runtimes: tuple[str, ...] = ()

    def shortfalls(self, desired: DesiredRuntime) -> tuple[str, ...]:
        """Return what of C(desired) is not met, one phrase each; empty when all is."""
        found = []
        if desired.present and self.binary != desired.binary:
            found.append(f"the runtime nvidia is {self.binary or 'not configured'}, expected {desired.binary}")
        if not desired.present and self.binary is not None:
            found.append("the runtime nvidia is still configured")
        if desired.present and desired.default and self.default_runtime != NAME:
            found.append(f"the default runtime is {self.default_runtime or 'unknown'}, expected {NAME}")
        if (not desired.present or not desired.default) and self.default_runtime == NAME:
            found.append(f"the default runtime is still {NAME}")
        if desired.present and desired.enable_cdi and self.cdi is False:
            found.append("CDI is disabled")
        if self.runtimes and self.default_runtime and self.default_runtime not in self.runtimes:
            found.append(f"the default runtime {self.default_runtime} is not configured")
        return tuple(found)

    def as_dict(self) -> Mapping[str, Any]:
        return {
            "nvidia": self.binary,
            "default_runtime": self.default_runtime,
            "cdi": self.cdi,
            "runtimes": list(self.runtimes),
        }
