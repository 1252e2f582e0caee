# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of the hardware and the driver, from the PCI bus upwards. Facts: host.md, sections 4 to 6."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from .._boards.cards import cards_of_machines, cards_on_bus
from .._facts_view import DriverFacts
from .._gpu_facts import MemoryErrorFacts
from .._printable import amount
from .report import DRIVER_ROLE, LOAD_ON_DISK, Evidence, Outcome, failed, passed, skipped, warning


def pci(evidence: Evidence) -> Outcome:
    """The host has GPUs."""
    devices = evidence.facts.pci
    if devices is None:
        reason = _unknown(evidence, "pci")
        return warning(f"the PCI bus cannot be read: {reason}", "Run where /sys of the host is visible")
    gpus = cards_on_bus(evidence.facts)
    if not gpus:
        found = "there is no NVIDIA GPU on the PCI bus"
        return failed(found, "Check that the board is seated and powered, or take the host out of the pool")
    return passed(_counted(device.board or device.device_id for device in gpus))


def driver(evidence: Evidence) -> Outcome:
    """The driver is loaded, and of one version in all three places."""
    facts = evidence.facts.driver
    loaded, disk, library = facts.loaded_version, facts.on_disk_version, facts.library_version
    if loaded is None:
        return _not_loaded(facts, disk)
    differing = version_differences(facts)
    if differing:
        return failed(f"driver {loaded} is loaded, but {' and '.join(differing)} is installed", LOAD_ON_DISK)
    if library is None:
        return failed(f"driver {loaded} is loaded, but libnvidia-ml.so.1 is not installed", DRIVER_ROLE)
    text = f"{loaded}, {facts.flavour or 'unknown'} modules"
    if disk is None and not evidence.facts.host.container:
        reason = _unknown(evidence, "driver.on_disk_version")
        found = f"{text}; the module on disk is unknown: {reason}"
        return warning(found, f"The driver will not load after a reboot if there is none. {DRIVER_ROLE}")
    return passed(text)


def version_differences(driver: DriverFacts) -> list[str]:
    """Return which parts of the driver are of another version than the module that is loaded."""
    versions = {"on disk": driver.on_disk_version, "library": driver.library_version}
    loaded = driver.loaded_version
    return [f"{place} {version}" for place, version in versions.items() if version and version != loaded]


def _not_loaded(facts: DriverFacts, disk: str | None) -> Outcome:
    if facts.nouveau_loaded:
        found = "nouveau is loaded, so the module nvidia cannot bind the GPUs"
        return failed(found, "Reboot the host: the driver's packages keep nouveau from loading")
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
        found = f"nvidia-smi did not answer: {answer.text}"
        return failed(found, "Look for a GPU that hangs in the kernel's log (NVRM), then drain and reboot the host")
    return judge_exit_status(answer.rc, answer.text)


def nvml(evidence: Evidence) -> Outcome:
    """NVML answers and sees every GPU that is on the PCI bus."""
    facts = evidence.facts.nvml
    if not facts.available:
        return failed(str(facts.reason or "NVML does not answer").rstrip("."), DRIVER_ROLE)
    gpus = evidence.facts.gpus or ()
    lost = [gpu.pci_address or f"GPU {gpu.index}" for gpu in gpus if gpu.lost]
    if lost:
        return failed(f"NVML cannot reach {', '.join(lost)}", _FALLEN)
    visible = {gpu.pci_address for gpu in gpus}
    missing = [device.address for device in cards_on_bus(evidence.facts) if device.address not in visible]
    if missing:
        bound = {device.address: device.kernel_driver for device in cards_on_bus(evidence.facts)}
        others = sorted({str(bound[address]) for address in missing if bound[address] not in (None, "nvidia")})
        if others:
            remedy = f"Give the GPUs back to the driver nvidia: unbind them from {', '.join(others)} and reboot"
            return failed(f"NVML does not see {', '.join(missing)}, bound to {', '.join(others)}", remedy)
        codes = (evidence.facts.health.not_initialized if evidence.facts.health else None) or {}
        logged = [f"{address} (RmInitAdapter failed: {codes[address]})" for address in missing if address in codes]
        if logged:
            return failed(f"the driver cannot initialize {', '.join(logged)}", _NOT_INITIALIZED)
        return failed(f"NVML does not see {', '.join(missing)}", _FALLEN)
    if not gpus:
        return failed("NVML sees no GPU", _FALLEN)
    given = cards_of_machines(evidence.facts)
    machines = f"; virtual machines have {len(given)} more" if given else ""
    return passed(f"NVML sees {amount(len(gpus), 'GPU')}{machines}")


