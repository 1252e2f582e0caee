# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The check of the NVLink fabric: its manager, and what each GPU says of its state, its registration and its health.

Facts: host.md, section 6; gpu-driver-container, nvidia-driver, for NVLink 5.
"""

from __future__ import annotations

from collections.abc import Sequence

from .._boards.board import NVLINK5, SWITCHES_IN_RACK
from .._boards.cards import own_switches
from .._boards.lookup import nvlink5_switches
from .._facts_view import FabricFacts, Facts, ImexFacts
from .._formats.imex import DesiredImex, differences
from .._gpu_facts import GpuFacts
from .report import DRIVER_ROLE, Evidence, Outcome, failed, passed, skipped, warning

#: What is wrong with a GPU that still computes, more slowly or with less room.
_BEARABLE = frozenset(("degraded_bandwidth", "route_recovery", "access_timeout_recovery"))
_LOG = "/var/log/fabricmanager.log"
#: NVML's return codes in words (nvmlReturn_t of nvml.h): the status of a registration that has ended is one of them.
_STATUSES = {
    1: "NVML was not initialised",
    2: "an argument is invalid",
    3: "not supported",
    4: "no permission",
    6: "not found",
    7: "the buffer is too small",
    9: "the driver is not loaded",
    10: "it timed out",
    15: "the GPU is lost",
    16: "the GPU needs a reset",
    17: "the operating system refused it",
    18: "driver and library have different versions",
    19: "in use",
    20: "not enough memory",
    23: "not enough resources",
    27: "the system is not ready",
    28: "the GPU was not found",
    29: "invalid state",
    999: "an error that the driver does not name",
}
_NVLINK5 = (
    "Check that the modules mlx5_core, mlx5_ib and ib_umad are loaded and that nvlsm runs; then look into "
    f"{_LOG} and the journal of nvidia-fabricmanager.service"
)
#: The switch trays have an operating system of their own, in which the fabric manager and the subnet manager run (NVIDIA's NVOS manual).
_RACK = (
    "Look into the fabric manager of the rack, which runs on its switch trays, for this host; once the rack's fabric is healthy, drain the host and "
    "reset its GPUs, or reboot it"
)
#: That no NVSwitch is on the bus proves nothing: it is the same with boards of NVLink 5 that the table lacks, and in a virtual machine.
_ELSEWHERE = (
    "No NVSwitch is visible on the host, so it is not known where its fabric is managed: look into the fabric manager of this host "
    "(nvidia_driver_fabric_manager=always installs it), of the host that this virtual machine is on, or of the rack"
)


def fabric(evidence: Evidence) -> Outcome:
    """On a host with NVLink switches the fabric manager runs, at the driver's version, and every GPU is on the fabric and healthy there. A host of a
    rack has no switches of its own; its IMEX is of the driver's version, and runs where it is enabled. Where no switches are known and the driver
    tells of a fabric nevertheless, its GPUs have to be on it, too.
    """
    facts = evidence.facts.fabric
    gpus = [gpu for gpu in evidence.facts.gpus or () if not gpu.lost]
    managed = own_switches(evidence.facts)
    boards = {card.board for card in evidence.facts.pci or ()} | {gpu.board for gpu in gpus}
    rack = SWITCHES_IN_RACK in map(nvlink5_switches, boards)
    reported = sum(1 for gpu in gpus if gpu.fabric.state)
    if not (managed or rack or reported):
        return skipped("the host has no NVSwitch")
    what = f"{facts.nvswitches} NVSwitches" if facts.nvswitches else "NVLink 5 switches"
    elsewhere = "" if managed else _RACK if rack else _ELSEWHERE
    manager = facts.manager
    wrong = _manager(evidence, what) if managed else None
    if rack:
        wrong = wrong or _imex(evidence)
    wrong = wrong or _state(facts, gpus, managed == NVLINK5, elsewhere) or _registration(gpus, elsewhere)
    if wrong is not None:
        return wrong
    degraded = _degraded(gpus)
    if degraded:
        remedy = f"Look for Xid 74 and 144 to 150, SXid errors and failed links; {_LOG} shows trunk links"
        return warning("; ".join(f"{name} in the fabric: {', '.join(found)}" for name, found in degraded), remedy)
    if not managed and not rack:
        return passed(f"{reported} GPUs are on a fabric whose switches are not visible on the host")
    if not managed:
        found = facts.imex or ImexFacts()
        running = {True: "runs", False: "does not run", None: "in an unknown state"}[found.active]
        shown = "masked" if found.masked else running
        return passed(f"{reported} GPUs are on the rack's fabric, which this host does not manage; IMEX {shown}")
    if manager.active is None:
        return warning(f"{what}; whether the fabric manager runs is unknown", "Look at nvidia-fabricmanager.service")
    return passed(f"{what}, fabric manager {manager.version or 'of unknown version'}")


def _manager(evidence: Evidence, what: str) -> Outcome | None:
    facts = evidence.facts.fabric
    manager = facts.manager
    loaded = evidence.facts.driver.loaded_version
    if not manager.installed:
        return failed(f"there are {what} but no fabric manager; CUDA will not start", DRIVER_ROLE)
    if manager.version and manager.version != loaded:
        return failed(f"the fabric manager is {manager.version}, the driver {loaded}", DRIVER_ROLE)
    if manager.active is False:
        lacking = ", ".join(facts.lacking_modules or ())
        without = f", and the kernel modules that it needs are not loaded ({lacking})" if lacking else ""
        found = f"nvidia-fabricmanager.service does not run{without}; CUDA will not start"
        return failed(found, f"{DRIVER_ROLE}, which loads them" if lacking else f"Start it; {_LOG} says why it ended")
    return None


def _imex(evidence: Evidence) -> Outcome | None:
    """Return what is wrong with IMEX, by which hosts of a rack share GPU memory: a service that starts at boot has to run with the nodes that it has."""
    found, loaded = evidence.facts.fabric.imex or ImexFacts(), evidence.facts.driver.loaded_version
    if found.version and found.version != loaded:
        return failed(f"IMEX is {found.version}, the driver {loaded}", DRIVER_ROLE)
    mode = "host" if found.enabled and not found.masked else "unmanaged"
    left = differences(found, DesiredImex(mode, found.nodes or ()))
    if not left:
        return None
    return failed("; ".join(left), f"{DRIVER_ROLE}; journalctl -u nvidia-imex says why it ended")


def is_forming(facts: Facts) -> bool:
    """Return whether GPUs are still being registered with the fabric: it takes its time after the driver or the fabric manager has started."""
    if facts.fabric.state not in ("not_started", "in_progress"):
        return False
    if own_switches(facts) is None:
        # Somebody elsewhere registers them.
        return facts.fabric.state == "in_progress"
    # Where nobody registers them there is nothing to wait for: GPUs stay in progress for as long as the fabric manager does not run.
    return facts.fabric.manager.active is True


def _state(facts: FabricFacts, gpus: Sequence[GpuFacts], nvlink5: bool, elsewhere: str) -> Outcome | None:
    """Return what is wrong with how far the GPUs are. An HGX A100 tells nothing of it, which is no fault. A GPU with NVLink 5 that tells nothing is
    not on its fabric. C(elsewhere): where the fabric is mended; empty for the host's own fabric manager.
    """
    states = {str(gpu.index): gpu.fabric.state for gpu in gpus}
    if nvlink5:
        away = {index: state for index, state in states.items() if state != "completed"}
        if away:
            texts = [f"GPU {index} is {(state or 'not on it').replace('_', ' ')}" for index, state in away.items()]
            found = f"the fabric is not complete ({', '.join(texts)}); CUDA returns error 802 until it is"
            return failed(found, _NVLINK5)
    if facts.state not in (None, "completed"):
        away = {index: state for index, state in states.items() if state not in (None, "completed")}
        named = ", ".join(f"GPU {index} is {str(state).replace('_', ' ')}" for index, state in away.items())
        named = f" ({named})" if named else ""
        found = (
            f"the fabric is {str(facts.state).replace('_', ' ')}{named}; CUDA returns error 802 until it is completed"
        )
        return failed(found, elsewhere or f"Wait a minute; then look into {_LOG}")
    return None


def _registration(gpus: Sequence[GpuFacts], elsewhere: str) -> Outcome | None:
    """Return which GPUs are not usable on the fabric although its state is completed. C(elsewhere): as of L(_state)."""
    texts = []
    for gpu in gpus:
        status = gpu.fabric.status
        if status:
            means = _STATUSES.get(status, "an error that this version does not know")
            texts.append(
                f"GPU {gpu.index} is not registered with the fabric: state completed, status {status} ({means})"
            )
        broken = [name for name in gpu.fabric.degraded or () if name not in _BEARABLE]
        summary = gpu.fabric.summary
        if summary in ("unhealthy", "unknown") or broken:
            texts.append(f"GPU {gpu.index} is {summary or 'unhealthy'} ({', '.join(broken) or 'no reason'})")
    if not texts:
        return None
    restart = f"Drain the host and restart nvidia-fabricmanager.service; then look into {_LOG}"
    return failed("; ".join(texts), elsewhere or restart)


def _degraded(gpus: Sequence[GpuFacts]) -> list[tuple[str, list[str]]]:
    found = []
    for gpu in gpus:
        limited = ["limited_capacity"] if gpu.fabric.summary == "limited_capacity" else []
        found.append((f"GPU {gpu.index}", [*(gpu.fabric.degraded or ()), *limited]))
    return [(gpu, names) for gpu, names in found if names]
