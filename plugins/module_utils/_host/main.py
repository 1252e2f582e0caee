# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The host program: what runs at boot, without Ansible. Every verb is a function that returns an exit status."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from .._adapters.command import CommandError
from .._adapters.lock import Locked
from .._adapters.mps_control import MpsError
from .._adapters.nvml_library import NvmlError, NvmlUnavailable
from .._adapters.pynvml_loader import PynvmlMissing
from . import restore_mig, restore_settings, restore_sharing
from .output import fail, say
from .status import status

_Verb = Callable[..., int]


def _write_metrics(directory: str) -> int:
    # What reads the whole host is not loaded at boot, where only a layout is restored.
    from .write_metrics import write_metrics

    return write_metrics(directory)


#: Name of a verb, what does it, and the names of its arguments.
VERBS: Mapping[str, tuple[_Verb, tuple[str, ...]]] = {
    "restore-mig": (restore_mig.restore_mig, ()),
    "refresh-cdi": (restore_mig.refresh_cdi, ()),
    "restore-settings": (restore_settings.restore_settings, ()),
    "restore-sharing": (restore_sharing.restore_sharing, ()),
    "mps-settings": (restore_sharing.mps_settings, ("DAEMON",)),
    "mps-quit": (restore_sharing.mps_quit, ("DAEMON",)),
    "write-metrics": (_write_metrics, ("DIRECTORY",)),
    "status": (status, ()),
}

_FAILURES = (CommandError, Locked, MpsError, NvmlError, NvmlUnavailable, OSError, PynvmlMissing)


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
    """Return how the program is called."""
    lines = [f"  gpufleet-host.pyz {' '.join((name, *arguments))}" for name, (_verb, arguments) in VERBS.items()]
    return "\n".join(["usage:", *lines])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
