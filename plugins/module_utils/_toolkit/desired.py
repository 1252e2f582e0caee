# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a pool wants of the container toolkit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .._injection import CDI, Injection, choose, read
from .._packages.package_set import DesiredRepository, read_repository
from .packages import DEFAULT_VERSION, PREFIX

_SAFEST = Injection(CDI)
#: What the run finds out of the cluster, as a variable: C(present), or empty, where no links to the hooks are made.
HOOKS = f"{PREFIX}hooks"


@dataclass(frozen=True)
class DesiredToolkit:
    """What a host is to have.

    :param version: of all four packages, without package revision.
    :param injection: how devices reach containers.
    :param runtime: the host's container runtime.
    :param cdi: whether a CDI specification is kept.
    :param hooks: see L(HOOKS).
    """

    present: bool = True
    version: str = DEFAULT_VERSION
    injection: Injection = _SAFEST
    runtime: str = "containerd"
    cdi: bool = True
    hooks: str = ""
    hold: bool = True
    allow_vulnerable: bool = False
    repository: DesiredRepository = field(default_factory=DesiredRepository)


def from_variables(variables: Mapping[str, Any]) -> DesiredToolkit:
    """Return the desired state in the role's variables, under their full names. Raises Refused: they contradict each other."""
    injection = read(variables)
    names = ("version", "runtime", "cdi", "hold", "allow_vulnerable")
    options = {name: variables[f"{PREFIX}{name}"] for name in names}
    parts = ("url", "key_url", "key_file", "key_fingerprint", "username", "password")
    repository = {name: variables.get(f"{PREFIX}repository_{name}") for name in parts}
    repository["manage"] = variables[f"{PREFIX}manage_repository"]
    hooks = variables.get(HOOKS)
    return from_options({**options, "state": "present", "repository": repository, "hooks": hooks}, injection)


def from_options(options: Mapping[str, Any], injection: Injection | None = None) -> DesiredToolkit:
    """Return the desired state in the module's options.

    :param injection: how devices reach containers, where more than the options decides it.
    :raises Refused: they contradict each other.
    """
    return DesiredToolkit(
        present=options["state"] == "present",
        # As packages spell a release candidate.
        version=str(options["version"]).replace("-rc", "~rc"),
        injection=injection or Injection(choose(options["device_injection"], options["runtime"])),
        runtime=options["runtime"],
        cdi=options["cdi"],
        hooks=options.get("hooks") or "",
        hold=options["hold"],
        allow_vulnerable=options["allow_vulnerable"],
        repository=read_repository(options["repository"], PREFIX),
    )
