# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import stat
import subprocess

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters import module_signing
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.command import CommandError, Result

#: As Debian's package ships it, with what a site adds.
FRAMEWORK = """
# mok_signing_key can also be a "pkcs11:..." string for PKCS#11 engine, as
# long as the sign_file program supports it.
# mok_signing_key=/var/lib/dkms/mok.key
# mok_certificate=/var/lib/dkms/mok.pub
mok_signing_key="/srv/keys/$kernelver.key"
mok_certificate=/srv/keys/${kernelver}.der  # ours
"""


@pytest.mark.parametrize(
    ("answer", "enrolled"),
    [
        ((1, "/x is already enrolled\n", ""), True),
        ((0, "/x is not enrolled\n", ""), False),
        (CommandError(["mokutil"], "the program is not installed"), None),
    ],
)
def test_mokutils_words_count_and_not_its_exit_status(monkeypatch, answer, enrolled):
    def run(command, **_options):
        assert command == ["mokutil", "--test-key", "/x"]
        if isinstance(answer, Exception):
            raise answer
        return Result(tuple(command), *answer)

    monkeypatch.setattr(module_signing, "run", run)
    assert module_signing.enrolled("/x") is enrolled


def test_the_configuration_of_dkms_names_other_files(monkeypatch, tmp_path):
    (tmp_path / "framework.conf").write_text(FRAMEWORK)
    (tmp_path / "framework.conf.d").mkdir()
    (tmp_path / "framework.conf.d/later.conf").write_text("mok_certificate='/srv/later.der'\n")
    patterns = (f"{tmp_path}/framework.conf", f"{tmp_path}/framework.conf.d/*.conf", f"{tmp_path}/nothing")
    monkeypatch.setattr(module_signing, "_CONFIGURATIONS", patterns[:1])
    ours = {"mok_signing_key": "/srv/keys/6.1.0.key", "mok_certificate": "/srv/keys/6.1.0.der"}
    assert module_signing.configured("6.1.0") == ours
    monkeypatch.setattr(module_signing, "_CONFIGURATIONS", patterns)
    assert module_signing.configured("6.1.0") == {**ours, "mok_certificate": "/srv/later.der"}


def test_what_is_commented_out_or_empty_is_not_configured():
    assert module_signing.parse_framework(["# mok_certificate=/a\nmok_certificate=\nverbose=1\n"]) == {}


def test_a_key_is_made_that_openssl_reads_and_nobody_else(tmp_path):
    key, certificate = tmp_path / "mok.key", tmp_path / "mok.pub"
    module_signing.create(str(key), str(certificate))
    asked = [
        "openssl",
        "x509",
        "-inform",
        "DER",
        "-in",
        str(certificate),
        "-noout",
        "-subject",
        "-ext",
        "extendedKeyUsage",
    ]
    shown = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    assert "DKMS module signing key" in shown
    assert "Code Signing" in shown
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_a_certificate_without_its_key_does_not_keep_the_program_from_making_both(tmp_path):
    key, certificate, program = (tmp_path / name for name in ("MOK.priv", "MOK.der", "program"))
    certificate.write_text("of a key that is gone")
    # As update-secureboot-policy --new-key.
    program.write_text(
        f'#!/bin/sh\n[ "$SHIM_NOTRIGGER" = y ] || exit 1\n[ -e {certificate} ] || touch {key} {certificate}\n'
    )
    program.chmod(0o755)
    module_signing.create(str(key), str(certificate), [str(program)])
    assert (key.exists(), certificate.read_text()) == (True, "")


def test_a_program_that_makes_nothing_is_found_out(tmp_path):
    with pytest.raises(CommandError, match=r"reported success, but .*mok\.key and .*mok\.pub did not appear"):
        module_signing.create(f"{tmp_path}/mok.key", f"{tmp_path}/mok.pub", ["true"])
