# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._packages import key_file
from ansible_collections.gpufleet.nvidia.tests.unit.plugins.module_utils._adapters.test_openpgp import (
    ARMOURED,
    FINGERPRINT,
)


def fault(path, fingerprint="", url="", identifier="nobodys"):
    return key_file.key_file_fault(str(path), identifier, fingerprint, url)


def test_what_is_wrong_with_a_key_file(tmp_path):
    file = tmp_path / "key.asc"
    assert fault(file) == f"{file} cannot be read: No such file or directory"
    file.write_bytes(ARMOURED)
    assert [fault(file, wanted) for wanted in ("", FINGERPRINT)] == [None, None]
    assert fault(file, "A" * 40).startswith(f"{file}: it holds {FINGERPRINT}, expected only AAAA")
    file.write_text("<html>404</html>")
    assert fault(file).startswith(f"{file}: ")


def test_a_path_is_taken_as_modules_take_it(tmp_path, monkeypatch):
    (tmp_path / "key.asc").write_bytes(ARMOURED)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert fault("~/key.asc", FINGERPRINT) is None


def test_a_key_file_is_not_read_where_the_host_has_the_key(monkeypatch):
    monkeypatch.setattr(key_file.os.path, "exists", {"/etc/apt/keyrings/ours.gpg"}.__contains__)
    assert fault("/nowhere", identifier="ours") is None
    assert fault("/nowhere", identifier="another")


@pytest.mark.parametrize(
    ("name", "text", "url"),
    [
        # What NVIDIA's package cuda-keyring brings.
        (
            "cuda-ubuntu2404-x86_64.list",
            "deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] https://mirror.example.com/ubuntu2404/x86_64/ /\n",
            "https://mirror.example.com/ubuntu2404/x86_64",
        ),
        ("cuda-rhel9.repo", "[cuda]\nbaseurl=https://mirror.example.com/rhel9\n", "https://mirror.example.com/rhel9/"),
        ("local.list", "deb file:/var/nvidia-driver-local-repo /\n", "file:///var/nvidia-driver-local-repo"),
    ],
)
def test_a_key_file_is_not_read_where_a_source_has_the_address(tmp_path, monkeypatch, name, text, url):
    monkeypatch.setattr(key_file, "_SOURCES", (str(tmp_path), "/nowhere"))
    assert "cannot be read" in fault("/nowhere/key", url=url)
    (tmp_path / "folder").mkdir()
    (tmp_path / name).write_text(text)
    assert fault("/nowhere/key", url=url) is None
    assert fault("/nowhere/key", url="https://another.example.com")
    assert fault("/nowhere/key")


def test_what_is_larger_than_any_key_is_not_read_to_its_end(tmp_path):
    file = tmp_path / "key.asc"
    file.touch()
    os.truncate(file, 1 << 40)
    assert fault(file) == f"{file} is larger than 1 MiB, so it is no key"


def test_a_reason_fits_into_the_facts(tmp_path):
    file = tmp_path / "key.gpg"
    packets = [b"\x04" + bytes(5) + bytes([number]) for number in range(120)]
    file.write_bytes(b"".join(b"\x98" + bytes([len(packet)]) + packet for packet in packets))
    said = fault(file, "A" * 40)
    assert "and 117 more, expected only AAAA" in said and len(said) < 512
    assert len(fault("/" + "long/" * 200)) == 512
