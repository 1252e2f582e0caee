# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the device plugin that runs on a node fits its host: what it hands over arrives, and it sees the driver. Pure.

A node can offer exactly what is described while no pod gets a device: the kubelet counts what the plugin says, and nobody asks whether
the container runtime takes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...module_utils import _injection as injection
from ...module_utils._facts_view import Facts, MpsDaemonFacts
from ...module_utils._formats.mps_commands import limit_text
from ...module_utils._gpu_facts import GpuFacts
from ...module_utils._health.report import FAILED, PASSED, SKIPPED, Check
from ...module_utils._sharing.modes import mps_limits
from ...module_utils._sharing.mps_instances import ROOT

CHECK, MPS_CHECK, MPS_LIMITS_CHECK = "device plugin", "MPS pipe", "MPS limits"
#: The program of the device plugin, in its own chart and in the GPU Operator.
_PROGRAM = "nvidia-device-plugin"
_CONTAINERS = (f"{_PROGRAM}-ctr", _PROGRAM)
_DIRECTORY = "/var/lib/kubelet/device-plugins"
_BOTH = f"The host and the rendered values follow from {injection.VARIABLE}: run gpufleet.nvidia.site on the host and sync the rendered tree."


def check(pods: Iterable[Mapping[str, Any]], facts: Facts) -> Check:
    """Return whether the node's device plugin and its host agree on how devices reach containers."""
    found = [(pod, container) for pod in pods for container in _containers(pod)]
    if not found:
        return Check(CHECK, SKIPPED, "no device plugin runs on the node")
    accepted = injection.accepted_by(facts)
    for pod, container in found:
        name = f"{pod['metadata'].get('namespace', 'default')}/{pod['metadata']['name']}"
        strategies = _strategies(container)
        if strategies is None:
            return Check(CHECK, SKIPPED, f"the device list strategy of {name} is only in its configuration file")
        if not any(accepted.get(method, True) for method in injection.methods_of(strategies)):
            return Check(
                CHECK,
                FAILED,
                f"{name} hands devices over by {', '.join(strategies)}, which the host's container toolkit and runtime do not accept: "
                "unprivileged pods are allocated a GPU and cannot access it",
                _BOTH,
            )
        class_ = (pod.get("spec") or {}).get("runtimeClassName")
        for _field, reason in injection.hides_driver(container.get("securityContext") or {}, class_, facts):
            return Check(CHECK, FAILED, f"{name} sees no driver: {reason}", _BOTH)
    shown = ", ".join(_strategies(found[0][1]) or ())
    return Check(CHECK, PASSED, f"devices are handed over by {shown}, and the host accepts that")


def mps_check(pods: Iterable[Mapping[str, Any]], resources: Sequence[str], daemons: Sequence[MpsDaemonFacts]) -> Check:
    """Return whether MPS daemons of the host serve the pipes in which the plugin's clients look for them.

    The plugin builds a pipe's path from the name that it offers, also a renamed one (k8s-device-plugin, cmd/mps-control-daemon/mps/root.go).
    """
    root = _mps_root(pods)
    if not root:
        return Check(MPS_CHECK, SKIPPED, "no device plugin runs on the node")
    served = {str(daemon.pipe_directory): daemon for daemon in daemons if not daemon.in_container}
    wanted = [f"{root}/{name}/pipe" for name in resources]
    missing = [path for path in wanted if path not in served]
    if missing:
        there = f"daemons serve {', '.join(sorted(served))}" if served else "no MPS daemon runs"
        step = "nvidia_sharing_rename and nvidia_sharing_mps_manager decide both: run gpufleet.nvidia.site on the host and sync the rendered tree."
        return Check(MPS_CHECK, FAILED, f"clients look for the MPS daemon at {', '.join(missing)}, and {there}", step)
    silent = [path for path in wanted if served[path].responds is False]
    if silent:
        evidence = f"the MPS daemon at {', '.join(silent)} does not answer"
        return Check(MPS_CHECK, FAILED, evidence, "Look at its log: journalctl -u 'gpufleet-mps*'.")
    return Check(MPS_CHECK, PASSED, ", ".join(wanted))


