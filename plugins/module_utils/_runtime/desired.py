# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wanted of a container runtime, what its files become, and what it effectively has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._plan import Refused
from .._runtimes import FileFaultFacts
from .._steps import Kind

_RUNTIME, _DEFAULT = "the runtime nvidia", "the default runtime"
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
    :param move_former: whether a toolkit that the GPU Operator has left is moved out of the way of k3s and RKE2.
    """

    present: bool = True
    default: bool = False
    enable_cdi: bool = True
    binary: str = BINARY
    move_former: bool = False


def from_variables(variables: Mapping[str, Any]) -> DesiredRuntime:
    """Return the desired state in the role's variables, under their full names."""
    options = {"default": variables["nvidia_toolkit_default_runtime"], "enable_cdi": variables["nvidia_toolkit_cdi"]}
    former = variables.get("nvidia_toolkit_move_former", False)
    return from_options({**options, "state": "present", "binary": BINARY, "move_former": former})


def from_options(options: Mapping[str, Any]) -> DesiredRuntime:
    """Return the desired state in the module's options."""
    names = ("default", "enable_cdi", "binary", "move_former")
    return DesiredRuntime(options["state"] == "present", **{name: options[name] for name in names})


#: The fault that counts only where nvidia is to be the default runtime.
_RIVAL = "rival"
#: By the kind of a fault: the reason and the remedy. {0} and so on is what was found.
_FAULTS = {
    "unreadable": ("it cannot be read or edited: {0}", "Correct the file by hand."),
    "stub": (
        'it has neither {{{{ template "base" . }}}} nor {0}, so {runtime} would not start with it',
        "Remove it, for another tool may have left it, or begin it with the base template; nothing was changed.",
    ),
    "too_new": (
        "configuration version {0} is for containerd 2, and this is {1}, which ignores it",
        "Write it in version 2, or upgrade containerd.",
    ),
    "too_old": (
        "its CRI settings are of configuration version 1, which containerd {0} does not read reliably",
        "Replace it with what 'containerd --config {path} config migrate' prints.",
    ),
    "without_cri": (
        "it disables containerd's CRI plugin (disabled_plugins has {0}), as Docker's packages do, so that Kubernetes cannot use this containerd",
        "Remove it from disabled_plugins, or set nvidia_toolkit_runtime to docker.",
    ),
    "without_version": ("its version is not a number", "Write version = 2, or 3 with containerd 2."),
    _RIVAL: (
        "it makes {0} the default runtime and is read last",
        "Remove default_runtime_name there, or set nvidia_toolkit_default_runtime to false.",
    ),
}


def refusal(fault: FileFaultFacts, runtime: str) -> Refused:
    """Return a fault in words."""
    reason, remedy = _FAULTS[fault.kind]
    reason = reason.format(*fault.found, "", "", runtime=runtime)
    return Refused(fault.path, reason, remedy.format(*fault.found, "", path=fault.path))


def unreadable(runtime: str, error: Exception) -> FileFaultFacts:
    """Return that the files of a runtime cannot be read."""
    return FileFaultFacts("unreadable", f"configuration of {runtime}", (str(error)[:256],))


def refuse(fault: FileFaultFacts | None, runtime: str, default: bool) -> None:
    """Refuse files with a fault. C(default): whether nvidia is to be the default runtime. Raises Refused: there is one, which is in the way."""
    if fault is not None and fault.kind in _FAULTS and (default or fault.kind != _RIVAL):
        raise refusal(fault, runtime)


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
    """The outcome of an editor: every file it looked at, what the user should know, and folders that are in the way.

    :param moved_of: how many containers were started with what is in those folders.
    """

    changes: tuple[FileChange, ...]
    warnings: tuple[str, ...] = ()
    moves: tuple[str, ...] = ()
    moved_of: int = 0

    @property
    def changed(self) -> tuple[FileChange, ...]:
        return tuple(change for change in self.changes if change.changes)


@dataclass(frozen=True)
class Gap:
    """Something that a runtime does not have as desired.

    :param kind: of the step that brings it.
    :param thing: what it is, for people; C(found) how it is.
    :param runtime: the runtime that the step is about.
    """

    kind: Kind
    thing: str
    found: str
    runtime: str = NAME


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

    def gaps(self, desired: DesiredRuntime) -> tuple[Gap, ...]:
        """Return what of C(desired) is not met; empty when all is."""
        found = []
        if desired.present and self.binary is None:
            found.append(Gap(Kind.CONFIGURE_RUNTIME, _RUNTIME, "is not configured"))
        elif desired.present and self.binary != desired.binary:
            found.append(Gap(Kind.CORRECT_RUNTIME, _RUNTIME, f"is {self.binary}, expected {desired.binary}"))
        elif not desired.present and self.binary is not None:
            found.append(Gap(Kind.CORRECT_RUNTIME, _RUNTIME, "is still configured"))
        default = desired.present and desired.default
        if default and self.default_runtime != NAME:
            why = f"is {self.default_runtime or 'unknown'}, expected {NAME}"
            found.append(Gap(Kind.SET_DEFAULT_RUNTIME, _DEFAULT, why))
        if not default and self.default_runtime == NAME:
            found.append(Gap(Kind.SET_DEFAULT_RUNTIME, _DEFAULT, f"is still {NAME}", "runc"))
        if desired.present and desired.enable_cdi and self.cdi is False:
            found.append(Gap(Kind.ENABLE_CDI, "CDI", "is disabled"))
        if self.runtimes and self.default_runtime and self.default_runtime not in self.runtimes:
            thing = f"{_DEFAULT} {self.default_runtime}"
            found.append(Gap(Kind.SET_DEFAULT_RUNTIME, thing, "is not configured", "runc"))
        return tuple(found)

    def shortfalls(self, desired: DesiredRuntime) -> tuple[str, ...]:
        """Return what of C(desired) is not met, one phrase each; empty when all is."""
        return tuple(f"{gap.thing} {gap.found}" for gap in self.gaps(desired))

    def as_dict(self) -> Mapping[str, Any]:
        return {
            "nvidia": self.binary,
            "default_runtime": self.default_runtime,
            "cdi": self.cdi,
            "runtimes": list(self.runtimes),
        }
