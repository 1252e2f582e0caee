# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a mirror asks for before it serves packages, and the files in which the package managers look for it.

Every user of a host can read where packages come from, so a password never stands in an address. Each package manager has a place for it that root
alone needs to read: apt_auth.conf(5) for apt; C(username) and C(password) of dnf.conf(5) for dnf 4 and 5; for zypper a file in
C(/etc/zypp/credentials.d), which the query C(credentials) of the address names (libzypp, C(zypp/media/CredentialManager.h)).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from .._plan import Refused
from .files import read_text

#: The mode of every file with a password in it.
MODE = 0o600
#: Printable characters that no package manager's file gives a meaning: apt splits at blanks, dnf replaces variables.
_ACCEPTED = re.compile(r"[!%&()*+,./0-9:;<=>?@A-Z\[\]^_`a-z{|}~-]{1,1024}")


@dataclass(frozen=True)
class Credentials:
    """A user of a mirror, for HTTP's Basic authentication."""

    username: str
    password: str = field(repr=False)


def checked_credentials(prefix: str, url: str, username: str, password: str, manage: bool) -> Credentials | None:
    """Return what a mirror is accessed with; None where it asks for nothing.

    :param prefix: of the variables C(repository_url), C(repository_username) and C(repository_password), for messages.
    :param manage: whether the collection configures the repository.
    :raises Refused: they contradict each other, or cannot be written as they are.
    """
    if not (username or password):
        return None
    names = f"{prefix}repository_username", f"{prefix}repository_password"
    if not (username and password):
        given, missing = names if username else names[::-1]
        raise Refused(
            missing, f"it is empty, and {given} is not", "Give both, or neither if the mirror needs no credentials."
        )
    if not manage:
        raise Refused(
            names[1],
            "the collection does not configure the repository, so it would never be used",
            f"Remove both and configure access with the repository, or set {prefix}manage_repository: true.",
        )
    if urlsplit(url).scheme not in ("https", "http"):
        raise Refused(
            names[1], f"{prefix}repository_url has no server that could ask for it", "Give the address of the mirror."
        )
    for name, value in zip(names, (username, password)):
        if not _ACCEPTED.fullmatch(value) or (value is username and ":" in value):
            raise Refused(
                name,
                "it has a character that a package manager's configuration cannot hold, or more than 1,024 characters",
                "Use printable ASCII without spaces, quotation marks, $, # and backslashes; a username also without colons.",
            )
    return Credentials(username, password)


def refuse_credentials_in(url: str, variable: str) -> None:
    """Refuse an address with a user or a password in it, and do not print it.

    :raises Refused: it has, or it cannot be told.
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # Raises where what stands before a slash in a password is taken for a port.
        found = "@" in parts.netloc
    except ValueError:
        found = True
    if found:
        raise Refused(
            variable,
            "it contains a username or a password (or is not a valid address), and all users of a host can read the package sources",
            f"Give the address without them, https://host/path, and {access_variables(variable)}.",
        )


def access_variables(variable: str) -> str:
    """Return the names of the variables that take what must not be in the address C(variable)."""
    prefix = variable[: variable.rfind("_key_url" if variable.endswith("_key_url") else "_url")]
    prefix = prefix if prefix.endswith("_repository") else f"{prefix}_repository"
    return f"{prefix}_username with {prefix}_password"


def for_server_of(url: str, repository_url: str, credentials: Credentials | None) -> Credentials | None:
    """Return what to send to C(url): the mirror's credentials where it is on the mirror's server, and nothing elsewhere."""
    one, other = urlsplit(url), urlsplit(repository_url)
    return credentials if (one.scheme, one.netloc) == (other.scheme, other.netloc) else None


def apt_auth(url: str, credentials: Credentials) -> str:
    """Return the file for C(/etc/apt/auth.conf.d) that opens the repository at C(url) alone.

    The scheme is named, because apt otherwise takes the entry for https only; a path matches everything that begins with it.
    """
    machine = f"machine {url.rstrip('/')}/ login {credentials.username} password {credentials.password}"
    return f"# Written by gpufleet.nvidia; changes are overwritten.\n{machine}\n"


def zypper_credentials(credentials: Credentials) -> str:
    """Return the file for C(/etc/zypp/credentials.d)."""
    return f"username={credentials.username}\npassword={credentials.password}\n"


def is_written(path: str, text: str | None) -> bool:
    """Return whether a file with credentials is as it would be written; with None, whether there is none."""
    if text is None:
        return not os.path.lexists(path)
    return read_text(path) == text.strip() and os.stat(path).st_mode & 0o7777 == MODE
