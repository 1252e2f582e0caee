# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of what makes GPUs usable by containers: toolkit, runtime, CDI, MIG, sharing.

Facts: host.md, sections 7 to 9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._adapters.cdi_specifications import GPU_KIND
from .._formats.mps_commands import limit_text
from .._mig import record
from .._mig import state as mig_state
from .._runtime.desired import DesiredRuntime
from .._runtime.stage import steps_from_facts
from .._sharing import mps_units
from .._sharing.host import Daemon, HostSharing
from .._steps import gpu_title
from .report import Evidence, Expectation, Outcome, failed, passed, skipped, warning
from .settings import setting_differences

_TOOLKIT_ROLE = "Run gpufleet.nvidia.site (role nvidia_toolkit)"
_MIG_ROLE = "Run gpufleet.nvidia.site (role nvidia_mig)"
_SHARING_ROLE = "Run gpufleet.nvidia.site (role nvidia_sharing)"
_WHO_CHANGES_MPS = "Every client of a daemon can change its limits: see the README of that role"
_REFRESH = "Restart gpufleet-cdi.service, or run nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml"


def toolkit(evidence: Evidence, expectation: Expectation) -> Outcome:
    """The NVIDIA container toolkit is installed, at the version that is wanted."""
    version = (evidence.facts.get("toolkit") or {}).get("version")
    if version is None:
        if expectation.toolkit_version is None and expectation.runtime is None:
            return skipped("no container toolkit is installed, and none is expected")
        return failed("the container toolkit is not installed", _TOOLKIT_ROLE)
    if expectation.toolkit_version and version != expectation.toolkit_version:
        return failed(f"version {version} is installed, {expectation.toolkit_version} is expected", _TOOLKIT_ROLE)
    return passed(version)


def runtime(evidence: Evidence, expectation: Expectation) -> Outcome:
    """The container runtime runs and knows the NVIDIA runtime, or injects GPUs by CDI."""
    runtimes = evidence.facts.get("runtimes") or {}
    name = expectation.runtime or _only_active(runtimes)
    if name is None:
        return skipped("no container runtime is expected, and no single one runs")
    facts = runtimes.get(name)
    if facts is None:
        return failed(f"{name} is not installed", f"Install {name}, or correct nvidia_toolkit_runtime")
    if facts.get("active") is False:
        return failed(f"{name} does not run", f"Start {name} and look into its journal")
    if facts.get("nvidia") is None:
        reason = (evidence.facts.get("unknown") or {}).get(f"runtimes.{name}.nvidia", "no reason given")
        return failed(f"the configuration of {name} is unknown: {reason}", _TOOLKIT_ROLE)
    if not facts.get("nvidia"):
        if expectation.runtime is None:
            return skipped(f"{name} runs without the NVIDIA runtime, and no runtime is expected")
        if facts.get("cdi") and expectation.cdi:
            return passed(f"{name} {facts.get('version')} injects GPUs by CDI")
        return failed(f"{name} does not know the runtime nvidia", _TOOLKIT_ROLE)
    is_default = facts.get("default_runtime") == "nvidia"
    steps = (
        steps_from_facts(name, facts, DesiredRuntime(default=is_default, enable_cdi=False))
        if expectation.runtime
        else ()
    )
    if steps:
        return failed(f"the runtime nvidia of {name} is not right: {steps[0].why}", _TOOLKIT_ROLE)
    default = "the default" if is_default else "a runtime class"
    return passed(f"{name} {facts.get('version') or 'of unknown version'}: nvidia is {default}")


def _only_active(runtimes: Mapping[str, Any]) -> str | None:
    active = [name for name, facts in runtimes.items() if facts.get("active")]
    # Docker brings a containerd, which runs containers on its own only for a kubelet.
    if set(active) == {"containerd", "docker"}:
        return "docker"
    return active[0] if len(active) == 1 else None


