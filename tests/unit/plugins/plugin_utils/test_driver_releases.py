# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVIDIA's list of driver releases: the shape is that of releases.json beside its page of supported drivers, as public programs read it."""

from __future__ import annotations

import datetime
import io
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.gpufleet.nvidia.plugins.filter.driver_advisories import FilterModule
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver.floors import AS_OF
from ansible_collections.gpufleet.nvidia.plugins.module_utils._formats.documents import LONGEST_JSON
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Refused
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils import driver_advisories
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.driver_advisories import RELEASES, ages, read_releases
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.role_variables import collect
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils.stages import plan_stages
from ansible_collections.gpufleet.nvidia.tests.unit.host_documents import seen

read = FilterModule().filters()["driver_releases"]


def release(version, date):
    return {
        "release_version": version,
        "release_date": date,
        "release_notes": f"https://docs.nvidia.com/datacenter/tesla/tesla-release-notes-{version.replace('.', '-')}/index.html",
        "architectures": ["x86_64"],
        "runfile_url": {"x86_64": f"https://us.download.nvidia.com/tesla/{version}/NVIDIA-Linux-x86_64-{version}.run"},
    }


LIST = {
    "580": {
        "type": "lts branch",
        "driver_info": [release("580.178.04", "2026-08-03"), release("580.65.06", "2025-08-04")],
    },
    "595": {"type": "production branch", "driver_info": [release("595.91.07", "2027-02-01")]},
    "625": {"type": "New Feature Branch", "driver_info": [release("625.10.01", "")]},
    "460": {"type": "long-term support branch", "driver_info": []},
    "465": {"type": "beta", "driver_info": []},
}


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "releases.json"
    file.write_text(json.dumps(LIST))
    return str(file)


def test_the_branches_with_their_kind_and_newest_date(path):
    assert [(row["branch"], row["kind"], row["date"]) for row in read(path)] == [
        (460, "long-term support", ""),
        (465, "beta", ""),
        (580, "long-term support", "2026-08-03"),
        (595, "production", "2027-02-01"),
        (625, "new-feature", ""),
    ]
    assert {row["source"] for row in read(path)} == {path}
    assert read("") == []


@pytest.fixture
def server(monkeypatch, tmp_path):
    """What the server answers, and which addresses it was asked."""

    class Server:
        answer: bytes | Exception = json.dumps(LIST).encode()

        def __init__(self):
            self.asked = []

        def open_url(self, address, timeout):
            self.asked.append((address, timeout))
            if isinstance(self.answer, Exception):
                raise self.answer
            return io.BytesIO(self.answer)

    one = Server()
    monkeypatch.setattr(driver_advisories, "open_url", one.open_url)
    monkeypatch.setattr(driver_advisories.C, "DEFAULT_LOCAL_TMP", str(tmp_path))
    return one


ADDRESS = "https://mirror.example.com/releases.json"


def test_an_address_is_asked_once_in_a_run(server, path):
    assert [{**row, "source": path} for row in read(ADDRESS)] == read(path)
    assert {row["source"] for row in read(ADDRESS)} == {ADDRESS}
    assert server.asked == [(ADDRESS, 30)]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (OSError("timed out"), f"{ADDRESS} cannot be read: timed out"),
        (b"<html>Sign in</html>", f"{ADDRESS} cannot be read: Expecting value: line 1 column 1 (char 0)"),
        (b" " * (LONGEST_JSON + 9), f"{ADDRESS} cannot be read: it has {LONGEST_JSON + 1} characters, and may have at"),
        (b'{"error": "not found"}', f"{ADDRESS}: ['error']: is not a driver branch such as 580"),
    ],
    ids=["no answer", "a page", "too large", "another list"],
)
def test_what_is_wrong_with_an_address_is_said_by_its_name_and_asked_once_for_a_fleet(server, answer, reason):
    server.answer = answer
    for _host in range(500):
        with pytest.raises(Refused) as refusal:
            read_releases(ADDRESS)
    assert refusal.value.thing == RELEASES and refusal.value.reason.startswith(reason)
    assert "Give the address of NVIDIA's releases.json, or the path of a copy" in refusal.value.remedy
    ages([{RELEASES: ADDRESS}])
    assert server.asked == [(ADDRESS, 30)]


def test_hosts_that_begin_at_once_ask_once_together(server):
    """Each host of a task is a process of its own. Threads stand for them: the lock is of what opened the file, not of the process."""
    open_url, together = driver_advisories.open_url, threading.Barrier(4)

    def slow(address, timeout):
        time.sleep(0.2)
        return open_url(address, timeout)

    def host(_number):
        together.wait(20)
        return read_releases(ADDRESS)

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(4) as hosts:
        patch.setattr(driver_advisories, "open_url", slow)
        assert all(hosts.map(host, range(4)))
    assert server.asked == [(ADDRESS, 30)]


