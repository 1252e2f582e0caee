# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The faults of a host, each with the smallest action that can end it, and what people should know beside them. Pure.

NVML's recovery action goes before NVIDIA's catalogue of Xid errors: the log keeps an error until the next boot, also after the GPU was reset,
while the driver takes back what it asks for once that was done. So the catalogue decides for GPUs of which the driver tells nothing, and only where
the driver shows the error in another way, too: a text alone takes no host out of service.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .._boards.cards import all_cards, own_switches
from .._facts_view import CardFacts, Facts, Sxid, Xid
from .._formats.cdi_state import cdi_of
from .._formats.host_names import CDI_UNIT, FABRIC_UNIT, MIG_UNIT, PERSISTENCE_UNIT, SETTINGS_UNIT, SHARING_UNIT
from .._gpu_facts import GpuFacts
from .._mig.state import has_mig
from .._sharing import mps_units
from . import nvlink, software
from .hardware import NO_RECOVERY, recovery_of
from .records import broken_daemons, record_differences
from .repair_record import Action, of_recovery, of_sxid, of_xid
from .report import FAILED, Evidence
from .xid import QUIET_ACTIONS, action_of, bus_address
from .xid_catalogue import CATALOGUE

#: The subject of a fault that is not of one GPU.
HOST = "host"
#: The number of the Xid that announces another recovery action.
_CHANGED_RECOVERY = 154
_SITE = "Run gpufleet.nvidia.site on this host"
_TEXT_ALONE = "The driver shows no fault beside this text in the kernel's log, so nothing is repaired; if programs fail, drain the host and do so ({})"


@dataclass(frozen=True)
class Fault:
    """Something that is wrong.

    :param subject: the PCI address of a GPU, or C(host).
    :param kind: what it is, as a word: C(recovery), C(xid_79), C(gpu_lost), C(mig), ...
    :param services: units to restart, for C(restart_service).
    :param every_gpu: whether the programs on all GPUs of the host have to end for it.
    :param remedy: what people do, where the action is theirs.
    """

    subject: str
    kind: str
    title: str
    reason: str
    action: Action
    services: tuple[str, ...] = ()
    every_gpu: bool = False
    remedy: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.subject, self.kind


@dataclass(frozen=True)
class FoundFaults:
    """What is wrong with a host. C(errors): numbers of the Xid errors behind the faults, by which hosts are compared. Also where the driver's
    recovery action or a GPU that is lost decides what is done: on many hosts at once the same error is no fault of single GPUs.
    """

    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()
    errors: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Described:
    """What a host is described with, as far as a repair can end that it differs: a driver of another version than described is not broken."""

    gpus: int | None = None
    cdi: bool = False


def find_faults(evidence: Evidence, described: Described, dealt_with: Sequence[str] = ()) -> FoundFaults:
    """Return the faults of a host. C(dealt_with): errors of this boot after which the host was repaired, as L(error_key) writes them."""
    found = (
        *_driver(evidence),
        *_nvml(evidence),
        *_bus(evidence, described.gpus),
        *_gpus(evidence),
        *_xids(evidence, dealt_with),
        *_sxids(evidence, dealt_with),
        *_fabric(evidence),
        *_services(evidence, described),
    )
    return FoundFaults(
        tuple(one for one in found if isinstance(one, Fault)),
        tuple(dict.fromkeys(one for one in found if isinstance(one, str))),
        _serious(evidence, dealt_with),
    )


def error_key(error: Xid | Sxid) -> str:
    """Return an error of the kernel's log as one line, by which it is known again."""
    kind = "SXid" if isinstance(error, Sxid) else "Xid"
    return f"{kind} {error.number} {error.pci_address} {error.text}"[:1000]


def logged(evidence: Evidence) -> tuple[str, ...]:
    """Return the keys of all errors that the log of this boot has."""
    errors: list[Xid | Sxid] = [*(evidence.xids or ()), *(evidence.sxids or ())]
    return tuple(dict.fromkeys(error_key(error) for error in errors))


