# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The key that DKMS signs kernel modules with: which files it uses, whether shim knows it, and how it is made.

Source: the program C(dkms) itself, C(prepare_signing()) of Debian 12's 3.0.10 and C(prepare_mok()) of 3.1.0 to 3.2.2 [code].
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Sequence
from typing import Callable

from .command import CommandError, Result, run
from .files import read_text

_CONFIGURATIONS = ("/etc/dkms/framework.conf", "/etc/dkms/framework.conf.d/*.conf")
_SETTING = re.compile(
    r"^\s*(mok_signing_key|mok_certificate)=(?P<quote>[\"']?)(?P<value>[^\"'\s#]*)(?P=quote)\s*(?:#.*)?$"
)
#: A number that fits into a machine word is written in decimal with its hexadecimal form behind it, a longer one as bytes.
_SERIAL = re.compile(r"Serial Number:\s*(?:\d+ \(0x([0-9a-fA-F]+)\)|((?:[0-9a-fA-F]{2}:)+[0-9a-fA-F]{2}))")
#: As dkms 3.2 calls it; older ones leave the purpose out.
_SELF_SIGNED = [
    *("openssl", "req", "-new", "-x509", "-nodes", "-days", "36500", "-newkey", "rsa:2048"),
    *("-addext", "extendedKeyUsage=codeSigning", "-outform", "DER"),
]
_SUBJECT = "/CN=DKMS module signing key"


def configured(kernel: str) -> dict[str, str]:
    """Return C(mok_signing_key) and C(mok_certificate) where the site set them for dkms. C(kernel): release of the kernel, which the paths may name
    as C($kernelver).
    """
    paths = [path for pattern in _CONFIGURATIONS for path in sorted(glob.glob(pattern))]
    found = parse_framework(read_text(path) or "" for path in paths)
    return {name: re.sub(r"\$(?:kernelver|\{kernelver\})", kernel, value) for name, value in found.items()}


def parse_framework(texts: Iterable[str]) -> dict[str, str]:
    """Return the signing settings of dkms's configuration files, of which a later one wins."""
    found = {}
    for text in texts:
        for line in text.splitlines():
            match = _SETTING.match(line)
            if match and match.group("value"):
                found[match.group(1)] = match.group("value")
    return found


def enrolled(certificate: str) -> bool | None:
    """Return whether shim knows a certificate in DER, so that the kernel takes what it signed; None where nobody can tell."""
    try:
        answer = run(["mokutil", "--test-key", certificate], timeout=30)
    except CommandError:
        return None
    # mokutil ends with 1 for a key that is enrolled and 0 for one that is not; only its words are unambiguous.
    return "is already enrolled" in answer.stdout + answer.stderr


def enrolled_keys(call: Callable[[Sequence[str]], Result]) -> frozenset[str] | None:
    """Return the serial numbers of the certificates that shim knows; None where nobody can tell. mokutil prints certificates as C(openssl x509 -text)
    does.
    """
    try:
        answer = call(("mokutil", "--list-enrolled"))
    except CommandError:
        return None
    return frozenset(serial(short or long) for short, long in _SERIAL.findall(answer.stdout))


def serial(text: str) -> str:
    """Return a serial number as it is compared: modinfo, mokutil and OpenSSL write the same one differently."""
    return text.replace(":", "").lower().lstrip("0")


def create(key: str, certificate: str, command: Sequence[str] = ()) -> None:
    """Create a key with its certificate where dkms looks for them; one that is there is used by dkms and not made anew. C(command): the
    distribution's own program for it; without one it is made as dkms does.
    """
    if command and os.path.exists(certificate):
        # Half a pair: Ubuntu's program makes nothing while there is a certificate, so dkms removes it first too.
        os.remove(certificate)
    called = list(command) or [*_SELF_SIGNED, "-subj", _SUBJECT, "-keyout", key, "-out", certificate]
    # Ubuntu's program rebuilds all modules unless it is told not to.
    result = run(called, timeout=120, environment={"SHIM_NOTRIGGER": "y"}, allowed=(0,))
    missing = [path for path in (key, certificate) if not os.path.isfile(path)]
    if missing:
        raise CommandError(called, f"it reported success, but {' and '.join(missing)} did not appear", result.stderr)
