# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which of the units that matter to GPUs run: one question to systemd for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .. import _runtimes as runtimes
from .._adapters.command import CommandError
from .._adapters.host_reader import HostReader
from .._adapters.systemd import Unit
from .._health.metric_units import METRICS_TIMER

#: Units that the facts tell about; a service without its suffix.
UNITS = (
    "nvidia-persistenced",
    "nvidia-fabricmanager",
    "nvidia-dcgm",
    "nvidia-imex",
    "nvidia-cdi-refresh",
    *runtimes.UNITS,
    "kubelet",
    "gpufleet-mig",
    "gpufleet-cdi",
    "gpufleet-sharing",
    METRICS_TIMER,
)


@dataclass(frozen=True)
class Services:
    """The units by name. Without an answer of systemd nothing is known: every question is answered with None."""

    units: Mapping[str, Unit] = field(default_factory=dict)

    def active(self, *names: str) -> bool | None:
        """Return whether one of the units runs, or None where systemd did not answer."""
        if not self.units:
            return None
        return any(name in self.units and self.units[name].active in ("active", "reloading") for name in names)

    def masked(self, name: str) -> dict[str, bool]:
        """Return that a unit is masked as facts have it: nothing where it is not."""
        found = self.units.get(name)
        return {"masked": True} if found is not None and found.load == "masked" else {}


def read_services(source: HostReader) -> Services:
    """Return what systemd says, or an empty answer (with the reason noted) where it does not run."""
    if not source.files.local:
        source.note("services", f"systemd cannot be queried about the host at {source.files.root}")
        return Services()
    if not source.files.exists("/run/systemd/system"):
        source.note("services", "systemd does not run on this host")
        return Services()
    try:
        found = source.units([unit if "." in unit else f"{unit}.service" for unit in UNITS])
    except CommandError as error:
        source.note("services", str(error))
        return Services()
    return Services({name.removesuffix(".service"): unit for name, unit in found.items()})
