# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who has to be told of a change of MIG: services that are restarted, and clients that only the caller can reach."""

from __future__ import annotations

from collections.abc import Sequence

from .._adapters import systemd
from .._adapters.command import CommandError
from .._runtimes import ALL_KUBELETS

#: Services that read the GPUs once, when they start.
_SERVICES = ("nvidia-dcgm.service", "dcgm.service", "dcgm-exporter.service", "nvidia-dcgm-exporter.service")
#: Pods that read the GPUs once, when they start.
_PODS = ("pod nvidia-device-plugin", "pod gpu-feature-discovery", "pod dcgm-exporter")


class ServicesFailed(Exception):
    """A service did not stop or did not come back."""


def to_notify(restarted: Sequence[str]) -> tuple[str, ...]:
    """Return the clients on this host that have to notice a change and that nobody restarts here."""
    if not systemd.available():
        return ()
    try:
        units = systemd.units((*_SERVICES, *ALL_KUBELETS))
    except CommandError:
        return ()
    services = tuple(name for name in _SERVICES if units[name].is_active and name not in restarted)
    return services + (_PODS if any(units[name].is_active for name in ALL_KUBELETS) else ())


class Clients:
    """The services of a run that read the GPUs when they start.

    :param running: those that are active before the run, as the journal has them.
    :param owed: those that a run before had stopped, or had still to restart, when it was cut off.
    """

    def __init__(self, running: Sequence[str] = (), owed: Sequence[str] = ()) -> None:
        self.running = tuple(running)
        self.owed = tuple(owed)
        self._stopped: list[str] = []

    @property
    def concerned(self) -> tuple[str, ...]:
        """All of them, for the journal."""
        return tuple(dict.fromkeys((*self.running, *self.owed)))

    def stop(self) -> None:
        """Stop them for a change of mode. Raises ServicesFailed: one does not stop."""
        for service in self.running:
            self._stopped.append(service)
            try:
                systemd.stop(service)
            except CommandError as error:
                raise ServicesFailed(str(error)) from error

    def start_again(self, changed: bool) -> tuple[str, ...]:
        """Start those again that were stopped, and restart the others when the GPUs changed; return which. Raises ServicesFailed: one does not come
        back; all others are.
        """
        done, failed = [], []
        for service in self.concerned:
            stopped = service in self._stopped
            if not (stopped or changed or service in self.owed):
                continue
            try:
                (systemd.start if stopped else systemd.restart)(service)
                done.append(service)
            except CommandError as error:
                failed.append(str(error))
        self._stopped.clear()
        if failed:
            raise ServicesFailed("; ".join(failed))
        return tuple(done)


def active(services: Sequence[str]) -> tuple[str, ...]:
    """Return those services that run. Raises ServicesFailed: systemd does not answer."""
    try:
        return tuple(name for name, unit in systemd.units(services).items() if unit.is_active)
    except CommandError as error:
        raise ServicesFailed(str(error)) from error
