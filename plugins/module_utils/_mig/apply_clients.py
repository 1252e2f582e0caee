# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who has to be told of a change of MIG: services that are restarted, and clients that only the caller can reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .._adapters import systemd
from .._adapters.command import CommandError

#: Services that read the GPUs once, when they start.
_SERVICES = ("nvidia-dcgm.service", "dcgm.service", "dcgm-exporter.service", "nvidia-dcgm-exporter.service")
#: Who runs pods on this host.
_KUBELETS = ("kubelet.service", "k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service")
#: Pods that read the GPUs once, when they start.
_PODS = ("pod nvidia-device-plugin", "pod gpu-feature-discovery", "pod dcgm-exporter")


class ServicesFailed(Exception):
    """A service did not stop or did not come back."""


def full_name(service: str) -> str:
    """Return a service's unit: C(nvidia-dcgm) is C(nvidia-dcgm.service)."""
    return service if "." in service else f"{service}.service"


def to_notify(restarted: Sequence[str]) -> tuple[str, ...]:
    """Return the clients on this host that have to notice a change and that nobody restarts here."""
    if not systemd.available():
        return ()
    try:
        units = systemd.units((*_SERVICES, *_KUBELETS))
    except CommandError:
        return ()
    services = tuple(name for name in _SERVICES if units[name].is_active and name not in restarted)
    return services + (_PODS if any(units[name].is_active for name in _KUBELETS) else ())


@contextmanager
def out_of_the_way(services: Sequence[str]) -> Iterator[None]:
    """Stop services for the block and start again those that ran, however the block ends.

    :raises ServicesFailed: one does not stop (nothing was changed then), or one does not come back.
    """
    stopped: list[str] = []
    try:
        try:
            for service in _active(services):
                stopped.append(service)
                systemd.stop(service)
        except CommandError as error:
            raise ServicesFailed(str(error)) from error
        yield
    finally:
        _start(stopped)


def restart(services: Sequence[str]) -> tuple[str, ...]:
    """Restart those services that run, and return them.

    :raises ServicesFailed: one does not come back.
    """
    try:
        running = _active(services)
        for service in running:
            systemd.restart(service)
    except CommandError as error:
        raise ServicesFailed(str(error)) from error
    return running


def _active(services: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name, unit in systemd.units(services).items() if unit.is_active)


def _start(services: Sequence[str]) -> None:
    failed = []
    for service in services:
        try:
            systemd.start(service)
        except CommandError as error:
            failed.append(str(error))
    if failed:
        raise ServicesFailed("; ".join(failed))