@pytest.mark.parametrize("answer", [json.dumps(LIST).encode(), OSError("refused"), b"<html>"])
def test_credentials_in_an_address_are_used_and_not_shown(server, answer, tmp_path):
    server.answer, address = answer, "https://user:secret@mirror.example.com:8443/releases.json?token=hidden"
    try:
        shown = str(read(address))
    except AnsibleFilterError as error:
        shown = str(error)
    assert "https://mirror.example.com:8443/releases.json" in shown
    assert server.asked == [(address, 30)]
    kept = "".join(file.read_text() for file in tmp_path.iterdir())
    assert not any(secret in text for secret in ("user", "secret", "hidden") for text in (shown, kept))


@pytest.mark.parametrize(
    "address",
    [
        "https://user:se/cret@mirror.example.com/releases.json",
        "https://user:se cret@mirror.example.com/releases.json",
        "https://user:se\ncret@mirror.example.com/releases.json",
        "https://user:secret@/releases.json",
        "https://[secret/releases.json",
        "ftp://user:secret@mirror.example.com/releases.json",
    ],
)
def test_what_is_no_address_is_refused_and_neither_asked_nor_shown(server, address):
    with pytest.raises(Refused, match="it is not a valid address") as refusal:
        read_releases(address)
    assert not server.asked and "cret" not in refusal.value.message and "Give https://" in refusal.value.remedy


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("{", "cannot be read"),
        ([], "must have one entry per driver branch"),
        ({}, "must have one entry per driver branch"),
        ({"stable": {}}, r"\['stable'\]: is not a driver branch"),
        ({"580": []}, r"\['580'\]: every branch must be a mapping"),
        ({"580": {"type": "lts branch"}}, r"\['580'\]: it lacks type or driver_info"),
        ({"580": {"type": 5, "driver_info": []}}, r"\['580'\]\.type: 5 must be text"),
        ({"580": {"type": "lts branch", "driver_info": {}}}, r"\['580'\]\.driver_info: .* must be a list"),
        ({"580": {"type": "lts branch", "driver_info": [5]}}, r"\['580'\]\.driver_info\[0\]: every release"),
        (
            {"580": {"type": "lts branch", "driver_info": [release("1", "2026-01-01"), release("2", "August")]}},
            r"\['580'\]\.driver_info\[1\]\.release_date: 'August'",
        ),
        # A day that does not exist, and one in a spelling that later versions of Python read and that does not sort.
        *(
            (
                {"580": {"type": "lts branch", "driver_info": [release("1", day)]}},
                rf"\['580'\]\.driver_info\[0\]\.release_date: '{day}' is not a day",
            )
            for day in ("2026-13-45", "2027-02-29", "20260101", "2026-W01-1")
        ),
    ],
)
def test_what_is_no_list_of_releases_is_refused_by_its_path(tmp_path, document, reason):
    file = tmp_path / "releases.json"
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    with pytest.raises(Refused, match=reason) as refusal:
        read_releases(str(file))
    assert refusal.value.thing == RELEASES and str(file) in refusal.value.reason
    with pytest.raises(AnsibleFilterError, match=reason):
        read(str(file))


def test_what_names_no_file():
    with pytest.raises(AnsibleFilterError, match="driver_releases takes a path or an address, not list"):
        read(["x"])
    with pytest.raises(Refused, match="/nowhere cannot be read"):
        read_releases("/nowhere")


def test_the_plan_knows_the_branches_of_the_file(path):
    bare_facts = {
        "host": {
            "kernel": "6.1.0-50-amd64",
            "architecture": "x86_64",
            "distribution": {"id": "debian", "version": "12"},
        },
        "pci": [{"address": "0", "device_id": "0x2330", "kind": "gpu", "architecture": "hopper"}],
    }

    def warned(**variables):
        plan = plan_stages(seen(bare_facts), collect({"nvidia_driver_branch": "625", **variables}, lambda value: value))
        return [text for text in plan["driver"].warnings if "new-feature" in text]

    assert warned() == [] and warned(nvidia_driver_releases=path)
    missing = plan_stages(seen(bare_facts), {RELEASES: "/nowhere"})
    assert list(missing) == ["driver"] and "/nowhere cannot be read" in missing["driver"].refusals[0].message


def judged(text):
    """Return what the sentence says of branches and of bulletins."""
    return (
        text.removeprefix("Judged by NVIDIA's driver branches as of ")
        .removesuffix(".")
        .split(" and security bulletins as of ")
    )


def made(file, day):
    """Let a file be of a day."""
    at = datetime.datetime.fromisoformat(f"{day}T12:00:00").timestamp()
    os.utime(file, (at, at))


def dated(folder, entry, day):
    """Write a list with one release and let the file be of a day."""
    file = folder / f"releases-{entry}-{day}.json"
    file.write_text(json.dumps({"580": {"type": "lts branch", "driver_info": [release("580.1.1", entry)]}}))
    made(file, day)
    return {RELEASES: str(file)}


