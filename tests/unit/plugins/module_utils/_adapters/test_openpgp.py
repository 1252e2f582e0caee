# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import hashlib

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.openpgp import (
    KeyRefused,
    _packets,
    armoured_key,
    binary_key,
    fingerprints,
    key_of_digest,
    verified_key,
)

# Made by gpg 2.2 for this test; its fingerprint is what gpg printed.
ARMOURED = b"""-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawFEyhYJKwYBBAHaRw8BAQdAtTiqpbUWoHy47sdwrRGPI42X/uZOVeuidMS+
5nM6VOm0GHVuaXQgdGVzdCA8dGVzdEBpbnZhbGlkPoiQBBMWCAA4FiEEV7/2hIFN
prbEJo0KHYFgVHwf6lwFAmsBRMoCGwMFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AA
CgkQHYFgVHwf6lwI9QEAl0JkrdoWPRvEdcw/DKDqyDumHO2gSPE2Vax42ss+USMB
APU3cT7cpkCr3N99AivBexbEYUgSH1jdNBHJCPL4fbEH
=ZiF/
-----END PGP PUBLIC KEY BLOCK-----
"""
FINGERPRINT = "57BFF684814DA6B6C4268D0A1D8160547C1FEA5C"

# Made by gpg 2.2 as well: an RSA key with a subkey that signs, as NVIDIA's key of the container toolkit has one.
WITH_SUBKEY = b"""-----BEGIN PGP PUBLIC KEY BLOCK-----

mI0EawPy/wEEAMiSz/HmqbD8NeS2T79nWQOS7xTFBVn9mEEoJ5Cs8XUaGd286EeE
HByXgWtvtUBWbD9Gi7u+lti58s9s8eIsJzdsBNRWY/GyldSLrIbjQsu+04E4VLMq
W/3IcpVWwzIMlCEQHd5eeGpqru+M+MjcBLvXH57teRshuyte/0Vi8OfPABEBAAG0
CXVuaXQgdGVzdIjOBBMBCgA4FiEE/d8FkOdLJ/33wM4pPrq23mykhmgFAmsD8v8C
GwMFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQPrq23mykhmjc3AP8De1Xcfc+
MlB++NrYRxon8R7KQXAvfa5al1Qg25ZWDS6cCaMy2J/5I4sDB1qctQPRyKoeV4YM
HUR3MtjzY/SmqzONY5F+Rpu0p3FdkPuFeTUkc9+ueK871BbzancOUHlsnx0j2b/4
DrCy0bIWE0wBXhUbfvm8hAx3JBxxiPYDfh64jQRrA/L/AQQAu1gglN374aywiqQ9
so9f0P9UEiSfn9b9biaFG1G6GH6ZSvTNDLYOX0/1f8c06BalpScZOsilhFtLxOi5
itmEgfnp1btFjYfnrD6o7U59L4wQp1NTPxI9+FS8qvX+hoTIVnX3k2M/ETiq4/fn
DRi0GPFR8hiiuC6BR2dHha0qn+0AEQEAAYkBawQYAQoAIBYhBP3fBZDnSyf998DO
KT66tt5spIZoBQJrA/L/AhsCAL8JED66tt5spIZotCAEGQEKAB0WIQTaC8Qh7tIR
kpVoD8RHCrt08QQX9gUCawPy/wAKCRBHCrt08QQX9mpeBACOq3vqOJfPL08SdvDg
zqDipuIP9acBnX4dTy5plugQbH6jKdp5KIFCG7MJpzV/Y/IouKhYHO/WfAj4Zscq
YWKFR1r6tsKE7jGjs0k/3U/TGH0VROczVvvDJE/Xd16Rv4DnGrXbSO2oHPUmg+bZ
T2Oc7j6t4xKEGuDq78ddbwybSxoZA/sFSDO5l7awhI7P7mnBLpbztkiZEdeRewE2
B4joJGtrPE0LMmlEx6vySx89geH+pHouFSsbMN47ebUCXyjKyiCm5F80MIwMiyc1
xpte8TYCruT46OlZRZ358kyPdM/K6vf2MlvWWzQRLhMo0Kc2Pki5H8FWyfXbSKl+
robKJgrGyw==
=vC2a
-----END PGP PUBLIC KEY BLOCK-----
"""
SUBKEY = "DA0BC421EED2119295680FC4470ABB74F10417F6"


