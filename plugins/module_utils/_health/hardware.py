# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of the hardware and the driver: PCI bus, driver versions, nvidia-smi, NVML, persistence, memory.

Facts: host.md, sections 4 to 6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from .._boards.lookup import cards_on_bus
from .exit_statuses import judge_exit_status
from .report import DRIVER_ROLE, LOAD_ON_DISK, Evidence, Outcome, failed, passed, skipped, warning


def pci(evidence: Evidence) -> Outcome:
    """The host has GPUs."""
    devices = evidence.facts.get("pci")
    if devices is None:
        reason = _unknown(evidence, "pci")
        return warning(f"the PCI bus cannot be read: {reason}", "Run where /sys of the host is visible")
    gpus = cards_on_bus(evidence.facts)
    if not gpus:
        return failed(
            "there is no NVIDIA GPU on the PCI bus",
            "Check that the board is seated and powered, or take the host out of the pool",
        )
    return passed(_counted(device.get("board") or device.get("device_id") for device in gpus))


def driver(evidence: Evidence) -> Outcome:
    """The driver is loaded, and of one version in all three places."""
    facts = evidence.facts.get("driver") or {}
    loaded, disk, library = (facts.get(f"{place}_version") for place in ("loaded", "on_disk", "library"))
    if loaded is None:
        return _not_loaded(facts, disk)
    differing = version_differences(facts)
    if differing:
        return failed(
            f"driver {loaded} is loaded, but {' and '.join(differing)} is installed",
            LOAD_ON_DISK,
        )
    if library is None:
        return failed(f"driver {loaded} is loaded, but libnvidia-ml.so.1 is not installed", DRIVER_ROLE)
    text = f"{loaded}, {facts.get('flavour') or 'unknown'} modules"
    if disk is None and not (evidence.facts.get("host") or {}).get("container"):
        reason = _unknown(evidence, "driver.on_disk_version")
        return warning(
            f"{text}; the module on disk is unknown: {reason}",
            f"The driver will not load after a reboot if there is none. {DRIVER_ROLE}",
        )
    return passed(text)


def version_differences(driver: Mapping[str, Any]) -> list[str]:
    """Return which parts of the driver are of another version than the module that is loaded.

    :param driver: the part C(driver) of the facts.
    """
    versions = {"on disk": driver.get("on_disk_version"), "library": driver.get("library_version")}
    loaded = driver.get("loaded_version")
    return [f"{place} {version}" for place, version in versions.items() if version and version != loaded]


def _not_loaded(facts: Mapping[str, Any], disk: str | None) -> Outcome:
    if facts.get("nouveau_loaded"):
        return failed(
            "nouveau is loaded, so the module nvidia cannot bind the GPUs",
            "Reboot the host: the driver's packages keep nouveau from loading",
        )
    if disk is None:
        return failed("no driver is installed for the running kernel", DRIVER_ROLE)
    return failed(
        f"driver {disk} is on disk but not loaded",
        f"{DRIVER_ROLE}, or load the module nvidia. With Secure Boot, check that the key it is signed with is enrolled",
    )


def nvidia_smi(evidence: Evidence) -> Outcome:
    """nvidia-smi answers and ends with 0."""
    answer = evidence.nvidia_smi
    if answer is None:
        return warning("nvidia-smi is not installed", "Install it with the driver: the kubelet's validators run it")
    if answer.rc is None:
        return failed(
            f"nvidia-smi did not answer: {answer.text}",
            "Look for a GPU that hangs in the kernel's log (NVRM), then drain and reboot the host",
        )
    return judge_exit_status(answer.rc, answer.text)


def nvml(evidence: Evidence) -> Outcome:
    """NVML answers and sees every GPU that is on the PCI bus."""
    facts = evidence.facts.get("nvml") or {}
    if not facts.get("available"):
        return failed(str(facts.get("reason") or "NVML does not answer").rstrip("."), DRIVER_ROLE)
    gpus = evidence.facts.get("gpus") or []
    lost = [gpu.get("pci_address") or f"GPU {gpu['index']}" for gpu in gpus if gpu.get("lost")]
    if lost:
        return failed(f"NVML cannot reach {', '.join(lost)}", _FALLEN)
    visible = {gpu.get("pci_address") for gpu in gpus}
    missing = [device["address"] for device in cards_on_bus(evidence.facts) if device["address"] not in visible]
    if missing:
        bound = {device["address"]: device.get("kernel_driver") for device in cards_on_bus(evidence.facts)}
        others = sorted({str(bound[address]) for address in missing if bound[address] not in (None, "nvidia")})
        if others:
            return failed(
                f"NVML does not see {', '.join(missing)}, bound to {', '.join(others)}",
                f"Give the GPUs back to the driver nvidia: unbind them from {', '.join(others)} and reboot",
            )
        return failed(f"NVML does not see {', '.join(missing)}", _FALLEN)
    if not gpus:
        return failed("NVML sees no GPU", _FALLEN)
    return passed(f"NVML sees {len(gpus)} GPUs")


_FALLEN = "Look for Xid 79 and NVRM messages in the kernel's log, then drain and power-cycle the host"


def persistence(evidence: Evidence) -> Outcome:
    """Persistence mode is on, so that the driver keeps its state while nobody uses a GPU."""
    gpus = evidence.facts.get("gpus") or []
    off = [str(gpu["index"]) for gpu in gpus if gpu.get("persistence_mode") is False]
    daemon = ((evidence.facts.get("driver") or {}).get("persistence_daemon") or {}).get("active")
    if not off:
        return passed(
            f"on for {len(gpus)} GPUs" if any(gpu.get("persistence_mode") for gpu in gpus) else "not reported"
        )
    text = f"persistence mode is off on GPU {', '.join(off)}"
    step = (
        "Restart nvidia-persistenced.service; on Ubuntu its unit is started with --no-persistence-mode"
        if daemon
        else f"Start nvidia-persistenced.service. {DRIVER_ROLE}"
    )
    return warning(text, step)


def memory(evidence: Evidence) -> Outcome:
    """No GPU waits for a reset to replace bad memory."""
    bad: list[str] = []
    pending: list[str] = []
    reported = False
    for gpu in evidence.facts.get("gpus") or []:
        errors = gpu.get("errors") or {}
        reported = reported or any(value is not None for value in errors.values())
        if errors.get("remap_failed"):
            bad.append(f"GPU {gpu['index']} has no spare memory rows left")
        if errors.get("remap_pending"):
            pending.append(f"GPU {gpu['index']} has memory to be replaced at its next reset")
        if errors.get("uncorrected"):
            pending.append(f"GPU {gpu['index']} had {errors['uncorrected']} uncorrected memory errors")
    if bad:
        return failed("; ".join(bad + pending), "Drain the host and have the board replaced")
    if pending:
        return warning(
            "; ".join(pending), "Drain the host and reset the GPUs or reboot; if it recurs, replace the board"
        )
    if not reported:
        return skipped("the boards do not report memory errors")
    return passed("no memory error")


def _unknown(evidence: Evidence, path: str) -> str:
    return str((evidence.facts.get("unknown") or {}).get(path, "no reason given"))


def _counted(names: Any) -> str:
    counts: Mapping[str, int] = Counter(str(name) for name in names)
    parts: Sequence[str] = [f"{count} x {name}" for name, count in sorted(counts.items())]
    return ", ".join(parts)