def _serious(evidence: Evidence, dealt_with: Sequence[str]) -> frozenset[int]:
    """Return the numbers of the new errors that ask for something; the announcement of a recovery follows errors of all kinds."""
    return frozenset(
        error.number
        for error in evidence.xids or ()
        if error.number != _CHANGED_RECOVERY
        and of_xid(error) is not Action.NOTHING
        and error_key(error) not in dealt_with
    )


def _driver(evidence: Evidence) -> Iterator[Fault | str]:
    facts = evidence.facts.driver
    loaded, disk, library = facts.loaded_version, facts.on_disk_version, facts.library_version
    if loaded is None:
        if facts.nouveau_loaded:
            yield _host("driver", "nouveau is loaded in place of the driver", Action.REBOOT)
        elif disk is None:
            yield f"no driver is installed for the running kernel. {_SITE}"
        else:
            yield _host("driver", f"driver {disk} is on disk and not loaded", Action.RELOAD_DRIVER)
    elif disk and disk != loaded:
        if library in (None, disk):
            yield _host("driver", f"driver {loaded} is loaded, and {disk} is installed", Action.RELOAD_DRIVER)
        else:
            yield f"driver {loaded} is loaded, and module {disk} and library {library} are installed. {_SITE}"
    elif library and library != loaded:
        yield f"driver {loaded} is loaded, and library {library} is installed, without its module. {_SITE}"


def _nvml(evidence: Evidence) -> Iterator[Fault | str]:
    nvml = evidence.facts.nvml
    code = nvml.code
    if not nvml.available and code in ("no_answer", "unknown"):
        yield _host("nvml", f"NVML does not answer: {nvml.reason or 'no reason is given'}", Action.REBOOT)
    elif evidence.nvidia_smi is not None and evidence.nvidia_smi.rc is None:
        yield _host("nvidia_smi", f"nvidia-smi does not return: {evidence.nvidia_smi.text}", Action.REBOOT)


def _bus(evidence: Evidence, gpus: int | None) -> Iterator[Fault | str]:
    on_bus = all_cards(evidence.facts)
    if evidence.facts.pci is not None and gpus is not None and len(on_bus) < gpus:
        remedy = "Power-cycle the host; check that the board is seated and powered"
        yield _host("gpu_missing", f"the PCI bus shows {len(on_bus)} of {gpus} GPUs", Action.REBOOT, remedy=remedy)
    for device in _unseen(evidence):
        if _is_taken(device):
            yield f"GPU {device.address} is bound to {device.kernel_driver}, so the driver does not see it"
        else:
            yield _lost(device.address, f"GPU {device.address}", "NVML does not see it")


def _unseen(evidence: Evidence) -> list[CardFacts]:
    """Return the GPUs on the bus that NVML does not tell of; of one that fell off the bus it does not tell the address."""
    gpus = evidence.facts.gpus
    if gpus is None:
        return []
    seen = {gpu.pci_address for gpu in gpus}
    return [device for device in all_cards(evidence.facts) if device.address not in seen]


def _is_taken(device: CardFacts) -> bool:
    """Whether another driver has a GPU, such as vfio-pci for a virtual machine."""
    return device.kernel_driver not in (None, "nvidia")


def _gpus(evidence: Evidence) -> Iterator[Fault | str]:
    unseen = any(not _is_taken(device) for device in _unseen(evidence))
    for gpu in evidence.facts.gpus or ():
        subject, title = subject_of(gpu), gpu.title
        if gpu.lost:
            # Without an address it is one of those that the bus shows and NVML does not see, and a fault already.
            if gpu.pci_address or not unseen:
                yield _lost(subject, title, "it fell off the bus")
            continue
        asked = gpu.recovery_action
        action = of_recovery(asked or NO_RECOVERY)
        if asked and asked != NO_RECOVERY:
            recovery = recovery_of(asked)
            reason = f"its driver asks for {recovery.asked} ({asked})"
            remedy = recovery.remedy if action is Action.HAND_OVER else ""
            yield Fault(subject, "recovery", title, reason, action, every_gpu=action is Action.DRAIN, remedy=remedy)
        if gpu.errors.remap_failed:
            reason = "it has no spare memory rows left"
            yield Fault(subject, "memory", title, reason, Action.HAND_OVER, remedy="Have the board replaced")
        elif gpu.errors.remap_pending:
            yield f"{title} replaces bad memory at its next reset; it can be used until then"