def packet(tag, body):
    return bytes([0xC0 | tag, 255]) + len(body).to_bytes(4, "big") + body


def joined(packets):
    return b"".join(packet(*one) for one in packets)


def test_the_fingerprint_is_the_one_that_gpg_prints():
    assert fingerprints(ARMOURED) == (FINGERPRINT,)
    assert fingerprints(binary_key(ARMOURED)) == (FINGERPRINT,)


def test_a_key_file_is_known_by_its_digest_whatever_wrote_it():
    digest = hashlib.sha256(ARMOURED).hexdigest()
    first, rest = ARMOURED.split(b"\n", 1)
    for content in (ARMOURED, first + b"\nVersion: GnuPG v2.0.22 (GNU/Linux)\n" + rest):
        assert key_of_digest(content, digest, "key.asc") == binary_key(ARMOURED)
    with pytest.raises(KeyRefused, match=f"expected {digest}"):
        key_of_digest(ARMOURED + b"\n", digest, "key.asc")
    with pytest.raises(KeyRefused, match=r"key\.asc: .*OpenPGP"):
        key_of_digest(b"x", hashlib.sha256(b"x").hexdigest(), "key.asc")


def test_armour_and_back_is_the_same_key():
    assert armoured_key(binary_key(ARMOURED)).encode() == ARMOURED


@pytest.mark.parametrize(
    "given", [FINGERPRINT, FINGERPRINT.lower(), " ".join(FINGERPRINT[i : i + 4] for i in range(0, 40, 4))]
)
def test_a_key_with_the_right_fingerprint_is_accepted_however_it_is_written(given):
    assert verified_key(ARMOURED, given, "key.asc") == binary_key(ARMOURED)


@pytest.mark.parametrize(
    ("content", "fingerprint", "message"),
    [
        (ARMOURED, "0" * 40, "expected only 0000"),
        (ARMOURED, FINGERPRINT[-8:], "not a full fingerprint"),
        (b"<html>not found</html>", FINGERPRINT, "not an OpenPGP file"),
        (b"", FINGERPRINT, "does not begin with an OpenPGP public key"),
        (binary_key(ARMOURED)[:40], FINGERPRINT, "truncated"),
        (ARMOURED.replace(b"mDME", b"m*ME"), FINGERPRINT, "armour is damaged"),
        (ARMOURED.partition(b"-----END")[0], FINGERPRINT, "the end of its armour is missing"),
        (b"-----BEGIN PGP PRIVATE KEY BLOCK-----", FINGERPRINT, "private key"),
        (b"\xff\x00", FINGERPRINT, "does not begin with an OpenPGP public key"),
        (binary_key(ARMOURED)[53:], FINGERPRINT, "does not begin with an OpenPGP public key"),
        (b"\xc6\xe1", FINGERPRINT, "partial length"),
        (b"\x9b\x00", FINGERPRINT, "indeterminate length"),
        (b"\x98\x01\x03", FINGERPRINT, "version 3"),
    ],
)
def test_anything_else_is_refused(content, fingerprint, message):
    with pytest.raises(KeyRefused, match=message):
        verified_key(content, fingerprint, "key.asc")


def test_a_second_key_in_the_file_is_refused_because_it_would_be_trusted_too():
    second = bytearray(binary_key(ARMOURED))
    second[10] ^= 1
    with pytest.raises(KeyRefused, match="expected only"):
        verified_key(binary_key(ARMOURED) + bytes(second), FINGERPRINT, "key.gpg")


