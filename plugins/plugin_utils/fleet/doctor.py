# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host is, what is wrong with it and what C(site) would do, for a host that may never have seen this collection. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...module_utils._boards.cards import cards_on_bus
from ...module_utils._facts_view import DriverFacts, Facts, RuntimeFacts
from ...module_utils._gpu_facts import GpuFacts
from ...module_utils._plan import StagePlan, Verdict, verdict_of
from ...module_utils._runtimes import UNCONFIGURED
from ...module_utils._users import users_of
from .inspection import imex_state
from .plan import stage_lines
from .text import ranges
from .verification import Verification

_NONE = "none"
_UNKNOWN = "not known"


@dataclass(frozen=True)
class Diagnosis:
    """One host.

    :param found: the checks of its health, as far as nobody has to say what it should be.
    :param stages: what C(site) would do with the variables that it has; the roles' defaults where it has none.
    """

    host: str
    facts: Facts | None
    found: Verification
    stages: Mapping[str, StagePlan] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return what is printed for people."""
        if self.found.unread:
            return [f"{self.host}: {self.found.summary}"]
        lines = [f"{self.host}: {self._summary()}"]
        lines += [f"  {name + ':':12} {text}" for name, text in identity(self.facts).items()] if self.facts else []
        for title, statuses in (("What is wrong", ("failed", "warning")), ("What is not proven", ("unproven",))):
            checks = [check for check in self.found.checks if check.status in statuses]
            lines += [f"  {title}:"] if checks else []
            for check in checks:
                lines.append(f"    {check.status:8} {check.name}: {check.evidence}")
                if check.next_step:
                    lines.append(f"             next: {check.next_step}")
        steps = stage_lines(self.stages)
        if self.facts is not None:
            lines += (
                [
                    "  What site would do with its variables, defaults where it has none:",
                    *(f"  {line}" for line in steps),
                ]
                if steps
                else ["  site would change nothing."]
            )
        return lines

    def _summary(self) -> str:
        failed, warned = len(self.found.failed), self.found.warned
        found = f"checks failed: {failed}, warnings: {warned}" if failed or warned else "nothing is wrong"
        return found + (f", not proven: {', '.join(self.found.unproven)}" if self.found.unproven else "")

    def as_dict(self) -> dict[str, Any]:
        return {
            "identity": identity(self.facts) if self.facts else None,
            **self.found.as_dict(),
            "verdict": (verdict_of(self.stages.values()) if self.facts else Verdict.UNREAD).value,
            "stages": {name: stage.as_dict() for name, stage in self.stages.items()},
        }


def identity(facts: Facts) -> dict[str, str]:
    """Return what a host is, a line each: the system, the GPUs, what is installed for them and what uses them.

    What the facts do not tell is C(not known), with the reason where there is one; what is not there is C(none).
    """
    host, driver, toolkit = facts.host, facts.driver, facts.toolkit
    system = host.distribution
    kubelet = facts.kubelet
    runtimes, why = facts.runtimes, (facts.unknown or {}).get("driver.loaded_version")
    held = ", held" if toolkit.holds else ""
    return {
        "system": f"{system.id or _UNKNOWN} {system.version or ''} {host.architecture or ''}, "
        f"kernel {host.kernel or _UNKNOWN}, Secure Boot {_switch(host.secure_boot)}",
        "GPUs": "; ".join(_gpus(facts)) or _NONE,
        "driver": _driver(driver) + (f" ({why})" if why and not driver.loaded_version else ""),
        **_imex(facts),
        "toolkit": f"{toolkit.version}{held}" if toolkit.version else _NONE,
        "runtimes": _UNKNOWN if runtimes is None else ", ".join(_runtime(*one) for one in runtimes.items()) or _NONE,
        "MPS daemons": _count(facts.mps),
        "kubelet": _NONE if not kubelet.installed else "active" if kubelet.active else "installed, not active",
    }


def _gpus(facts: Facts) -> list[str]:
    """Return the GPUs, equal ones together; from the PCI bus where the driver does not tell."""
    gpus = facts.gpus
    if gpus is None:
        boards = [card.board or f"PCI device {card.device_id}" for card in cards_on_bus(facts)]
        return [
            f"{boards.count(board)} x {board} on the PCI bus, not seen by a driver" for board in dict.fromkeys(boards)
        ]
    alike: dict[str, list[int]] = {}
    for gpu in gpus:
        alike.setdefault(_gpu(gpu), []).append(gpu.index)
    return [f"{len(indices)} x {text} (GPU {ranges(indices)})" for text, indices in alike.items()]


def _gpu(gpu: GpuFacts) -> str:
    if gpu.lost:
        return "a GPU that fell off the bus"
    mig = gpu.mig
    instances = gpu.gpu_instances
    divided = f", MIG on with {len(instances)} GPU instances" if mig.current else ""
    used = ", in use" if users_of(gpu).everybody else ""
    return f"{gpu.name or _UNKNOWN}, {gpu.memory_mib} MiB{divided}{used}"


def _driver(driver: DriverFacts) -> str:
    loaded, on_disk = driver.loaded_version, driver.on_disk_version
    if not loaded and not on_disk:
        return _NONE
    text = f"{loaded or on_disk}{'' if loaded else ' installed, not loaded'}"
    text += f" {driver.flavour}" if driver.flavour else ""
    text += f" from {driver.source}" if driver.source else ""
    text += f"; {on_disk} is on the disk" if loaded and on_disk and on_disk != loaded else ""
    return text + (f", held: {', '.join(driver.holds)}" if driver.holds else "")


def _imex(facts: Facts) -> dict[str, str]:
    """Return the line about IMEX, which only the hosts of racks have."""
    found = facts.fabric.imex
    if found is None:
        return {}
    return {"IMEX": f"{found.version or 'not installed'}, {imex_state(found)}, {len(found.nodes or ())} nodes"}


def _runtime(name: str, runtime: RuntimeFacts) -> str:
    if name in UNCONFIGURED:
        return f"{name} with or without the runtime nvidia: not read"
    text = f"{name} {runtime.version or _UNKNOWN}"
    return text + (" with the runtime nvidia" if runtime.nvidia else " without the runtime nvidia")


def _count(found: Sequence[Any] | None) -> str:
    return _UNKNOWN if found is None else str(len(found)) if found else _NONE


def _switch(value: bool | None) -> str:
    return _UNKNOWN if value is None else "on" if value else "off"
