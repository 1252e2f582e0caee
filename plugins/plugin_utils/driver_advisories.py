# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What NVIDIA publishes about drivers, as a site gives it: security floors from its advisories (CSAF 2.0) in a folder on the controller, and whether a host
runs a driver below them; branches from its list of releases (C(releases.json)); and how old what hosts are judged by is.

NVIDIA publishes them in the repository NVIDIA/product-security, one folder per bulletin. A product is fixed by an id in C(product_status), and the
tree of products says what the id means: the vendor's branch, below it C(Linux(R580)) and C(Tesla) with the version.

The list of releases has one entry per branch: C(type), such as C(lts branch), and C(driver_info), a list with C(release_version) and C(release_date), which
is empty for some old releases. It has no ends of support. (docs.nvidia.com, "Supported drivers and CUDA toolkit versions", names the file; its shape as
several public programs read it [secondary].)
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, Callable
from urllib.parse import urlsplit

from ansible import constants as C
from ansible.module_utils.urls import open_url

from ..module_utils._adapters.files import exclusive, open_regular, read_bytes, write_whole
from ..module_utils._driver.floors import (
    AS_OF,
    LTS,
    NEW_FEATURE,
    PRODUCTION,
    Floor,
    not_judged,
    shortfall,
    with_advisories,
)
from ..module_utils._facts_view import Facts
from ..module_utils._formats.documents import LONGEST_JSON, read_json
from ..module_utils._formats.driver_versions import branch_of, driver_key, is_branch, is_driver_version
from ..module_utils._health.report import WARNING, Check
from ..module_utils._plan import Refused
from ..module_utils._schema import Unfit, items, text
from .fleet.text import shortened

ADVISORIES = "nvidia_driver_advisories"
_CATEGORY = "csaf_security_advisory"
#: The data-centre driver for Linux; GeForce, RTX and vGPU have rows of their own.
_SYSTEM, _PRODUCT = re.compile(r"Linux\s*\(R(\d{3})\)"), "Tesla"
#: How many of the vulnerabilities a message names.
_NAMED = 2

Row = dict[str, Any]


def read_folder(path: str) -> list[Row]:
    """Return the floors in the advisories below a folder, one row per bulletin and branch; none for an empty path.

    :returns: with C(branch), C(version), C(bulletin), C(date), C(source) and C(reason), as the option C(advisories) of M(gpufleet.nvidia.driver) takes them.
    :raises Refused: there is no such folder, or a file in it is not what it should be.
    """
    if not path:
        return []
    if not os.path.isdir(path):
        raise Refused(
            ADVISORIES, f"{path} is not a folder on the controller", "Give the folder with NVIDIA's CSAF files."
        )
    return rows_of_files(ADVISORIES, files_of_folder(path), rows_of)


def files_of_folder(path: str) -> list[str]:
    """Return the paths of the files below a folder that may be advisories."""
    return sorted(
        os.path.join(folder, name)
        for folder, _folders, names in os.walk(path)
        for name in names
        if name.endswith(".json")
    )


def rows_of_files(variable: str, files: Iterable[str], decode: Callable[[Any, str], list[Row]]) -> list[Row]:
    """Return the rows of files of JSON that NVIDIA publishes, each of which is read once and again when it was changed.

    :raises Refused: a file cannot be read, or C(decode) refuses it.
    """
    found = []
    for file in files:
        try:
            # A plan of a fleet asks once per host.
            found += [dict(row) for row in _read_file(file, os.stat(file).st_mtime_ns, decode)]
        except (OSError, ValueError) as error:
            raise Refused(variable, f"{file} cannot be read: {error}", "Replace or remove the file.") from error
    return found


@lru_cache(maxsize=512)
def _read_file(path: str, _changed: int, decode: Callable[[Any, str], list[Row]]) -> tuple[Row, ...]:
    with open_regular(path) as handle:
        return tuple(decode(read_json(handle.read(LONGEST_JSON + 1)), path))