def test_packet_lengths_of_the_new_format():
    body = b"\x04" + bytes(300)
    two_octets = bytes([0xC6, 192 + ((len(body) - 192) >> 8), (len(body) - 192) & 0xFF]) + body
    five_octets = b"\xc6\xff" + len(body).to_bytes(4, "big") + body
    old_format = b"\x99" + len(body).to_bytes(2, "big") + body
    assert fingerprints(two_octets) == fingerprints(five_octets) == fingerprints(old_format)


def test_a_version_6_key_has_a_sha256_fingerprint():
    assert len(fingerprints(b"\xc6\x06\x06" + bytes(5))[0]) == 64


def test_a_key_of_base64_without_a_blank_line_is_read():
    body = base64.b64encode(binary_key(ARMOURED))
    text = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n" + body + b"\n-----END PGP PUBLIC KEY BLOCK-----\n"
    assert fingerprints(text) == (FINGERPRINT,)


@pytest.mark.parametrize(
    "foreign",
    [
        # A compressed packet can hold keys of its own, which gpg imports and whoever only counts key packets does not see.
        pytest.param(8, id="compressed data"),
        pytest.param(5, id="secret key"),
        pytest.param(11, id="literal data"),
        pytest.param(63, id="experimental"),
    ],
)
def test_whatever_is_no_part_of_a_key_is_refused(foreign):
    for content in (binary_key(ARMOURED) + packet(foreign, b"x"), binary_key(ARMOURED)[:53] + packet(foreign, b"x")):
        with pytest.raises(
            KeyRefused, match=rf"key\.gpg: it holds OpenPGP packets of type {foreign}, which do not belong"
        ):
            verified_key(content, FINGERPRINT, "key.gpg")


def test_the_trust_that_gpg_keeps_in_its_keyrings_is_no_foreign_packet():
    content = binary_key(ARMOURED) + packet(12, b"\x00\x00")
    assert verified_key(content, FINGERPRINT, "key.gpg") == content


def test_a_subkey_that_the_key_has_signed_is_accepted():
    primary = fingerprints(WITH_SUBKEY)[0]
    assert verified_key(WITH_SUBKEY, primary, "key.asc") == binary_key(WITH_SUBKEY)


def test_a_subkey_that_somebody_else_added_is_refused():
    """Older releases of rpm take the packages that it signs for those of the key."""
    primary, packets = fingerprints(WITH_SUBKEY)[0], _packets(binary_key(WITH_SUBKEY))
    (_tag, subkey), (_tag, binding) = packets[3:]
    own = packets[:3]
    other = bytearray(subkey)
    other[-20] ^= 1
    forged = bytearray(binding)
    forged[-1] ^= 1
    for added in (
        [(14, bytes(other))],
        [(14, bytes(other)), (2, binding)],
        [(14, subkey), (2, bytes(forged))],
        [(14, subkey), (2, binding[:40])],
        [(14, subkey), (2, b"")],
        [(14, subkey), (13, b"x"), (2, binding)],
        # A signature over something else: the one of the user id.
        [(14, subkey), packets[2]],
    ):
        with pytest.raises(KeyRefused, match=r"the key has not signed its subkey [0-9A-F]{40}"):
            verified_key(joined([*own, *added]), primary, "key.gpg")
    assert verified_key(joined([*own, (14, subkey), (2, bytes(forged)), (2, binding)]), primary, "key.gpg")


def test_a_subkey_that_signs_is_not_taken_on_trust_where_it_cannot_be_verified():
    subkey = _packets(binary_key(WITH_SUBKEY))[3]
    with pytest.raises(KeyRefused, match=f"the subkey {SUBKEY}, which can sign.*manage_repository: false"):
        verified_key(binary_key(ARMOURED) + joined([subkey]), FINGERPRINT, "key.gpg")
    # One that can only encrypt signs nothing: X25519 of RFC 9580, ECDH of RFC 6637.
    for algorithm in (25, 18):
        encrypts = subkey[1][:5] + bytes([algorithm]) + subkey[1][6:]
        content = binary_key(ARMOURED) + joined([(14, encrypts)])
        assert verified_key(content, FINGERPRINT, "key.gpg") == content
