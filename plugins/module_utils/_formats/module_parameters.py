# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parameters of the kernel module nvidia (C(NVreg_*)): the file that sets them, and what the loaded module shows. Pure.

A module takes its parameters when it is loaded. C(/proc/driver/nvidia/params) shows those of the loaded one, without C(NVreg_).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

FILE = "/etc/modprobe.d/gpufleet-nvidia.conf"
LOADED = "/proc/driver/nvidia/params"

_LINE = re.compile(r"^options\s+nvidia\s+(NVreg_\w+)=(\S*)\s*$", re.MULTILINE)
_SHOWN = re.compile(r"^(\w+):\s*(.*?)\s*$", re.MULTILINE)


def text_of(parameters: Sequence[tuple[str, str]]) -> str | None:
    """Return the file; None where there is nothing to say."""
    lines = [f"options nvidia {name}={value}\n" for name, value in parameters]
    return "# Written by gpufleet.nvidia; changes are overwritten.\n" + "".join(lines) if lines else None


def configured(text: str | None) -> dict[str, str]:
    return dict(_LINE.findall(text or ""))


def loaded(text: str | None, names: Sequence[str]) -> dict[str, str]:
    """Return which of the parameters C(names) the loaded module has, as it shows them."""
    shown = {f"NVreg_{name}": value.strip('"') for name, value in _SHOWN.findall(text or "")}
    return {name: shown[name] for name in names if name in shown}


def same(wanted: str, shown: str) -> bool:
    """Whether a parameter has a value: a number may be written in several ways, and is shown as 32 bits without a sign."""
    try:
        return int(wanted, 0) & 0xFFFFFFFF == int(shown, 0) & 0xFFFFFFFF
    except ValueError:
        return wanted == shown


def differences(wanted: Sequence[tuple[str, str]], shown: Mapping[str, str]) -> list[str]:
    """Return how the loaded module differs from what is wanted, as sentences."""
    left = []
    for name, value in wanted:
        if name not in shown:
            left.append(f"the loaded driver has no parameter {name}")
        elif not same(value, shown[name]):
            left.append(f"{name} of the loaded driver is {shown[name] or 'empty'}, not {value or 'empty'}")
    return left
