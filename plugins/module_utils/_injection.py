# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How devices reach the containers of a pool: decided once, for the host and for everything that is rendered.

The device plugin tells the kubelet which devices a container gets, and one of three things carries them into it:

* C(cdi): the container runtime injects what the kubelet names. The NVIDIA Container Toolkit accepts neither the environment
  variable nor volume mounts, so a pod cannot ask for a device by itself. The safest, and the default wherever the runtime has CDI.
* C(volume_mounts): the plugin mounts C(/dev/null) below C(/var/run/nvidia-container-devices), and the toolkit reads that. A pod
  that may use hostPath volumes can write the same mount for any GPU. For containerd 1.6, which has no CDI.
* C(envvar): NVIDIA's default. The plugin sets C(NVIDIA_VISIBLE_DEVICES), and so can every pod and every image.

Source of what the toolkit does: nvidia-container-toolkit 1.20, internal/config/image/cuda_image.go, VisibleDevices().
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ._facts_view import Facts, RuntimeFacts
from ._plan import Refused
from ._runtimes import CDI, ENVVAR, RUNTIMES, VOLUME_MOUNTS
from ._versions import numbers

VARIABLE = "nvidia_toolkit_device_injection"
AUTO = "auto"
METHODS = (CDI, VOLUME_MOUNTS, ENVVAR)
#: The device plugin's deviceListStrategy for each of them.
STRATEGIES: Mapping[str, str] = {CDI: "cdi-cri", VOLUME_MOUNTS: "volume-mounts", ENVVAR: "envvar"}


#: The first Kubernetes whose kubelet hands the devices of a plugin to the runtime as CDI names, without a feature gate.
FIRST_KUBELET_WITH_CDI = (1, 29)


@dataclass(frozen=True)
class Injection:
    """How containers of a pool get their devices. C(default_runtime): whether containers without a runtime class run under nvidia-container-runtime."""

    method: str
    default_runtime: bool = False

    @property
    def accepts_envvar(self) -> bool:
        """Whether unprivileged containers get the devices that C(NVIDIA_VISIBLE_DEVICES) names."""
        return self.method == ENVVAR

    @property
    def accepts_volume_mounts(self) -> bool:
        """Whether unprivileged containers get the devices that mounts below /var/run/nvidia-container-devices name."""
        return self.method == VOLUME_MOUNTS

    @property
    def strategy(self) -> str:
        """The device plugin's C(deviceListStrategy)."""
        return STRATEGIES[self.method]

    @property
    def pods_need_runtime_class(self) -> bool:
        """Whether a pod with a GPU has to name the runtime class: with CDI any runtime injects its devices."""
        return self.method != CDI and not self.default_runtime

    @property
    def rendered(self) -> tuple[str, bool]:
        """What of the decision changes anything that is rendered: hosts that differ in nothing else share their configuration."""
        return self.strategy, self.pods_need_runtime_class

    @property
    def driver_pods_need_sys_admin(self) -> bool:
        """Whether a pod that has to see all GPUs, such as the device plugin's, needs CAP_SYS_ADMIN. Where the variable is refused in unprivileged
        containers, the toolkit still accepts it in those with this capability.
        """
        return self.method != ENVVAR


def choose(method: str, runtime: str) -> str:
    """Return the method that C(method) stands for on hosts with C(runtime)."""
    if method != AUTO:
        return method
    return CDI if runtime == "none" else RUNTIMES[runtime].injection


def methods_of(strategies: Iterable[str]) -> list[str]:
    """Return the method behind each of the device plugin's device list strategies; cdi-cri and cdi-annotations are one."""
    return [CDI if name.startswith("cdi-") else name.replace("-", "_") for name in strategies]


def read(variables: Mapping[str, Any]) -> Injection:
    """Return the decision that the variables C(nvidia_toolkit_*) of a pool describe. Raises Refused: they contradict each other."""
    runtime = str(variables.get("nvidia_toolkit_runtime") or "containerd")
    wanted = str(variables.get(VARIABLE) or AUTO)
    method = choose(wanted, runtime)
    if method == CDI and variables.get("nvidia_toolkit_cdi") is False:
        chosen = f"{VARIABLE} is {wanted}" + ("" if wanted == CDI else f", which is {CDI} for {runtime}")
        reason = f"{chosen}, but nvidia_toolkit_cdi is false: the container runtime would inject nothing"
        raise Refused(VARIABLE, reason, f"Set nvidia_toolkit_cdi: true, or {VARIABLE}: {VOLUME_MOUNTS}.")
    return Injection(method, bool(variables.get("nvidia_toolkit_default_runtime", False)))


