# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wanted of the container toolkit, and what a host has of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._adapters.credentials import Credentials, checked_credentials, refuse_credentials_in
from .._injection import CDI, Injection, choose, read
from .floors import DEFAULT_VERSION

PREFIX = "nvidia_toolkit_"
#: The package that stands for all four.
TOOLKIT = "nvidia-container-toolkit"
#: Since 1.18.0 the four depend on each other at exactly their own version.
PACKAGES = (
    TOOLKIT,
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
#: What earlier generations were called. They pull the toolkit at any version, or stand in its way.
OLD_PACKAGES = ("nvidia-docker", "nvidia-docker2", "nvidia-container-runtime", "nvidia-container-runtime-hook")

_SAFEST = Injection(CDI)


@dataclass(frozen=True)
class DesiredToolkit:
    """What a host is to have.

    :param version: of all four packages, without package revision.
    :param injection: how devices reach containers.
    :param runtime: the host's container runtime.
    :param cdi: whether a CDI specification is kept.
    :param repository_url: a mirror's; empty for NVIDIA's own.
    :param manage_repository: whether the repository is configured at all.
    :param credentials: what the mirror asks for.
    """

    present: bool = True
    version: str = DEFAULT_VERSION
    injection: Injection = _SAFEST
    runtime: str = "containerd"
    cdi: bool = True
    hold: bool = True
    allow_vulnerable: bool = False
    manage_repository: bool = True
    repository_url: str = ""
    key_url: str = ""
    key_file: str = ""
    key_fingerprint: str = ""
    credentials: Credentials | None = None


def from_variables(variables: Mapping[str, Any]) -> DesiredToolkit:
    """Return the desired state in the role's variables, under their full names.

    :raises Refused: they contradict each other.
    """
    injection = read(variables)
    names = ("version", "runtime", "cdi", "hold", "allow_vulnerable")
    options = {name: variables[f"{PREFIX}{name}"] for name in names}
    repository = {
        name: variables.get(f"{PREFIX}repository_{name}") or ""
        for name in ("url", "key_url", "key_file", "key_fingerprint", "username", "password")
    }
    repository["manage"] = variables[f"{PREFIX}manage_repository"]
    return from_options({**options, "state": "present", "repository": repository}, injection)


def from_options(options: Mapping[str, Any], injection: Injection | None = None) -> DesiredToolkit:
    """Return the desired state in the module's options.

    :param injection: how devices reach containers, where more than the options decides it.
    :raises Refused: they contradict each other.
    """
    repository = options["repository"]
    manage = repository.get("manage", True)
    texts = {name: repository.get(name) or "" for name in ("url", "key_url", "username", "password")}
    return DesiredToolkit(
        present=options["state"] == "present",
        # As packages spell a release candidate.
        version=str(options["version"]).replace("-rc", "~rc"),
        injection=injection or Injection(choose(options["device_injection"], options["runtime"])),
        runtime=options["runtime"],
        cdi=options["cdi"],
        hold=options["hold"],
        allow_vulnerable=options["allow_vulnerable"],
        manage_repository=manage,
        repository_url=texts["url"],
        key_url=texts["key_url"],
        key_file=repository.get("key_file", ""),
        key_fingerprint=repository.get("key_fingerprint", ""),
        credentials=_credentials(**texts, manage=manage),
    )


def _credentials(url: str, key_url: str, username: str, password: str, manage: bool) -> Credentials | None:
    """Return what the mirror asks for.

    :raises Refused: it stands in an address, or cannot be taken as it is.
    """
    refuse_credentials_in(url, f"{PREFIX}repository_url")
    refuse_credentials_in(key_url, f"{PREFIX}repository_key_url")
    return checked_credentials(PREFIX, url, username, password, manage)