_NOT_INITIALIZED = "Drain and power-cycle the host, check the seating and the power cables of the board, and try another driver; if it stays, replace it"
_FALLEN = "Look for Xid 79 and NVRM messages in the kernel's log, then drain and power-cycle the host"


def persistence(evidence: Evidence) -> Outcome:
    """Persistence mode is on, so that the driver keeps its state while nobody uses a GPU."""
    gpus = evidence.facts.gpus or ()
    off = [str(gpu.index) for gpu in gpus if gpu.persistence_mode is False]
    daemon = evidence.facts.driver.persistence_daemon.active
    if not off:
        return passed(
            f"on for {amount(len(gpus), 'GPU')}" if any(gpu.persistence_mode for gpu in gpus) else "not reported"
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
    for gpu in evidence.facts.gpus or []:
        errors = gpu.errors
        reported = reported or errors != MemoryErrorFacts()
        if errors.remap_failed:
            bad.append(f"GPU {gpu.index} has no spare memory rows left")
        if errors.remap_pending:
            pending.append(f"GPU {gpu.index} has memory to be replaced at its next reset")
        if errors.uncorrected:
            pending.append(f"GPU {gpu.index} had {errors.uncorrected} uncorrected memory errors")
    if bad:
        return failed("; ".join(bad + pending), "Drain the host and have the board replaced")
    if pending:
        remedy = "Drain the host and reset the GPUs or reboot; if it recurs, replace the board"
        return warning("; ".join(pending), remedy)
    if not reported:
        return skipped("the boards do not report memory errors")
    return passed("no memory error")


def _unknown(evidence: Evidence, path: str) -> str:
    return str((evidence.facts.unknown or {}).get(path, "no reason given"))


def _counted(names: Any) -> str:
    return ", ".join(f"{count} x {name}" for name, count in sorted(Counter(map(str, names)).items()))


#: What nvidia-smi's exit statuses mean (NVIDIA's troubleshooting page; host.md, section 5.2), and what to do. Anything but 0 is a failure: 14 is
#: called a warning by NVIDIA, but such a board is not to be relied on.
EXIT_STATUSES = {
    2: ("an argument was not accepted", "Install nvidia-smi of the same version as the driver"),
    3: ("the query is not available on this board", "Check that the driver supports this board"),
    4: ("permission was refused", "Run as root and check the owner and mode of /dev/nvidia*"),
    6: ("a query found nothing", "Look for a GPU that is missing or lost in the kernel's log"),
    8: ("a power cable is not connected", "Connect the board's external power cables"),
    9: ("the driver is not loaded", f"{DRIVER_ROLE}, or load the module nvidia"),
    10: ("the driver has an interrupt problem with a GPU", "Look for NVRM messages in the kernel's log"),
    12: ("libnvidia-ml.so.1 was not found", DRIVER_ROLE),
    13: (
        "libnvidia-ml.so.1 lacks a function that nvidia-smi needs",
        "Install the library and nvidia-smi of the same version",
    ),
    14: ("the infoROM of a board is corrupt", "Have the board replaced"),
    15: ("a GPU has fallen off the bus", "Drain and power-cycle the host; if it recurs, replace the board"),
    255: ("an internal error occurred", "Look for NVRM messages in the kernel's log"),
}
_UNDOCUMENTED = ("a status that NVIDIA does not document", EXIT_STATUSES[255][1])
_MISMATCH = "driver/library version mismatch"


def judge_exit_status(rc: int, text: str) -> Outcome:
    """Return what an exit status of nvidia-smi says about the host. C(text): what it printed; its messages are on standard output."""
    if rc == 0:
        return passed("nvidia-smi ended with 0")
    said = next((line.strip() for line in text.splitlines() if line.strip()), "")
    quoted = f" ({said.rstrip('.')})" if said else ""
    if _MISMATCH in text.lower():
        return failed(f"nvidia-smi ended with {rc}: driver and library are of different versions{quoted}", LOAD_ON_DISK)
    meaning, next_step = EXIT_STATUSES.get(rc, _UNDOCUMENTED)
    return failed(f"nvidia-smi ended with {rc}: {meaning}{quoted}", next_step)


_KEEP = "or make the running kernel the default (grub-set-default or grubby --set-default)"
_BUILD = f"Build it (install the kernel's headers, then dkms autoinstall, or run gpufleet.nvidia.site), {_KEEP}"
# dkms install does not sign a module anew that is built already, not even with --force.
_SIGN = (
    "Enrol the key (mokutil --import) or build the module again with the one that is enrolled (dkms build --force, then dkms install --force), "
    f"{_KEEP}"
)
_SHOW = f"Install the packages mokutil and kmod, which show it, {_KEEP}"


def module_problem(driver: DriverFacts) -> tuple[str, str] | None:
    """Return why the kernel that is booted next could not load the driver that the running one has on the disk, and the remedy; None where it could."""
    found, on_disk = driver.next_kernel, driver.on_disk_version
    if not found or on_disk is None:
        return None
    release, version, built_for = found.release, found.version, found.vermagic
    if version is None:
        return f"the kernel {release} is booted next and has no module of the driver", _BUILD
    if version != on_disk:
        return f"the kernel {release} is booted next with driver {version}, not {on_disk}", _BUILD
    if built_for is not None and built_for != release:
        return f"the kernel {release} is booted next, and its module of the driver was built for {built_for}", _BUILD
    if not found.says("key_enrolled") or found.key_enrolled:
        return None
    module = f"the kernel {release} is booted next, Secure Boot is on, and its module of the driver"
    if found.signer is None:
        return f"{module} is not signed", _SIGN
    if found.key_enrolled is None:
        return f"{module} is signed with a key of which is not known whether it is enrolled", _SHOW
    return f"{module} is signed with the key of {found.signer or 'an unnamed signer'}, which is not enrolled", _SIGN


def next_kernel(evidence: Evidence) -> Outcome:
    """The kernel that is booted next can load the module of the driver that is on the disk for the running one."""
    driver = evidence.facts.driver
    found = driver.next_kernel
    if not found:
        return skipped("no other kernel is booted next, as far as the host's files show")
    if driver.on_disk_version is None:
        return skipped("there is no driver on the disk for the running kernel")
    problem = module_problem(driver)
    if problem:
        reason, remedy = problem
        return failed(reason, f"{remedy}. Do not reboot before that")
    return passed(f"{found.release} has driver {found.version}")


#: What the facts call it where the driver asks for nothing.
NO_RECOVERY = "none"


@dataclass(frozen=True)
class Recovery:
    """A recovery action in words. C(asked): what the driver asks for, as the end of a sentence. C(remedy): what to do."""

    asked: str
    remedy: str


#: By the name in the facts.
RECOVERIES = {
    "gpu_reset": Recovery("a reset", "Drain the host and reset the GPU (nvidia-smi --gpu-reset -i INDEX)"),
    "node_reboot": Recovery("a reboot of the host", "Drain and reboot the host"),
    "drain_p2p": Recovery(
        "the end of peer-to-peer traffic", "Stop the programs that use several GPUs over NVLink; then check again"
    ),
    "drain_and_reset": Recovery(
        "a drain and a reset",
        "Start no new program on the GPU, wait until those on it have ended, and reset it (nvidia-smi --gpu-reset -i INDEX)",
    ),
    "recover_imex_domain": Recovery(
        "the recovery of its IMEX domain", "Restart nvidia-imex on the nodes of the IMEX domain"
    ),
    "bus_reset": Recovery("a reset of its PCI bus", "Drain the host and reset the GPU's PCI bus, or reboot the host"),
    "system_reboot": Recovery("a reboot of the whole system", "Drain and reboot the host, with its baseboard"),
}
_UNKNOWN_RECOVERY = Recovery(
    "something that this release does not know",
    "Look at 'GPU Recovery Action' in the output of 'nvidia-smi -q', and do not use the GPU before that is done",
)


def recovery_of(name: str) -> Recovery:
    """Return the recovery action C(name), which is not C(none); a name that is not known still asks for something."""
    return RECOVERIES.get(name, _UNKNOWN_RECOVERY)


def recovery(evidence: Evidence) -> Outcome:
    """No GPU waits for a recovery that its driver asks for."""
    gpus = evidence.facts.gpus or ()
    reported = {gpu.index: str(gpu.recovery_action) for gpu in gpus if gpu.recovery_action}
    wanted = {index: name for index, name in reported.items() if name != NO_RECOVERY}
    if wanted:
        texts = [f"GPU {index} asks for {recovery_of(name).asked} ({name})" for index, name in wanted.items()]
        steps: dict[str, list[int]] = {}
        for index, name in wanted.items():
            steps.setdefault(recovery_of(name).remedy, []).append(index)
        remedies = [f"GPU {', '.join(map(str, indexes))}: {remedy}" for remedy, indexes in steps.items()]
        return failed("; ".join(texts), ". ".join(remedies))
    if not reported:
        return skipped("neither the driver nor the boards report recovery actions")
    return passed(f"none is needed on {amount(len(reported), 'GPU')}")