def cdi(evidence: Evidence, expectation: Expectation) -> Outcome:
    """The CDI specifications describe exactly the GPUs and MIG devices that there are."""
    specifications = [item for item in evidence.facts.get("cdi") or [] if item.get("kind") == GPU_KIND]
    broken = [item["path"] for item in evidence.facts.get("cdi") or [] if item.get("kind") is None]
    if broken:
        return failed(f"{', '.join(broken)} cannot be read", _REFRESH)
    if not specifications:
        if expectation.cdi:
            return failed(f"there is no CDI specification of kind {GPU_KIND}", _REFRESH)
        return skipped(f"there is no CDI specification of kind {GPU_KIND}, and none is expected")
    for item in specifications:
        if item.get("missing"):
            return failed(f"{item['path']} lacks {', '.join(item['missing'])}", _REFRESH)
        if item.get("stale"):
            return failed(f"{item['path']} names devices that do not exist: {', '.join(item['stale'])}", _REFRESH)
    return passed(", ".join(f"{item['path']}: {item.get('devices')} devices" for item in specifications))


def mig(evidence: Evidence, expectation: Expectation) -> Outcome:
    """MIG mode is as wanted and not pending, and the instances are those that are recorded."""
    gpus = [gpu for gpu in evidence.facts.get("gpus") or [] if mig_state.has_mig(gpu)]
    if not gpus:
        return skipped("no GPU has MIG")
    pending = [
        gpu_title(gpu) for gpu in gpus if (gpu.get("mig") or {}).get("current") != (gpu.get("mig") or {}).get("pending")
    ]
    if pending:
        return failed(
            f"a change of MIG mode is pending on {', '.join(pending)}", f"Reset the GPU or reboot. {_MIG_ROLE}"
        )
    if expectation.mig is not None:
        wrong = [gpu_title(gpu) for gpu in gpus if (gpu.get("mig") or {}).get("current") is not expectation.mig]
        if wrong:
            return failed(f"MIG mode is not {'on' if expectation.mig else 'off'} on {', '.join(wrong)}", _MIG_ROLE)
    if (evidence.facts.get("recorded") or {}).get("mig_unfinished"):
        return failed("the last change of MIG on this host was cut off before its end", _MIG_ROLE)
    recorded = (evidence.facts.get("recorded") or {}).get("mig")
    if recorded is None:
        return passed(f"{_layout(gpus)}; nothing is recorded")
    try:
        records = record.read_recorded_layout(recorded)
    except record.Unreadable as error:
        return failed(f"/etc/gpufleet/mig.json cannot be used: {error}", _MIG_ROLE)
    differences = _mig_differences(gpus, records)
    if differences:
        return failed("; ".join(differences), f"Restart gpufleet-mig.service, or: {_MIG_ROLE.lower()}")
    # A layout leaves the GPUs alone that it does not select: of those there is nothing to compare with.
    alone = [gpu_title(gpu) for gpu in gpus if _record_of(gpu, records) is None]
    return passed(f"{_layout(gpus)}, as recorded" + (f"; nothing is recorded of {', '.join(alone)}" if alone else ""))


def _mig_differences(gpus: Sequence[Mapping[str, Any]], records: Sequence[record.GpuRecord]) -> list[str]:
    return [text for text in (_differs(gpu, records) for gpu in gpus) if text]


def _differs(gpu: Mapping[str, Any], records: Sequence[record.GpuRecord]) -> str | None:
    wanted = _record_of(gpu, records)
    if wanted is None:
        return None
    if wanted.mig is not (gpu.get("mig") or {}).get("current"):
        return f"MIG mode of {gpu_title(gpu)} is recorded as {'on' if wanted.mig else 'off'}"
    present = record.placed(mig_state.instances_of(gpu))
    if present != wanted.instances:
        return f"{gpu_title(gpu)} has {_places(present)}, recorded is {_places(wanted.instances)}"
    return None


def _record_of(gpu: Mapping[str, Any], records: Sequence[record.GpuRecord]) -> record.GpuRecord | None:
    return record.match(records, gpu.get("uuid"), gpu.get("pci_address"), gpu.get("name"))


