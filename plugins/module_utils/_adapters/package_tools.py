# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tools that a module is given to work with packages: the host's package manager, and what fetches keys and packages."""

from __future__ import annotations

from typing import Any, Callable, Optional

from .package_manager import PackageError, PackageManager
from .packages_apt import Apt
from .packages_dnf import Dnf
from .packages_zypper import Zypper
from .repositories import Credentials

Fetch = Callable[[str, Optional[Credentials]], bytes]


def fetching(open_url: Callable[..., Any]) -> Fetch:
    """Return what fetches a URL, with TLS verified where the URL has it. C(open_url): Ansible's own, which only a module may import."""

    def fetch(url: str, credentials: Credentials | None = None) -> bytes:
        login: dict[str, Any] = {"follow_redirects": "safe"}
        if credentials is not None:
            # A redirect would take the password to another server.
            login = {
                "follow_redirects": "none",
                "force_basic_auth": True,
                "url_username": credentials.username,
                "url_password": credentials.password,
            }
        try:
            return bytes(open_url(url, timeout=60, **login).read())
        except Exception as error:
            raise PackageError(f"Failed to fetch {url}: {error}.") from error

    return fetch


def manager_for(name: str) -> PackageManager:
    """Return the adapter for the package manager C(name): C(apt), C(dnf) or C(zypper). Raises PackageError: there is no adapter of that name."""
    adapter = {manager.name: manager for manager in (Apt, Dnf, Zypper)}.get(name)
    if adapter is not None:
        return adapter()
    text = f"Failed to find a package manager: {name!r} is not supported. Supported are apt, dnf and zypper."
    raise PackageError(text)
