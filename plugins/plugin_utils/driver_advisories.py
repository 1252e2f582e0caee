# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Security floors of the driver from NVIDIA's own advisories (CSAF 2.0) in a folder on the controller, and whether a host runs a driver below them.

NVIDIA publishes them in the repository NVIDIA/product-security, one folder per bulletin. A product is fixed by an id in C(product_status), and the
tree of products says what the id means: the vendor's branch, below it C(Linux(R580)) and C(Tesla) with the version.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, Callable

from ..module_utils._adapters.files import open_regular
from ..module_utils._driver.floors import Floor, not_judged, shortfall, with_advisories
from ..module_utils._formats.documents import LONGEST_JSON, read_json
from ..module_utils._formats.driver_versions import branch_of, driver_key, is_driver_version
from ..module_utils._plan import Refused
from .fleet.text import shortened

VARIABLE = "nvidia_driver_advisories"
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
            VARIABLE, f"{path} is not a folder on the controller", "Give the folder with NVIDIA's CSAF files."
        )
    return rows_of_files(VARIABLE, files_of_folder(path), rows_of)


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

    :param variable: that names the files.
    :param decode: returns the rows of a document that was read from a path.
    :raises Refused: a file cannot be read, or C(decode) refuses it.
    """
    # A plan of a fleet asks once per host.
    found = []
    for file in files:
        try:
            changed = os.stat(file).st_mtime_ns
        except OSError as error:
            raise _unreadable(variable, file, error) from error
        found += [dict(row) for row in _read_file(variable, file, changed, decode)]
    return found


@lru_cache(maxsize=512)
def _read_file(variable: str, path: str, _changed: int, decode: Callable[[Any, str], list[Row]]) -> tuple[Row, ...]:
    try:
        with open_regular(path) as handle:
            document = read_json(handle.read(LONGEST_JSON + 1))
    except (OSError, ValueError) as error:
        raise _unreadable(variable, path, error) from error
    return tuple(decode(document, path))


def _unreadable(variable: str, path: str, error: Exception) -> Refused:
    return Refused(variable, f"{path} cannot be read: {error}", "Replace or remove the file.")


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
            VARIABLE, f"{source} has no tracking id or no day as current_release_date", "Fetch the file again."
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


def driver_security(facts: Mapping[str, Any], variables: Mapping[str, Any]) -> tuple[dict[str, str], ...]:
    """Return a check with what is known against the running driver; none where nothing is, or no driver runs.

    It is a warning and no failure: a new bulletin changes no host, and the driver works as described.
    """
    version = (facts.get("driver") or {}).get("loaded_version")
    if not version or not is_driver_version(str(version)):
        return ()
    try:
        floors = _floors(str(variables.get(VARIABLE) or ""))
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
    return (_warning(unknown, f"Give NVIDIA's newest advisories with {VARIABLE}"),) if unknown else ()


def _warning(evidence: str, next_step: str) -> dict[str, str]:
    return {"name": "driver_security", "status": "warning", "evidence": evidence, "next_step": next_step}


@cache
def _floors(folder: str) -> Mapping[int, Floor]:
    """Return the floors with the advisories of a folder, which is read once in a run and not once for each host."""
    return with_advisories(read_folder(folder))