def _places(instances: Sequence[record.PlacedInstance]) -> str:
    return " ".join(f"{item.profile}@{item.start}" for item in instances) or "no instance"


def _layout(gpus: Sequence[Mapping[str, Any]]) -> str:
    on = sum(1 for gpu in gpus if (gpu.get("mig") or {}).get("current"))
    instances = sum(len(gpu.get("gpu_instances") or []) for gpu in gpus)
    return f"MIG mode is on for {on} of {len(gpus)} GPUs, {instances} GPU instances"


def sharing(evidence: Evidence, _expectation: Expectation) -> Outcome:
    """Every MPS daemon answers, and those that are recorded run with the settings that are recorded."""
    running = mps_of_host(evidence.facts)
    dead = [str(daemon["pid"]) for daemon in running if daemon.get("responds") is False]
    if dead:
        return failed(
            f"the MPS daemon with pid {', '.join(dead)} does not answer",
            f"Look into control.log in its log directory; restarting it ends its clients. {_SHARING_ROLE}",
        )
    recorded = (evidence.facts.get("recorded") or {}).get("sharing")
    if recorded is None:
        return passed(f"{len(running)} MPS daemons answer") if running else skipped("no sharing is recorded")
    try:
        wanted = HostSharing.from_dict(recorded)
    except (KeyError, TypeError, ValueError) as error:
        return failed(f"/etc/gpufleet/sharing.json cannot be used: {type(error).__name__}: {error}", _SHARING_ROLE)
    different = _sharing_differences(wanted, running)
    if different:
        text = "; ".join(different.values())
        by_pipe = _by_pipe_directory(running)
        if all(daemon.pipe_directory in by_pipe for daemon in wanted.daemons):
            return failed(
                text,
                f"{_SHARING_ROLE}: it sets the recorded limits in the daemon without ending a client. {_WHO_CHANGES_MPS}",
            )
        units = " ".join(map(mps_units.instance, different))
        return failed(text, f"See journalctl and systemctl restart for {units}, or: {_SHARING_ROLE}")
    if not wanted.daemons:
        return passed("no MPS daemon is recorded")
    by_pipe = _by_pipe_directory(running)
    unsure = [daemon.name for daemon in wanted.daemons if by_pipe[daemon.pipe_directory].get("responds") is None]
    if unsure:
        return warning(f"whether the MPS daemon {', '.join(unsure)} answers is unknown", "Run as root on the host")
    return passed(f"{len(wanted.daemons)} MPS daemons answer with the recorded limits of memory and threads")


