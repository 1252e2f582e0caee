# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Change which kernel modules are loaded, and ask what decides about them. Reading their state is in C(kernel.py)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from . import locked_clocks
from .command import CommandError, Result, find, run


def exists(name: str, kernel: str) -> bool:
    """Return whether C(kernel) has a module C(name), built in or not; False without modprobe."""
    if find("modprobe") is None:
        return False
    return run(["modprobe", "--set-version", kernel, "--dry-run", name]).rc == 0


def load(name: str) -> Result:
    """Load a module and what it depends on. The answer is not a proof: callers read the state back.

    :raises CommandError: there is no modprobe.
    """
    return run(["modprobe", name], timeout=120)


def unload(name: str) -> Result:
    """Unload one module; the kernel refuses while it has users.

    :raises CommandError: there is no rmmod.
    """
    answer = run(["rmmod", name], timeout=120)
    if name == "nvidia" and answer.rc == 0:
        locked_clocks.forget()
    return answer


def is_blocked(name: str) -> bool | None:
    """Return whether modprobe's configuration keeps C(name) from being loaded for a device; None without modprobe."""
    try:
        answer = run(["modprobe", "--showconfig"], timeout=60)
    except CommandError:
        return None
    return parse_blocked(answer.stdout, name)


def parse_blocked(text: str, name: str) -> bool:
    """Return whether C(modprobe --showconfig) has a blacklist line for C(name), or an install line that does nothing."""
    pattern = (
        rf"^(?:blacklist\s+{re.escape(name)}|(?:install|alias)\s+{re.escape(name)}\s+(?:/bin/true|/bin/false|off))\s*$"
    )
    return re.search(pattern, text, re.MULTILINE) is not None


def renew_initramfs(command: Sequence[str]) -> bool:
    """Write the initial file system again; return False where the host has no such program (a container, or UKIs).

    :raises CommandError: it failed.
    """
    if find(command[0]) is None:
        return False
    run(command, timeout=900, allowed=(0,))
    return True
