# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""OpenPGP keys that sign repositories.

A key is trusted only by its fingerprint, and only when nothing else is in the key file: a second key in the same file
would be trusted along with it. The fingerprint is computed here (RFC 4880, section 12.2; RFC 9580, section 5.5.4):
a minimal host has no gpg.

The fingerprint says nothing of subkeys, and rpm before 4.18 did not verify that the primary key had made them (CVE-2021-3521): whoever serves the
key file could add one of his own. So a subkey that can sign has to have a binding signature of the primary key, which is verified here too.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from itertools import takewhile

from .._plan import Failure

_PUBLIC_KEY, _SUBKEY, _SIGNATURE = 6, 14, 2
#: What else a public key may have (RFC 9580, section 10.1): user ids and attributes, and the trust that gpg writes into keyrings of its own.
_REST = (13, 17, 12)
#: Public-key algorithms (RFC 9580, section 9.1): of RSA, and those that can only encrypt.
_RSA, _ONLY_ENCRYPT = (1, 3), (2, 16, 18, 25, 26)
_SUBKEY_BINDING = 0x18
#: How many keys of a file are named.
_NAMED = 3
#: Hash algorithms by their OpenPGP number, with how PKCS #1 names them (RFC 9580, section 5.2.3.1).
_HASHES = {
    2: ("sha1", "3021300906052b0e03021a05000414"),
    8: ("sha256", "3031300d060960864801650304020105000420"),
    9: ("sha384", "3041300d060960864801650304020205000430"),
    10: ("sha512", "3051300d060960864801650304020305000440"),
    11: ("sha224", "302d300d06096086480165030402040500041c"),
}
_ARMOUR = re.compile(
    r"-----BEGIN PGP PUBLIC KEY BLOCK-----\r?\n(?P<body>.*?)-----END PGP PUBLIC KEY BLOCK-----", re.DOTALL
)


# Both, since pylint as ansible-test runs it does not see what L(Failure) is.
class KeyRefused(Failure, Exception):
    """A signing key that is not the one that was asked for, or that cannot be read."""


def binary_key(content: bytes) -> bytes:
    """Return an OpenPGP key file without its ASCII armour; several armoured blocks are joined. Raises KeyRefused: the armour is damaged, or a private
    key is in it.
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
        raise KeyRefused("the end of its armour is missing")
    return joined


def fingerprints(content: bytes) -> tuple[str, ...]:
    """Return the fingerprints of the primary keys in a key file (binary or armoured), in upper-case hexadecimal. Raises KeyRefused: it is not a
    sequence of OpenPGP packets that begins with a public key and has nothing else.
    """
    return tuple(_fingerprint(body) for tag, body in _key_packets(content) if tag == _PUBLIC_KEY)


def verified_key(content: bytes, fingerprint: str, source: str) -> bytes:
    """Return the binary form of a key file that holds exactly the key with C(fingerprint). Raises KeyRefused: it holds another key, more than one
    key, no key, something that is not part of a key, or a subkey that can sign and that the key is not known to have made.
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
        more = f" and {len(found) - _NAMED} more" if found[_NAMED:] else ""
        raise KeyRefused(
            f"Failed to verify the key {source}: it holds {', '.join(found[:_NAMED])}{more}, expected only {wanted}. "
            "Check the fingerprint with the repository's owner; do not just copy what was found."
        )
    try:
        _check_subkeys(_key_packets(content))
    except KeyRefused as error:
        raise KeyRefused(f"Failed to verify the key {source}: {error}.") from error
    return binary_key(content)


def key_of_digest(content: bytes, digest: str, source: str) -> bytes:
    """Return the binary form of a key file that is known by its SHA-256, without its lines C(Version). Raises KeyRefused: it is another, or holds no
    key.
    """
    lines = [line for line in content.splitlines(keepends=True) if not line.startswith(b"Version")]
    found = hashlib.sha256(b"".join(lines)).hexdigest()
    if found != digest:
        raise KeyRefused(
            f"Failed to verify the key {source}: its SHA-256 without the line Version is {found}, expected {digest}. "
            "If its owner has replaced it, give the fingerprint of the new one."
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


def _key_packets(content: bytes) -> list[tuple[int, bytes]]:
    packets = _packets(binary_key(content))
    if not packets or packets[0][0] != _PUBLIC_KEY:
        raise KeyRefused("it does not begin with an OpenPGP public key")
    foreign = sorted({tag for tag, _body in packets} - {_PUBLIC_KEY, _SUBKEY, _SIGNATURE, *_REST})
    if foreign:
        text = f"it holds OpenPGP packets of type {', '.join(map(str, foreign))}, which do not belong in a public key"
        raise KeyRefused(text)
    return packets


def _check_subkeys(packets: list[tuple[int, bytes]]) -> None:
    primary = b""
    for index, (tag, body) in enumerate(packets):
        if tag == _PUBLIC_KEY:
            primary = body
        if tag != _SUBKEY or _algorithm(body) in _ONLY_ENCRYPT:
            continue
        signatures = list(takewhile(lambda packet: packet[0] == _SIGNATURE, packets[index + 1 :]))
        if primary[:1] != b"\x04" or _algorithm(primary) not in _RSA:
            raise KeyRefused(
                f"it has the subkey {_fingerprint(body)}, which can sign, but whether the primary key has made it can be verified here for RSA keys only. "
                "If the repository is signed by the primary key, export the key without the subkey (gpg --export-filter drop-subkey=...), or configure the "
                "repository yourself (manage_repository: false)"
            )
        if not any(_binds(primary, body, signature) for _tag, signature in signatures):
            text = f"the key has not signed its subkey {_fingerprint(body)}, so somebody else may have added it"
            raise KeyRefused(text)


def _algorithm(key: bytes) -> int:
    return key[5] if len(key) > 5 else 0


def _binds(primary: bytes, subkey: bytes, signature: bytes) -> bool:
    """Return whether a signature is one in which an RSA key of version 4 says that a subkey is its own (RFC 9580, sections 5.2.3 and 5.2.4)."""
    hashed_end = 6 + int.from_bytes(signature[4:6], "big")
    unhashed_end = hashed_end + 2 + int.from_bytes(signature[hashed_end : hashed_end + 2], "big")
    if len(signature) < unhashed_end + 4 or signature[:2] != bytes([4, _SUBKEY_BINDING]) or signature[3] not in _HASHES:
        return False
    name, prefix = _HASHES[signature[3]]
    data = b"".join(b"\x99" + len(key).to_bytes(2, "big") + key for key in (primary, subkey))
    data += signature[:hashed_end] + b"\x04\xff" + hashed_end.to_bytes(4, "big")
    digest = hashlib.new(name, data, usedforsecurity=False).digest()
    modulus, rest = _integer(primary[6:])
    exponent, _rest = _integer(rest)
    value, _rest = _integer(signature[unhashed_end + 2 :])
    size = (modulus.bit_length() + 7) // 8
    tail = b"\x00" + bytes.fromhex(prefix) + digest
    # Below the padding's least length (RFC 8017, section 9.2) it is no key of today.
    if size < len(tail) + 10 or not 0 < value < modulus:
        return False
    expected = b"\x00\x01" + b"\xff" * (size - len(tail) - 2) + tail
    return pow(value, exponent, modulus).to_bytes(size, "big") == expected


def _integer(content: bytes) -> tuple[int, bytes]:
    """Return the multiprecision integer at the beginning, and what follows it."""
    end = 2 + (int.from_bytes(content[:2], "big") + 7) // 8
    return int.from_bytes(content[2:end], "big"), content[end:]


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
            raise KeyRefused("it is truncated")
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