def _xids(evidence: Evidence, dealt_with: Sequence[str]) -> Iterator[Fault | str]:
    gpus = {bus_address(gpu.pci_address): gpu for gpu in evidence.facts.gpus or ()}
    dropped = {address for address, gpu in gpus.items() if gpu.lost}
    dropped.update(bus_address(device.address) for device in _unseen(evidence) if not _is_taken(device))
    found: dict[tuple[str, int], tuple[Xid, Action]] = {}
    for error in evidence.xids or ():
        action = of_xid(error)
        if action_of(error) in QUIET_ACTIONS and action is Action.NOTHING:
            continue
        key = (error.pci_address.lower(), error.number)
        if error_key(error) not in dealt_with and (key not in found or action.rank > found[key][1].rank):
            found[key] = (error, action)
    for (address, number), (error, action) in sorted(found.items()):
        gpu = gpus.get(address)
        entry = CATALOGUE.get(number)
        reason = f"Xid {number} ({entry.description})" if entry else f"Xid {number}, which NVIDIA's catalogue lacks"
        title = gpu.title if gpu else f"GPU {error.pci_address}"
        has_action = bool(gpu and gpu.recovery_action)
        if has_action and number != _CHANGED_RECOVERY:
            yield f"{title} had {reason}; its driver's recovery action says what has to be done"
        elif has_action or address in dropped:
            continue
        elif action is Action.NOTHING:
            yield f"{title} had {reason}, for which NVIDIA's catalogue names no action that can be taken here"
        elif gpu and _shown(evidence, gpu):
            remedy = "Ask the vendor of the board, with the bundle" if action is Action.HAND_OVER else ""
            yield Fault(subject_of(gpu), f"xid_{number}", title, reason, action, remedy=remedy)
        else:
            yield f"{title} had {reason}. {_TEXT_ALONE.format(action.value)}"


def _shown(evidence: Evidence, gpu: GpuFacts) -> bool:
    """Whether the driver shows an error of a GPU in another way than by its text in the log."""
    errors = gpu.errors
    return (
        (evidence.nvidia_smi is not None and evidence.nvidia_smi.rc != 0)
        or gpu.recovery_action not in (None, NO_RECOVERY)
        or bool(gpu.fabric.degraded)
        or bool(errors.uncorrected or errors.remap_pending or errors.remap_failed)
    )


def _sxids(evidence: Evidence, dealt_with: Sequence[str]) -> Iterator[Fault | str]:
    shown = nvlink.fabric(evidence).status == FAILED or any(_shown(evidence, gpu) for gpu in evidence.facts.gpus or ())
    for error in dict.fromkeys(evidence.sxids or ()):
        action = of_sxid(error)
        if action is Action.NOTHING or error_key(error) in dealt_with:
            continue
        reason = f"the NVSwitch {error.pci_address} had SXid {error.number} ({error.text or 'no text'})"
        if shown:
            yield _host(f"sxid_{error.number}", reason, action, every_gpu=True)
        else:
            yield f"{reason}. {_TEXT_ALONE.format(action.value)}"


def _fabric(evidence: Evidence) -> Iterator[Fault | str]:
    outcome = nvlink.fabric(evidence)
    if outcome.status != FAILED or evidence.facts.driver.loaded_version is None:
        return
    facts = evidence.facts.fabric
    manager = facts.manager
    loaded = evidence.facts.driver.loaded_version
    running = manager.active is not False
    startable = running or (own_switches(evidence.facts) and not facts.lacking_modules)
    if not manager.installed or manager.version not in (None, loaded) or not startable:
        yield f"{outcome.evidence}. {outcome.next_step}"
        return
    # By default CUDA programs end when the fabric manager does (ABORT_CUDA_JOBS_ON_FM_EXIT in fabricmanager.cfg; Fabric Manager User
    # Guide). Where it does not run there is nobody left to disturb.
    yield _restart("fabric", outcome.evidence, FABRIC_UNIT, every_gpu=running)


