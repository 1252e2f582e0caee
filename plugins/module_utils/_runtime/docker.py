# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Docker's C(daemon.json), as a pure function of its text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._formats.json_edit import JsonError, load, remove_member, set_member
from .._formats.toml_read import dig
from .desired import NAME, DesiredRuntime, Effective, FileChange, Files

MAIN = "/etc/docker/daemon.json"
#: Docker learned CDI in version 25 (experimental; as a feature flag) and enables it by itself from 28.3 on.
CDI_SINCE, CDI_BY_DEFAULT_SINCE = (25,), (28, 3)


def edit(version: tuple[int, ...], text: str | None, desired: DesiredRuntime, main: str = MAIN) -> Files:
    """Return what C(daemon.json) becomes.

    :param version: of Docker, such as C((20, 10, 24)).
    :param text: of the file; None when it is not there.
    :raises JsonError: it is not JSON, or holds something else where an object has to be.
    """
    warnings: list[str] = []
    present = text or ""
    data = read(present)
    if desired.present:
        runtime = dig(data, ("runtimes", NAME), {})
        if not isinstance(runtime, dict) or runtime.get("path") != desired.binary:
            # runtimeArgs and options of the user stay.
            kept = {key: value for key, value in runtime.items() if key != "path"} if isinstance(runtime, dict) else {}
            if "runtimeArgs" not in kept:
                kept.pop("args", None)
            present = set_member(present, ("runtimes", NAME), {"path": desired.binary, **(kept or {"runtimeArgs": []})})
        if desired.default:
            present = set_member(present, ("default-runtime",), NAME)
        if desired.enable_cdi:
            cdi = dig(data, ("features", "cdi"))
            if version < CDI_SINCE:
                shown = ".".join(map(str, version)) or "of unknown version"
                warnings.append(f"Docker {shown} has no CDI; it came with 25")
            elif cdi is False or (cdi is None and version < CDI_BY_DEFAULT_SINCE):
                present = set_member(present, ("features", "cdi"), True)
    else:
        present = remove_member(present, ("runtimes", NAME))
    if (not desired.present or not desired.default) and data.get("default-runtime") == NAME:
        present = remove_member(present, ("default-runtime",))
    after = None if text is None and not present else present
    return Files((FileChange(main, text, after),), tuple(warnings))


def read(text: str) -> dict[str, Any]:
    """Return the data of C(daemon.json). Raises JsonError: it is not JSON, or holds something else where an object has to be."""
    data = load(text)
    for name in ("runtimes", "features"):
        # dockerd takes null for nothing, as Go's decoder does.
        if data.get(name, {}) is None:
            del data[name]
        elif not isinstance(data.get(name, {}), dict):
            raise JsonError(f"{name} is not an object")
    return data


def effective(text: str | None, version: tuple[int, ...] = ()) -> Effective:
    """Return what C(daemon.json) puts in force. Raises JsonError: it is not JSON."""
    data = load(text or "")
    runtimes = data.get("runtimes") or {}
    cdi = dig(data, ("features", "cdi"))
    if not isinstance(cdi, bool):
        cdi = None if version < CDI_SINCE else version >= CDI_BY_DEFAULT_SINCE
    return Effective(
        binary=dig(runtimes, (NAME, "path")),
        default_runtime=data.get("default-runtime", "runc"),
        cdi=cdi,
        runtimes=tuple(sorted({"runc", *runtimes})),
    )


def effective_of_daemon(info: Mapping[str, Any]) -> Effective:
    """Return what a running dockerd has in force, from C(docker info --format '{{json .}}')."""
    runtimes = info.get("Runtimes") or {}
    return Effective(
        binary=dig(runtimes, (NAME, "path")),
        default_runtime=info.get("DefaultRuntime"),
        cdi=True if info.get("CDISpecDirs") else None,
        runtimes=tuple(sorted(runtimes)),
    )


def reloadable(before: str | None, after: str | None) -> bool:
    """Return whether dockerd takes the change over on SIGHUP: runtimes and the default runtime, but not features."""
    old, new = load(before or ""), load(after or "")
    changed = {name for name in {*old, *new} if old.get(name) != new.get(name)}
    return changed <= {"runtimes", "default-runtime"}
