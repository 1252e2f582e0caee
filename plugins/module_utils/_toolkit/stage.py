# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stage C(toolkit), planned from the facts of a host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._distributions.distributions import find
from .._facts_view import Facts
from .._migration import LEFT, TOOLKIT, is_left
from .._packages.package_set import attempt
from .._plan import Refused, StagePlan
from .._runtime.reload_risk import containers_at_risk
from .._steps import Kind
from .._versions import product_key
from .config import MODE, NO_CGROUPS, PATH, refuse_decisive
from .desired import from_variables
from .packages import DEFAULT_VERSION, PREFIX, check_version
from .plan import plan
from .state import from_facts

_ON_THE_HOST = ("nvidia", "distribution", "vendor", "runfile")
#: The first whose default mode has NVIDIA_MIG_MONITOR_DEVICES, which the device plugin's chart sets (its changelog).
_WITH_MIG_MONITOR = "1.20.1"


def stage(facts: Facts, desired: Mapping[str, Any]) -> StagePlan:
    """Return what the stage would do; see docs/architecture.md."""
    left = is_left(facts, desired, TOOLKIT)
    if desired["nvidia_toolkit_runtime"] == "none":
        return StagePlan("toolkit", needed=False)
    wanted = from_variables(desired)
    refusals: list[Refused] = []
    warning = attempt(refusals, lambda: check_version(wanted.version, wanted.allow_vulnerable))
    attempt(refusals, lambda: find(facts.host.distribution))
    warnings = [warning] if warning else []
    settings = facts.toolkit.settings or {}
    # One that comes in a container, or by a mount, has a root of its own.
    of_host = facts.driver.source in _ON_THE_HOST or desired.get("nvidia_driver_state") == "present"
    unusable = refuse_decisive(settings, of_host)
    refusals += [unusable] if unusable else []
    if refusals:
        return StagePlan("toolkit", True, refusals=tuple(refusals), warnings=tuple(warnings))
    if left:
        return StagePlan("toolkit", False, warnings=(LEFT.format("container toolkit"),))
    state = from_facts(facts, wanted)
    if state is None:
        return StagePlan("toolkit", True, warnings=tuple(warnings), unread="the installed packages are not known")
    planned = plan(state, wanted)
    installs = any(step.kind is Kind.INSTALL_TOOLKIT for step in planned.steps)
    warnings = [
        *planned.warnings,
        *_without_cgroups(settings),
        *_without_hook(settings, wanted.runtime),
        *_without_mig_monitor(facts, wanted.version, desired),
        *(_reload_warning(facts, wanted.runtime) if installs else ()),
    ]
    return StagePlan("toolkit", planned.changes, planned.steps, warnings=tuple(warnings))


def _without_cgroups(settings: Mapping[str, str]) -> list[str]:
    if settings.get(NO_CGROUPS) != "True":
        return []
    return [
        f"{PATH}, {NO_CGROUPS}: it is true, so containers that get their GPUs by NVIDIA's hook (docker --gpus, mode legacy) cannot open them unless "
        "they are rootless: set it to false"
    ]


def _without_hook(settings: Mapping[str, str], runtime: str) -> list[str]:
    """Return what NVIDIA's hook refuses (nvidia-container-toolkit#1246, cmd/nvidia-container-runtime-hook, assertModeIsLegacy)."""
    mode = settings.get(MODE, "auto")
    if runtime != "docker" or mode in ("auto", "legacy"):
        return []
    return [
        f"{PATH}, {MODE}: it is {mode}, so 'docker run --gpus' of versions that inject through the toolkit's hook fails (invoking the NVIDIA Container "
        "Runtime Hook directly is not supported): set it to auto, or start containers with '--runtime nvidia' or '--device nvidia.com/gpu=all'"
    ]


def _without_mig_monitor(facts: Facts, version: str, desired: Mapping[str, Any]) -> list[str]:
    """Return that NVML in a device plugin is refused the memory of GPUs in MIG mode (nvidia-container-toolkit#1740)."""
    served = facts.kubelet.installed and desired.get("nvidia_sharing_backend") != "dra"
    if not served or desired.get("nvidia_mig_strategy") in (None, "none"):
        return []
    if (facts.toolkit.settings or {}).get(MODE) == "legacy" or product_key(version) >= product_key(_WITH_MIG_MONITOR):
        return []
    return [
        f"{PREFIX}version is {version}: before {_WITH_MIG_MONITOR} containers do not get /dev/nvidia-caps/nvidia-cap2, without which a device plugin that is "
        f"not privileged ends with 'Insufficient Permissions' on GPUs in MIG mode. Use {DEFAULT_VERSION}"
    ]


def _reload_warning(facts: Facts, runtime: str) -> list[str]:
    """Return what the packages' own scripts may do to containers: they reload systemd (host.md, section 8)."""
    named = containers_at_risk(facts, runtime)
    if not named:
        return []
    return [
        "the scripts of the packages reload systemd, which takes the GPUs from containers that NVIDIA's hook gave them to, but not from those that "
        f"got them by CDI. Running in containers: {named}. Drain the host first, or have them stopped"
    ]
