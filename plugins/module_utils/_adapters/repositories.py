# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Package repositories and the keys that sign them.

A key is trusted only by its fingerprint, and only when nothing else is in the key file: a second key in the same file
would be trusted along with it. The fingerprint is computed here (RFC 4880, section 12.2; RFC 9580, section 5.5.4):
a minimal host has no gpg.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PUBLIC_KEY, _USER_ID, _PUBLIC_SUBKEY = 6, 13, 14
_ARMOUR = re.compile(
    r"-----BEGIN PGP PUBLIC KEY BLOCK-----\r?\n(?P<body>.*?)-----END PGP PUBLIC KEY BLOCK-----", re.DOTALL
)


class KeyRefused(Exception):
    """A signing key that is not the one that was asked for, or that cannot be read."""


class UrlRefused(Exception):
    """A URL from which nothing may be fetched."""


@dataclass(frozen=True)
class Repository:
    """A package repository as it will be configured.

    :param identifier: its name in file names and in the package manager; letters, digits, dots, dashes.
    :param url: where it is; checked by L(check_url).
    :param key: the signing key, binary or armoured, checked by L(verified_key) before it gets here.
    :param description: one line for people.
    :param suite: deb only; C(/) for a flat repository.
    :param components: deb only; empty for a flat repository.
    :param signed_metadata: rpm only; whether the metadata are signed too, and not only the packages.
    :param signed_packages: rpm only; false where only the metadata are signed, which have the packages' checksums.
    """

    identifier: str
    url: str
    key: bytes
    description: str = ""
    suite: str = "/"
    components: tuple[str, ...] = ()
    signed_metadata: bool = False
    signed_packages: bool = True

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*", self.identifier):
            raise ValueError(f"{self.identifier!r} cannot be a repository's name: use letters, digits, dots and dashes")
        for text in (self.url, self.description, self.suite, *self.components):
            if re.search(r"[\r\n]", text):
                raise ValueError(f"{text!r} has a line break")
        if not (self.signed_metadata or self.signed_packages):
            raise ValueError("a repository of which nothing is signed is not configured")


def canonical(url: str) -> str:
    """Return C(url) in the one spelling that URLs are compared in: no trailing slash, C(file:///path) for a local one.

    apt prints C(file:/path) for what its sources call C(file:///path).
    """
    return re.sub(r"^file:(?://localhost)?/+", "file:///", url.strip()).rstrip("/")


def check_url(url: str, variable: str) -> str:
    """Return C(url), as L(canonical) spells it, when packages or keys may be fetched from it.

    :param variable: the option that holds it, for the message.
    :raises UrlRefused: it is neither https, nor a local file, nor on the loopback interface.
    """
    parts = urlsplit(url)
    safe = (
        (parts.scheme == "https" and bool(parts.hostname))
        or (parts.scheme == "file" and parts.path.startswith("/") and not parts.netloc)
        or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    )
    if not safe or re.search(r"\s", url):
        raise UrlRefused(
            f"{variable}: {url!r} is not fetched without TLS. "
            "Use https://, a file:/// path, or a server on the loopback interface."
        )
    return canonical(url)


def binary_key(content: bytes) -> bytes:
    """Return an OpenPGP key file without its ASCII armour; several armoured blocks are joined.

    :raises KeyRefused: the armour is damaged, or a private key is in it.
    """
    if b"PRIVATE KEY BLOCK" in content:
        raise KeyRefused("it holds a private key")
    if b"-----BEGIN PGP PUBLIC KEY BLOCK-----" not in content:
        return content
    joined = b""
    for match in _ARMOUR.finditer(content.decode("ascii", errors="replace")):
        lines = match.group("body").splitlines()
        if "" in [line.strip() for line in lines]:
            lines = lines[[line.strip() for line in lines].index("") + 1 :]
        encoded = "".join(line.strip() for line in lines if not line.startswith("="))
        try:
            joined += base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError) as error:
            raise KeyRefused(f"its armour is damaged: {error}") from error
    if not joined:
        raise KeyRefused("its armour has no end")
    return joined


def fingerprints(content: bytes) -> tuple[str, ...]:
    """Return the fingerprints of the primary keys in a key file (binary or armoured), in upper-case hexadecimal.

    :raises KeyRefused: it is not a sequence of OpenPGP packets that begins with a public key.
    """
    found = []
    for tag, body in _packets(binary_key(content)):
        if tag == _PUBLIC_KEY:
            found.append(_fingerprint(body))
    if not found:
        raise KeyRefused("there is no OpenPGP public key in it")
    return tuple(found)


def verified_key(content: bytes, fingerprint: str, source: str) -> bytes:
    """Return the binary form of a key file that holds exactly the key with C(fingerprint).

    :param source: where the file came from, for the message.
    :raises KeyRefused: it holds another key, more than one key, or no key.
    """
    wanted = re.sub(r"[\s:]", "", fingerprint).upper()
    if not re.fullmatch(r"[0-9A-F]{40}|[0-9A-F]{64}", wanted):
        raise KeyRefused(
            f"Failed to verify the key {source}: {fingerprint!r} is not a full fingerprint. "
            "Give all 40 hexadecimal digits; short key ids can be forged."
        )
    try:
        found = fingerprints(content)
    except KeyRefused as error:
        raise KeyRefused(f"Failed to verify the key {source}: {error}.") from error
    if set(found) != {wanted}:
        raise KeyRefused(
            f"Failed to verify the key {source}: it holds {', '.join(found)}, expected only {wanted}. "
            "Check the fingerprint with the repository's owner; do not just copy what was found."
        )
    return binary_key(content)