def mps_of_host(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the MPS daemons that are not in a container, as the device plugin's is: nothing is recorded of that."""
    return [daemon for daemon in facts.get("mps") or [] if not daemon.get("in_container")]


def broken_daemons(facts: Mapping[str, Any]) -> list[str]:
    """Return the recorded MPS daemons that do not run or do not answer; none where the record cannot be used.

    One that has other settings is not among them: it can be told the recorded ones, and a restart would end its clients.
    """
    wanted = _recorded_sharing(facts)
    answering = {one.get("pipe_directory") for one in mps_of_host(facts) if one.get("responds") is not False}
    return [one.name for one in wanted.daemons if one.pipe_directory not in answering] if wanted else []


def changed_settings(facts: Mapping[str, Any]) -> list[str]:
    """Return what recorded MPS daemons that run give a client in place of what is recorded."""
    wanted, by_pipe = _recorded_sharing(facts), _by_pipe_directory(mps_of_host(facts))
    daemons = [one for one in wanted.daemons if one.pipe_directory in by_pipe] if wanted else []
    return [text for daemon in daemons if (text := _daemon_differs(daemon, by_pipe))]


def _by_pipe_directory(running: Sequence[Mapping[str, Any]]) -> dict[Any, Mapping[str, Any]]:
    return {daemon.get("pipe_directory"): daemon for daemon in running}


def _sharing_differences(wanted: HostSharing, running: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return what is different of each recorded daemon, by its name."""
    by_pipe = _by_pipe_directory(running)
    return {daemon.name: text for daemon in wanted.daemons if (text := _daemon_differs(daemon, by_pipe))}


def _daemon_differs(wanted: Daemon, running: Mapping[Any, Mapping[str, Any]]) -> str | None:
    found = running.get(wanted.pipe_directory)
    if found is None:
        return f"the recorded MPS daemon {wanted.name} does not run"
    # 0 is recorded for "no limit", which a daemon shows as 100.
    percentage = wanted.percentage or 100.0
    present = found.get("percentage")
    wrong = []
    if present is not None and abs(present - percentage) > 0.05:
        wrong.append(f"gives a client {present:g} % of the threads, recorded is {percentage:g} %")
    for device, (limit, mib) in enumerate(zip(found.get("limits") or (), wanted.limits_mib)):
        if limit != limit_text(mib):
            limited = f"limits a client to {limit}" if limit else "limits no client"
            wrong.append(f"{limited} on its device {device}, recorded is {f'{mib} MiB' if mib else 'no limit'}")
    return f"the MPS daemon {wanted.name} {' and '.join(wrong)}" if wrong else None


def compute_mode(evidence: Evidence, expectation: Expectation) -> Outcome:
    """The compute mode of every GPU is the one that is wanted or recorded; it does not survive a reboot."""
    gpus = evidence.facts.get("gpus") or []
    recorded = (evidence.facts.get("recorded") or {}).get("sharing") or {}
    wanted = expectation.compute_mode or recorded.get("compute_mode")
    found = ", ".join(sorted({str(gpu.get("compute_mode")) for gpu in gpus}))
    if wanted is None:
        return passed(found) if found else skipped("no GPU reports its compute mode")
    wrong = _other_compute_mode(gpus, wanted)
    if wrong:
        return failed(f"the compute mode of GPU {', '.join(wrong)} is {found}, not {wanted}", _SHARING_ROLE)
    return passed(wanted)


def _other_compute_mode(gpus: Sequence[Mapping[str, Any]], wanted: str) -> list[str]:
    return [str(gpu["index"]) for gpu in gpus if gpu.get("compute_mode") != wanted]


def drift(facts: Mapping[str, Any]) -> dict[str, bool]:
    """Return whether the host differs from what the last C(site) recorded on it, by the record: C(mig), C(sharing), C(compute_mode), C(settings).

    What is not recorded, or cannot be compared because NVML does not answer, is missing. A record that cannot be used differs.
    """
    recorded = facts.get("recorded") or {}
    gpus = facts.get("gpus")
    found: dict[str, bool] = {}
    if recorded.get("mig") is not None and gpus is not None:
        with_mig = [gpu for gpu in gpus if mig_state.has_mig(gpu)]
        try:
            found["mig"] = bool(_mig_differences(with_mig, record.read_recorded_layout(recorded["mig"])))
        except record.Unreadable:
            found["mig"] = True
    if recorded.get("sharing") is not None:
        wanted = _recorded_sharing(facts)
        found["sharing"] = wanted is None or bool(_sharing_differences(wanted, mps_of_host(facts)))
        if wanted is not None and wanted.compute_mode is not None and gpus is not None:
            found["compute_mode"] = bool(_other_compute_mode(gpus, wanted.compute_mode))
    if recorded.get("settings") is not None and gpus is not None:
        found["settings"] = setting_differences(facts) != []
    return found


def recorded_pipe_directories(facts: Mapping[str, Any]) -> list[str]:
    """Return the pipe directories of the MPS daemons that are recorded; none where the record cannot be used."""
    wanted = _recorded_sharing(facts)
    return [daemon.pipe_directory for daemon in wanted.daemons] if wanted else []


def _recorded_sharing(facts: Mapping[str, Any]) -> HostSharing | None:
    recorded = (facts.get("recorded") or {}).get("sharing")
    if not isinstance(recorded, Mapping):
        return None
    try:
        return HostSharing.from_dict(recorded)
    except (KeyError, TypeError, ValueError):
        return None
