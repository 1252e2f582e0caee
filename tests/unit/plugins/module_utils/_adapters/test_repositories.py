# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Credentials of a mirror: what is refused before anything is touched, where they are sent, and what is never printed."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.packages_apt import Apt
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.packages_dnf import Dnf
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.packages_zypper import Zypper
from ansible_collections.gpufleet.nvidia.plugins.module_utils._adapters.repositories import (
    Credentials,
    Repository,
    apt_auth,
    base_urls_in,
    check_url,
    checked_credentials,
    deb822,
    disabled_in,
    for_server_of,
    repo_file,
    sources_in,
    with_enabled,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.desired import from_variables as driver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure, Refused
from ansible_collections.gpufleet.nvidia.plugins.module_utils._toolkit.desired import from_variables as toolkit
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.role_variables import collect


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
    with pytest.raises(Failure, match="not fetched without TLS"):
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
    repository = Repository("x", "https://mirror.invalid/r", b"")
    text = deb822(repository, "/etc/apt/keyrings/x.gpg")
    assert "Suites: /\nSigned-By: /etc/apt/keyrings/x.gpg\n" in text
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


URL = "https://mirror.example.com/nvidia"
#: Words that are in no message of ours.
PASSWORD = "zebra-Crossing9"
SECRET = Credentials("hosts", PASSWORD)
KEY = {"nvidia_driver_repository_key_fingerprint": "0" * 40, "nvidia_driver_repository_key_file": "/k"}


def variables(**given):
    return collect(given, lambda value: value)


ADDRESSES = [
    f"https://user:{PASSWORD}@mirror.example.com/x",
    f"https://{PASSWORD}@mirror.example.com/x",
    f"http://user:{PASSWORD}@127.0.0.1/x",
    # What follows a slash in a password would be taken for the path, and what stands before it for the port.
    f"https://user:{PASSWORD}/x@mirror.example.com/x",
    f"https://[{PASSWORD}@x",
]


@pytest.mark.parametrize("url", ADDRESSES)
@pytest.mark.parametrize(
    ("plan", "variable", "remedy"),
    [
        (driver, "nvidia_driver_repository_url", "nvidia_driver_repository_username"),
        (driver, "nvidia_driver_repository_key_url", "nvidia_driver_repository_username"),
        (toolkit, "nvidia_toolkit_repository_url", "nvidia_toolkit_repository_username"),
        (toolkit, "nvidia_toolkit_repository_key_url", "nvidia_toolkit_repository_username"),
    ],
)
def test_an_address_with_a_password_is_refused_and_not_printed(url, plan, variable, remedy):
    with pytest.raises(Refused) as refused:
        plan(variables(**{variable: url}))
    assert refused.value.thing == variable
    assert f"{remedy} with {remedy[: -len('username')]}password" in refused.value.message
    assert PASSWORD not in str(refused.value.as_dict())
    with pytest.raises(Refused) as refused:
        check_url(url, variable)
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "thing"),
    [
        ({"repository_password": PASSWORD}, "repository_username"),
        ({"repository_username": "hosts"}, "repository_password"),
        (
            {"repository_username": "hosts", "repository_password": PASSWORD, "repository_url": ""},
            "repository_password",
        ),
        (
            {"repository_username": "hosts", "repository_password": PASSWORD, "repository_url": "file:///srv/x"},
            "repository_password",
        ),
        (
            {"repository_username": "hosts", "repository_password": PASSWORD, "manage_repository": False},
            "repository_password",
        ),
        ({"repository_username": "a:b", "repository_password": PASSWORD}, "repository_username"),
        *(
            ({"repository_username": "hosts", "repository_password": f"{PASSWORD}{sign}"}, "repository_password")
            for sign in (" x", "\n", "'", '"', "$releasever", "\\", "#", "\u00e4", "x" * 1024)
        ),
    ],
)
@pytest.mark.parametrize("role", ["nvidia_driver", "nvidia_toolkit"])
def test_credentials_that_cannot_be_used_are_refused(role, given, thing):
    given = {f"{role}_{name}": value for name, value in {"repository_url": URL, **given}.items()}
    with pytest.raises(Refused) as refused:
        (driver if role == "nvidia_driver" else toolkit)(variables(**KEY, **given))
    assert refused.value.thing == f"{role}_{thing}"
    assert PASSWORD not in str(refused.value.as_dict())


