# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keep the CDI specification true to the driver and to the GPUs that are there.

Whether it is right is not guessed: the toolkit generates one into a scratch file, and the two are compared. That sees a
new driver, a new or lost GPU, other MIG devices and another toolkit alike. NVIDIA's own units (C(nvidia-cdi-refresh))
refresh it at boot and after a driver change, and not after a change of MIG (host.md, section 8).
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass

from .._adapters import cdi as adapter
from .._adapters.cdi import Runner
from .._adapters.cdi_specifications import parse_specification
from .._adapters.command import CommandError, run
from .._adapters.files import read_bytes, read_text, write_whole

#: NVIDIA's units, enabled where the packages have them (1.18 and newer).
UNITS = ("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service")
_DRIVER = "/proc/driver/nvidia/version"


@dataclass(frozen=True)
class Comparison:
    """The specification of a host beside the one that it should have.

    :param path: where it is.
    :param present: its text, or None.
    :param wanted: the text that the toolkit generates now.
    :param devices: the names of the devices in C(wanted).
    :param missing_nodes: device nodes that it has to name and that are not there, so that C(wanted) lacks them.
    """

    path: str
    present: str | None
    wanted: str
    devices: tuple[str, ...]
    missing_nodes: tuple[str, ...] = ()

    @property
    def stale(self) -> str:
        """Why it has to be written anew, or an empty string."""
        if self.present is None:
            return "there is none"
        if self.missing_nodes:
            return f"the device nodes {', '.join(self.missing_nodes)} are missing"
        if self.present == self.wanted:
            return ""
        try:
            before = set(parse_specification(self.path, self.present).devices)
        except ValueError as error:
            return f"it cannot be read: {error}"
        lost, new = sorted(before - set(self.devices)), sorted(set(self.devices) - before)
        if lost or new:
            parts = [f"{', '.join(new)} missing"] if new else []
            return "; ".join([*parts, *([f"{', '.join(lost)} gone"] if lost else [])])
        return "it is for another driver or toolkit"


def driver_loaded() -> bool:
    """Return whether there is something to describe."""
    return os.path.exists(_DRIVER)


def specifications() -> tuple[str, ...]:
    """Return the specification that the toolkit keeps, where it is there."""
    path = adapter.path()
    return (path,) if os.path.lexists(path) else ()


def possible() -> bool:
    """Return whether a specification can be generated: a driver is loaded, and the toolkit is there to do it."""
    return adapter.available() and driver_loaded()


def compare(runner: Runner = run) -> Comparison:
    """Generate a specification aside and return it beside the one in place.

    :raises CommandError: the toolkit could not generate one.
    """
    path = adapter.path()
    suffix = ".json" if path.endswith(".json") else ".yaml"
    with tempfile.TemporaryDirectory(prefix="gpufleet-cdi-") as folder:
        wanted = adapter.generate(os.path.join(folder, f"nvidia{suffix}"), runner)
    try:
        devices = parse_specification(path, wanted).devices
    except ValueError as error:
        raise CommandError(
            ["nvidia-ctk", "cdi", "generate"], f"what it wrote cannot be read: {error}", wanted[:500]
        ) from error
    present = read_bytes(path)
    text = None if present is None else present.decode("utf-8", "replace")
    return Comparison(path, text, wanted, devices, adapter.missing_nodes())


def refresh(runner: Runner = run) -> str:
    """Write the specification anew where it is missing or stale, and return why; an empty string when it was right.

    Call it after every change of driver, toolkit or MIG devices. Does nothing where there is no toolkit or no driver.

    :raises CommandError: the toolkit could not generate one or create the device nodes, or what is read back is something else.
    """
    if not possible():
        return ""
    missing = adapter.missing_nodes()
    try:
        adapter.create_nodes(runner)
    finally:
        why = _write(runner)
    return why or (f"the device nodes {', '.join(missing)} were missing" if missing else "")


def _write(runner: Runner) -> str:
    comparison = compare(runner)
    if comparison.stale:
        write_whole(comparison.path, comparison.wanted)
        if read_text(comparison.path) != comparison.wanted.strip():
            raise CommandError(["nvidia-ctk", "cdi", "generate"], f"{comparison.path} does not have what was written")
    return comparison.stale


def unit_names() -> tuple[str, ...]:
    """Return those of NVIDIA's units that are installed."""
    folders = ("/etc/systemd/system", "/lib/systemd/system", "/usr/lib/systemd/system")
    return tuple(unit for unit in UNITS if any(os.path.exists(f"{folder}/{unit}") for folder in folders))
