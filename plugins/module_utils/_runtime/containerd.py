# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""containerd's configuration, versions 1 to 4, as pure functions of file texts.

Which file is edited, and why:

* containerd 1.x merges imported files by whole plugins: a drop-in with one setting of the CRI plugin replaces every
  other one of the main file. So the setting goes into the file that has the CRI plugin's section last in the order of
  imports, which is the main file unless a drop-in of somebody else has it.
* containerd 2.x merges setting by setting. Where the main file imports C(conf.d/*.toml), a drop-in of our own leaves
  the main file alone; where it does not, the setting goes into the main file, because adding an import would be a
  change of what else is read. A main file that is missing imports nothing, whatever C(containerd config default) says.

Keys are read in every spelling that containerd accepts (containerd_keys.py) and written in its own. A second spelling
of what is set in the runtime nvidia is removed; the tables of other runtimes are left as they are.

nvidia-ctk has left drop-ins of its own in three places. They repeat the CRI plugin's section as it once was and hide
later changes of the main file; they are moved aside.
"""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from .._formats.toml_edit import (
    BEGIN,
    append_tables,
    is_marked,
    remove_table,
    render,
    restore,
    set_value,
    set_values,
    settle,
    unset,
)
from .._formats.toml_read import Document, Path, dig, parse
from .._runtimes import FileFaultFacts
from .._steps import ASIDE
from .containerd_keys import SANDBOXERS, imports_of, merged, spellings, version_by_format
from .desired import NAME, DesiredRuntime, Effective, FileChange, Files, refuse

MAIN = "/etc/containerd/config.toml"
DROP_IN = "99-gpufleet-nvidia.toml"
#: The drop-ins of nvidia-ctk 1.18.0, of 1.18.1 to 1.20, and of hosts where the wrong path of CRI-O was copied.
LEFTOVERS = (
    "/etc/containerd/config.d/99-nvidia.toml",
    "/etc/containerd/conf.d/99-nvidia.toml",
    "/etc/containerd/config.toml.d/99-nvidia.toml",
)
RUNTIME_TYPE = "io.containerd.runc.v2"
#: containerd's own, which is what runs where none is named.
SANDBOXER = "podsandbox"

_CRI: Mapping[int, Path] = {
    1: ("plugins", "cri"),
    2: ("plugins", "io.containerd.grpc.v1.cri"),
    3: ("plugins", "io.containerd.cri.v1.runtime"),
    4: ("plugins", "io.containerd.cri.v1.runtime"),
}


def edit(version: tuple[int, ...], files: Mapping[str, str], desired: DesiredRuntime, main: str = MAIN) -> Files:
    """Return what containerd's files become.

    :param version: of containerd, such as C((1, 6, 20)).
    :param files: the texts of the main file and of every imported file, in the order of imports, and of leftovers;
        a main file that does not exist is left out.
    :param desired: what is wanted.
    :param main: path of the main file.
    :raises TomlError: a file is not TOML, or has the section in a form that cannot be edited.
    """
    own = _own(main)
    leftovers = {path for path in files if _is_left(path, files[path])}
    base = {path: restore(text) for path, text in files.items() if path not in leftovers and path != own}
    documents = {path: parse(text) for path, text in base.items()}
    after: dict[str, str | None] = dict(base)
    warnings: tuple[str, ...] = ()
    if desired.present:
        refuse(fault(version, documents, main), "containerd", desired.default)
        target = _target(version, documents, main, own)
        if not desired.default:
            after.update({path: _without_default(text) for path, text in base.items() if path != target})
        document = documents.get(target, parse(""))
        number = _config_version(documents.get(main, document) if not document.statements else document, version)
        settings = _settings(version, number, merged(_data(documents), version), desired)
        after[target] = _with_runtime(document, number, settings, made=_is_ours(files.get(target)))
        after.update({path: _one_spelling(text, settings) for path, text in after.items() if text})
        warnings = tuple(_ambiguous(version, documents))
        if desired.enable_cdi and version < (1, 7):
            warnings += (f"containerd {_dotted(version)} has no CDI; it came with 1.7",)
    else:
        after.update({path: _without(text) for path, text in base.items()})
    if own in files:
        after.setdefault(own, None)
    changes = [_change(path, files.get(path), text) for path, text in after.items()]
    for path in sorted(leftovers):
        changes.append(FileChange(path, files[path], None))
        changes.append(FileChange(path + ASIDE, None, files[path]))
    moved = (f"{path} was written by nvidia-ctk and is moved to {path}{ASIDE}" for path in sorted(leftovers))
    return Files(tuple(changes), (*warnings, *moved))


def _with_runtime(document: Document, number: int, settings: Mapping[Path, Any], made: bool) -> str:
    """Return the text of the file with the runtime nvidia. C(made): it is (or was) not there without us."""
    if document.statements:
        return set_values(document.text, settings)
    text = append_tables(document.text, _as_tables({("version",): number, **settings}))
    # The blank line tells a file that was there, empty, from one that was made.
    return text if made or document.text else f"\n{text}"


def is_leftover(text: str) -> bool:
    """Return whether C(text) is a drop-in of nvidia-ctk: a version, the CRI plugin with the runtime in it, no more."""
    if is_marked(text):
        return False
    document = parse(text)
    plugins = document.data.get("plugins", {})
    known = {path[1] for path in _CRI.values()}
    return (
        set(document.data) <= {"version", "plugins"}
        and isinstance(plugins, dict)
        and set(plugins) <= known
        and any(document.get((*cri, "containerd", "runtimes", NAME)) for cri in _CRI.values())
    )


def importing(text: str, paths: list[str]) -> str:
    """Return C(text) with nothing but C(paths) imported, however the key was spelled."""
    for path in spellings(parse(text).data, ("imports",)):
        text = unset(text, path)
    return set_value(text, ("imports",), paths)


def effective(dump: str) -> Effective:
    """Return what is in force according to C(containerd config dump) or to a generated file. Raises TomlError: the text is not TOML."""
    printed = parse(dump).data
    data = merged([printed], version_by_format(printed))
    number = data.get("version", 1)
    paths = dict.fromkeys((_CRI.get(number, _CRI[4]) if isinstance(number, int) else _CRI[4], *_CRI.values()))
    section: dict[str, Any] = next((found for found in (dig(data, path) for path in paths) if found), {})
    runtimes = dig(section, ("containerd", "runtimes"), {})
    cdi = dig(section, ("enable_cdi",))
    return Effective(
        binary=dig(runtimes, (NAME, "options", "BinaryName")),
        default_runtime=dig(section, ("containerd", "default_runtime_name"), "runc" if section else None),
        cdi=cdi if isinstance(cdi, bool) else None,
        runtimes=tuple(sorted(runtimes)),
    )


def section(dump: str) -> dict[str, Any]:
    """Return everything that takes effect from a merged configuration: all of it but where it was read from."""
    data = dict(parse(dump).data)
    data.pop("imports", None)
    return data


def _change(path: str, before: str | None, after: str | None) -> FileChange:
    # A file that we made goes with our settings; one that was there, empty, stays.
    if after == "" and _is_ours(before):
        after = None
    elif after is not None:
        after = settle(before, after)
    return FileChange(path, before, after)


def _target(version: tuple[int, ...], documents: Mapping[str, Document], main: str, own: str) -> str:
    if version >= (2,):
        covered = main in documents and any(covers(p, own) for p in imports_of(main, documents[main].text, version))
        # A runtime or a default that the main file has already is changed where it stands.
        if covered and not _mentions_nvidia(documents[main]):
            return own
        return main
    sections = [path for path, document in documents.items() if any(document.get(cri) for cri in _CRI.values())]
    return sections[-1] if sections else main


def covers(pattern: str, path: str) -> bool:
    # In a Go glob the asterisk stops at a slash.
    return posixpath.dirname(pattern) == posixpath.dirname(path) and fnmatch.fnmatchcase(path, pattern)


def _mentions_nvidia(document: Document) -> bool:
    return any(
        document.get((*cri, "containerd", "runtimes", NAME)) is not None
        or document.get((*cri, "containerd", "default_runtime_name")) == NAME
        for cri in _CRI.values()
    )


def _config_version(document: Document, version: tuple[int, ...]) -> int:
    if not document.statements:
        return 3 if version >= (2,) else 2
    number = document.data.get("version", 1)
    return number if isinstance(number, int) and number in _CRI else 1


def _data(documents: Mapping[str, Document]) -> list[dict[str, Any]]:
    return [document.data for document in documents.values()]


def _settings(
    version: tuple[int, ...], number: int, data: Mapping[str, Any], desired: DesiredRuntime
) -> dict[Path, Any]:
    """Return every setting that is wanted, by path. C(data): what all files are together, as containerd reads them."""
    # containerd 2 keeps the new names in files of version 1, and only some of its releases know the old ones.
    cri = _CRI[3] if number == 1 and version >= (2,) else _CRI[number]
    containerd = (*cri, "containerd")
    inherited = _inherited(data, cri)
    options = {key: value for key, value in inherited.pop("options", {}).items() if key != "BinaryName"}
    options["SystemdCgroup"] = _systemd_cgroup(data)
    settings: dict[Path, Any] = {}
    if desired.default:
        settings[(*containerd, "default_runtime_name")] = NAME
    elif dig(data, (*containerd, "default_runtime_name")) == NAME:
        settings[(*containerd, "default_runtime_name")] = "runc"
    cdi = dig(data, (*cri, "enable_cdi"))
    # containerd 2 enables CDI by itself; what a file says beats that.
    if desired.enable_cdi and (cdi is not None or (1, 7) <= version < (2,)):
        settings[(*cri, "enable_cdi")] = True
    tables: dict[Path, dict[str, Any]] = {}
    if version < (2,) and not dig(data, (*containerd, "runtimes")):
        # containerd 1.x drops its built-in runc as soon as any runtime is configured, and the CRI plugin then fails.
        tables[(*containerd, "runtimes", "runc")] = {"runtime_type": RUNTIME_TYPE}
        tables[(*containerd, "runtimes", "runc", "options")] = {"SystemdCgroup": options["SystemdCgroup"]}
    # What runc does not say and the runtime nvidia does is set back to containerd's default.
    own = [key for key in SANDBOXERS if dig(data, (*containerd, "runtimes", NAME, key))]
    tables[(*containerd, "runtimes", NAME)] = {
        "runtime_type": RUNTIME_TYPE,
        **dict.fromkeys(own, SANDBOXER),
        **inherited,
    }
    tables[(*containerd, "runtimes", NAME, "options")] = {"BinaryName": desired.binary, **options}
    settings.update({(*path, key): value for path, table in tables.items() for key, value in table.items()})
    return settings


def _one_spelling(text: str, settings: Mapping[Path, Any]) -> str:
    """Return C(text) with no other spelling of what is set in the runtime nvidia."""
    for path in settings:
        if path[4:5] == (NAME,):
            for other in spellings(parse(text).data, path):
                text = unset(text, other) if other != path else text
    return text


def _ambiguous(version: tuple[int, ...], documents: Mapping[str, Document]) -> Iterator[str]:
    """Yield what to know about options of runc that are there twice: containerd 1 and 2 take different ones."""
    for path, document in documents.items():
        for cri in dict.fromkeys(_CRI.values()):
            for name in ("BinaryName", "SystemdCgroup"):
                option = (*cri, "containerd", "runtimes", "runc", "options", name)
                found = spellings(document.data, option)
                if len(found) > 1:
                    value = dig(merged([document.data], version), option)
                    taken = "none of them" if value is None else f"the value {render(value)}"
                    keys = " and ".join(place[-1] for place in found)
                    yield f"{path}: the options of runc have {keys}; containerd {_dotted(version)} takes {taken}"


def _inherited(data: Mapping[str, Any], cri: Path) -> dict[str, Any]:
    """Return runc's explicit settings, which hold for the runtime nvidia as well because it calls runc."""
    default = dig(data, (*cri, "containerd", "default_runtime_name"))
    for name in ("runc", default):
        if not isinstance(name, str) or name == NAME:
            continue
        runtime = dig(data, (*cri, "containerd", "runtimes", name))
        if isinstance(runtime, dict) and runtime.get("runtime_type", RUNTIME_TYPE) in ("", RUNTIME_TYPE):
            settings = {key: value for key, value in _explicit(runtime).items() if key != "runtime_type"}
            return {**settings, "options": _explicit(runtime.get("options", {}))}
    return {}


def _explicit(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that say something: not the empty ones that C(containerd config default) prints."""
    return {key: value for key, value in settings.items() if value and not isinstance(value, dict)}


def _systemd_cgroup(data: Mapping[str, Any]) -> bool:
    """Return whether runc (or else the default runtime) uses systemd's cgroups, in whatever version that is written."""
    for cri in (_CRI[4], _CRI[2], _CRI[1]):
        default = dig(data, (*cri, "containerd", "default_runtime_name"))
        for name in ("runc", default):
            if not isinstance(name, str):
                continue
            value = dig(data, (*cri, "containerd", "runtimes", name, "options", "SystemdCgroup"))
            if isinstance(value, bool):
                return value
        if dig(data, (*cri, "systemd_cgroup")) is True:
            return True
    return False


def _without(text: str) -> str:
    """Return C(text) without the runtime nvidia, whoever configured it."""
    data = parse(text).data
    for cri in dict.fromkeys(_CRI.values()):
        for path in spellings(data, (*cri, "containerd", "runtimes", NAME)):
            text = remove_table(text, path)
    return _without_default(text)


def _without_default(text: str) -> str:
    """Return C(text) without nvidia as the default runtime."""
    data = parse(text).data
    for cri in dict.fromkeys(_CRI.values()):
        for path in spellings(data, (*cri, "containerd", "default_runtime_name")):
            text = unset(text, path) if dig(data, path) == NAME else text
    return text


def _as_tables(settings: Mapping[Path, Any]) -> dict[Path, dict[str, Any]]:
    tables: dict[Path, dict[str, Any]] = {}
    for path, value in settings.items():
        tables.setdefault(path[:-1], {})[path[-1]] = value
    return tables


def _is_ours(text: str | None) -> bool:
    return text is None or text.startswith(BEGIN)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def fault(version: tuple[int, ...], documents: Mapping[str, Document], main: str) -> FileFaultFacts | None:
    """Return why containerd would not see what we write into these files, although some releases accept them silently, or another file wins.

    :param documents: the main file and all imported ones, in the order of imports, with leftovers and our own drop-in or without them.
    """
    own = _own(main)
    documents = {path: one for path, one in documents.items() if path != own and not _is_left(path, one.text)}
    for path, document in documents.items():
        number = _config_version(document, version)
        if number > 2 and version < (2,):
            return FileFaultFacts("too_new", path, (str(number), _dotted(version)))
        if number == 1 and version >= (2,) and (document.get(_CRI[1]) or document.get(_CRI[2])):
            return FileFaultFacts("too_old", path, (_dotted(version),))
        switched_off = document.data.get("disabled_plugins")
        named = {name for name in switched_off if isinstance(name, str)} if isinstance(switched_off, list) else set()
        disabled = {"cri", *(cri[1] for cri in _CRI.values())} & named
        if disabled:
            return FileFaultFacts("without_cri", path, (", ".join(sorted(disabled)),))
    if main in documents and not isinstance(documents[main].data.get("version", 1), int):
        return FileFaultFacts("without_version", main)
    # In containerd 1 the file with the last section is changed, and what we wrote ourselves goes before.
    if version < (2,) or main not in documents or is_marked(documents[main].text):
        return None
    order = list(documents) if _target(version, documents, main, own) == main else []
    for path in order[order.index(main) + 1 :] if order else ():
        for cri in dict.fromkeys(_CRI.values()):
            rival = documents[path].get((*cri, "containerd", "default_runtime_name"))
            if rival not in (None, NAME):
                return FileFaultFacts("rival", path, (str(rival)[:64],))
    return None


def _own(main: str) -> str:
    return posixpath.join(posixpath.dirname(main), "conf.d", DROP_IN)


def _is_left(path: str, text: str) -> bool:
    return path in LEFTOVERS and is_leftover(text)