def key_of_digest(content: bytes, digest: str, source: str) -> bytes:
    """Return the binary form of a key file that is known by its SHA-256.

    :param digest: of the file without its lines C(Version), which say only what wrote it.
    :param source: where the file came from, for the message.
    :raises KeyRefused: it is another file, or holds no key.
    """
    lines = [line for line in content.splitlines(keepends=True) if not line.startswith(b"Version")]
    found = hashlib.sha256(b"".join(lines)).hexdigest()
    if found != digest:
        raise KeyRefused(
            f"Failed to verify the key {source}: its SHA-256 without the line Version is {found}, expected {digest}. "
            "Where its owner has replaced it, give the fingerprint of the new one."
        )
    try:
        fingerprints(content)
    except KeyRefused as error:
        raise KeyRefused(f"Failed to verify the key {source}: {error}.") from error
    return binary_key(content)


def _fingerprint(body: bytes) -> str:
    version = body[0] if body else 0
    if version == 4:
        digest = hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body, usedforsecurity=False)
    elif version == 6:
        digest = hashlib.sha256(b"\x9b" + len(body).to_bytes(4, "big") + body)
    else:
        raise KeyRefused(f"its key packet has version {version}; 4 and 6 are supported")
    return digest.hexdigest().upper()


def _packets(content: bytes) -> list[tuple[int, bytes]]:
    packets, position = [], 0
    while position < len(content):
        header = content[position]
        if not header & 0x80:
            raise KeyRefused("it is not an OpenPGP file")
        tag, position, length = (
            _new_length(content, position) if header & 0x40 else _old_length(content, position, header)
        )
        if position + length > len(content):
            raise KeyRefused("it is cut off")
        packets.append((tag, content[position : position + length]))
        position += length
    return packets


def _old_length(content: bytes, position: int, header: int) -> tuple[int, int, int]:
    octets = {0: 1, 1: 2, 2: 4}.get(header & 0x03)
    if octets is None:
        raise KeyRefused("it has a packet of indeterminate length")
    start = position + 1
    return (header >> 2) & 0x0F, start + octets, int.from_bytes(content[start : start + octets], "big")


def _new_length(content: bytes, position: int) -> tuple[int, int, int]:
    tag, start = content[position] & 0x3F, position + 1
    first = content[start] if start < len(content) else 0
    if first < 192:
        return tag, start + 1, first
    if first < 224:
        second = content[start + 1] if start + 1 < len(content) else 0
        return tag, start + 2, ((first - 192) << 8) + second + 192
    if first == 255:
        return tag, start + 5, int.from_bytes(content[start + 1 : start + 5], "big")
    raise KeyRefused("it has a packet of partial length")


def armoured_key(key: bytes) -> str:
    """Return a binary key in ASCII armour, as rpm wants it, with the CRC-24 of RFC 4880, section 6.1."""
    crc = 0xB704CE
    for octet in key:
        crc ^= octet << 16
        for _bit in range(8):
            crc = (crc << 1) ^ (0x1864CFB if crc & 0x800000 else 0)
    encoded = base64.b64encode(key).decode()
    lines = [encoded[index : index + 64] for index in range(0, len(encoded), 64)]
    check = base64.b64encode((crc & 0xFFFFFF).to_bytes(3, "big")).decode()
    return "\n".join(
        ["-----BEGIN PGP PUBLIC KEY BLOCK-----", "", *lines, f"={check}", "-----END PGP PUBLIC KEY BLOCK-----", ""]
    )


def deb822(repository: Repository, keyring: str) -> str:
    """Return the C(.sources) file of a deb repository that trusts only C(keyring)."""
    lines = ["# Written by gpufleet.nvidia; changes are overwritten.", "Types: deb", f"URIs: {repository.url}/"]
    lines.append(f"Suites: {repository.suite}")
    if repository.components:
        lines.append(f"Components: {' '.join(repository.components)}")
    lines.append(f"Signed-By: {keyring}")
    return "\n".join(lines) + "\n"


def repo_file(repository: Repository, key_path: str) -> str:
    """Return the C(.repo) file of an rpm repository for dnf and zypper."""
    lines = [
        "# Written by gpufleet.nvidia; changes are overwritten.",
        f"[{repository.identifier}]",
        f"name={repository.description or repository.identifier}",
        f"baseurl={repository.url}/",
        "enabled=1",
        f"gpgcheck={int(repository.signed_packages)}",
        f"repo_gpgcheck={int(repository.signed_metadata)}",
        f"gpgkey=file://{key_path}",
    ]
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
            found.append(canonical(match.group(1)))
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