def _services(evidence: Evidence, described: Described) -> Iterator[Fault | str]:
    """What is brought back by the services that bring it back at boot. None of them takes an instance away that somebody uses."""
    facts = evidence.facts
    daemon = facts.driver.persistence_daemon
    off = [gpu for gpu in facts.gpus or () if gpu.persistence_mode is False]
    if off and daemon.installed and daemon.active is False:
        yield _restart("persistence", "the persistence daemon does not run", PERSISTENCE_UNIT)
    if facts.gpus is None:
        return
    differs = record_differences(facts)
    divided = facts.recorded.mig is not None
    mig, cdi = _mig(facts) or differs.get("mig", ""), _cdi(facts, described)
    if mig and divided:
        yield _restart("mig", mig, MIG_UNIT, CDI_UNIT)
    elif mig:
        yield f"MIG: {mig}. {_SITE}"
    elif cdi and divided:
        yield _restart("cdi", cdi, CDI_UNIT)
    elif cdi:
        yield f"CDI: {cdi}. {_SITE}"
    if differs.get("settings"):
        yield _restart("settings", differs["settings"], SETTINGS_UNIT)
    yield from _sharing(evidence, differs.get("sharing", ""))
    if differs.get("compute_mode"):
        yield _restart("compute_mode", differs["compute_mode"], SHARING_UNIT)


def _mig(facts: Facts) -> str:
    """Return which change of MIG is not finished, or an empty string."""
    modes = [(gpu, gpu.mig) for gpu in facts.gpus or () if has_mig(gpu)]
    pending = [gpu.title for gpu, mode in modes if mode.current != mode.pending]
    if pending:
        return f"a change of MIG mode is pending on {', '.join(pending)}"
    unfinished = modes and facts.recorded.mig_unfinished
    return "the last change of MIG on this host was cut off before its end" if unfinished else ""


def _cdi(facts: Facts, described: Described) -> str:
    """Return what is wrong with the CDI specification, which is written anew at boot."""
    if not (described.cdi or facts.cdi):
        return ""
    stale = cdi_of(facts).stale
    return f"its CDI specification: {stale}" if stale else ""


def _sharing(evidence: Evidence, differs: str) -> Iterator[Fault | str]:
    outcome = software.mps(evidence)
    reason = outcome.evidence if outcome.status == FAILED else differs
    if not reason:
        return
    names = broken_daemons(evidence.facts)
    if not names:
        yield f"MPS: {reason}. {_SITE}"
        return
    clients = any(daemon.servers or daemon.clients for daemon in evidence.facts.mps or ())
    # A daemon that is restarted ends its clients.
    yield _restart("mps", reason, *map(mps_units.instance, names), every_gpu=clients)


def subject_of(gpu: GpuFacts) -> str:
    """Return by what a GPU is known over resets and boots: its PCI address."""
    return gpu.pci_address or f"GPU {gpu.index}"


def _lost(subject: str, title: str, reason: str) -> Fault:
    remedy = "Power-cycle the host; if it recurs, have the board replaced"
    return Fault(subject, "gpu_lost", title, reason, Action.REBOOT, remedy=remedy)


def _host(kind: str, reason: str, action: Action, every_gpu: bool = False, remedy: str = "") -> Fault:
    return Fault(HOST, kind, "the host", reason, action, every_gpu=every_gpu, remedy=remedy)


def _restart(kind: str, reason: str, *services: str, every_gpu: bool = False) -> Fault:
    return Fault(HOST, kind, "the host", reason, Action.RESTART_SERVICE, services, every_gpu)