def rows_of(document: Any, source: str) -> list[Row]:
    """Return the floors of one advisory; none of a file that is another kind of document, or about other products.

    :raises Refused: it is an advisory without a number or a date.
    """
    head = document.get("document") if isinstance(document, dict) else None
    if not isinstance(head, dict) or head.get("category") != _CATEGORY:
        return []
    products = dict(_products((document.get("product_tree") or {}).get("branches") or (), ""))
    fixed: dict[int, str] = {}
    worst: dict[int, list[tuple[float, str]]] = {}
    for vulnerability in document.get("vulnerabilities") or ():
        for product in (vulnerability.get("product_status") or {}).get("fixed") or ():
            branch, version = products.get(product, (0, ""))
            if not branch:
                continue
            fixed[branch] = max(fixed.get(branch, version), version, key=driver_key)
            worst.setdefault(branch, []).append((_score(vulnerability), str(vulnerability.get("cve") or "")))
    tracking = head.get("tracking") or {}
    bulletin, date = str(tracking.get("id") or ""), str(tracking.get("current_release_date") or "")[:10]
    if fixed and not (bulletin and is_day(date)):
        raise Refused(
            ADVISORIES, f"{source} has no tracking id or no day as current_release_date", "Fetch the file again."
        )
    return [
        {
            "branch": branch,
            "version": version,
            "bulletin": bulletin,
            "date": date,
            "source": source,
            "reason": _reason(worst[branch]),
        }
        for branch, version in sorted(fixed.items())
    ]


def is_day(date: str) -> bool:
    """Return whether a text is a day of the calendar, as C(YYYY-MM-DD)."""
    try:
        # Later versions of Python read other spellings, too, which do not sort by date.
        return str(datetime.date.fromisoformat(date)) == date
    except ValueError:
        return False


def _products(branches: Any, system: str) -> Iterator[tuple[str, tuple[int, str]]]:
    """Yield branch and version of the data-centre driver by product id."""
    for branch in branches:
        name, product = str(branch.get("name") or ""), branch.get("product") or {}
        version, match = str(product.get("name") or "").strip(), _SYSTEM.fullmatch(system.strip())
        if match and name.strip() == _PRODUCT and is_driver_version(version):
            yield str(product.get("product_id")), (int(match.group(1)), version)
        yield from _products(branch.get("branches") or (), name)


def _score(vulnerability: Mapping[str, Any]) -> float:
    scores = [score.get(kind) or {} for score in vulnerability.get("scores") or () for kind in ("cvss_v3", "cvss_v4")]
    return max((float(score.get("baseScore") or 0) for score in scores), default=0.0)


def _reason(found: list[tuple[float, str]]) -> str:
    several = sorted(found, key=lambda item: (-item[0], item[1]))
    return shortened([f"{cve} ({score})" for score, cve in several], _NAMED)


def driver_security(facts: Facts, variables: Mapping[str, Any]) -> tuple[Check, ...]:
    """Return a check with what is known against the running driver; none where nothing is, or no driver runs.

    It is a warning and no failure: a new bulletin changes no host, and the driver works as described.
    """
    version = facts.driver.loaded_version
    if not version or not is_driver_version(version):
        return ()
    try:
        floors = _floors(str(variables.get(ADVISORIES) or ""))
    except Refused as error:
        return (_warning(f"{error.thing}: {error.reason}", error.remedy),)
    below = shortfall(version, floors)
    if below is not None:
        reason, fixed = below
        if variables.get("nvidia_driver_allow_vulnerable"):
            return (_warning(f"{reason} (accepted with nvidia_driver_allow_vulnerable)", ""),)
        if variables.get("nvidia_driver_state") == "unmanaged":
            step = f"Let what installs the driver install {fixed} or newer (nvidia_driver_state is unmanaged)"
        else:
            step = f"Set nvidia_driver_version to {fixed} or newer and run gpufleet.nvidia.upgrade"
        return (_warning(reason, step),)
    unknown = not_judged(branch_of(version), floors)
    return (_warning(unknown, f"Give NVIDIA's newest advisories with {ADVISORIES}"),) if unknown else ()


