# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How repositories' keys and packages that configure repositories come onto the host."""

from __future__ import annotations

from typing import Any, Callable, Optional

from .credentials import Credentials
from .packages import PackageError

Fetch = Callable[[str, Optional[Credentials]], bytes]


def fetching(open_url: Callable[..., Any]) -> Fetch:
    """Return what fetches a URL, with TLS verified where the URL has it.

    :param open_url: Ansible's own, which only a module may import.
    """

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
