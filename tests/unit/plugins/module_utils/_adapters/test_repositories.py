# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import hashlib

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.repositories import (
    KeyRefused,
    Repository,
    UrlRefused,
    armoured_key,
    base_urls_in,
    binary_key,
    check_url,
    deb822,
    disabled_in,
    fingerprints,
    key_of_digest,
    repo_file,
    sources_in,
    verified_key,
    with_enabled,
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


def test_repositories_are_enabled_and_everything_else_stays():
    text = "# mine\n[crb]\nname=CRB\nenabled = 0\ngpgcheck=1\n\n[crb-source]\nenabled=0\n[extras]\nenabled=1\n"
    assert disabled_in(text) == ("crb", "crb-source")
    after = with_enabled(text, ["crb"])
    assert after == text.replace("enabled = 0", "enabled=1")
    assert disabled_in(after) == ("crb-source",)


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
        (b"", FINGERPRINT, "no OpenPGP public key"),
        (binary_key(ARMOURED)[:40], FINGERPRINT, "cut off"),
        (ARMOURED.replace(b"mDME", b"m*ME"), FINGERPRINT, "armour is damaged"),
        (ARMOURED.partition(b"-----END")[0], FINGERPRINT, "armour has no end"),
        (b"-----BEGIN PGP PRIVATE KEY BLOCK-----", FINGERPRINT, "private key"),
        (b"\xff\x00", FINGERPRINT, "no OpenPGP public key"),
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


@pytest.mark.parametrize(
    "url",
    ["https://mirror.invalid/x", "file:///srv/x", "http://127.0.0.1:8080/x", "http://localhost/x", "http://[::1]/x"],
)
def test_urls_that_are_safe(url):
    assert check_url(f"{url}/", "v") == url


@pytest.mark.parametrize(
    "url",
    ["http://mirror.invalid/x", "ftp://mirror.invalid", "/srv/x", "file://server/x", "", "https://a b", "https://"],
)
def test_urls_that_are_not(url):
    with pytest.raises(UrlRefused, match="not fetched without TLS"):
        check_url(url, "nvidia_driver_repository_url")


@pytest.mark.parametrize(
    "wrong",
    [
        {"identifier": "a/b"},
        {"identifier": ".hidden"},
        {"url": "https://x\nTrusted: yes"},
        {"description": "x\n[other]"},
    ],
)
def test_a_repository_cannot_smuggle_lines_into_its_file(wrong):
    with pytest.raises(ValueError, match=r"cannot be|line break"):
        Repository(**{"identifier": "x", "url": "https://x", "key": b"", **wrong})


def test_the_files_of_a_repository():
    repository = Repository("x", "https://mirror.invalid/r", b"", suite="stable", components=("main", "contrib"))
    text = deb822(repository, "/etc/apt/keyrings/x.gpg")
    assert "Suites: stable\nComponents: main contrib\nSigned-By: /etc/apt/keyrings/x.gpg\n" in text
    assert sources_in(text) == (("https://mirror.invalid/r", "/etc/apt/keyrings/x.gpg"),)
    rpm = repo_file(repository, "/etc/pki/rpm-gpg/x.asc")
    assert "gpgcheck=1\n" in rpm
    assert base_urls_in(rpm) == ("https://mirror.invalid/r",)


def test_sources_of_both_formats_are_read():
    assert sources_in(
        "# deb https://no.invalid /\ndeb-src https://s.invalid /\ndeb [arch=amd64 signed-by=/k] https://a.invalid/ /\n"
    ) == (("https://a.invalid", "/k"),)
    assert sources_in("Types: deb\nURIs: https://a.invalid/ https://b.invalid\nSuites: /\nEnabled: no\n") == ()
    assert len(sources_in("Types: deb deb-src\nURIs: https://a.invalid/\n  https://b.invalid\nSuites: x\n")) == 2


def test_disabled_rpm_repositories_do_not_count():
    text = "[a]\nbaseurl=https://a.invalid/\nenabled=0\n[b]\nbaseurl = https://b.invalid\n[c]\nmirrorlist=https://c.invalid\n"
    assert base_urls_in(text) == ("https://b.invalid",)


def test_a_key_of_base64_without_a_blank_line_is_read():
    body = base64.b64encode(binary_key(ARMOURED))
    text = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n" + body + b"\n-----END PGP PUBLIC KEY BLOCK-----\n"
    assert fingerprints(text) == (FINGERPRINT,)
