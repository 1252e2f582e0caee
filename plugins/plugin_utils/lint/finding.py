# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the linter says, at which level and at which path of a file, and how it reads objects of which it expects nothing."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...module_utils._facts_view import Facts
from ...module_utils._printable import printable

#: The plugin, gpu-feature-discovery or the MPS daemon does not start with this file.
ERROR = "error"
#: They start, and ignore something that is written, or understand it otherwise than it looks.
WARNING = "warning"
#: What the linter cannot know of the file; nothing to correct, and no failure under C(--strict).
NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a configuration file.

    :param level: C(error), C(warning) or C(note).
    :param path: where, such as C(sharing.mps.resources[0].replicas); empty for the whole file.
    :param message: what is wrong, and what really happens.
    :param remedy: what to write in its place.
    """

    level: str
    path: str
    message: str
    remedy: str = ""


#: What Flux, Helm, Jinja, kustomize and envsubst replace before the file is used; it is quoted where a finding is of it.
_PLACEHOLDER = re.compile(r"\$[{(A-Za-z_]|\{[{%]")
#: One of them at the end of a path.
_FILLED_IN_KEY = re.compile(r"(\$\{[^{}]*\}|\$\([^()]*\)|\{\{.*\}\}|\{%.*%\})\Z", re.DOTALL)
#: Those that YAML reads as mappings, or not at all, unless they are quoted.
_WITH_BRACES = re.compile(r"\{\{(.*?)\}\}|\$\{([^}\n]*)\}")

#: Errors and warnings of one file, and notes. A file with more is none of the plugin's, or was made to keep the linter busy.
MOST = 500


class TooManyFindings(Exception):
    """A file has more than C(MOST) errors and warnings: what follows is not looked at."""


@dataclass
class Report:
    """Collects findings while a file is read. An error or a warning too many raises TooManyFindings; notes, which fail nothing, are left out then.

    :param refused: whether there was an error, and C(unknown), whether a value is filled in later, so that nothing is known of it.
    :param filled_in: whether what looks like a placeholder is the value itself, as in the objects of a cluster.
    :param host: facts of the node on which the file will be used, and C(node), an L(node.LintedNode) where its GPUs are known.
    """

    host: Facts = field(default_factory=Facts)
    node: Any = None
    findings: list[Finding] = field(default_factory=list)
    refused: bool = False
    unknown: bool = False
    filled_in: bool = False
    _known: set[Finding] = field(default_factory=set)
    #: Of errors and warnings, and of notes.
    _counts: list[int] = field(default_factory=lambda: [0, 0])

    def error(self, path: str, message: str, remedy: str = "") -> None:
        self._add(ERROR, path, message, remedy)

    def warning(self, path: str, message: str, remedy: str = "") -> None:
        self._add(WARNING, path, message, remedy)

    def note(self, path: str, message: str, remedy: str = "") -> None:
        self._add(NOTE, path, message, remedy)

    def _add(self, level: str, *texts: str) -> None:
        if level != NOTE and not self.filled_in and (is_placeholder(texts[1]) or _FILLED_IN_KEY.search(texts[0])):
            self.unknown = True
            level, texts = NOTE, (texts[0], f"{texts[1]}, unless it is filled in before", "")
        self.refused |= level == ERROR
        # What is quoted of a file can have characters that a terminal obeys.
        finding = Finding(level, *(str(printable(text, lines=True)) for text in texts))
        # YAML aliases reach the same text on several ways.
        if finding in self._known:
            return
        is_note = level == NOTE
        if self._counts[is_note] == MOST:
            if is_note:
                return
            raise TooManyFindings
        self._counts[is_note] += 1
        self._known.add(finding)
        self.findings.append(finding)


def is_placeholder(text: str) -> bool:
    """Return whether a part of a text is filled in before it is used."""
    return bool(_PLACEHOLDER.search(text))


def readable(text: str) -> str:
    """Return a text with C({{ a }}) and C(${a}) as C($(a)), which YAML reads everywhere."""
    return _WITH_BRACES.sub(
        lambda match: f"$({re.sub(r'[^A-Za-z0-9_.]+', ' ', match[1] or match[2] or '').strip()})", text
    )


def near(name: str, known: Iterable[str]) -> str:
    """Return a remedy that names the known field nearest to C(name), or lists them all."""
    names = sorted(known)
    folded = {candidate.lower(): candidate for candidate in names}
    if name.lower() in folded:
        return f"Write {folded[name.lower()]}."
    match = closest(name.lower(), folded, 0.6)
    return f"Did you mean {folded[match]}?" if match else f"Known here: {', '.join(names)}."


def closest(name: str, known: Iterable[str], cutoff: float) -> str:
    """Return the known name nearest to C(name); empty where none is as near as C(cutoff), from 0 to 1."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)), "")


def join(path: str, key: str) -> str:
    """Return the path of C(key) below C(path)."""
    return f"{path}.{key}" if path else key


#: A file with one of them is a configuration of the device plugin, whatever else is in it.
OF_A_CONFIGURATION = {"version", "flags", "sharing"}


#: In objects anything may stand anywhere: what is not of the type that was expected counts as empty.
def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def sequence(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def below(value: Any, *keys: str) -> Any:
    """Return what stands below keys, one in the other; None where one of them is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def group_of(document: Mapping[str, Any]) -> str:
    """Return the group of the API that an object belongs to, such as C(resource.k8s.io)."""
    return str(document.get("apiVersion")).partition("/")[0]
