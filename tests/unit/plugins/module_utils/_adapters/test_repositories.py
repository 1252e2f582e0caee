# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.repositories import (
    Repository,
    UrlRefused,
    base_urls_in,
    check_url,
    deb822,
    disabled_in,
    repo_file,
    sources_in,
    with_enabled,
)


def test_repositories_are_enabled_and_everything_else_stays():
    text = "# mine\n[crb]\nname=CRB\nenabled = 0\ngpgcheck=1\n\n[crb-source]\nenabled=0\n[extras]\nenabled=1\n"
    assert disabled_in(text) == ("crb", "crb-source")
    after = with_enabled(text, ["crb"])
    assert after == text.replace("enabled = 0", "enabled=1")
    assert disabled_in(after) == ("crb-source",)


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