def mps_limits_check(replicas: Mapping[str, int], facts: Facts, pods: Iterable[Mapping[str, Any]] = ()) -> Check:
    """Return whether the device plugin's own MPS daemons limit their clients as they do at their start.

    A client of a daemon, and whoever enters its container, can tell it others; those of before are back when it starts again.

    :param replicas: of each resource that such a daemon serves.
    """
    root = _mps_root(pods) or ROOT
    if root != ROOT:
        evidence = f"the device plugin's mps.root is {root}, and only daemons below {ROOT} are asked"
        return Check(MPS_LIMITS_CHECK, SKIPPED, evidence)
    served = {str(one.pipe_directory): one for one in facts.mps or () if one.in_container}
    log = "See its log: kubectl logs of the pod nvidia-device-plugin-...-mps-control-daemon of the node."
    wrong: list[str] = []
    for name, count in sorted(replicas.items()):
        pipe = f"{ROOT}/{name}/pipe"
        found = served.get(pipe)
        if found is None or found.responds is False:
            what = "runs" if found is None else "answers"
            return Check(MPS_LIMITS_CHECK, FAILED, f"no MPS daemon of the device plugin {what} at {pipe}", log)
        if found.percentage is None or found.limits is None:
            return Check(MPS_LIMITS_CHECK, SKIPPED, f"the MPS daemon at {pipe} did not report its limits")
        wrong += _wrong_limits(pipe, count, found.percentage, found.limits, facts.gpus or ())
    if wrong:
        step = (
            "Drain the node, then delete its pod nvidia-device-plugin-...-mps-control-daemon, which ends all clients: the daemon starts with "
            "what is described. Every client of a daemon can change its limits."
        )
        return Check(MPS_LIMITS_CHECK, FAILED, "; ".join(wrong), step)
    return Check(MPS_LIMITS_CHECK, PASSED, "clients have the limits that follow from the pool's replicas")


def _wrong_limits(
    pipe: str, replicas: int, given: float, listed: Sequence[str], gpus: Sequence[GpuFacts]
) -> Iterator[str]:
    percentage = mps_limits(0, replicas).percentage
    if abs(given - percentage) > 0.05:
        yield f"the MPS daemon at {pipe} gives a client {given:g} % of the threads instead of {percentage} %"
    limits = dict(enumerate(listed))
    for gpu in gpus:
        present = limits.get(gpu.index)
        if present is None or not gpu.memory_mib:
            continue
        mib = mps_limits(gpu.memory_mib, replicas).memory_mib
        if present != limit_text(mib):
            limited = f"limits a client to {present}" if present else "limits no client"
            yield f"the MPS daemon at {pipe} {limited} on GPU {gpu.index} instead of {mib} MiB"


def _mps_root(pods: Iterable[Mapping[str, Any]]) -> str:
    """Return C(mps.root) of the node's device plugin, or nothing where none runs."""
    return next((value for pod in pods for one in _containers(pod) if (value := _environment(one).get("MPS_ROOT"))), "")


def _containers(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A tenant may name a container as they like; the plugin has its resources' directory of the kubelet mounted."""
    containers = (pod.get("spec") or {}).get("containers") or []
    return [
        one
        for one in containers
        if one.get("name") in _CONTAINERS
        and any(str(mount.get("mountPath")) == _DIRECTORY for mount in one.get("volumeMounts") or ())
    ]


def _environment(container: Mapping[str, Any]) -> dict[str, str]:
    return {str(one.get("name")): str(one.get("value", "")) for one in container.get("env") or []}


def _strategies(container: Mapping[str, Any]) -> list[str] | None:
    """Return the plugin's device list strategies, or None where only its configuration file knows."""
    environment = _environment(container)
    said = [one.strip() for one in environment.get("DEVICE_LIST_STRATEGY", "").split(",") if one.strip()]
    if said:
        return said
    return None if environment.get("CONFIG_FILE") else [injection.STRATEGIES[injection.ENVVAR]]