def refuse_runtime(injection: Injection, runtime: str, version: str | None) -> Refused | None:
    """Return why the runtime that a host really has cannot do what the pool describes, or None. C(version): of that runtime, as the facts have it;
    None proves nothing.
    """
    known = RUNTIMES.get(runtime)
    found = numbers(version or "")
    if injection.method != CDI or known is None or not found or found >= known.first_with_cdi:
        return None
    first = ".".join(map(str, known.first_with_cdi))
    return Refused(
        VARIABLE,
        f"it is {CDI}, but {runtime} {version} does not inject the CDI devices that the kubelet names: containers would get no GPU, "
        "without an error",
        f"Install {known.title} {first} or newer, or set {VARIABLE}: {VOLUME_MOUNTS}.",
    )


def docker_warning(injection: Injection, runtime: str) -> str | None:
    """Return what a Docker host loses with this decision, or None. C(docker run --gpus) of versions that inject through the toolkit's hook sets the
    variable, which the toolkit then ignores in unprivileged containers, without an error. moby#50228 has newer versions prefer CDI; which of them do
    so on a given host is not certain (moby#52704 is open), so that the version does not decide.
    """
    if runtime != "docker" or injection.accepts_envvar:
        return None
    return (
        f"{VARIABLE} is {injection.method} on a Docker host: 'docker run --gpus' of versions that inject through the toolkit's hook gives "
        "unprivileged containers no GPU, without an error. Start them with '--device nvidia.com/gpu=all' (CDI), or set "
        f"{VARIABLE}: {AUTO}."
    )


def accepted_by(facts: Facts) -> dict[str, bool]:
    """Return for each method whether a host does it, as far as its facts say."""
    toolkit = facts.toolkit
    found = {ENVVAR: toolkit.accept_envvar_unprivileged, VOLUME_MOUNTS: toolkit.accept_volume_mounts}
    answers = [
        refuse_runtime(Injection(CDI), name, runtime.version) is None and not is_switched_off(name, runtime)
        for name, runtime in (facts.runtimes or {}).items()
        if runtime.version
    ]
    found[CDI] = any(answers) if answers else None
    return {method: value for method, value in found.items() if value is not None}


def hides_driver(context: Mapping[str, Any], runtime_class: Any, facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield why a container that has to see all GPUs, such as the device plugin's, gets none of them on a host, and no driver libraries.

    :returns: the field that decides, C(securityContext) or C(runtimeClassName), and the reason.
    """
    capabilities = context.get("capabilities")
    added = capabilities.get("add") if isinstance(capabilities, Mapping) else None
    named = {str(one) for one in added} if isinstance(added, (list, tuple)) else set()
    powerful = context.get("privileged") or {"SYS_ADMIN", "CAP_SYS_ADMIN", "ALL"} & named
    if accepted_by(facts).get(ENVVAR) is False and not powerful:
        yield (
            "securityContext",
            "the host's container toolkit accepts NVIDIA_VISIBLE_DEVICES only from containers with SYS_ADMIN, which it lacks",
        )
    known = [one.default_runtime for one in (facts.runtimes or {}).values() if one.active and one.default_runtime]
    if known and "nvidia" not in known and not runtime_class:
        yield "runtimeClassName", f"it has no runtime class, and the host's default runtime is {known[0]}"


def is_switched_off(runtime: str, found: RuntimeFacts) -> bool:
    """Whether a runtime could inject CDI devices and does not: containerd 1.7 has to be told to, newer ones do by themselves. C(found): of the
    runtime; without C(nvidia) its configuration was not read.
    """
    if found.cdi is None and found.nvidia is True and runtime == "containerd":
        return str(found.version).startswith("1.7.")
    return found.cdi is False
