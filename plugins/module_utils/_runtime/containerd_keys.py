# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read containerd's files as containerd does: which are merged how, and which of several spellings of a key counts.

Names of plugins and runtimes are keys of maps and have to be exact. All other keys are fields of structures, for which containerd accepts several
spellings: Kubespray before 2.29 writes C(systemdCgroup) and C(binaryName). Checked against the real programs by tests/lab/test_runtime_keys_lab.py.

* 1.x, go-toml 1.9 (marshal.go, valueFromTree): the exact name, else all in lower case, else all in upper case, else with a lower-case first letter.
  Other spellings are ignored. An imported file replaces a plugin's section as a whole (services/server/config/config.go, mergeConfig).
* 2.x, go-toml 2 (unmarshaler.go, structFieldPath): any case, and the last one counts. A plugin's section and the options of a runtime are first kept
  as maps, imported files merged into them key by key, and then written out with sorted keys and read again (config.go, Decode;
  internal/cri/config/config.go, GenerateRuntimeOptions; go-toml, sortEntriesByKey): of C(BinaryName) and C(binaryName) the latter counts, wherever it
  stands. Only at the top of a file it is the order in the file.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from typing import Any, Callable

from .._formats.toml_read import Path, loads

Version = tuple[int, ...]

#: A field: None for a value, else the fields of the table that it is. Under C(*): of every table, whose names are exact.
_Fields = Mapping[str, Any]
#: The fields of runc's options (github.com/containerd/containerd/api, types/runc/options/oci.pb.go).
_OPTIONS: tuple[str, ...] = (
    "BinaryName",
    "SystemdCgroup",
    "Root",
    "NoPivotRoot",
    "NoNewKeyring",
    "ShimCgroup",
    "IoUid",
    "IoGid",
)
_OPTIONS += ("CriuImagePath", "CriuWorkPath", "TaskApiAddress", "TaskApiVersion")
#: By which names the sandboxer is called: in 1.7, and in 2.x (internal/cri/config/config.go, type Runtime).
SANDBOXERS = ("sandbox_mode", "sandboxer")
_RUNTIME: _Fields = {"runtime_type": None, **dict.fromkeys(SANDBOXERS), "options": dict.fromkeys(_OPTIONS)}
_CRI: _Fields = {
    "enable_cdi": None,
    "cdi_spec_dirs": None,
    "systemd_cgroup": None,
    "containerd": {"default_runtime_name": None, "runtimes": {"*": _RUNTIME}},
}
_TOP: _Fields = dict.fromkeys(("version", "imports", "disabled_plugins", "plugins"))
#: Where exact names are in a path: C(plugins.NAME.containerd.runtimes.NAME.options.key).
_EXACT = (1, 4)


def read_all(
    main: str, read: Callable[[str], str | None], matching: Callable[[str], Iterable[str]], version: Version
) -> dict[str, str]:
    """Return the texts of the main file and of all that it imports, by path, in the order in which containerd reads them.

    :param matching: returns the paths that a pattern matches.
    """
    texts: dict[str, str] = {}
    pending = [main]
    while pending:
        path = pending.pop(0)
        text = None if path in texts else read(path)
        if text is not None:
            texts[path] = text
            for pattern in imports_of(path, text, version):
                pending.extend(sorted(matching(pattern)))
    return texts


def imports_of(path: str, text: str, version: Version) -> tuple[str, ...]:
    """Return the absolute patterns that the file C(path) imports, in order."""
    patterns = top(loads(text), version).get("imports", [])
    folder = posixpath.dirname(path)
    return tuple(
        posixpath.normpath(posixpath.join(folder, pattern))
        for pattern in (patterns if isinstance(patterns, list) else [])
        if isinstance(pattern, str)
    )


def top(data: Mapping[str, Any], version: Version) -> dict[str, Any]:
    """Return a file's data with containerd's spelling of the keys at its top."""
    return _decode(data, _TOP, version, in_order=True)


def version_by_format(data: Mapping[str, Any]) -> Version:
    """Return the version of the containerd that prints, or generates, a file in the format that C(data) has."""
    number = top(data, (2,)).get("version", 1)
    return (2,) if isinstance(number, int) and number > 2 else (1,)


def merged(files: Iterable[Mapping[str, Any]], version: Version) -> dict[str, Any]:
    """Return what the data of the main file and of its imports, in order, are together, in containerd's own spelling."""
    result: dict[str, Any] = {}
    for data in files:
        found = top(data, version)
        plugins = {**result.get("plugins", {}), **found.get("plugins", {})} if version < (2,) else {}
        result = _deep(result, found)
        if version < (2,):
            result["plugins"] = plugins
    plugins = result.get("plugins", {})
    result["plugins"] = {
        name: _decode(plugin, _CRI, version) for name, plugin in plugins.items() if isinstance(plugin, dict)
    }
    return result


def spellings(data: Mapping[str, Any], path: Path) -> list[Path]:
    """Return the paths in C(data) that differ from C(path) at most in the case of letters, where some containerd ignores it."""
    found: list[tuple[Path, Any]] = [((), data)]
    for position, name in enumerate(path):
        found = [
            ((*above, key), table[key])
            for above, table in found
            if isinstance(table, Mapping)
            for key in table
            if key == name or (position not in _EXACT and key.lower() == name.lower())
        ]
    return [place for place, _value in found]


def _decode(table: Mapping[str, Any], fields: _Fields, version: Version, in_order: bool = False) -> dict[str, Any]:
    if "*" in fields:
        return {
            name: _decode(value, fields["*"], version) if isinstance(value, dict) else value
            for name, value in table.items()
        }
    known = {name.lower() for name in fields}
    result = {key: value for key, value in table.items() if key.lower() not in known}
    for name, inner in fields.items():
        value: dict[str, Any] = {}
        for key in _keys(table, name, version, in_order):
            value = _deep(value, {name: table[key]})
        if isinstance(value.get(name), dict) and inner:
            value = {name: _decode(value[name], inner, version)}
        result.update(value)
    return result


def _keys(table: Mapping[str, Any], name: str, version: Version, in_order: bool) -> list[str]:
    """Return the keys of C(table) that containerd takes for C(name), the one that counts last."""
    if version < (2,):
        return [key for key in (name, name.lower(), name.upper(), name[0].lower() + name[1:]) if key in table][:1]
    found = [key for key in table if key.lower() == name.lower()]
    return found if in_order else sorted(found)


def _deep(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return C(one) with C(other) put over it, table by table."""
    result = dict(one)
    for key, value in other.items():
        below = result.get(key)
        result[key] = _deep(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result
