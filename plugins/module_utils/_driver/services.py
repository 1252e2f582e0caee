# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the collection adds to the units and the modprobe configuration of the packages, as texts."""

from __future__ import annotations

import re

PERSISTENCE_DROP_IN = "/etc/systemd/system/nvidia-persistenced.service.d/50-gpufleet.conf"
NOUVEAU_FILE = "/etc/modprobe.d/gpufleet-nouveau.conf"

_MARK = "# Written by gpufleet.nvidia; changes are overwritten.\n"
NOUVEAU_TEXT = f"{_MARK}blacklist nouveau\noptions nouveau modeset=0\n"


def persistence_drop_in(unit: str) -> str | None:
    """Return the drop-in that makes a persistence daemon's unit really persistent, or None where it already is.

    Ubuntu's unit starts the daemon with C(--no-persistence-mode) and stops it when nothing needs it (host.md, section 4).

    :param unit: what C(systemctl cat) prints without our own drop-in.
    """
    commands = re.findall(r"^ExecStart=(.+)$", unit, re.MULTILINE)
    command = commands[-1].strip() if commands else ""
    not_persistent = "--no-persistence-mode" in command.split()
    stops = re.search(r"^StopWhenUnneeded=(?:true|yes|on|1)\s*$", unit, re.MULTILINE | re.IGNORECASE) is not None
    if not (not_persistent or stops):
        return None
    lines = [_MARK.rstrip("\n")]
    if stops:
        lines += ["[Unit]", "StopWhenUnneeded=false"]
    if not_persistent:
        persistent = " ".join(
            "--persistence-mode" if word == "--no-persistence-mode" else word for word in command.split()
        )
        lines += ["[Service]", "ExecStart=", f"ExecStart={persistent}"]
    return "\n".join(lines) + "\n"


def without_drop_in(text: str) -> str:
    """Return what C(systemctl cat) printed without the part that comes from L(PERSISTENCE_DROP_IN)."""
    parts = re.split(r"(?m)^(?=# /)", text)
    return "".join(part for part in parts if not part.startswith(f"# {PERSISTENCE_DROP_IN}\n"))


def has_install_section(text: str) -> bool:
    """Return whether a unit can be enabled by itself; Ubuntu's cannot."""
    return re.search(r"^\[Install\]", text, re.MULTILINE) is not None


#: Under this name the module's own preferences file pins the driver.
PREFERENCES_NAME = "gpufleet-nvidia-driver"
_PINNED = (
    "*nvidia*",
    "cuda-drivers*",
    "libcuda1",
    "libcudadebugger1",
    "libnvcuvid1",
    "libnvoptix1",
    "libxnvctrl*",
)


def preferences(version: str) -> str:
    """Return the apt preferences that keep the driver at C(version), in place of NVIDIA's pinning package.

    A pin of a version only touches packages that have such a version, so the container toolkit is not affected. Above
    1000 a pin may also go back to an older version.
    """
    return f"{_MARK}Package: {' '.join(_PINNED)}\nPin: version {version}-*\nPin-Priority: 1001\n"