def test_without_files_the_age_is_that_of_the_tables(tmp_path):
    text, stale = ages([{}], today=AS_OF)
    assert text == f"Judged by NVIDIA's driver branches as of {AS_OF} and security bulletins as of {AS_OF}."
    assert not stale and ages([], today=AS_OF)[0] == text
    # A file that cannot be read is refused by the plan of its host.
    assert ages([{RELEASES: "/nowhere", "nvidia_driver_advisories": "/nowhere"}], today=AS_OF)[0] == text
    assert ages([{"nvidia_driver_advisories": str(tmp_path)}], today=AS_OF)[0] == text


@pytest.mark.parametrize(
    ("entry", "copied", "today", "said"),
    [
        # NVIDIA published nothing for 115 days, and the copy is of today.
        ("2027-02-01", "2027-05-27", "2027-05-27", "2027-05-27, newest entry of 2027-02-01"),
        ("2027-02-01", "2027-02-02", "2027-05-27", "2027-02-02, newest entry of 2027-02-01"),
        # Programs that pack files set their modification to the epoch.
        ("2027-02-01", "1980-01-01", "2027-02-03", "2027-02-01, newest entry of 2027-02-01"),
        # A copy from before the tables adds nothing newer than them.
        ("2026-08-03", "2026-10-01", "2027-02-01", AS_OF),
        # What comes later than today, a date or the modification, says nothing.
        ("2099-01-01", "2027-02-01", "2027-02-03", AS_OF),
        ("2027-02-01", "2099-01-01", "2027-02-03", "2027-02-01, newest entry of 2027-02-01"),
        ("", "2027-02-01", "2027-02-03", AS_OF),
        # An old copy that was checked out anew, or a mirror that nobody renews.
        ("2027-02-01", "2027-07-30", "2027-07-30", "2027-07-30, newest entry of 2027-02-01"),
        ("2027-02-01", "2027-07-31", "2027-07-31", "2027-02-01, newest entry of 2027-02-01"),
    ],
)
def test_the_age_is_that_of_the_copy_unless_its_entries_contradict_it(tmp_path, entry, copied, today, said):
    assert judged(ages([dated(tmp_path, entry, copied)], today=today)[0]) == [said, AS_OF]


def test_of_several_files_the_oldest_counts(tmp_path):
    old, new = dated(tmp_path, "2027-02-01", "2027-02-02"), dated(tmp_path, "2027-02-01", "2027-03-02")
    assert judged(ages([new, old], today="2027-03-03")[0])[0] == "2027-02-02, newest entry of 2027-02-01"
    assert judged(ages([new, {}], today="2027-03-03")[0])[0] == AS_OF


def test_an_address_is_as_old_as_the_answer(server, tmp_path):
    read(ADDRESS)
    (kept,) = tmp_path.glob("releases-*.json")
    assert datetime.date.fromtimestamp(kept.stat().st_mtime) >= datetime.date.today() - datetime.timedelta(days=1)
    made(kept, "2027-05-27")
    text, stale = ages([{RELEASES: ADDRESS}], today="2027-05-27")
    assert judged(text)[0] == "2027-05-27, newest entry of 2027-02-01"
    assert ["security bulletins" in warning for warning in stale] == [True] and len(server.asked) == 1


def test_a_folder_of_advisories_is_as_old_as_its_newest_file(monkeypatch, tmp_path):
    row = {"date": "2027-01-20"}
    monkeypatch.setattr(driver_advisories, "rows_of", lambda _document, _source: [row])
    (tmp_path / "5990").mkdir()
    for name, day in (("a.json", "2027-01-21"), ("5990/b.json", "2027-04-20"), ("notes.txt", "2027-04-22")):
        (tmp_path / name).write_text("{}")
        made(tmp_path / name, day)
    text, stale = ages([{"nvidia_driver_advisories": str(tmp_path)}], today="2027-04-23")
    assert judged(text) == [AS_OF, "2027-04-20, newest entry of 2027-01-20"]
    assert ["driver branches" in warning for warning in stale] == [True]


def test_from_ninety_days_on_a_warning_names_what_is_old_and_the_remedy(tmp_path):
    assert ages([{}], today="2027-02-23")[1] == []
    both = ages([{}], today="2027-02-24")[1]
    assert [text.partition(" that")[0] for text in both] == [
        "warning: NVIDIA's driver branches",
        "warning: NVIDIA's security bulletins",
    ]
    assert "are 90 days old (of 2026-11-26)" in both[0] and "releases.json with nvidia_driver_releases" in both[0]
    copy = dated(tmp_path, "2027-02-01", "2027-02-24")
    (bulletins,) = ages([copy], today="2027-05-24")[1]
    assert "advisories with nvidia_driver_advisories" in bulletins
    assert "are 90 days old (of 2027-02-24, newest entry of 2027-02-01)" in ages([copy], today="2027-05-25")[1][0]
