# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Package repositories: their addresses, what a mirror asks for before it serves packages, and the files that configure both.

Every user of a host can read where packages come from, so a password never stands in an address. Each package manager has a place for it that root
alone needs to read: apt_auth.conf(5) for apt; C(username) and C(password) of dnf.conf(5) for dnf 4 and 5; for zypper a file in
C(/etc/zypp/credentials.d), which the query C(credentials) of the address names (libzypp, C(zypp/media/CredentialManager.h)).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from .._plan import Failure, Refused
from .files import read_text

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


#: The option C(repository) of modules that configure one, as an argument spec.
REPOSITORY_OPTION: dict[str, Any] = {
    "type": "dict",
    "default": {},
    "options": {
        "url": {"type": "str", "default": ""},
        # A fingerprint and a key of a repository are public; "key" in the name would have Ansible think otherwise.
        "key_url": {"type": "str", "default": "", "no_log": False},
        "key_file": {"type": "path", "default": "", "no_log": False},
        "key_fingerprint": {"type": "str", "default": "", "no_log": False},
        "manage": {"type": "bool", "default": True},
        "username": {"type": "str", "default": ""},
        "password": {"type": "str", "default": "", "no_log": True},
    },
}


@dataclass(frozen=True)
class Repository:
    """A package repository as it will be configured.

    :param signed_metadata: rpm only; whether the metadata are signed too, and not only the packages.
    :param signed_packages: rpm only; false where only the metadata are signed, which have the packages' checksums.
    """

    identifier: str
    url: str
    key: bytes
    description: str = ""
    signed_metadata: bool = False
    signed_packages: bool = True
    credentials: Credentials | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*", self.identifier):
            raise ValueError(f"{self.identifier!r} cannot be a repository's name: use letters, digits, dots and dashes")
        for text in (self.url, self.description):
            if re.search(r"[\r\n]", text):
                raise ValueError(f"{text!r} has a line break")
        if not (self.signed_metadata or self.signed_packages):
            raise ValueError("a repository without any signature is not configured")


def canonical(url: str) -> str:
    """Return C(url) in the one spelling that URLs are compared in: no trailing slash, C(file:///path) for a local one. apt prints C(file:/path) for
    what its sources call C(file:///path).
    """
    return re.sub(r"^file:(?://localhost)?/+", "file:///", url.strip()).rstrip("/")


def check_url(url: str, variable: str) -> str:
    """Return C(url), as L(canonical) spells it, when packages or keys may be fetched from it. Raises Failure: neither https, nor a file, nor local."""
    refuse_credentials_in(url, variable)
    parts = urlsplit(url)
    safe = (
        (parts.scheme == "https" and bool(parts.hostname))
        or (parts.scheme == "file" and parts.path.startswith("/") and not parts.netloc)
        or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    )
    if not safe or re.search(r"\s", url):
        raise Failure(
            f"{variable}: {url!r} is not fetched without TLS. "
            "Use https://, a file:/// path, or a server on the loopback interface."
        )
    return canonical(url)


def deb822(repository: Repository, keyring: str) -> str:
    """Return the C(.sources) file of a deb repository that trusts only C(keyring)."""
    head = "# Written by gpufleet.nvidia; changes are overwritten.\nTypes: deb\n"
    return f"{head}URIs: {repository.url}/\nSuites: /\nSigned-By: {keyring}\n"


def repo_file(repository: Repository, key_path: str, *, query: str = "", login: Credentials | None = None) -> str:
    """Return the C(.repo) file of an rpm repository for dnf and zypper. C(login): credentials that stand in the file itself, as dnf wants them; it is
    then for root alone.
    """
    lines = [
        "# Written by gpufleet.nvidia; changes are overwritten.",
        f"[{repository.identifier}]",
        f"name={repository.description or repository.identifier}",
        f"baseurl={repository.url}/{query}",
        "enabled=1",
        f"gpgcheck={int(repository.signed_packages)}",
        f"repo_gpgcheck={int(repository.signed_metadata)}",
        f"gpgkey=file://{key_path}",
    ]
    if login is not None:
        lines += [f"username={login.username}", f"password={login.password}"]
    return "\n".join(lines) + "\n"


def sources_in(text: str) -> tuple[tuple[str, str], ...]:
    """Return (canonical URL, Signed-By) of every enabled deb source in a file of either format."""
    found: list[tuple[str, str]] = []
    if re.search(r"^URIs:", text, re.MULTILINE | re.IGNORECASE):
        for paragraph in re.split(r"\n\s*\n", text):
            fields = _fields(paragraph)
            if fields.get("enabled", "yes").lower() == "no" or "deb" not in fields.get("types", "").split():
                continue
            found.extend((canonical(uri), fields.get("signed-by", "")) for uri in fields.get("uris", "").split())
        return tuple(found)
    for line in text.splitlines():
        match = re.match(r"\s*deb\s+(?:\[(?P<options>[^\]]*)\]\s*)?(?P<uri>\S+)\s", line)
        if match:
            signed = re.search(r"signed-by=(\S+)", match.group("options") or "")
            found.append((canonical(match.group("uri")), signed.group(1) if signed else ""))
    return tuple(found)


def login_in(text: str) -> Credentials | None:
    """Return the credentials in a C(.repo) file with one repository."""
    username = re.search(r"^username=(.*)$", text, re.MULTILINE)
    password = re.search(r"^password=(.*)$", text, re.MULTILINE)
    return Credentials(username.group(1), password.group(1)) if username and password else None