def test_they_reach_the_desired_state_and_are_not_shown_there():
    names = {"repository_url": URL, "repository_username": "hosts", "repository_password": PASSWORD}
    wanted = driver(variables(**KEY, **{f"nvidia_driver_{name}": value for name, value in names.items()}))
    assert wanted.repository.credentials == SECRET
    other = toolkit(variables(**{f"nvidia_toolkit_{name}": value for name, value in names.items()}))
    assert other.repository.credentials == SECRET
    assert PASSWORD not in repr((wanted, other, Repository("x", URL, b"", credentials=SECRET)))
    assert driver(variables()).repository.credentials is None


@pytest.mark.parametrize("value", [[PASSWORD, 1], {"x": PASSWORD}])
def test_a_password_of_the_wrong_type_is_not_printed(value):
    """Ansible makes a text of it, with blanks and quotation marks."""
    given = {
        f"nvidia_driver_repository_{name}": found
        for name, found in {"url": URL, "username": "u", "password": value}.items()
    }
    with pytest.raises(Refused) as refused:
        driver(variables(**KEY, **given))
    assert refused.value.thing == "nvidia_driver_repository_password"
    assert PASSWORD not in refused.value.message


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        (f"{URL}/key.asc", True),
        ("https://mirror.example.com/elsewhere", True),
        ("https://mirror.example.com:8443/key.asc", False),
        ("http://mirror.example.com/key.asc", False),
        ("https://other.example.com/key.asc", False),
    ],
)
def test_they_are_sent_to_no_other_server(url, sent):
    assert for_server_of(url, URL, SECRET) == (SECRET if sent else None)


def test_apt_is_told_the_scheme_and_the_whole_path():
    """A path matches all that begins with it: without its slash that of x would open x-private too."""
    assert f"machine {URL}/ login hosts password {PASSWORD}\n" in apt_auth(URL, SECRET)


def test_nothing_is_asked_for_where_nothing_is_given():
    assert checked_credentials("p_", URL, "", "", False) is None


@pytest.mark.parametrize("made", [Apt, Dnf, Zypper])
def test_what_is_on_the_host_is_compared_with_what_is_wanted(made, tmp_path):
    class Ran:
        rc, stdout, stderr = 0, "", ""

    manager = made(root=str(tmp_path), runner=lambda *_command, **_rest: Ran())
    assert manager.has_credentials("x", URL, None)
    assert not manager.has_credentials("x", URL, SECRET)
    assert manager.add_repository(Repository("x", URL, b"k", credentials=SECRET))
    assert manager.has_credentials("x", URL, SECRET)
    assert not manager.has_credentials("x", URL, None)
    assert not manager.has_credentials("x", URL, Credentials("hosts", "other"))
    assert manager.repositories() == (URL,)
    (path,) = [path for path in tmp_path.rglob("*") if path.is_file() and PASSWORD in path.read_text()]
    assert path.stat().st_mode & 0o7777 == 0o600
    # A file that others can read is not what is wanted.
    path.chmod(0o644)
    assert not manager.has_credentials("x", URL, SECRET)
    assert manager.add_repository(Repository("x", URL, b"k", credentials=SECRET))
    assert path.stat().st_mode & 0o7777 == 0o600
    assert not manager.add_repository(Repository("x", URL, b"k", credentials=SECRET))
    # Where the mirror no longer asks, nothing of it stays.
    assert manager.add_repository(Repository("x", URL, b"k"))
    assert manager.has_credentials("x", URL, None)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and PASSWORD in path.read_text()]
    assert manager.add_repository(Repository("x", URL, b"k", credentials=SECRET))
    assert manager.remove_repository("x")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_enabling_another_repository_leaves_a_file_to_root(tmp_path):
    dnf = Dnf(root=str(tmp_path))
    path = tmp_path / "etc/yum.repos.d/site.repo"
    path.parent.mkdir(parents=True)
    path.write_text(f"[crb]\nenabled=0\npassword={PASSWORD}\n")
    path.chmod(0o600)
    dnf.enable_repositories(["crb"])
    assert "enabled=1" in path.read_text()
    assert path.stat().st_mode & 0o7777 == 0o600