def _warning(evidence: str, next_step: str) -> Check:
    return Check("driver_security", WARNING, evidence, next_step)


@cache
def _floors(folder: str) -> Mapping[int, Floor]:
    """Return the floors with the advisories of a folder, which is read once in a run and not once for each host."""
    return with_advisories(read_folder(folder))


RELEASES = "nvidia_driver_releases"
_KINDS = {"lts": LTS, "long term support": LTS, "production": PRODUCTION, "new feature": NEW_FEATURE}
_WORDS = text(60)
#: Seconds that a server may take.
_TIMEOUT = 30
#: Seconds for which a process waits for another one of the run that asks it.
_LONGEST_WAIT = 300
#: Days from which on a warning says how old they are; NVIDIA publishes drivers and bulletins about every three months.
STALE = 90


def read_releases(where: str) -> list[Row]:
    """Return the branches in NVIDIA's list of releases, a row each; none for an empty C(where), which is a path on the controller or an address.

    :returns: with C(branch), C(kind), C(date) (of its newest release) and C(source), as the option C(releases) of M(gpufleet.nvidia.driver) takes them.
    :raises Refused: it cannot be read, or is not what it should be.
    """
    if not where:
        return []
    return _asked_rows(where) if "://" in where else rows_of_files(RELEASES, [where], branches_of)


def _asked_rows(address: str) -> list[Row]:
    """Return the branches at an address. It is asked once in a run, and not by every process of it for every host, whether it answers or not."""
    found: list[Row] | str = read_json(_kept_answer(address, _without_secrets(address), _kept(address)))
    if isinstance(found, str):
        raise Refused(RELEASES, found, "Give the address of NVIDIA's releases.json, or the path of a copy of it.")
    return found


@cache
def _kept_answer(address: str, shown: str, place: str) -> bytes:
    """Return what is kept of the answer; C(place): where, of the one process of the run that asks."""
    with exclusive(_LONGEST_WAIT, f"{place}.lock"):
        kept = read_bytes(place, links=False)
        if kept is None:
            kept = json.dumps(_answer(address, shown)).encode()
            write_whole(place, kept)
    return kept


def _kept(address: str) -> str:
    """Return the file of this run with what an address answered: the branches, or why there are none."""
    return os.path.join(C.DEFAULT_LOCAL_TMP, f"releases-{hashlib.sha256(address.encode()).hexdigest()[:16]}.json")


def _answer(address: str, shown: str) -> list[Row] | str:
    try:
        with open_url(address, timeout=_TIMEOUT) as answer:
            return branches_of(read_json(answer.read(LONGEST_JSON + 1)), shown)
    except Refused as refusal:
        return refusal.reason
    except Exception as error:  # pylint: disable=broad-exception-caught  # of urllib, of ssl and of http.client, by what is wrong
        return f"{shown} cannot be read: {error}"


def _without_secrets(address: str) -> str:
    """Return an address as it may be shown: user, password and what follows a question mark stay out of messages and reports."""
    try:
        parts = urlsplit(address)
        # It raises where what stands before a slash in a password is taken for a port.
        known = parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known or not address.isprintable() or " " in address:
        raise Refused(RELEASES, "it is not a valid address", "Give https://host/path, or the path of a file.")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def branches_of(document: Any, source: str) -> list[Row]:
    """Return the branches of a list of releases. Raises Refused: the document is none; the message has the path in it."""
    try:
        if not isinstance(document, Mapping) or not document:
            raise Unfit("", "it must have one entry per driver branch")
        return [_row(str(branch), entry, source) for branch, entry in sorted(document.items())]
    except Unfit as error:
        raise Refused(RELEASES, f"{source}: {error}", "Fetch NVIDIA's releases.json again.") from error