_SECTION = re.compile(r"^(?=\[)", re.MULTILINE)
_DISABLED = re.compile(r"^enabled\s*=\s*(?:0|no|false)\s*$", re.MULTILINE | re.IGNORECASE)


def disabled_in(text: str) -> tuple[str, ...]:
    """Return the names of the repositories in a C(.repo) file that are not enabled."""
    return tuple(
        section[1:].partition("]")[0]
        for section in _SECTION.split(text)
        if section.startswith("[") and _DISABLED.search(section)
    )


def with_enabled(text: str, names: Iterable[str]) -> str:
    """Return a C(.repo) file with repositories enabled, and everything else in it as it was."""
    wanted = set(names)
    return "".join(
        _DISABLED.sub("enabled=1", section) if section[1:].partition("]")[0] in wanted else section
        for section in _SECTION.split(text)
    )


def base_urls_in(text: str) -> tuple[str, ...]:
    """Return the canonical base URLs of the enabled repositories in a C(.repo) file."""
    found = []
    for section in _SECTION.split(text):
        if _DISABLED.search(section):
            continue
        match = re.search(r"^baseurl\s*=\s*(\S+)", section, re.MULTILINE)
        if match:
            # zypper's query names the file with the credentials, and is no part of where the repository is.
            found.append(canonical(re.sub(r"\?credentials=[^&]*$", "", match.group(1))))
    return tuple(found)


def _fields(paragraph: str) -> Mapping[str, str]:
    fields: dict[str, str] = {}
    last = ""
    for line in paragraph.splitlines():
        if line.startswith("#"):
            continue
        if line[:1].isspace() and last:
            fields[last] += f" {line.strip()}"
            continue
        name, separator, value = line.partition(":")
        if separator:
            last = name.strip().lower()
            fields[last] = value.strip()
    return fields


#: The mode of every file with a password in it.
CREDENTIALS_MODE = 0o600
#: Printable characters that no package manager's file gives a meaning: apt splits at blanks, dnf replaces variables.
_ACCEPTED = re.compile(r"[!%&()*+,./0-9:;<=>?@A-Z\[\]^_`a-z{|}~-]{1,1024}")


@dataclass(frozen=True)
class Credentials:
    """A user of a mirror, for HTTP's Basic authentication."""

    username: str
    password: str = field(repr=False)


def checked_credentials(prefix: str, url: str, username: str, password: str, manage: bool) -> Credentials | None:
    """Return what a mirror is accessed with; None where it asks for nothing. C(prefix): of the variables C(repository_url), C(repository_username)
    and C(repository_password), for messages.
    """
    if not (username or password):
        return None
    names = f"{prefix}repository_username", f"{prefix}repository_password"
    if not (username and password):
        given, missing = names if username else names[::-1]
        reason = f"it is empty, and {given} is not"
        raise Refused(missing, reason, "Give both, or neither if the mirror needs no credentials.")
    if not manage:
        remedy = f"Remove both and configure access with the repository, or set {prefix}manage_repository: true."
        raise Refused(names[1], "the collection does not configure the repository, so it would never be used", remedy)
    if urlsplit(url).scheme not in ("https", "http"):
        remedy = "Give the address of the mirror."
        raise Refused(names[1], f"{prefix}repository_url has no server that could ask for it", remedy)
    for name, value in zip(names, (username, password)):
        if not _ACCEPTED.fullmatch(value) or (value is username and ":" in value):
            raise Refused(
                name,
                "it has a character that a package manager's configuration cannot hold, or more than 1,024 characters",
                "Use printable ASCII without spaces, quotation marks, $, # and backslashes; a username also without colons.",
            )
    return Credentials(username, password)


def refuse_credentials_in(url: str, variable: str) -> None:
    """Refuse an address with a user or a password in it, and do not print it. Raises Refused: it has, or it cannot be told."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # Raises where what stands before a slash in a password is taken for a port.
        found = "@" in parts.netloc
    except ValueError:
        found = True
    if found:
        reason = "it contains a username or a password (or is not a valid address), and all users of a host can read the package sources"
        remedy = f"Give the address without them, https://host/path, and {access_variables(variable)}."
        raise Refused(variable, reason, remedy)


def access_variables(variable: str) -> str:
    """Return the names of the variables that take what must not be in the address C(variable)."""
    prefix = variable[: variable.rfind("_key_url" if variable.endswith("_key_url") else "_url")]
    return f"{prefix}_username with {prefix}_password"


def for_server_of(url: str, repository_url: str, credentials: Credentials | None) -> Credentials | None:
    """Return what to send to C(url): the mirror's credentials where it is on the mirror's server, and nothing elsewhere."""
    one, other = urlsplit(url), urlsplit(repository_url)
    return credentials if (one.scheme, one.netloc) == (other.scheme, other.netloc) else None


def apt_auth(url: str, credentials: Credentials) -> str:
    """Return the file for C(/etc/apt/auth.conf.d) that opens the repository at C(url) alone. The scheme is named, because apt otherwise takes the
    entry for https only; a path matches everything that begins with it.
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
    return read_text(path) == text.strip() and os.stat(path).st_mode & 0o7777 == CREDENTIALS_MODE
