# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The host program: what runs at boot, without Ansible. Every verb is a function that returns an exit status."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence

from .._adapters.command import CommandError
from .._adapters.files import Locked, read_text
from .._adapters.mps_control import MpsError
from .._adapters.nvml_library import NvmlError, NvmlUnavailable, PynvmlMissing
from .._formats.documents import read_json
from .._mig.journal import Journal
from .._plan import Refused
from . import restore
from .restore import fail, say
from .units import RECORDED_MIG, RECORDED_SETTINGS, RECORDED_SHARING

_Verb = Callable[..., int]


def _write_metrics(directory: str) -> int:
    # What reads the whole host is not loaded at boot, where only a layout is restored.
    from .write_metrics import write_metrics

    return write_metrics(directory)


def status() -> int:
    """Say, as JSON, what is recorded and how the last change of MIG ended."""
    last = Journal().last()
    paths = {"mig": RECORDED_MIG, "sharing": RECORDED_SHARING, "settings": RECORDED_SETTINGS}
    found = {
        "recorded": {name: _recorded(path) for name, path in paths.items()},
        "last_mig_change": None if last is None else last.as_dict(),
    }
    say(json.dumps(found, indent=2, sort_keys=True))
    return 0


def _recorded(path: str) -> object:
    text = read_text(path, links=False)
    try:
        return None if text is None else read_json(text)
    except ValueError:
        return "unreadable"


#: Name of a verb, what does it, and the names of its arguments.
VERBS: Mapping[str, tuple[_Verb, tuple[str, ...]]] = {
    "restore-mig": (restore.restore_mig, ()),
    "refresh-cdi": (restore.refresh_cdi, ()),
    "restore-settings": (restore.restore_settings, ()),
    "restore-sharing": (restore.restore_sharing, ()),
    "mps-settings": (restore.mps_settings, ("DAEMON",)),
    "mps-quit": (restore.mps_quit, ("DAEMON",)),
    "write-metrics": (_write_metrics, ("DIRECTORY",)),
    "status": (status, ()),
}

_FAILURES = (CommandError, Locked, MpsError, NvmlError, NvmlUnavailable, OSError, PynvmlMissing, Refused)


def main(arguments: Sequence[str]) -> int:
    """Run one verb and return the exit status: 0, 1 when it failed, 2 when it was called wrongly."""
    if not arguments or arguments[0] in ("-h", "--help"):
        (say if arguments else fail)(usage())
        return 0 if arguments else 2
    verb = VERBS.get(arguments[0])
    if verb is None or len(arguments) - 1 != len(verb[1]):
        fail(usage())
        return 2
    try:
        return verb[0](*arguments[1:])
    except _FAILURES as error:
        fail(str(error))
        return 1


def usage() -> str:
    lines = [f"  gpufleet-host.pyz {' '.join((name, *arguments))}" for name, (_verb, arguments) in VERBS.items()]
    return "\n".join(["usage:", *lines])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