def _row(branch: str, entry: Any, source: str) -> Row:
    path = f"[{branch[:20]!r}]"
    if not is_branch(branch):
        raise Unfit(path, "is not a driver branch such as 580")
    if not isinstance(entry, Mapping):
        raise Unfit(path, "every branch must be a mapping")
    kind = _WORDS(entry.get("type"), f"{path}.type")
    releases = items(lambda one, _path: one)(entry.get("driver_info"), f"{path}.driver_info")
    if not kind or releases is None:
        raise Unfit(path, "it lacks type or driver_info")
    dates = []
    for number, release in enumerate(releases):
        place = f"{path}.driver_info[{number}]"
        if not isinstance(release, Mapping):
            raise Unfit(place, "every release must be a mapping")
        date = _WORDS(release.get("release_date"), f"{place}.release_date") or ""
        if date and not is_day(date):
            raise Unfit(f"{place}.release_date", f"{date!r} is not a day, as YYYY-MM-DD")
        dates.append(date)
    name = kind.lower().removesuffix("branch").replace("-", " ").strip()
    return {"branch": int(branch), "kind": _KINDS.get(name, name), "date": max(dates, default=""), "source": source}


def ages(descriptions: Iterable[Mapping[str, Any]], today: str = "") -> tuple[str, list[str]]:
    """Return how old is what hosts are judged by, a sentence, and warnings about what is as old as L(STALE) or older.

    The tables of the collection are as old as their last comparison, a file as its modification, and an address was read just now: NVIDIA publishes too
    rarely for the newest entry to say whether a copy is of today.

    :param descriptions: the variables of hosts; of several that give different files the oldest counts.
    :param today: as C(YYYY-MM-DD); empty for the present day.
    """
    now = today or str(datetime.date.today())
    given = {tuple(str(variables.get(name) or "") for name in (RELEASES, ADVISORIES)) for variables in descriptions}
    kinds = (
        ("driver branches", RELEASES, "releases.json", read_releases, _files_of_releases),
        ("security bulletins", ADVISORIES, "advisories", read_folder, files_of_folder),
    )
    sentences, warnings = [], []
    for number, (what, variable, name, read, files) in enumerate(kinds):
        date, entry = min(_as_of(one[number], read, files, now) for one in given or {("", "")})
        newest = f", newest entry of {entry}" if entry else ""
        sentences.append(f"{what} as of {date}{newest}")
        days = _days(date, now)
        if days >= STALE:
            warnings.append(
                f"warning: NVIDIA's {what} that the hosts are judged by are {days} days old (of {date}{newest}): give its present {name} with {variable}, or "
                "install a newer release of the collection"
            )
    return f"Judged by NVIDIA's {' and '.join(sentences)}.", warnings


def _as_of(
    where: str, read: Callable[[str], list[Row]], files: Callable[[str], list[str]], now: str
) -> tuple[str, str]:
    """Return the day that a copy is of, and that of its newest entry; of none, or one that is older than the tables, the day of these alone."""
    try:
        rows = read(where)
        changed = [str(datetime.date.fromtimestamp(os.stat(file).st_mtime)) for file in files(where)]
    except (Refused, OSError):
        # The plan of each host that gives it says so.
        return AS_OF, ""
    # What is of a later day says nothing about how old the rest is.
    entry = max((row["date"] for row in rows if row["date"] <= now), default="")
    copied = max((day for day in changed if day <= now), default="")
    # A mirror that nobody renews, or a new checkout of an old copy: something was published since.
    if not entry or entry > copied or _days(entry, now) >= 2 * STALE:
        copied = entry
    return (copied, entry) if copied > AS_OF else (AS_OF, "")


def _days(date: str, now: str) -> int:
    return (datetime.date.fromisoformat(now) - datetime.date.fromisoformat(date)).days


def _files_of_releases(where: str) -> list[str]:
    return [_kept(where) if "://" in where else where] if where else []
